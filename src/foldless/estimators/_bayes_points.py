"""What both Bayes points share: columns or kernels, one class against the rest, predictions, attributes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, ndtr
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.validation import check_is_fitted

from foldless.beliefs import Array
from foldless.channels import Channel
from foldless.docstrings import like
from foldless.estimators._kernel_basis import Basis, FourierBasis, GramBasis, Kernel
from foldless.estimators._scikit_learn import (
    ProbabilisticClassifier,
    SampleWeights,
    all_finite,
    unless_finite,
)
from foldless.estimators._summary import (
    AS_THEY_ARE,
    STANDARDISED,
    KernelBasis,
    Sentence,
    Summary,
    basics,
    said,
)
from foldless.operators import Dense, Standardized, Storage, operator_from
from foldless.problem import Iteration, Outcome
from foldless.registry import registered
from foldless.solvers.knapsack import Histograms, Sweep

# How far apart the quartiles of a unit Gaussian are.
GAUSSIAN_QUARTILES = 1.3489795


@dataclass(frozen=True, eq=False)
class BinaryPoint(ABC):
    """Independent weights, by means and variances, and what makes log-odds of their scores."""

    mean: Array
    var: Array
    intercept: float
    intercept_var: float

    needs_variances: ClassVar[bool] = True

    def score_variances(self, independent: Array) -> Array:
        """From those of independent weights."""
        return independent + self.intercept_var

    @abstractmethod
    def log_odds(self, mean: Array, var: Array | None) -> Array:
        """From means of scores, and their variances if these are needed."""


@registered("bayes-point/knapsack")
@dataclass(frozen=True, eq=False)
class KnapsackPoint(BinaryPoint):
    """Means of max-marginals; log-odds are proportional to scores."""

    log_odds_scale: float
    needs_variances: ClassVar[bool] = False

    def log_odds(self, mean: Array, var: Array | None) -> Array:
        return self.log_odds_scale * mean


@registered("bayes-point/ep")
@dataclass(frozen=True, eq=False)
class EPPoint(BinaryPoint):
    """A Gaussian posterior; log-odds are integrated over the scores' distribution."""

    variance_scale: float  # covariances are left out; this makes up for them on average
    channel: Channel

    def score_variances(self, independent: Array) -> Array:
        return self.variance_scale * super().score_variances(independent)

    def log_odds(self, mean: Array, var: Array | None) -> Array:
        return self.channel.predictive().log_odds(mean, var)


class OneAgainstRest(NamedTuple):
    """The fit of one class against all others."""

    point: BinaryPoint
    marginals: Histograms
    outcome: Outcome
    n_iter: int
    attributes: dict[str, Any]  # of the estimator, by name
    loo_log_odds: Array | None = None  # of the training samples, without themselves


# From columns, labels ±1 and weights of samples.
BinaryFit = Callable[[Standardized, Array, Array], OneAgainstRest]


@dataclass(eq=False, repr=False, kw_only=True)
class BayesPointBase(ProbabilisticClassifier):
    """A linear classifier on columns or kernels, averaged over its posterior; a subclass has the fit.

    Parameters
    ----------
    kernel : None, str or callable, default=None
        For nonlinear boundaries: 'rbf', 'poly' or another name that scikit-learn's ``pairwise_kernels``
        knows, or a function of two (standardised) samples.
    gamma, degree, coef0
        Parameters of kernels; gamma is 1/n_features if None.
    n_components : int, optional
        The most columns that a kernel is replaced by; all that it has if None.
    random_features : bool, default=False
        Take random Fourier features, `n_components` of them (100 if None), instead of the RBF kernel.
    standardize : bool or 'robust', default=True
        Whether weights, and kernels, see columns of mean zero and unit variance; or of median zero and the
        interquartile range of unit variance, which outliers leave alone; or X as it is.
    random_state : int or RandomState, default=0
        Of random features; nothing else is random.
    verbose : int, default=0
        Print each sweep or iteration, if above 0.

    Attributes
    ----------
    coef_, intercept_ : arrays of shape (1 or n_classes, n_features) and (1 or n_classes,)
        The Bayes point, in the units of X; with a kernel, of its columns.
    coef_std_ : array like `coef_`
        Standard deviations of the weights.
    outcome_, n_iter_ : Outcome, int
        How the iteration ended, with ``outcome_.advice``, and after how many steps in all.
    """

    kernel: Kernel | None = None
    gamma: float | None = None
    degree: float = 3
    coef0: float = 1
    n_components: int | None = None
    random_features: bool = False
    standardize: bool | Literal["robust"] = True
    class_weight: dict[Any, float] | str | None = None
    tol: float = 1e-4
    random_state: Any = 0
    verbose: int = 0

    @abstractmethod
    def _binary_fit(self) -> BinaryFit:
        """The fit of one class against the rest; parameters that are not allowed are refused here."""

    def _fit(self, X: Any, code: NDArray[np.intp], weights: SampleWeights) -> str:
        fit_one, columns = self._binary_fit(), self._fitted_columns(X, weights.counted)
        positives = [1] if self.classes_.size == 2 else range(self.classes_.size)
        fits = [fit_one(columns, np.where(code == k, 1.0, -1.0), weights.counted) for k in positives]
        self._publish(fits, columns, X.dtype)
        if log_odds := [fit.loo_log_odds for fit in fits if fit.loo_log_odds is not None]:
            self._publish_left_out(coupled(np.column_stack(log_odds)), code, weights, X.dtype)
        return ""

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Scores of the Bayes point, positive for ``classes_[1]``; of several classes, log-odds of each."""
        check_is_fitted(self)
        two = self.classes_.size == 2
        scores = self._scores(X, variances=False)[0][:, 0] if two else self._log_odds(X)
        return scores.astype(self.coef_.dtype, copy=False)

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Class probabilities.

        Several classes: given independent votes of every class against the rest, the probability that k
        alone is voted for.
        """
        return super().predict_proba(X)

    @like(ProbabilisticClassifier.decision_function)
    def vote_margin(self, X: Any) -> NDArray[Any]:
        """How clear the vote of all classifiers is: the share for a class minus that against it.

        From -1 to 1, of shape (n_samples,), for ``classes_[1]``, or (n_samples, n_classes). Weights vote
        independently of each other, so that the vote is of a score with the variance of a sum.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_classes)
            Margins.
        """
        mean, var = self._scores(X)
        assert var is not None
        margins = 2.0 * ndtr(mean / np.sqrt(np.maximum(var, np.finfo(float).tiny))) - 1.0
        margins = margins.astype(self.coef_.dtype, copy=False)
        return margins[:, 0] if self.classes_.size == 2 else margins

    # ------------------------------------------------------------------ columns

    def _check_parameters(self) -> None:
        self._binary_fit()
        check_scalar(self.tol, "tol", Real, min_val=0.0)
        if self.n_components is not None:
            check_scalar(self.n_components, "n_components", Integral, min_val=1)
        if not (isinstance(self.standardize, bool | np.bool_) or self.standardize == "robust"):
            raise ValueError(f"standardize must be True, False or 'robust'; got {self.standardize!r}.")
        if self.random_features and self.kernel not in (None, "rbf"):
            raise ValueError(
                f"random_features stand in for the RBF kernel; got kernel={self.kernel!r}. Use kernel='rbf', "
                "or random_features=False with n_components to keep the columns few."
            )

    def _fitted_columns(self, X: Any, weight: Array) -> Standardized:
        """The columns that carry weights: standardised features, or those of the kernel as they are."""
        standardized = Standardized.fit(operator_from(X), weight)
        if self.standardize == "robust":
            standardized = _robustly_scaled(standardized, weight)
        elif not self.standardize:
            standardized = _as_they_are(standardized.operator, standardized.constant)
        self._center, self._scale = standardized.center, standardized.scale
        self._basis: Basis | None = None
        if self.kernel is None and not self.random_features:
            return standardized
        samples = dense(standardized)
        counted = samples[weight > 0]
        gamma = 1.0 / samples.shape[1] if self.gamma is None else float(self.gamma)
        if self.random_features:
            n_columns = 100 if self.n_components is None else int(self.n_components)
            rng = check_random_state(self.random_state)
            self._basis = FourierBasis.fit(counted, gamma, n_columns, rng)
        else:
            assert self.kernel is not None
            options = {"gamma": gamma, "degree": self.degree, "coef0": self.coef0}
            self._basis = GramBasis.fit(counted, self.kernel, options, self.n_components)
        return _as_they_are(Dense(self._basis.columns(samples)))

    def _new_columns(self, X: Any) -> Standardized:
        X = self._new_data(X, finite=self._basis is not None)
        standardized = Standardized(operator_from(X), self._center, self._scale)
        if self._basis is None:
            return standardized
        return _as_they_are(Dense(self._basis.columns(dense(standardized))))

    # ------------------------------------------------------------------ attributes

    def _publish(self, fits: list[OneAgainstRest], columns: Standardized, dtype: Any) -> None:
        self._points = [fit.point for fit in fits]
        coef = np.array([point.mean for point in self._points]) / columns.scale
        level = np.array([point.intercept for point in self._points]) - coef @ columns.center
        self.coef_, self.intercept_ = coef.astype(dtype), level.astype(dtype)
        self.coef_std_ = (np.sqrt([point.var for point in self._points]) / columns.scale).astype(dtype)
        self.weight_marginals_ = Histograms(
            np.array([fit.marginals.points for fit in fits]) / columns.scale[:, np.newaxis],
            np.array([fit.marginals.probability for fit in fits]),
        )
        self.n_iter_ = sum(fit.n_iter for fit in fits)
        self.outcome_ = max((fit.outcome for fit in fits), key=list(Outcome).index)
        for name in fits[0].attributes:
            values = [fit.attributes[name] for fit in fits]
            setattr(self, name, values if len(fits) > 1 else values[0])

    # ------------------------------------------------------------------ the summary

    @abstractmethod
    def _account(self) -> tuple[Sentence, ...]:
        """What the fit did, in sentences."""

    @property
    def _on(self) -> str:
        return "features" if self._basis is None else "kernels of samples"

    def _each_class(self) -> tuple[Sentence, ...]:
        if len(self._points) == 1:
            return ()
        text = "Every class has a Bayes point of its own, against the rest."
        return (said(text, ("against the rest", len(self._points))),)

    def _summary(self) -> Summary:
        columns = STANDARDISED if self.standardize else AS_THEY_ARE
        if self.standardize == "robust":
            text = "Columns were centred at their medians and scaled by their quartiles."
            columns = said(text, ("columns", "robust"))
        name = "rbf, by random Fourier features" if self.random_features else self.kernel
        return Summary(
            **basics(self),
            method=self._account(),
            columns=columns,
            scale=self._scale if self.standardize and self._basis is None else None,
            kernel=None if self._basis is None else KernelBasis(name),
            selects=False,
        )

    def _scores(self, X: Any, *, variances: bool = True) -> tuple[Array, Array | None]:
        """Means and variances of the scores of each class against the rest, (samples, points)."""
        columns, points = self._new_columns(X), self._points
        weights = np.column_stack([point.mean for point in points])
        level = np.array([point.intercept for point in points])
        X = getattr(columns.operator, "X", None)
        with unless_finite():
            if not variances:
                return all_finite(self, X, columns.scores(weights) + level), None
            weight_var = np.column_stack([point.var for point in points])
            mean, var = columns.scores_and_variances(weights, weight_var)
            mean = all_finite(self, X, mean + level)
        each = zip(points, var.T, strict=True)
        return mean, np.column_stack([point.score_variances(own) for point, own in each])

    def _log_odds(self, X: Any) -> Array:
        check_is_fitted(self)
        mean, var = self._scores(X, variances=self._points[0].needs_variances)
        of_points = [None] * mean.shape[1] if var is None else list(var.T)
        each = zip(self._points, mean.T, of_points, strict=True)
        return np.column_stack([point.log_odds(*scores) for point, *scores in each])

    def _log_proba(self, X: Any) -> Array:
        return coupled(self._log_odds(X))

    def _show(self, number: int, step: Iteration | Sweep) -> None:
        print(f"[{type(self).__name__}] {type(step).__name__.lower()} {number:4d}  change {step.change:.2e}")


def dense(operator: Standardized) -> Array:
    n_rows, n_columns = operator.shape
    return operator.dense_tile(slice(0, n_rows), slice(0, n_columns))


def _robustly_scaled(standardized: Standardized, weight: Array) -> Standardized:
    """Median zero, and quartiles as far apart as those of a unit Gaussian.

    Where half of a column is one value there is no range, and mean and variance stay.
    """
    center, scale = standardized.center.copy(), standardized.scale.copy()
    for j in range(standardized.shape[1]):
        column = standardized.operator.columns(np.array([j]))[:, 0].astype(np.float64)
        low, middle, high = _quantiles(column, weight, (0.25, 0.5, 0.75))
        if high > low:
            center[j], scale[j] = middle, (high - low) / GAUSSIAN_QUARTILES
    return Standardized(standardized.operator, center, scale, standardized.constant)


def _quantiles(values: Array, weight: Array, levels: tuple[float, ...]) -> Array:
    """The first values that this share of all samples does not exceed, a sample of weight 2 being two."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weight[order])
    return values[order][np.searchsorted(below, np.array(levels) * below[-1])]


def _as_they_are(operator: Storage, constant: NDArray[np.bool_] | None = None) -> Standardized:
    """Columns whose lengths mean something, in the place of standardised ones."""
    n_columns = operator.shape[1]
    return Standardized(operator, np.zeros(n_columns), np.ones(n_columns), constant)


def coupled(log_odds: Array) -> Array:
    """Log probabilities of the classes from log-odds of each against the rest, one column if there are two.

    If every class votes for itself independently with probability p_k, the probability that k alone does is
    p_k Π_{j≠k} (1 - p_j); given that one alone does, that is a softmax of the log-odds.
    """
    if log_odds.shape[1] == 1:
        log_odds = np.column_stack([-log_odds / 2, log_odds / 2])
    return np.asarray(log_softmax(log_odds, axis=1))
