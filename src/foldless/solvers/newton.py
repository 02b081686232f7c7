"""Damped Newton's method for convex functions, and the line search that damps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from foldless.beliefs import Array
from foldless.kernels.smlr import JUDGEABLE, SHORTEST_STEP, SUFFICIENT_FALL

Point = TypeVar("Point")


class Minimum(NamedTuple):
    at: Array
    converged: bool


def damped_newton(
    objective: Callable[[Array], float],
    expand: Callable[[Array], tuple[Array, Array]],
    start: Array,
    *,
    tolerance: float,
    max_iter: int,
    room: Callable[[Array, Array], float] | None = None,
) -> Minimum:
    """The minimum of a convex function, from where it falls by half of `tolerance` at the most.

    `expand` returns the slope and the Newton step, curvature⁻¹ · -slope; what -slope' step, the decrement,
    promises is twice the fall to come. `room` is how long a step may be before it leaves where the function
    is finite. A point may carry what is linear in it, scores beside weights, with a slope of zero.
    """
    x, value = start, objective(start)
    for _ in range(max_iter):
        slope, step = expand(x)
        decrement = -float(np.sum(slope * step))
        if decrement <= tolerance:
            return Minimum(x, True)
        longest = 1.0 if room is None else min(1.0, room(x, step))

        def walked(length: float, x: Array = x, step: Array = step) -> tuple[Array, float]:
            point = x + length * step
            return point, objective(point)

        found = backtracked(walked, value, -decrement, longest)
        if found is None:
            # Rounding hides what a step would gain: this is the minimum as far as float64 can tell.
            return Minimum(x, decrement <= tolerance * (1.0 + abs(value)))
        x, value = found
    return Minimum(x, False)


def backtracked(
    walked: Callable[[float], tuple[Point, float]], value: float, promised: float, longest: float = 1.0
) -> tuple[Point, float] | None:
    """The first of the halved steps that brings its share of the promised fall [Armijo 1966]; None if none.

    `walked` returns the point after a step of some length, and the objective there.
    """
    length = longest
    while promised < 0 and length >= SHORTEST_STEP * longest:
        point, trial = walked(length)
        fell = trial - value <= SUFFICIENT_FALL * length * promised
        if fell or (abs(promised) <= JUDGEABLE * abs(value) and trial <= value * (1 + JUDGEABLE)):
            return point, trial
        length *= 0.5
    return None
