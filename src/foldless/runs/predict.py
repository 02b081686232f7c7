"""Predict the classes of a table's samples with a saved model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foldless.beliefs import Array
from foldless.io.read import read_table
from foldless.io.table import BadTable, OverBudget, Roles, Table, check_finite
from foldless.io.tsv import write_tsv
from foldless.operators import stays_elsewhere
from foldless.runs.results import Column, prediction_columns
from foldless.runs.streaming import ALWAYS_STREAMED, STREAMED, streamed_table


@dataclass(frozen=True, eq=False)
class Prediction:
    """Class probabilities of each sample of a table."""

    table: Table
    classes: Any
    proba: Array

    @property
    def predicted(self) -> Any:
        return self.classes[np.argmax(self.proba, axis=1)]

    @property
    def error(self) -> float | None:
        """The share of samples that are predicted wrongly, if the table says what they are."""
        if self.table.target is None:
            return None
        return float(np.mean(self.predicted.astype(str) != self.table.target.astype(str)))

    def write(self, path: Path) -> None:
        columns: list[Column] = [("sample", self.table.sample_names)]
        if self.table.target is not None:
            columns.append(("label", [str(label) for label in self.table.target]))
        write_tsv(path, columns + prediction_columns(self.proba, self.classes))


def read_for(
    model: Any, path: Path, roles: Roles, *, delimiter: str | None = None, budget: float | None = None
) -> Table:
    """The features that a model was fitted to, by name and in its order; by number if it has no names."""
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        roles = replace(roles, ignore=(), features=tuple(str(name) for name in names))
    table = _read(path, roles, delimiter, budget)
    if names is not None:
        return table
    if table.shape[1] != model.n_features_in_:
        raise BadTable(
            path,
            f"there are {table.shape[1]} features, and the model was fitted to {model.n_features_in_}.",
            "It knows no names, so that columns must be the same and in the same order. See --ignore.",
        )
    return table


def _read(path: Path, roles: Roles, delimiter: str | None, budget: float | None) -> Table:
    """The table in memory, or on disk if it does not fit and its format allows."""
    if path.suffix.lower() not in ALWAYS_STREAMED:
        try:
            return read_table(path, roles, delimiter=delimiter, budget=budget)
        except OverBudget:
            if path.suffix.lower() not in STREAMED:
                raise
    return streamed_table(path, roles)


def predict_table(model: Any, table: Table) -> Prediction:
    if not stays_elsewhere(table.X):
        check_finite(table.path, table.X, table.feature_names)
    with warnings.catch_warnings():
        # Names have been compared already, and a sparse matrix cannot carry them.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        try:
            proba = np.asarray(model.predict_proba(table.X))
        except ValueError as error:
            raise BadTable(table.path, f"{type(model).__name__} cannot predict:", str(error)) from error
    return Prediction(table, model.classes_, proba)
