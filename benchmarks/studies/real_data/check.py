"""What `make studies-check` reruns of this study."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.real_data.data import FILES, REPETITIONS, Source, splits
from benchmarks.studies.real_data.run import measured

# Of each protocol so many splits; c has one, and e those of its eight tables.
SPLITS = {"a": 10, "b": 30, "c": 1, "d": 4, "e": 90}


def rerun(data: Path, _: bool) -> Iterator[dict[str, Any]]:
    source = Source(data)
    for protocol, n_splits in SPLITS.items():
        for split in islice(splits(source, protocol, REPETITIONS.get(protocol, 1)), n_splits):
            if protocol != "e" or split.number < 2:
                for row, _ in measured("foldless", split):
                    yield row


CHECKS = (
    Check(
        key=("protocol", "data", "split", "method", "scaling"),
        cell=("protocol", "data", "method"),
        floors={"error": 0.005, "log_loss": 0.01, "loo_error": 0.01, "loo_log_loss": 0.01, "kept": 1},
        rerun=rerun,
        files=FILES,
    ),
)
