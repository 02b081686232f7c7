"""Predict the classes of a table's samples with a saved model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.io.names import counted
from foldless.io.read import read_table
from foldless.io.table import BadTable, OverBudget, Reading, Roles, Table, check_finite, listed
from foldless.io.tsv import write_tsv
from foldless.operators import stays_elsewhere
from foldless.runs.results import Column, prediction_columns
from foldless.runs.streaming import ALWAYS_STREAMED, STREAMED, streamed_table

# Standard deviations of the fit by which the mean of a column does not move with classes or by chance, and
# doublings or halvings by which its spread does not; samples that show a spread.
FAR, OTHER_SCALE, ENOUGH_FOR_A_SPREAD = 4.0, 2.5, 10
# Of very many columns some have such tails: of no distribution are more than this share of values so far out
# (Chebyshev). Fewer are told of if they move scores by so many log-odds each.
CHANCE_SHARE, MOVES = 1 / FAR**2, 1.0


@dataclass(frozen=True, eq=False)
class Prediction:
    """Class probabilities of each sample of a table."""

    table: Table
    classes: Any
    proba: Array
    cautions: tuple[str, ...] = ()

    @property
    def predicted(self) -> Any:
        return self.classes[np.argmax(self.proba, axis=1)]

    @property
    def comparable(self) -> NDArray[np.bool_]:
        """Samples whose class is in the table, and among those of the model."""
        if self.table.target is None:
            return np.zeros(self.table.shape[0], dtype=bool)
        return np.isin(self.table.target.astype(str), self.classes.astype(str))

    @property
    def error(self) -> float | None:
        """The share of samples that are predicted wrongly, of those that can be compared."""
        known = self.comparable
        if self.table.target is None or not known.any():
            return None
        return float(np.mean(self.predicted[known].astype(str) != self.table.target[known].astype(str)))

    @property
    def unknown_labels(self) -> dict[str, int]:
        """Labels of the table that are no classes of the model, and how often each occurs."""
        if self.table.target is None:
            return {}
        labels, counts = np.unique(self.table.target[~self.comparable].astype(str), return_counts=True)
        return dict(zip(labels.tolist(), counts.tolist(), strict=True))

    def write(self, path: Path) -> None:
        columns: list[Column] = [("sample", self.table.sample_names)]
        if self.table.target is not None:
            columns.append(("label", [str(label) for label in self.table.target]))
        write_tsv(path, columns + prediction_columns(self.proba, self.classes))


def read_for(
    model: Any,
    path: Path,
    roles: Roles,
    reading: Reading | None = None,
    *,
    labels: Path | None = None,
    budget: float | None = None,
) -> Table:
    """The features that a model was fitted to, by name and in its order; by number if it has no names.

    What was done to the table of the fit is done to this one as well. `labels` is a file of their own.
    """
    names, preparation = getattr(model, "feature_names_in_", None), getattr(model, "preparation_", None)
    reading = Reading() if reading is None else reading
    if names is None:
        table = _read(path, roles, reading, labels, budget)
        if table.shape[1] != model.n_features_in_:
            raise BadTable(
                path,
                f"there are {table.shape[1]} features, and the model was fitted to {model.n_features_in_}.",
                "It knows no names, so that columns must be the same and in the same order. See --ignore.",
            )
        return table
    coded = set() if preparation is None else set(preparation.coded)
    wanted = tuple(str(name) for name in names if name not in coded)
    if preparation is not None:
        roles = replace(roles, categories=tuple(preparation.levels))
        reading = replace(reading, average=preparation.average)
    table = _read(path, replace(roles, ignore=(), features=wanted), reading, labels, budget)
    if preparation is None or stays_elsewhere(table.X):
        return table
    return preparation.apply(table, [str(name) for name in names])


def _read(path: Path, roles: Roles, reading: Reading, labels: Path | None, budget: float | None) -> Table:
    """The table in memory, or on disk if it does not fit and its format allows."""
    if path.suffix.lower() not in ALWAYS_STREAMED and labels is None:
        try:
            return read_table(path, roles, reading, budget=budget)
        except OverBudget:
            if path.suffix.lower() not in STREAMED:
                raise
    return streamed_table(path, roles, labels)


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
    return Prediction(table, model.classes_, proba, tuple(drift(model, table)))


def drift(model: Any, table: Table) -> list[str]:
    """Sentences on columns that lie elsewhere than in the table of the fit, or are on another scale.

    The mean of one column may move with the shares of classes, but not by several of the standard deviations
    that the fit has seen; those of most columns do not move by one. Columns that are few, and hardly count,
    are nothing to ask about.
    """
    center, scale = vars(model).get("_center"), vars(model).get("_scale")
    if center is None or np.shape(center) != (table.shape[1],) or stays_elsewhere(table.X):
        return []
    # Columns that hold one value in the fit have a scale of one there, and no weight.
    varied = (scale > 0) & ~((scale == 1.0) & np.all(np.atleast_2d(model.coef_) == 0, axis=0))
    scale = np.where(varied, scale, 1.0)
    mean = np.asarray(table.X.mean(axis=0)).ravel()
    # A mean of few samples moves by chance as well.
    away = np.where(varied, np.abs(mean - center) / scale, 0.0) / (1.0 + 1.0 / np.sqrt(table.shape[0]))
    weights = np.max(np.abs(np.atleast_2d(model.coef_)), axis=0)
    moved = weights * np.abs(mean - center)
    found = [_told_of(table, away, moved, FAR, "lie elsewhere than in the table of the fit")]
    if table.shape[0] >= ENOUGH_FOR_A_SPREAD:
        squares = table.X.multiply(table.X) if sp.issparse(table.X) else table.X**2
        spread = np.sqrt(np.maximum(np.asarray(squares.mean(axis=0)).ravel() - mean**2, 0.0))
        # A word that no new text has is no matter of units.
        ratio = np.where(varied & (spread > 0), spread / scale, 1.0)
        moved = weights * np.maximum(spread, scale)
        found.append(_told_of(table, np.abs(np.log2(ratio)), moved, OTHER_SCALE, "vary on another scale"))
    return [sentence for sentence in found if sentence]


def _told_of(table: Table, size: Array, moved: Array, far: float, how: str) -> str:
    """Of columns that are `far`, or by more than one if most are; those that move scores most first."""
    which = size > (1.0 if np.median(size) > 1.0 else far)
    if np.mean(which) <= CHANCE_SHARE:
        which &= moved > MOVES
    if not which.any():
        return ""
    names = [table.feature_names[j] for j in np.lexsort((-size, -moved)) if which[j]]
    share = f"{counted(int(which.sum()))} of {counted(which.size)} columns {how}: {listed(names)}."
    return (
        f"{share} Are units, logarithms and normalisation those of the fit? If not, predictions mean nothing."
    )
