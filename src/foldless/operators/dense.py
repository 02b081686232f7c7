"""A NumPy array as an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.beliefs import Array
from foldless.io.checksums import checksum
from foldless.operators.base import column_positions, normalized_sample_weight
from foldless.operators.tiled import (
    BLOCK_BYTES,
    MIN_TILE_LINES,
    UNBUFFERED_BLOCKS,
    Tile,
    Tiled,
    TileMap,
    TileSource,
    product_dtype,
    slices,
)

# A block of rows of a column-major matrix is made of short runs, one per column. Runs of this many
# entries fill a memory page, and walking them is as fast as walking whole columns.
MIN_COLUMN_RUN = 512
# Sums of squares below this may have lost terms to underflow.
SMALLEST_SAFE_SQUARE = 1e-280


class Dense(Tiled):
    """A 2-d array in any layout: C or F order, strided, read-only, memory-mapped.

    float32 and float64 go to BLAS as they are. Other real dtypes, and strides that BLAS cannot walk, are
    brought into a buffer one tile at a time; X itself is never copied.
    """

    def __init__(self, X: ArrayLike, *, block_bytes: int = BLOCK_BYTES) -> None:
        self.X: NDArray[Any] = np.asarray(X)
        if self.X.ndim != 2:
            raise ValueError(f"X has shape {self.X.shape}; a matrix of samples by features is needed")
        if self.X.dtype.kind not in "fiub":
            raise TypeError(f"X has dtype {self.X.dtype}; real numbers are needed")
        if block_bytes < 1:
            raise ValueError(f"block_bytes must be positive; got {block_bytes}")
        n_rows, n_columns = self.X.shape
        self.shape = (n_rows, n_columns)
        self.dtype = product_dtype(self.X.dtype)
        self.block_bytes = block_bytes
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

    def some_rows(self, rows: NDArray[np.intp]) -> Dense:
        return type(self)(self.X[rows], block_bytes=self.block_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.X, self.block_bytes)

    def column_moments(self, sample_weight: Array) -> tuple[Array, Array]:
        """Weighted mean and variance of each column, in one pass where the range of float64 allows.

        Deviations d are taken from the row of largest weight p₁, so no digits are lost to an offset, and
        Σ p d² - (Σ p d)² loses at most the factor 1 / p₁, of the order of the number of rows. Columns whose
        squares over- or underflow have every column done in the two scaled passes of `Tiled`.
        """
        share = normalized_sample_weight(sample_weight, self.shape[0])
        shift = self.X[np.argmax(share)].astype(np.float64)
        drift, variance = self.moments_about(shift, share)
        return shift + drift, variance

    def moments_about(self, shift: Array, share: Array) -> tuple[Array, Array]:
        buffer = self._buffer(np.dtype(np.float64))
        first, second = np.zeros(self.shape[1]), np.zeros(self.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            for rows in self._row_blocks:
                for columns in self._moment_tiles:
                    deviation = buffer(rows, columns)
                    np.subtract(self.X[rows, columns], shift[columns], out=deviation)
                    first[columns] += deviation.T @ share[rows]
                    np.multiply(deviation, deviation, out=deviation)
                    second[columns] += deviation.T @ share[rows]
        varies = first != 0
        if not np.all(np.isfinite(second)) or np.any(second[varies] < SMALLEST_SAFE_SQUARE):
            return super().moments_about(shift, share)
        return first, np.maximum(second - first * first, 0.0)

    def nonzero_weight(self, sample_weight: Array) -> Array:
        buffer, found = self._buffer(np.dtype(np.float64)), np.zeros(self.shape[1])
        for rows in self._row_blocks:
            for columns in self._moment_tiles:
                present = buffer(rows, columns)
                np.not_equal(self.X[rows, columns], 0, out=present)
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

    def _squares(self, center: Array | None, scale: Array | None) -> TileSource:
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

    def _mapped_tile(self, rows: slice, columns: slice, function: TileMap) -> list[Any]:
        entries = self.X[rows, columns].astype(np.float64)
        return [part.T for part in function(entries, lambda vector: vector[columns])]

    def _absent_share_and_shift(self, share: Array) -> tuple[Array, Array]:
        return np.zeros(self.shape[1]), self.X[np.argmax(share > 0)].astype(np.float64)

    def _buffer(self, dtype: np.dtype[Any]) -> Callable[[slice, slice], NDArray[Any]]:
        """One buffer for tiles of any size, in the layout of X."""
        flat = np.empty(self._tile_entries, dtype=dtype)

        def view(rows: slice, columns: slice) -> NDArray[Any]:
            n_rows, n_columns = rows.stop - rows.start, columns.stop - columns.start
            used = flat[: n_rows * n_columns]
            return used.reshape(n_columns, n_rows).T if self._by_columns else used.reshape(n_rows, n_columns)

        return view


def _restored(kind: type[Dense], X: NDArray[Any], block_bytes: int) -> Dense:
    return kind(X, block_bytes=block_bytes)


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
