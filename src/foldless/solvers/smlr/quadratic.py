"""A quadratic with an L1 penalty, minimised exactly by following signs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError
from scipy.linalg.lapack import dposv

from foldless.beliefs import Array

Mask = NDArray[np.bool_]

# A gradient this far beyond its rate, relative to the largest, still counts as within: rounding.
SLACK = 1e-12
# Changes of the set of signs, per unknown, before the search counts as lost in rounding. A lost search
# still returns a point below its start.
ROUNDS_PER_UNKNOWN = 10
# With more columns than this the blocked factorisations of LAPACK are faster than compiled loops.
WIDEST_IN_LOOPS = 2000
NOT_DEFINITE = "the curvature is not positive definite"


def l1_quadratic(curvature: Array, linear: Array, rates: Array, start: Array) -> Array:
    """The minimum of ½ u'Hu - b'u + Σ rateᵢ |uᵢ|, by feature-sign search [Lee et al. 2007].

    For given signs the minimum over the non-zero unknowns is one linear system. The search walks there,
    stopping at the best of the points where an unknown passes zero, then lets in what wants to leave zero.
    Every step lowers the objective, and there are finitely many sets of signs. H must be positive definite.

    `loops.follow_signs` is the same, compiled, for two classes. With more, curvatures are nearly singular
    (labels say nothing of a shift of all classes), and plain loops round worse than LAPACK does.
    """
    u = start.copy()
    signs = np.sign(u)
    free = rates == 0
    active = (u != 0) | free
    rounds = ROUNDS_PER_UNKNOWN * (u.size + 1)
    for _ in range(rounds):
        for _ in range(rounds):
            at = np.flatnonzero(active)
            if at.size == 0 or _walked(curvature, linear, rates, free, at, u, signs, active):
                break
        descent = linear - curvature @ u
        size = np.abs(descent)
        wanted = ~active & (size - rates > SLACK * (size.max(initial=0.0) + rates))
        if not wanted.any():
            break
        signs[wanted] = np.sign(descent[wanted])
        active |= wanted
    return u


def _walked(
    curvature: Array,
    linear: Array,
    rates: Array,
    free: Mask,
    at: NDArray[np.intp],
    u: Array,
    signs: Array,
    active: Mask,
) -> bool:
    """One walk of the active unknowns, in place; whether they have arrived at their minimum."""
    within = curvature[at[:, np.newaxis], at]
    own, own_signs = u[at], signs[at]
    _, target, failed = dposv(within, linear[at] - rates[at] * own_signs)
    if failed:
        raise LinAlgError(NOT_DEFINITE)
    turned = (np.sign(target) != own_signs) & ~free[at]
    if not turned.any():
        u[at] = target
        return True
    at_zero = turned & (own == 0)
    if at_zero.any():
        # Let in together, some of these go the other way. Without them the others may still be right.
        active[at[at_zero]] = False
        signs[at[at_zero]] = 0.0
        return False
    u[at] = _best_on_the_way(within, linear[at], rates[at], own, target, turned)
    signs[at] = np.sign(u[at])
    active[at] = (u[at] != 0) | free[at]
    return False


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
