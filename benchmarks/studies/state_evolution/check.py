"""What `make studies-check` reruns of this study."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.state_evolution.run import FULL, compare_point


def rerun(_: Path, minute: bool) -> Iterator[dict[str, Any]]:
    for point in FULL.points[:1] if minute else FULL.points[:4:3]:
        yield asdict(compare_point(FULL, *point))


CHECKS = (
    # Rows are means of a hundred trials, all of which are rerun; their standard errors are 0.001 to 0.002.
    Check(
        key=("sample_ratio", "active_ratio"),
        cell=("sample_ratio", "active_ratio"),
        floors={
            "measured_error": 0.002,
            "predicted_error": 1e-3,
            "measured_mse": 0.002,
            "predicted_mse": 1e-3,
        },
        rerun=rerun,
    ),
)
