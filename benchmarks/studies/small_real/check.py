"""What `make studies-check` reruns of this study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.small_real.run import FILES, measured, methods, splits


def rerun(data: Path, _: bool) -> Iterator[dict[str, Any]]:
    for split in splits(data, 20):
        if split.number < 5:
            for name, fit in methods(split).items():
                if name == "SparseClassifier" or (
                    name.startswith("GAMP") and split.data == "sonar" and split.number < 2
                ):
                    yield {"data": split.data, "split": split.number, "method": name} | measured(fit, split)


CHECKS = (
    Check(
        key=("data", "split", "method"),
        cell=("data", "method"),
        floors={"error": 0.005, "log_loss": 0.01, "loo_error": 0.01, "loo_log_loss": 0.01},
        rerun=rerun,
        files=FILES,
    ),
)
