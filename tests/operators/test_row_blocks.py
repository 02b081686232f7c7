"""Rows on disk: read once per pass, in order, ahead; the same answers as in memory; nothing left behind."""

from __future__ import annotations

import copy
import pickle
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import foldless
from foldless.datasets import make_class_means
from foldless.io.rows import ReadRows, RowSource, row_source
from foldless.io.table import BadTable
from foldless.operators import Dense, RowBlocks, Sparse, Standardized, open_rows
from foldless.operators.row_blocks import THREAD_NAME


class Watched(RowSource):
    """Rows of an array that note what was read, by which thread, and when the source was closed."""

    def __init__(self, A: Any, fails_at: int | None = None, seconds: float = 0.0) -> None:
        self.A, self.shape, self.dtype = A, A.shape, A.dtype
        self.fails_at, self.seconds = fails_at, seconds
        self.reads: list[slice] = []
        self.threads: set[int] = set()
        self.n_open = 0

    @contextmanager
    def opened(self) -> Iterator[ReadRows]:
        self.n_open += 1

        def read(rows: slice, space: Any) -> Any:
            self.reads.append(rows)
            self.threads.add(threading.get_ident())
            if len(self.reads) - 1 == self.fails_at:
                raise OSError(5, "the disk is gone")
            time.sleep(self.seconds)
            if sparse.issparse(self.A):
                return self.A[rows]
            block = self.in_space(rows, space)
            block[:] = self.A[rows]
            return block

        try:
            yield read
        finally:
            self.n_open -= 1

    def identity(self) -> str:
        return "watched"


def readers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith(THREAD_NAME)]


def test_a_pass_reads_every_row_once_in_order_by_another_thread() -> None:
    A = np.random.default_rng(0).normal(size=(50, 6))
    source = Watched(A)
    operator = RowBlocks(source, block_bytes=7 * 6 * 8)
    w, slopes = np.ones(6), np.linspace(-1, 1, 50)
    passes = {
        "sweep": lambda: operator.sweep(w, w, lambda rows, z, v: (slopes[rows], slopes[rows])),
        "scores": lambda: operator.scores(w),
        "adjoint": lambda: operator.adjoint(slopes),
        "score_variances": lambda: operator.score_variances(w),
        "columns": lambda: operator.columns([1, 2]),
        "squared_norms": lambda: operator.squared_norms(np.ones(50)),
        "nonzero_weight": lambda: operator.nonzero_weight(np.ones(50)),
        "some_rows": lambda: operator.some_rows(np.arange(0, 50, 7)),
    }
    for call in passes.values():
        source.reads.clear()
        call()
        assert [(r.start, r.stop) for r in source.reads] == [(i, min(i + 7, 50)) for i in range(0, 50, 7)]
        assert threading.get_ident() not in source.threads
        assert source.n_open == 0
        assert readers() == []
    # Blocks without any of the rows stay where they are.
    source.reads.clear()
    operator.some_rows(np.array([1, 3, 49]))
    assert source.reads == [slice(0, 7), slice(49, 50)]
    # One row is looked at first, and nothing at all where no column is asked for.
    source.reads.clear()
    operator.column_moments(np.ones(50))
    assert len(source.reads) == 9
    source.reads.clear()
    assert operator.columns([]).shape == (50, 0)
    assert source.reads == []


def test_the_next_block_is_read_while_the_present_one_is_used() -> None:
    source = Watched(np.ones((4, 3)))
    operator = RowBlocks(source, block_bytes=3 * 8)
    seen: list[int] = []

    def step(rows: slice, scores: Any, score_var: Any) -> Any:
        # However long it takes: a thread that does not read ahead never gets there.
        patience = time.monotonic() + 30
        while len(source.reads) < min(rows.start + 2, 4) and time.monotonic() < patience:
            time.sleep(0.001)
        seen.append(len(source.reads))
        return scores, None

    operator.sweep(np.ones(3), None, step)
    assert seen == [2, 3, 4, 4]


def test_answers_are_the_same_bits_whatever_the_timing() -> None:
    A = np.random.default_rng(1).normal(size=(60, 30))
    w, slopes = np.linspace(-1, 1, 30), np.linspace(-1, 1, 60)

    def answers(reading: float, computing: float) -> list[np.ndarray]:
        def step(rows: slice, scores: Any, score_var: Any) -> Any:
            time.sleep(computing)
            return slopes[rows] * scores, score_var

        operator = RowBlocks(Watched(A, seconds=reading), block_bytes=5 * 30 * 8)
        return [*operator.sweep(w, w**2, step), *operator.column_moments(slopes**2), operator.adjoint(slopes)]

    slow_disk, slow_sums = answers(0.003, 0.0), answers(0.0, 0.003)
    for a, b in zip(slow_disk, slow_sums, strict=True):
        assert_array_equal(a, b)


@pytest.mark.parametrize("fails_at", [0, 3, 9])
def test_an_error_of_the_reading_thread_is_raised_to_the_caller(fails_at: int) -> None:
    source = Watched(np.ones((10, 3)), fails_at=fails_at)
    operator = RowBlocks(source, block_bytes=3 * 8)
    with pytest.raises(OSError, match="the disk is gone"):
        operator.scores(np.ones(3))
    assert source.n_open == 0
    assert readers() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_no_thread_is_left_behind_when_a_pass_ends_in_the_middle(error: type[BaseException]) -> None:
    source = Watched(np.ones((10, 3)), seconds=0.01)
    operator = RowBlocks(source, block_bytes=3 * 8)

    def step(rows: slice, scores: Any, score_var: Any) -> Any:
        if rows.start == 4:
            raise error
        return scores, None

    # The traceback, which would keep the pass alive if anything could, is at hand while we look.
    with pytest.raises(error) as caught:
        operator.sweep(np.ones(3), None, step)
    assert caught.tb is not None
    assert source.n_open == 0
    assert readers() == []
    assert len(source.reads) <= 6
    assert_allclose(operator.scores(np.ones(3)), 3.0)  # and it can be used again


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_moments_under_an_offset_are_those_in_memory(dtype: type, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    # Steps that are exact beside the offset, and a drift over rows, so that blocks differ in their means.
    step, offset = (2.0**-8, 1e8) if dtype is np.float64 else (2.0**-4, 2.0**18)
    deviations = step * np.round((rng.normal(size=(300, 7)) + np.linspace(-3, 3, 300)[:, None]) / step)
    A = (deviations + offset).astype(dtype)
    assert_array_equal(A.astype(np.float64) - offset, deviations)
    np.save(tmp_path / "A.npy", A)
    weight = rng.integers(0, 4, 300).astype(float)
    operator = open_rows(tmp_path / "A.npy", block_bytes=11 * 7 * A.itemsize)
    mean, variance = operator.column_moments(weight)
    repeated = np.repeat(deviations, weight.astype(int), axis=0)
    assert_allclose(mean - offset, repeated.mean(axis=0), rtol=0, atol=2e-16 * offset)
    assert_allclose(variance, repeated.var(axis=0), rtol=1e-13)
    in_memory = Dense(A).column_moments(weight)
    assert_allclose(mean, in_memory[0], rtol=3e-16)
    assert_allclose(variance, in_memory[1], rtol=1e-13)


def test_blocks_without_weight_and_values_that_are_not_finite(tmp_path: Path) -> None:
    A = np.random.default_rng(3).normal(size=(20, 3))
    weight = np.where(np.arange(20) < 8, 0.0, 1.0)
    operator = RowBlocks(row_source(A), block_bytes=4 * 3 * 8)
    mean, variance = operator.column_moments(weight)
    assert_allclose(mean, A[8:].mean(axis=0), atol=1e-15)
    assert_allclose(variance, A[8:].var(axis=0), rtol=1e-13)
    for bad in (np.nan, np.inf):
        spoiled = A.copy()
        spoiled[13, 1] = bad
        operator = RowBlocks(row_source(spoiled), block_bytes=4 * 3 * 8)
        for anywhere in (
            operator,
            Dense(spoiled),
            Dense(np.asfortranarray(spoiled)),
            Sparse(sparse.csr_array(spoiled)),
        ):
            with pytest.raises(ValueError, match="column 1 has no finite mean"):
                Standardized.fit(anywhere)
        # New samples have no moments to look at: their scores tell. A product of zero and infinity is invalid
        # on every processor; other products are so with some BLAS kernels.
        for weights in (np.ones(3), np.ones((3, 2)), np.array([1.0, 0.0, 1.0])):
            with pytest.raises(ValueError, match=r"row 13 of X.*\(1 such rows\)"):
                operator.scores(weights)


def test_memory_is_two_blocks_and_vectors(tmp_path: Path) -> None:
    n_rows, n_columns, block_bytes = 2000, 5000, 1 << 20
    X = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float32, (n_rows, n_columns))
    X[:] = np.random.default_rng(4).normal(size=(1, n_columns))
    del X
    operator = open_rows(tmp_path / "X.npy", block_bytes=block_bytes)
    w = np.ones(n_columns)
    tracemalloc.start()
    operator.sweep(w, w, lambda rows, z, v: (z, v), center=w)
    operator.scores(w)
    operator.column_moments(np.ones(n_rows))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # A block in float64, as moments want it, and its squares; X itself is 40 MB.
    assert peak < 2 * block_bytes + 4 * block_bytes + 40 * 8 * n_columns


def test_copies_and_pickles_know_their_file_and_nothing_of_its_content(tmp_path: Path) -> None:
    A = np.random.default_rng(5).normal(size=(100, 50))
    np.save(tmp_path / "A.npy", A)
    operator = open_rows(tmp_path / "A.npy", block_bytes=999)
    w = np.ones(50)
    for other in (copy.deepcopy(operator), pickle.loads(pickle.dumps(operator))):
        assert_array_equal(other.scores(w), operator.scores(w))
    assert len(pickle.dumps(operator)) < 5000


@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_a_small_matrix_of_which_tiles_are_asked_for_is_read_once(stored: Any) -> None:
    A = np.random.default_rng(6).normal(size=(40, 12))
    source = Watched(stored(A))
    operator = RowBlocks(source, block_bytes=10 * 12 * 8)
    w, slopes = np.ones(12), np.linspace(-1, 1, 40)

    def answers() -> list[np.ndarray]:
        sums = operator.sweep(w, w, lambda rows, z, v: (slopes[rows] * z, v), center=w)
        return [*sums, operator.scores(w), operator.adjoint(slopes), *operator.column_moments(slopes**2)]

    streamed = answers()
    source.reads.clear()
    for _ in range(3):
        assert_allclose(np.hstack([tile for _, tile in operator.dense_columns(700)]), A, rtol=1e-15)
    assert len(source.reads) == 4
    for a, b in zip(streamed, answers(), strict=True):
        assert_array_equal(a, b)
    assert len(source.reads) == 4
    assert len(pickle.dumps(operator)) < 2 * A.nbytes  # the source has the matrix, the operator no second one
    # More than four blocks stay where they are.
    operator = RowBlocks(source, block_bytes=9 * 12 * 8)
    source.reads.clear()
    for _ in range(2):
        list(operator.dense_columns(700))
    assert len(source.reads) > 10


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_classifier_fitted_from_disk_is_the_one_from_memory(dtype: type, tmp_path: Path) -> None:
    data = make_class_means(n_samples=80, n_features=600, n_active=5, random_state=1)
    X = data.X.astype(dtype)
    np.save(tmp_path / "X.npy", X)
    rows = foldless.open_rows(tmp_path / "X.npy", block_bytes=10_000)
    for estimator in (foldless.SparseClassifier, foldless.GAMPClassifier):
        here, there = estimator().fit(X, data.y), estimator().fit(rows, data.y)
        assert there.coef_.dtype == dtype
        tolerance = 1e-9 if dtype is np.float64 else 2e-3
        scale = np.abs(here.coef_).max()
        assert_allclose(there.coef_, here.coef_, rtol=0, atol=tolerance * scale)
        assert_allclose(there.predict_proba(rows), here.predict_proba(X), rtol=0, atol=tolerance)
        assert_array_equal(there.get_support(), here.get_support())


def test_bad_files_are_refused_before_any_work(tmp_path: Path) -> None:
    def saved(name: str, A: np.ndarray) -> Path:
        np.save(tmp_path / name, A)
        return tmp_path / name

    with pytest.raises(FileNotFoundError):
        open_rows(tmp_path / "none.npy")
    with pytest.raises(BadTable, match=r"Fortran.*ascontiguousarray"):
        open_rows(saved("F.npy", np.asfortranarray(np.ones((3, 4)))))
    assert open_rows(saved("column.npy", np.asfortranarray(np.ones((3, 1))))).shape == (3, 1)
    with pytest.raises(BadTable, match=r"shape \(3,\)"):
        open_rows(saved("flat.npy", np.ones(3)))
    with pytest.raises(BadTable, match="not numbers"):
        open_rows(saved("text.npy", np.array([["a"]])))
    whole = saved("cut.npy", np.ones((30, 4)))
    whole.write_bytes(whole.read_bytes()[:-8])
    with pytest.raises(BadTable, match="incomplete"):
        open_rows(whole)
    (tmp_path / "garbage.npy").write_bytes(b"no array")
    with pytest.raises(BadTable, match=r"no \.npy file"):
        open_rows(tmp_path / "garbage.npy")
    (tmp_path / "table.xlsx").write_bytes(b"")
    with pytest.raises(BadTable, match=r"Known are \.npy, \.parquet, \.zarr, \.h5ad"):
        open_rows(tmp_path / "table.xlsx")
    with pytest.raises(BadTable, match="nothing beside it"):
        open_rows(saved("named.npy", np.ones((3, 4))), target="class")
    with pytest.raises(TypeError, match="path or an array"):
        open_rows(7)
    with pytest.raises(ValueError, match="block_bytes"):
        open_rows(np.ones((3, 4)), block_bytes=0)


def test_a_file_that_shrinks_under_way_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "A.npy", np.ones((30, 4)))
    operator = open_rows(tmp_path / "A.npy", block_bytes=64)
    with open(tmp_path / "A.npy", "r+b") as stream:
        stream.truncate(300)
    with pytest.raises(BadTable, match="ended early"):
        operator.scores(np.ones(4))
