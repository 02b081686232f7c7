"""Multinomial ridge regressions of several strengths, each with exact scores of left-out samples.

The strength is a prior variance of scores: the decade at which left-out labels are predicted best, and the
one on either side, between which an average finds its own. Nothing here is made of labels but the fit itself:
the prior does not depend on class means, and the intercepts are wide, so leave-one-out counts no label twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import log_softmax

from foldless.beliefs import Array
from foldless.channels import Multinomial
from foldless.operators import Standardized
from foldless.problem import Outcome
from foldless.solvers.multinomial_ridge import leave_groups_out, leave_one_out, multinomial_ridge
from foldless.tuning.models.base import Model, Scores, Weights
from foldless.tuning.models.ridges import searched
from foldless.tuning.plan import DensePlan, Recipe
from foldless.tuning.record import Recorder, Run
from foldless.tuning.table import COVARIATE_VARIANCE, INTERCEPT_VARIANCE, Table

# Directions whose variance is below this share of the largest are rounding of the products X Xᵀ.
SMALLEST_VARIANCE = 1e-12


def newton_ridges(table: Table, dense: DensePlan, unit: Array | None, recorder: Recorder) -> list[Model]:
    """Ridges of the best strengths. A sample of weight 0 is predicted, and otherwise not there."""
    counted, rows = table.in_units(unit).standardized, table.sample_weight > 0
    space = _Space.of(counted, table.free)
    weight = table.sample_weight[rows]
    size = float(weight @ np.sum(space.basis[rows] ** 2, axis=1)) / float(weight.sum())
    if size == 0:
        return []
    group = parts_of(table, dense.n_parts) if dense.n_parts else table.left_out.group
    kept = np.column_stack([counted.columns(table.kept), np.ones(rows.size)])
    kept_spread = np.sqrt(np.append(np.full(table.kept.size, COVARIATE_VARIANCE), INTERCEPT_VARIANCE))
    channel = Multinomial(table.n_classes)
    last: tuple[float, Array] | None = None

    def fitted(recipe: Recipe) -> _Ridge | None:
        nonlocal last
        spread = float(np.sqrt(recipe.score_variance / size))
        basis = np.hstack([spread * space.basis, kept_spread * kept])
        inside = basis[rows], table.indicator[rows], weight
        start = None
        if last is not None:
            # The scores of the last strength, in the units of this one.
            start = last[1].copy()
            start[: space.basis.shape[1]] *= last[0] / spread
        found = multinomial_ridge(*inside, start)
        last = spread, found.weights
        scores = basis @ found.weights
        scores[rows] = (
            leave_one_out(*inside, found)
            if group is None
            else leave_groups_out(*inside, group[rows], found)
        )
        fine = found.converged and bool(np.isfinite(scores).all())
        outcome = Outcome.CONVERGED if fine else Outcome.DIVERGED
        recorder.runs.append(Run("ridge", "fit", "Newton", outcome, 0, detail=recipe.name))
        return _Ridge(scores, found.weights, spread) if fine else None

    def loss(ridge: _Ridge) -> float:
        return -float(table.sample_weight @ table.log_density(log_softmax(ridge.left_out, axis=1)))

    def model(recipe: Recipe, ridge: _Ridge) -> Model:
        def weights() -> Weights:
            n = space.basis.shape[1]
            of_kept = kept_spread[:, np.newaxis] * ridge.weights[n:]
            mean = space.weights(ridge.spread * ridge.weights[:n])
            mean[table.kept] = of_kept[:-1]
            if unit is not None:
                mean *= unit[:, np.newaxis]
            return Weights(mean, np.zeros_like(mean), of_kept[-1], np.zeros(mean.shape[1]))

        return Model(recipe.code, recipe.name, channel, Scores(ridge.left_out, None), weights)

    return [model(recipe, ridge) for recipe, ridge in searched(dense.recipes, fitted, loss)]


def parts_of(table: Table, n_parts: int) -> NDArray[np.intp]:
    """Parts to be left out in turn: alike in classes and sizes of rows, and the same in any order of rows."""
    size = table.standardized.squared_norms(table.sample_weight)[0]
    part = np.empty(table.labels.size, dtype=np.intp)
    part[np.lexsort((size, table.labels))] = np.arange(part.size) % n_parts
    return part


@dataclass(frozen=True, eq=False)
class _Ridge:
    """One strength: scores of left-out samples, and weights in coordinates of the space."""

    left_out: Array  # (samples, D)
    weights: Array
    spread: float


@dataclass(frozen=True, eq=False)
class _Space:
    """The free columns in coordinates of which there are no more than samples: X = B Vᵀ, V orthonormal.

    With at most as many columns as samples these are the columns themselves. Otherwise V is never formed:
    weights V v are Xᵀ (back v).
    """

    standardized: Standardized
    free: NDArray[np.bool_]
    basis: Array  # (samples, coordinates)
    back: Array | None  # (samples, coordinates)

    @classmethod
    def of(cls, standardized: Standardized, free: NDArray[np.bool_]) -> _Space:
        n_samples = standardized.shape[0]
        columns = np.flatnonzero(free)
        if columns.size <= n_samples:
            return cls(standardized, free, standardized.columns(columns), None)
        products = np.zeros((n_samples, n_samples))
        for where, tile in standardized.dense_columns():
            inside = tile if free[where].all() else tile[:, free[where]]
            products += inside @ inside.T
        variance, vectors = eigh(products)
        used = variance > SMALLEST_VARIANCE * variance[-1]
        length = np.sqrt(variance[used])
        return cls(standardized, free, vectors[:, used] * length, vectors[:, used] / length)

    def weights(self, coordinates: Array) -> Array:
        """Weights of all columns, zero where they are not free."""
        out = np.zeros((self.free.size, coordinates.shape[1]))
        if self.back is None:
            out[self.free] = coordinates
        else:
            out[self.free] = self.standardized.adjoint(self.back @ coordinates)[self.free]
        return out
