"""What `make studies-check` reruns of this study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.shygamp_synthetic.plot import FOLDLESS
from benchmarks.studies.shygamp_synthetic.run import Setting, measured

SETTINGS = (Setting("M", 300, 10_000, 10), Setting("N", 200, 1000, 10), Setting("K", 300, 30_000, 30))


def rerun(_: Path, minute: bool) -> Iterator[dict[str, Any]]:
    for setting in SETTINGS[1:2] if minute else SETTINGS:
        for trial in range(1 if minute else 2):
            yield (
                setting._asdict() | {"trial": trial, "method": FOLDLESS} | measured(FOLDLESS, setting, trial)
            )


SETTING = Setting._fields
CHECKS = (
    Check(
        key=(*SETTING, "trial", "method"),
        cell=(*SETTING, "method"),
        floors={"error": 0.005, "loo_error": 0.01, "kept": 1, "kept_false": 1},
        rerun=rerun,
    ),
)
