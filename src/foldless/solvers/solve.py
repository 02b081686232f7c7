"""The one loop: step, tune, look, until the weights stand still or another rule ends it.

Beside it stand the loop for convex functions of few arguments, damped Newton's method, and that of Lanczos
for the largest eigenvalue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal

from foldless.beliefs import Array
from foldless.component import Component
from foldless.kernels.smlr import JUDGEABLE, SHORTEST_STEP, SUFFICIENT_FALL
from foldless.problem import History, Iteration, Outcome, Problem, Solution
from foldless.solvers.base import Solver, State, Tuner

Watch = Callable[[int, Iteration], None]
Point = TypeVar("Point")
# At most so many products for the largest eigenvalue; the last is one that raises it by no more than a share.
PRODUCTS = 6
STABLE = 0.01


@dataclass(frozen=True)
class Stopping(Component):
    """When the loop ends."""

    tol: float = 1e-5  # relative change of the weights, before damping
    max_iter: int = 500
    # Sweeps that tuning needs before a small change means anything.
    min_iter: int = 3
    # Without a new smallest change for this many iterations, nothing will settle any more.
    patience: int = 200
    # A change this much larger than the smallest seen is a divergence, not an oscillation.
    explosion: float = 1e3


def solve(
    problem: Problem,
    solver: Solver[Any],
    *,
    stopping: Stopping | None = None,
    tuner: Tuner | None = None,
    state: State | None = None,
    watch: Watch | None = None,
) -> Solution:
    """Run a solver to its end, with tuning between iterations if a tuner is given.

    A diverging iteration is restarted from its best state with a more careful step, as long as the solver has
    one. Where that is not enough, or nothing settles, or what has settled is not plausible, the solver may go
    on in another way (`Solver.otherwise`), within the same number of iterations. `watch` is called after
    each; an interrupt from the keyboard ends the loop with the state reached.
    """
    stopping = stopping or Stopping()
    current = solver.init(problem) if state is None else state
    best, best_problem = current, problem
    smallest, since_smallest, rescued = np.inf, 0, False
    history = History()

    def finish(outcome: Outcome, problem: Problem, state: State) -> Solution:
        if outcome is not Outcome.INTERRUPTED and not solver.plausible(problem, state):
            outcome = Outcome.DIVERGED
        return Solution(problem, solver.posterior(problem, state), outcome, history, solver.ended(state))

    try:
        for n in range(stopping.max_iter):
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                current = solver.step(problem, current)
            moved = current.change * current.step
            broken = not np.isfinite(current.change) or (
                current.change > stopping.explosion * smallest and moved > 1.0
            )
            if broken:
                careful = solver.more_damped(best) or solver.otherwise(best_problem, best)
                if careful is None:
                    return finish(Outcome.DIVERGED, best_problem, best)
                current = best = careful
                problem, rescued = best_problem, True
                smallest, since_smallest = np.inf, 0
                continue
            line = Iteration(
                current.change, current.step, current.log_evidence, tuner.tuned(problem) if tuner else {}
            )
            history.iterations.append(line)
            if current.change < smallest:
                smallest, since_smallest = current.change, 0
                best, best_problem = current, problem
            else:
                since_smallest += 1
            if watch is not None:
                watch(len(history), line)
            settled = tuner is None or tuner.settled(n)
            still = n + 1 >= stopping.min_iter and current.change <= stopping.tol and settled
            if still and solver.plausible(problem, current):
                return finish(Outcome.RESCUED if rescued else Outcome.CONVERGED, problem, current)
            if still or since_smallest >= stopping.patience:
                other = solver.otherwise(problem, current)
                if other is None and still:
                    return finish(Outcome.DIVERGED, problem, current)
                if other is None:
                    return finish(Outcome.STALLED, best_problem, best)
                current = best = other
                best_problem, smallest, since_smallest = problem, np.inf, 0
                continue
            if tuner is not None:
                problem = tuner.update(problem, current, n)
    except KeyboardInterrupt:
        return finish(Outcome.INTERRUPTED, best_problem, best)
    return finish(Outcome.BUDGET, problem, current)


# ---------------------------------------------------------------------- convex functions


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


def largest_eigenvalue(
    image: Callable[[Array], Array], start: Array, n_samples: int, rounding: float
) -> float:
    """Of K = Z Zᵀ, by the method of Lanczos [Golub and Van Loan 2013, section 10.1], without K.

    A vector v over samples stands on top of its image Zᵀ v, from which `image` makes the next. In an
    orthonormal basis of v, K v, K² v, ... the matrix is tridiagonal. The eigenvalue comes from below: what is
    returned can be too small, never too large. Parts of a vector smaller than `rounding` are nothing.
    """
    diagonal: list[float] = []
    beside: list[float] = []
    largest, before, after = 0.0, np.zeros_like(start), start
    length = float(np.linalg.norm(start[:n_samples]))
    while len(diagonal) < PRODUCTS and length > rounding * largest:
        here = after / length
        after = image(here[n_samples:])
        diagonal.append(float(here[:n_samples] @ after[:n_samples]))
        found = float(eigvalsh_tridiagonal(diagonal, beside)[-1])
        if found <= (1.0 + STABLE) * largest:
            return found
        after = after - diagonal[-1] * here - length * before
        largest, before, length = found, here, float(np.linalg.norm(after[:n_samples]))
        beside.append(length)
    return largest
