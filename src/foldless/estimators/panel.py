"""PanelClassifier: a few features that predict nearly as well as all of them, and a model of these alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import check_array, check_scalar
from sklearn.utils.validation import check_is_fitted

from foldless.beliefs import Array
from foldless.estimators._base import MessagePassingClassifier, kept_positions
from foldless.estimators._feature_table import feature_table
from foldless.estimators._panel_search import Judged, Search, fitted
from foldless.estimators._scikit_learn import (
    TILED_STORAGE,
    SelectingClassifier,
    checked_groups,
    new_data,
    sample_weights,
    training_data,
)
from foldless.estimators._summary import STANDARDISED, LeaveOneOut, Sentence, Summary, basics, said
from foldless.estimators.classifier import SparseClassifier
from foldless.kernels import one_blas_thread
from foldless.operators import operator_from, stays_elsewhere
from foldless.problem import Outcome
from foldless.registry import registered
from foldless.selection.panel import Order, Projection, StandIn, Target, projected, stand_ins
from foldless.tuning.record import Flag

if TYPE_CHECKING:
    import pandas as pd

# Sizes that 'auto' compares: about equal steps of what a feature more can change.
SIZES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50)

NO_PANEL = Flag(
    "no-panel",
    "The full model predicts left-out samples no better than class frequencies do: no panel can be told from "
    "chance. Predictions are class frequencies.",
)
NOT_BETTER = Flag(
    "panel-by-decree",
    "The full model predicts left-out samples no better than class frequencies do. The panel has the size "
    "that was asked for, and cannot be told from chance.",
)
INTERRUPTED = Flag(
    "interrupted",
    "The search was interrupted: only some parts were left out, and what is said of left-out samples is of "
    "these. The panel itself is of all samples.",
)


@registered("estimator/panel")
@dataclass(eq=False, repr=False)
class PanelClassifier(SelectingClassifier):
    """Find the few features that would do, and classify with them alone.

    The full model is fitted first, or taken as it is. Features are ordered by forward selection on its
    scores, in which those count more that separate the classes on their own and that have a large weight
    beside all others, and a model of the first k is fitted to its probabilities, not to the labels. What that
    loses on other samples is measured by leaving out parts of the samples, one after the other, and repeating
    everything without them: the full model, the order and the fit.

    A panel is an answer to "which few would do?". That a feature is not in it does not mean that it is
    irrelevant: another may stand in for it (`alternatives_`).

    Parameters
    ----------
    n_features : 'auto', int or list of int, default='auto'
        How many, besides those of `always_keep`. Of a list, or with 'auto' of sizes up to 50, the smallest
        from which on no size is worse than the best by more than a standard error, or 2 % of what the best
        gains over class frequencies, in log loss of left-out samples. Unless a number is given, there is no
        panel where the full model predicts left-out samples no better than class frequencies.
    reference : classifier, optional
        The full model. A fitted one is taken as it is, and must have been fitted to the same table; one that
        is not is fitted first. By default a `SparseClassifier`. Any classifier of scikit-learn with
        `predict_proba` will do; it is fitted again without each part, while models of foldless have a
        cheaper way. (Tools that copy an estimator, as `cross_validate` does, fit the reference again, as
        they should.)
    always_keep : list of column names or positions, optional
        Covariates that are in every panel.
    class_weight : dict or 'balanced', optional
        What a sample of each class counts; 'balanced' makes all classes count alike.
    n_parts : int, default=5
        Parts of the samples that are left out in turn. Groups stay together.

    Attributes
    ----------
    features_ : array of shape (n_members,)
        Positions of the panel's columns in the table, in the table's order, `always_keep` among them. Empty
        if there is no panel.
    feature_names_ : array of shape (n_members,)
        Their names, if columns have names.
    order_ : array
        Members in the order of their importance, and features that would come next (that would come first,
        where there is no panel).
    path_ : list of PanelSize
        ``size``, ``error``, ``error_se``, ``log_loss`` and ``log_loss_se`` of every size that was tried, from
        samples left out of everything; the first is that of no feature.
    full_ : PanelSize
        The same of the full model.
    stability_ : array of shape (n_members,)
        Of the orders without a part, the share that has this member among the first so many; 1 for what is
        always kept.
    alternatives_ : dict from position to tuple of StandIn
        For every member that may be left out, features that could take its place, with ``loss``: by how many
        nats a sample the panel would be further from the full model.
    coef_, intercept_ : arrays of shape (1 or n_classes, n_members) and (1 or n_classes,)
        Of the panel's columns, in the units of X.
    left_out_proba_ : array of shape (n_samples, n_classes)
        Of every sample from the panel made without its part. NaN where a class has no samples but these.
    flags_ : list of Flag
        ``no-panel`` where there is none; ``interrupted`` after Ctrl-C, which leaves the panel as the parts
        that had been left out by then have it. Before the first of them there is none to leave.
    reference_ : the full model
        Not saved with the panel.
    classes_ : array of shape (n_classes,)
        The labels, sorted.
    n_features_in_, feature_names_in_ : int, array of shape (n_features,)
        How many columns were fitted, and their names, where columns have names.

    See Also
    --------
    SparseClassifier : The full model by default: which features matter beside all others, and how surely.

    Examples
    --------
    >>> from foldless import PanelClassifier
    >>> from foldless.datasets import make_class_means
    >>> data = make_class_means(n_samples=100, n_features=500, n_active=5, random_state=0)
    >>> model = PanelClassifier(n_features=5).fit(data.X, data.y)
    >>> set(model.features_.tolist()) == set(data.active.tolist())
    True
    >>> model.predict(data.X[:3, model.features_]).shape
    (3,)
    """

    n_features: int | str | Sequence[int] = "auto"
    reference: Any = None
    _: KW_ONLY
    always_keep: Sequence[str] | Sequence[int] | None = None
    class_weight: dict[Any, float] | str | None = None
    n_parts: int = 5

    _empty_advice = "No panel can be told from chance; n_features as a number gives one of that size."
    # Of the table and of the full model: what is saved needs only the panel's columns.
    _not_saved = frozenset({"reference", "reference_", "feature_names_in_", "left_out_proba_"})

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Find the panel.

        Parameters
        ----------
        X : array, data frame, sparse matrix or `open_rows`, of shape (n_samples, n_features)
            The whole table, in any units.
        y : array of shape (n_samples,)
            Labels, of any type, with at least two different values.
        sample_weight : array of shape (n_samples,), optional
            How often each sample counts: weight 2 is the same as the row twice.
        groups : array of shape (n_samples,), optional
            Samples that belong together, and are left out together.

        Returns
        -------
        PanelClassifier
            Itself.
        """
        sizes = self._sizes()
        operator, targets = training_data(self, X, y)
        self.classes_, code = self._encoded(targets)
        group = None if groups is None else checked_groups(groups, targets)
        compared = None if stays_elsewhere(X) or group is not None else operator
        weights = sample_weights(targets, sample_weight, self.class_weight, self.classes_, compared)
        kept = np.array(kept_positions(self, operator.shape[1]), dtype=np.intp)
        self.reference_ = self._full_model(X, targets, sample_weight, groups)
        with one_blas_thread():
            search = Search(X, targets, operator, code, weights, group, kept, self.classes_, self.reference_)
            self._publish(search, sizes)
        return self

    def _sizes(self) -> tuple[int, ...]:
        """Sizes to try, the smallest first."""
        check_scalar(self.n_parts, "n_parts", Integral, min_val=2)
        given = self.n_features
        if isinstance(given, str):
            if given != "auto":
                raise ValueError(f"n_features must be 'auto', a number or a list of numbers; got {given!r}.")
            return SIZES
        numbers: list[Any] = [given] if isinstance(given, Integral) else list(given)  # type: ignore[arg-type]
        if not numbers or any(isinstance(k, bool) or not isinstance(k, Integral) or k < 1 for k in numbers):
            raise ValueError(
                f"n_features must be 'auto', a number from 1 on or a list of such; got {given!r}."
            )
        chosen = tuple(sorted({int(k) for k in numbers}))
        # Sizes below one that was asked for show what the last features are good for.
        below = tuple(k for k in SIZES if k < chosen[0]) if isinstance(given, Integral) else ()
        return below + chosen

    def _full_model(self, X: Any, y: NDArray[Any], sample_weight: Any, groups: Any) -> Any:
        model = self.reference
        if model is None:
            model = SparseClassifier(always_keep=self.always_keep, class_weight=self.class_weight)
        if not hasattr(model, "predict_proba") and not hasattr(type(model), "predict_proba"):
            raise ValueError(
                f"reference must be a classifier with predict_proba; got {type(model).__name__}. Leave it "
                "out for a SparseClassifier."
            )
        if not hasattr(model, "classes_"):
            model = fitted(clone(model), X, y, sample_weight, groups)
            if getattr(model, "outcome_", None) is Outcome.INTERRUPTED:
                raise KeyboardInterrupt  # there is no panel of half a model
            return model
        if not np.array_equal(model.classes_, self.classes_):
            raise ValueError(
                f"reference was fitted to the classes {list(model.classes_)}, and y has "
                f"{list(self.classes_)}. Fit it to the same samples."
            )
        if getattr(model, "n_features_in_", self.n_features_in_) != self.n_features_in_:
            raise ValueError(
                f"reference was fitted to {model.n_features_in_} features, and X has {self.n_features_in_}. "
                "Fit it to the same table."
            )
        return model

    # ------------------------------------------------------------------ from the search to attributes

    def _publish(self, search: Search, sizes: tuple[int, ...]) -> None:
        for name in ("feature_names_", "order_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        sizes = tuple(dict.fromkeys(min(k, max(search.n_free, 1)) for k in sizes))
        parts = search.parts(self.n_parts)
        found = search.without_each(parts, sizes)
        self._n_parts_used = len(found)
        judged = Judged.of(search, parts[: len(found)], found, (0, *sizes))
        self.path_, self.full_ = judged.path(), judged.full()
        self.flags_ = []
        by_decree = isinstance(self.n_features, Integral)
        size = sizes[-1] if by_decree else judged.smallest(sizes)
        if not judged.better_than_frequencies(vars(self.reference_).get("p_value_", 1.0)):
            self.flags_.append(NOT_BETTER if by_decree and search.n_free else NO_PANEL)
        if not search.n_free or self.flags_[:1] == [NO_PANEL]:
            size = 0
        if len(found) < len(parts):
            self.flags_.append(INTERRUPTED)
        target = Target.of(search.full.log_proba, search.weights.counted)
        whole = search.order(search.standardized, search.full, search.weights.counted, sizes[-1])
        self.order_ = whole.features
        members = self.order_[:size]
        self._project(search, target, whole, members)
        chosen = [np.isin(members, each.order[:size]) for each in found]
        share = dict(zip(members.tolist(), np.mean(chosen, axis=0) if chosen else members * 0.0, strict=True))
        self.stability_ = np.array([share.get(int(j), 1.0) for j in self.features_])
        self.left_out_proba_ = search.weights.for_equals(judged.proba((0, *sizes).index(size)))

    def _project(self, search: Search, target: Target, whole: Order, members: NDArray[np.intp]) -> None:
        """The model of the panel's columns; class frequencies alone if it has none."""
        standardized, kept = search.standardized, search.kept if members.size else search.kept[:0]
        columns = standardized.columns(np.concatenate([kept, members]))
        self.alternatives_: dict[int, tuple[StandIn, ...]] = {}
        if members.size:
            importance = whole.importance[np.concatenate([kept, members])]
            fit = projected(columns, target, importance)
            self.alternatives_ = stand_ins(columns, importance, members, whole, target)
        else:
            fit = Projection(np.zeros((0, self.classes_.size)), np.log(search.frequencies))
        features = np.concatenate([kept, members])
        ascending = np.argsort(features)
        self.features_ = features[ascending]
        if (names := getattr(self, "feature_names_in_", None)) is not None:
            self.feature_names_ = names[self.features_]
        self._center, self._scale = standardized.center[self.features_], standardized.scale[self.features_]
        weights, intercept = fit.weights[ascending], fit.intercept
        if self.classes_.size == 2:
            weights, intercept = np.diff(weights, axis=1), np.diff(intercept)
        else:
            weights = weights - weights.mean(axis=1, keepdims=True)
            intercept = intercept - intercept.mean()
        self._weights_inside, self._intercept_inside = weights, intercept
        coef = weights.T / self._scale
        self.coef_ = coef.astype(standardized.dtype)
        self.intercept_ = (intercept - coef @ self._center).astype(standardized.dtype)

    # ------------------------------------------------------------------ predictions

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Of two classes, log-odds of ``classes_[1]``; of more, log probabilities less their mean.

        Parameters
        ----------
        X : array, data frame or sparse matrix
            The whole table, or the panel's columns alone.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_classes)
            Scores.
        """
        scores = self._scores(X)
        scores = scores[:, 0] if self.classes_.size == 2 else scores
        return scores.astype(self.coef_.dtype, copy=False)

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Class probabilities, of the whole table or of the panel's columns alone.

        Columns of a data frame are found by their names. Of an array, either all columns of the table are
        needed, or those of `features_` in their order.

        Parameters
        ----------
        X : array, data frame or sparse matrix
            Samples, in the units of the fit.

        Returns
        -------
        array of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        return super().predict_proba(X)

    def _log_proba(self, X: Any) -> Array:
        scores = self._scores(X)
        if self.classes_.size == 2:
            scores = np.column_stack([np.zeros(len(scores)), scores])
        return np.asarray(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        values = (self._panel_columns(X) - self._center) / self._scale
        return np.asarray(values @ self._weights_inside + self._intercept_inside)

    def _panel_columns(self, X: Any) -> Array:
        """The panel's columns of new samples, from the whole table or from themselves."""
        names = vars(self).get("feature_names_")
        given = getattr(X, "columns", None)
        if names is not None and given is not None and not stays_elsewhere(X):
            known = vars(self).get("feature_names_in_")
            whole = known is not None and len(given) == self.n_features_in_
            if not whole and names.size and set(names) <= set(given):
                X = X[list(names)].to_numpy()
        shape: tuple[int, ...] = getattr(X, "shape", ())
        if len(shape) == 2 and 0 < self.features_.size == shape[1] != self.n_features_in_:
            return operator_from(check_array(X, **TILED_STORAGE)).columns(np.arange(shape[1]))
        return new_data(self, X).columns(self.features_)

    def get_support(self, indices: bool = False) -> NDArray[Any]:
        """The panel, as a mask over the columns of the table or as positions.

        Parameters
        ----------
        indices : bool
            Positions instead of a mask.

        Returns
        -------
        array of shape (n_features,) or (n_members,)
            Mask, or positions.
        """
        check_is_fitted(self)
        if indices:
            return self.features_.copy()
        mask = np.zeros(self.n_features_in_, dtype=bool)
        mask[self.features_] = True
        return mask

    def feature_table(
        self,
        X: Any = None,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """What is known of every feature, from the full model, and whether it is in the panel.

        Only right after a fit, since what is saved has no full model.

        Parameters
        ----------
        X, y, sample_weight, groups : optional
            The table that was fitted, for tests of single features that the fit has not kept.

        Returns
        -------
        pandas.DataFrame
            As of `SparseClassifier.feature_table`.
        """
        check_is_fitted(self)
        full = vars(self).get("reference_")
        if not isinstance(full, MessagePassingClassifier):
            raise ValueError(
                "feature_table needs a full model by message passing, as fit leaves it in reference_ by "
                "default; a model that was loaded has only its panel."
            )
        return feature_table(full, X, y, sample_weight, groups, panel=self.features_)

    # ------------------------------------------------------------------ in words

    def _summary(self) -> Summary:
        weights = np.zeros((len(self._intercept_inside), self.n_features_in_))
        weights[:, self.features_] = self.coef_
        scale = np.ones(self.n_features_in_)
        scale[self.features_] = self._scale
        found = basics(self) | {"weights": weights}
        if found["feature_names"] is None and "feature_names_" in vars(self):
            # As it was loaded: others than the panel's have only their numbers.
            names = np.array([f"column {j}" for j in range(self.n_features_in_)], dtype=object)
            names[self.features_] = self.feature_names_
            found["feature_names"] = names
        at = next(each for each in self.path_ if each.size == self._n_members)
        loo = None
        if "left_out_proba_" in vars(self) and np.isfinite(at.log_loss):
            loo = LeaveOneOut(self.left_out_proba_, at.error, at.log_loss, self._how_left_out())
        return Summary(
            **found,
            method=self._account(),
            columns=STANDARDISED,
            scale=scale,
            selects=False,
            loo=loo,
            flags=tuple(self.flags_),
        )

    @property
    def _n_members(self) -> int:
        """Besides those that are always kept."""
        return len(self.alternatives_)

    def _how_left_out(self) -> Sentence:
        parts = self._n_parts_used
        text = (
            f"leaving out {parts} parts of the samples in turn, with the whole search repeated without each "
            "and predictions moved to the class frequencies of all samples"
        )
        return said(text, ("left out", "parts"), ("parts", parts))

    def _account(self) -> tuple[Sentence, ...]:
        n, full = self._n_members, self.full_
        account = [
            said(
                f"A panel of {n} features was sought that predicts nearly as well as all: features were "
                "ordered by forward selection on the scores of the full model, and a model of the first "
                "ones was fitted to its probabilities (Piironen et al. 2020), both with prior variances of "
                "weights in proportion to a first estimate (after Zou 2006): the size of a feature's weight "
                "in the full model times the root of its ratio of variances between and within classes.",
                ("panel", n),
            )
            if n
            else said(str(NO_PANEL), ("panel", 0))
        ]
        if np.isfinite(full.log_loss):
            text = f"On left-out parts the full model has the error {full.error:.3f} and the log loss "
            account.append(said(f"{text}{full.log_loss:.3f}.", ("full error", round(full.error, 3))))
        return tuple(account)
