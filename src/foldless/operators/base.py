"""The contract of an operator: how a data matrix is visited, one sweep per iteration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.linalg import blas

from foldless.beliefs import Array
from foldless.io.files import checksum

# Dense tiles of about this size: large enough for BLAS, small beside X, and still in cache when used again.
DENSE_TILE_BYTES = 2 << 20

# Which rows (or columns) a tile holds, and the tile.
DenseTiles = Iterator[tuple[slice, NDArray[np.float64]]]


class RowStep(Protocol):
    """What happens to a block of rows in mid-sweep: scores come in, slopes and curvatures go out.

    `rows` are the positions of these rows, so that per-sample state can stay with its block. `score_var` and
    the returned curvature are None where the sweep was asked for no variances.
    """

    def __call__(self, rows: slice, scores: Array, score_var: Array | None) -> tuple[Array, Array | None]: ...


class Sweep(NamedTuple):
    """Sums over all rows: Xᵀ slopes and (X∘X)ᵀ curvatures (None if not asked for)."""

    slopes: Array
    curvatures: Array | None


def needed(curvatures: Array | None) -> Array:
    """The curvatures of a row step in a sweep with variances."""
    if curvatures is None:
        raise TypeError(
            "row_step returned no curvatures although the sweep has variances; "
            "return them, or call sweep with weight_var=None"
        )
    return curvatures


class Operator(ABC):
    """A matrix of samples (rows) by features (columns) that solvers sweep.

    Weights are (features,) for one score per sample or (features, d) for d scores; weights and their
    variances may have different d. Vectors come and go in float64 whatever the storage of X; products
    run in `dtype`, X's own. X is never copied, nor is X∘X ever stored.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]  # of the products: float32 or float64

    @abstractmethod
    def sweep(self, weights: Array, weight_var: Array | None, row_step: RowStep) -> Sweep:
        """Visit every row once, in order, block by block.

        For a block of rows: scores = X weights and score_var = (X∘X) weight_var, then `row_step`, then the
        block's share of Xᵀ slopes and (X∘X)ᵀ curvatures.
        """

    @abstractmethod
    def scores(self, weights: Array) -> Array:
        """X weights."""

    def adjoint(self, row_values: Array) -> Array:
        """Xᵀ row_values, for (rows,) or (rows, d) values: a sweep without scores."""
        values = np.asarray(row_values, dtype=np.float64)
        nothing = np.zeros((self.shape[1], *values.shape[1:]))
        return self.sweep(nothing, None, lambda rows, scores, score_var: (values[rows], None)).slopes

    @abstractmethod
    def score_variances(self, weight_var: Array) -> Array:
        """(X∘X) weight_var."""

    def scores_and_variances(self, weights: Array, weight_var: Array) -> tuple[Array, Array]:
        """Both, with as many columns as weights and variances have; in one visit where that is faster."""
        return self.scores(weights), self.score_variances(weight_var)

    def column_moments(self, sample_weight: Array) -> tuple[Array, Array]:
        """Weighted mean and variance of each column, exact under large offsets.

        A sample of weight 2 counts as two equal rows: variance = Σ p (x - mean)² with p = weight / Σ weight.
        """
        share = normalized_sample_weight(sample_weight, self.shape[0])
        mean, variance = np.empty(self.shape[1]), np.empty(self.shape[1])
        for columns, tile in self.dense_columns():
            mean[columns] = share @ tile
            variance[columns] = share @ np.square(tile - mean[columns])
        return mean, variance

    def squared_norms(self, sample_weight: Array) -> tuple[Array, Array]:
        """Squared length of every row, and of every column with rows counted by their weight."""
        row = np.empty(self.shape[0])
        nothing = np.zeros(self.shape[0])

        def row_step(rows: slice, scores: Array, score_var: Array | None) -> tuple[Array, Array | None]:
            row[rows] = score_var
            return nothing[rows], sample_weight[rows]

        zeros, ones = np.zeros(self.shape[1]), np.ones(self.shape[1])
        column = self.sweep(zeros, ones, row_step).curvatures
        assert column is not None
        return row, column

    @abstractmethod
    def columns(self, indices: ArrayLike) -> NDArray[np.float64]:
        """A dense float64 copy of a few columns, for plots and diagnostics."""

    def gram(self, weight_var: Array, dtype: DTypeLike = np.float64) -> Array:
        """X diag(weight_var) Xᵀ: what independent weights of these variances make of scores.

        Products are made and summed in `dtype`. Tiles are as large as the answer: smaller ones would leave
        most of the time to the sums.
        """
        root, products = np.sqrt(weight_var), Gram(self.shape[0], dtype)
        for columns, tile in self.dense_columns(max(DENSE_TILE_BYTES, products.upper.nbytes)):
            tile *= root[columns]
            products.add(tile)
        return products.whole()

    def dense_tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        """A dense float64 copy of some rows of some columns, the caller's to overwrite.

        Slices have a start and a stop within the shape and no step. This form makes the columns whole.
        """
        return self.columns(np.arange(columns.start, columns.stop))[rows]

    def dense_rows(self, tile_bytes: int = DENSE_TILE_BYTES) -> DenseTiles:
        """The matrix as dense tiles of whole rows, for solvers that need all columns of a sample at once."""
        n_rows, n_columns = self.shape
        for rows in _dense_slices(n_rows, n_columns, tile_bytes):
            yield rows, self.dense_tile(rows, slice(0, n_columns))

    def dense_columns(self, tile_bytes: int = DENSE_TILE_BYTES) -> DenseTiles:
        """The matrix as dense tiles of whole columns."""
        n_rows, n_columns = self.shape
        for columns in _dense_slices(n_columns, n_rows, tile_bytes):
            yield columns, self.dense_tile(slice(0, n_rows), columns)

    def row_products(self, rows: Array, tile_bytes: int) -> Iterator[Array]:
        """rows @ X, some columns at a time; columns that are the same in all rows may be left out."""
        return (rows @ tile for _, tile in self.dense_columns(tile_bytes))

    def nonzero_weight(self, sample_weight: Array) -> Array:
        """The weight of all rows in which a column is not zero, for each column.

        Sums are of weights, not of shares, and so exact for whole numbers, whatever the order of rows.
        """
        found = np.empty(self.shape[1])
        for columns, tile in self.dense_columns():
            found[columns] = sample_weight @ (tile != 0)
        return found


class Gram:
    """Sums of products of matrices with their own transposes, of which one triangle is made."""

    def __init__(self, size: int, dtype: DTypeLike) -> None:
        self.upper = np.zeros((size, size), dtype=dtype, order="F")
        self._rank_update = blas.ssyrk if self.upper.dtype == np.float32 else blas.dsyrk

    def add(self, matrix: Array, sign: float = 1.0) -> None:
        rows = matrix.astype(self.upper.dtype, copy=False).T
        if rows.size:
            self.upper = self._rank_update(sign, rows, beta=1.0, c=self.upper, trans=1, overwrite_c=1)

    def whole(self) -> Array:
        return np.asarray(np.triu(self.upper) + np.triu(self.upper, 1).T)


class About(TypedDict, total=False):
    """What squares are taken of: (X - center) / scale; None for neither."""

    center: Array | None
    scale: Array | None


class Storage(Operator):
    """A matrix as it is stored, in memory or elsewhere: what an estimator is given as X.

    Squares can be taken of (X - center) / scale instead of X, in `sweep` and in `score_variances`. They
    cannot be corrected afterwards without cancellation, overflow or underflow, while linear products can
    (see `Standardized`).
    """

    # Where the storage has them.
    column_names: Sequence[str] | None = None
    # Whether dense tiles cost little more than products.
    has_tiles_at_hand = False

    @abstractmethod
    def sweep(
        self,
        weights: Array,
        weight_var: Array | None,
        row_step: RowStep,
        *,
        center: Array | None = None,
        scale: Array | None = None,
    ) -> Sweep: ...

    @abstractmethod
    def score_variances(
        self, weight_var: Array, *, center: Array | None = None, scale: Array | None = None
    ) -> Array: ...

    def scores_and_variances(
        self, weights: Array, weight_var: Array, **about: Unpack[About]
    ) -> tuple[Array, Array]:
        return self.scores(weights), self.score_variances(weight_var, **about)

    def centred_gram(self, weight_var: Array, center: Array) -> NDArray[np.float64] | None:
        """(X - center) diag(weight_var) (X - center)ᵀ; None if dense tiles are as good a way to it."""
        return None

    def products_by_columns(
        self, rows: Array, positions: NDArray[np.intp], tile_bytes: int
    ) -> Iterator[tuple[NDArray[np.intp], Array]] | None:
        """rows @ X of these columns, some at a time; None if dense tiles are as good a way to it."""
        return None

    def some_rows(self, rows: NDArray[np.intp]) -> Storage:
        """A copy of these rows in memory, as an operator of their own; positions ascend.

        Where rows are not in memory, they are gathered in one pass. This form makes them dense.
        """
        from foldless.operators.dense import Dense  # which is a storage itself

        copy = np.empty((rows.size, self.shape[1]), dtype=self.dtype)
        for columns, tile in self.dense_columns():
            copy[:, columns] = tile[rows]
        return Dense(copy)

    def identity(self) -> str:
        """What other data would hardly share, so that a later process can tell whether these are the same.

        This form is a checksum of three rows.
        """
        n_rows, n_columns = self.shape
        some = sorted({0, n_rows // 2, n_rows - 1}) if n_rows else []
        tiles = (self.dense_tile(slice(i, i + 1), slice(0, n_columns)) for i in some)
        return f"rows of checksum {checksum(tiles):08x}"


def _dense_slices(n_lines: int, length: int, tile_bytes: int) -> Iterator[slice]:
    """Lines of this length, cut so that a tile of float64 has about so many bytes."""
    step = max(tile_bytes // (8 * max(length, 1)), 1)
    for start in range(0, n_lines, step):
        yield slice(start, min(start + step, n_lines))


def column_positions(indices: ArrayLike, n_columns: int) -> NDArray[np.intp]:
    """`indices` as non-negative positions; negative ones count from the end."""
    positions = np.atleast_1d(np.asarray(indices, dtype=np.intp))
    if positions.size and not (-n_columns <= positions.min() and positions.max() < n_columns):
        raise IndexError(f"columns must lie in [0, {n_columns}); got {positions.min()} to {positions.max()}")
    return np.where(positions < 0, positions + n_columns, positions)


def normalized_sample_weight(sample_weight: ArrayLike, n_rows: int) -> NDArray[np.float64]:
    """Sample weights, one for each row, divided by their sum."""
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n_rows,):
        raise ValueError(f"sample_weight has shape {weight.shape}; it needs one weight per row, ({n_rows},)")
    total = weight.sum()
    if not (np.all(weight >= 0) and 0 < total < np.inf):
        raise ValueError("sample_weight must be finite, non-negative, and not zero for every row")
    return weight / total
