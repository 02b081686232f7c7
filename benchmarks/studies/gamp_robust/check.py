"""What `make studies-check` reruns of this study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.gamp_robust.run import PAPER, equal_weights, measured, methods


def rerun(_: Path, minute: bool) -> Iterator[dict[str, Any]]:
    for flipped in (0.4,) if minute else (0.0, 0.4):
        for trial in range(1 if minute else 2):
            data = equal_weights(PAPER.n_samples, PAPER.n_features, flipped, seed=trial)
            for name, model in methods().items():
                if trial == 0 or name == "SparseClassifier":
                    yield {"trial": trial, "flipped": flipped, "method": name} | measured(model, data)


CHECKS = (
    Check(
        key=("trial", "flipped", "method"),
        cell=("flipped", "method"),
        floors={"error": 0.002, "flip_prob": 0.005, "loo_error": 0.002},
        rerun=rerun,
    ),
)
