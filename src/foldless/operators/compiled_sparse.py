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
        weights = _vector(weights)
        squares = None if weight_var is None else _Squares(center, _vector(weight_var))
        scores = np.empty(n_rows)
        score_var = None if squares is None else np.empty(n_rows)
        slopes = np.empty(n_rows)
        curvatures = None if squares is None else np.empty(n_rows)
        totals = self._totals(n_columns, squares is not None)
        for cuts in self._blocks:
            rows = slice(0, n_rows) if self._columns_are_lines else slice(int(cuts[0]), int(cuts[-1]))
            if self._columns_are_lines:
                sums = self._totals(n_rows, squares is not None)
                self._scatter(cuts, squares, weights, None if squares is None else squares.weight_var, sums)
                scores = sums[0].sum(axis=0)
                score_var = None if squares is None else sums[1].sum(axis=0)
            else:
                self._gather(
                    cuts, squares, weights, None if squares is None else squares.weight_var, scores, score_var
                )
            if squares is not None:
                assert score_var is not None
                score_var[rows] += squares.shared_var
                # Rounding must not leave a variance negative.
                np.maximum(score_var[rows], 0.0, out=score_var[rows])
            block_slopes, block_curvatures = row_step(
                rows, scores[rows], None if score_var is None else score_var[rows]
            )
            slopes[rows] = block_slopes
            if curvatures is not None:
                if block_curvatures is None:
                    raise TypeError(
                        "row_step returned no curvatures although the sweep has variances; "
                        "return them, or call sweep with weight_var=None"
                    )
                curvatures[rows] = block_curvatures
            if self._columns_are_lines:
                self._gather(cuts, squares, slopes, curvatures, totals[0][0], totals[1][0])
            else:
                self._scatter(cuts, squares, slopes, curvatures, totals)
        slope_sum = totals[0].sum(axis=0)
        if squares is None or curvatures is None:
            return Sweep(slope_sum, None)
        return Sweep(slope_sum, totals[1].sum(axis=0) + squares.background * float(np.sum(curvatures)))

    def _totals(self, size: int, with_squares: bool) -> tuple[Array, Array]:
        """An accumulator for every part, of products and of products with squares."""
        return np.zeros((self._n_parts, size)), np.zeros((self._n_parts, size if with_squares else 0))

    def _gather(
        self,
        cuts: Any,
        squares: _Squares | None,
        vector: Array,
        square_vector: Any,
        out: Any,
        square_out: Any,
    ) -> None:
        parts = [(*self._lines, int(a), int(b)) for a, b in pairwise(cuts)]
        if squares is None:
            kernels.in_threads(self._loops.gather, [(*part, vector, out) for part in parts])
            return
        with_center = (self._columns_are_lines, squares.twice_center)
        kernels.in_threads(
            self._loops.gather_both,
            [(*part, *with_center, vector, square_vector, out, square_out) for part in parts],
        )

    def _scatter(
        self,
        cuts: Any,
        squares: _Squares | None,
        values: Array,
        square_values: Any,
        totals: tuple[Array, Array],
    ) -> None:
        parts = [(*self._lines, int(a), int(b)) for a, b in pairwise(cuts)]
        if squares is None:
            kernels.in_threads(
                self._loops.scatter,
                [(*part, values, total) for part, total in zip(parts, totals[0], strict=True)],
            )
            return
        with_center = (self._columns_are_lines, squares.twice_center)
        kernels.in_threads(
            self._loops.scatter_both,
            [
                (*part, *with_center, values, square_values, *both)
                for part, both in zip(parts, zip(*totals, strict=True), strict=True)
            ],
        )


class _Squares:
    """(x - c)² as x (x - 2c), which is zero for entries that are not stored, and c² for all; see `Sparse`."""

    def __init__(self, center: Array | None, weight_var: Array) -> None:
        self.weight_var = weight_var
        center = np.zeros_like(weight_var) if center is None else _vector(center)
        self.twice_center = 2.0 * center
        self.background = np.square(center)
        self.shared_var = float(self.background @ weight_var)


def _vector(values: Array) -> NDArray[np.float64]:
    return np.ascontiguousarray(values, dtype=np.float64)
