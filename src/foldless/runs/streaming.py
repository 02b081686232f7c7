"""Tables that are too large for memory: left on disk, and read in every pass of a fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from foldless.io.matrix import read_labels
from foldless.io.read import read_table
from foldless.io.rows import SUFFIXES, row_source
from foldless.io.table import (
    BadTable,
    OverBudget,
    Reading,
    Roles,
    Table,
    assembled,
    check_finite,
    check_present,
)
from foldless.operators import RowBlocks
from foldless.runs.check import check_memory

STREAMED = SUFFIXES
# These are never read whole.
ALWAYS_STREAMED = (".npy", ".zarr")
STEP = "Rows stayed on disk and were read in blocks in every pass."


def read_or_stream(
    path: Path,
    roles: Roles,
    reading: Reading | None = None,
    *,
    budget: float | None = None,
    stream: bool = False,
    labels: Path | None = None,
    missing: bool = False,
) -> Table:
    """A table to be fitted to, in memory if it fits and on disk if it does not, or if that is asked for.

    Values may be `missing` if they are going to be filled in.
    """
    can_stream = path.suffix.lower() in STREAMED
    if stream and not can_stream:
        raise BadTable(
            path,
            "rows of this kind of file cannot be read one block at a time.",
            f"Known are {', '.join(STREAMED)}. Convert it, or do without --stream.",
        )
    if labels is not None and not can_stream:
        raise BadTable(path, "--labels is for a matrix that has none beside it.", "Name a column: --target.")
    if not (stream or labels is not None or path.suffix.lower() in ALWAYS_STREAMED):
        try:
            table = read_table(path, roles, reading, budget=budget)
            # What is wrong with the data is said before what is too large.
            table.labels()
            check_finite(path, table.X, table.feature_names, missing=missing)
            check_memory(table, budget)
            return table
        except OverBudget:
            if not can_stream:
                raise
    table = streamed_table(path, roles, labels)
    table.labels()
    check_memory(table, budget)
    return table


def streamed_table(path: Path, roles: Roles, labels: Path | None = None) -> Table:
    """The table as it is on disk; `labels` is a file of their own."""
    X = RowBlocks(row_source(path, roles if labels is None else replace(roles, target=None)))
    source = X.source
    target_name = roles.target if labels is None or roles.target else labels.name
    target = X.labels if labels is None else read_labels(labels, roles.target, X.shape[0])
    table = assembled(
        path,
        X,
        roles,
        X.column_names,
        source.row_names,
        target,
        source.groups,
        target_name=target_name,
        steps=[STEP],
    )
    if roles.features is not None and table.feature_names != list(roles.features):
        # Parquet has found them by name.
        names = table.feature_names
        check_present(path, roles.features, names, "feature", "a feature that the model was fitted to")
        raise BadTable(
            path,
            "columns are others than those of the model, or in another order.",
            "Rows that stay on disk are taken as they are: write the matrix with the columns of the model.",
        )
    return table
