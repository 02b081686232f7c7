"""A dry run: what a fit would see in a table, what it would need, and what may be wrong."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from foldless.estimators import SparseClassifier
from foldless.estimators._account import planned
from foldless.estimators._preparation import Preparation, missing_share
from foldless.io.budget import default_budget, free_memory, in_words
from foldless.io.spreadsheet import SPREADSHEETS
from foldless.io.table import BadTable, OverBudget, Reading, Roles, Table, check_finite
from foldless.operators import RowBlocks, stays_elsewhere
from foldless.runs.guards import cautions
from foldless.tuning.costs import Budget, exact_cost

# Peaks of fits beyond the table itself, measured from 62 x 2 000 to 500 x 30 000 and put into units of what
# they consist of: tiles of a fixed size; vectors of features, of each model that is averaged; covariances.
FIXED_BYTES = 95e6
VECTORS_OF_ONE_MODEL, VECTORS_OF_AN_AVERAGE = 30, 1550
SQUARES_OF_THE_SMALLER_SIDE = 18
# Of rows on disk: one that is computed on, one that is being read.
BLOCKS_IN_MEMORY = 2


@dataclass(frozen=True, eq=False)
class Findings:
    """What a look at a table found."""

    table: Table
    needed: float  # bytes at the peak of a fit, the table included
    plan: tuple[str, ...]  # what the default model would do, and why
    problems: tuple[str, ...]
    command: str  # what to type next


def check_table(
    table: Table,
    roles: Roles,
    reading: Reading,
    *,
    impute: str = "none",
    log_cpm: bool = False,
    budget: float | None = None,
) -> Findings:
    """Look at everything that a fit would stumble over; what makes it impossible is an error."""
    check_finite(table.path, table.X, table.feature_names, missing=True)
    needed = check_memory(table, budget)
    more = ["--log-cpm"] if log_cpm else []
    if missing_share(table.X):
        # What is missing does not stop a look.
        impute = "median" if impute == "none" else impute
    more += ["--impute", impute] if impute != "none" else []
    if table.target is None:
        command = fit_command(table.path, _guessed(table, roles), reading, more)
        if not table.candidates and reading.sample_sheet is None:
            sheet = str(table.path) if table.path.suffix.lower()[1:] in SPREADSHEETS else "FILE"
            command = shlex.join(["foldless", "check", str(table.path), "--sample-sheet", sheet])
        return Findings(table, needed, (), (), command)
    problems = look_before_fit(table)
    _, prepared = Preparation.fit(table, impute=impute, log_cpm=log_cpm)
    kept = prepared.covariate_positions or None
    plan = SparseClassifier(always_keep=kept).plan(prepared.X, prepared.labels(), groups=table.groups)
    command = fit_command(table.path, roles, reading, more)
    return Findings(prepared, needed, planned(plan), tuple(problems), command)


def _guessed(table: Table, roles: Roles) -> Roles:
    """A purpose for each column of words: the likeliest is the target, what has few levels a covariate."""
    target, *others = [*table.candidates, *([] if table.candidates else ["COLUMN"])]
    words = [name for name in others if name in table.unused]
    return replace(
        roles,
        target=target,
        covariates=(*roles.covariates, *words),
        ignore=(*roles.ignore, *(name for name in table.unused if name not in table.candidates)),
    )


def look_before_fit(table: Table, *, log_cpm: bool = False) -> list[str]:
    """What to tell before a fit; an error if it cannot come to anything."""
    if stays_elsewhere(table.X):
        return []
    check_not_constant(table)
    return cautions(table, log_cpm=log_cpm)


def check_not_constant(table: Table) -> None:
    """A table in which nothing varies cannot tell classes apart."""
    X = table.X
    varies = (
        (X.nnz and np.ptp(X.data) > 0) or 0 < X.nnz < np.prod(X.shape)
        if sp.issparse(X)
        else np.any(X[:1] != X)
    )
    if not varies:
        raise BadTable(
            table.path, "no feature varies: all samples have the same values.", "Is it the right file?"
        )


def fit_command(path: Path, roles: Roles, reading: Reading, more: Iterable[str] = ()) -> str:
    """The command that fits a table so read."""
    words = ["foldless", "fit", str(path)]
    if reading.sample_sheet is not None:
        words += ["--sample-sheet", str(reading.sample_sheet)]
    for option, value in (
        ("--id", reading.id),
        ("--sheet", reading.sheet),
        ("--delimiter", reading.delimiter),
        ("--decimal", reading.decimal),
        ("--encoding", reading.encoding),
        ("--layer", reading.layer),
        *((option, name) for name, option in roles.purposes.items()),
    ):
        words += [] if value is None else [option, value]
    given = {
        "--transpose": reading.transpose,
        "--no-transpose": reading.transpose is False,
        "--average": reading.average,
        "--tidy-labels": reading.tidy_labels,
    }
    words += [option for option, is_given in given.items() if is_given]
    return shlex.join([*words, *more])


def check_memory(table: Table, budget: float | None = None) -> float:
    """Bytes that a fit needs, if they may be used."""
    needed = forecast(table)
    allowed = default_budget() if budget is None else budget
    if needed > allowed:
        raise OverBudget(
            f"{table.path}: a fit needs up to {in_words(needed)}, and {in_words(allowed)} may be used "
            f"({in_words(free_memory())} are free). Keep fewer columns, or allow more with --max-memory."
        )
    return needed


def forecast(table: Table) -> float:
    """Bytes at the peak of a fit, the table included: an upper bound, since columns decide what is fitted."""
    n_samples, n_features = table.shape
    smaller = min(n_samples, n_features)
    stored = _stored(table.X)
    if exact_cost(n_samples, n_features) > Budget().exact:
        return float(stored) + FIXED_BYTES + 8.0 * VECTORS_OF_ONE_MODEL * n_features
    squares = 8.0 * SQUARES_OF_THE_SMALLER_SIDE * smaller**2
    return float(stored) + FIXED_BYTES + 8.0 * VECTORS_OF_AN_AVERAGE * n_features + squares


def _stored(X: Any) -> int:
    """Bytes of a table while it is fitted to."""
    if isinstance(X, RowBlocks):
        return BLOCKS_IN_MEMORY * X.block_bytes
    return int(X.data.nbytes + X.indices.nbytes if sp.issparse(X) else X.nbytes)
