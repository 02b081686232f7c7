"""How a data matrix is visited: nothing but an operator knows how X is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

from foldless.operators.base import Operator, RowStep, Storage, Sweep
from foldless.operators.dask_cluster import ClusterLost, RowsLost
from foldless.operators.dense import Dense
from foldless.operators.journaled import Journaled
from foldless.operators.mean_removed import MeanRemoved
from foldless.operators.row_blocks import RowBlocks, open_rows
from foldless.operators.sparse import Sparse
from foldless.operators.standardized import Standardized, WithIntercept

__all__ = [
    "ClusterLost",
    "Dense",
    "Journaled",
    "MeanRemoved",
    "Operator",
    "RowBlocks",
    "RowStep",
    "RowsLost",
    "Sparse",
    "Standardized",
    "Storage",
    "Sweep",
    "WithIntercept",
    "open_rows",
    "operator_from",
    "stays_elsewhere",
]


def operator_from(X: Any) -> Storage:
    """The operator for an array, a SciPy sparse matrix (formats but CSR and CSC become CSR), or Dask's."""
    if isinstance(X, Storage):
        return X
    if _is_dask(X):
        from foldless.operators.dask_rows import dask_rows

        return dask_rows(X)
    if issparse(X):
        return Sparse(X if X.format in ("csr", "csc") else X.tocsr())
    if isinstance(X, np.ndarray):
        return Dense(X)
    raise TypeError(
        f"X is a {type(X).__name__}; operator_from needs a NumPy array or a scipy.sparse matrix. "
        "Convert it first, for example with numpy.asarray"
    )


def stays_elsewhere(X: Any) -> bool:
    """Whether X is data that are not in memory, and so cannot be looked at before the first sweep."""
    return isinstance(X, Storage) or _is_dask(X)


def _is_dask(X: Any) -> bool:
    """Whether X is a Dask collection; by the name of its module, so that nobody imports Dask in vain."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr")
