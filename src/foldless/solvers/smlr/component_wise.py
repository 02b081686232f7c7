"""The component-wise update of SMLR: one weight at a time, under a bound of the loss.

Along one weight the loss is below a parabola that touches it where it is now, so that the minimum of the
parabola plus the penalty, a soft threshold, lowers the objective [Krishnapuram et al. 2005, section 3.5]:

    a = w + g/b,    w ← sign(a) max(0, |a| - λ/b)      (their 15; for λ/2 w²: w ← (b w + g)/(b + λ), 16)

The paper's bound is b = ½ (1 - 1/K) Σ x². A logistic loss has the sharpest of all parabolas that touch it at
z and at -z, of curvature tanh(z/2)/2z [Jaakkola and Jordan 2000], and along one weight a multinomial loss is
logistic in z = logit p of the weight's class. That bound costs the same, and steps grow as classes separate.

Probabilities are kept as exponentials and their row sums: changing one weight is O(samples).
"""

from __future__ import annotations

import numpy as np

from foldless.beliefs import Array
from foldless.solvers.smlr.design import Design, Watch
from foldless.solvers.smlr.objective import L1, RowGroups

# A weight that is zero is visited in sweep t with this frequency to the power t; the paper has a
# "probability that decreases geometrically" and does not print it. The floor keeps everyone in reach.
REVISIT, LEAST_REVISIT = 0.9, 0.05
# Multiples of the golden ratio, modulo one, are spread evenly: visits of a given frequency without chance.
GOLDEN = 0.6180339887498949
# A score that moves further than this in one step could overflow its exponential before the next rebuild.
LARGEST_MOVE = 30.0
# Beyond this logit 1 - p, a difference of sums, has no digits left; a smaller |z| keeps the bound a bound.
LARGEST_LOGIT = 30.0
SMALL_LOGIT = 1e-4
# Weights that move by less than this share of the largest stand still.
STANDING_STILL = 1e-3
# Single steps add up: without a dual, all of them together may gain only this share of the target.
CERTAIN_SHARE = 0.02


def component_wise(
    design: Design, weights: Array, gap_target: float, max_iter: int, watch: Watch
) -> tuple[Array, int]:
    """Weights whose duality gap over the design's columns is below the target, and the sweeps taken."""
    weights = weights.copy()
    state = _Probabilities(design, weights)
    full_sweep = True
    for sweep in range(max_iter):
        before = weights.copy()
        frequency = 1.0 if full_sweep else max(REVISIT**sweep, LEAST_REVISIT)
        for column in range(weights.shape[0]):
            at_zero = column >= design.n_plain and not weights[column].any()
            if at_zero and not _due(column, sweep, frequency):
                continue
            _visit(design, state, weights, column)
        state.rebuild(weights)
        at = design.labels.at(state.scores)
        watch(design.objective(at, weights))
        gradient = design.gradient(at)
        if design.settled(at, weights, gradient, gap_target):
            return weights, sweep + 1
        moved = float(np.abs(weights - before).max())
        if not design.penalty.has_dual and _nothing_to_gain(design, gradient, gap_target):
            return weights, sweep + 1
        # Once what is visited stands still, only what was passed over can be wrong.
        full_sweep = moved <= STANDING_STILL * float(np.abs(weights).max(initial=0.0))
    return weights, max_iter


def _due(column: int, sweep: int, frequency: float) -> bool:
    """Whether a column that is visited in this share of all sweeps has its turn."""
    return frequency >= 1.0 or ((column + 1) * GOLDEN + (sweep + 1) * GOLDEN**2) % 1.0 < frequency


def _nothing_to_gain(design: Design, gradient: Array, gap_target: float) -> bool:
    """Without a dual: whether no single weight could lower the objective by the target any more."""
    squares = np.maximum(design.squares, np.finfo(float).tiny)[:, np.newaxis]
    # g²/2b is what one step under the bound b = ½ Σ x² gains, at the least.
    gain = np.square(gradient) * design.identified / squares
    return bool(gain.sum() <= CERTAIN_SHARE * gap_target)


def _visit(design: Design, state: _Probabilities, weights: Array, column: int) -> None:
    if design.squares[column] == 0:
        return
    if isinstance(design.penalty, RowGroups) and column >= design.n_plain:
        _visit_row(design, state, weights, column)
        return
    x = design.columns[:, column]
    rate = design.penalty.rate if column >= design.n_plain else 0.0
    for k in range(weights.shape[1]):
        if not design.identified[column, k]:
            continue
        slope, bound = state.slope_and_bound(x, k)
        if bound <= 0:
            continue
        old = weights[column, k]
        if isinstance(design.penalty, L1):
            aim = old + slope / bound
            new = np.sign(aim) * max(0.0, abs(aim) - rate / bound)
        else:
            new = (bound * old + slope) / (bound + rate)
        if new != old:
            weights[column, k] = new
            state.change(x, k, float(new - old), weights)


def _visit_row(design: Design, state: _Probabilities, weights: Array, column: int) -> None:
    """All weights of a feature at once, under the largest curvature of diag p - p p'."""
    x = design.columns[:, column]
    bound = design.labels.steepest * design.squares[column]
    slope = np.array([state.slope_and_bound(x, k)[0] for k in range(weights.shape[1])])
    old = weights[column].copy()
    aim = (old + slope / bound)[np.newaxis]
    new = design.penalty.threshold(aim, design.penalty.rate / bound)[0]
    weights[column] = new
    for k in np.flatnonzero(new != old):
        state.change(x, int(k), float(new[k] - old[k]), weights)


class _Probabilities:
    """exp(score - shift) of every class and their sums, kept up to date one weight at a time."""

    def __init__(self, design: Design, weights: Array) -> None:
        self._design = design
        self.rebuild(weights)

    def rebuild(self, weights: Array) -> None:
        """From the weights, without the rounding of many small changes."""
        labels = self._design.labels
        self.scores = self._design.scores(weights)
        full = labels.full(self.scores)
        self._exp = np.asfortranarray(np.exp(full - full.max(axis=1, keepdims=True)))
        self._sum = self._exp.sum(axis=1)
        self._reach = 0.0

    def slope_and_bound(self, x: Array, k: int) -> tuple[float, float]:
        """The gradient along a weight of score k, and the curvature of the parabola above the loss."""
        labels = self._design.labels
        own = self._exp[:, labels.free[k]]
        p = own / self._sum
        weighted = labels.sample_weight * x
        slope = weighted @ (labels.onehot[:, labels.free[k]] - p)
        with np.errstate(divide="ignore"):
            z = np.log(own) - np.log(np.maximum(self._sum - own, 0.0))
        z = np.clip(z, -LARGEST_LOGIT, LARGEST_LOGIT)
        small = np.abs(z) < SMALL_LOGIT
        safe = np.where(small, 1.0, z)
        curvature = np.where(small, 0.25 - z * z / 48.0, np.tanh(0.5 * safe) / (2.0 * safe))
        return float(slope), float((weighted * x) @ curvature)

    def change(self, x: Array, k: int, by: float, weights: Array) -> None:
        """A weight of score k has changed by so much."""
        move = by * x
        self._reach += float(np.abs(move).max())
        if self._reach > LARGEST_MOVE:
            self.rebuild(weights)
            return
        own = self._exp[:, self._design.labels.free[k]]
        new = own * np.exp(move)
        self._sum += new - own
        own[:] = new
