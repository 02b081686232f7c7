"""What `make studies-check` reruns of this study."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies import _common as common
from benchmarks.studies.smlr_table2.run import measured, methods, smlr, splits


def rerun(data: Path, _: bool) -> Iterator[dict[str, Any]]:
    for repetition in (1, 2):
        for split in islice(splits(data, "colon", repetition), 10):
            fitted = common.timed(partial(smlr, split, None, False))
            yield {
                "data": "colon",
                "repetition": repetition,
                "split": split.number,
                "method": "SMLR",
            } | measured(fitted, split)
    for name in ("leukemia", "yeast"):
        for split in islice(splits(data, name, 0), 2):
            for method, fit in methods(split, None, False).items():
                if method not in ("RVM", "SparseClassifier"):
                    yield {"data": name, "repetition": 0, "split": split.number, "method": method} | measured(
                        common.timed(fit), split
                    )


CHECKS = (
    Check(
        key=("data", "repetition", "split", "method"),
        cell=("data", "method"),
        floors={"wrong": 0.5, "kept": 2, "loo_log_loss": 0.01},
        rerun=rerun,
        files=("colon.npz", "leukemia.npz", "yeast.npz"),
    ),
)
