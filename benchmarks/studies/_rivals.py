"""Cross-validated linear classifiers, each at its best: what foldless is compared with."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold
from sklearn.neighbors import NearestCentroid
from sklearn.svm import SVC

from foldless.estimators.baselines import one_bit_weights

Array = NDArray[np.float64]
Folds = Sequence[tuple[NDArray[np.int_], NDArray[np.int_]]]

# Penalties from the smallest that silences every feature down to this share of it.
SMALLEST_PENALTY = 0.01


class Linear(NamedTuple):
    """A linear classifier in the units of X."""

    coef: Array
    intercept: float
    penalty: float


def has_celer() -> bool:
    return importlib.util.find_spec("celer") is not None


def celer_cv(X: Array, y: Array, n_values: int = 10, n_folds: int = 10) -> Linear:
    """L1 logistic regression by celer: warm-started paths, the penalty by cross-validated log loss.

    celer has no intercept; columns are centred, and folds keep the class balance. Its tolerance is that
    of ``celer.LogisticRegression``, 1e-4, which is looser and faster than the path's own default.
    """
    from celer import celer_path

    center, scale = X.mean(axis=0), X.std(axis=0)
    standardised = np.asfortranarray((X - center) / scale)
    labels = y.astype(np.float64)
    penalties = penalty_grid(standardised, labels, n_values)
    log_loss = np.zeros(n_values)
    for train, left_out in StratifiedKFold(n_folds).split(standardised, labels):
        fold = np.asfortranarray(standardised[train])
        _, weights, _ = celer_path(fold, labels[train], pb="logreg", alphas=penalties, tol=1e-4)
        # Only features in use are needed for prediction, a hundred or two of tens of thousands.
        used = np.flatnonzero(weights.any(axis=1))
        scores = standardised[np.ix_(left_out, used)] @ weights[used]
        log_loss += np.logaddexp(0.0, -labels[left_out, np.newaxis] * scores).sum(axis=0)
    best = int(np.argmin(log_loss))
    _, weights, _ = celer_path(standardised, labels, pb="logreg", alphas=penalties[: best + 1], tol=1e-4)
    coef = weights[:, -1] / scale
    return Linear(coef, -float(center @ coef), float(penalties[best]))


def liblinear_cv(X: Array, y: Array, n_values: int = 10, n_folds: int = 10) -> Linear:
    """L1 logistic regression by scikit-learn and liblinear, tuned by cross-validated log loss."""
    center, scale = X.mean(axis=0), X.std(axis=0)
    standardised = (X - center) / scale
    model = l1_logistic_cv(1.0 / penalty_grid(standardised, y, n_values), n_folds).fit(standardised, y)
    coef = model.coef_[0] / scale
    return Linear(coef, float(model.intercept_[0] - center @ coef), 1.0 / float(np.ravel(model.C_)[0]))


def penalty_grid(X: Any, y: Array, n_values: int, smallest: float = SMALLEST_PENALTY) -> Array:
    """Log-spaced penalties, from the smallest at which every weight is zero; y is -1 and +1."""
    largest = float(np.max(np.abs(X.T @ (y - y.mean())))) / 2.0
    return largest * np.geomspace(1.0, smallest, n_values)


def l1_logistic_cv(inverse_penalties: Array, folds: int | Folds) -> LogisticRegressionCV:
    """LogisticRegressionCV with an L1 penalty; liblinear is scikit-learn's fastest solver for it."""
    return _logistic_cv("l1", inverse_penalties, folds, solver="liblinear", random_state=0)


def _logistic_cv(
    penalty: str, inverse_penalties: Array, folds: int | Folds, **more: Any
) -> LogisticRegressionCV:
    """LogisticRegressionCV tuned by log loss, asked for in the words of the installed version."""
    known = inspect.signature(LogisticRegressionCV).parameters
    words: dict[str, Any] = {"penalty": penalty}
    if known["penalty"].default == "deprecated":
        words = {"l1_ratios": (1.0 if penalty == "l1" else 0.0,)}
    if "use_legacy_attributes" in known:
        words["use_legacy_attributes"] = False
    return LogisticRegressionCV(
        Cs=inverse_penalties,
        cv=StratifiedKFold(folds) if isinstance(folds, int) else folds,
        scoring="neg_log_loss",
        **words,
        **more,
    )


def one_bit_cv(X: Array, y: Array, n_values: int = 20, n_folds: int = 10) -> Linear:
    """One-bit compressed sensing [Plan, Vershynin 2013], the sparsity s by cross-validated error."""
    return _by_correlation(X, y, one_bit_weights, n_values, n_folds)


def largest_correlations_cv(X: Array, y: Array, n_values: int = 20, n_folds: int = 10) -> Linear:
    """The K largest entries of X'y as weights, K by cross-validated error [Ziniel et al. 2015]."""

    def weights(correlation: Array, count: float) -> Array:
        least = np.sort(np.abs(correlation))[-round(count)]
        return np.where(np.abs(correlation) >= least, correlation, 0.0)

    return _by_correlation(X, y, weights, n_values, n_folds)


def _by_correlation(
    X: Array, y: Array, weights: Callable[[Array, float], Array], n_values: int, n_folds: int
) -> Linear:
    """Weights from X'y of standardised columns; of counts that err equally often the middle one."""
    labels = y.astype(np.float64)
    counts = np.unique(np.round(np.geomspace(1, min(len(y), X.shape[1]), n_values)))
    errors = np.zeros(counts.size)

    def fitted(rows: NDArray[np.int_], some: Sequence[float]) -> list[tuple[Array, float]]:
        part, own = X[rows], labels[rows]
        center, scale = part.mean(axis=0), part.std(axis=0)
        scale[scale == 0] = 1.0
        correlation = (part.T @ own - own.sum() * center) / scale
        coefs = [weights(correlation, count) / scale for count in some]
        return [(coef, -float(center @ coef)) for coef in coefs]

    for train, left_out in StratifiedKFold(n_folds).split(X, labels):
        for k, (coef, intercept) in enumerate(fitted(train, counts)):
            used = np.flatnonzero(coef)
            scores = X[np.ix_(left_out, used)] @ coef[used] + intercept
            errors[k] += np.sum(np.sign(scores) != labels[left_out])
    best = np.flatnonzero(errors == errors.min())
    count = float(counts[best[best.size // 2]])
    ((coef, intercept),) = fitted(np.arange(len(y)), [count])
    return Linear(coef, intercept, count)


# From here on: classifiers with the same face, for a dense or sparse matrix whose columns are already
# scaled, labels -1 and +1, and folds given from outside.


def folds_of(y: NDArray[Any], n_folds: int, groups: NDArray[Any] | None = None) -> Folds:
    """Class-balanced folds, or folds of whole groups, where samples of one group are alike."""
    rows = np.zeros((len(y), 1))
    if groups is None:
        return list(StratifiedKFold(n_folds).split(rows, y))
    return list(GroupKFold(min(n_folds, len(np.unique(groups)))).split(rows, y, groups))


def tuned_l1(X: Any, y: Array, folds: Folds, n_values: int, smallest: float = SMALLEST_PENALTY) -> Linear:
    """L1 logistic regression by liblinear, the penalty by cross-validated log loss."""
    model = l1_logistic_cv(1.0 / penalty_grid(X, y, n_values, smallest), folds).fit(X, y)
    return Linear(model.coef_[0], float(model.intercept_[0]), 1.0 / float(np.ravel(model.C_)[0]))


# What a penalty does depends on how long rows are. In units of their mean squared length, these go from
# "nearly the class means" to "nearly separating", for a ridge and for a margin.
RIDGE_RANGE = (3e-2, 3e3)
MARGIN_RANGE = (1e-2, 1e3)


def tuned_ridge(X: Any, y: Array, folds: Folds, n_values: int) -> Linear:
    """Ridge logistic regression, the penalty by cross-validated log loss.

    A dense matrix is first written in the rows' own coordinates, where 60 x 2000 becomes 60 x 60 with the
    same solution: Newton's method is then exact, and faster by far than any solver on X itself. For sparse
    rows liblinear is faster.
    """
    sparse = sp.issparse(X)
    rotated, basis = (X, None) if sparse else rows_own_coordinates(X)
    squares = X.multiply(X).sum() if sparse else np.sum(rotated**2)
    strengths = np.geomspace(*RIDGE_RANGE, n_values) * X.shape[0] / squares
    solver = (
        {"solver": "liblinear", "random_state": 0} if sparse else {"solver": "newton-cholesky", "tol": 1e-6}
    )
    model = _logistic_cv("l2", strengths, folds, **solver).fit(rotated, y)
    coef = model.coef_[0] if basis is None else basis @ model.coef_[0]
    return Linear(coef, float(model.intercept_[0]), 1.0 / float(np.ravel(model.C_)[0]))


def tuned_svm(X: Any, y: Array, folds: Folds, n_values: int) -> Linear:
    """Linear support vector machine, C by cross-validated error, from the rows' inner products."""
    products = X @ X.T
    products = products.toarray() if sp.issparse(products) else products
    strengths = np.geomspace(*MARGIN_RANGE, n_values) / products.diagonal().mean()
    search = GridSearchCV(SVC(kernel="precomputed"), {"C": strengths}, cv=folds).fit(products, y)
    model = search.best_estimator_
    coef = X[model.support_].T @ model.dual_coef_[0]
    return Linear(coef, float(model.intercept_[0]), 1.0 / model.C)


def tuned_centroids(X: Any, y: Array, folds: Folds, n_values: int) -> Linear:
    """Nearest shrunken centroids, the threshold by cross-validated error, as its authors do.

    Of thresholds with equal errors the largest counts, which keeps the fewest features.
    """
    dense = X.toarray() if sp.issparse(X) else X
    # Columns without any variation decide nothing; text has many.
    varying = np.flatnonzero(np.ptp(dense, axis=0) > 0)
    dense = dense[:, varying]
    largest = np.abs(NearestCentroid().fit(dense, y).deviations_).max()
    thresholds = largest * np.linspace(0.95, 0.01, n_values)
    errors = np.zeros(n_values)
    for train, left_out in folds:
        for i, threshold in enumerate(thresholds):
            model = shrunken_centroids(dense[train], y[train], threshold)
            scores = dense[left_out] @ model.coef + model.intercept
            errors[i] += np.sum(y[left_out] * scores <= 0)
    best = shrunken_centroids(dense, y, thresholds[np.argmin(errors)])
    coef = np.zeros(X.shape[1])
    coef[varying] = best.coef
    return best._replace(coef=coef)


def shrunken_centroids(X: Array, y: Array, threshold: float) -> Linear:
    """The rule that scikit-learn's `NearestCentroid` applies with class shares as priors; it is linear.

    With centroids c₊ and c₋, spreads s and class shares π the log odds are
        ½ Σⱼ ((xⱼ − c₋ⱼ)² − (xⱼ − c₊ⱼ)²) / sⱼ² + log π₊/π₋.
    scikit-learn's own probabilities leave out the ½, and it divides by spreads that are rounding errors: a
    gene at the floor of the scanner in all samples of a fold then decides alone (leukemia: 7 errors, not 2).
    """
    model = NearestCentroid(shrink_threshold=threshold, priors="empirical").fit(X, y)
    low, high = model.centroids_
    spread = model.within_class_std_dev_
    varies = spread > np.sqrt(np.finfo(float).eps) * np.median(spread)
    coef = (high - low) / np.where(varies, spread, 1.0) ** 2
    share = np.log(model.class_prior_)
    return Linear(coef, float(share[1] - share[0] - coef @ (low + high) / 2), float(threshold))


def rows_own_coordinates(X: Array) -> tuple[Array, Array]:
    """Z and an orthonormal basis V of the rows with X = Z V', no wider than X has rows.

    Rows keep their lengths and angles, so whatever is blind to rotations does not notice.
    """
    n_samples, n_features = X.shape
    if n_features <= n_samples:
        return X, np.eye(n_features)
    values, vectors = eigh(X @ X.T)
    # Directions below rounding error hold no row.
    kept = values > n_samples * np.finfo(float).eps * values[-1]
    lengths, vectors = np.sqrt(values[kept]), vectors[:, kept]
    return vectors * lengths, X.T @ (vectors / lengths)
