"""Columns brought to mean zero and unit variance, without touching the matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.beliefs import Array
from foldless.operators.base import Operator, RowStep, Sweep, column_positions

# A column whose standard deviation is at most this many units in the last place of its mean holds
# nothing but the rounding of a constant. An offset of 1e8 standard deviations is 5e7 units away.
CONSTANT_ULPS = 4
# Scales within this power of the dtype's range can be squared, summed and multiplied by variances with
# room to spare, so they are folded into the weights. Beyond it they are divided out before squaring.
SAFE_SQUARE_POWER = 0.25
# Below these, weights / scale (float32) or the variance of a column (float64) leave the dtype's range.
SMALLEST_SCALE = {np.dtype(np.float32): 1e-30, np.dtype(np.float64): 1e-153}


class Standardized(Operator):
    """(X - center) / scale.

    Linear products are those of X with corrected vectors:
        scores  = X (w / scale) - center'(w / scale),
        slopes' = (X'slopes - center Σ slopes) / scale.
    Squares are taken by the inner operator about the centre, where nothing cancels.
    """

    def __init__(
        self,
        operator: Operator,
        center: ArrayLike,
        scale: ArrayLike,
        constant: ArrayLike | None = None,
    ) -> None:
        self.operator = operator
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
        self._some_constant = bool(self.constant.any())
        self._fitted_weight: Array | None = None
        range_ = np.finfo(self.dtype)
        self._squares_are_safe = bool(
            np.all(self.scale > float(range_.tiny) ** SAFE_SQUARE_POWER)
            and np.all(self.scale < float(range_.max) ** SAFE_SQUARE_POWER)
        )

    @classmethod
    def fit(cls, operator: Operator, sample_weight: ArrayLike | None = None) -> Standardized:
        """Centre and scale by the weighted moments of the columns; constant columns keep their scale."""
        weight = (
            np.ones(operator.shape[0]) if sample_weight is None else np.asarray(sample_weight, np.float64)
        )
        mean, variance = operator.column_moments(weight)
        scale = np.sqrt(variance)
        if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(scale))):
            worst = int(np.flatnonzero(~(np.isfinite(mean) & np.isfinite(scale)))[0])
            names = operator.column_names
            which = f"column {worst}" if names is None else f"column {worst}, {names[worst]!r},"
            raise ValueError(
                f"{which} has no finite mean and variance; it holds values that are not finite, "
                "or larger than about 1e150. Rescale or remove it"
            )
        rounding = CONSTANT_ULPS * np.finfo(operator.dtype).eps * np.abs(mean)
        constant = (scale <= rounding) | (scale < SMALLEST_SCALE[operator.dtype])
        fitted = cls(operator, mean, np.where(constant, 1.0, scale), constant)
        fitted._fitted_weight = weight
        return fitted

    def sweep(
        self,
        weights: Array,
        weight_var: Array | None,
        row_step: RowStep,
        *,
        center: Array | None = None,
        scale: Array | None = None,
    ) -> Sweep:
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

        square = self._square(center, scale)
        inner = self.operator.sweep(
            inner_weights,
            None if weight_var is None else square.folded(weight_var),
            shifted_row_step,
            center=square.center,
            scale=square.scale,
        )
        slopes = self._of_columns(inner.slopes, slope_total)
        return Sweep(slopes, None if inner.curvatures is None else square.folded(inner.curvatures))

    def some_rows(self, rows: NDArray[np.intp]) -> Standardized:
        """With centre and scale of all rows, so that weights mean the same."""
        return Standardized(self.operator.some_rows(rows), self.center, self.scale, self.constant)

    def scores(self, weights: Array) -> Array:
        inner_weights = _divided(weights, self.scale)
        return self.operator.scores(inner_weights) - self.center @ inner_weights

    def adjoint(self, row_values: Array) -> Array:
        total = np.sum(row_values, axis=0, dtype=np.float64)
        return self._of_columns(self.operator.adjoint(row_values), total)

    def score_variances(
        self, weight_var: Array, *, center: Array | None = None, scale: Array | None = None
    ) -> Array:
        square = self._square(center, scale)
        return self.operator.score_variances(
            square.folded(weight_var), center=square.center, scale=square.scale
        )

    def column_moments(self, sample_weight: Array) -> tuple[Array, Array]:
        mean, variance = self.operator.column_moments(sample_weight)
        return (mean - self.center) / self.scale, variance / self.scale / self.scale

    def nonzero_weight(self, sample_weight: Array) -> Array:
        return self.operator.nonzero_weight(sample_weight)

    def squared_norms(self, sample_weight: Array) -> tuple[Array, Array]:
        if self._fitted_weight is None or not np.array_equal(sample_weight, self._fitted_weight):
            return super().squared_norms(sample_weight)
        # Unit variance under these weights is what the columns were scaled to: no need to look again.
        return self.row_norms(), np.where(self.constant, 0.0, float(np.sum(sample_weight)))

    def columns(self, indices: ArrayLike) -> NDArray[np.float64]:
        positions = column_positions(indices, self.shape[1])
        return (self.operator.columns(positions) - self.center[positions]) / self.scale[positions]

    def dense_tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        tile = self.operator.dense_tile(rows, columns)
        tile -= self.center[columns]
        tile /= self.scale[columns]
        return tile

    def _of_columns(self, inner: Array, total: Any) -> Array:
        """Xᵀ values from that of the inner operator, which is overwritten, and the sum of the values."""
        # In place: this is of the features' length and in double precision.
        answer = inner
        answer -= np.multiply.outer(self.center, total)
        answer /= self.scale if answer.ndim == 1 else self.scale[:, np.newaxis]
        # Nothing but the rounding of what is zero, which cavities of infinite width would blow up.
        if self._some_constant:
            answer[self.constant] = 0.0
        return answer

    def _square(self, center: Array | None, scale: Array | None) -> _InnerSquare:
        """Squares of ((X - self.center) / self.scale - center) / scale, in terms of X."""
        inner_center = self.center if center is None else self.center + center * self.scale
        inner_scale = self.scale if scale is None else self.scale * scale
        return _InnerSquare(inner_center, inner_scale, self._squares_are_safe and scale is None)


class _InnerSquare:
    """Centre and scale of the inner squares; a harmless scale is folded into the vectors."""

    def __init__(self, center: Array, scale: Array, fold: bool) -> None:
        self.center = center
        self.scale = None if fold else scale
        self._folded_scale = scale if fold else None

    def folded(self, vector: Array) -> Array:
        """Variances or curvatures over columns, divided by scale² if the squares are not."""
        if self._folded_scale is None:
            return vector
        return _divided(vector, self._folded_scale * self._folded_scale)


def _divided(vector: Any, by: Array) -> Array:
    """Rows of a (columns,) or (columns, d) array divided by one number each."""
    vector = np.asarray(vector, dtype=np.float64)
    return vector / by if vector.ndim == 1 else vector / by[:, np.newaxis]
