"""What `make studies-check` reruns of this study."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.bayes_point_table1.run import FILES, FIRST_SEED, STUDY, measured, random_split

SPLITS = {"liver": 4, "heart": 3, "breast": 2}


def rerun(data: Path, _: bool) -> Iterator[dict[str, Any]]:
    n_bins = json.loads((STUDY / "machine.json").read_text())["settings"]["bins"]
    for name, n_splits in SPLITS.items():
        for number in range(n_splits):
            for method, row in measured(
                random_split(data, name, FIRST_SEED + number), n_bins, quick=False
            ).items():
                yield {"data": name, "split": number, "method": method} | row


CHECKS = (
    Check(
        key=("data", "split", "method"),
        cell=("data", "method"),
        floors={"error": 0.005},
        rerun=rerun,
        files=FILES,
    ),
)
