"""What `make studies-check` reruns of this study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.credible_sets.plot import OVER_BACKGROUND
from benchmarks.studies.credible_sets.run import METHODS, PAPER, designs, measured
from foldless.solvers import EP


def rerun(_: Path, minute: bool) -> Iterator[dict[str, Any]]:
    for trial in range(1 if minute else 3):
        for design, data in designs(PAPER, trial).items():
            solvers = {OVER_BACKGROUND: EP(), "GAMP": METHODS["GAMP"]}
            for name, solver in solvers.items():
                row, _ = measured(solver, data, over_background=name == OVER_BACKGROUND)
                yield {"trial": trial, "design": design, "method": name} | row


CHECKS = (
    Check(
        key=("trial", "design", "method"),
        cell=("design", "method"),
        floors={
            "selected": 1,
            "false": 1,
            "sets": 1,
            "sets_right": 1,
            "sets_power": 0.05,
            "log_evidence": 0.5,
        },
        rerun=rerun,
    ),
)
