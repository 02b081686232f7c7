"""How a data matrix is visited: nothing but an operator depends on how X is stored."""

from __future__ import annotations

from foldless.operators.base import Operator, RowStep, Storage, Sweep
from foldless.operators.dask_cluster import ClusterLost, RowsLost
from foldless.operators.dense import Dense
from foldless.operators.journaled import Journaled
from foldless.operators.mean_removed import MeanRemoved
from foldless.operators.row_blocks import RowBlocks, open_rows, operator_from, stays_elsewhere
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
