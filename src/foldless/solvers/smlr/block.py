"""The block update of SMLR: all weights at once, under a bound of the loss, with over-relaxation.

The curvature of the loss is nowhere larger than that of B = ½ (I - 11'/K) ⊗ X'X [Böhning 1992], and |w| is
below w²/2|v| + |v|/2 for any v. Together the objective is below a quadratic that touches it at the present
weights, whose minimum is [Krishnapuram et al. 2005, (12) and (13), with the sign of B turned]

    w ← G (G B G + λ I)⁻¹ G (B w + g),    G = diag √|w|,

for an L1 penalty; for λ/2 Σw² the same with G = I (10), where the system is factored once; for maximum
likelihood also λ = 0 (7). Zeros stay zero under G, so gradient steps, which are bound optimisation as well,
let weights in, and a component-wise finish makes small ones exactly zero.

Over-relaxation [Salakhutdinov and Roweis 2003] goes further than the minimum for as long as that pays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from foldless.beliefs import Array
from foldless.solvers.smlr.component_wise import component_wise
from foldless.solvers.smlr.design import Design, Watch
from foldless.solvers.smlr.objective import AtScores

LONGER = 1.1
# Block updates creep towards zeros; once an update gains less than this share of the objective, the
# component-wise finish takes over.
CREEPING = 1e-7
# Updates of smooth penalties end when one gains less than this share of what is allowed.
NEGLIGIBLE = 1e-3
# Of the diagonal of B, so that columns that repeat others leave it positive definite.
RIDGE = 1e-10


def block(
    design: Design, weights: Array, gap_target: float, max_iter: int, watch: Watch
) -> tuple[Array, int]:
    """Weights whose duality gap over the design's columns is below the target, and the updates taken."""
    bound = _bound(design)
    at = design.labels.at(design.scores(weights))
    if design.penalty.sparse:
        weights, at = _lit(design, weights, at, bound)
        watch(design.objective(at, weights))
    update = _Update(design, bound)
    objective, stretch = design.objective(at, weights), 1.0
    for iteration in range(max_iter):
        aim = update(weights, design.gradient(at))
        far = weights + stretch * (aim - weights)
        far_at = design.labels.at(design.scores(far))
        if design.objective(far_at, far) < objective:
            weights, at = far, far_at
            stretch *= LONGER
        else:
            aim_at = design.labels.at(design.scores(aim))
            stretch = 1.0
            if not design.objective(aim_at, aim) < objective:
                break  # nothing but rounding is left to gain
            weights, at = aim, aim_at
        gained = objective - design.objective(at, weights)
        objective -= gained
        watch(objective)
        if design.settled(at, weights, design.gradient(at), gap_target):
            return weights, iteration + 1
        if gained < (CREEPING * objective if design.penalty.sparse else NEGLIGIBLE * gap_target):
            break
    if design.penalty.sparse:
        weights, more = component_wise(design, weights, gap_target, max_iter - iteration, watch)
        return weights, iteration + 1 + more
    return weights, iteration + 1


def _bound(design: Design) -> Array:
    """B over the identified pairs, in the order of pairs."""
    labels = design.labels
    gram = (design.columns * labels.sample_weight[:, np.newaxis]).T @ design.columns
    spread = 0.5 * (np.eye(labels.n_scores) - 1.0 / labels.n_classes)
    pairs = np.flatnonzero(design.identified)
    out: Array = np.kron(gram, spread)[np.ix_(pairs, pairs)]
    return out


def _lit(design: Design, weights: Array, at: AtScores, bound: Array) -> tuple[Array, AtScores]:
    """One gradient step with a threshold: weights that should not be zero are not, after it."""
    # A symmetric matrix has no eigenvalue above the largest sum of absolute values in a row.
    steep = float(np.abs(bound).sum(axis=1).max(initial=0.0))
    if steep == 0:
        return weights, at
    plain = design.n_plain
    aim = weights + np.where(design.identified, design.gradient(at), 0.0) / steep
    aim[plain:] = design.penalty.threshold(aim[plain:], design.penalty.rate / steep)
    return aim, design.labels.at(design.scores(aim))


class _Update:
    """The minimum of the quadratic above the objective."""

    def __init__(self, design: Design, bound: Array) -> None:
        self._design = design
        self._pairs = np.flatnonzero(design.identified)
        self._bound = bound
        self._rates = np.repeat(design.penalised(), design.labels.n_scores)[self._pairs] * design.penalty.rate
        self._ridge = RIDGE * float(np.mean(np.diag(bound))) if bound.size else 0.0
        # Smooth penalties have the same system at all weights.
        self._factor: Any = None
        if not design.penalty.sparse:
            self._factor = cho_factor(bound + np.diag(self._rates + self._ridge), check_finite=False)

    def __call__(self, weights: Array, gradient: Array) -> Array:
        plain = self._design.n_plain
        flat, slope = weights.ravel()[self._pairs], gradient.ravel()[self._pairs]
        right = self._bound @ flat + self._ridge * flat + slope
        out = np.zeros(weights.size)
        if self._factor is not None:
            out[self._pairs] = cho_solve(self._factor, right, check_finite=False)
            return out.reshape(weights.shape)
        root = np.ones(weights.shape)
        root[plain:] = self._design.penalty.root_scale(weights[plain:])
        root = root.ravel()[self._pairs]
        # Zeros stay zero: they are left out of the system.
        on = np.flatnonzero(root > 0)
        scaled = root[on, np.newaxis] * self._bound[np.ix_(on, on)] * root[on]
        scaled[np.diag_indices_from(scaled)] += self._ridge * root[on] ** 2 + self._rates[on]
        factor = cho_factor(scaled, check_finite=False)
        out[self._pairs[on]] = root[on] * cho_solve(factor, root[on] * right[on], check_finite=False)
        return out.reshape(weights.shape)
