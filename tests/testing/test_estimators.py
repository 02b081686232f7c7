"""Every estimator goes through the checks that foldless.testing has for it."""

from __future__ import annotations

from typing import Any

import pytest

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
from foldless.testing import estimator_checks

EVERY_ESTIMATOR: list[Any] = [
    SparseClassifier(),
    GAMPClassifier(),
    SMLRClassifier(),
    PanelClassifier(2),
    PrunedBayesClassifier(density=0.2, noise=0.1),
    # One kind of noise instead of three, and choices made: the same code in a fraction of the time.
    EPBayesPointClassifier("probit"),
    BayesPointClassifier(violation_cost=1.0, n_sweeps=5, beta=1.0, n_bins=16),
    SBMLRClassifier(),
    OneBitCS(),
    RVMClassifier(),
]


@pytest.mark.parametrize(
    ("estimator", "check"),
    [pair for estimator in EVERY_ESTIMATOR for pair in estimator_checks(estimator)],
    ids=lambda part: type(part).__name__ if hasattr(part, "fit") else part.__name__.removeprefix("check_"),
)
def test_common_checks(estimator: Any, check: Any) -> None:
    check(estimator)
