"""What more samples would bring a run, where the theory knows its model."""

from __future__ import annotations

import warnings

import numpy as np

from foldless.estimators.planning import learning_curve
from foldless.io.table import BadTable, Table
from foldless.operators import stays_elsewhere
from foldless.runs.fit import Run
from foldless.runs.models import DEFAULT
from foldless.theory.learning_curve import LearningCurve


def check_curve_is_known(table: Table, model: str) -> None:
    """A curve that was asked for and cannot be had is an error before any work."""
    if model != DEFAULT:
        raise BadTable(
            table.path,
            f"--learning-curve is given, and theory knows no curve of the model {model!r}.",
            f"Use --model {DEFAULT}, or do without --learning-curve.",
        )
    if stays_elsewhere(table.X):
        raise BadTable(
            table.path,
            "--learning-curve is given, and needs the table in memory; its rows stay on disk.",
            "Do without --learning-curve, or allow more memory with --max-memory.",
        )
    n_classes = np.unique(table.labels()).size
    if n_classes > 2:
        raise BadTable(
            table.path,
            f"--learning-curve is given, and theory knows two classes; the target has {n_classes}.",
            "Do without --learning-curve.",
        )


def learning_curve_of(run: Run) -> LearningCurve:
    """From half to four times the samples."""
    with warnings.catch_warnings():
        # A sparse table has names, but no data frame to carry them.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return learning_curve(run.model, run.table.X, run.table.labels())
