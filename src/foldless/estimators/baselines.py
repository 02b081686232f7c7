"""Baselines that papers compare with and no well-kept library has: SBMLR, OneBitCS, and the RVM.

Small and correct rather than fast. What scikit-learn has (SVM, LDA, liblinear) is used from there.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import brentq
from scipy.sparse import issparse
from scipy.special import expit, log_expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_scalar
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from foldless.beliefs import Array
from foldless.docstrings import like
from foldless.estimators._kernel_basis import Kernel, kernel_matrix
from foldless.estimators._scikit_learn import FLOATS, Classifier, ProbabilisticClassifier, validated
from foldless.estimators._summary import AS_THEY_ARE, STANDARDISED, KernelBasis, Summary, basics, said
from foldless.estimators.smlr import SMLRClassifier
from foldless.kernels import one_blas_thread
from foldless.operators import Standardized, operator_from
from foldless.registry import registered
from foldless.solvers.solve import damped_newton

# A basis function whose prior precision has grown this far beyond the data's is out [Tipping 2001].
PRUNED_PRECISION = 1e9
LARGEST_VALUE = 1e150
SPARSE_TOO: dict[str, Any] = {"accept_sparse": ("csr", "csc"), "accept_large_sparse": True}
NEWTON_STEPS = 50
# Of the log posterior, in nats: precisions of nearly redundant functions need weights to rounding error.
NEWTON_TOLERANCE = 1e-20


@registered("estimator/sbmlr")
class SBMLRClassifier(SMLRClassifier):
    """Sparse Bayesian multinomial logistic regression [Cawley, Talbot, Girolami 2007].

    L1 with the rate integrated out under the prior 1/λ: `SMLRClassifier` with tuning='bayes'.

    Parameters
    ----------
    gamma : float, optional
        Of the kernel; 1/(n_features · variance of X) if None.
    """

    def __init__(
        self,
        *,
        kernel: Kernel | None = None,
        gamma: float | None = None,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 10_000,
    ) -> None:
        super().__init__(
            tuning="bayes",
            kernel=kernel,
            gamma=gamma,
            fit_intercept=fit_intercept,
            tol=tol,
            max_iter=max_iter,
        )


class _Binary(Classifier):
    """Labels of two classes as -1 and +1."""

    _storage: ClassVar[dict[str, Any]] = {}  # of X, if not dense

    @abstractmethod
    def _fit(self, X: Any, labels: Array) -> None:
        """Fitted attributes, of checked data."""

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit to data of two classes.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            Dense; of `OneBitCS` also a sparse matrix.
        y : array of shape (n_samples,)
            Labels of two classes.

        Returns
        -------
        classifier
            Itself.
        """
        X, targets = validated(self, X, y, ensure_min_samples=2, dtype=np.float64, **self._storage)
        largest = abs(X).max(axis=0)
        too_large = np.flatnonzero((largest.toarray() if issparse(X) else largest) > LARGEST_VALUE)
        if too_large.size:
            raise ValueError(
                f"column {too_large[0]} holds values beyond {LARGEST_VALUE:g}, whose squares overflow. "
                "Rescale or remove it."
            )
        check_classification_targets(targets)
        self.classes_, code = np.unique(targets, return_inverse=True)
        if self.classes_.size != 2:
            kind = "only one class" if self.classes_.size == 1 else f"{self.classes_.size} classes"
            raise ValueError(
                f"Only binary classification is supported. y has {kind}; wrap {type(self).__name__} in "
                "sklearn.multiclass.OneVsRestClassifier for more than two."
            )
        self._fit(X, np.where(code == 1, 1.0, -1.0))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = bool(self._storage)
        return tags


@registered("estimator/one-bit-cs")
@dataclass(eq=False, repr=False)
class OneBitCS(_Binary):
    """One-bit compressed sensing by convex programming [Plan, Vershynin 2013].

    Labels are signs of measurements x·w of a sparse w of unit length. The estimate maximises Σ y x·w over
    ‖w‖₂ ≤ 1 and ‖w‖₁ ≤ √s. The solution is the correlation X'y, soft-thresholded so far that the second
    constraint holds, and scaled to unit length.

    Parameters
    ----------
    sparsity : float, default=10
        s: how many features matter.

    Attributes
    ----------
    coef_, intercept_ : arrays of shape (1, n_features) and (1,)
        The estimate, in the units of X; only its direction matters.
    """

    _: KW_ONLY
    sparsity: float = 10
    _storage = SPARSE_TOO

    def _fit(self, X: Any, labels: Array) -> None:
        check_scalar(self.sparsity, "sparsity", Real, min_val=1.0)
        columns = Standardized.fit(operator_from(X))
        with one_blas_thread():
            correlation = columns.adjoint(labels - labels.mean())
        weights = one_bit_weights(correlation, float(self.sparsity))
        self.coef_ = (weights / columns.scale)[np.newaxis]
        self.intercept_ = -self.coef_ @ columns.center

    def _summary(self) -> Summary:
        method = said(
            "Weights are those of one-bit compressed sensing by convex programming (Plan and Vershynin "
            f"2013), for an expected number of {self.sparsity:g} features.",
            ("one-bit", float(self.sparsity)),
        )
        return Summary(**basics(self), method=(method,), columns=STANDARDISED, selects=False)

    def decision_function(self, X: Any) -> Array:
        """Measurements of the estimate."""
        check_is_fitted(self)
        X = validated(self, X, reset=False, dtype=FLOATS, **self._storage)
        with np.errstate(over="ignore", invalid="ignore"):
            found = operator_from(X).scores(self.coef_[0])
        if not np.all(np.isfinite(found)):
            # Weights of very small columns are beyond single precision.
            found = operator_from(X.astype(np.float64)).scores(self.coef_[0])
        return found + self.intercept_[0]


def one_bit_weights(correlation: Array, sparsity: float) -> Array:
    """The maximum of correlation·w over ‖w‖₂ ≤ 1, ‖w‖₁ ≤ √sparsity."""
    size = np.sort(np.abs(correlation))[::-1]
    if size[0] == 0:
        return np.zeros_like(correlation)
    # Scale is free: without it squares of very small or large correlations would leave float64.
    unit = correlation / size[0]
    top = np.flatnonzero(np.abs(unit) == 1.0)

    def thresholded(by: float) -> Array:
        return np.sign(unit) * np.maximum(np.abs(unit) - by, 0.0)

    def spread(by: float) -> float:
        w = thresholded(by)
        return float(np.abs(w).sum() / np.linalg.norm(w)) - np.sqrt(sparsity)

    last = float(np.nextafter(1.0, 0.0))
    if spread(0.0) <= 0:
        w = thresholded(0.0)
    elif top.size >= sparsity or spread(last) >= 0:
        # Ties at the top that no threshold parts: the constraint cuts their common length.
        w = np.zeros_like(unit)
        w[top] = np.sign(unit[top]) * np.sqrt(sparsity) / top.size
        return w
    else:
        w = thresholded(float(brentq(spread, 0.0, last, xtol=1e-15)))
    found: Array = w / np.linalg.norm(w)
    return found


@registered("estimator/rvm")
@dataclass(eq=False, repr=False)
class RVMClassifier(_Binary):
    """Relevance vector machine for two classes [Tipping 2001].

    Weights of basis functions have Gaussian priors with a precision each. Given precisions, the posterior is
    approximated at its mode; given that, a precision becomes γ/w², γ being how far the data determine the
    weight. Precisions that run away take their basis functions with them.

    Parameters
    ----------
    kernel : None, str or callable, default='rbf'
        None for the features themselves.
    gamma : float, optional
        Of the kernel; 1/(n_features · variance of X) if not given.
    fit_intercept : bool, default=True
        The intercept has a precision of its own, like a basis function.
    tol : float, default=1e-3
        Change of the log precisions at which the iteration ends.
    max_iter : int, default=500
        Updates of the precisions.

    Attributes
    ----------
    coef_, intercept_, precision_ : arrays of shape (1, n_features or n_kept), (1,) and (n_kept,)
        Weights at their mode, and what was learnt of their sizes.
    n_kept_, n_iter_ : int
        Basis functions that are left, and updates.
    basis_, basis_indices_ : arrays of shape (n_kept, n_features) and (n_kept,)
        The relevance vectors and their positions, with a kernel.
    """

    _: KW_ONLY
    kernel: Kernel | None = "rbf"
    gamma: float | None = None
    fit_intercept: bool = True
    tol: float = 1e-3
    max_iter: int = 500

    def _fit(self, X: Array, labels: Array) -> None:
        check_scalar(self.tol, "tol", Real, min_val=0.0)
        check_scalar(self.max_iter, "max_iter", Integral, min_val=1)
        variance = float(np.var(X))
        self._gamma = self.gamma or (1.0 / (X.shape[1] * variance) if variance > 0 else 1.0)
        columns = X if self.kernel is None else kernel_matrix(X, X, self.kernel, gamma=self._gamma)
        if self.fit_intercept:
            columns = np.column_stack([columns, np.ones(X.shape[0])])
        with one_blas_thread():
            kept, weights, precision, self.n_iter_, settled = relevance(
                columns, labels, float(self.tol), int(self.max_iter)
            )
        if not settled:
            warnings.warn(
                "RVMClassifier: max_iter was reached before the precisions settled.",
                ConvergenceWarning,
                stacklevel=2,
            )
        last = columns.shape[1] - 1
        is_intercept = (kept == last) if self.fit_intercept else np.zeros(kept.size, dtype=bool)
        functions = kept[~is_intercept]
        self.intercept_ = np.array([weights[is_intercept].sum()])
        self.precision_, self.n_kept_ = precision[~is_intercept], functions.size
        if self.kernel is None:
            self.coef_ = np.zeros((1, X.shape[1]))
            self.coef_[0, functions] = weights[~is_intercept]
        else:
            self.basis_indices_, self.basis_ = functions, X[functions]
            self.coef_ = weights[~is_intercept][np.newaxis]

    def _summary(self) -> Summary:
        on = "features" if self.kernel is None else "kernels around the training samples"
        method = said(
            f"A relevance vector machine on {on} was fitted (Tipping 2001): their weights have Gaussian "
            "priors whose precisions were learnt by maximising the evidence.",
            ("relevance", self.n_kept_),
            ("kernel", self.kernel is not None),
        )
        return Summary(
            **basics(self),
            method=(method,),
            columns=AS_THEY_ARE,
            kernel=None if self.kernel is None else KernelBasis(self.kernel, self.basis_indices_),
            selects=False,
        )

    def decision_function(self, X: Any) -> Array:
        """Log-odds of ``classes_[1]`` at the mode of the weights."""
        check_is_fitted(self)
        X = validated(self, X, reset=False, dtype=FLOATS if self.kernel is None else np.float64)
        if self.kernel is not None:
            if self.n_kept_ == 0:
                return np.full(X.shape[0], self.intercept_[0])
            X = kernel_matrix(X, self.basis_, self.kernel, gamma=self._gamma)
        # Few columns are left, and large weights that cancel need all digits.
        kept = np.flatnonzero(self.coef_[0])
        return X[:, kept].astype(np.float64, copy=False) @ self.coef_[0, kept] + self.intercept_[0]

    @like(ProbabilisticClassifier.predict_proba)
    def predict_proba(self, X: Any) -> Array:
        """Class probabilities at the mode of the weights."""
        score = self.decision_function(X)
        return expit(np.column_stack([-score, score]))


def relevance(
    columns: Array, labels: Array, tol: float, max_iter: int
) -> tuple[NDArray[np.intp], Array, Array, int, bool]:
    """Kept columns, their weights and precisions, rounds, and whether the precisions settled."""
    kept = np.arange(columns.shape[1])
    # As in Tipping's own programme: weak enough that smooth kernels, whose weights are large, get a start.
    precision = np.full(kept.size, 1.0 / labels.size**2)
    weights: Array = np.zeros(kept.size)
    # Functions of samples that are alike may have any weights that cancel: up to rounding of the curvature.
    least = np.finfo(float).eps * float(np.sum(np.square(columns)))
    for iteration in range(1, max_iter + 1):
        used = columns[:, kept]
        weights, spread = posterior_mode(used, labels, precision, weights)
        determined = np.clip(1.0 - precision * spread, np.finfo(float).tiny, 1.0)
        updated = np.maximum(determined / np.maximum(np.square(weights), np.finfo(float).tiny), least)
        stays = updated < PRUNED_PRECISION
        changes = np.log(updated[stays] / precision[stays])
        settled = bool(np.all(np.abs(changes) < tol)) and bool(stays.all())
        if not stays.any():
            # Without any signal the last function to stay is the one the data determine best.
            return kept[:0], weights[:0], precision[:0], iteration, True
        kept, weights, precision = kept[stays], weights[stays], updated[stays]
        if settled:
            return kept, weights, precision, iteration, True
    return kept, weights, precision, max_iter, False


def posterior_mode(columns: Array, labels: Array, precision: Array, start: Array) -> tuple[Array, Array]:
    """The mode of the weights by Newton with halved steps, and their variances in Laplace's approximation."""

    def loss(w: Array) -> float:
        return float(-log_expit(labels * (columns @ w)).sum() + 0.5 * precision @ np.square(w))

    def expand(w: Array) -> tuple[Array, Array]:
        factor, descent = _expansion(columns, labels, precision, w)
        return -descent, cho_solve(factor, descent)

    weights = damped_newton(loss, expand, start, tolerance=NEWTON_TOLERANCE, max_iter=NEWTON_STEPS).at
    factor, _ = _expansion(columns, labels, precision, weights)
    return weights, np.diag(cho_solve(factor, np.eye(weights.size)))


def _expansion(columns: Array, labels: Array, precision: Array, weights: Array) -> tuple[Any, Array]:
    """The factored curvature of the log posterior, and its gradient."""
    margin = labels * (columns @ weights)
    bend = expit(margin) * expit(-margin)
    curvature = (columns * bend[:, np.newaxis]).T @ columns + np.diag(precision)
    slope = columns.T @ (labels * expit(-margin)) - precision * weights
    return cho_factor(curvature), slope
