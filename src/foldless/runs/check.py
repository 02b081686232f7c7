"""A dry run: what a fit would see in a table, what it would need, and what may be wrong."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from foldless.estimators import SparseClassifier
from foldless.estimators._account import planned
from foldless.io.budget import default_budget, free_memory, in_words
from foldless.io.names import printable
from foldless.io.table import OverBudget, Table, check_finite, listed
from foldless.operators import RowBlocks
from foldless.tuning.plan import Budget, exact_cost

FEW_SAMPLES_OF_A_CLASS = 5
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


def check_table(table: Table, *, budget: float | None = None) -> Findings:
    """Look at everything that a fit would stumble over; what makes it impossible is an error."""
    check_finite(table.path, table.X, table.feature_names)
    table.labels()
    needed = check_memory(table, budget)
    kept = table.covariate_positions or None
    plan = SparseClassifier(always_keep=kept).plan(table.X, table.labels(), groups=table.groups)
    return Findings(table, needed, planned(plan), tuple(_problems(table)))


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


def _problems(table: Table) -> list[str]:
    found = []
    rare = [label for label, count in table.class_counts().items() if count < FEW_SAMPLES_OF_A_CLASS]
    if rare:
        found.append(f"Classes with fewer than {FEW_SAMPLES_OF_A_CLASS} samples: {listed(rare)}.")
    constant = _constant(table)
    if constant.size:
        names = [table.feature_names[j] for j in constant]
        found.append(f"{constant.size} features never vary and will not be used: {listed(names)}.")
    twins = _equal_columns(table)
    if twins:
        first, second = twins[0]
        found.append(
            f"{len(twins)} features repeat another to the last digit, such as "
            f"{printable(table.feature_names[second])!r} and {printable(table.feature_names[first])!r}: what "
            "is found is shared among them."
        )
    if table.groups is None:
        repeated = _equal_rows(table)
        if repeated:
            found.append(
                f"{repeated} samples repeat another to the last digit. If they are measurements of the same "
                "thing, name what they have in common with --groups, or errors look too small."
            )
    elif np.unique(table.groups).size > 0.9 * table.groups.size:
        found.append("Nearly every sample has a group of its own: is --groups the right column?")
    return found


def _constant(table: Table) -> NDArray[np.intp]:
    X = table.X
    if sp.issparse(X):
        return np.flatnonzero(X.max(axis=0).toarray().ravel() == X.min(axis=0).toarray().ravel())
    return np.flatnonzero(np.all(X[:1] == X, axis=0))


def _equal_columns(table: Table) -> list[tuple[int, int]]:
    """Pairs of a column and a later one with the same content; constant ones are told of already."""
    columns = table.X.tocsc() if sp.issparse(table.X) else table.X.T
    constant = set(_constant(table).tolist())
    seen: dict[bytes, int] = {}
    pairs = []
    for j in range(table.shape[1]):
        if j not in constant and (first := seen.setdefault(_digest(columns, j), j)) != j:
            pairs.append((first, j))
    return pairs


def _equal_rows(table: Table) -> int:
    return table.shape[0] - len({_digest(table.X, i) for i in range(table.shape[0])})


def _digest(lines: Any, i: int) -> bytes:
    """A row of an array, or a row or column of a sparse matrix, in sixteen bytes."""
    if sp.issparse(lines):
        part = slice(lines.indptr[i], lines.indptr[i + 1])
        content = lines.indices[part].tobytes() + lines.data[part].tobytes()
    else:
        content = np.ascontiguousarray(lines[i]).tobytes()
    return hashlib.blake2b(content, digest_size=16).digest()
