"""A SciPy sparse matrix as an operator."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from foldless.beliefs import Array
from foldless.io.checksums import checksum
from foldless.operators.base import RowStep, Sweep, column_positions
from foldless.operators.compiled_sparse import CompiledSparse, compiled_sparse
from foldless.operators.tiled import (
    BLOCK_BYTES,
    AlongTile,
    Tile,
    Tiled,
    TileMap,
    TileSource,
    product_dtype,
    slices,
)

# Where no squares are formed, blocks are this many times larger: sparse products are too slow for caches to
# matter, and every block is a round of small array operations in `row_step`. Beyond, these leave the cache.
LARGER_BLOCKS = 4


class Sparse(Tiled):
    """A CSR or CSC matrix or array, used in the format it has.

    CSR is swept in blocks of rows. CSC is a single block: its entries are ordered by column, so a block of
    rows could only be found by searching every column. Squares are formed for one tile at a time.

    Centred squares of an entry that is not stored are center², the same for a whole column. That
    background is added as a sum over columns, and stored entries carry the difference to it:
        Σ_j (x_ij - c_j)² v_j = Σ_stored [(x_ij - c_j)² - c_j²] v_j + Σ_j c_j² v_j.
    The difference cancels if c² is far above the column's variance. It cannot be by more than the number
    of rows in a column with a zero in it (if c is its mean), and a column without has no background.
    """

    def __init__(self, X: Any, *, block_bytes: int = BLOCK_BYTES) -> None:
        if not sparse.issparse(X) or X.format not in ("csr", "csc"):
            raise TypeError(
                "Sparse needs a scipy.sparse matrix in CSR or CSC format; "
                f"got {getattr(X, 'format', type(X).__name__)}. "
                "Use operator_from(X), which converts other formats to CSR"
            )
        if X.dtype.kind not in "fiub":
            raise TypeError(f"X has dtype {X.dtype}; real numbers are needed")
        if block_bytes < 1:
            raise ValueError(f"block_bytes must be positive; got {block_bytes}")
        self.block_bytes = block_bytes
        if not X.has_canonical_format:
            # Two stored entries for one place add up, and the square of a sum is not the sum of squares.
            # This is the one case in which X is copied.
            X = X.copy()
            X.sum_duplicates()
        self.X = X
        n_rows, n_columns = X.shape
        self.shape = (n_rows, n_columns)
        self.dtype = product_dtype(X.dtype)

        self._by_columns = X.format == "csc"
        n_lines = n_columns if self._by_columns else n_rows
        self._lines = _slices_of_entries(X.indptr, n_lines, block_bytes // self.dtype.itemsize)
        whole = slice(0, n_rows if self._by_columns else n_columns)
        self._row_blocks = [whole] if self._by_columns else self._lines
        self._unbuffered_row_blocks = (
            [whole]
            if self._by_columns
            else _slices_of_entries(X.indptr, n_rows, LARGER_BLOCKS * block_bytes // self.dtype.itemsize)
        )
        self._column_tiles = self._lines if self._by_columns else [whole]

        # Columns of which every entry is stored.
        self._complete = self._stored_per_column() == n_rows

        # Views of X need no memory but take time to set up, so they are kept; converted tiles are not.
        self._views: dict[tuple[int, int, int], Tile] | None = None
        if X.dtype == self.dtype:
            self._views = {
                _key(rows, columns): self._tile(rows, columns, self._entries(rows, columns))
                for rows in (*self._row_blocks, *self._unbuffered_row_blocks)
                for columns in self._column_tiles
            }

    def some_rows(self, rows: NDArray[np.intp]) -> Sparse:
        return type(self)(self.X[rows], block_bytes=self.block_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.X, self.block_bytes)

    def identity(self) -> str:
        stored = (self.X.data, self.X.indices, self.X.indptr)
        return f"entries of checksum {checksum(stored):08x}"

    def sweep(
        self,
        weights: Array,
        weight_var: Array | None,
        row_step: RowStep,
        *,
        center: Array | None = None,
        scale: Array | None = None,
    ) -> Sweep:
        # Compiled loops know one score per row; scales and columns without a zero are rare, and not for them.
        simple = np.ndim(weights) == 1 and (
            weight_var is None or (np.ndim(weight_var) == 1 and scale is None and not self._complete.any())
        )
        if simple and self._compiled is not None:
            weights = self._column_vector(weights)
            return self._compiled.sweep(weights, weight_var, row_step, center)
        return super().sweep(weights, weight_var, row_step, center=center, scale=scale)

    @cached_property
    def _compiled(self) -> CompiledSparse | None:
        return compiled_sparse(self.X)

    def columns(self, indices: ArrayLike) -> NDArray[np.float64]:
        chosen = self.X[:, column_positions(indices, self.shape[1])]
        return np.asarray(chosen.toarray(), dtype=np.float64)

    def dense_tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        # Along the grain first: rows of CSR and columns of CSC are found without a search.
        part = self.X[:, columns][rows] if self._by_columns else self.X[rows][:, columns]
        return np.asarray(part.toarray(), dtype=np.float64)

    def _values(self) -> TileSource:
        if self._views is not None:
            views = self._views
            return TileSource(lambda rows, columns: views[_key(rows, columns)])
        return TileSource(lambda rows, columns: self._tile(rows, columns, self._entries(rows, columns)))

    def _squares(self, center: Array | None, scale: Array | None) -> TileSource:
        inverse = None if scale is None else 1.0 / np.asarray(scale, dtype=np.float64)
        background = twice_center = subtracted = None
        if center is not None:
            # Rounded first: what tiles subtract must be what sums add.
            center = np.asarray(center, dtype=self.dtype)
            zero_after = center.astype(np.float64)
            zero_after = zero_after if inverse is None else zero_after * inverse
            background = np.where(self._complete, 0.0, zero_after**2)
            if inverse is None and not self._complete.any():
                # (x - c)² - c² is x (x - 2c): the background need not be laid out.
                twice_center = 2 * center
            else:
                subtracted = background.astype(self.dtype)
                background = subtracted.astype(np.float64)

        def make(rows: slice, columns: slice) -> Tile:
            entries = self._entries(rows, columns)
            along = self._along(rows, columns)
            if twice_center is not None:
                squared = along(twice_center)
                np.subtract(entries, squared, out=squared)
                squared *= entries
                return self._tile(rows, columns, squared)
            squared = entries.astype(self.dtype) if center is None else entries - along(center)
            if inverse is not None:
                np.multiply(squared, along(inverse), out=squared, casting="same_kind")
            np.multiply(squared, squared, out=squared)
            if subtracted is not None:
                squared -= along(subtracted)
            return self._tile(rows, columns, squared)

        return TileSource(make, background)

    def _mapped_tile(self, rows: slice, columns: slice, function: TileMap) -> list[Any]:
        entries = self._entries(rows, columns).astype(np.float64)
        parts = function(entries, self._along(rows, columns))
        return [self._tile(rows, columns, part)[1] for part in parts]

    def _absent_share_and_shift(self, share: Array) -> tuple[Array, Array]:
        weighted = (share > 0).astype(np.float64)

        def presence(x: Array, along: AlongTile) -> tuple[Array, ...]:
            return (np.ones_like(x),)

        # Counted in whole rows, since 1 - Σ p would leave a rounding error where nothing is absent.
        complete = self._column_sums(presence, weighted)[0] == weighted.sum()
        absent = 1.0 - self._column_sums(presence, share)[0]
        first_row = np.zeros(self.shape[0])
        first_row[np.argmax(share > 0)] = 1.0
        # A sum with a single term that is not zero: exact.
        shift = self._column_sums(lambda x, along: (x,), first_row)[0]
        return np.where(complete, 0.0, np.maximum(absent, 0.0)), np.where(complete, shift, 0.0)

    def nonzero_weight(self, sample_weight: Array) -> Array:
        # Zeros may be stored, too.
        return self._column_sums(lambda x, along: ((x != 0).astype(np.float64),), sample_weight)[0]

    def _stored_per_column(self) -> NDArray[np.integer[Any]]:
        if self._by_columns:
            return np.diff(self.X.indptr)
        count = np.zeros(self.shape[1], dtype=np.intp)
        for rows in self._row_blocks:
            # Block by block, since bincount brings 32-bit indices to 64 bits first.
            stored = self._stretch(rows, self._column_tiles[0])[1]
            count += np.bincount(self.X.indices[stored], minlength=self.shape[1])
        return count

    def _stretch(self, rows: slice, columns: slice) -> tuple[slice, slice]:
        """The rows (CSR) or columns (CSC) of a tile, and where their entries are stored."""
        lines = columns if self._by_columns else rows
        return lines, slice(int(self.X.indptr[lines.start]), int(self.X.indptr[lines.stop]))

    def _entries(self, rows: slice, columns: slice) -> NDArray[Any]:
        entries: NDArray[Any] = self.X.data[self._stretch(rows, columns)[1]]
        # A tile at a time, because SciPy would convert all of X for every product.
        return entries.astype(self.dtype, copy=False)

    def _along(self, rows: slice, columns: slice) -> AlongTile:
        lines, stored = self._stretch(rows, columns)
        if self._by_columns:
            counts = np.diff(self.X.indptr[lines.start : lines.stop + 1])
            return lambda vector: np.repeat(vector[columns], counts)
        indices = self.X.indices[stored]
        return lambda vector: vector.take(indices)

    def _tile(self, rows: slice, columns: slice, entries: NDArray[Any]) -> Tile:
        """A tile with these entries, and its transpose; both share X's indices.

        Attributes are set on an empty matrix since SciPy's constructors (and `.T`, which calls them) copy
        arrays that are views of less than half of another array.
        """
        lines, stored = self._stretch(rows, columns)
        starts = self.X.indptr[lines.start : lines.stop + 1]
        if stored.start:
            starts = starts - starts.dtype.type(stored.start)
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        kind, transposed_kind = sparse.csr_array, sparse.csc_array
        if self._by_columns:
            kind, transposed_kind = transposed_kind, kind
        tiles = kind(shape, dtype=entries.dtype), transposed_kind(shape[::-1], dtype=entries.dtype)
        for tile in tiles:
            tile.data, tile.indices, tile.indptr = entries, self.X.indices[stored], starts
        return tiles


def _key(rows: slice, columns: slice) -> tuple[int, int, int]:
    return rows.start, rows.stop, columns.start


def _restored(kind: type[Sparse], X: Any, block_bytes: int) -> Sparse:
    return kind(X, block_bytes=block_bytes)


def _slices_of_entries(starts: NDArray[Any], n_lines: int, entries: int) -> list[slice]:
    """Consecutive lines cut so that each slice stores about `entries` entries, and at least one line."""
    if int(starts[-1]) - int(starts[0]) <= entries:
        return slices(n_lines, max(n_lines, 1))
    targets = np.arange(int(starts[0]), int(starts[-1]), max(entries, 1))[1:]
    cuts = np.unique(np.concatenate([[0], np.searchsorted(starts, targets), [n_lines]]))
    return [slice(int(a), int(b)) for a, b in pairwise(cuts)]
