"""The matrix as solvers see it: columns of mean zero and unit variance, and one of ones. X is not touched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from foldless.beliefs import Array
from foldless.operators.base import Operator, RowStep, Storage, Sweep, column_positions, needed

# A column whose standard deviation is at most this many units in the last place of its mean holds
# nothing but the rounding of a constant. An offset of 1e8 standard deviations is 5e7 units away.
CONSTANT_ULPS = 4
# Sums over a million rows must not overflow, which in single precision they would for columns of 1e33.
ROOM_FOR_SUMS = 1e6
# Scales within this power of the dtype's range can be squared, summed and multiplied by variances with
# room to spare, so they are folded into the weights. Beyond it they are divided out before squaring.
SAFE_SQUARE_POWER = 0.25
# Products with X lose the digits that offsets have in them: of a column this many standard deviations from
# zero five of sixteen, or of single precision three of seven. Beyond it tiles are centred first.
FAR = {np.dtype(np.float32): 1e3, np.dtype(np.float64): 1e5}
# Below these, weights / scale (float32) or the variance of a column (float64) leave the dtype's range.
SMALLEST_SCALE = {np.dtype(np.float32): 1e-30, np.dtype(np.float64): 1e-153}


class Standardized(Operator):
    """(X - center) / scale.

    Linear products are those of X with corrected vectors:
        scores  = X (w / scale) - center'(w / scale),
        slopes' = (X'slopes - center Σ slopes) / scale.
    Squares are taken by the storage about the centre, where nothing cancels. So are linear products of
    columns that are FAR from zero, if tiles are at hand.
    """

    def __init__(
        self,
        operator: Storage | Standardized,
        center: ArrayLike,
        scale: ArrayLike,
        constant: ArrayLike | None = None,
    ) -> None:
        self.shape = operator.shape
        self.dtype = operator.dtype
        n_columns = (self.shape[1],)
        self.center: Array = np.asarray(center, dtype=np.float64)
        self.scale: Array = np.asarray(scale, dtype=np.float64)
        # Columns that hold a single value; they are centred but not scaled.
        self.constant: NDArray[np.bool_] = (
            np.zeros(n_columns, bool) if constant is None else np.asarray(constant, bool)
        )
        for name, value in (("center", self.center), ("scale", self.scale), ("constant", self.constant)):
            if value.shape != n_columns:
                raise ValueError(
                    f"{name} has shape {value.shape}; one value per column is needed, {n_columns}"
                )
        if not (
            np.all(self.scale > 0) and np.all(np.isfinite(self.scale)) and np.all(np.isfinite(self.center))
        ):
            raise ValueError("every center must be finite and every scale finite and positive")
        if isinstance(operator, Standardized):
            # Of the storage: ((X - c) / s - center) / scale = (X - (c + s center)) / (s scale).
            self.constant = self.constant | (operator.constant & (self.center == 0))
            self.center = operator.center + operator.scale * self.center
            self.scale = operator.scale * self.scale
            operator = operator.operator
        self.operator: Storage = operator
        self._some_constant = bool(self.constant.any())
        offset = np.abs(self.center[~self.constant]) / self.scale[~self.constant]
        self._is_far = operator.has_tiles_at_hand and float(np.max(offset, initial=0.0)) > FAR[self.dtype]
        self._fitted_weight: Array | None = None
        self._equal_gram: tuple[Any, NDArray[Any]] | None = None
        range_ = np.finfo(self.dtype)
        safe = np.all(self.scale > float(range_.tiny) ** SAFE_SQUARE_POWER) and np.all(
            self.scale < float(range_.max) ** SAFE_SQUARE_POWER
        )
        # What squares are divided by: their sums afterwards, or deviations before they are squared.
        self._square_scale: Array | None = self.scale * self.scale if safe else None
        self._inner_scale: Array | None = None if safe else self.scale

    @classmethod
    def fit(cls, operator: Storage | Standardized, sample_weight: ArrayLike | None = None) -> Standardized:
        """Centre and scale by the weighted moments of the columns; constant columns keep their scale."""
        weight = (
            np.ones(operator.shape[0]) if sample_weight is None else np.asarray(sample_weight, np.float64)
        )
        with np.errstate(over="ignore", invalid="ignore"):  # such columns are refused by name below
            mean, variance = operator.column_moments(weight)
            scale = np.sqrt(variance)
        largest = float(np.finfo(operator.dtype).max) / ROOM_FOR_SUMS
        usable = (np.abs(mean) < largest) & (scale < largest)
        if not np.all(usable):
            worst = int(np.flatnonzero(~usable)[0])
            names = getattr(operator, "column_names", None)
            which = f"column {worst}" if names is None else f"column {worst}, {names[worst]!r},"
            raise ValueError(
                f"{which} has no finite mean and variance; it holds values that are not finite, "
                f"or larger than about {'1e150' if operator.dtype == np.float64 else '1e32'}. "
                "Rescale or remove it"
            )
        rounding = CONSTANT_ULPS * np.finfo(operator.dtype).eps * np.abs(mean)
        constant = (scale <= rounding) | (scale < SMALLEST_SCALE[operator.dtype])
        fitted = cls(operator, mean, np.where(constant, 1.0, scale), constant)
        fitted._fitted_weight = weight
        return fitted

    def sweep(self, weights: Array, weight_var: Array | None, row_step: RowStep) -> Sweep:
        if self._is_far:
            return self._sweep_of_centred_tiles(weights, weight_var, row_step)
        inner_weights = _divided(weights, self.scale)
        shift = self.center @ inner_weights
        slope_total = np.zeros(np.shape(weights)[1:])

        def shifted_row_step(
            rows: slice, scores: Array, score_var: Array | None
        ) -> tuple[Array, Array | None]:
            nonlocal slope_total
            slopes, curvatures = row_step(rows, scores - shift, score_var)
            slope_total = slope_total + np.sum(slopes, axis=0, dtype=np.float64)
            return slopes, curvatures

        slopes, curvatures = self.operator.sweep(
            inner_weights,
            None if weight_var is None else _divided(weight_var, self._square_scale),
            shifted_row_step,
            center=self.center,
            scale=self._inner_scale,
        )
        curvatures = None if curvatures is None else _divided(curvatures, self._square_scale)
        return Sweep(self._of_columns(slopes, slope_total), curvatures)

    def _sweep_of_centred_tiles(self, weights: Array, weight_var: Array | None, row_step: RowStep) -> Sweep:
        slope_sum = np.zeros(np.shape(weights))
        curvature_sum = None if weight_var is None else np.zeros(np.shape(weight_var))
        for rows, tile in self.dense_rows():
            scores = tile @ weights
            squares = np.empty((0, 0)) if weight_var is None else np.square(tile)
            slopes, curvatures = row_step(rows, scores, None if weight_var is None else squares @ weight_var)
            slope_sum += tile.T @ slopes
            if curvature_sum is not None:
                curvature_sum += squares.T @ needed(curvatures)
        slope_sum[self.constant] = 0.0
        return Sweep(slope_sum, curvature_sum)

    def scores(self, weights: Array) -> Array:
        if self._is_far:
            return np.concatenate([tile @ weights for _, tile in self.dense_rows()])
        inner_weights = _divided(weights, self.scale)
        return self.operator.scores(inner_weights) - self.center @ inner_weights

    def adjoint(self, row_values: Array) -> Array:
        if self._is_far:
            return super().adjoint(row_values)
        total = np.sum(row_values, axis=0, dtype=np.float64)
        return self._of_columns(self.operator.adjoint(row_values), total)

    def score_variances(self, weight_var: Array) -> Array:
        if self._is_far:
            return np.concatenate([np.square(tile) @ weight_var for _, tile in self.dense_rows()])
        inner_var = _divided(weight_var, self._square_scale)
        return self.operator.score_variances(inner_var, center=self.center, scale=self._inner_scale)

    def scores_and_variances(self, weights: Array, weight_var: Array) -> tuple[Array, Array]:
        if self._is_far:
            return super().scores_and_variances(weights, weight_var)
        inner_weights, inner_var = _divided(weights, self.scale), _divided(weight_var, self._square_scale)
        scores, variances = self.operator.scores_and_variances(
            inner_weights, inner_var, center=self.center, scale=self._inner_scale
        )
        scores -= self.center @ inner_weights
        return scores, variances

    def column_moments(self, sample_weight: Array) -> tuple[Array, Array]:
        if self._has_unit_variances(sample_weight):
            return np.zeros(self.shape[1]), np.where(self.constant, 0.0, 1.0)
        mean, variance = self.operator.column_moments(sample_weight)
        return (mean - self.center) / self.scale, variance / self.scale / self.scale

    def nonzero_weight(self, sample_weight: Array) -> Array:
        """Of the data as they came: neither centring nor scaling makes a zero something else."""
        return self.operator.nonzero_weight(sample_weight)

    def some_rows(self, rows: NDArray[np.intp]) -> Standardized:
        """With centre and scale of all rows, so that weights mean the same."""
        return Standardized(self.operator.some_rows(rows), self.center, self.scale, self.constant)

    def squared_norms(self, sample_weight: Array) -> tuple[Array, Array]:
        if not self._has_unit_variances(sample_weight):
            return super().squared_norms(sample_weight)
        column = np.where(self.constant, 0.0, float(np.sum(sample_weight)))
        return self.score_variances(np.ones(self.shape[1])), column

    def _has_unit_variances(self, sample_weight: Array) -> bool:
        """Whether columns were scaled under these weights: no need to look again."""
        return self._fitted_weight is not None and np.array_equal(sample_weight, self._fitted_weight)

    def gram(self, weight_var: Array, dtype: DTypeLike = np.float64) -> Array:
        found = self.operator.centred_gram(weight_var / self.scale**2, self.center)
        if found is not None:
            return found
        used, largest = weight_var > 0, float(np.max(weight_var, initial=0.0))
        if not np.all(weight_var[used] == largest):
            return super().gram(weight_var, dtype)
        # Of equal variances, in which ridges and backgrounds differ by a factor: one is kept.
        key = used.tobytes(), np.dtype(dtype)
        if self._equal_gram is None or self._equal_gram[0] != key:
            self._equal_gram = key, super().gram(used.astype(np.float64), dtype)
        return largest * self._equal_gram[1]

    def row_products(self, rows: Array, tile_bytes: int) -> Iterator[Array]:
        varies = np.flatnonzero(~self.constant)
        found = self.operator.products_by_columns(rows, varies, tile_bytes)
        if found is None:
            yield from super().row_products(rows, tile_bytes)
            return
        total = rows.sum(axis=1)
        for where, products in found:
            products -= np.multiply.outer(total, self.center[where])
            products /= self.scale[where]
            yield products

    def columns(self, indices: ArrayLike) -> NDArray[np.float64]:
        positions = column_positions(indices, self.shape[1])
        return (self.operator.columns(positions) - self.center[positions]) / self.scale[positions]

    def dense_tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        tile = self.operator.dense_tile(rows, columns)
        tile -= self.center[columns]
        tile /= self.scale[columns]
        return tile

    def _of_columns(self, inner: Array, total: Any) -> Array:
        """Xᵀ values from that of the storage, which is overwritten, and the sum of the values."""
        # In place: this is of the features' length and in double precision.
        inner -= np.multiply.outer(self.center, total)
        inner /= self.scale if inner.ndim == 1 else self.scale[:, np.newaxis]
        # Nothing but the rounding of what is zero, which cavities of infinite width would blow up.
        if self._some_constant:
            inner[self.constant] = 0.0
        return inner


def _divided(vector: Any, by: Array | None) -> Array:
    """Rows of a (columns,) or (columns, d) array divided by one number each, if any."""
    vector = np.asarray(vector, dtype=np.float64)
    if by is None:
        return vector
    return vector / by if vector.ndim == 1 else vector / by[:, np.newaxis]


class WithIntercept(Operator):
    """[X, 1]: shape (rows, columns + 1); the last weight is the intercept, a weight like any other.

    Rows from `n_ones` on have a zero instead: constraints on the weights have no intercept.
    """

    def __init__(self, operator: Operator, n_ones: int | None = None) -> None:
        self.operator = operator
        n_rows, n_columns = operator.shape
        self.shape = (n_rows, n_columns + 1)
        self.dtype = operator.dtype
        # The last column, which is its own square.
        n_ones = n_rows if n_ones is None else n_ones
        self._ones = (np.arange(n_rows) < n_ones).astype(np.float64)

    def sweep(self, weights: Array, weight_var: Array | None, row_step: RowStep) -> Sweep:
        weights = np.asarray(weights)  # of the features' length, and so not copied to another precision
        weight_var = None if weight_var is None else np.asarray(weight_var)
        slope_total = np.zeros(weights.shape[1:])
        curvature_total = np.zeros(() if weight_var is None else weight_var.shape[1:])

        def row_step_with_intercept(
            rows: slice, scores: Array, score_var: Array | None
        ) -> tuple[Array, Array | None]:
            nonlocal slope_total, curvature_total
            ones = self._ones[rows]
            if score_var is not None and weight_var is not None:
                score_var = score_var + np.multiply.outer(ones, weight_var[-1])
            slopes, curvatures = row_step(rows, scores + np.multiply.outer(ones, weights[-1]), score_var)
            slope_total = slope_total + ones @ slopes
            if curvatures is not None:
                curvature_total = curvature_total + ones @ curvatures
            return slopes, curvatures

        slopes, curvatures = self.operator.sweep(
            weights[:-1], None if weight_var is None else weight_var[:-1], row_step_with_intercept
        )
        slopes = np.concatenate([slopes, slope_total[np.newaxis]])
        if curvatures is None:
            return Sweep(slopes, None)
        return Sweep(slopes, np.concatenate([curvatures, curvature_total[np.newaxis]]))

    def scores(self, weights: Array) -> Array:
        weights = np.asarray(weights, dtype=np.float64)
        return self.operator.scores(weights[:-1]) + np.multiply.outer(self._ones, weights[-1])

    def adjoint(self, row_values: Array) -> Array:
        return np.concatenate([self.operator.adjoint(row_values), (self._ones @ row_values)[np.newaxis]])

    def score_variances(self, weight_var: Array) -> Array:
        weight_var = np.asarray(weight_var, dtype=np.float64)
        return self.operator.score_variances(weight_var[:-1]) + np.multiply.outer(self._ones, weight_var[-1])

    def nonzero_weight(self, sample_weight: Array) -> Array:
        return np.append(self.operator.nonzero_weight(sample_weight), sample_weight @ (self._ones != 0))

    def column_moments(self, sample_weight: Array) -> tuple[Array, Array]:
        mean, variance = self.operator.column_moments(sample_weight)
        share = float(self._ones @ sample_weight) / float(np.sum(sample_weight))
        return np.append(mean, share), np.append(variance, share * (1 - share))

    def squared_norms(self, sample_weight: Array) -> tuple[Array, Array]:
        row, column = self.operator.squared_norms(sample_weight)
        return row + self._ones, np.append(column, self._ones @ sample_weight)

    def gram(self, weight_var: Array, dtype: DTypeLike = np.float64) -> Array:
        products = self.operator.gram(weight_var[:-1], dtype)
        if weight_var[-1]:  # or there are three matrices for nothing
            products += weight_var[-1] * np.multiply.outer(self._ones, self._ones)
        return products

    def columns(self, indices: ArrayLike) -> NDArray[np.float64]:
        positions = column_positions(indices, self.shape[1])
        out = np.repeat(self._ones[:, np.newaxis], positions.size, axis=1)
        is_inner = positions < self.operator.shape[1]
        out[:, is_inner] = self.operator.columns(positions[is_inner])
        return out

    def dense_tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        n_columns = self.operator.shape[1]
        if columns.stop <= n_columns:
            return self.operator.dense_tile(rows, columns)
        tile = np.empty((rows.stop - rows.start, columns.stop - columns.start))
        tile[:, -1] = self._ones[rows]
        tile[:, :-1] = self.operator.dense_tile(rows, slice(columns.start, n_columns))
        return tile
