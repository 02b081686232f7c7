"""What `make studies-check` reruns of this study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.large_tables.data import TABLES
from benchmarks.studies.large_tables.plot import FOLDLESS
from benchmarks.studies.large_tables.run import measured


def rerun(_: Path, minute: bool) -> Iterator[dict[str, Any]]:
    for table in TABLES:
        if table.endswith("2 classes") and not minute:
            yield {"table": table, "trial": 0, "method": FOLDLESS} | measured(table, 0, FOLDLESS, 1.0)


CHECKS = (
    Check(
        key=("table", "trial", "method"),
        cell=("table", "method"),
        floors={"error": 0.005, "log_loss": 0.01, "loo_error": 0.005, "loo_log_loss": 0.01},
        rerun=rerun,
    ),
)
