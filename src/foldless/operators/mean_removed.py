"""A matrix without row and column means, and two more rows and columns that put them back.

Approximate message passing diverges on matrices whose entries have a common mean; on the enlarged
matrix it does not [Vila, Schniter, Rangan, Krzakala, Zdeborová 2015].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.beliefs import Array
from foldless.operators.base import (
    Operator,
    RowStep,
    Storage,
    Sweep,
    column_positions,
    normalized_sample_weight,
)
from foldless.operators.standardized import Standardized

# Means whose rms is below this part of the entries' rms stay where they are. A mean's singular value is
# √min(rows, columns) · this times those of the noise, so nothing is lost up to 1e8 rows or columns, and
# columns that were centred already do not have their rounding errors blown up to the size of data.
NEGLIGIBLE_MEAN = 1e-4


class MeanRemoved(Operator):
    """The matrix of shape (M + 2, N + 2)

        ⎡ X - γ1' - 1c'   b₁₂ γ      b₁₃ 1   ⎤      γ: row means of X
        ⎢ b₂₁ 1'         -b₂₁ b₁₂    0       ⎥      c: column means of X - γ1'
        ⎣ b₃₁ c'          0         -b₃₁ b₁₃ ⎦      b: such that γ, 1, c get the rms of X - γ1' - 1c'

    Identity: for weights [w, u₁, u₂] with rows M and M + 1 equal to zero, u₁ = 1'w / b₁₂ and
    u₂ = c'w / b₁₃, hence the first M rows are (X - γ1' - 1c') w + γ 1'w + 1 c'w = X w. A solver gives the
    two extra weights flat priors and observes the two extra scores to be zero. The identity holds for
    any γ and c, so means that are negligible are left in place and their extra row and column are zero.

    Columns are centred by `Standardized`, Z = X - 1(c + mean γ)', and what rows differ by, h = γ - mean γ, is
    taken off here: X - γ1' - 1c' = Z - h1'. Its squares are
        Σ_j (z_ij - h_i)² v_j = Σ_j z_ij² v_j - 2 h_i Σ_j z_ij v_j + h_i² Σ_j v_j,
    and the same by columns. The middle term is a score of Z with v as weights, which is why a sweep with
    variances carries twice as many scores. All that cancels is h, a few standard deviations if columns are
    standardized.

    Rows M and M + 1 come last in a sweep, in one `row_step` of their own.
    """

    def __init__(self, operator: Storage | Standardized, sample_weight: Array | None = None) -> None:
        n_rows, n_columns = operator.shape
        if n_rows == 0 or n_columns == 0:
            raise ValueError(f"a matrix of shape {operator.shape} has no means to remove")
        self.shape = (n_rows + 2, n_columns + 2)
        self.dtype = operator.dtype

        ones = np.ones(n_columns)
        row_means = operator.scores(ones / n_columns)
        share = normalized_sample_weight(np.ones(n_rows) if sample_weight is None else sample_weight, n_rows)
        center, _ = operator.column_moments(share)
        common = float(share @ row_means)
        # Squared length of every row of X - γ1' - 1c', by the formula above with v = 1.
        h = row_means - common
        norms = Standardized(operator, center, ones).score_variances(ones)
        norms += h * (n_columns * h - 2 * (n_columns * row_means - center.sum()))
        rms = float(np.sqrt(share @ np.maximum(norms, 0.0) / n_columns)) or 1.0
        row_means, row_factor = _kept_means(row_means, rms, share)
        column_means, column_factor = _kept_means(center - common, rms, ones / n_columns)

        self._extra_columns = np.zeros((n_rows, 2))
        self._extra_rows = np.zeros((2, n_columns + 2))
        # Means that are negligible need neither row nor column: a weight pinned to zero by a row of its
        # own would still draw on what the labels say, and with it on an intercept.
        if row_factor:
            self._extra_columns[:, 0] = row_factor * row_means
            self._extra_rows[0, :n_columns] = rms
            self._extra_rows[0, n_columns] = -rms * row_factor
        if column_factor:
            self._extra_columns[:, 1] = rms
            self._extra_rows[1, :n_columns] = column_factor * column_means
            self._extra_rows[1, n_columns + 1] = -rms * column_factor
        common = float(row_means.mean())
        self.centered = Standardized(operator, column_means + common, ones)
        self._deviation: Array = (row_means - common)[:, np.newaxis]

    @property
    def extra_rows(self) -> slice:
        """The two rows whose scores are observed to be zero."""
        return slice(self.shape[0] - 2, self.shape[0])

    def sweep(self, weights: Array, weight_var: Array | None, row_step: RowStep) -> Sweep:
        n_columns = self.centered.shape[1]
        w = _as_columns(weights)
        v = np.zeros((n_columns + 2, 0)) if weight_var is None else _as_columns(weight_var)
        n_scores = w.shape[1]
        var_shape = () if weight_var is None else np.shape(weight_var)
        # Sums over rows that the inner operator cannot form, since it has no h.
        slope_total, curvature_total = np.zeros(n_scores), np.zeros(v.shape[1])
        extra_slopes, extra_curvatures = np.zeros((2, n_scores)), np.zeros((2, v.shape[1]))

        def answered(rows: slice, scores: Array, score_var: Array | None) -> tuple[Array, Array]:
            """What the row step makes of scores, in the shapes it was promised."""
            slopes, curvatures = row_step(
                rows,
                scores.reshape(-1, *np.shape(weights)[1:]),
                None if score_var is None else score_var.reshape(-1, *var_shape[1:]),
            )
            none = np.zeros((scores.shape[0], 0))
            return _as_columns(slopes), none if curvatures is None else _as_columns(curvatures)

        def inner_row_step(rows: slice, scores: Array, score_var: Array | None) -> tuple[Array, Array]:
            nonlocal slope_total, curvature_total, extra_slopes, extra_curvatures
            h, extra = self._deviation[rows], self._extra_columns[rows]
            if score_var is not None:
                score_var = self._variances(rows, score_var, scores[:, n_scores:], v)
            slopes, curvatures = answered(rows, self._scores(rows, scores[:, :n_scores], w), score_var)
            weighted = h * curvatures
            slope_total = slope_total + (h * slopes).sum(axis=0)
            curvature_total = curvature_total + (h * weighted).sum(axis=0)
            extra_slopes = extra_slopes + extra.T @ slopes
            extra_curvatures = extra_curvatures + np.square(extra).T @ curvatures
            return np.hstack([slopes, weighted]), curvatures

        inner_var = None if weight_var is None else v[:n_columns]
        inner = self.centered.sweep(np.hstack([w, v])[:n_columns], inner_var, inner_row_step)
        last_var = None if weight_var is None else np.square(self._extra_rows) @ v
        last_slopes, last_curvatures = answered(self.extra_rows, self._extra_rows @ w, last_var)
        slopes = np.concatenate([inner.slopes[:, :n_scores] - slope_total, extra_slopes])
        slopes += self._extra_rows.T @ last_slopes
        slopes = slopes.reshape(np.shape(weights))
        if weight_var is None or inner.curvatures is None:
            return Sweep(slopes, None)
        bulk = inner.curvatures - 2 * inner.slopes[:, n_scores:] + curvature_total
        curvatures = np.concatenate([bulk, extra_curvatures])
        curvatures += np.square(self._extra_rows).T @ last_curvatures
        return Sweep(slopes, curvatures.reshape(var_shape))

    def scores(self, weights: Array) -> Array:
        w = _as_columns(weights)
        inner = self._scores(slice(0, self.shape[0] - 2), self.centered.scores(w[:-2]), w)
        return np.concatenate([inner, self._extra_rows @ w]).reshape(-1, *np.shape(weights)[1:])

    def score_variances(self, weight_var: Array) -> Array:
        v = _as_columns(weight_var)
        inner, linear = self.centered.score_variances(v[:-2]), self.centered.scores(v[:-2])
        inner = self._variances(slice(0, self.shape[0] - 2), inner, linear, v)
        return np.concatenate([inner, np.square(self._extra_rows) @ v]).reshape(-1, *np.shape(weight_var)[1:])

    def columns(self, indices: ArrayLike) -> NDArray[np.float64]:
        positions = column_positions(indices, self.shape[1])
        n_rows, n_columns = self.centered.shape
        is_inner = positions < n_columns
        out = np.empty((self.shape[0], positions.size))
        out[:n_rows, is_inner] = self.centered.columns(positions[is_inner]) - self._deviation
        out[:n_rows, ~is_inner] = self._extra_columns[:, positions[~is_inner] - n_columns]
        out[n_rows:] = self._extra_rows[:, positions]
        return out

    def dense_tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        n_rows, n_columns = self.centered.shape
        inner_rows = slice(min(rows.start, n_rows), min(rows.stop, n_rows))
        inner_columns = slice(min(columns.start, n_columns), min(columns.stop, n_columns))
        inner = self.centered.dense_tile(inner_rows, inner_columns) - self._deviation[inner_rows]
        extra_columns = slice(max(columns.start - n_columns, 0), max(columns.stop - n_columns, 0))
        extra_rows = slice(max(rows.start - n_rows, 0), max(rows.stop - n_rows, 0))
        tile = np.hstack([inner, self._extra_columns[inner_rows, extra_columns]])
        return np.vstack([tile, self._extra_rows[extra_rows, columns]])

    def _scores(self, rows: slice, inner: Array, w: Array) -> Array:
        """Scores of some of the first M rows from those of Z."""
        return inner - self._deviation[rows] * w[:-2].sum(axis=0) + self._extra_columns[rows] @ w[-2:]

    def _variances(self, rows: slice, inner: Array, linear: Array, v: Array) -> Array:
        """Variances of some of the first M rows from Σ z² v and Σ z v."""
        h = self._deviation[rows]
        bulk = inner - 2 * h * linear + np.square(h) * v[:-2].sum(axis=0)
        return np.maximum(bulk, 0.0) + np.square(self._extra_columns[rows]) @ v[-2:]


def _as_columns(vector: ArrayLike) -> Array:
    vector = np.asarray(vector, dtype=np.float64)
    return vector[:, np.newaxis] if vector.ndim == 1 else vector


def _kept_means(means: Array, rms: float, share: Array) -> tuple[Array, float]:
    """Means worth removing, and the factor that gives them the rms of the entries; zeros if none are."""
    size = float(np.sqrt(share @ means**2))
    if size <= NEGLIGIBLE_MEAN * rms:
        return np.zeros_like(means), 0.0
    return means, rms / size
