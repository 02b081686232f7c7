"""The sweep of a matrix in memory, tile by tile, and a NumPy array as an operator.

Rows are visited in blocks, and a block in tiles of columns. A matrix stored by rows has many blocks of
one tile each: the tile is still in cache when `row_step` returns, so X is read from memory once per
sweep. A matrix stored by columns has one block of many tiles: a score needs all columns and columns are
what is contiguous, so X is read twice, but never against its grain.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless import kernels
from foldless.beliefs import Array
from foldless.io.files import checksum
from foldless.operators.base import (
    About,
    Operator,
    RowStep,
    Storage,
    Sweep,
    column_positions,
    needed,
    normalized_sample_weight,
)

# A tile and its buffer of squares should stay in the caches near the core. Measured on 300 x 30 000
# (L2 512 KiB, L3 32 MiB): 1 to 4 MB are within 10 %, 16 MB costs 1.5 times as much with variances.
BLOCK_BYTES = 2 << 20
# Without variances nothing is buffered, and a block need only survive in the last cache until it is used
# again. Fewer blocks are then better: every block is a round of small array operations in `row_step`, half a
# millisecond. Measured on 300 x 30 000, float32 (L3 32 MiB): one block of 36 MB 4.7 ms, three 6.0.
UNBUFFERED_BLOCKS = 16
# Fewer rows (columns) than this and a product becomes a handful of dot products, with a Python call for each.
MIN_TILE_LINES = 4
# Deviations are divided by their mean size before squaring; a ratio beyond this belongs to a sample
# without weight (the others are bounded by 1 / p) and must only stay finite so that 0 · ratio² is 0.
LARGEST_RATIO = 1e100
# Slopes of this size can be multiplied by entries of X without leaving the range of float32, 1e-38 to 3e38.
COMFORTABLE_FLOAT32 = (1e-15, 1e15)
# A block of rows of a column-major matrix is made of short runs, one per column. Runs of this many
# entries fill a memory page, and walking them is as fast as walking whole columns.
MIN_COLUMN_RUN = 512
# Sums of squares below this may have lost terms to underflow.
SMALLEST_SAFE_SQUARE = 1e-280

# With fewer rows, loading numba takes longer than a prediction.
LEAST_ROWS_COMPILED = 4096
# So many vectors are faster one by one. Measured on 10 000 x 2000: sparse, four in 1.7 ms instead of 10.5;
# dense, two in 26 instead of 44.
FEW_SPARSE, FEW_DENSE = 4, 3

# The matrix and its transpose: anything with `@`.
Tile = tuple[Any, Any]
# Lays a vector over columns out along the entries of a tile.
AlongTile = Callable[[Array], Array]
# Changes a tile's entries, in float64, in place.
TileStep = Callable[[Array, AlongTile], Any]
# Gives the entries of a tile, how to lay a vector along them, and what makes the transposed tile of entries.
EntriesOf = Callable[[slice, slice], tuple[Array, AlongTile, Callable[[Array], Any]]]


class TileSource:
    """Makes tiles on demand and remembers the last one.

    The way back over the tiles of a block runs in reverse, so the tile that was used last on the way
    forth is not made twice; where a block is a single tile none is.
    """

    def __init__(self, make: Callable[[slice, slice], Tile], background: Array | None = None) -> None:
        self._make = make
        self._key: tuple[int, int] | None = None
        self._tile: Tile = (None, None)
        # A number for each column that is to be added to all of its entries, which sparse tiles leave out.
        self.background = background

    def __call__(self, rows: slice, columns: slice) -> Tile:
        key = (rows.start, columns.start)
        if key != self._key:
            self._tile = (None, None)  # free before the next is made
            self._tile = self._make(rows, columns)
            self._key = key
        return self._tile


class Tiled(Storage):
    """An operator whose tiles are in memory."""

    X: Any
    block_bytes: int
    _row_blocks: list[slice]
    # The blocks of a sweep that forms no squares.
    _unbuffered_row_blocks: list[slice]
    _column_tiles: list[slice]
    _moment_tiles: list[slice]

    def __init__(self, X: Any, block_bytes: int) -> None:
        if X.dtype.kind not in "fiub":
            raise TypeError(f"X has dtype {X.dtype}; real numbers are needed")
        if block_bytes < 1:
            raise ValueError(f"block_bytes must be positive; got {block_bytes}")
        self.X, self.block_bytes = X, block_bytes
        self.shape = (X.shape[0], X.shape[1])
        self.dtype = product_dtype(X.dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), block_bytes=self.block_bytes), (self.X,)

    def some_rows(self, rows: NDArray[np.intp]) -> Self:
        return type(self)(self.X[rows], block_bytes=self.block_bytes)

    @abstractmethod
    def _values(self) -> TileSource:
        """Tiles of X."""

    @abstractmethod
    def _squares(self, center: Array | None = None, scale: Array | None = None) -> TileSource:
        """Tiles of ((X - center) / scale)², minus the source's background."""

    @abstractmethod
    def _deviations(self, shift: Array | None) -> EntriesOf:
        """Float64 copies of the stored entries of tiles, less the shift of their columns."""

    def _absent_share(self, share: Array) -> Array:
        """For each column the share of weight on entries that are not stored."""
        return np.zeros(self.shape[1])

    def sweep(
        self, weights: Array, weight_var: Array | None, row_step: RowStep, **about: Unpack[About]
    ) -> Sweep:
        values = self._values()
        weights = self._column_vector(weights)
        slope_sum = np.zeros(weights.shape)
        if weight_var is None:
            for rows in self._unbuffered_row_blocks:
                slopes, _ = row_step(rows, self._forth(values, rows, weights), None)
                self._back(values, rows, slopes, slope_sum)
            return Sweep(slope_sum, None)

        squares = self._squares(**about)
        shared_var = _background_sum(squares, weight_var)
        weight_var = self._column_vector(weight_var)
        curvature_sum = np.zeros(weight_var.shape)
        for rows in self._row_blocks:
            scores = self._forth(values, rows, weights)
            score_var = _with_background(self._forth(squares, rows, weight_var), shared_var)
            slopes, curvatures = row_step(rows, scores, score_var)
            curvatures = needed(curvatures)
            self._back(values, rows, slopes, slope_sum)
            self._back(squares, rows, curvatures, curvature_sum)
            if squares.background is not None:
                curvature_sum += np.multiply.outer(squares.background, np.sum(curvatures, axis=0))
        return Sweep(slope_sum, curvature_sum)

    def scores(self, weights: Array) -> Array:
        return self._of_all_rows(self._values(), weights)

    def adjoint(self, row_values: Array) -> Array:
        return self.transposed(np.asarray(row_values, dtype=np.float64)).slopes

    def transposed(self, slopes: Array, curvatures: Array | None = None, **about: Unpack[About]) -> Sweep:
        """The second half of a sweep, for rows whose slopes and curvatures are known."""
        values = self._values()
        slope_sum = np.zeros((self.shape[1], *slopes.shape[1:]))
        for rows in self._unbuffered_row_blocks:
            self._back(values, rows, slopes[rows], slope_sum)
        if curvatures is None:
            return Sweep(slope_sum, None)
        squares = self._squares(**about)
        curvature_sum = np.zeros((self.shape[1], *curvatures.shape[1:]))
        for rows in self._row_blocks:
            self._back(squares, rows, curvatures[rows], curvature_sum)
        if squares.background is not None:
            curvature_sum += np.multiply.outer(squares.background, np.sum(curvatures, axis=0))
        return Sweep(slope_sum, curvature_sum)

    def score_variances(self, weight_var: Array, **about: Unpack[About]) -> Array:
        return self._of_all_rows(self._squares(**about), weight_var)

    def scores_and_variances(
        self, weights: Array, weight_var: Array, **about: Unpack[About]
    ) -> tuple[Array, Array]:
        values, squares = self._values(), self._squares(**about)
        shared = _background_sum(squares, weight_var)
        weights, weight_var = self._column_vector(weights), self._column_vector(weight_var)
        scores, variances = (np.empty((self.shape[0], *each.shape[1:])) for each in (weights, weight_var))
        for rows in self._row_blocks:
            scores[rows] = self._forth(values, rows, weights)
            variances[rows] = _with_background(self._forth(squares, rows, weight_var), shared)
        return scores, variances

    def _of_all_rows(self, source: TileSource, vector: Array) -> Array:
        shared = _background_sum(source, vector)
        vector = self._column_vector(vector)
        out = np.empty((self.shape[0], *vector.shape[1:]))
        for rows in self._row_blocks:
            out[rows] = _with_background(self._forth(source, rows, vector), shared)
        return out

    def column_moments(self, sample_weight: Array) -> tuple[Array, Array]:
        """Weighted mean and variance of each column, about the row of largest weight p₁.

        So no digits are lost to an offset, and a constant column has a variance of exactly zero.
        """
        share = normalized_sample_weight(sample_weight, self.shape[0])
        heaviest = int(np.argmax(share))
        shift = self.dense_tile(slice(heaviest, heaviest + 1), slice(0, self.shape[1]))[0]
        drift, variance = self.moments_about(shift, share)
        return shift + drift, variance

    # Values that are not finite, or whose squares are not, show in the moments.
    @np.errstate(over="ignore", invalid="ignore")
    def moments_about(self, shift: Array, share: Array) -> tuple[Array, Array]:
        """Weighted mean and variance of d = x - shift, for shares that add up to one.

        Any row of the data will do as a shift, also one of another block of the same matrix: an offset
        that all rows share is then gone before anything is rounded. With the row of largest weight p₁,
            variance = Σ p d² - (Σ p d)²
        loses at most the factor 1 / p₁, of the order of the number of rows. If squares over- or underflow in
        some column, all are taken of d / Σ p |d|, in another two passes.
        """
        absent = self._absent_share(share)

        def sums(*steps: TileStep) -> tuple[Array, ...]:
            found = self._column_sums(shift, share, *steps)
            at_zero = -shift[np.newaxis]  # the deviation of an entry that is not stored
            for step, total in zip(steps, found, strict=True):
                step(at_zero, lambda vector: vector)
                total += absent * at_zero[0]
            return found

        first, second = sums(lambda d, along: None, _square)
        if np.all(np.isfinite(second)) and not np.any(second[first != 0] < SMALLEST_SAFE_SQUARE):
            return first, np.maximum(second - first * first, 0.0)

        (size,) = sums(lambda d, along: np.abs(d, out=d))
        size[size == 0] = 1.0

        def ratio(d: Array, along: AlongTile) -> None:
            d /= along(size)
            np.clip(d, -LARGEST_RATIO, LARGEST_RATIO, out=d)

        ratio_mean, ratio_square = sums(ratio, _square)
        # size · (size · ...) and not size² · ...: the square alone may leave the range of float64.
        return first, size * (size * np.maximum(ratio_square - ratio_mean**2, 0.0))

    def _column_sums(self, shift: Array | None, row_values: Array, *steps: TileStep) -> tuple[Array, ...]:
        """Σ over rows of row_values times deviations as each step leaves them, in one pass and in float64."""
        sums = tuple(np.zeros((self.shape[1], *row_values.shape[1:])) for _ in steps)
        deviations = self._deviations(shift)
        for rows in self._row_blocks:
            for columns in self._moment_tiles:
                entries, along, transposed = deviations(rows, columns)
                for step, total in zip(steps, sums, strict=True):
                    step(entries, along)
                    total[columns] += transposed(entries) @ row_values[rows]
        return sums

    def _column_vector(self, vector: Array) -> Array:
        """Weights in the dtype of the products, laid out as BLAS wants them."""
        vector = np.ascontiguousarray(vector, dtype=self.dtype)
        if vector.shape[0] != self.shape[1]:
            raise ValueError(f"X has {self.shape[1]} columns, but weights have shape {vector.shape}")
        return vector

    def _forth(self, source: TileSource, rows: slice, weights: Array) -> Array:
        """Rows of the tiles times weights, in float64."""
        if len(self._column_tiles) == 1:
            return np.ascontiguousarray(
                _product(source(rows, self._column_tiles[0])[0], weights), dtype=np.float64
            )
        total = np.zeros((rows.stop - rows.start, *weights.shape[1:]))
        for columns in self._column_tiles:
            total += _product(source(rows, columns)[0], weights[columns])
        return total

    def _back(self, source: TileSource, rows: slice, row_vector: Array, total: Array) -> None:
        """Add the transposed product of a block to `total`."""
        size = 1.0
        if self.dtype == np.float32:
            # Slopes of well-fitted samples may all be below the range of float32.
            size = float(np.max(np.abs(row_vector), initial=0.0))
            size = 1.0 if size == 0 or COMFORTABLE_FLOAT32[0] < size < COMFORTABLE_FLOAT32[1] else size
            row_vector = row_vector / size
        row_vector = np.ascontiguousarray(row_vector, dtype=self.dtype)
        for columns in reversed(self._column_tiles):
            share = _product(source(rows, columns)[1], row_vector)
            total[columns] += share if size == 1.0 else share * np.float64(size)


def _square(entries: Array, along: AlongTile) -> None:
    entries *= entries


def _product(matrix: Any, vectors: Array) -> Any:
    """matrix @ vectors. With several vectors BLAS takes a fifth less time if they come first, as rows.

    A few are faster one by one: SciPy's loop over several is six times slower than four over one, and BLAS
    has no kernel for two or three, which matters where the matrix is in cache.
    """
    is_dense = isinstance(matrix, np.ndarray)
    if vectors.ndim == 1:
        return matrix @ vectors
    few = FEW_DENSE if is_dense and matrix.nbytes <= 2 * BLOCK_BYTES else 0 if is_dense else FEW_SPARSE
    if 0 < vectors.shape[1] <= few:
        return np.stack([matrix @ vector for vector in np.ascontiguousarray(vectors.T)], axis=1)
    return (vectors.T @ matrix.T).T if is_dense else matrix @ vectors


def product_dtype(stored: np.dtype[Any]) -> np.dtype[Any]:
    """The precision of products: float32 for what it holds exactly, integers of up to 16 bits included."""
    exact = stored.itemsize <= (4 if stored.kind == "f" else 2)
    return np.dtype(np.float32 if exact else np.float64)


def slices(n: int, step: int) -> list[slice]:
    """0..n cut into slices of `step`; one empty slice if n is 0, so that there is always a first."""
    return [slice(start, min(start + step, n)) for start in range(0, n, step)] or [slice(0, 0)]


def _background_sum(squares: TileSource, weight_var: Array) -> Array | None:
    return None if squares.background is None else squares.background @ weight_var


def _with_background(variances: Array, shared_var: Array | None) -> Array:
    """Variances with the part that all rows share; rounding must not leave them negative."""
    return variances if shared_var is None else np.maximum(variances + shared_var, 0.0)


class Dense(Tiled):
    """A 2-d array in any layout: C or F order, strided, read-only, memory-mapped.

    float32 and float64 go to BLAS as they are. Other real dtypes, and strides that BLAS cannot walk, are
    brought into a buffer one tile at a time; X itself is never copied.
    """

    has_tiles_at_hand = True

    def __init__(self, X: ArrayLike, *, block_bytes: int = BLOCK_BYTES) -> None:
        self.X: NDArray[Any] = np.asarray(X)
        if self.X.ndim != 2:
            raise ValueError(f"X has shape {self.X.shape}; a matrix of samples by features is needed")
        super().__init__(self.X, block_bytes)
        n_rows, n_columns = self.shape
        self._blas_walks = self.X.dtype == self.dtype and _blas_can_walk(self.X)
        self._by_columns = abs(self.X.strides[0]) < abs(self.X.strides[1])

        entries = max(block_bytes // self.dtype.itemsize, 1)
        rows = max(entries // max(n_columns, 1), min(MIN_TILE_LINES, max(n_rows, 1)))
        columns = max(n_columns, 1)
        if self._by_columns and rows < min(MIN_COLUMN_RUN, n_rows):
            rows = n_rows
            columns = max(entries // n_rows, min(MIN_TILE_LINES, columns))
        self._row_blocks = slices(n_rows, rows)
        # Blocks of about that size, all alike: a last one of a few rows would cost as much as the others.
        n_blocks = max(round(n_rows / (UNBUFFERED_BLOCKS * rows)), 1)
        self._unbuffered_row_blocks = (
            slices(n_rows, max(-(-n_rows // n_blocks), 1)) if self._blas_walks else self._row_blocks
        )
        self._column_tiles = slices(n_columns, columns)
        # Four rows of a million columns are no block that stays in cache. BLAS does not mind, but moments go
        # over a tile in float64 five times. Measured on 200 x 500 000, float32: 0.42 s whole, 0.20 s cut.
        cached = max(entries * self.dtype.itemsize // (8 * rows), 1)
        self._moment_tiles = slices(n_columns, columns if rows * columns <= entries else cached)
        self._tile_entries = min(rows, n_rows) * min(columns, n_columns)

    def scores_and_variances(
        self, weights: Array, weight_var: Array, **about: Unpack[About]
    ) -> tuple[Array, Array]:
        center, unscaled = about.get("center"), about.get("scale") is None
        by_rows = self._blas_walks and not self._by_columns and unscaled and center is not None
        many = self.shape[0] >= LEAST_ROWS_COMPILED and weights.ndim == 2
        loops = kernels.compiled("mixtures") if by_rows and many else None
        if loops is None:
            return super().scores_and_variances(weights, weight_var, **about)
        vectors = [np.ascontiguousarray(each.T, dtype=self.dtype) for each in (weights, weight_var)]
        scores, variances = (np.empty((self.shape[0], each.shape[1])) for each in (weights, weight_var))
        loops.of_rows(self.X, *vectors, np.asarray(center, dtype=self.dtype), scores, variances)
        return scores, variances

    def nonzero_weight(self, sample_weight: Array) -> Array:
        buffer, found = self._buffer(np.dtype(np.float64)), np.zeros(self.shape[1])
        for rows in self._row_blocks:
            for columns in self._moment_tiles:
                present = np.not_equal(self.X[rows, columns], 0, out=buffer(rows, columns))
                found[columns] += present.T @ sample_weight[rows]
        return found

    def identity(self) -> str:
        tiles = (self.X[rows, columns] for rows in self._row_blocks for columns in self._column_tiles)
        return f"entries of checksum {checksum(tiles):08x}"

    def columns(self, indices: ArrayLike) -> NDArray[np.float64]:
        return self.X[:, column_positions(indices, self.shape[1])].astype(np.float64)

    def dense_tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        return self.X[rows, columns].astype(np.float64)

    def _values(self) -> TileSource:
        if self._blas_walks:
            X = self.X
            return TileSource(lambda rows, columns: ((tile := X[rows, columns]), tile.T))
        buffer = self._buffer(self.dtype)

        def make(rows: slice, columns: slice) -> Tile:
            tile = buffer(rows, columns)
            np.copyto(tile, self.X[rows, columns], casting="same_kind")
            return tile, tile.T

        return TileSource(make)

    def _squares(self, center: Array | None = None, scale: Array | None = None) -> TileSource:
        buffer = self._buffer(self.dtype)
        center = None if center is None else np.asarray(center, dtype=self.dtype)
        # Divided in float64: 1 / scale may be beyond float32 where deviation / scale is not.
        inverse = None if scale is None else 1.0 / np.asarray(scale, dtype=np.float64)

        def make(rows: slice, columns: slice) -> Tile:
            tile = buffer(rows, columns)
            X = self.X[rows, columns]
            if center is None and inverse is None:
                np.multiply(X, X, out=tile, dtype=self.dtype)
                return tile, tile.T
            if center is None:
                np.copyto(tile, X, casting="same_kind")
            else:
                np.subtract(X, center[columns], out=tile, dtype=self.dtype)
            if inverse is not None:
                np.multiply(tile, inverse[columns], out=tile, casting="same_kind")
            np.multiply(tile, tile, out=tile)
            return tile, tile.T

        return TileSource(make)

    def _deviations(self, shift: Array | None) -> EntriesOf:
        buffer = self._buffer(np.dtype(np.float64))

        def entries_of(rows: slice, columns: slice) -> tuple[Array, AlongTile, Callable[[Array], Any]]:
            tile = buffer(rows, columns)
            np.subtract(self.X[rows, columns], 0.0 if shift is None else shift[columns], out=tile)
            return tile, lambda vector: vector[columns], np.transpose

        return entries_of

    def _buffer(self, dtype: np.dtype[Any]) -> Callable[[slice, slice], NDArray[Any]]:
        """One buffer for tiles of any size, in the layout of X."""
        flat = np.empty(self._tile_entries, dtype=dtype)

        def view(rows: slice, columns: slice) -> NDArray[Any]:
            n_rows, n_columns = rows.stop - rows.start, columns.stop - columns.start
            used = flat[: n_rows * n_columns]
            return used.reshape(n_columns, n_rows).T if self._by_columns else used.reshape(n_rows, n_columns)

        return view


def _blas_can_walk(X: NDArray[Any]) -> bool:
    """Whether one axis is contiguous and the other a forward stride, the layouts of BLAS matrices.

    NumPy would handle any other layout by copying the whole matrix or by plain loops.
    """
    if not X.flags.aligned or not X.dtype.isnative:
        return False
    (n_rows, n_columns), (row_stride, column_stride) = X.shape, X.strides
    size = X.itemsize
    by_rows = column_stride == size and row_stride >= n_columns * size and row_stride % size == 0
    by_columns = row_stride == size and column_stride >= n_rows * size and column_stride % size == 0
    return by_rows or by_columns


def in_memory(operator: Operator) -> bool:
    """Whether what all wrappers wrap is."""
    while (inner := getattr(operator, "operator", None)) is not None:
        operator = inner
    return isinstance(operator, Tiled)
