"""What `make studies-check` reruns of this study; refits are not: they cost hours, and follow the fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.real_data.data import Source
from benchmarks.studies.trust import designs
from benchmarks.studies.trust.run import FULL, Held, against_truth, samples_to_leave_out
from foldless import SparseClassifier

CALIBRATED = (designs.IN_DOMAIN, "AR(0.8)", "block 0.9")


def calibration(_: Path, minute: bool) -> Iterator[dict[str, Any]]:
    for design in CALIBRATED[:1] if minute else CALIBRATED:
        for run in range(2 if minute else 4):
            drawn = designs.task(design, run, FULL.n_samples, FULL.n_features, FULL.n_test)
            yield {"part": "calibration", "data": design, "run": run} | against_truth(drawn)


def leave_one_out(data: Path, _: bool) -> Iterator[dict[str, Any]]:
    held: Held
    for held in samples_to_leave_out(Source(data), FULL):
        model = SparseClassifier().fit(held.X, held.y)
        yield {
            "part": "loo",
            "data": held.data,
            "run": held.run,
            "loo_error": model.loo_error_,
            "loo_log_loss": model.loo_log_loss_,
        }


KEY, CELL = ("part", "data", "run"), ("part", "data")
CHECKS = (
    Check(
        KEY,
        CELL,
        {"inclusion_z": 0.2, "class_error": 0.01, "n_likely": 1, "simple_likely": 1, "mixture_likely": 1},
        calibration,
    ),
    Check(
        KEY, CELL, {"loo_error": 0.017, "loo_log_loss": 0.02}, leave_one_out, ("colon.npz", "leukemia.npz")
    ),
)
