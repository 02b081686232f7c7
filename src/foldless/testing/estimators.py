"""What every estimator owes its users beyond scikit-learn's checks: names, storages, units, weights, files.

Each check is a function of an estimator that is not fitted. One that does not apply (weights of samples for
an estimator that takes none) raises `unittest.SkipTest`, as scikit-learn's own do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import SkipTest

from foldless.testing import _inputs, _outputs

Check = Callable[[Any], None]

CHECKS: list[Check] = [
    function
    for module in (_inputs, _outputs)
    for name, function in vars(module).items()
    if name.startswith("check_")
]


def estimator_checks(estimator: Any) -> Iterator[tuple[Any, Check]]:
    """The checks of an estimator, for `pytest.mark.parametrize`."""
    for function in CHECKS:
        yield estimator, function


def check_estimator(estimator: Any) -> list[str]:
    """Run every check; the names of those that do not apply. The first that fails raises AssertionError."""
    skipped = []
    for function in CHECKS:
        try:
            function(estimator)
        except SkipTest:
            skipped.append(function.__name__)
    return skipped
