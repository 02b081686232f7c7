"""What `make studies-check` reruns of this study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.gamp_sparsity.run import PAPER, measured, methods, simulated


def rerun(_: Path, minute: bool) -> Iterator[dict[str, Any]]:
    for n_active in (20,) if minute else (5, 20, 30):
        for trial in range(1 if minute else 3):
            data = simulated(PAPER, n_active, trial)
            for name, method in methods(with_rivals=False).items():
                if name == "foldless" or (trial == 0 and not minute):
                    yield {"trial": trial, "n_active": n_active, "method": name} | measured(method, data)


CHECKS = (
    Check(
        key=("trial", "n_active", "method"),
        cell=("n_active", "method"),
        floors={"error": 0.002, "loo_error": 0.007, "kept": 1, "kept_fdr": 1, "kept_fdr_false": 1},
        rerun=rerun,
    ),
)
