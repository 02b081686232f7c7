"""Logistic and multinomial ridges of several strengths by Newton's method, with scores of left-out samples.

The strength is a prior variance of scores: the decade at which left-out labels are predicted best, and the
one on either side, between which an average finds its own. Nothing here is made of labels but the fit itself:
the prior does not depend on class means, and the intercepts are wide, so leave-one-out counts no label twice.

With many samples a mode and one curvature are all there is to a ridge; scores of samples that were left out
follow from these (`solvers.multinomial_ridge`), without another visit of the samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import log_softmax

from foldless.beliefs import Array
from foldless.channels import Channel, Logistic, Multinomial
from foldless.operators import Standardized
from foldless.problem import Outcome
from foldless.solvers.multinomial_ridge import (
    ROUGH_TOLERANCE,
    RidgeFit,
    leave_groups_out,
    leave_one_out,
    leave_one_out_along_own,
    leave_one_out_in_sets,
    log_odds_variances,
    multinomial_ridge,
)
from foldless.tuning.models.base import Model, Scores, Weights
from foldless.tuning.models.ridges import searched
from foldless.tuning.plan import ALONG_OWN, IN_SETS, DensePlan, Recipe
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
    two = table.n_classes == 2
    # The prior of log-odds is that of the difference of two scores.
    prior_size = 0.5 if two else 1.0
    kept = np.column_stack([counted.columns(table.kept), np.ones(rows.size)])
    kept_var = np.append(np.full(table.kept.size, COVARIATE_VARIANCE), INTERCEPT_VARIANCE)
    kept_spread = np.sqrt(prior_size * kept_var)
    channel: Channel = Logistic() if two else Multinomial(table.n_classes)
    last: tuple[float, Array] | None = None

    def basis_of(spread: float) -> Array:
        return np.hstack([spread * space.basis, kept_spread * kept])

    def fitted(recipe: Recipe) -> _Ridge | None:
        nonlocal last
        spread = float(np.sqrt(prior_size * recipe.score_variance / size))
        basis = basis_of(spread)
        inside = basis[rows], table.indicator[rows], weight
        start = None
        if last is not None:
            # The scores of the last strength, in the units of this one.
            start = last[1].copy()
            start[: space.basis.shape[1]] *= last[0] / spread
        found = multinomial_ridge(*inside, start, ROUGH_TOLERANCE)
        last = spread, found.weights
        scores, var, lost = basis @ found.weights, np.zeros(rows.size), table.left_out.weight[rows]
        if table.left_out.group is not None:
            scores[rows] = leave_groups_out(*inside, table.left_out.group[rows], found)
        elif two or dense.left_out == ALONG_OWN:
            scores[rows], var[rows] = leave_one_out_along_own(*inside, lost, found)
        else:
            leave_out = leave_one_out_in_sets if dense.left_out == IN_SETS else leave_one_out
            scores[rows] = leave_out(*inside, lost, found)
        fine = found.converged and bool(np.isfinite(scores).all())
        outcome = Outcome.CONVERGED if fine else Outcome.DIVERGED
        recorder.runs.append(Run("ridge", "fit", "Newton", outcome, 0, detail=recipe.name))
        return _Ridge(found, scores, var, spread) if fine else None

    def loss(ridge: _Ridge) -> float:
        return -float(table.sample_weight @ table.log_density(log_softmax(ridge.left_out, axis=1)))

    def model(recipe: Recipe, ridge: _Ridge) -> Model:
        # Doubt about scores is counted for two classes of as many columns as there are weights.
        doubted = two and space.back is None and table.left_out.group is None

        def weights() -> Weights:
            n, scale = space.basis.shape[1], ridge.spread
            own = _log_odds(ridge.fit.weights) if two else ridge.fit.weights
            of_kept = kept_spread[:, np.newaxis] * own[n:]
            mean = space.weights(scale * own[:n])
            var, of_kept_var = np.zeros_like(mean), np.zeros_like(of_kept)
            if doubted:
                of_all = log_odds_variances(basis_of(scale)[rows], weight, ridge.fit)[:, np.newaxis]
                var = space.weights(scale**2 * of_all[:n])
                of_kept_var = kept_spread[:, np.newaxis] ** 2 * of_all[n:]
            mean[table.kept], var[table.kept] = of_kept[:-1], of_kept_var[:-1]
            if unit is not None:
                mean *= unit[:, np.newaxis]
                var *= unit[:, np.newaxis] ** 2
            return Weights(mean, var, of_kept[-1], of_kept_var[-1])

        mean = _log_odds(ridge.left_out) if two else ridge.left_out
        left_out = Scores(mean, ridge.var[:, np.newaxis] if doubted else None)
        return Model(recipe.code, recipe.name, channel, left_out, weights)

    return [model(recipe, ridge) for recipe, ridge in searched(dense.recipes, fitted, loss)]


def _log_odds(of_classes: Array) -> Array:
    """The difference of the scores, or weights, of two classes, (..., 1)."""
    return np.diff(of_classes, axis=1)


@dataclass(frozen=True, eq=False)
class _Ridge:
    """One strength: the fit, in coordinates of the space times `spread`, and scores of left-out samples."""

    fit: RidgeFit
    left_out: Array  # (samples, D)
    var: Array  # (samples,): of the log-odds of two classes
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
