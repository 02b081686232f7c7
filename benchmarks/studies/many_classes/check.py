"""What `make studies-check` reruns of this study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.many_classes import data as sources
from benchmarks.studies.many_classes.plot import FOLDLESS
from benchmarks.studies.many_classes.run import N_VALUES, measured

# Of ten splits; voxels take up to a minute each.
SPLITS = {"fgl": 5, "iris": 5, "yeast": 5, "contraceptive": 5, "haxby 5": 1}


def rerun(folder: Path, _: bool) -> Iterator[dict[str, Any]]:
    for name, n_splits in SPLITS.items():
        data = sources.load(name, folder)
        for number, split in enumerate(list(sources.splits(data, 10))[:n_splits]):
            yield {"data": name, "split": number, "method": FOLDLESS} | measured(
                FOLDLESS, data, *split, N_VALUES
            )


CHECKS = (
    Check(
        key=("data", "split", "method"),
        cell=("data", "method"),
        floors={"error": 0.005, "log_loss": 0.01, "loo_error": 0.01, "loo_log_loss": 0.01},
        rerun=rerun,
        files=tuple(sources.FILES),
    ),
)
