"""What `make studies-check` reruns of this study, where its tables are in the folder of data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.fresh_tables.run import measured
from benchmarks.studies.packaged_tables.plot import FOLDLESS

RERUN = ("fat_meat", "coffee", "permeability")


def rerun(folder: Path, _: bool) -> Iterator[dict[str, Any]]:
    for table in RERUN:
        yield {"table": table, "split": 0, "method": FOLDLESS} | measured(folder, table, 0, FOLDLESS)


CHECKS = (
    Check(
        key=("table", "split", "method"),
        cell=("table", "method"),
        floors={"error": 0.005, "log_loss": 0.01, "loo_error": 0.01, "loo_log_loss": 0.01},
        rerun=rerun,
        files=tuple(f"{table}.npz" for table in RERUN),
    ),
)
