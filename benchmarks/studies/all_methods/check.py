"""What `make studies-check` reruns of this study: methods that are quick and in no other study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.all_methods.run import KEY, measured

TABLE, RERUN = "iris", ("SparseClassifier", "SMLR")


def rerun(folder: Path, _: bool) -> Iterator[dict[str, Any]]:
    for method in RERUN:
        yield {"data": TABLE, "split": "0", "method": method} | measured(folder, TABLE, "0", method)


CHECKS = (
    Check(
        key=KEY,
        cell=("data", "method"),
        floors={"error": 0.005, "log_loss": 0.01},
        rerun=rerun,
        files=(f"{TABLE}.npz",),
    ),
)
