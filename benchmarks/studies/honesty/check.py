"""What `make studies-check` reruns of this study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.honesty.run import FULL, measured

DESIGNS = ("independent, logistic", "Toeplitz .7", "10 % wrong", "t3 tails", "null, factors", "four classes")


def rerun(_: Path, minute: bool) -> Iterator[dict[str, Any]]:
    for design in DESIGNS[:2] if minute else DESIGNS:
        for run in range(1 if minute else 3):
            yield {"design": design, "run": run} | measured(design, run, FULL)


CHECKS = (
    Check(
        key=("design", "run"),
        cell=("design",),
        floors={
            "loo_error": 0.01,
            "test_error": 0.005,
            "loo_log_loss": 0.01,
            "test_log_loss": 0.01,
            "n_likely": 1,
            "n_covered": 1,
            "weight_ratio": 0.05,
        },
        rerun=rerun,
    ),
)
