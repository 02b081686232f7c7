"""What all estimators share: classes, predictions, probabilities, and what a notebook shows.

Every estimator is a dataclass: its fields are its parameters, as scikit-learn reads them from a constructor.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable
from html import escape
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from foldless.beliefs import Array
from foldless.estimators._reading import STORAGE, SampleWeights, sample_weights
from foldless.estimators._saving import Saved
from foldless.estimators._summary import LeaveOneOut, Sentence, Summarised, Summary, summary_of
from foldless.evaluation import worth_of
from foldless.io import printable
from foldless.kernels import one_blas_thread
from foldless.operators import operator_from
from foldless.problem import Outcome

# In a notebook.
N_FEATURES_NAMED = 8
MOST_CLASSES_NAMED = 6


class Classifier(Saved, Summarised, ClassifierMixin, BaseEstimator):
    """Labels in, labels out."""

    @abstractmethod
    def decision_function(self, X: Any) -> NDArray[Any]:
        """Scores: of two classes positive for ``classes_[1]``, of more one for each class."""

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each sample."""
        decision = self.decision_function(X)
        two = decision.ndim == 1
        return self.classes_[(decision > 0).astype(np.intp) if two else np.argmax(decision, axis=1)]

    def _encoded(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """The classes, two or more, and the position of every label among them."""
        check_classification_targets(y)
        classes, code = np.unique(y, return_inverse=True)
        if classes.size == 1:
            raise ValueError(
                f"{type(self).__name__} needs samples of two classes or more, but y contains only one class, "
                f"{classes[0]!r}. Check that the label column is the right one."
            )
        return classes, code

    def _check_one_of(self, name: str, known: Iterable[str]) -> None:
        if (value := getattr(self, name)) not in (known := list(known)):
            raise ValueError(f"{name} must be one of {known}; got {value!r}.")

    def _html_repr(self) -> str:
        diagram: str = super()._html_repr()
        if "coef_" not in vars(self):
            return diagram
        items = "".join(f"<li>{escape(line)}</li>" for line in _lines(summary_of(self)))
        return f'{diagram}<ul class="foldless-summary">{items}</ul>'


class ProbabilisticClassifier(Classifier):
    """Class probabilities as well, of dense and sparse data."""

    class_weight: dict[Any, float] | str | None

    @abstractmethod
    def _log_proba(self, X: Any) -> Array:
        """(samples, classes)"""

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Class probabilities."""
        return np.exp(self._log_proba(X)).astype(self.coef_.dtype, copy=False)

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
        sample_weight : array of shape (n_samples,), optional
            How often each sample counts: weight 2 is the same as the row twice.
        """
        self._check_parameters()
        X, targets = validate_data(self, X, y, ensure_min_samples=2, **STORAGE)
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

    def _new_data(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_data(self, X, reset=False, **STORAGE)

    def _publish_left_out(
        self,
        log_proba: Array,
        code: NDArray[np.intp],
        weights: SampleWeights,
        dtype: Any,
        p_value: float | None = None,
    ) -> None:
        """`loo_proba_` and its kin, of samples as they were given."""
        log_proba, share = weights.for_equals(log_proba), weights.given / weights.given.sum()
        self.loo_proba_ = np.exp(log_proba).astype(dtype)
        # Shares add up to one but for rounding.
        self.loo_error_ = min(float(share @ (log_proba.argmax(axis=1) != code)), 1.0)
        self.loo_log_loss_ = -float(share @ log_proba[np.arange(code.size), code])
        self.loo_worth_ = worth_of(log_proba, code, weights.given, p_value)

    def _left_out(self, how: Sentence, of: str = "samples") -> LeaveOneOut:
        proba = self.loo_proba_.astype(np.float64)
        # Models that were saved by earlier versions have none.
        worth, test = vars(self).get("loo_worth_"), vars(self).get("_null_test", "permutation")
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


def _lines(summary: Summary) -> list[str]:
    """What was found, in a line each. Text, not HTML, with names made printable."""
    names = [printable(label) for label in summary.classes[:MOST_CLASSES_NAMED]]
    more = len(summary.classes) - len(names)
    said = [f"classes: {', '.join(names)}{f' and {more} more' if more > 0 else ''}", _features(summary)]
    if summary.loo is not None and np.isfinite(summary.loo.error):
        error, log_loss, worth = 100 * summary.loo.error, summary.loo.log_loss, summary.loo.worth
        line = f"leave-one-out: error {error:.1f} %"
        if worth is not None:
            lower, upper = worth.error_interval
            line += f" (95 % interval {100 * lower:.1f} to {100 * upper:.1f} %; guessing "
            line += f"{100 * worth.guessing_error:.1f} %)"
        said.append(f"{line}, log loss {log_loss:.3f}")
    if summary.outcome is not None:
        advice = "" if summary.outcome.trustworthy else f". {summary.outcome.advice}"
        said.append(f"the fit {summary.outcome} after {summary.n_iter} iterations{advice}")
    return said + [f"caution: {flag}" for flag in summary.flags]


def _features(summary: Summary) -> str:
    chosen = summary.selected()
    if summary.inclusion is None:
        what = f"of {summary.n_features} features" if summary.kernel is None else "basis functions"
        return f"in use: {chosen.size} {what}"
    # What is kept is in the model as well.
    chosen = np.union1d(chosen, np.asarray(summary.kept, dtype=np.intp))
    chosen = chosen[np.argsort(-summary.inclusion[chosen], kind="stable")]
    columns = summary.feature_names
    named = [f"column {j}" if columns is None else printable(columns[j]) for j in chosen[:N_FEATURES_NAMED]]
    more = f" and {chosen.size - len(named)} more" if chosen.size > len(named) else ""
    said = f"selected: {chosen.size} of {summary.n_features} features at a false discovery rate of "
    return f"{said}{summary.fdr:g}" + (f": {', '.join(named)}{more}" if named else "")
