"""What `make studies-check` reruns of this study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.pruned_classifier.run import FULL, colon, dynamics

QUICK_METHODS = (
    "PrunedBayesClassifier()",
    "pruned, κ = 0.4",
    "pruned, whitened, κ = 0.4",
    "pruned, whitened features, κ = 0.4",
)


def simulated(_: Path, minute: bool) -> Iterator[dict[str, Any]]:
    for row in dynamics(FULL._replace(dynamics=((1000, 2 if minute else 6),))):
        if row["iteration"] in (1, 4, 12):
            yield {"part": "dynamics"} | row


def real(data: Path, _: bool) -> Iterator[dict[str, Any]]:
    for row in colon(FULL, data, QUICK_METHODS, first=8):
        yield {"part": "colon"} | row


CHECKS = (
    Check(
        key=("part", "n", "density", "iteration", "run"),
        cell=("part", "n", "density", "iteration"),
        floors={"error": 0.002, "theory": 1e-4},
        rerun=simulated,
    ),
    Check(
        key=("part", "data", "split", "method"),
        cell=("part", "method"),
        floors={"error": 0.005, "loo_error": 0.01, "kept": 20},
        rerun=real,
        files=("colon.npz",),
    ),
)
