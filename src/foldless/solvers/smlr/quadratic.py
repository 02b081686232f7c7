"""A quadratic with an L1 penalty, minimised exactly by following signs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from foldless.beliefs import Array

Mask = NDArray[np.bool_]

# A gradient this far beyond its rate, relative to the largest, still counts as within: rounding.
SLACK = 1e-12
# Changes of the set of signs, per unknown, before the search counts as lost in rounding. A lost search
# still returns a point below its start.
ROUNDS_PER_UNKNOWN = 10


def l1_quadratic(curvature: Array, linear: Array, rates: Array, start: Array) -> Array:
    """The minimum of ½ u'Hu - b'u + Σ rateᵢ |uᵢ|, by feature-sign search [Lee et al. 2007].

    For given signs the minimum over the non-zero unknowns is one linear system. The search walks there,
    stopping at the best of the points where an unknown passes zero, then lets in what wants to leave zero.
    Every step lowers the objective, and there are finitely many sets of signs. H must be positive definite.
    """
    u = start.copy()
    signs = np.sign(u)
    free = rates == 0
    active = (u != 0) | free
    for _ in range(ROUNDS_PER_UNKNOWN * u.size + ROUNDS_PER_UNKNOWN):
        u, signs, active = _settled(curvature, linear, rates, u, signs, active, free)
        descent = linear - curvature @ u
        beyond = np.abs(descent) - rates
        wanted = ~active & (beyond > SLACK * (np.abs(descent).max(initial=0.0) + rates))
        if not wanted.any():
            break
        signs[wanted] = np.sign(descent[wanted])
        active |= wanted
    return u


def _settled(
    curvature: Array, linear: Array, rates: Array, u: Array, signs: Array, active: Mask, free: Mask
) -> tuple[Array, Array, Mask]:
    """The minimum over the active unknowns; some of them may drop out at zero."""
    u, signs, active = u.copy(), signs.copy(), active.copy()
    for _ in range(ROUNDS_PER_UNKNOWN * u.size + ROUNDS_PER_UNKNOWN):
        at = np.flatnonzero(active)
        if at.size == 0:
            break
        factor = cho_factor(curvature[np.ix_(at, at)], lower=True, check_finite=False)
        target = cho_solve(factor, linear[at] - rates[at] * signs[at], check_finite=False)
        held = ~free[at]
        turned = held & (np.sign(target) != signs[at])
        at_zero = turned & (u[at] == 0)
        if at_zero.any():
            # Let in together, some of these go the other way. Without them the others may still be right.
            active[at[at_zero]] = False
            signs[at[at_zero]] = 0.0
            continue
        if not turned.any():
            u[at] = target
            break
        u[at] = _best_on_the_way(curvature[np.ix_(at, at)], linear[at], rates[at], u[at], target, turned)
        signs[at] = np.sign(u[at])
        active[at] = (u[at] != 0) | free[at]
    return u, signs, active


def _best_on_the_way(
    curvature: Array, linear: Array, rates: Array, start: Array, target: Array, turned: Mask
) -> Array:
    """The lowest of the points between start and target where an unknown that turns its sign is zero."""
    step = target - start
    crossings = np.flatnonzero(turned)
    # All turning unknowns are non-zero at the start and of the other sign, or zero, at the target.
    times = np.minimum(start[crossings] / (start[crossings] - target[crossings]), 1.0)
    slope = step @ (curvature @ start - linear)
    bend = step @ curvature @ step
    points = start + times[:, np.newaxis] * step
    points[np.arange(crossings.size), crossings] = 0.0
    values = times * slope + 0.5 * times**2 * bend + np.abs(points) @ rates
    end = slope + 0.5 * bend + np.abs(target) @ rates
    best = int(np.argmin(values))
    return target if end < values[best] else points[best]
