"""What `make studies-check` reruns of this study: all errors, as one stream of random numbers serves them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.check import Check
from benchmarks.studies.softmax_estimators.run import errors
from benchmarks.studies.softmax_estimators.settings import FILE, accuracy, named


def rerun(_: Path, minute: bool) -> Iterator[dict[str, Any]]:
    if not minute:
        yield from errors(np.geomspace(1e-3, 1e3, 13), 6, 1_000_000, np.random.default_rng(0))


def rerun_settings(_: Path, __: bool) -> Iterator[dict[str, Any]]:
    for row in accuracy(200):
        yield row | {"setting": named(row)}


CHECKS = (
    Check(
        key=("kind", "estimator", "variance"),
        cell=("kind", "estimator", "variance"),
        floors={"error": 0.001},
        rerun=rerun,
    ),
    Check(
        key=("figure", "setting"),
        cell=("figure", "setting"),
        floors={"mse": 0.001},
        rerun=rerun_settings,
        results=FILE,
    ),
)
