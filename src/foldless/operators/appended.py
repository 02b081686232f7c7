"""A column of ones after all others: the intercept as a weight like any other."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.beliefs import Array
from foldless.operators.base import Operator, RowStep, Sweep, column_positions


class WithIntercept(Operator):
    """[X, 1]: shape (rows, columns + 1); the last weight is the intercept.

    Rows from `n_ones` on have a zero instead: constraints on the weights know no intercept.
    """

    def __init__(self, operator: Operator, n_ones: int | None = None) -> None:
        self.operator = operator
        n_rows, n_columns = operator.shape
        self.n_ones = n_rows if n_ones is None else n_ones
        self.shape = (n_rows, n_columns + 1)
        self.dtype = operator.dtype

    def sweep(
        self,
        weights: Array,
        weight_var: Array | None,
        row_step: RowStep,
        *,
        center: Array | None = None,
        scale: Array | None = None,
    ) -> Sweep:
        weights = np.asarray(weights)  # of the features' length, and so not copied to another precision
        last_weight = _float64(weights[-1])
        weight_var = None if weight_var is None else _float64(weight_var)
        squares: Array = np.empty(0)
        if weight_var is not None:
            squares = _squares_of_ones(self._ones(slice(0, self.shape[0])), center, scale)
        slope_total = np.zeros(weights.shape[1:])
        curvature_total = np.zeros(() if weight_var is None else weight_var.shape[1:])

        def row_step_with_intercept(
            rows: slice, scores: Array, score_var: Array | None
        ) -> tuple[Array, Array | None]:
            nonlocal slope_total, curvature_total
            with_intercept = None
            if score_var is not None and weight_var is not None:
                with_intercept = score_var + np.multiply.outer(squares[rows], weight_var[-1])
            if rows.stop <= self.n_ones:  # nearly always, and then there is nothing to multiply with
                slopes, curvatures = row_step(rows, scores + last_weight, with_intercept)
                slope_total = slope_total + np.sum(slopes, axis=0, dtype=np.float64)
            else:
                ones = self._ones(rows)
                slopes, curvatures = row_step(
                    rows, scores + np.multiply.outer(ones, last_weight), with_intercept
                )
                slope_total = slope_total + ones @ slopes
            if curvatures is not None:
                curvature_total = curvature_total + squares[rows] @ curvatures
            return slopes, curvatures

        inner = self.operator.sweep(
            weights[:-1],
            None if weight_var is None else weight_var[:-1],
            row_step_with_intercept,
            center=_without_last(center),
            scale=_without_last(scale),
        )
        slopes = np.concatenate([inner.slopes, slope_total[np.newaxis]])
        if inner.curvatures is None:
            return Sweep(slopes, None)
        return Sweep(slopes, np.concatenate([inner.curvatures, curvature_total[np.newaxis]]))

    def scores(self, weights: Array) -> Array:
        weights = _float64(weights)
        ones = self._ones(slice(0, self.shape[0]))
        return self.operator.scores(weights[:-1]) + np.multiply.outer(ones, weights[-1])

    def adjoint(self, row_values: Array) -> Array:
        ones = self._ones(slice(0, self.shape[0]))
        return np.concatenate([self.operator.adjoint(row_values), (ones @ row_values)[np.newaxis]])

    def score_variances(
        self, weight_var: Array, *, center: Array | None = None, scale: Array | None = None
    ) -> Array:
        weight_var = _float64(weight_var)
        inner = self.operator.score_variances(
            weight_var[:-1], center=_without_last(center), scale=_without_last(scale)
        )
        squares = _squares_of_ones(self._ones(slice(0, self.shape[0])), center, scale)
        return inner + np.multiply.outer(squares, weight_var[-1])

    def column_moments(self, sample_weight: Array) -> tuple[Array, Array]:
        mean, variance = self.operator.column_moments(sample_weight)
        share = float(self._ones(slice(0, self.shape[0])) @ sample_weight) / float(np.sum(sample_weight))
        return np.append(mean, share), np.append(variance, share * (1 - share))

    def nonzero_weight(self, sample_weight: Array) -> Array:
        ones = self._ones(slice(0, self.shape[0]))
        return np.append(self.operator.nonzero_weight(sample_weight), ones @ sample_weight)

    def some_rows(self, rows: NDArray[np.intp]) -> WithIntercept:
        return WithIntercept(self.operator.some_rows(rows), int(np.count_nonzero(rows < self.n_ones)))

    def squared_norms(self, sample_weight: Array) -> tuple[Array, Array]:
        row, column = self.operator.squared_norms(sample_weight)
        ones = self._ones(slice(0, self.shape[0]))
        return row + ones, np.append(column, ones @ sample_weight)

    def columns(self, indices: ArrayLike) -> NDArray[np.float64]:
        positions = column_positions(indices, self.shape[1])
        out = np.empty((self.shape[0], positions.size))
        out[:] = self._ones(slice(0, self.shape[0]))[:, np.newaxis]
        is_inner = positions < self.operator.shape[1]
        out[:, is_inner] = self.operator.columns(positions[is_inner])
        return out

    def dense_tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        n_columns = self.operator.shape[1]
        if columns.stop <= n_columns:
            return self.operator.dense_tile(rows, columns)
        tile = np.empty((rows.stop - rows.start, columns.stop - columns.start))
        tile[:, -1] = self._ones(rows)
        tile[:, :-1] = self.operator.dense_tile(rows, slice(columns.start, n_columns))
        return tile

    def _ones(self, rows: slice) -> NDArray[np.float64]:
        """The last column, for a slice of rows."""
        return (np.arange(rows.start, rows.stop) < self.n_ones).astype(np.float64)


def _float64(vector: Array) -> NDArray[np.float64]:
    return np.asarray(vector, dtype=np.float64)


def _without_last(vector: Array | None) -> Array | None:
    return None if vector is None else vector[:-1]


def _squares_of_ones(ones: Array, center: Array | None, scale: Array | None) -> Array:
    """((ones - center) / scale)² for the last column."""
    deviation = ones if center is None else ones - float(center[-1])
    return (deviation if scale is None else deviation / float(scale[-1])) ** 2
