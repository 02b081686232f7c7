"""Every estimator goes through the checks that foldless.testing has for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from foldless.testing import estimator_checks

# Modules of the repository, not of the package.
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.trust.estimators import every_estimator


@pytest.mark.parametrize(
    ("estimator", "check"),
    [pair for estimator in every_estimator().values() for pair in estimator_checks(estimator)],
    ids=lambda part: type(part).__name__ if hasattr(part, "fit") else part.__name__.removeprefix("check_"),
)
def test_common_checks(estimator: Any, check: Any) -> None:
    check(estimator)
