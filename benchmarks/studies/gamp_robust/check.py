"""What `make studies-check` reruns of this study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.gamp_robust.run import GENIES, OF_TWO_CLASSES, PAPER, methods, one


def rerun(_: Path, minute: bool) -> Iterator[dict[str, Any]]:
    for flipped in (0.4,) if minute else (0.0, 0.4):
        for trial in range(1 if minute else 2):
            for classes in (2,) if minute else (2, 4):
                for name in (*methods(), *GENIES):
                    if name == "SparseClassifier" or (
                        trial == 0 and (classes == 2 or name not in OF_TWO_CLASSES)
                    ):
                        key = {"trial": trial, "classes": classes, "flipped": flipped, "method": name}
                        yield key | one(trial, classes, flipped, name, PAPER)


CHECKS = (
    Check(
        key=("trial", "classes", "flipped", "method"),
        cell=("classes", "flipped", "method"),
        floors={"error": 0.002, "flip_prob": 0.005, "loo_error": 0.002},
        rerun=rerun,
    ),
)
