"""Products with stored lines of a sparse matrix, as loops only: SciPy has the plain form.

A line is a row of CSR or a column of CSC; `places` has where its entries lie across it. Squares are those of
`Sparse`: x (x - 2c), to which c² is added elsewhere for all entries of a column, stored or not. Sums are
float64 whatever the entries. Those along a line may be regrouped by the compiler, since additions that wait
for one another would take most of the time: the same bits in every run, on one machine.

Lines are sliced and places made unsigned because the compiler then has no negative index to allow for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from foldless.beliefs import Array
from foldless.kernels import kernel


@kernel(fastmath={"reassoc", "contract"})
def gather(
    starts: Any, places: Any, data: Any, first: int, last: int, columns_are_lines: bool, twice_center: Array,
    vector: Any, square_vector: Array, out: Array, square_out: Array,
) -> None:  # fmt: skip
    """out[line] = Σ x vector[place], for lines from `first` to before `last`.

    Unless there is no room for it, in the same visit square_out[line] = Σ x (x - 2c) square_vector[place].
    """
    for line in range(first, last):
        xs, at = data[starts[line] : starts[line + 1]], places[starts[line] : starts[line + 1]]
        total, square_total = 0.0, 0.0
        if square_out.size == 0:
            for k in range(xs.size):
                total += xs[k] * vector[np.uint64(at[k])]
            out[line] = total
            continue
        if columns_are_lines:
            c = twice_center[line]
            for k in range(xs.size):
                place = np.uint64(at[k])
                x = np.float64(xs[k])
                total += x * vector[place]
                square_total += x * (x - c) * square_vector[place]
        else:
            for k in range(xs.size):
                place = np.uint64(at[k])
                x = np.float64(xs[k])
                total += x * vector[place]
                square_total += x * (x - twice_center[place]) * square_vector[place]
        out[line], square_out[line] = total, square_total


@kernel(fastmath={"reassoc", "contract"})
def gather_two(starts: Any, places: Any, data: Any, columns: Array, out: Array) -> None:
    """Two sums over each row of CSR, and two of squares; `columns` are two vectors for each, and 2c."""
    for line in range(out.shape[0]):
        xs, at = data[starts[line] : starts[line + 1]], places[starts[line] : starts[line + 1]]
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        for k in range(xs.size):
            place, x = np.uint64(at[k]), np.float64(xs[k])
            square = x * (x - columns[place, 4])
            a += x * columns[place, 0]
            b += x * columns[place, 1]
            c += square * columns[place, 2]
            d += square * columns[place, 3]
        out[line, 0], out[line, 1], out[line, 2], out[line, 3] = a, b, c, d


@kernel(fastmath={"reassoc", "contract"})
def gather_many(
    starts: Any, places: Any, data: Any, vectors: Array, square_vectors: Array, twice_center: Array,
    out: Array, square_out: Array,
) -> None:  # fmt: skip
    """Any number of sums over each row of CSR, and of squares."""
    for line in range(out.shape[0]):
        xs, at = data[starts[line] : starts[line + 1]], places[starts[line] : starts[line + 1]]
        total, square_total = out[line], square_out[line]
        total[:], square_total[:] = 0.0, 0.0
        for k in range(xs.size):
            place, x = np.uint64(at[k]), np.float64(xs[k])
            vector, square_vector = vectors[place], square_vectors[place]
            for j in range(vector.size):
                total[j] += x * vector[j]
            x *= x - twice_center[place]
            for j in range(square_vector.size):
                square_total[j] += x * square_vector[j]


@kernel()
def scatter(
    starts: Any, places: Any, data: Any, first: int, last: int, columns_are_lines: bool, twice_center: Array,
    values: Array, square_values: Array, out: Array, square_out: Array,
) -> None:  # fmt: skip
    """out[place] += x values[line], over lines from `first` to before `last`; squares likewise."""
    for line in range(first, last):
        xs, at = data[starts[line] : starts[line + 1]], places[starts[line] : starts[line + 1]]
        value = values[line]
        if square_out.size == 0:
            for k in range(xs.size):
                out[np.uint64(at[k])] += xs[k] * value
            continue
        square_value = square_values[line]
        for k in range(xs.size):
            place = np.uint64(at[k])
            x = np.float64(xs[k])
            c = twice_center[line] if columns_are_lines else twice_center[place]
            out[place] += x * value
            square_out[place] += x * (x - c) * square_value
