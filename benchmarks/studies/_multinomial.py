"""Cross-validated multinomial regressions, each at its best, and foldless beside them."""

from __future__ import annotations

import importlib.util
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import log_softmax

from benchmarks.studies import _rivals as rivals
from benchmarks.studies._rivals import Array, Folds

N_FOLDS = 5
# From the largest useful penalty down to this share of it.
SMALLEST_PENALTY = 0.1
# At 1e-2 it stops while nearly every feature is still in: 100 x 10 000 errs at 0.31, at 1e-3 at 0.21, in five
# times the time. Tighter was not tried.
SAGA_TOLERANCE, SAGA_EPOCHS = 1e-3, 1000


class ManyLinear(NamedTuple):
    """A linear classifier of D classes in the units of X."""

    coef: Array  # (D, n_features)
    intercept: Array  # (D,)
    penalty: float  # as a share of the smallest that silences every feature, or in the method's own units

    def log_proba(self, X: Any) -> Array:
        return np.asarray(log_softmax(X @ self.coef.T + self.intercept, axis=1))

    def predict(self, X: Any) -> NDArray[np.intp]:
        """Numbers of classes."""
        return np.argmax(X @ self.coef.T + self.intercept, axis=1)


def gamp(prior: Any, **choices: Any) -> Any:
    """Message passing without the blend with class means, as the thesis has it."""
    from foldless import GAMPClassifier

    return GAMPClassifier(prior, generative_weight=0.0, **choices)


def sbmlr(X: Array, y: NDArray[Any]) -> ManyLinear:
    """Sparse Bayesian multinomial regression [Cawley, Talbot, Girolami 2007], of standardised columns."""
    from foldless.estimators.baselines import SBMLRClassifier

    center, scale = X.mean(axis=0), X.std(axis=0)
    model = SBMLRClassifier().fit((X - center) / scale, y)
    coef = model.coef_ / scale
    return ManyLinear(coef, model.intercept_ - coef @ center, float("nan"))


def one_bit_cv(X: Array, y: NDArray[Any]) -> ManyLinear:
    """One-bit compressed sensing of each class against the rest, its sparsity by folds."""
    rules = [rivals.one_bit_cv(X, np.where(y == k, 1.0, -1.0)) for k in np.unique(y)]
    coef, intercept = np.array([rule.coef for rule in rules]), np.array([rule.intercept for rule in rules])
    return ManyLinear(coef, intercept, float(np.mean([rule.penalty for rule in rules])))


def foldless_classifier() -> Any:
    """All defaults. Imported here, so that rivals run while foldless is being rebuilt."""
    from foldless import SparseClassifier

    return SparseClassifier()


def has_adelie() -> bool:
    return importlib.util.find_spec("adelie") is not None


def adelie_cv(X: Array, y: NDArray[np.int_], n_values: int, smallest: float, tol: float) -> ManyLinear:
    """The grouped multinomial lasso of glmnet, by adelie: a feature is in for all classes or for none.

    Its own cross-validation of warm-started paths, the penalty by log loss.
    """
    import adelie

    center, scale = X.mean(axis=0), X.std(axis=0)
    standardised = np.asfortranarray((X - center) / scale)
    indicator = np.eye(y.max() + 1)[y]
    model = adelie.glm.multinomial(indicator)
    exact = {"tol": tol, "irls_tol": tol, "progress_bar": False}
    found = adelie.cv_grpnet(
        standardised,
        model,
        n_folds=N_FOLDS,
        seed=0,
        lmda_path_size=n_values,
        min_ratio=smallest,
        **exact,
    )
    # The path down to the best penalty; it needs no more steps than the search took to get there.
    last = found.fit(standardised, model, lmda_path_size=int(found.best_idx) + 1, **exact)
    coef = last.betas[-1].toarray().reshape(X.shape[1], -1).T / scale
    return ManyLinear(
        coef,
        np.asarray(last.intercepts[-1]) - coef @ center,
        float(found.lmdas[found.best_idx] / found.lmdas[0]),
    )


def saga_cv(
    X: Any,
    y: NDArray[np.int_],
    folds: int | Folds,
    n_values: int,
    smallest: float = SMALLEST_PENALTY,
    tol: float = SAGA_TOLERANCE,
) -> ManyLinear:
    """Multinomial L1 by scikit-learn: warm-started paths by saga, the penalty by cross-validated log loss.

    A dense matrix is standardised; a sparse one is taken as it is, since centring would fill it.
    """
    center, scale, scaled = standardised(X)
    largest = largest_penalty(scaled, y)
    penalties = largest * np.geomspace(1.0, smallest, n_values)
    model = rivals._logistic_cv(
        "l1",
        1.0 / penalties,
        folds,
        solver="saga",
        tol=tol,
        max_iter=SAGA_EPOCHS,
        random_state=0,
    ).fit(scaled, y)
    coef = model.coef_ / scale
    share = 1.0 / (float(np.ravel(model.C_)[0]) * largest)
    return ManyLinear(coef, model.intercept_ - coef @ center, share)


def ridge_cv(X: Array, y: NDArray[np.int_], folds: int | Folds, n_values: int) -> ManyLinear:
    """Multinomial ridge in the rows' own coordinates, the penalty by cross-validated log loss."""
    center, scale, scaled = standardised(X)
    rotated, basis = rivals.rows_own_coordinates(scaled)
    strengths = np.geomspace(*rivals.RIDGE_RANGE, n_values) * X.shape[0] / np.sum(rotated**2)
    model = rivals._logistic_cv("l2", strengths, folds, solver="lbfgs", tol=1e-6, max_iter=2000)
    model.fit(rotated, y)
    coef = (basis @ model.coef_.T).T / scale
    return ManyLinear(coef, model.intercept_ - coef @ center, 1.0 / float(np.ravel(model.C_)[0]))


def standardised(X: Any) -> tuple[Array, Array, Any]:
    """Center, scale, and columns of mean 0 and variance 1; constant columns stay as they are."""
    n_features = X.shape[1]
    if sp.issparse(X):
        return np.zeros(n_features), np.ones(n_features), X
    center, scale = X.mean(axis=0), X.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    return center, scale, (X - center) / scale


def largest_penalty(X: Any, y: NDArray[np.int_]) -> float:
    """The smallest L1 penalty at which every weight is zero: the largest slope at the class shares."""
    indicator = np.eye(y.max() + 1)[y]
    return float(np.max(np.abs(X.T @ (indicator - indicator.mean(axis=0)))))
