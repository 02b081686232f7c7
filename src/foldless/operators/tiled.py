"""The sweep of a matrix in memory, tile by tile; `Dense` and `Sparse` say what a tile is.

Rows are visited in blocks, and a block in tiles of columns. A matrix stored by rows has many blocks of
one tile each: the tile is still in cache when `row_step` returns, so X is read from memory once per
sweep. A matrix stored by columns has one block of many tiles: a score needs all columns and columns are
what is contiguous, so X is read twice, but never against its grain.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from foldless.beliefs import Array
from foldless.operators.base import Operator, RowStep, Sweep, normalized_sample_weight

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

# The matrix and its transpose: anything with `@`.
Tile = tuple[Any, Any]
# Lays a vector over columns out along the entries of a tile.
AlongTile = Callable[[Array], Array]
# From a fresh float64 copy of a tile's entries, which it may overwrite, to one or more arrays of that shape.
TileMap = Callable[[Array, AlongTile], tuple[Array, ...]]


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


class Tiled(Operator):
    """An operator whose tiles are in memory."""

    _row_blocks: list[slice]
    # The blocks of a sweep that forms no squares.
    _unbuffered_row_blocks: list[slice]
    _column_tiles: list[slice]

    @abstractmethod
    def _values(self) -> TileSource:
        """Tiles of X."""

    @abstractmethod
    def _squares(self, center: Array | None, scale: Array | None) -> TileSource:
        """Tiles of ((X - center) / scale)², minus the source's background."""

    @abstractmethod
    def _mapped_tile(self, rows: slice, columns: slice, function: TileMap) -> list[Any]:
        """Results of `function` on the stored entries of a tile, each as a transposed matrix."""

    @abstractmethod
    def _absent_share_and_shift(self, share: Array) -> tuple[Array, Array]:
        """For each column: the share of weight on entries that are not stored, and a value inside the data.

        Zero is inside the data wherever an entry with weight is absent.
        """

    def sweep(
        self,
        weights: Array,
        weight_var: Array | None,
        row_step: RowStep,
        *,
        center: Array | None = None,
        scale: Array | None = None,
    ) -> Sweep:
        values = self._values()
        weights = self._column_vector(weights)
        slope_sum = np.zeros(weights.shape)
        if weight_var is None:
            for rows in self._unbuffered_row_blocks:
                slopes, _ = row_step(rows, self._forth(values, rows, weights), None)
                self._back(values, rows, slopes, slope_sum)
            return Sweep(slope_sum, None)

        squares = self._squares(center, scale)
        shared_var = _background_sum(squares, weight_var)
        weight_var = self._column_vector(weight_var)
        curvature_sum = np.zeros(weight_var.shape)
        for rows in self._row_blocks:
            scores = self._forth(values, rows, weights)
            score_var = _with_background(self._forth(squares, rows, weight_var), shared_var)
            slopes, curvatures = row_step(rows, scores, score_var)
            if curvatures is None:
                raise TypeError(
                    "row_step returned no curvatures although the sweep has variances; "
                    "return them, or call sweep with weight_var=None"
                )
            self._back(values, rows, slopes, slope_sum)
            self._back(squares, rows, curvatures, curvature_sum)
            if squares.background is not None:
                curvature_sum += np.multiply.outer(squares.background, np.sum(curvatures, axis=0))
        return Sweep(slope_sum, curvature_sum)

    def scores(self, weights: Array) -> Array:
        values = self._values()
        weights = self._column_vector(weights)
        out = np.empty((self.shape[0], *weights.shape[1:]))
        for rows in self._row_blocks:
            out[rows] = self._forth(values, rows, weights)
        return out

    def adjoint(self, row_values: Array) -> Array:
        return self.transposed(np.asarray(row_values, dtype=np.float64)).slopes

    def transposed(
        self,
        slopes: Array,
        curvatures: Array | None = None,
        *,
        center: Array | None = None,
        scale: Array | None = None,
    ) -> Sweep:
        """The second half of a sweep, for rows whose slopes and curvatures are known."""
        values = self._values()
        slope_sum = np.zeros((self.shape[1], *slopes.shape[1:]))
        for rows in self._unbuffered_row_blocks:
            self._back(values, rows, slopes[rows], slope_sum)
        if curvatures is None:
            return Sweep(slope_sum, None)
        squares = self._squares(center, scale)
        curvature_sum = np.zeros((self.shape[1], *curvatures.shape[1:]))
        for rows in self._row_blocks:
            self._back(squares, rows, curvatures[rows], curvature_sum)
        if squares.background is not None:
            curvature_sum += np.multiply.outer(squares.background, np.sum(curvatures, axis=0))
        return Sweep(slope_sum, curvature_sum)

    def score_variances(
        self, weight_var: Array, *, center: Array | None = None, scale: Array | None = None
    ) -> Array:
        squares = self._squares(center, scale)
        shared_var = _background_sum(squares, weight_var)
        weight_var = self._column_vector(weight_var)
        out = np.empty((self.shape[0], *weight_var.shape[1:]))
        for rows in self._row_blocks:
            out[rows] = _with_background(self._forth(squares, rows, weight_var), shared_var)
        return out

    def column_moments(self, sample_weight: Array) -> tuple[Array, Array]:
        """Weighted mean and variance of each column.

        Two passes, both about a shift that lies inside the data (the first row that has weight), so
        that an offset costs no digits and a constant column has a variance of exactly zero:
            drift = Σ p (x - shift),   mean = shift + drift,
            variance = size² [Σ p d² - (Σ p d)²]   with   d = (x - shift - drift) / size,
        where size = Σ p |x - shift| keeps d² away from overflow and underflow.
        """
        share = normalized_sample_weight(sample_weight, self.shape[0])
        absent, shift = self._absent_share_and_shift(share)
        drift, variance = self._moments_about(shift, share, absent)
        return shift + drift, variance

    def moments_about(self, shift: Array, share: Array) -> tuple[Array, Array]:
        """Weighted mean and variance of x - shift, for shares that add up to one.

        Any row of the data will do as a shift, also one of another block of the same matrix: an offset
        that all rows share is then gone before anything is rounded.
        """
        absent, _ = self._absent_share_and_shift(share)
        return self._moments_about(shift, share, absent)

    # Values that are not finite, or whose squares are not, show in the moments.
    @np.errstate(over="ignore", invalid="ignore")
    def _moments_about(self, shift: Array, share: Array, absent: Array) -> tuple[Array, Array]:
        def deviations(x: Array, along: AlongTile) -> tuple[Array, ...]:
            x -= along(shift)
            return x, np.abs(x)

        drift, size = self._column_sums(deviations, share)
        # Entries that are not stored are zero.
        drift -= absent * shift
        size += absent * np.abs(shift)
        size[size == 0] = 1.0

        def ratios(x: Array, along: AlongTile) -> tuple[Array, ...]:
            x -= along(shift)
            x -= along(drift)
            x /= along(size)
            np.clip(x, -LARGEST_RATIO, LARGEST_RATIO, out=x)
            return x, x * x

        first, second = self._column_sums(ratios, share)
        rest = -(shift + drift) / size
        first += absent * rest
        second += absent * rest**2
        # size · (size · ...) and not size² · ...: the square alone may leave the range of float64.
        variance = size * (size * np.maximum(second - first**2, 0.0))
        return drift, variance

    def _column_sums(self, function: TileMap, row_vector: Array) -> list[Array]:
        """Σ over rows of row_vector times each result of `function`, in one pass and in float64."""
        sums: list[Array] = []
        for rows in self._row_blocks:
            for columns in self._column_tiles:
                parts = self._mapped_tile(rows, columns, function)
                sums = sums or [np.zeros(self.shape[1]) for _ in parts]
                for total in sums:
                    total[columns] += parts.pop(0) @ row_vector[rows]
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


def _product(matrix: Any, vectors: Array) -> Any:
    """matrix @ vectors. With several vectors BLAS takes a fifth less time if they come first, as rows."""
    if vectors.ndim == 1 or not isinstance(matrix, np.ndarray):
        return matrix @ vectors
    return (vectors.T @ matrix.T).T


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
