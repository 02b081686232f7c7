"""A column of ones after all others: the intercept as a weight like any other."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.beliefs import Array
from foldless.operators.base import Operator, RowStep, Sweep, column_positions


class WithIntercept(Operator):
    """[X, 1]: shape (rows, columns + 1); the last weight is the intercept."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        n_rows, n_columns = operator.shape
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
        weights = _float64(weights)
        weight_var = None if weight_var is None else _float64(weight_var)
        square_of_one = _square_of_one(center, scale)
        intercept_var: float | Array = 0.0 if weight_var is None else square_of_one * weight_var[-1]
        slope_total = np.zeros(weights.shape[1:])
        curvature_total = np.zeros(() if weight_var is None else weight_var.shape[1:])

        def row_step_with_intercept(
            rows: slice, scores: Array, score_var: Array | None
        ) -> tuple[Array, Array | None]:
            nonlocal slope_total, curvature_total
            with_intercept = None if score_var is None else score_var + intercept_var
            slopes, curvatures = row_step(rows, scores + weights[-1], with_intercept)
            slope_total = slope_total + np.sum(slopes, axis=0, dtype=np.float64)
            if curvatures is not None:
                curvature_total = curvature_total + np.sum(curvatures, axis=0, dtype=np.float64)
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
        of_intercept = square_of_one * curvature_total
        return Sweep(slopes, np.concatenate([inner.curvatures, of_intercept[np.newaxis]]))

    def scores(self, weights: Array) -> Array:
        weights = _float64(weights)
        return self.operator.scores(weights[:-1]) + weights[-1]

    def score_variances(
        self, weight_var: Array, *, center: Array | None = None, scale: Array | None = None
    ) -> Array:
        weight_var = _float64(weight_var)
        inner = self.operator.score_variances(
            weight_var[:-1], center=_without_last(center), scale=_without_last(scale)
        )
        return inner + _square_of_one(center, scale) * weight_var[-1]

    def column_moments(self, sample_weight: Array) -> tuple[Array, Array]:
        mean, variance = self.operator.column_moments(sample_weight)
        return np.append(mean, 1.0), np.append(variance, 0.0)

    def squared_norms(self, sample_weight: Array) -> tuple[Array, Array]:
        row, column = self.operator.squared_norms(sample_weight)
        return row + 1.0, np.append(column, np.sum(sample_weight))

    def columns(self, indices: ArrayLike) -> NDArray[np.float64]:
        positions = column_positions(indices, self.shape[1])
        out = np.ones((self.shape[0], positions.size))
        is_inner = positions < self.operator.shape[1]
        out[:, is_inner] = self.operator.columns(positions[is_inner])
        return out

    def dense_tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        n_columns = self.operator.shape[1]
        if columns.stop <= n_columns:
            return self.operator.dense_tile(rows, columns)
        tile = np.ones((rows.stop - rows.start, columns.stop - columns.start))
        tile[:, :-1] = self.operator.dense_tile(rows, slice(columns.start, n_columns))
        return tile


def _float64(vector: Array) -> NDArray[np.float64]:
    return np.asarray(vector, dtype=np.float64)


def _without_last(vector: Array | None) -> Array | None:
    return None if vector is None else vector[:-1]


def _square_of_one(center: Array | None, scale: Array | None) -> float:
    """((1 - center) / scale)² for the column of ones."""
    deviation = 1.0 if center is None else 1.0 - float(center[-1])
    return (deviation if scale is None else deviation / float(scale[-1])) ** 2
