"""What all estimators share: reading X, y and weights; classes, predictions, probabilities.

Every estimator is a dataclass: its fields are its parameters, as scikit-learn reads them from a constructor.

Arrays, frames and sparse matrices in memory are checked by scikit-learn. Data that live elsewhere (a
`Storage` over files or a cluster) cannot be looked at before the first sweep; shapes, names and labels are
checked here, and values that are not finite show in the moments of their columns.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import (
    _safe_indexing,
    check_array,
    check_consistent_length,
    column_or_1d,
    compute_sample_weight,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from foldless.beliefs import Array
from foldless.docstrings import Documented, like
from foldless.estimators._saving import Saved
from foldless.estimators._summary import LeaveOneOut, Sentence, Summarised, in_lines, summary_of
from foldless.evaluation import worth_of
from foldless.kernels import one_blas_thread
from foldless.operators import Storage, operator_from, stays_elsewhere
from foldless.problem import Outcome

# These are used as they are: any layout, both precisions, both sparse formats, both index widths. What else
# scikit-learn accepts (frames, other sparse formats, other numbers) it converts first.
STORAGE = {"accept_sparse": ("csr", "csc"), "accept_large_sparse": True, "dtype": (np.float64, np.float32)}
# Operators bring small integers (genotypes, counts) to floating point a tile at a time.
INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32)
# Of one number made of a row, relative to the largest: closer ones are compared column by column.
NEARLY_EQUAL = 1e-6
# In log-odds: what single precision cannot tell from a tie, also after integration over wide posteriors.
NEAR_TIE = 1e-5
# Of the heaviest sample. Nothing is learnt from less, and nobody has seen more.
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-12, 1e6
# Entries of a table that is read as seldom as possible.
LARGE = 1 << 20
FLOATS = (np.float64, np.float32)
TILED_STORAGE = STORAGE | {"dtype": (np.float64, np.float32, *INTEGERS)}


class Classifier(Documented, Saved, Summarised, ClassifierMixin, BaseEstimator):
    """Labels in, labels out.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The labels, sorted.
    n_features_in_, feature_names_in_ : int, array of shape (n_features,)
        How many columns were fitted, and their names, where columns have names.
    """

    @abstractmethod
    def decision_function(self, X: Any) -> NDArray[Any]:
        """Scores: of two classes positive for ``classes_[1]``, of more one for each class.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n_samples, n_features)
            Samples, in the units of the fit.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_classes)
            Scores.
        """

    @like(decision_function)
    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each sample.

        Returns
        -------
        array of shape (n_samples,)
            Labels.
        """
        decision = self.decision_function(X)
        if decision.ndim == 1:
            decision = np.column_stack([np.zeros_like(decision), decision])
        first, second = np.partition(decision, -2, axis=1)[:, -2:].T[::-1]
        # Rounding may leave a tie in probabilities and none here, or the other way round.
        near = np.flatnonzero(first - second < NEAR_TIE)
        if near.size and hasattr(self, "predict_proba"):
            some = near.size < len(decision) and not stays_elsewhere(X)
            decision[near] = (
                self.predict_proba(_safe_indexing(X, near)) if some else self.predict_proba(X)[near]
            )
        return self.classes_[np.argmax(decision, axis=1)]

    def _encoded(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """The classes, two or more, and the position of every label among them."""
        if y.dtype == object and (missing := np.flatnonzero([label is None for label in y])).size:
            raise ValueError(
                f"y has no label for {missing.size} of {y.size} samples, first in row {missing[0]}, from 0. "
                "Fit to those that have one, and predict the others."
            )
        check_classification_targets(y)
        classes, code = np.unique(y, return_inverse=True)
        if classes.size == 1:
            raise ValueError(
                f"{type(self).__name__} needs samples of two classes or more, but y contains only one class, "
                f"{classes.tolist()[0]!r}. Check that the label column is the right one."
            )
        return classes, code

    def _check_one_of(self, name: str, known: Iterable[str]) -> None:
        if (value := getattr(self, name)) not in (known := list(known)):
            raise ValueError(f"{name} must be one of {known}; got {value!r}.")

    def _html_repr(self) -> str:
        diagram: str = super()._html_repr()
        if "coef_" not in vars(self):
            return diagram
        items = "".join(f"<li>{escape(line)}</li>" for line in in_lines(summary_of(self)))
        return f'{diagram}<ul class="foldless-summary">{items}</ul>'


class ProbabilisticClassifier(Classifier):
    """Class probabilities as well, of dense and sparse data.

    Parameters
    ----------
    class_weight : dict or 'balanced', optional
        What a sample of each class counts; 'balanced' makes all classes count alike.
    """

    class_weight: dict[Any, float] | str | None

    @abstractmethod
    def _log_proba(self, X: Any) -> Array:
        """(samples, classes)"""

    @like(Classifier.decision_function)
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Class probabilities.

        Returns
        -------
        array of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        return np.exp(self._log_proba(X)).astype(self.coef_.dtype, copy=False)

    @like(predict_proba)
    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Logarithms of the class probabilities, exact far out where the probabilities round to zero."""
        return self._log_proba(X).astype(self.coef_.dtype, copy=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to data of two classes or more.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n_samples, n_features)
            Any units: columns are centred and scaled inside, unless ``standardize=False``.
        y : array of shape (n_samples,)
            Labels, of any type, with at least two different values.
        sample_weight : array of shape (n_samples,), optional
            How often each sample counts: weight 2 is the same as the row twice.

        Returns
        -------
        classifier
            Itself.
        """
        self._check_parameters()
        X, targets = validated(self, X, y, ensure_min_samples=2, **STORAGE)
        self.classes_, code = self._encoded(targets)
        rows = operator_from(X)
        weights = sample_weights(targets, sample_weight, self.class_weight, self.classes_, rows)
        with one_blas_thread():
            detail = self._fit(X, code, weights)
        if not (self.outcome_.trustworthy or self.outcome_ is Outcome.EARLY):
            self._warn(detail)
        return self

    def _check_parameters(self) -> None:
        """Raises if they make no sense, before any work."""

    def _fit(self, X: Any, code: NDArray[np.intp], weights: SampleWeights) -> str:
        """Fitted attributes of checked data; what to add to a warning, if there is reason for one."""
        raise NotImplementedError

    def _new_data(self, X: Any, *, finite: bool = True) -> Any:
        """Checked; unless it must be `finite`, that is left to `all_finite` where it takes long."""
        check_is_fitted(self)
        return validated(self, X, reset=False, **STORAGE, **({} if finite else _looked_at_later(X)))

    def _publish_left_out(
        self,
        log_proba: Array,
        code: NDArray[np.intp],
        weights: SampleWeights,
        dtype: Any,
        p_value: float | None = None,
        group: NDArray[np.intp] | None = None,
    ) -> None:
        """`loo_proba_` and its kin, of samples as they were given."""
        log_proba, share = weights.for_equals(log_proba), weights.given / weights.given.sum()
        self.loo_proba_ = np.exp(log_proba).astype(dtype)
        # Shares add up to one but for rounding.
        self.loo_error_ = min(float(share @ (log_proba.argmax(axis=1) != code)), 1.0)
        self.loo_log_loss_ = -float(share @ log_proba[np.arange(code.size), code])
        self.loo_worth_ = worth_of(log_proba, code, weights.given, p_value, group)

    def _left_out(self, how: Sentence, of: str = "samples", test: str = "permutation") -> LeaveOneOut:
        proba = self.loo_proba_.astype(np.float64)
        worth = vars(self).get("loo_worth_")  # models that were saved by earlier versions have none
        return LeaveOneOut(proba, self.loo_error_, self.loo_log_loss_, how, of, worth, test)

    def _warn(self, detail: str = "") -> None:
        """Of a fit that is not to be relied on; called by `fit`."""
        name, outcome = type(self).__name__, self.outcome_
        text = f"{name}: {outcome} after {self.n_iter_} iterations{detail}. {outcome.advice}"
        warnings.warn(text, ConvergenceWarning, stacklevel=3)


class SelectingClassifier(SelectorMixin, ProbabilisticClassifier):
    """A classifier that selects features, as `get_support` has them."""

    # What to do where nothing is selected.
    _empty_advice = "Pass a larger fdr, or name columns in always_keep."

    def transform(self, X: Any) -> Any:
        """The columns of X that are selected.

        If none is, there are none, with a warning, as scikit-learn's selectors have it; what follows in a
        pipeline will not take that.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n_samples, n_features)
            Samples with the columns of the fit.

        Returns
        -------
        array, data frame or sparse matrix of shape (n_samples, n_selected)
            Like X, unless ``set_output`` has something else.
        """
        if self.get_support().any():
            return super().transform(X)
        warnings.warn(
            f"{type(self).__name__} has selected none of the {self.n_features_in_} features, and what "
            f"follows in a pipeline cannot use a table without columns. {self._empty_advice}",
            UserWarning,
            stacklevel=2,
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="No features were selected")
            return super().transform(X)

    def _get_support_mask(self) -> NDArray[np.bool_]:
        return self.get_support()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


# ------------------------------------------------------------------ from what a user passes to what is fitted


def validated(estimator: BaseEstimator, X: Any, *y: Any, **how: Any) -> Any:
    """scikit-learn's `validate_data`, and an error of our own where names do not tell features apart."""
    names = list(getattr(X, "column_names", getattr(X, "columns", ())))  # of Arrow, of all others
    if len(set(names)) < len(names):
        name, times = Counter(names).most_common(1)[0]
        raise ValueError(
            f"X has {times} columns called {name!r}, and results go by the names of features. "
            "Give every column a name of its own, or pass the values alone: X.to_numpy()."
        )
    try:
        # Sums of large numbers are how scikit-learn looks for such as are not finite.
        with np.errstate(over="ignore", invalid="ignore"):
            return validate_data(estimator, X, *y, **how)
    except ValueError as error:
        raise _with_place(error, X, estimator, names) from None
    except TypeError:  # NumPy's, where dates stand beside numbers
        timed = getattr(X, "select_dtypes", lambda **_: X)(include=["datetime", "datetimetz", "timedelta"])
        if timed is X or not len(timed.columns):
            raise
        of = [str(c) for c in timed.columns]
        raise ValueError(
            f"X has columns of dates or times: {', '.join(map(repr, of[:5]))}{' …' if of[5:] else ''}. "
            f"Make them numbers (days since a date), or leave them out, X.drop(columns={of[:5]!r})."
        ) from None


def _with_place(error: ValueError, X: Any, estimator: Any, names: Sequence[Any] = ()) -> ValueError:
    """An error about words or values that are not finite, with where they are; any other as it is."""
    said = str(error)
    # The others are pandas' own, where further columns are of nullable numbers; of type str from 3.1 on.
    casts = ("could not convert string to float", "Cannot cast object", "Cannot cast str")
    of_words = any(error in said for error in casts)
    if of_words and hasattr(X, "select_dtypes"):
        words = [str(c) for c in X.select_dtypes(exclude=["number", "bool", "boolean"]).columns]
        more, first = (f" and {len(words) - 5} more" if len(words) > 5 else ""), words[:5]
        return ValueError(
            f"X has columns of words: {', '.join(map(repr, first))}{more} ({said}). Code them, "
            f"pd.get_dummies(X, columns={first!r}), or leave them out, X.drop(columns={first!r})."
        )
    kind = next((word for word in ("NaN", "infinity") if said.startswith(f"Input X contains {word}")), "")
    if not kind or (place := _first_not_finite(X)) is None:
        return error
    row, column = place
    name = f" ({names[column]!r})" if len(names) else ""
    return ValueError(
        f"Input X contains {kind}: the first value that is not finite is in row {row}, column "
        f"{column}{name}, counted from 0. Remove such rows or columns, or fill in what is missing: "
        f"make_pipeline(SimpleImputer(strategy='median'), {type(estimator).__name__}())."
    )


def _first_not_finite(X: Any) -> tuple[int, int] | None:
    """Row and column; None where X cannot be looked at."""
    if issparse(X):
        X = X.tocoo()
        spoiled = np.flatnonzero(~np.isfinite(X.data))[:1]
        return None if not spoiled.size else (int(X.row[spoiled[0]]), int(X.col[spoiled[0]]))
    try:
        # A row at a time: the error must not need more memory than the table.
        for row, values in enumerate(np.asarray(X)):
            spoiled = np.flatnonzero(~np.isfinite(np.asarray(values, dtype=np.float64)))
            if spoiled.size:
                return row, int(spoiled[0])
    except (TypeError, ValueError):
        pass
    return None


def training_data(estimator: BaseEstimator, X: Any, y: ArrayLike) -> tuple[Storage, NDArray[Any]]:
    """The operator of a table to learn from, and its labels; the estimator takes note of the columns."""
    if not stays_elsewhere(X):
        X, targets = validated(estimator, X, y, ensure_min_samples=2, **TILED_STORAGE)
        return operator_from(X), targets
    operator = operator_from(X)
    # Labels may live elsewhere, too (a column of a Dask frame), but they are few.
    targets = column_or_1d(np.asarray(y), warn=True)
    n_rows, n_columns = operator.shape
    if targets.size != n_rows:
        raise ValueError(f"X has {n_rows} rows, but y has {targets.size} labels. Each row needs one.")
    if n_rows < 2 or n_columns < 1:
        raise ValueError(f"X has shape {operator.shape}; at least 2 samples and 1 feature are needed.")
    estimator.n_features_in_ = n_columns
    if operator.column_names is not None:
        estimator.feature_names_in_ = np.asarray(operator.column_names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_  # of an earlier fit
    return operator, targets


def new_data(estimator: BaseEstimator, X: Any) -> Storage:
    """The operator of new samples, with the columns of the fit."""
    if not stays_elsewhere(X):
        return operator_from(validated(estimator, X, reset=False, **TILED_STORAGE, **_looked_at_later(X)))
    operator = operator_from(X)
    expected = int(estimator.n_features_in_)
    if operator.shape[1] != expected:
        raise ValueError(
            f"X has {operator.shape[1]} features, but {type(estimator).__name__} is expecting {expected} "
            "features as input."
        )
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None and operator.column_names is not None:
        differs = np.flatnonzero(np.asarray(operator.column_names, dtype=object) != names)
        if differs.size:
            first = int(differs[0])
            raise ValueError(
                f"The columns of X are not those of the fit, in their order: column {first} is "
                f"{operator.column_names[first]!r} instead of {names[first]!r}."
            )
    return operator


def _looked_at_later(X: Any) -> dict[str, bool]:
    """Whether a table is so large that looking for values that are not finite is left to `all_finite`."""
    large = isinstance(X, np.ndarray) and X.dtype in FLOATS and X.size > LARGE
    return {"ensure_all_finite": False} if large else {}


def unless_finite() -> np.errstate:
    """A context for samples that may turn out not to be finite: then an error, and no warning before it."""
    return np.errstate(invalid="ignore", over="ignore")


def all_finite(estimator: BaseEstimator, X: Any, found: Array) -> Array:
    """What was found for new samples; an error if that is not finite because the samples are not.

    A number that is not finite makes every sum over its row likewise, whatever its weight. So a large table
    is not read a second time, which would take as long as the prediction.
    """
    if isinstance(X, np.ndarray) and not np.isfinite(found).all():
        try:
            check_array(X, estimator=estimator, input_name="X", dtype=FLOATS)
        except ValueError as error:
            raise _with_place(error, X, estimator) from None
    return found


class SampleWeights(NamedTuple):
    """How much each sample counts in the fit, and as how many samples in averages over left-out ones."""

    counted: Array
    given: Array
    first: NDArray[np.intp] | None = None  # of samples equal to each, if any are: that one counts for all

    def for_equals(self, of_samples: Array) -> Array:
        """What was found for samples that count, for those they stand for, too."""
        return of_samples if self.first is None else of_samples[self.first]


def checked_groups(groups: ArrayLike, y: NDArray[Any]) -> NDArray[np.intp]:
    """Groups of samples as numbers from 0."""
    given = column_or_1d(groups, warn=False)
    check_consistent_length(given, y)
    names, numbers = np.unique(given, return_inverse=True)
    if names.size < 2:
        raise ValueError(
            f"groups has only one group, {names.tolist()[0]!r}: nothing would be left when it is left out. "
            "Leave groups out, or give at least two."
        )
    return np.asarray(numbers, dtype=np.intp)


def sample_weights(
    y: NDArray[Any],
    sample_weight: ArrayLike | None,
    class_weight: Any,
    classes: NDArray[Any],
    rows: Storage | None = None,
) -> SampleWeights:
    """Checked: every class has a sample that counts, and a class weight above zero.

    Equal ones of the `rows`, if given, count as one row with the weight of all: so a row twice is a row of
    weight 2 when samples are left out as well, and no copy of a row predicts the label of another.
    """
    weight = None if sample_weight is None else np.asarray(sample_weight)
    given = np.asarray(_check_sample_weight(weight, y, dtype=np.float64, ensure_non_negative=True))
    _check_magnitude(given, "sample_weight")
    for label, shown in zip(classes, classes.tolist(), strict=True):
        if not np.any(given[y == label] > 0):
            raise ValueError(
                f"After removing samples of weight zero, class {shown!r} has no samples left, and one "
                "class cannot be told from nothing. Give a sample of each class a positive weight."
            )
    if class_weight is None:
        return _gathered(SampleWeights(given, given), y, rows)
    of_class = compute_sample_weight(class_weight, y)
    if not (np.all(np.isfinite(of_class)) and np.all(of_class > 0)):
        raise ValueError(
            f"class_weight={class_weight!r} gives a class a weight that is not positive and finite. "
            "Every class needs one above 0."
        )
    counted = given * of_class
    _check_magnitude(counted, "sample_weight times class_weight")
    # A class weight is no number of samples: errors are those of the samples that were given.
    return _gathered(SampleWeights(counted, given), y, rows)


def _check_magnitude(weight: Array, what: str) -> None:
    """Sums of squares of other weights overflow, or are lost in rounding."""
    largest = float(weight.max())
    if largest > LARGEST_WEIGHT or 0.0 < largest < SMALLEST_WEIGHT:
        raise ValueError(
            f"the largest {what} is {largest:g}, and a sample of weight w counts as w samples: it must lie "
            f"between {SMALLEST_WEIGHT:g} and {LARGEST_WEIGHT:g}. Divide weights by their mean."
        )


def _gathered(weights: SampleWeights, y: NDArray[Any], rows: Storage | None) -> SampleWeights:
    first = None if rows is None else first_of_equals(rows, y, weights.counted)
    if first is None:
        return weights
    counted = np.bincount(first, weights.counted, minlength=first.size).astype(np.float64)
    return SampleWeights(counted, weights.given, first)


def first_of_equals(rows: Storage, y: NDArray[Any], weight: Array) -> NDArray[np.intp] | None:
    """Of every row the position of the first one equal to it, label included; None where there are no copies.

    Where equal rows have different labels, rows are patterns that samples share, as in a table of a few
    answers of yes and no: then equal rows are samples of their own.
    """
    # Equal rows are neighbours in the order of any one number made of all columns, but for rounding.
    with np.errstate(over="ignore", invalid="ignore"):  # columns as large as that are refused by name later
        mixture = np.asarray(rows.scores(np.cos(np.arange(rows.shape[1]))), dtype=np.float64)
        order = np.argsort(mixture, kind="stable")
        step = np.diff(mixture[order])
        near = np.flatnonzero(step <= NEARLY_EQUAL * max(float(np.abs(mixture).max()), 1.0))
    equal = np.zeros(near.size, dtype=bool)
    left, right = rows.some_rows(order[near]), rows.some_rows(order[near + 1])
    if near.size:
        for (at, tile), (_, other) in zip(left.dense_rows(), right.dense_rows(), strict=True):
            equal[at] = np.all(tile == other, axis=1)
    starts = np.ones(order.size, dtype=bool)
    starts[near[equal] + 1] = False
    pattern = np.empty(order.size, dtype=np.intp)
    pattern[order] = np.cumsum(starts) - 1
    counted = weight > 0
    labels_of = np.unique(np.column_stack([pattern, np.unique(y, return_inverse=True)[1]])[counted], axis=0)
    n_patterns = np.unique(pattern[counted]).size
    if n_patterns == np.count_nonzero(counted) or labels_of.shape[0] > n_patterns:
        return None
    first = np.arange(order.size)
    _, position, of = np.unique(pattern[counted], return_index=True, return_inverse=True)
    first[counted] = np.flatnonzero(counted)[position][of]
    return first
