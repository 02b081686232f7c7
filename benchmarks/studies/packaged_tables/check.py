"""What `make studies-check` reruns of this study, where its tables are in the folder of data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.packaged_tables.data import files
from benchmarks.studies.packaged_tables.plot import FOLDLESS
from benchmarks.studies.packaged_tables.run import measured

RERUN = ("all_2_types", "bladder_cancer", "mouse_diet", "dhfr")


def rerun(folder: Path, _: bool) -> Iterator[dict[str, Any]]:
    for table in RERUN:
        for split in range(2):
            key = {"table": table, "split": split, "method": FOLDLESS}
            yield key | measured(folder, table, split, FOLDLESS)


CHECKS = (
    Check(
        key=("table", "split", "method"),
        cell=("table", "method"),
        floors={"error": 0.005, "log_loss": 0.01, "loo_error": 0.01, "loo_log_loss": 0.01},
        rerun=rerun,
        files=tuple(name for table in RERUN for name in files(table)),
    ),
)
