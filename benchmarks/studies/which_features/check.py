"""What `make studies-check` reruns of this study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.which_features.run import NAMES, of_foldless, real, splits

TRIALS = 4


def rerun(data: Path, _: bool) -> Iterator[dict[str, Any]]:
    tables = real(data)
    for name in ("colon", "breast_west"):
        for n, split in enumerate(splits(*tables[name], TRIALS)):
            for row in of_foldless(split):
                yield {"data": name, "split": n} | row


CHECKS = (
    Check(
        key=("data", "split", "method", "size"),
        cell=("data", "method", "size"),
        floors={"error": 0.02, "log_loss": 0.02, "promised_error": 0.02, "promised_log_loss": 0.02},
        rerun=rerun,
        files=tuple(f"{name}.npz" for name in NAMES),
    ),
)
