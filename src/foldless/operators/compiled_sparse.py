"""The sweep of a sparse matrix by compiled loops: a block of entries forth and back while it is in cache.

A line is what is contiguous: a row of CSR, a column of CSC. Forth, scores are gathered along rows or
scattered from columns; back, it is the other way round, so that two loops serve both formats and nothing is
transposed.

Lines are divided into parts of about as many entries. Parts may run in threads: what is gathered belongs to
one part only, and what is scattered goes to an accumulator of the part's own; these are added up in order.
The matrix alone says how many parts there are, so that results are the same bits for any number of threads.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless import kernels
from foldless.beliefs import Array
from foldless.operators.base import RowStep, Sweep

MOST_PARTS = 4
# Fewer entries than these are done before a thread has begun.
LEAST_ENTRIES_PER_PART = 1 << 19
# Accumulators are set to zero and added up; a part should have many more entries than they have numbers.
LEAST_ENTRIES_PER_SUM = 4
# Entries of a block (12 MB with their places): it must survive in the last cache until the way back, and
# every block is a round of small array operations in `row_step`.
BLOCK_ENTRIES = 1 << 20
# Loading numba takes longer than many sweeps over fewer entries than these.
LEAST_ENTRIES = 1 << 16

# A pair of arrays: for products with entries, and for those with squares, which is empty if there are none.
Both = tuple[Array, Array]
NONE = np.empty(0)


class Lines(NamedTuple):
    """The arrays of a CSR or CSC matrix."""

    starts: NDArray[Any]
    places: NDArray[Any]
    data: NDArray[Any]


def compiled_sparse(X: Any) -> CompiledSparse | None:
    """The compiled form of a matrix, if there is numba and the matrix is large and of floats."""
    if X.nnz < LEAST_ENTRIES or X.dtype not in (np.float32, np.float64) or not X.data.flags.aligned:
        return None
    loops = kernels.compiled("sparse")
    return None if loops is None else CompiledSparse(X, loops)


class CompiledSparse:
    """Sweeps with one score for each row, and squares about a centre without a scale."""

    def __init__(self, X: Any, loops: Any) -> None:
        # Memory maps as the plain arrays that they are.
        self._lines = Lines(*(np.asarray(part) for part in (X.indptr, X.indices, X.data)))
        self._loops = loops
        self._shape = X.shape
        self._columns_are_lines = X.format == "csc"
        n_scattered = X.shape[0] if self._columns_are_lines else X.shape[1]
        self._n_parts = int(
            np.clip(
                min(X.nnz // LEAST_ENTRIES_PER_PART, X.nnz // (LEAST_ENTRIES_PER_SUM * max(n_scattered, 1))),
                1,
                MOST_PARTS,
            )
        )
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
        said, answers = (_of_rows(n_rows, with_squares) for _ in range(2))
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
                if curvatures is None:
                    raise TypeError(
                        "row_step returned no curvatures although the sweep has variances; "
                        "return them, or call sweep with weight_var=None"
                    )
                answers[1][rows] = curvatures
            if self._columns_are_lines:
                self._gather(cuts, 2.0 * about, answers, (totals[0][0], totals[1][0]))
            else:
                self._scatter(cuts, 2.0 * about, answers, totals)
        slope_sum, curvature_sum = (total.sum(axis=0) for total in totals)
        if not with_squares:
            return Sweep(slope_sum, None)
        return Sweep(slope_sum, curvature_sum + background * float(np.sum(answers[1])))

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


def _of_rows(n_rows: int, with_squares: bool) -> Both:
    return np.empty(n_rows), np.empty(n_rows if with_squares else 0)


def _vector(values: Array) -> NDArray[np.float64]:
    return np.ascontiguousarray(values, dtype=np.float64)
