"""A matrix without row and column means, and two more rows and columns that put them back.

Approximate message passing diverges on matrices whose entries have a common mean; on the enlarged
matrix it does not [Vila, Schniter, Rangan, Krzakala, Zdeborová 2015].
"""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.beliefs import Array
from foldless.operators.base import Operator, RowStep, Sweep, column_positions, normalized_sample_weight

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

    Rows M and M + 1 come last in a sweep, in one `row_step` of their own.
    """

    def __init__(self, operator: Operator, sample_weight: Array | None = None) -> None:
        self.operator = operator
        n_rows, n_columns = operator.shape
        if n_rows == 0 or n_columns == 0:
            raise ValueError(f"a matrix of shape {operator.shape} has no means to remove")
        self.shape = (n_rows + 2, n_columns + 2)
        self.dtype = operator.dtype

        self.row_means: Array = operator.scores(np.full(n_columns, 1.0 / n_columns))
        share = normalized_sample_weight(np.ones(n_rows) if sample_weight is None else sample_weight, n_rows)
        column_means, _ = operator.column_moments(share)
        common = float(share @ self.row_means)
        self.column_means: Array = column_means - common
        rms = float(np.sqrt(share @ self._centered_row_norms(common) / n_columns)) or 1.0
        self.row_means, row_factor = _kept_means(self.row_means, rms, share)
        evenly = np.full(n_columns, 1.0 / n_columns)
        self.column_means, column_factor = _kept_means(self.column_means, rms, evenly)

        self._extra_columns = np.zeros((n_rows, 2))
        self._extra_rows = np.zeros((2, n_columns + 2))
        # Means that are negligible need neither row nor column: a weight pinned to zero by a row of its
        # own would still draw on what the labels say, and with it on an intercept.
        if row_factor:
            self._extra_columns[:, 0] = row_factor * self.row_means
            self._extra_rows[0, :n_columns] = rms
            self._extra_rows[0, n_columns] = -rms * row_factor
        if column_factor:
            self._extra_columns[:, 1] = rms
            self._extra_rows[1, :n_columns] = column_factor * self.column_means
            self._extra_rows[1, n_columns + 1] = -rms * column_factor

    @property
    def extra_rows(self) -> slice:
        """The two rows whose scores are observed to be zero."""
        return slice(self.operator.shape[0], self.shape[0])

    @property
    def extra_columns(self) -> slice:
        """The two columns whose weights have flat priors."""
        return slice(self.operator.shape[1], self.shape[1])

    def sweep(
        self,
        weights: Array,
        weight_var: Array | None,
        row_step: RowStep,
        *,
        center: Array | None = None,
        scale: Array | None = None,
    ) -> Sweep:
        n_columns = self.operator.shape[1]
        weights = np.asarray(weights, dtype=np.float64)
        flat = weights.ndim == 1
        columns_of = _as_columns(weights)
        n_scores = columns_of.shape[1]
        squares = _Squares(self, weight_var, center, scale)
        # Sums over rows that the inner operator cannot see, since it does not know γ.
        slope_totals = np.zeros((2, n_scores))  # Σ γ slopes and Σ slopes
        extra_slopes = np.zeros((2, n_scores))

        def augmented_row_step(
            rows: slice, scores: Array, score_var: Array | None
        ) -> tuple[Array, Array | None]:
            full_scores = self._scores(rows, scores[:, :n_scores], columns_of)
            full_var = None if score_var is None else squares.score_var(rows, score_var, scores[:, n_scores:])
            slopes, curvatures = row_step(
                rows, full_scores[:, 0] if flat else full_scores, squares.like_input(full_var)
            )
            slopes = _as_columns(slopes)
            slope_totals[0] += self.row_means[rows] @ slopes
            slope_totals[1] += slopes.sum(axis=0)
            extra_slopes[:] += self._extra_columns[rows].T @ slopes
            if curvatures is None:
                return slopes, None
            curvatures = _as_columns(curvatures)
            return np.hstack([slopes, squares.collect(rows, curvatures)]), curvatures

        inner = self.operator.sweep(
            np.hstack([columns_of[:n_columns], squares.inner_var]),
            None if weight_var is None else squares.inner_var,
            augmented_row_step,
            center=squares.inner_center,
        )
        slopes = np.empty(columns_of.shape)
        slopes[:n_columns] = inner.slopes[:, :n_scores] - slope_totals[0]
        slopes[:n_columns] -= np.multiply.outer(self.column_means, slope_totals[1])
        slopes[n_columns:] = extra_slopes
        curvatures = (
            None
            if inner.curvatures is None
            else squares.curvatures(inner.curvatures, inner.slopes[:, n_scores:])
        )

        last_scores = self._extra_rows @ columns_of
        last_slopes, last_curvatures = row_step(
            self.extra_rows,
            last_scores[:, 0] if flat else last_scores,
            squares.like_input(squares.extra_score_var()),
        )
        slopes += self._extra_rows.T @ _as_columns(last_slopes)
        if curvatures is not None and last_curvatures is not None:
            curvatures += squares.extra_rows.T @ _as_columns(last_curvatures)
        return Sweep(slopes[:, 0] if flat else slopes, squares.like_input(curvatures))

    def scores(self, weights: Array) -> Array:
        weights = np.asarray(weights, dtype=np.float64)
        n_rows, n_columns = self.operator.shape
        columns_of = _as_columns(weights)
        every_row = slice(0, n_rows)
        inner = self._scores(every_row, self.operator.scores(columns_of[:n_columns]), columns_of)
        out = np.concatenate([inner, self._extra_rows @ columns_of])
        return out[:, 0] if weights.ndim == 1 else out

    def score_variances(
        self, weight_var: Array, *, center: Array | None = None, scale: Array | None = None
    ) -> Array:
        squares = _Squares(self, weight_var, center, scale)
        inner = self.operator.score_variances(squares.inner_var, center=squares.inner_center)
        linear = self.operator.scores(squares.inner_var)
        out = squares.score_var(slice(0, self.operator.shape[0]), inner, linear)
        return squares.given_shape(np.concatenate([out, squares.extra_rows @ squares.weight_var]))

    def column_moments(self, sample_weight: Array) -> tuple[Array, Array]:
        share = normalized_sample_weight(sample_weight, self.shape[0])
        n_rows, n_columns = self.operator.shape
        inner_share = share[:n_rows].sum()
        mean = np.zeros(self.shape[1])
        variance = np.zeros(self.shape[1])
        if inner_share > 0:
            within = share[:n_rows] / inner_share
            inner_mean, inner_variance = self.operator.column_moments(within)
            # var(x - γ) = var x - 2 cov(x, γ) + var γ.
            row_mean = within @ self.row_means
            deviation = self.row_means - row_mean
            covariance = self.operator.adjoint(within * deviation)
            mean[:n_columns] = inner_mean - row_mean - self.column_means
            variance[:n_columns] = inner_variance - 2 * covariance + within @ deviation**2
            np.maximum(variance, 0.0, out=variance)
            mean[n_columns:] = within @ self._extra_columns
            variance[n_columns:] = within @ (self._extra_columns - mean[n_columns:]) ** 2
        # Two groups of rows pooled: within and between.
        outer_share = share[n_rows:]
        pooled = inner_share * mean + outer_share @ self._extra_rows
        spread = inner_share * (variance + (mean - pooled) ** 2)
        return pooled, spread + outer_share @ (self._extra_rows - pooled) ** 2

    def nonzero_weight(self, sample_weight: Array) -> Array:
        """Of the data and of what was added; means that were removed make no zero something else."""
        n_rows = self.operator.shape[0]
        inner, extra = sample_weight[:n_rows], sample_weight[n_rows:]
        added = inner @ (self._extra_columns != 0)
        found = np.append(self.operator.nonzero_weight(inner), added)
        return found + extra @ (self._extra_rows != 0)

    def some_rows(self, rows: NDArray[np.intp]) -> MeanRemoved:
        n_rows = self.operator.shape[0]
        inner = rows[rows < n_rows]
        part = copy(self)
        part.shape = (rows.size, self.shape[1])
        part.operator, part.row_means = self.operator.some_rows(inner), self.row_means[inner]
        part._extra_columns = self._extra_columns[inner]
        part._extra_rows = self._extra_rows[rows[inner.size :] - n_rows]
        return part

    def columns(self, indices: ArrayLike) -> NDArray[np.float64]:
        positions = column_positions(indices, self.shape[1])
        n_rows, n_columns = self.operator.shape
        is_inner = positions < n_columns
        out = np.empty((self.shape[0], positions.size))
        inner = positions[is_inner]
        out[:n_rows, is_inner] = (
            self.operator.columns(inner) - self.row_means[:, np.newaxis] - self.column_means[inner]
        )
        out[:n_rows, ~is_inner] = self._extra_columns[:, positions[~is_inner] - n_columns]
        out[n_rows:] = self._extra_rows[:, positions]
        return out

    def dense_tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        n_rows, n_columns = self.operator.shape
        inner_rows = slice(min(rows.start, n_rows), min(rows.stop, n_rows))
        inner_columns = slice(min(columns.start, n_columns), min(columns.stop, n_columns))
        inner = self.operator.dense_tile(inner_rows, inner_columns)
        inner -= self.row_means[inner_rows, np.newaxis]
        inner -= self.column_means[inner_columns]
        height, width = inner.shape
        tile = np.empty((rows.stop - rows.start, columns.stop - columns.start))
        tile[:height, :width] = inner
        if width < tile.shape[1]:
            extra_columns = slice(columns.start + width - n_columns, columns.stop - n_columns)
            tile[:height, width:] = self._extra_columns[inner_rows, extra_columns]
        if height < tile.shape[0]:
            extra_rows = slice(rows.start + height - n_rows, rows.stop - n_rows)
            tile[height:] = self._extra_rows[extra_rows, columns]
        return tile

    def _scores(self, rows: slice, inner_scores: Array, weights: Array) -> Array:
        """Scores of some of the first M rows from the inner operator's."""
        n_columns = self.operator.shape[1]
        inner_weights = weights[:n_columns]
        return (
            inner_scores
            - np.multiply.outer(self.row_means[rows], inner_weights.sum(axis=0))
            - self.column_means @ inner_weights
            + self._extra_columns[rows] @ weights[n_columns:]
        )

    def _centered_row_norms(self, common: float) -> Array:
        """Squared length of every row of X - γ1' - 1c', with `common` the mean of γ."""
        # With row deviation h and q = c + common: Σ_j (x - q)² - 2 h Σ_j (x - q) + N h².
        center = self.column_means + common
        deviation = self.row_means - common
        n_columns = self.operator.shape[1]
        linear = n_columns * self.row_means - center.sum()
        norms = self.operator.row_norms(center=center) - 2 * deviation * linear + n_columns * deviation**2
        return np.maximum(norms, 0.0)


class _Squares:
    """Squares of the augmented matrix about `center` and over `scale`, from what the inner operator offers.

    With h_i = γ_i - mean(γ), q_j the whole centre of column j and v_j its variance over scale²:
        Σ_j (x_ij - q_j - h_i)² v_j = Σ_j (x_ij - q_j)² v_j - 2 h_i Σ_j (x_ij - q_j) v_j + h_i² Σ_j v_j,
    and the same by columns. The middle term is a score of X with v as weights, which is why a sweep with
    variances carries twice as many scores. Taking the common mean into q leaves to cancel only what rows
    differ by, a few standard deviations if columns are standardized.
    """

    def __init__(
        self, outer: MeanRemoved, weight_var: Array | None, center: Array | None, scale: Array | None
    ) -> None:
        n_columns = outer.operator.shape[1]
        self._flat = weight_var is None or np.ndim(weight_var) == 1
        self.weight_var: Array = np.zeros((n_columns + 2, 0))
        if weight_var is not None:
            self.weight_var = _as_columns(np.asarray(weight_var, dtype=np.float64))
        whole_center = np.zeros(n_columns + 2) if center is None else np.asarray(center, dtype=np.float64)
        inverse = np.ones(n_columns + 2) if scale is None else 1.0 / np.asarray(scale, dtype=np.float64)
        self._inverse_square = (inverse[:n_columns] ** 2)[:, np.newaxis]
        common = outer.row_means.mean()
        self._deviation = (outer.row_means - common)[:, np.newaxis]
        self.inner_center = outer.column_means + whole_center[:n_columns] + common
        self.inner_var = self.weight_var[:n_columns] * self._inverse_square
        self._center_var = self.inner_center @ self.inner_var
        self._total_var = self.inner_var.sum(axis=0)
        self.extra_rows = ((outer._extra_rows - whole_center) * inverse) ** 2
        self._extra_columns = ((outer._extra_columns - whole_center[n_columns:]) * inverse[n_columns:]) ** 2
        self._extra_var = self.weight_var[n_columns:]
        n_scores = self.weight_var.shape[1]
        self._curvature_totals = np.zeros((2, n_scores))  # Σ h curvatures and Σ h² curvatures
        self._extra_curvatures = np.zeros((2, n_scores))

    def score_var(self, rows: slice, inner: Array, linear: Array) -> Array:
        """Variances of some of the first M rows from Σ (x - q)² v and Σ x v."""
        h = self._deviation[rows]
        bulk = inner - 2 * h * (linear - self._center_var) + h**2 * self._total_var
        return np.maximum(bulk, 0.0) + self._extra_columns[rows] @ self._extra_var

    def extra_score_var(self) -> Array | None:
        return self.extra_rows @ self.weight_var if self.weight_var.shape[1] else None

    def collect(self, rows: slice, curvatures: Array) -> Array:
        """Take note of a block's curvatures; returns the row vectors whose products with X are needed."""
        weighted = self._deviation[rows] * curvatures
        self._curvature_totals[0] += weighted.sum(axis=0)
        self._curvature_totals[1] += (self._deviation[rows] * weighted).sum(axis=0)
        self._extra_curvatures += self._extra_columns[rows].T @ curvatures
        return weighted

    def curvatures(self, inner: Array, linear: Array) -> Array:
        """Sums over the first M rows from Σ (x - q)² t and Σ x h t."""
        middle = linear - np.multiply.outer(self.inner_center, self._curvature_totals[0])
        bulk = (inner - 2 * middle + self._curvature_totals[1]) * self._inverse_square
        return np.concatenate([bulk, self._extra_curvatures])

    def like_input(self, values: Array | None) -> Array | None:
        return None if values is None else self.given_shape(values)

    def given_shape(self, values: Array) -> Array:
        """(…, d) arrays as they were asked for: 1-d if the variances were."""
        return values[:, 0] if self._flat else values


def _as_columns(vector: Array) -> Array:
    return vector[:, np.newaxis] if vector.ndim == 1 else vector


def _kept_means(means: Array, rms: float, share: Array) -> tuple[Array, float]:
    """Means worth removing, and the factor that gives them the rms of the entries; zeros if none are."""
    size = float(np.sqrt(share @ means**2))
    if size <= NEGLIGIBLE_MEAN * rms:
        return np.zeros_like(means), 0.0
    return means, rms / size
