"""L1-penalised regression: quadratics, Newton's method for two classes, a step without each sample.

Thousands of decisions about vectors of twenty numbers, most of whose time NumPy would spend on being called.
The bodies are array expressions, which serve both copies. Only linear systems have a form for each: LAPACK,
and loops, which beat its calls up to some dozens of unknowns and round worse in nearly singular systems.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv

from foldless.beliefs import Array
from foldless.kernels import kernel

# A gradient this far beyond its rate, relative to the largest, still counts as within: rounding.
SLACK = 1e-12
# Changes of the set of signs, per unknown, before the search counts as lost in rounding. A lost search
# still returns a point below its start.
ROUNDS_PER_UNKNOWN = 10
# Added to the diagonal, relative to its mean: columns that are combinations of others leave the curvature
# singular. It shortens steps along such directions and moves no optimum.
FIRST_RIDGE, MORE_RIDGE, LARGEST_RIDGE = 1e-12, 100.0, 1e6
# A step must bring this share of the fall that the expansion promises.
SUFFICIENT_FALL = 1e-4
SHORTEST_STEP = 2.0**-40
# A promised fall below this share of the objective drowns in the rounding of the objective itself.
JUDGEABLE = 1e-14
TINY = float(np.finfo(np.float64).tiny)


def solve_definite(matrix: Array, right: Array) -> tuple[Array, bool]:
    """The solution of a symmetric system; False if it is not positive definite."""
    _, solution, failed = dposv(matrix, right)
    return solution, not failed


@kernel(instead_of=solve_definite)
def _solve_in_loops(matrix: Array, right: Array) -> tuple[Array, bool]:
    """By Cholesky, in place."""
    size = right.size
    for k in range(size):
        if not matrix[k, k] > 0:
            return right, False
        matrix[k, k] = np.sqrt(matrix[k, k])
        for b in range(k + 1, size):
            matrix[k, b] /= matrix[k, k]
        # Along rows, which lie together in memory and need no sum: compilers make vectors of that.
        for a in range(k + 1, size):
            share = matrix[k, a]
            for b in range(a, size):
                matrix[a, b] -= share * matrix[k, b]
    for k in range(size):
        right[k] /= matrix[k, k]
        for b in range(k + 1, size):
            right[b] -= matrix[k, b] * right[k]
    for k in range(size - 1, -1, -1):
        for b in range(k + 1, size):
            right[k] -= matrix[k, b] * right[b]
        right[k] /= matrix[k, k]
    return right, True


def _within(matrix: Array, at: NDArray[np.intp]) -> Array:
    """Some rows and the same columns of a matrix."""
    return matrix[at[:, np.newaxis], at]


@kernel(instead_of=_within)
def _within_in_loops(matrix: Array, at: NDArray[np.intp]) -> Array:
    out = np.empty((at.size, at.size))
    for a in range(at.size):
        for b in range(at.size):
            out[a, b] = matrix[at[a], at[b]]
    return out


@kernel()
def _best_on_the_way(
    curvature: Array, linear: Array, rates: Array, start: Array, target: Array, turned: NDArray[np.bool_]
) -> Array:
    """The lowest of the points between start and target where an unknown that turns its sign is zero."""
    step = target - start
    slope = step @ (curvature @ start - linear)
    bend = step @ (curvature @ step)
    best, lowest = target, np.inf
    for crossing in np.flatnonzero(turned):
        # All turning unknowns are non-zero at the start and of the other sign, or zero, at the target.
        time = min(start[crossing] / (start[crossing] - target[crossing]), 1.0)
        point = start + time * step
        point[crossing] = 0.0
        value = time * slope + 0.5 * time * time * bend + np.abs(point) @ rates
        if value < lowest:
            best, lowest = point, value
    return target if slope + 0.5 * bend + np.abs(target) @ rates < lowest else best


@kernel()
def follow_signs(curvature: Array, linear: Array, rates: Array, start: Array) -> tuple[Array, bool]:
    """The minimum of ½ u'Hu - b'u + Σ rateᵢ |uᵢ|, by feature-sign search [Lee et al. 2007].

    For given signs the minimum over the non-zero unknowns is one linear system. The search walks there,
    stopping at the best of the points where an unknown passes zero, then lets in what wants to leave zero.
    Every step lowers the objective, and there are finitely many sets of signs. False if H is not positive
    definite.
    """
    u = start.copy()
    if u.size == 0:
        return u, True
    signs = np.sign(u)
    active = (u != 0) | (rates == 0)
    rounds = ROUNDS_PER_UNKNOWN * (u.size + 1)
    for _ in range(rounds):
        for _ in range(rounds):
            at = np.flatnonzero(active)
            if at.size == 0:
                break
            own, own_signs, own_rates = u[at], signs[at], rates[at]
            within = _within(curvature, at)
            target, definite = solve_definite(within.copy(), linear[at] - own_rates * own_signs)
            if not definite:
                return u, False
            turned = (np.sign(target) != own_signs) & (own_rates != 0)
            if not turned.any():
                u[at] = target
                break
            at_zero = at[turned & (own == 0)]
            if at_zero.size:
                # Let in together, some of these go the other way. Without them the others may still be right.
                active[at_zero] = False
                signs[at_zero] = 0.0
                continue
            u[at] = _best_on_the_way(within, linear[at], own_rates, own, target, turned)
            signs[at] = np.sign(u[at])
            active[at] = (u[at] != 0) | (own_rates == 0)
        descent = linear - curvature @ u
        size = np.abs(descent)
        wanted = ~active & (size - rates > SLACK * (size.max() + rates))
        if not wanted.any():
            break
        signs = np.where(wanted, np.sign(descent), signs)
        active |= wanted
    return u, True


@kernel()
def _loss(margin: Array, sample_weight: Array) -> Any:
    """Minus the log likelihood of all labels."""
    return sample_weight @ (np.maximum(-margin, 0.0) + np.log1p(np.exp(-np.abs(margin))))


@kernel()
def _settled(
    plain: Array, penalised: Array, rate: float, bend: Array, wrong: Array, sample_weight: Array,
    objective: float, target: float,
) -> bool:  # fmt: skip
    """`design.Design.settled` for two classes, where 1 - p of the sample's own class is `wrong`."""
    if plain @ plain / (2.0 * max(bend.sum(), TINY)) > target:
        return False
    largest = np.abs(penalised).max() if penalised.size else 0.0
    other = wrong if largest <= rate else wrong * (rate / largest)
    # Where a probability is 0, its share of the entropy is 0, too.
    entropy = other * np.log(np.maximum(other, TINY)) + (1.0 - other) * np.log(np.maximum(1.0 - other, TINY))
    return objective + sample_weight @ entropy <= target


@kernel()
def newton(
    columns: Array, n_plain: int, label: Array, sample_weight: Array, start: Array, rate: float,
    gap_target: float, max_iter: int,
) -> tuple[Array, int, Array]:  # fmt: skip
    """Proximal Newton for two classes: weights, steps, and the objective after each of the first thousand."""
    weights, scores = start.copy(), columns @ start
    rates = np.full(weights.size, rate)
    rates[:n_plain] = 0.0
    seen, n_seen = np.empty(min(max_iter, 1000)), 0
    for iteration in range(max_iter):
        margin = label * scores
        small = np.exp(-np.abs(margin))
        wrong = np.where(margin > 0, small, 1.0) / (1.0 + small)
        bend = sample_weight * small / np.square(1.0 + small)
        gradient = (label * wrong * sample_weight) @ columns
        objective = _loss(margin, sample_weight) + rates @ np.abs(weights)
        plain, penalised = gradient[:n_plain], gradient[n_plain:]
        if _settled(plain, penalised, rate, bend, wrong, sample_weight, objective, gap_target):
            return weights, iteration, seen[:n_seen]
        moving = np.flatnonzero((rates == 0) | (weights != 0) | (np.abs(gradient) > rates))
        used = columns.T[moving]
        flat, slope, own_rates = weights[moving], gradient[moving], rates[moving]
        hessian = (used * bend) @ used.T
        diagonal = np.diag(hessian).copy()
        step, ridge, unit = (
            np.zeros(moving.size),
            FIRST_RIDGE,
            max(diagonal.sum() / max(moving.size, 1), TINY),
        )
        while ridge <= LARGEST_RIDGE:
            for a in range(moving.size):
                hessian[a, a] = diagonal[a] + ridge * unit
            found, definite = follow_signs(hessian, hessian @ flat + slope, own_rates, flat)
            if definite:
                step = found - flat
                break
            ridge *= MORE_RIDGE
        # Weight by weight, where slope and penalty nearly balance: see `newton._promised`.
        end = flat + step
        growth = np.where(flat * end > 0, np.sign(flat) * step, np.abs(end) - np.abs(flat))
        promised = np.sum(own_rates * growth - slope * step)
        along = step @ used
        length, moved = 1.0, False
        while promised < 0 and length >= SHORTEST_STEP:
            value = _loss(label * (scores + length * along), sample_weight)
            value += own_rates @ np.abs(flat + length * step)
            moved = value - objective <= SUFFICIENT_FALL * length * promised or (
                abs(promised) <= JUDGEABLE * abs(objective) and value <= objective * (1 + JUDGEABLE)
            )
            if moved:
                break
            length *= 0.5
        if not moved:
            return weights, iteration + 1, seen[:n_seen]  # what is left to gain drowns in rounding
        weights[moving] = flat + length * step
        scores += length * along
        if n_seen < seen.size:
            seen[n_seen] = value
            n_seen += 1
    return weights, max_iter, seen[:n_seen]


@kernel()
def without_each(
    which: NDArray[np.intp], share: Array, x: Array, score: NDArray[np.intp], start: Array, rates: Array,
    slope: Array, curvature: Array, bends: Array, residual: Array, likely: float, most_rounds: int,
) -> Array:  # fmt: skip
    """How weights (pairs) change without a share of each of some samples, to second order; a row each.

    x is (samples, pairs), `score` the score of a pair; start, rates and slope are those of the pairs, and
    curvature (pairs, pairs) of all samples; bends (samples, scores, scores) and residual belong to samples.
    """
    out = np.zeros((which.size, start.size))
    for row in range(which.size):
        m = which[row]
        own, bend, change = x[m], share[m] * bends[m], out[row]
        push = slope - share[m] * own * residual[m][score]
        tried = (start != 0) | (rates == 0) | (np.abs(push) > likely * rates)
        for _ in range(most_rounds):
            some = np.flatnonzero(tried)
            less = np.outer(own[some], own[some]) * _within(bend, score[some])
            inside, begin = _within(curvature, some) - less, start[some]
            found, definite = follow_signs(inside, inside @ begin + push[some], rates[some], begin)
            if not definite:
                change[:] = np.nan
                break
            change[some] = found - begin
            # What the step leaves of the gradient of every pair within reach, tried or not.
            went = np.flatnonzero(change)
            turn = np.bincount(score[went], own[went] * change[went], bend.shape[0])
            left = push - change[went] @ curvature[went] + own * (bend @ turn)[score]
            wanted = ~tried & (np.abs(left) > rates)
            if not wanted.any():
                break
            tried |= wanted
    return out
