"""What solvers that pass messages share: how far an iteration goes, restarts, leaps, sums over scores."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from foldless.beliefs import Array
from foldless.component import Component
from foldless.problem import Problem
from foldless.registry import registered
from foldless.solvers.base import Solver

# The evidence of labels is an approximation and may exceed one by a little.
EVIDENCE_SLACK = 1.0
# A start with scores vaguer than this (log-odds squared), from a wide prior of an intercept or of any column,
# makes the first labels look uninformative, and all of them together leap where they are certain and wrong.
VAGUEST_START = 10.0
# Scores within a hundredth of a logit of zero count as settled: relative change alone never settles when the
# answer is that nothing matters.
SETTLED_SCORE = 1e-2
# Restarting a diverged iteration takes this share of the step, and none below the smallest: that would need
# thousands of sweeps.
RESTART_SHARE = 0.25
SMALLEST_STEP = 0.01
# Secants learn so many directions at a time: those that matter are few, and older differences mislead.
MEMORY = 6
# Directions in which residuals change less than this, relative to others, are left alone.
LEAST_INDEPENDENT = 1e-6
# A residual that has grown by this factor shows that the last leap went astray: what led there is forgotten.
ASTRAY = 2.0
TINY = float(np.finfo(np.float64).tiny)


@registered("damping/constant")
@dataclass(frozen=True)
class ConstantDamping(Component):
    """Always the same step in (0, 1]; 1 is undamped."""

    size: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.size <= 1:
            raise ValueError(
                f"A damping step must be in (0, 1]; got {self.size!r}. 1 means undamped, 0.3 is careful."
            )

    @property
    def first(self) -> float:
        return self.size

    def following(self, step: float, growth: float, turn: float) -> float:
        return step


@registered("damping/adaptive")
@dataclass(frozen=True)
class AdaptiveDamping(Component):
    """Shorten the step when the iteration oscillates or explodes, lengthen it otherwise.

    `growth` is the size of the last move of the weights relative to the move before, `turn` the cosine of
    the angle between them, both before damping, so that a short step does not pass for convergence.
    Moves that turn back without getting smaller are an oscillation. Moves in one direction are a drift,
    along which parameters are being tuned, and want longer steps, however slowly they shrink. No sweep is
    ever rejected, because on the data meant here a sweep is the cost.
    """

    first: float = 1.0
    shrink: float = 0.6
    grow: float = 1.1
    smallest: float = 0.02
    # Turning back is harmless while moves get smaller at this rate.
    calm_growth: float = 0.8
    # Any move this much larger than the last is an explosion.
    wild_growth: float = 2.0

    def following(self, step: float, growth: float, turn: float) -> float:
        oscillates = turn < 0 and growth > self.calm_growth
        if oscillates or growth > self.wild_growth:
            return max(step * self.shrink, self.smallest)
        return min(step * self.grow, self.first)


Damping = ConstantDamping | AdaptiveDamping


def damping_from(choice: str | float | Damping) -> Damping:
    """'adaptive', a step in (0, 1], or a damping object."""
    if isinstance(choice, ConstantDamping | AdaptiveDamping):
        return choice
    if choice == "adaptive":
        return AdaptiveDamping()
    if isinstance(choice, Real) and not isinstance(choice, bool):
        return ConstantDamping(float(choice))
    raise ValueError(f"damping must be 'adaptive' or a step in (0, 1]; got {choice!r}.")


@dataclass(frozen=True, eq=False)
class Pace:
    """How an iteration goes: how far its last move was, and how far the next may go."""

    step: float
    largest_step: float
    move: Array
    square: float = 0.0
    # Size of the last move relative to that of what moves.
    change: float = np.inf

    @classmethod
    def first(cls, damping: Damping, shape: int | tuple[int, ...], largest: float = 1.0) -> Pace:
        step = min(damping.first, largest)
        return cls(step, step, np.zeros(shape))

    def after(
        self, damping: Damping, before: Array, now: Array, taken: float | None, weight: Array, total: float
    ) -> Pace:
        """After a step of the size `taken` from one position to another; None stands for a leap.

        Damped messages move a position by about a step's share of the way; what counts is the whole way,
        with squares counted by `weight` of `total`. A leap shows nothing of how steps go.
        """
        move, total = now - before, max(total, TINY)  # without any sample left nothing counts
        if taken is not None and taken < 1.0:
            move /= taken
        square = float(np.sum(dot(weight, move * move)))
        size = np.sqrt(np.sum(dot(weight, now * now)) / total)
        change = float(np.sqrt(square / total) / (size + SETTLED_SCORE))
        if taken is None:
            return Pace(self.step, self.largest_step, np.zeros_like(move), 0.0, change)
        growth, turn = 0.0, 1.0
        if square > 0 and self.square > 0:
            growth = float(np.sqrt(square / self.square))
            turn = float(np.sum(dot(weight, move * self.move)) / np.sqrt(square * self.square))
        step = min(damping.following(max(taken, self.step / 2), growth, turn), self.largest_step)
        return Pace(step, self.largest_step, move, square, change)

    def more_damped(self) -> Pace | None:
        """A more careful pace, if there is one."""
        largest = self.largest_step * RESTART_SHARE
        if largest < SMALLEST_STEP:
            return None
        return replace(self, step=min(self.step, largest), largest_step=largest)


@dataclass(frozen=True, eq=False)
class Secants:
    """Leaps to a fixed point, learnt from the last points of an iteration and their residuals.

    A fixed point x = g(x) has residual f(x) = g(x) - x = 0. Plain iterations x + step·f shrink it at the rate
    of the slowest direction, and not at all if some direction turns faster than it shrinks, however short the
    step. Of the last few points the differences ΔX and ΔF show how f changes in just those directions; the
    combination that explains the present residual best is undone [Anderson 1965; Walker and Ni 2011]:

        γ = argmin |f - ΔF γ|,    x + step·f - (ΔX + step·ΔF) γ.
    """

    problem: object = None
    points: tuple[Array, ...] = ()
    residuals: tuple[Array, ...] = ()

    def __len__(self) -> int:
        return len(self.points)

    def of(self, problem: object) -> Secants:
        """Nothing, if the problem is another one: its residuals are another function."""
        return self if self.problem is problem else Secants(problem)

    def seen(self, point: Array, residual: Array, scale: Array) -> Secants:
        """With one more point; sizes of residuals are in units of 1/scale."""
        points, residuals = self.points[-MEMORY:], self.residuals[-MEMORY:]
        if points and np.linalg.norm(residual * scale) > ASTRAY * np.linalg.norm(residuals[-1] * scale):
            points, residuals = (), ()
        return Secants(self.problem, (*points, point), (*residuals, residual))

    def last(self) -> Secants:
        """The last point only."""
        return Secants(self.problem, self.points[-1:], self.residuals[-1:])

    def next_point(self, step: float | Array, scale: Array) -> Array:
        """Where the residual would be zero as far as it is known, and a step along what is left of it."""
        share = self._shares(scale)
        # One after the other: these are the longest arrays that a small fit has.
        point = share @ np.array(self.points)
        return np.asarray(point + step * (share @ np.array(self.residuals)))

    def _shares(self, scale: Array) -> Array:
        """Of the points, and of their residuals, in what undoes the last residual."""
        scaled = np.array(self.residuals)
        scaled *= scale
        # There are few directions in very many entries, so their inner products are all that is decomposed,
        # by products with a vector, which take half of the time here; and differences of points are combined
        # as the points are.
        differences = np.diff(np.eye(len(scaled)), axis=0)
        products = differences @ np.array([scaled @ row for row in scaled])
        found = np.linalg.lstsq(products @ differences.T, products[:, -1], rcond=LEAST_INDEPENDENT**2)
        share = -(found[0] @ differences)
        share[-1] += 1.0
        return np.asarray(share)


@dataclass(frozen=True, eq=False)
class PacedState:
    """A state with the pace of its iteration."""

    pace: Pace
    iteration: int
    log_evidence: float
    # Log normalisers of labels at their cavities, where a solver keeps them: a tuner need not ask again.
    label_log_z: Array | None = field(default=None, kw_only=True)

    @property
    def change(self) -> float:
        return self.pace.change

    @property
    def step(self) -> float:
        return self.pace.step

    @property
    def held(self) -> bool:
        """Whether variances stay, since they would not settle."""
        return False

    @property
    def next_step(self) -> float:
        """The first messages of labels replace none: there is nothing yet to damp towards."""
        return 1.0 if self.iteration == 0 else self.step


S = TypeVar("S", bound=PacedState)


class MessagePassing(Solver[S]):  # type: ignore[type-var]  # cavities are each state's own business
    """A damped iteration, which is restarted more carefully where it runs away."""

    damping: Damping  # a field of every solver
    rule: str = "sum-product"  # and a field of those that have another

    @property
    def max_sum(self) -> bool:
        return self.rule == "max-sum"

    def name(self, state: S | None = None) -> str:
        held = ", variances held" if state is not None and state.held else ""
        return f"{type(self).__name__}{' (max-sum)' if self.max_sum else ''}{held}"

    def more_damped(self, state: S) -> S | None:
        pace = state.pace.more_damped()
        return None if pace is None else self._at_pace(state, pace)

    def as_start(self, state: S) -> S:
        """The same messages for a neighbouring problem, with the step and its memory reset."""
        return self._at_pace(state, self._first_pace(state.pace.move.shape))

    def plausible(self, problem: Problem, state: S) -> bool:
        """The probability of labels is at most one: more is what a runaway iteration claims."""
        return not problem.channel.normalised or state.log_evidence < EVIDENCE_SLACK

    def _first_pace(self, shape: tuple[int, ...]) -> Pace:
        return Pace.first(self.damping, shape)

    def _at_pace(self, state: S, pace: Pace) -> S:
        return replace(state, pace=pace)


def psi(mean: Array, var: Array | float) -> Array:
    """Log normaliser of a Gaussian in its natural parameters: mean²/2var + ½ log(2π var)."""
    return np.asarray(0.5 * (mean * mean / var + np.log(2 * np.pi * var)))


def psi_difference(mean: Array, var: Array, other_mean: Array, other_var: Array) -> Array:
    """psi(mean, var) - psi(other_mean, other_var), with one logarithm."""
    squares = mean * mean / var - other_mean * other_mean / other_var
    return np.asarray(0.5 * (squares + np.log(var / other_var)))


def dot(a: Array, b: Array) -> Any:
    """Inner products of a with b, one for each score, without BLAS, whose threads cost more."""
    return float(np.einsum("i,i->", a, b)) if b.ndim == 1 else np.einsum("i,ij->j", a, b)


def along_scores(vector: Array, like: Array) -> Array:
    """One number for each row, laid out along rows of one or of several scores."""
    return vector if like.ndim == 1 else vector[:, np.newaxis]


def over_scores(values: Array) -> Array:
    """The sum over the scores of each row."""
    return values if values.ndim == 1 else values.sum(axis=1)


def for_scores(vector: Array, shape: tuple[int, ...]) -> Array:
    """A number for each row, repeated for every score."""
    return np.array(np.broadcast_to(vector[:, np.newaxis], (vector.size, *shape))) if shape else vector
