"""What solvers that pass messages share: their pace, restarts, and what makes an answer plausible."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from foldless.beliefs import Array
from foldless.problem import Problem
from foldless.solvers.base import Solver
from foldless.solvers.damping import Damping, Pace

# The evidence of labels is an approximation and may exceed one by a little.
EVIDENCE_SLACK = 1.0
# A start with scores vaguer than this (log-odds squared), from a wide prior of an intercept or of any column,
# makes the first labels look uninformative, and all of them together leap where they are certain and wrong.
VAGUEST_START = 10.0


@dataclass(frozen=True, eq=False)
class PacedState:
    """A state that knows how its iteration goes."""

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
    def next_step(self) -> float:
        """The first messages of labels replace none: there is nothing yet to damp towards."""
        return 1.0 if self.iteration == 0 else self.step


S = TypeVar("S", bound=PacedState)


class MessagePassing(Solver[S]):  # type: ignore[type-var]  # cavities are each state's own business
    """A damped iteration, which is restarted more carefully where it runs away."""

    damping: Damping  # a field of every solver

    def more_damped(self, state: S) -> S | None:
        pace = state.pace.more_damped()
        return None if pace is None else self._at_pace(state, pace)

    def as_start(self, state: S) -> S:
        """The same messages for a neighbouring problem, with the step and its memory reset."""
        return self._at_pace(state, self._first_pace(state.pace.move.shape))

    def plausible(self, problem: Problem, state: S) -> bool:
        """The probability of labels is at most one: more is what a runaway iteration claims."""
        return not problem.channel.normalised or state.log_evidence < EVIDENCE_SLACK

    def _pace_after(
        self, problem: Problem, state: S, before: Array, after: Array, step: float | None, weight: Array
    ) -> Pace:
        """The pace after a step, or a leap (None), between two positions; `weight` counts their squares.

        Damped messages move a position by about a step's share of the way; what matters is the whole way.
        """
        move = after - before
        if step is not None and step < 1.0:
            move /= step
        return state.pace.after(
            self.damping, position=after, move=move, taken=step, weight=weight, total=problem.n_samples
        )

    def _first_pace(self, shape: tuple[int, ...]) -> Pace:
        return Pace.first(self.damping, shape)

    def _at_pace(self, state: S, pace: Pace) -> S:
        return replace(state, pace=pace)


def psi(mean: Array, var: Array | float) -> Array:
    """Log normaliser of a Gaussian in its natural parameters: mean²/2var + ½ log(2π var)."""
    return np.asarray(0.5 * (mean * mean / var + np.log(2 * np.pi * var)))


def along_scores(vector: Array, like: Array) -> Array:
    """One number for each row, laid out along rows of one or of several scores."""
    return vector if like.ndim == 1 else vector[:, np.newaxis]


def over_scores(values: Array) -> Array:
    """The sum over the scores of each row."""
    return values if values.ndim == 1 else values.sum(axis=1)


def for_scores(vector: Array, shape: tuple[int, ...]) -> Array:
    """A number for each row, repeated for every score."""
    return np.array(np.broadcast_to(vector[:, np.newaxis], (vector.size, *shape))) if shape else vector
