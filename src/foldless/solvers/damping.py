"""Damping: how far each iteration goes towards its proposal."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from foldless.component import Component


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
