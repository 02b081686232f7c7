"""Every operator, in every storage, against the explicit matrix."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from foldless.io.rows import ReadRows, RowSource, row_source
from foldless.operators import (
    Dense,
    Journaled,
    MeanRemoved,
    Operator,
    RowBlocks,
    Sparse,
    Standardized,
    Storage,
    WithIntercept,
    operator_from,
)
from reference.dask_matrices import IN_TURN, ON_WORKERS, dask_operator

N_ROWS, N_COLUMNS = 23, 17
# Bytes of about three rows in float64, so that every matrix here takes several blocks.
SMALL_BLOCK = 3 * N_COLUMNS * 8
EMPTY_ROW, EMPTY_COLUMN, COMPLETE_COLUMN = 5, 3, 7
# Of the largest entry of the answer, which is a sum of about twenty products.
TOLERANCE = {np.dtype(np.float64): 4e-14, np.dtype(np.float32): 1e-5}


def matrix(seed: int = 0) -> np.ndarray:
    """Mostly zeros, with an empty row but for one complete column that has an offset, and an empty column."""
    rng = np.random.default_rng(seed)
    A = rng.normal(0.5, 1.5, (N_ROWS, N_COLUMNS)) * (rng.random((N_ROWS, N_COLUMNS)) < 0.4)
    A[EMPTY_ROW] = 0
    A[:, EMPTY_COLUMN] = 0
    A[:, COMPLETE_COLUMN] = 3 + rng.normal(size=N_ROWS)
    return A


def without_complete_column(A: np.ndarray) -> np.ndarray:
    A = A.copy()
    A[:10, COMPLETE_COLUMN] = 0
    return A


def read_only(A: np.ndarray) -> np.ndarray:
    A = A.copy()
    A.flags.writeable = False
    return A


def strided(A: np.ndarray, rows: int, columns: int) -> np.ndarray:
    big = np.full((A.shape[0] * abs(rows), A.shape[1] * abs(columns)), 99.0)
    view = big[::rows, ::columns]
    view[:] = A
    return view


def misaligned(A: np.ndarray) -> np.ndarray:
    raw = np.zeros(A.nbytes + 1, dtype=np.uint8)[1:]
    view = raw.view(np.float64).reshape(A.shape)
    view[:] = A
    return view


def memory_mapped(A: np.ndarray, path: Path) -> np.ndarray:
    np.save(path / "matrix.npy", A)
    return np.load(path / "matrix.npy", mmap_mode="r")


def with_duplicates(A: np.ndarray, kind: Any) -> Any:
    """Each stored entry split in two, which a careless square would get wrong."""
    coo = sparse.coo_array(A)
    half = kind((2, 2)).format
    major, minor = (coo.row, coo.col) if half == "csr" else (coo.col, coo.row)
    order = np.argsort(major, kind="stable")
    starts = np.searchsorted(major[order], np.arange(A.shape[0 if half == "csr" else 1] + 1))
    data = np.repeat(coo.data[order], 2) * np.tile([0.25, 0.75], coo.nnz)
    X = kind((data, np.repeat(minor[order], 2), 2 * starts), shape=A.shape)
    assert not X.has_canonical_format
    return X


def unsorted(A: np.ndarray, kind: Any) -> Any:
    X = kind(A)
    for start, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        X.indices[start:stop] = X.indices[start:stop][::-1].copy()
        X.data[start:stop] = X.data[start:stop][::-1].copy()
    return kind((X.data, X.indices, X.indptr), shape=A.shape)


def with_explicit_zeros(A: np.ndarray, kind: Any) -> Any:
    X = kind(A)
    X.data[::3] = 0
    assert X.nnz == X.data.size
    return X


def sparse_with_index(A: np.ndarray, kind: Any, dtype: str, index: str) -> Any:
    X = kind(A.astype(dtype))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    return X


STORAGES: dict[str, Callable[[np.ndarray, Path], Any]] = {
    "C float64": lambda A, path: A,
    "F float64": lambda A, path: np.asfortranarray(A),
    "C float32": lambda A, path: A.astype(np.float32),
    "F float32": lambda A, path: np.asfortranarray(A, dtype=np.float32),
    "float16": lambda A, path: A.astype(np.float16),
    "int16": lambda A, path: np.round(3 * A).astype(np.int16),
    "uint8 F": lambda A, path: np.asfortranarray(np.round(3 * np.abs(A)).astype(np.uint8)),
    "bool": lambda A, path: A > 0.5,
    "big-endian": lambda A, path: A.astype(">f8"),
    "read-only": lambda A, path: read_only(A),
    "memory map": memory_mapped,
    "memory map F": lambda A, path: memory_mapped(np.asfortranarray(A), path),
    "every 2nd row": lambda A, path: strided(A, 2, 1),
    "every 2nd column": lambda A, path: strided(A, 1, 2),
    "every 2nd column F": lambda A, path: strided(A.T, 2, 2).T,
    "reversed": lambda A, path: strided(A, -1, -1),
    "misaligned": lambda A, path: misaligned(A),
    **{
        f"{kind.__name__} {dtype} {index}": lambda A, path, kind=kind, dtype=dtype, index=index: (
            sparse_with_index(A, kind, dtype, index)
        )
        for kind in (sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.csc_matrix)
        for dtype in ("float64", "float32")
        for index in ("int32", "int64")
    },
    **{
        f"{kind.__name__} {make.__name__}": lambda A, path, kind=kind, make=make: make(A, kind)
        for kind in (sparse.csr_array, sparse.csc_matrix)
        for make in (with_duplicates, unsorted, with_explicit_zeros)
    },
    "csr int32 entries": lambda A, path: sparse.csr_array(np.round(3 * A).astype(np.int32)),
    "csc int32 entries": lambda A, path: sparse.csc_array(np.round(3 * A).astype(np.int32)),
    "csr no complete column": lambda A, path: sparse.csr_array(without_complete_column(A)),
    "csc no complete column": lambda A, path: sparse.csc_array(without_complete_column(A)),
    "csr no complete column float32": lambda A, path: sparse.csr_array(
        without_complete_column(A).astype(np.float32)
    ),
}


class SparseRows(RowSource):
    """Blocks of a CSR matrix, which files have in formats of their own."""

    def __init__(self, X: Any) -> None:
        self.X, self.shape, self.dtype = sparse.csr_array(X), X.shape, X.dtype

    @contextmanager
    def opened(self) -> Iterator[ReadRows]:
        yield lambda rows, space: self.X[rows]

    def identity(self) -> str:
        return "made for tests"


def saved(A: np.ndarray, path: Path) -> RowSource:
    np.save(path / "rows.npy", A)
    return row_source(path / "rows.npy")


# Matrices that are read a block of rows at a time.
SOURCES: dict[str, Callable[[np.ndarray, Path], RowSource]] = {
    "rows of npy float64": saved,
    "rows of npy float32": lambda A, path: saved(A.astype(np.float32), path),
    "rows of npy float16": lambda A, path: saved(A.astype(np.float16), path),
    "rows of npy int16": lambda A, path: saved(np.round(3 * A).astype(np.int16), path),
    "rows of npy big-endian": lambda A, path: saved(A.astype(">f4"), path),
    "rows of memory map F": lambda A, path: row_source(memory_mapped(np.asfortranarray(A), path)),
    "rows of csr": lambda A, path: SparseRows(sparse.csr_array(A)),
    "rows of csr float32": lambda A, path: SparseRows(sparse.csr_array(A.astype(np.float32))),
}


def as_array(X: Any) -> np.ndarray:
    if isinstance(X, RowSource):
        return X.tile(slice(0, X.shape[0]), slice(0, X.shape[1]))
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


def stored(X: Any, block_bytes: int | str | None) -> Operator:
    if isinstance(block_bytes, str):
        return dask_operator(X, 9, block_bytes)
    kind: Any = Sparse if sparse.issparse(X) else RowBlocks if isinstance(X, RowSource) else Dense
    return kind(X) if block_bytes is None else kind(X, block_bytes=block_bytes)


def standardized_array(A: np.ndarray) -> np.ndarray:
    sd = A.std(axis=0)
    return (A - A.mean(axis=0)) / np.where(sd > 1e-12 * np.abs(A).max(), sd, 1.0)


def intercept_array(A: np.ndarray) -> np.ndarray:
    return np.column_stack([A, np.ones(len(A))])


def mean_removed_array(A: np.ndarray) -> np.ndarray:
    """The matrix of `MeanRemoved`, block by block from its definition."""
    gamma = A.mean(axis=1)
    c = (A - gamma[:, None]).mean(axis=0)
    rms = np.sqrt(np.mean((A - gamma[:, None] - c) ** 2))
    one_row, one_column = np.ones((1, A.shape[1])), np.ones((A.shape[0], 1))

    def factor(means: np.ndarray) -> float:
        size = np.sqrt(np.mean(means**2))
        if size <= 1e-4 * rms:
            means[:] = 0
            return 0.0
        return rms / size

    # Means that are not worth removing have zeros for a row and a column.
    b12, b31 = factor(gamma), factor(c)
    b21, b13 = rms * (b12 > 0), rms * (b31 > 0)
    demeaned = A - gamma[:, None] - c
    return np.block(
        [
            [demeaned, b12 * gamma[:, None], b13 * one_column],
            [b21 * one_row, np.array([[-b21 * b12, 0]])],
            [b31 * c[None, :], np.array([[0, -b31 * b13]])],
        ]
    )


class MemoryJournal:
    """Records in a list, as `Journal` has them in a file."""

    was_interrupted, n_read, path = False, 0, Path("memory")

    def __init__(self, records: Iterable[bytes] = ()) -> None:
        self.waiting, self.records = list(records), list(records)

    def read(self) -> bytes | None:
        self.n_read += 1
        return self.waiting.pop(0) if self.waiting else None

    def append(self, parts: Iterable[bytes | memoryview]) -> None:
        self.records.append(b"".join(parts))


WRAPPERS: dict[str, tuple[Callable[[Operator], Operator], Callable[[np.ndarray], np.ndarray]]] = {
    "plain": (lambda op: op, lambda A: A),
    "standardized": (Standardized.fit, standardized_array),
    "intercept": (WithIntercept, intercept_array),
    "mean removed": (MeanRemoved, mean_removed_array),
    "intercept of standardized": (
        lambda op: WithIntercept(Standardized.fit(op)),
        lambda A: intercept_array(standardized_array(A)),
    ),
    "journaled": (lambda op: Journaled(op, MemoryJournal()), lambda A: A),
    "standardized twice": (
        lambda op: Standardized(
            Standardized.fit(op), np.linspace(-1, 1, N_COLUMNS), np.linspace(0.5, 2, N_COLUMNS)
        ),
        lambda A: (standardized_array(A) - np.linspace(-1, 1, N_COLUMNS)) / np.linspace(0.5, 2, N_COLUMNS),
    ),
    "intercept of mean removed of standardized": (
        lambda op: WithIntercept(MeanRemoved(Standardized.fit(op))),
        lambda A: intercept_array(mean_removed_array(standardized_array(A))),
    ),
}


def assert_close(actual: Any, expected: np.ndarray, operator: Operator) -> None:
    assert actual.dtype == np.float64
    assert actual.shape == expected.shape
    atol = TOLERANCE[operator.dtype] * max(np.abs(expected).max(initial=0.0), 1e-300)
    assert_allclose(actual, expected, rtol=0, atol=atol)


@pytest.fixture(params=[None, SMALL_BLOCK, 1], ids=["one block", "several blocks", "smallest blocks"])
def block_bytes(request: pytest.FixtureRequest) -> int | None:
    return request.param


@pytest.fixture(params=STORAGES)
def X(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return STORAGES[request.param](matrix(), tmp_path)


# Every storage plain and under the deepest nest of wrappers; every wrapper on one storage of each kind.
NEST = "intercept of mean removed of standardized"
TYPICAL = [
    "C float64",
    "F float32",
    "csr_array float64 int32",
    "csc_matrix float64 int64",
    "rows of npy float64",
    "rows of csr",
]
PAIRS = [
    *((storage, wrapper, SMALL_BLOCK) for storage in (*STORAGES, *SOURCES) for wrapper in ("plain", NEST)),
    *((storage, wrapper, SMALL_BLOCK) for storage in TYPICAL for wrapper in WRAPPERS),
    *((storage, wrapper, block) for storage in TYPICAL for wrapper in ("plain", NEST) for block in (None, 1)),
]
# Dask has the same operators in its blocks; what is its own is how blocks are put together.
CHUNKS = [storage for storage in TYPICAL if not storage.startswith("rows of")]
PAIRS += [(storage, wrapper, IN_TURN) for storage in CHUNKS for wrapper in ("plain", NEST)]
PAIRS += [(storage, wrapper, ON_WORKERS) for storage in CHUNKS[::2] for wrapper in ("plain", NEST)]
PAIRS = list(dict.fromkeys(PAIRS))


WITH_ROWS_OF_THEIR_OWN = [name for name in WRAPPERS if "intercept" in name or "mean removed" in name]


def name_of_pair(pair: tuple[Any, ...]) -> str:
    return ", ".join(map(str, pair))


@pytest.fixture(params=PAIRS, ids=name_of_pair)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Operator, np.ndarray]:
    """An operator, and its matrix by explicit formulas."""
    return make_pair(request.param, tmp_path)


def make_pair(names: tuple[str, str, Any], tmp_path: Path) -> tuple[Operator, np.ndarray]:
    storage, wrapper, block_bytes = names
    X = (STORAGES | SOURCES)[storage](matrix(), tmp_path)
    wrap, explicit = WRAPPERS[wrapper]
    return wrap(stored(X, block_bytes)), explicit(as_array(X))


class Recorder:
    """A row step that notes what it saw and answers with given slopes and curvatures."""

    def __init__(self, slopes: np.ndarray, curvatures: np.ndarray | None) -> None:
        self.slopes, self.curvatures = slopes, curvatures
        self.scores = np.full_like(slopes, np.nan)
        self.score_var = None if curvatures is None else np.full_like(curvatures, np.nan)
        self.next_row = 0
        self.calls = 0

    def __call__(self, rows: slice, scores: Any, score_var: Any) -> Any:
        assert rows.start == self.next_row, "a block came out of order"
        self.next_row = rows.stop
        self.calls += 1
        assert scores.shape == self.slopes[rows].shape
        self.scores[rows] = scores
        if self.curvatures is None:
            assert score_var is None
            return self.slopes[rows], None
        assert score_var.shape == self.curvatures[rows].shape
        self.score_var[rows] = score_var
        return self.slopes[rows], self.curvatures[rows]


def vectors(shape: tuple[int, int], width: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Weights, their variances, slopes, and curvatures of which some are negative."""
    rng = np.random.default_rng(1)
    return (
        rng.normal(size=(shape[1], *width)),
        rng.gamma(1.0, size=(shape[1], *width)),
        rng.normal(size=(shape[0], *width)),
        rng.normal(0.5, size=(shape[0], *width)),
    )


@pytest.mark.parametrize("width", [(), (3,)], ids=["one score", "three scores"])
def test_sweep_and_products_match_the_explicit_matrix(
    pair: tuple[Operator, np.ndarray], width: tuple[int, ...]
) -> None:
    operator, A = pair
    assert operator.shape == A.shape
    w, v, slopes, curvatures = vectors(A.shape, width)
    center = np.random.default_rng(2).normal(size=A.shape[1])
    scale = np.random.default_rng(3).uniform(0.5, 2, A.shape[1])

    plain = Recorder(slopes, None)
    result = operator.sweep(w, None, plain)
    assert plain.next_row == A.shape[0]
    assert_close(plain.scores, A @ w, operator)
    assert_close(result.slopes, A.T @ slopes, operator)
    assert result.curvatures is None
    assert_close(operator.scores(w), A @ w, operator)

    # Only what is stored has its squares taken about a centre; see `Standardized` for what is derived of it.
    options: list[Any] = [{}]
    if isinstance(operator, Storage):
        options += [{"center": center}, {"scale": scale}, {"center": center, "scale": scale}]
    for about in options:
        c, s = about.get("center"), about.get("scale")
        squares = ((A - (0 if c is None else c)) / (1 if s is None else s)) ** 2
        seen = Recorder(slopes, curvatures)
        result = operator.sweep(w, v, seen, **about)
        assert seen.next_row == A.shape[0]
        assert_close(seen.scores, A @ w, operator)
        assert seen.score_var is not None
        assert_close(seen.score_var, squares @ v, operator)
        assert seen.score_var.min() >= 0
        assert_close(result.slopes, A.T @ slopes, operator)
        assert_close(result.curvatures, squares.T @ curvatures, operator)
        assert_close(operator.score_variances(v, **about), squares @ v, operator)
        scores, variances = operator.scores_and_variances(w, v, **about)
        assert_close(scores, A @ w, operator)
        assert_close(variances, squares @ v, operator)


def test_moments_and_columns_match_the_explicit_matrix(pair: tuple[Operator, np.ndarray]) -> None:
    operator, A = pair
    repeats = np.random.default_rng(4).integers(0, 4, A.shape[0])
    repeated = np.repeat(A, repeats, axis=0)
    for factor in (1.0, 1e-5):
        mean, variance = operator.column_moments(factor * repeats)
        assert_close(mean, repeated.mean(axis=0), operator)
        assert_close(variance, repeated.var(axis=0), operator)
    some = [4, 0, -1, 4]
    assert_close(operator.columns(some), A[:, some], operator)
    assert_close(operator.columns(2), A[:, [2]], operator)
    with pytest.raises(IndexError, match="columns must lie in"):
        operator.columns([A.shape[1]])


def test_products_of_rows_match_the_explicit_matrix(pair: tuple[Operator, np.ndarray]) -> None:
    """In some order of columns, of which those that are the same in all rows may be missing."""
    operator, A = pair
    rows = np.random.default_rng(7).standard_normal((3, A.shape[0]))
    rows -= rows.mean(axis=1, keepdims=True)
    products = np.hstack(list(operator.row_products(rows, 1 << 8)))
    varies = np.ptp(A, axis=0) > 0
    expected = (rows @ A)[:, varies]
    assert products.shape[1] in (A.shape[1], int(varies.sum()))
    found = products if products.shape[1] == int(varies.sum()) else products[:, varies]
    assert_close(found, expected, operator)


def test_gram_matches_the_explicit_matrix(pair: tuple[Operator, np.ndarray]) -> None:
    operator, A = pair
    weight_var = np.random.default_rng(5).gamma(1.0, size=A.shape[1])
    weight_var[::3] = 0.0
    assert_close(operator.gram(weight_var), (A * weight_var) @ A.T, operator)


def test_gram_of_many_sparse_rows_is_whole() -> None:
    X = sparse.random_array((600, 40), density=0.1, format="csr", rng=np.random.default_rng(6))
    weight_var = np.random.default_rng(5).gamma(1.0, size=40)
    standardized = Standardized.fit(Sparse(X))
    A = standardized.columns(np.arange(40))
    assert_allclose(standardized.gram(weight_var), (A * weight_var) @ A.T, atol=1e-10)


def test_dense_tiles_match_the_explicit_matrix(pair: tuple[Operator, np.ndarray]) -> None:
    operator, A = pair
    n_rows, n_columns = A.shape
    # The last rows and columns are those that wrappers add, two at most.
    row_slices = [slice(0, n_rows), slice(3, 9), slice(n_rows - 4, n_rows), slice(n_rows - 1, n_rows)]
    column_slices = [
        slice(0, n_columns),
        slice(2, 8),
        *(slice(n_columns - k, n_columns - k + 1) for k in (1, 2, 3, 4)),
    ]
    for rows in row_slices:
        for columns in column_slices:
            tile = operator.dense_tile(rows, columns)
            assert_close(tile, A[rows, columns], operator)
            tile[:] = np.nan  # the caller's to overwrite
    for tile_bytes in (1, 5 * 8 * n_columns, 1 << 20):
        tiles = list(operator.dense_rows(tile_bytes))
        assert len(tiles) == -(-n_rows // max(tile_bytes // (8 * n_columns), 1))
        assert_close(np.concatenate([tile for _, tile in tiles]), A, operator)
        assert_array_equal(np.concatenate([np.arange(n_rows)[rows] for rows, _ in tiles]), np.arange(n_rows))
        tiles = list(operator.dense_columns(tile_bytes))
        assert_close(np.concatenate([tile for _, tile in tiles], axis=1), A, operator)
        assert_array_equal(
            np.concatenate([np.arange(n_columns)[columns] for columns, _ in tiles]), np.arange(n_columns)
        )


@pytest.fixture(params=[p for p in PAIRS if p[1] not in WITH_ROWS_OF_THEIR_OWN], ids=name_of_pair)
def data_pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Storage | Standardized, np.ndarray]:
    """A matrix as it is stored, perhaps standardized, and its explicit form."""
    operator, A = make_pair(request.param, tmp_path)
    assert isinstance(operator, Storage | Standardized)
    return operator, A


def test_nonzero_weight_is_that_of_rows_that_are_not_zero(
    data_pair: tuple[Storage | Standardized, np.ndarray],
) -> None:
    operator, _ = data_pair
    # Before it is centred or scaled.
    storage = operator.operator if isinstance(operator, Standardized | Journaled) else operator
    nonzero = storage.dense_tile(*(slice(0, n) for n in operator.shape)) != 0
    whole = np.arange(operator.shape[0]) % 3.0
    assert_array_equal(operator.nonzero_weight(whole), whole @ nonzero)
    weight = np.random.default_rng(5).gamma(1.0, size=operator.shape[0])
    assert_allclose(operator.nonzero_weight(weight), weight @ nonzero, rtol=1e-14)


@pytest.mark.parametrize("which", ["some", "all", "one", "none"])
def test_some_rows_are_an_operator_of_their_own(
    data_pair: tuple[Storage | Standardized, np.ndarray], which: str
) -> None:
    operator, A = data_pair
    some = {
        "some": [0, 2, 3, A.shape[0] - 3, A.shape[0] - 1],
        "all": range(A.shape[0]),
        "one": [4],
        "none": [],
    }
    chosen = np.array(some[which], dtype=np.intp)
    part = operator.some_rows(chosen)
    assert part.shape == (chosen.size, A.shape[1])
    assert part.dtype == operator.dtype
    rows, columns = (slice(0, n) for n in part.shape)
    assert_close(part.dense_tile(rows, columns), A[chosen], operator)
    if which == "some":
        weights = np.linspace(-1, 1, A.shape[1])
        seen = Recorder(np.linspace(0, 1, chosen.size), None)
        assert_close(part.sweep(weights, None, seen).slopes, A[chosen].T @ seen.slopes, operator)
        assert_close(seen.scores, A[chosen] @ weights, operator)


def test_dense_tiles_of_an_operator_that_only_knows_columns(pair: tuple[Operator, np.ndarray]) -> None:
    operator, A = pair
    tile = Operator.dense_tile(operator, slice(1, 4), slice(0, 5))
    assert_close(tile, A[1:4, :5], operator)


def test_squared_norms_count_rows_by_their_weight(pair: tuple[Operator, np.ndarray]) -> None:
    operator, A = pair
    for weight in (np.ones(A.shape[0]), np.arange(A.shape[0]) % 3.0):
        row, column = operator.squared_norms(weight)
        assert_close(row, (A**2).sum(axis=1), operator)
        assert_close(column, weight @ A**2, operator)


def test_adjoint_matches_the_explicit_matrix(pair: tuple[Operator, np.ndarray]) -> None:
    operator, A = pair
    rng = np.random.default_rng(6)
    for width in ((), (1,), (3,)):
        values = rng.normal(size=(A.shape[0], *width))
        expected = A.T @ values
        tolerance = TOLERANCE[operator.dtype] * max(float(np.abs(A).max()), 1.0) * 10
        assert_allclose(operator.adjoint(values), expected, atol=tolerance)


def test_weights_and_variances_may_differ_in_width(pair: tuple[Operator, np.ndarray]) -> None:
    operator, A = pair
    w, _, slopes, _ = vectors(A.shape, (2,))
    _, v, _, curvatures = vectors(A.shape, ())
    seen = Recorder(slopes, curvatures)
    result = operator.sweep(w, v, seen)
    assert_close(seen.scores, A @ w, operator)
    assert_close(seen.score_var, A**2 @ v, operator)
    assert_close(result.slopes, A.T @ slopes, operator)
    assert_close(result.curvatures, (A**2).T @ curvatures, operator)


def test_storage_is_unchanged_and_shared(X: Any, block_bytes: int | None) -> None:
    before = copy.deepcopy(X)
    operator = stored(X, block_bytes)
    w, v, slopes, curvatures = vectors(operator.shape, ())
    operator.sweep(w, v, Recorder(slopes, curvatures), center=w)
    operator.column_moments(np.ones(N_ROWS))
    if not sparse.issparse(X):
        assert_array_equal(X, before)
        assert np.shares_memory(operator.X, X)
        return
    assert X.format == before.format
    for part in ("data", "indices", "indptr"):
        assert_array_equal(getattr(X, part), getattr(before, part))
        assert getattr(X, part).dtype == getattr(before, part).dtype
    if before.has_canonical_format:
        assert operator.X is X


@pytest.mark.parametrize(
    "storage", ["C float64", "C float32", "csr_array float64 int64", "csr_matrix float32 int32"]
)
def test_small_blocks_give_several_row_steps(storage: str, tmp_path: Path) -> None:
    X = STORAGES[storage](matrix(), tmp_path)
    ones, variances = np.ones(N_ROWS), np.ones(N_COLUMNS)
    one, many = Recorder(ones, ones), Recorder(ones, ones)
    stored(X, None).sweep(variances, variances, one)
    stored(X, SMALL_BLOCK // 4).sweep(variances, variances, many)
    assert one.calls == 1
    assert many.calls >= 4


def test_without_variances_blocks_are_larger_but_still_several() -> None:
    A = np.random.default_rng(0).normal(size=(1000, 3))
    slopes = np.random.default_rng(1).normal(size=1000)
    plain, with_squares = Recorder(slopes, None), Recorder(slopes, slopes**2)
    operator = Dense(A, block_bytes=20 * 3 * 8)
    result = operator.sweep(np.ones(3), None, plain)
    operator.sweep(np.ones(3), np.ones(3), with_squares)
    assert 2 <= plain.calls < with_squares.calls
    assert_allclose(plain.scores, A.sum(axis=1), rtol=1e-12, atol=1e-12)
    assert_allclose(result.slopes, A.T @ slopes, atol=1e-11)


def test_tall_column_major_matrices_are_swept_in_row_blocks() -> None:
    A = np.asfortranarray(np.random.default_rng(0).normal(size=(4000, 3)))
    operator = Dense(A, block_bytes=512 * 3 * 8)
    w, v, slopes, curvatures = vectors(A.shape, ())
    seen = Recorder(slopes, curvatures)
    result = operator.sweep(w, v, seen)
    assert seen.calls == 8
    assert_allclose(seen.score_var, A**2 @ v, rtol=1e-14)
    assert_allclose(result.slopes, A.T @ slopes, atol=1e-11)
    assert_allclose(result.curvatures, (A**2).T @ curvatures, rtol=1e-12)


@pytest.mark.parametrize("variances", [False, True], ids=["no variances", "variances"])
@pytest.mark.parametrize("storage", ["C", "F", "strided", "uint8", "csr", "csc", "csr int64 matrix"])
def test_no_copy_of_X_is_made(storage: str, variances: bool) -> None:
    rng = np.random.default_rng(0)
    X: Any
    if "cs" in storage:
        # 20 MB in entries and indices.
        X = sparse.random_array((4000, 3000), density=0.139, format=storage[:3], rng=rng)
        if "matrix" in storage:
            X = sparse.csr_matrix(X)
            X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
        n_bytes = X.data.nbytes + X.indices.nbytes
    elif storage == "uint8":
        X = rng.integers(0, 9, (1000, 20_000), dtype=np.uint8)
        n_bytes = X.nbytes
    else:
        X = rng.random((250, 20_000))[:, ::2] if storage == "strided" else rng.random((250, 10_000))
        X = np.asfortranarray(X) if storage == "F" else X
        n_bytes = X.nbytes
    assert n_bytes > 19e6
    w, v, slopes, curvatures = vectors(X.shape, ())
    step = Recorder(slopes, curvatures if variances else None)
    # What is loaded at the first sweep (compiled loops) is no copy of X.
    operator_from(X).sweep(w, v if variances else None, _fresh(step), center=w)
    tracemalloc.start()
    operator = operator_from(X)
    operator.sweep(w, v if variances else None, step, center=w)
    operator.scores(w)
    _, sweep_peak = tracemalloc.get_traced_memory()
    operator.column_moments(np.ones(X.shape[0]))
    Standardized.fit(operator).sweep(w, v if variances else None, _fresh(step))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sweep_peak < 0.25 * n_bytes
    # Moments are taken in float64 whatever the storage, a few arrays of a tile's size at a time.
    assert peak < (0.5 if storage != "uint8" else 1.5) * n_bytes


def _fresh(step: Recorder) -> Recorder:
    return Recorder(step.slopes, step.curvatures)


KINDS: dict[str, Callable[[np.ndarray], Operator]] = {
    "dense C": lambda A: Dense(A, block_bytes=2000),
    "dense F": lambda A: Dense(np.asfortranarray(A), block_bytes=2000),
    "csr": lambda A: Sparse(sparse.csr_array(A), block_bytes=2000),
    "csc": lambda A: Sparse(sparse.csc_array(A), block_bytes=2000),
    "dense by Dask in turn": lambda A: dask_operator(A, 4, IN_TURN),
    "csr on Dask workers": lambda A: dask_operator(sparse.csr_array(A), 13, ON_WORKERS),
    "dense rows": lambda A: RowBlocks(row_source(A), block_bytes=2000),
    "csr rows": lambda A: RowBlocks(SparseRows(sparse.csr_array(A)), block_bytes=2000),
}


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_of_1e8_standard_deviations(kind: str) -> None:
    rng = np.random.default_rng(5)
    deviations = rng.integers(-512, 512, (80, 12)) / 256  # exact after adding the offset
    offset = np.where(np.arange(12) % 2 == 0, 1e8, -1e8)
    A = deviations + offset
    expected = (deviations - deviations.mean(axis=0)) / deviations.std(axis=0)
    operator = Standardized.fit(KINDS[kind](A))
    assert not operator.constant.any()
    assert_allclose(operator.center, deviations.mean(axis=0) + offset, rtol=2e-16)
    assert_allclose(operator.scale, deviations.std(axis=0), rtol=1e-14)
    w, v, slopes, curvatures = vectors(A.shape, ())
    seen = Recorder(slopes, curvatures)
    result = operator.sweep(w, v, seen)
    # Products round at eps · 1e8 per term; squares are about the centre, which itself is rounded at that.
    assert_allclose(seen.scores, expected @ w, atol=1e-6)
    assert_allclose(result.slopes, expected.T @ slopes, atol=2e-6)
    assert_allclose(seen.score_var, expected**2 @ v, rtol=1e-7)
    assert_allclose(result.curvatures, (expected**2).T @ curvatures, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "offset"), [(np.float64, 1e8), (np.float32, 2.0**14)], ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_in_memory_an_offset_costs_no_digits_of_products(order: Any, dtype: type, offset: float) -> None:
    # What is left is the rounding of the centre, the same for all rows: only differences between rows matter.
    rng = np.random.default_rng(5)
    deviations = rng.integers(-512, 512, (80, 12)) / 256
    deviations[:, -1] = 0.0
    operator = Standardized.fit(Dense((deviations + offset).astype(dtype, order=order)))
    scale = np.where(np.arange(12) < 11, deviations.std(axis=0), 1.0)
    expected = (deviations - deviations.mean(axis=0)) / scale
    w, v, slopes, curvatures = vectors((80, 12), ())
    w[-1] = 0.0
    slopes = slopes - slopes.mean()
    seen = Recorder(slopes, curvatures)
    result = operator.sweep(w, v, seen)
    alone, variances = operator.scores_and_variances(w, v)
    assert_array_equal(alone, operator.scores(w))
    for scores in (seen.scores, alone):
        assert_allclose(scores - scores.mean(), expected @ w, atol=1e-13)
    for found in (result.slopes, operator.adjoint(slopes)):
        assert_allclose(found, expected.T @ slopes, atol=1e-12)
        assert found[-1] == 0.0
    for found in (seen.score_var, variances):
        assert_allclose(found, expected**2 @ v, rtol=1e-7)
    assert_allclose(result.curvatures[:-1], (expected**2).T[:-1] @ curvatures, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_from_1e_minus_150_to_1e150(kind: str) -> None:
    rng = np.random.default_rng(6)
    base = rng.normal(1.0, 1.0, (40, 11)) * (rng.random((40, 11)) < 0.8)
    powers = np.linspace(-150, 150, 11)
    A = base * 10.0**powers
    expected = standardized_array(base)
    with np.errstate(all="raise", under="ignore"):
        inner = KINDS[kind](A)
        operator = Standardized.fit(inner, np.ones(40))
        assert not operator.constant.any()
        assert_allclose(operator.scale / 10.0**powers, base.std(axis=0), rtol=1e-13)
        w, v, slopes, curvatures = vectors(A.shape, (3,))
        seen = Recorder(slopes, 1e9 * curvatures)
        result = operator.sweep(w, v, seen)
    assert_allclose(seen.scores, expected @ w, atol=1e-12)
    assert_allclose(seen.score_var, expected**2 @ v, rtol=1e-12)
    assert_allclose(result.slopes, expected.T @ slopes, atol=1e-12)
    assert_allclose(result.curvatures, 1e9 * ((expected**2).T @ curvatures), rtol=1e-11)
    assert_allclose(operator.score_variances(np.ones(11)), (expected**2).sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_columns_from_1e_minus_25_to_1e25(kind: str) -> None:
    rng = np.random.default_rng(6)
    base = rng.normal(1.0, 1.0, (40, 11)) * (rng.random((40, 11)) < 0.8)
    A = (base * 10.0 ** np.linspace(-25, 25, 11)).astype(np.float32)
    operator = Standardized.fit(KINDS[kind](A))
    expected = standardized_array(base)
    w, v, slopes, curvatures = vectors(A.shape, ())
    seen = Recorder(1e-60 * slopes, 1e-60 * curvatures)  # below float32 as they are
    result = operator.sweep(w, v, seen)
    assert_allclose(seen.scores, expected @ w, atol=2e-5)
    assert_allclose(seen.score_var, expected**2 @ v, rtol=1e-5)
    assert_allclose(1e60 * result.slopes, expected.T @ slopes, atol=4e-5)
    assert_allclose(1e60 * result.curvatures, (expected**2).T @ curvatures, rtol=2e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_constant_columns_are_found_and_others_are_not(kind: str, dtype: type) -> None:
    rng = np.random.default_rng(7)
    eps = np.finfo(dtype).eps
    n = 57
    A = np.empty((n, 6), dtype=dtype)
    A[:, 0] = 0
    A[:, 1] = 0.1
    A[:, 2] = -1e20 / 3
    A[:, 3] = np.where(rng.random(n) < 0.5, 1.1, dtype(1.1) * dtype(1 + eps))  # rounding of a constant
    A[:, 4] = 1 + 100 * eps * rng.choice([-1, 1], n)
    A[:, 5] = np.where(np.arange(n) == 3, 1e-6, 0)  # a single small entry
    operator = Standardized.fit(KINDS[kind](A))
    assert operator.constant.tolist() == [True, True, True, True, False, False]
    assert_array_equal(operator.scale[:4], 1)
    # Constant where there is weight counts as constant.
    weight = np.ones(n)
    weight[3] = 0
    operator = Standardized.fit(KINDS[kind](A), weight)
    assert operator.constant.tolist() == [True, True, True, True, False, True]
    complement = A.copy()
    complement[3, 1] = 0
    assert Standardized.fit(KINDS[kind](complement), weight).constant[1]
    assert not Standardized.fit(KINDS[kind](complement)).constant[1]


@pytest.mark.parametrize("kind", KINDS)
def test_samples_without_weight_do_not_matter_however_large(kind: str) -> None:
    A = np.random.default_rng(8).normal(size=(9, 4)) * 1e-150
    A[[0, 4]] = 1e150
    weight = np.array([0, 1, 2, 1, 0, 1, 1, 3, 1.0])
    kept = np.repeat(A, weight.astype(int), axis=0) * 1e150
    mean, variance = KINDS[kind](A).column_moments(weight)
    assert_allclose(1e150 * mean, kept.mean(axis=0), rtol=1e-13)
    assert_allclose(1e300 * variance, kept.var(axis=0), rtol=1e-13)


LAYOUTS: dict[str, Callable[[np.ndarray], Any]] = {
    "dense C": lambda A: A,
    "dense F": np.asfortranarray,
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
    "dense rows": row_source,
    "csr rows": SparseRows,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_answers_do_not_depend_on_the_block_size(layout: str) -> None:
    rng = np.random.default_rng(9)
    A = rng.normal(size=(70, 90))
    X = LAYOUTS[layout](A)
    w, v, slopes, curvatures = vectors(A.shape, ())
    answers = []
    for block_bytes in (1, 1000, 9999, 1 << 30):
        seen = Recorder(slopes, curvatures)
        result = MeanRemoved(Standardized.fit(stored(X, block_bytes))).sweep(
            np.append(w, [1, 1]), np.append(v, [1, 1]), _padded(seen)
        )
        answers.append((*result, *stored(X, block_bytes).column_moments(curvatures**2)))
    for other in answers[1:]:
        for a, b in zip(answers[0], other, strict=True):
            assert_allclose(a, b, rtol=0, atol=1e-14 * 90 * np.abs(b).max())


def _padded(seen: Recorder) -> Recorder:
    assert seen.curvatures is not None
    return Recorder(np.append(seen.slopes, [0.3, 0.4]), np.append(seen.curvatures, [1.0, 2.0]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardized"])
def test_mean_removal_reproduces_scores_when_its_constraints_hold(kind: str, standardize: bool) -> None:
    rng = np.random.default_rng(10)
    A = rng.normal(2.0, 1.0, (30, 40)) + rng.normal(size=(30, 1))
    inner = Standardized.fit(KINDS[kind](A)) if standardize else KINDS[kind](A)
    operator = MeanRemoved(inner)
    explicit = operator.columns(np.arange(42))
    w = rng.normal(size=40)
    # Solve the two constraint rows for the two extra weights.
    extra = np.linalg.lstsq(explicit[30:, 40:], -explicit[30:, :40] @ w, rcond=None)[0]
    scores = operator.scores(np.append(w, extra))
    assert_allclose(scores[operator.extra_rows], 0, atol=1e-11)
    assert_allclose(scores[:30], inner.scores(w), atol=1e-12 * 40)
    # The bulk has no mean left, and what was added looks like the bulk.
    bulk = explicit[:30, :40]
    assert abs(bulk.mean(axis=0)).max() < 1e-13
    assert abs(bulk.mean(axis=1)).max() < 1e-13
    rms = np.sqrt(np.mean(bulk**2))
    # Standardised columns have no means to remove, and zeros in their place.
    expected = [rms, 0.0] if standardize else [rms, rms]
    assert_allclose(np.sqrt(np.mean(explicit[:30, 40:] ** 2, axis=0)), expected)
    assert_allclose(np.sqrt(np.mean(explicit[30:, :40] ** 2, axis=1)), expected)
    # The extra rows come alone, and last.
    blocks: list[slice] = []

    def note(rows: slice, scores: Any, score_var: Any) -> Any:
        blocks.append(rows)
        return np.zeros(len(scores)), None

    operator.sweep(np.ones(42), None, note)
    assert blocks[-1] == slice(30, 32) == operator.extra_rows


def test_operators_survive_pickling_without_a_second_copy_of_X() -> None:
    A = matrix()
    for operator in (Dense(A, block_bytes=99), Sparse(sparse.csc_array(A), block_bytes=99)):
        wrapped = WithIntercept(Standardized.fit(operator))
        data = pickle.dumps(wrapped)
        w = np.linspace(-1, 1, N_COLUMNS + 1)
        assert_array_equal(pickle.loads(data).scores(w), wrapped.scores(w))
        assert len(pickle.dumps(operator)) < len(pickle.dumps(operator.X)) + 500


def test_operator_from_chooses_by_storage() -> None:
    A = matrix()
    assert isinstance(operator_from(A), Dense)
    assert operator_from(sparse.csc_array(A)).X.format == "csc"  # type: ignore[attr-defined]
    assert_array_equal(operator_from(sparse.coo_array(A)).columns(np.arange(N_COLUMNS)), A)
    operator = Dense(A)
    assert operator_from(operator) is operator
    with pytest.raises(TypeError, match="NumPy array or a scipy"):
        operator_from([[1.0]])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Dense(np.ones(3)), ValueError, "samples by features"),
        (lambda: Dense(np.ones((2, 2), dtype=complex)), TypeError, "real numbers"),
        (lambda: Sparse(np.ones((2, 2))), TypeError, "CSR or CSC"),
        (lambda: Sparse(sparse.coo_array(np.eye(2))), TypeError, "operator_from"),
        (lambda: Dense(np.eye(2), block_bytes=0), ValueError, "block_bytes"),
        (lambda: Dense(np.eye(2)).scores(np.ones(3)), ValueError, "2 columns"),
        (lambda: Dense(np.eye(2)).column_moments(np.zeros(2)), ValueError, "sample_weight"),
        (lambda: Dense(np.eye(2)).column_moments(np.ones(3)), ValueError, "one weight per row"),
        (lambda: Standardized(Dense(np.eye(2)), [0, 0], [1, 0]), ValueError, "positive"),
        (lambda: Standardized(Dense(np.eye(2)), [0], [1, 1]), ValueError, "center has shape"),
        (lambda: Standardized.fit(Dense(1e200 * np.eye(2))), ValueError, "1e150"),
        (
            lambda: Dense(np.eye(2)).sweep(np.ones(2), np.ones(2), lambda rows, z, v: (z, None)),
            TypeError,
            "no curvatures",
        ),
    ],
)
def test_errors_say_what_is_needed(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
