"""Multinomial ridge regressions of several strengths, each with its leave-one-out scores.

The dense models of many classes, as `bank` has them for two. The strength is a prior variance of scores: the
decade at which left-out labels are predicted best, and the one on either side, between which an average finds
its own. Nothing here is made of labels but the fit itself: the prior knows no class means, and the intercepts
are wide, so leave-one-out counts no label twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import log_softmax

from foldless.beliefs import Array
from foldless.operators import Standardized
from foldless.solvers.multinomial_ridge import leave_groups_out, leave_one_out, multinomial_ridge
from foldless.tuning.fit import COVARIATE_VARIANCE, INTERCEPT_VARIANCE

# Prior variances of the scores of samples, in squared log-odds: from weak signals to separated classes. The
# search begins in the middle.
SCORE_VARIANCES = (0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0)
FIRST = 2
# Directions whose variance is below this share of the largest are rounding of the products X Xᵀ.
SMALLEST_VARIANCE = 1e-12


class RidgeWeights(NamedTuple):
    """In units of the standardised columns."""

    weights: Array  # (columns, D)
    intercept: Array  # (D,)


@dataclass(frozen=True, eq=False)
class RidgeModel:
    """One strength: scores of every sample from all others, and its weights if asked for."""

    score_variance: float
    loo_scores: Array  # (samples, D)
    loo_loss: float  # the sum of log losses
    linear: Callable[[], RidgeWeights]


class HasLoss(Protocol):
    @property
    def loo_loss(self) -> float: ...


M = TypeVar("M", bound=HasLoss)


def loo_cost(n_samples: int, n_coordinates: int, n_classes: int) -> float:
    """Operations of leaving samples out one by one, at one strength."""
    if n_coordinates * n_classes <= n_samples:
        return float(n_coordinates * n_classes) ** 2 * (n_samples + n_coordinates * n_classes)
    return 3.0 * n_classes * float(n_samples) ** 2 * n_coordinates


def ridge_path(
    standardized: Standardized,
    indicator: Array,
    sample_weight: Array,
    left_out: Array,
    always_kept: NDArray[np.intp],
    group: NDArray[np.intp] | None = None,
) -> list[RidgeModel]:
    """Ridge regressions of several strengths. A sample of weight 0 is predicted, and otherwise not there.

    `group` numbers samples that are left out together.
    """
    rows = sample_weight > 0
    free = ~standardized.constant
    free[always_kept] = False
    space = _Space.of(standardized, free)
    weight = sample_weight[rows]
    size = float(weight @ np.sum(space.basis[rows] ** 2, axis=1)) / float(weight.sum())
    if size == 0:
        return []
    n_samples = rows.size
    kept = np.column_stack([standardized.columns(always_kept), np.ones(n_samples)])
    kept_spread = np.sqrt(np.append(np.full(always_kept.size, COVARIATE_VARIANCE), INTERCEPT_VARIANCE))

    last: tuple[float, Array] | None = None

    def fitted_at(score_variance: float) -> RidgeModel | None:
        nonlocal last
        spread = np.sqrt(score_variance / size)
        basis = np.hstack([spread * space.basis, kept_spread * kept])
        inside = basis[rows], indicator[rows], weight
        start = None
        if last is not None:
            # The scores of the last strength, in the units of this one.
            start = last[1].copy()
            start[: space.basis.shape[1]] *= last[0] / spread
        fitted = multinomial_ridge(*inside, start)
        last = spread, fitted.weights
        scores = basis @ fitted.weights
        scores[rows] = (
            leave_one_out(*inside, left_out[rows], fitted)
            if group is None
            else leave_groups_out(*inside, group[rows], fitted)
        )
        if not (fitted.converged and np.isfinite(scores).all()):
            return None
        loss = -float(sample_weight @ np.sum(indicator * log_softmax(scores, axis=1), axis=1))
        linear = _linear(space, spread, kept_spread, always_kept, fitted.weights)
        return RidgeModel(score_variance, scores, loss, linear)

    return searched(fitted_at)


def searched(fitted_at: Callable[[float], M | None]) -> list[M]:
    """The best strength and its neighbours, found by going from neighbour to neighbour.

    Strengths further off say little that these do not, and say it with the wrong certainty.
    """
    found = {FIRST: fitted_at(SCORE_VARIANCES[FIRST])}

    def loss(n: int) -> float:
        model = found[n]
        return np.inf if model is None else model.loo_loss

    while True:
        best = min(found, key=loss)
        around = [n for n in (best + 1, best - 1) if 0 <= n < len(SCORE_VARIANCES)]
        unknown = [n for n in around if n not in found]
        if not unknown:
            break
        found[unknown[0]] = fitted_at(SCORE_VARIANCES[unknown[0]])
    return [model for n, model in sorted(found.items()) if model is not None and abs(n - best) <= 1]


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


def _linear(
    space: _Space, spread: float, kept_spread: Array, always_kept: NDArray[np.intp], weights: Array
) -> Callable[[], RidgeWeights]:
    def linear() -> RidgeWeights:
        n_coordinates = space.basis.shape[1]
        of_kept = kept_spread[:, np.newaxis] * weights[n_coordinates:]
        out = space.weights(spread * weights[:n_coordinates])
        out[always_kept] = of_kept[:-1]
        return RidgeWeights(out, of_kept[-1])

    return linear
