"""A SciPy sparse matrix as an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from foldless import kernels
from foldless.beliefs import Array
from foldless.io.files import checksum
from foldless.operators.base import About, RowStep, Sweep, column_positions, needed
from foldless.operators.dense import BLOCK_BYTES, AlongTile, EntriesOf, Tile, Tiled, TileSource, slices

# Of a sparse matrix, before stored entries are counted.
ROWS_TO_COMPARE = 10
# Of products of rows with rows, so many at a time.
ROWS_OF_GRAM = 256
# Where no squares are formed, blocks are this many times larger: sparse products are too slow for caches to
# matter, and every block is a round of small array operations in `row_step`. Beyond, these leave the cache.
LARGER_BLOCKS = 4
# So many columns of weights are faster two by two, in compiled loops.
FEW_COMPILED = 4
# Of compiled sweeps: in how many parts, at most.
MOST_PARTS = 4
# Fewer entries than these are done before a thread has begun.
LEAST_ENTRIES_PER_PART = 1 << 19
# Accumulators are set to zero and added up; a part should have many more entries than they have numbers.
LEAST_ENTRIES_PER_SUM = 4
# Entries of a block (12 MB with their places): it must survive in the last cache until the way back, and
# every block is a round of small array operations in `row_step`.
BLOCK_ENTRIES = 1 << 20
# Loading numba takes as long as two hundred sweeps over as many entries without it.
LEAST_ENTRIES = 1 << 18

# A pair of arrays: for products with entries, and for those with squares, which is empty if there are none.
Both = tuple[Array, Array]
NONE = np.empty(0)


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
        if not X.has_canonical_format:
            # Two stored entries for one place add up, and the square of a sum is not the sum of squares.
            # This is the one case in which X is copied.
            X = X.copy()
            X.sum_duplicates()
        super().__init__(X, block_bytes)
        n_rows, n_columns = self.shape
        self._by_columns = X.format == "csc"
        n_lines = n_columns if self._by_columns else n_rows
        self._lines = _slices_of_entries(X.indptr, n_lines, block_bytes // self.dtype.itemsize)
        if self._by_columns:
            self._row_blocks = self._unbuffered_row_blocks = [slice(0, n_rows)]
            self._column_tiles = self._moment_tiles = self._lines
        else:
            larger = LARGER_BLOCKS * block_bytes // self.dtype.itemsize
            self._row_blocks = self._lines
            self._unbuffered_row_blocks = _slices_of_entries(X.indptr, n_rows, larger)
            self._column_tiles = self._moment_tiles = [slice(0, n_columns)]
        # Views of X need no memory but take time to set up, so they are kept; converted tiles are not.
        self._views: dict[tuple[int, int, int], Tile] | None = {} if X.dtype == self.dtype else None

    @cached_property
    def _complete(self) -> NDArray[np.bool_]:
        """Columns of which every entry is stored."""
        if not self._by_columns:
            # Most often a few rows have no column in common, and then there is none.
            n_rows = min(self.shape[0], ROWS_TO_COMPARE)
            stored = np.bincount(self.X.indices[: self.X.indptr[n_rows]], minlength=1)
            if n_rows and stored.max() < n_rows:
                return np.zeros(self.shape[1], dtype=bool)
        return np.asarray(self._stored_per_column() == self.shape[0])

    def identity(self) -> str:
        stored = (self.X.data, self.X.indices, self.X.indptr)
        return f"entries of checksum {checksum(stored):08x}"

    def sweep(
        self, weights: Array, weight_var: Array | None, row_step: RowStep, **about: Unpack[About]
    ) -> Sweep:
        # Compiled loops have one score per row; scales and columns without a zero are rare, and not for them.
        simple = np.ndim(weights) == 1 and (
            weight_var is None
            or (np.ndim(weight_var) == 1 and about.get("scale") is None and not self._complete.any())
        )
        if simple and self._compiled is not None:
            weights = self._column_vector(weights)
            return self._compiled.sweep(weights, weight_var, row_step, about.get("center"))
        return super().sweep(weights, weight_var, row_step, **about)

    def scores_and_variances(
        self, weights: Array, weight_var: Array, **about: Unpack[About]
    ) -> tuple[Array, Array]:
        other = weights.ndim == 1 or self._by_columns or about.get("scale") is not None
        if other or self._compiled is None or self._complete.any():
            return super().scores_and_variances(weights, weight_var, **about)
        return self._compiled.scores_and_variances(weights, weight_var, about.get("center"))

    @cached_property
    def _compiled(self) -> CompiledSparse | None:
        """If there is numba and the matrix is large and of floats."""
        X = self.X
        if X.nnz < LEAST_ENTRIES or X.dtype not in (np.float32, np.float64) or not X.data.flags.aligned:
            return None
        loops = kernels.compiled("sparse")
        return None if loops is None else CompiledSparse(X, loops)

    def columns(self, indices: ArrayLike) -> NDArray[np.float64]:
        chosen = self.X[:, column_positions(indices, self.shape[1])]
        return np.asarray(chosen.toarray(), dtype=np.float64)

    def dense_tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        return np.asarray(self.X[rows, columns].toarray(), dtype=np.float64)

    def products_by_columns(
        self, rows: Array, positions: NDArray[np.intp], tile_bytes: int
    ) -> Iterator[tuple[NDArray[np.intp], Array]]:
        """By products over stored entries, whose sums of a column are all of its tile that is written."""
        by_columns, row_values = self.X.tocsc().T[positions], np.ascontiguousarray(rows.T)
        step = max(tile_bytes // (8 * max(rows.shape[0], 1)), 1)
        for some in slices(positions.size, step):
            yield positions[some], (by_columns[some] @ row_values).T

    def centred_gram(self, weight_var: Array, center: Array) -> NDArray[np.float64]:
        """Over stored entries; columns without a zero, whose centre may be far off, are dense."""
        var = np.where(self._complete, 0.0, weight_var)
        entries = self.X.astype(np.float64)
        scaled = entries @ sparse.diags_array(var)
        products = np.empty((self.shape[0], self.shape[0]))
        for rows in slices(self.shape[0], ROWS_OF_GRAM):
            # Of a symmetric matrix little more than one half is made.
            part = (scaled[rows] @ entries[: rows.stop].T).toarray()
            products[rows, : rows.stop], products[: rows.stop, rows] = part, part.T
        of_center = scaled @ center
        products -= of_center[:, np.newaxis]
        products += float(var @ center**2) - of_center
        if self._complete.any():
            tile = self.columns(np.flatnonzero(self._complete)) - center[self._complete]
            products += (tile * weight_var[self._complete]) @ tile.T
        return products

    def _values(self) -> TileSource:
        def make(rows: slice, columns: slice) -> Tile:
            key = rows.start, rows.stop, columns.start
            if self._views is not None and key in self._views:
                return self._views[key]
            tile = self._tile(rows, columns, self._entries(rows, columns))
            if self._views is not None:
                self._views[key] = tile
            return tile

        return TileSource(make)

    def _squares(self, center: Array | None = None, scale: Array | None = None) -> TileSource:
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

    def _deviations(self, shift: Array | None) -> EntriesOf:
        def entries_of(rows: slice, columns: slice) -> tuple[Array, AlongTile, Callable[[Array], Any]]:
            entries = self._entries(rows, columns).astype(np.float64)
            along = self._along(rows, columns)
            if shift is not None:
                entries -= along(shift)
            return entries, along, lambda entries: self._tile(rows, columns, entries)[1]

        return entries_of

    def nonzero_weight(self, sample_weight: Array) -> Array:
        # Zeros may be stored, too.
        return self._column_sums(None, sample_weight, lambda x, along: np.not_equal(x, 0, out=x))[0]

    def _absent_share(self, share: Array) -> Array:
        both = np.column_stack([share, share > 0])
        (present,) = self._column_sums(None, both, lambda x, along: x.fill(1.0))
        # Counted in whole rows, since 1 - Σ p would leave a rounding error where nothing is absent.
        complete = present[:, 1] == np.count_nonzero(share)
        return np.where(complete, 0.0, np.maximum(1.0 - present[:, 0], 0.0))

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


def _slices_of_entries(starts: NDArray[Any], n_lines: int, entries: int) -> list[slice]:
    """Consecutive lines cut so that each slice stores about `entries` entries, and at least one line."""
    if int(starts[-1]) - int(starts[0]) <= entries:
        return slices(n_lines, max(n_lines, 1))
    targets = np.arange(int(starts[0]), int(starts[-1]), max(entries, 1))[1:]
    cuts = np.unique(np.concatenate([[0], np.searchsorted(starts, targets), [n_lines]]))
    return [slice(int(a), int(b)) for a, b in pairwise(cuts)]


class CompiledSparse:
    """Sweeps by compiled loops, with one score for each row, and squares about a centre without a scale.

    A line is what is contiguous: a row of CSR, a column of CSC. Forth, scores are gathered along rows or
    scattered from columns; back, it is the other way round, so that two loops serve both formats and nothing
    is transposed. A block of entries goes forth and back while it is in cache.

    Lines are divided into parts of about as many entries. Parts may run in threads: what is gathered belongs
    to one part only, and what is scattered goes to an accumulator of the part's own; these are added up in
    order. How many parts there are depends on the matrix alone: results are the same bits for any number of
    threads.
    """

    def __init__(self, X: Any, loops: Any) -> None:
        # Memory maps as the plain arrays that they are.
        self._lines = tuple(np.asarray(part) for part in (X.indptr, X.indices, X.data))
        self._loops = loops
        self._shape = X.shape
        self._columns_are_lines = X.format == "csc"
        n_scattered = X.shape[0] if self._columns_are_lines else X.shape[1]
        entries_per_part = max(LEAST_ENTRIES_PER_PART, LEAST_ENTRIES_PER_SUM * n_scattered)
        self._n_parts = max(min(X.nnz // entries_per_part, MOST_PARTS), 1)
        # Lines of a block, cut where its parts begin. CSC is one block: a score needs all columns.
        n_lines = X.indptr.size - 1
        n_blocks = 1 if self._columns_are_lines else max(-(-X.nnz // BLOCK_ENTRIES), 1)
        targets = np.linspace(0, X.nnz, n_blocks * self._n_parts + 1)
        cuts = np.searchsorted(X.indptr, targets)
        cuts[0], cuts[-1] = 0, n_lines
        self._blocks = [cuts[i : i + self._n_parts + 1] for i in range(0, cuts.size - 1, self._n_parts)]

    def sweep(
        self, weights: Array, weight_var: Array | None, row_step: RowStep, center: Array | None
    ) -> Sweep:
        n_rows, n_columns = self._shape
        with_squares = weight_var is not None
        var = NONE if weight_var is None else _vector(weight_var)
        # (x - c)² as x (x - 2c), which is zero for entries that are not stored, and c² for all; see `Sparse`.
        about = np.zeros_like(var) if center is None or not with_squares else _vector(center)
        background = np.square(about)
        both = (_vector(weights), var)
        # Of all rows: scores and their variances, then slopes and curvatures.
        said, answers = ((np.empty(n_rows), np.empty(n_rows if with_squares else 0)) for _ in range(2))
        totals = self._totals(n_columns, with_squares)
        for cuts in self._blocks:
            rows = slice(0, n_rows) if self._columns_are_lines else slice(int(cuts[0]), int(cuts[-1]))
            if self._columns_are_lines:
                sums = self._totals(n_rows, with_squares)
                self._scatter(cuts, 2.0 * about, both, sums)
                for out, total in zip(said, sums, strict=True):
                    out[:] = total.sum(axis=0)
            else:
                self._gather(cuts, 2.0 * about, both, said)
            score_var = None
            if with_squares:
                # Rounding must not leave a variance negative.
                score_var = np.maximum(said[1][rows] + float(background @ var), 0.0)
            slopes, curvatures = row_step(rows, said[0][rows], score_var)
            answers[0][rows] = slopes
            if with_squares:
                answers[1][rows] = needed(curvatures)
            if self._columns_are_lines:
                self._gather(cuts, 2.0 * about, answers, (totals[0][0], totals[1][0]))
            else:
                self._scatter(cuts, 2.0 * about, answers, totals)
        slope_sum, curvature_sum = (total.sum(axis=0) for total in totals)
        if not with_squares:
            return Sweep(slope_sum, None)
        return Sweep(slope_sum, curvature_sum + background * float(np.sum(answers[1])))

    def scores_and_variances(
        self, weights: Array, weight_var: Array, center: Array | None
    ) -> tuple[Array, Array]:
        """Of CSR, (rows, columns) each."""
        n_means, n_vars = weights.shape[1], weight_var.shape[1]
        center = np.zeros(self._shape[1]) if center is None else center
        scores, variances = np.empty((self._shape[0], n_means)), np.empty((self._shape[0], n_vars))
        if n_means == n_vars == 1:
            both = _vector(weights[:, 0]), _vector(weight_var[:, 0])
            out = scores[:, 0], variances[:, 0]
            self._loops.gather(*self._lines, 0, self._shape[0], False, 2.0 * center, *both, *out)
        elif max(n_means, n_vars) > FEW_COMPILED:
            both = _vector(weights), _vector(weight_var)
            self._loops.gather_many(*self._lines, *both, 2.0 * center, scores, variances)
        else:
            columns, found = np.zeros((self._shape[1], 5)), np.empty((self._shape[0], 4))
            columns[:, 4] = 2.0 * center
            for first in range(0, max(n_means, n_vars), 2):
                for at, given in ((0, weights), (2, weight_var)):
                    two = given[:, first : first + 2]
                    columns[:, at : at + 2] = 0.0
                    columns[:, at : at + two.shape[1]] = two
                self._loops.gather_two(*self._lines, columns, found)
                scores[:, first : first + 2] = found[:, : min(max(n_means - first, 0), 2)]
                variances[:, first : first + 2] = found[:, 2 : 2 + min(max(n_vars - first, 0), 2)]
        return scores, np.maximum(variances + np.square(center) @ weight_var, 0.0)

    def _totals(self, size: int, with_squares: bool) -> Both:
        """An accumulator for every part, of products and of products with squares."""
        return np.zeros((self._n_parts, size)), np.zeros((self._n_parts, size if with_squares else 0))

    def _gather(self, cuts: Any, twice_center: Array, vectors: Both, out: Both) -> None:
        shared = (self._columns_are_lines, twice_center, *vectors, *out)
        tasks = [(*self._lines, int(a), int(b), *shared) for a, b in pairwise(cuts)]
        kernels.in_threads(self._loops.gather, tasks)

    def _scatter(self, cuts: Any, twice_center: Array, values: Both, totals: Both) -> None:
        shared = (self._columns_are_lines, twice_center, *values)
        parts = zip(pairwise(cuts), *totals, strict=True)
        tasks = [(*self._lines, int(a), int(b), *shared, *both) for (a, b), *both in parts]
        kernels.in_threads(self._loops.scatter, tasks)


def _vector(values: Array) -> NDArray[np.float64]:
    return np.ascontiguousarray(values, dtype=np.float64)
