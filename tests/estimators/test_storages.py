"""A fit is the same wherever its table is kept: in memory, on disk, with Dask; dense or sparse."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from foldless import SparseClassifier, open_rows
from foldless.tuning.costs import Budget
from foldless.tuning.planned import Plan
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


def same_plan(there: Plan, here: Plan) -> bool:
    """But for the rounding of what the survey measured."""
    assert there.facts is not None
    assert here.facts is not None
    # Where X is stored is a fact of its own, by which the test of the p value is chosen.
    facts = replace(there.facts, in_memory=here.facts.in_memory)
    assert_allclose(astuple(facts), astuple(here.facts), rtol=1e-8)
    return replace(there, facts=None, null_test=here.null_test) == replace(here, facts=None)


@pytest.mark.parametrize("table", [words, genes, four_classes], ids=lambda table: table.__name__)
def test_every_storage_takes_the_same_path_to_the_same_coefficients(table: Any, tmp_path: Path) -> None:
    X, y = table()
    here = SparseClassifier().fit(X, y)
    for _, stored in storages(X, tmp_path):
        there = SparseClassifier().fit(stored, y)
        assert same_plan(there.plan_, here.plan_)
        assert there.solver_ == here.solver_
        assert there.flags_ == here.flags_
        assert [share.name for share in there.models_] == [share.name for share in here.models_]
        shares = [[share.weight for share in model.models_] for model in (there, here)]
        assert_allclose(*shares, rtol=1e-8, atol=1e-12)
        scale = np.abs(here.coef_).max()
        assert_allclose(there.coef_, here.coef_, rtol=1e-8, atol=1e-10 * scale)
        assert_allclose(there.intercept_, here.intercept_, rtol=1e-8, atol=1e-10 * scale)
        assert_allclose(there.predict_proba(stored), here.predict_proba(X), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("table", [words, genes, four_classes], ids=lambda table: table.__name__)
def test_some_rows_of_every_storage_are_the_same_rows(table: Any, tmp_path: Path) -> None:
    """Tables too large for exact covariances, and with many rows, by decree."""
    X, y = table()
    budget = Budget(exact=0.0, exact_over_background=0.0, search_rows=X.shape[0] // 2, search_share=0.5)

    def fitted(stored: Any) -> SparseClassifier:
        model = SparseClassifier()
        model._budget = budget
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit(stored, y)

    here = fitted(X)
    assert here.plan_.sparse.search_rows == X.shape[0] // 2
    assert here.record_.of("sparse", "sample")
    for name, stored in storages(X, tmp_path):
        if name in ("CSC", "h5ad"):  # as the test above, and nothing about rows
            continue
        there = fitted(stored)
        assert same_plan(there.plan_, here.plan_), name
        assert [(run.solver, run.purpose, run.used) for run in there.record_.runs] == [
            (run.solver, run.purpose, run.used) for run in here.record_.runs
        ]
        scale = np.abs(here.coef_).max()
        assert_allclose(there.coef_, here.coef_, rtol=1e-8, atol=1e-10 * scale, err_msg=name)
