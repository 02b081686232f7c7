"""What `make studies-check` reruns of this study: rates that are learnt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.l1_rate.plot import FOUR_CLASSES, LEARNT, TWO_CLASSES
from benchmarks.studies.l1_rate.run import KEY, Place, measured

PLACES = (Place(TWO_CLASSES, 5000, 5), Place(TWO_CLASSES, 5000, 30), Place(FOUR_CLASSES, 3000, 10))


def rerun(folder: Path, minute: bool) -> Iterator[dict[str, Any]]:
    for place in PLACES[:1] if minute else PLACES:
        key = (*map(str, place), "0", LEARNT)
        yield dict(zip(KEY, key, strict=True)) | measured(folder, key, {})


CHECKS = (
    Check(
        key=KEY,
        cell=("data", "n_features", "n_active"),
        floors={"rate": 0.1, "error": 0.005, "kept": 1},
        rerun=rerun,
    ),
)
