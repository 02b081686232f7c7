"""Damping: how far each iteration goes towards its proposal."""

from __future__ import annotations

from dataclasses import dataclass

from foldless.component import Component


@dataclass(frozen=True)
class ConstantDamping(Component):
    """Always the same step in (0, 1]; 1 is undamped."""

    size: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.size <= 1:
            raise ValueError(f"A damping step must be in (0, 1]; got {self.size!r}. 1 means undamped, 0.3 is careful.")

    @property
    def first(self) -> float:
        return self.size

    def following(self, step: float, change: float, previous_change: float) -> float:
        return step


@dataclass(frozen=True)
class AdaptiveDamping(Component):
    """Shorten the step when the undamped change grows, lengthen it slowly while the change falls.

    The change is measured before damping, so a short step does not pass for convergence. Shrinking
    outweighs growing: an iteration that alternates between larger and smaller changes is oscillating,
    and loses a third of its step every two iterations. No sweep is ever rejected, because on the data
    meant here a sweep is the cost.
    """

    first: float = 1.0
    shrink: float = 0.6
    grow: float = 1.1
    smallest: float = 0.02

    def following(self, step: float, change: float, previous_change: float) -> float:
        if change > previous_change:
            return max(step * self.shrink, self.smallest)
        return min(step * self.grow, self.first)


Damping = ConstantDamping | AdaptiveDamping


def damping_from(choice: str | float | Damping) -> Damping:
    """'adaptive', a step in (0, 1], or a damping object."""
    if isinstance(choice, ConstantDamping | AdaptiveDamping):
        return choice
    if choice == "adaptive":
        return AdaptiveDamping()
    if isinstance(choice, int | float) and not isinstance(choice, bool):
        return ConstantDamping(float(choice))
    raise ValueError(f"damping must be 'adaptive' or a step in (0, 1]; got {choice!r}.")
