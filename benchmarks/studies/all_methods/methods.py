"""Every method of the five papers, from public estimators, and four rivals, behind one face."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import NearestCentroid
from sklearn.svm import SVC

from benchmarks.studies import _multinomial as multinomial
from benchmarks.studies import _rivals as rivals
from foldless import (
    BayesPointClassifier,
    EPBayesPointClassifier,
    GAMPClassifier,
    PrunedBayesClassifier,
    SMLRClassifier,
    SparseClassifier,
)
from foldless.estimators.baselines import OneBitCS, RVMClassifier, SBMLRClassifier

N_FOLDS, N_VALUES = 5, 10


class Method(NamedTuple):
    """How to make it, which paper it is of, and whether it has two classes only."""

    make: Callable[[], Any]
    paper: str
    binary: bool = False


class Rival:
    """A rival with the face of an estimator: columns standardised, penalty or threshold by five folds."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def fit(self, X: Any, y: NDArray[Any]) -> Rival:
        self.classes_, code = np.unique(y, return_inverse=True)
        self._center, self._scale, scaled = multinomial.standardised(X)
        folds = rivals.folds_of(code, min(N_FOLDS, int(np.bincount(code).min())))
        if self.kind == "ridge" and not sp.issparse(X) and self.classes_.size > 2:
            self._model: Any = multinomial.ridge_cv(scaled, code, folds, N_VALUES)
        elif self.kind == "L1" and self.classes_.size > 2:
            self._model = multinomial.saga_cv(scaled, code, folds, N_VALUES)
        elif self.classes_.size == 2:
            tuned = {
                "ridge": rivals.tuned_ridge,
                "L1": rivals.tuned_l1,
                "SVM": rivals.tuned_svm,
                "shrunken centroids": rivals.tuned_centroids,
            }[self.kind]
            found = tuned(scaled, 2.0 * code - 1.0, folds, N_VALUES)
            self._model = multinomial.ManyLinear(
                np.vstack([-found.coef, found.coef]) / 2,
                np.array([-found.intercept, found.intercept]) / 2,
                found.penalty,
            )
        else:
            self._model = self._searched(scaled, code)
        self.has_proba = self.kind in ("ridge", "L1")
        if hasattr(self._model, "coef"):
            self.coef_ = self._model.coef
        return self

    def _searched(self, X: Any, code: NDArray[np.intp]) -> Any:
        cv = StratifiedKFold(min(N_FOLDS, int(np.bincount(code).min())))
        if self.kind == "SVM":
            size = float((X.multiply(X).sum() if sp.issparse(X) else np.sum(X**2)) / X.shape[0])
            strengths = np.geomspace(*rivals.MARGIN_RANGE, N_VALUES) / size
            return GridSearchCV(SVC(kernel="linear"), {"C": strengths}, cv=cv).fit(X, code)
        thresholds = np.linspace(0.1, 5.0, N_VALUES)
        return GridSearchCV(NearestCentroid(), {"shrink_threshold": thresholds}, cv=cv).fit(X, code)

    def predict(self, X: Any) -> NDArray[Any]:
        return self.classes_[self._model.predict(self._scaled(X))]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        return np.exp(self._model.log_proba(self._scaled(X)))

    def _scaled(self, X: Any) -> Any:
        return X if sp.issparse(X) else (X - self._center) / self._scale


def one_bit() -> GridSearchCV:
    """The number of features by five folds, as its paper chooses it."""
    return GridSearchCV(OneBitCS(), {"sparsity": [1.0, 3.0, 10.0, 30.0, 100.0]}, cv=N_FOLDS)


GAMP, SMLR, POINT, PRUNED, THESIS = "GAMP", "SMLR", "Bayes point", "pruned", "SHyGAMP"
gamp = partial(partial, GAMPClassifier)
plain = partial(gamp, generative_weight=0.0)

# Cheap ones first; what is being worked on last.
METHODS: dict[str, Method] = {
    "ridge": Method(partial(Rival, "ridge"), "rival"),
    "shrunken centroids": Method(partial(Rival, "shrunken centroids"), "rival"),
    "SVM": Method(partial(Rival, "SVM"), "rival"),
    "L1": Method(partial(Rival, "L1"), "rival"),
    "SparseClassifier": Method(SparseClassifier, "foldless"),
    "SMLR": Method(SMLRClassifier, SMLR),
    "RMLR": Method(partial(SMLRClassifier, penalty="l2"), SMLR),
    "SMLR, groups": Method(partial(SMLRClassifier, penalty="group"), SMLR),
    "SMLR, rate integrated out (SBMLR)": Method(SBMLRClassifier, THESIS),
    "SMLR, RBF basis": Method(partial(SMLRClassifier, kernel="rbf"), SMLR),
    "RMLR, RBF basis": Method(partial(SMLRClassifier, kernel="rbf", penalty="l2"), SMLR),
    "RVM, RBF basis": Method(RVMClassifier, PRUNED, binary=True),
    "EP Bayes point": Method(EPBayesPointClassifier, POINT),
    "EP Bayes point, RBF kernel": Method(partial(EPBayesPointClassifier, kernel="rbf"), POINT),
    "pruned": Method(PrunedBayesClassifier, PRUNED, binary=True),
    "pruned, whitened, κ = 0.4": Method(
        partial(
            PrunedBayesClassifier, noise=0.4, whiten="components", standardize=False, fit_intercept=False
        ),
        PRUNED,
        binary=True,
    ),
    "GAMP, spike and slab, with class means": Method(gamp(), GAMP),
    "GAMP, probit": Method(gamp(channel="probit"), GAMP, binary=True),
    "GAMP, wrong labels": Method(gamp(channel="robust-logistic"), GAMP, binary=True),
    "EP, spike and slab": Method(gamp(solver="ep"), GAMP),
    "VAMP, spike and slab": Method(gamp(solver="vamp"), GAMP, binary=True),
    "HyGAMP, row-sparse": Method(gamp("row-sparse", solver="hygamp"), THESIS),
    "OneBitCS": Method(one_bit, GAMP, binary=True),
    "knapsack Bayes point": Method(BayesPointClassifier, POINT),
    "knapsack, L1": Method(partial(BayesPointClassifier, "l1"), POINT),
    "knapsack, L0": Method(partial(BayesPointClassifier, "l0"), POINT),
    "GAMP, spike and slab, plain": Method(plain(), GAMP),
    # By SURE with tuning="em", too (docs/papers/gamp.md), so once.
    "GAMP, max-sum L1 by SURE": Method(plain("laplace", rule="max-sum", tuning="sure"), THESIS),
    "GAMP, hinge": Method(plain(channel="hinge"), GAMP, binary=True),
}
