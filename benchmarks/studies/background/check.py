"""What `make studies-check` reruns of this study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.background.designs import FILES, task
from benchmarks.studies.background.methods import FOLDLESS
from benchmarks.studies.background.run import measured


def rerun(data: Path, minute: bool, designs: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for design in designs[:1] if minute else designs:
        for run in range(2 if minute else 4):
            yield {"design": design, "run": run, "method": FOLDLESS} | measured(
                FOLDLESS, task(design, run, data, 1.0)
            )


def simulated(data: Path, minute: bool) -> Iterator[dict[str, Any]]:
    return rerun(data, minute, ("Toeplitz 0.5", "Toeplitz 0.7", "equicorrelated 0.5"))


def real(data: Path, minute: bool) -> Iterator[dict[str, Any]]:
    return rerun(data, minute, ("colon", "breast_west"))


# The key lacks the revision: of rows that differ in it alone, the last counts.
KEY, CELL = ("design", "run", "method"), ("design", "method")
FLOORS = {"selected_0.1": 1, "false_0.1": 1, "selected_0.2": 1, "average_precision": 0.02, "in_k_best": 0.03}
CHECKS = (Check(KEY, CELL, FLOORS, simulated), Check(KEY, CELL, FLOORS, real, tuple(FILES)))
