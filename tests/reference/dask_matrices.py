"""Matrices as Dask arrays, and a cluster inside the process to put them on."""

from __future__ import annotations

import atexit
from functools import cache
from typing import Any

import pytest
from scipy import sparse

from foldless.operators import Storage

ON_WORKERS, IN_TURN = "on Dask workers", "by Dask in turn"


@cache
def threaded_client() -> Any:
    """A client of two workers that are threads: the messages of a real cluster, without its start-up."""
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", protocol="inproc"
    )
    client = distributed.Client(cluster, set_as_default=False)

    def close() -> None:
        client.close()
        cluster.close()

    atexit.register(close)
    return client


def dask_array(X: Any, rows: int) -> Any:
    """A Dask array whose chunks are NumPy arrays or sparse matrices of so many rows, in the layout of X."""
    da = pytest.importorskip("dask.array")
    delayed = pytest.importorskip("dask.delayed").delayed
    if not sparse.issparse(X):
        return da.from_array(X, chunks=(rows, -1))
    parts = [X[start : start + rows] for start in range(0, X.shape[0], rows)]
    return da.concatenate(
        [da.from_delayed(delayed(part), shape=part.shape, meta=part[:0]) for part in parts], axis=0
    )


def dask_operator(X: Any, rows: int, place: str) -> Storage:
    from foldless.operators.dask_rows import DaskRows, DaskRowsInTurn, parts_of

    parts = parts_of(dask_array(X, rows))
    return DaskRows(parts, threaded_client()) if place == ON_WORKERS else DaskRowsInTurn(parts)
