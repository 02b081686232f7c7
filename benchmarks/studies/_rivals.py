"""Cross-validated L1 logistic regression, each solver at its best: what foldless is compared with."""

from __future__ import annotations

import importlib.util
import inspect
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold

Array = NDArray[np.float64]

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


def l1_logistic_cv(inverse_penalties: Array, n_folds: int) -> LogisticRegressionCV:
    """LogisticRegressionCV with an L1 penalty, asked for in the words of the installed version."""
    known = inspect.signature(LogisticRegressionCV).parameters
    l1 = {"penalty": "l1"}
    if known["penalty"].default == "deprecated":
        l1 = {"l1_ratios": (1.0,)}
    if "use_legacy_attributes" in known:
        l1["use_legacy_attributes"] = False
    return LogisticRegressionCV(
        Cs=inverse_penalties,
        cv=StratifiedKFold(n_folds),
        solver="liblinear",
        scoring="neg_log_loss",
        random_state=0,
        **l1,
    )
