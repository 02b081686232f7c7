"""What `make studies-check` reruns of this study: the learnt classifiers of one pair."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.gamp_tables.run import FILES, KEY, measured

TABLE, TASK = "X", "face vs. chair"
RERUN = ("SparseClassifier", "sum-product, spike and slab, logistic", "max-sum, L1, learnt")


def rerun(folder: Path, _: bool) -> Iterator[dict[str, Any]]:
    for method in RERUN:
        yield {"table": TABLE, "task": TASK, "method": method} | measured(folder, TABLE, TASK, method)


CHECKS = (
    Check(
        key=KEY,
        cell=("task", "method"),
        floors={"error": 0.01, "density": 0.002, "consistency": 0.03},
        rerun=rerun,
        files=FILES,
    ),
)
