"""Damping: how far each iteration goes towards its proposal, and how that is judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real

import numpy as np

from foldless.beliefs import Array
from foldless.component import Component
from foldless.registry import registered

# Scores within a hundredth of a logit of zero count as settled: relative change alone never settles when the
# answer is that nothing matters.
SETTLED_SCORE = 1e-2
# Restarting a diverged iteration takes this share of the step, and none below the smallest: that would need
# thousands of sweeps.
RESTART_SHARE = 0.25
SMALLEST_STEP = 0.01


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
    """How an iteration goes: how far its last move was, and how far the next may go.

    Moves are measured before damping, in the metric of `weight`: their squares count by it.
    """

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
        self,
        damping: Damping,
        *,
        position: Array,
        move: Array,
        taken: float | None,
        weight: Array,
        total: float,
    ) -> Pace:
        """After a step of the size `taken` to this position, where a whole one would have been this move.

        None stands for a leap, which says nothing about how steps go.
        """
        square = _dot(weight, move * move)
        size = np.sqrt(_dot(weight, position * position) / total)
        change = float(np.sqrt(square / total) / (size + SETTLED_SCORE))
        if taken is None:
            return Pace(self.step, self.largest_step, np.zeros_like(move), 0.0, change)
        growth, turn = 0.0, 1.0
        if square > 0 and self.square > 0:
            growth = float(np.sqrt(square / self.square))
            turn = _dot(weight, move * self.move) / float(np.sqrt(square * self.square))
        step = min(damping.following(max(taken, self.step / 2), growth, turn), self.largest_step)
        return Pace(step, self.largest_step, move, square, change)

    def more_damped(self) -> Pace | None:
        """A more careful pace, if there is one."""
        largest = self.largest_step * RESTART_SHARE
        if largest < SMALLEST_STEP:
            return None
        return replace(self, step=min(self.step, largest), largest_step=largest)


def _dot(a: Array, b: Array) -> float:
    """Inner product with a vector, or with all columns of several, without BLAS, whose threads cost more."""
    return float(np.einsum("i,i->", a, b if b.ndim == 1 else b.sum(axis=1)))
