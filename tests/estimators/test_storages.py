"""A fit is the same wherever its table is kept: in memory, on disk, with Dask; dense or sparse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from foldless import SparseClassifier, open_rows
from reference.dask_matrices import IN_TURN, dask_operator


def words() -> tuple[np.ndarray, np.ndarray]:
    """Counts, mostly zeros; of 700 words, twenty are used more by one class than by the other."""
    rng = np.random.default_rng(0)
    y = np.arange(160) % 2
    rate = np.tile(0.03 * np.exp(0.5 * rng.normal(size=700)), (160, 1))
    rate[:, :20] *= np.where(y[:, np.newaxis] == 0, 3.0, 0.3)
    return rng.poisson(rate).astype(np.float64), y


def genes() -> tuple[np.ndarray, np.ndarray]:
    """Three common factors, and six genes that differ between classes."""
    rng = np.random.default_rng(1)
    y = np.arange(50) % 2
    X = rng.normal(size=(50, 500)) + rng.normal(size=(50, 3)) @ rng.normal(size=(3, 500))
    X[:, :6] += 1.5 * y[:, np.newaxis]
    return X, y


def four_classes() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    y = np.arange(80) % 4
    X = rng.normal(size=(80, 300))
    X[:, :8] += 2 * rng.normal(size=(4, 8))[y]
    return X, y


def storages(X: np.ndarray, path: Path) -> Iterator[tuple[str, Any]]:
    csr, block_bytes = sparse.csr_array(X), 15 * X.shape[1] * 8
    yield "CSR", csr
    yield "CSC", sparse.csc_array(X)
    np.save(path / "X.npy", X)
    yield "npy", open_rows(path / "X.npy", block_bytes=block_bytes)
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(csr).write_h5ad(path / "X.h5ad")
    yield "h5ad", open_rows(path / "X.h5ad", block_bytes=block_bytes)
    yield "Dask", dask_operator(X, 17, IN_TURN)
    yield "CSR by Dask", dask_operator(csr, 17, IN_TURN)


@pytest.mark.parametrize("table", [words, genes, four_classes], ids=lambda table: table.__name__)
def test_every_storage_takes_the_same_path_to_the_same_coefficients(table: Any, tmp_path: Path) -> None:
    X, y = table()
    here = SparseClassifier().fit(X, y)
    for _, stored in storages(X, tmp_path):
        there = SparseClassifier().fit(stored, y)
        assert there.solver_ == here.solver_
        assert there.flags_ == here.flags_
        assert [name for name, _ in there.models_] == [name for name, _ in here.models_]
        assert_allclose([w for _, w in there.models_], [w for _, w in here.models_], rtol=1e-8)
        scale = np.abs(here.coef_).max()
        assert_allclose(there.coef_, here.coef_, rtol=1e-8, atol=1e-10 * scale)
        assert_allclose(there.intercept_, here.intercept_, rtol=1e-8, atol=1e-10 * scale)
        assert_allclose(there.predict_proba(stored), here.predict_proba(X), rtol=1e-8, atol=1e-12)
