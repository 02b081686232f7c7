"""The estimators that are put to the test."""

from __future__ import annotations

from typing import Any

from foldless import (
    BayesPointClassifier,
    EPBayesPointClassifier,
    GAMPClassifier,
    PanelClassifier,
    PrunedBayesClassifier,
    SMLRClassifier,
    SparseClassifier,
)
from foldless.estimators.baselines import OneBitCS, RVMClassifier, SBMLRClassifier


def every_estimator() -> dict[str, Any]:
    """Each as it comes, but for choices that take a long search: the same code in a fraction of the time."""
    models = [
        SparseClassifier(),
        GAMPClassifier(),
        SMLRClassifier(),
        PanelClassifier(2),
        PrunedBayesClassifier(density=0.2, noise=0.1),
        EPBayesPointClassifier("probit"),
        BayesPointClassifier(violation_cost=1.0, n_sweeps=5, beta=1.0, n_bins=16),
        SBMLRClassifier(),
        OneBitCS(),
        RVMClassifier(),
    ]
    return {type(model).__name__: model for model in models}
