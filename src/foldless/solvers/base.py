"""The contract of a solver: pure steps from state to state, run by the one loop in `solve`."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from foldless.beliefs import Array, Posterior
from foldless.component import Component
from foldless.problem import Problem


class State(Protocol):
    """What the loop and a tuner may use of any solver's state."""

    @property
    def change(self) -> float: ...
    @property
    def step(self) -> float: ...
    @property
    def log_evidence(self) -> float: ...
    @property
    def cavity_mean(self) -> Array: ...
    @property
    def cavity_var(self) -> Array: ...
    @property
    def score_cavity_mean(self) -> Array: ...
    @property
    def score_cavity_var(self) -> Array: ...
    @property
    def label_log_z(self) -> Array | None: ...


S = TypeVar("S", bound=State)


@dataclass(frozen=True)
class Solver(Component, Generic[S]):
    """`init` makes a state, `step` a better one; neither changes what it was given."""

    @property
    def max_sum(self) -> bool:
        """Whether it looks for the regularised maximum, and not for means."""
        return False

    def name(self, state: S | None = None) -> str:
        """As in the papers; with how it came to this state, where that is not as usual."""
        return type(self).__name__

    @abstractmethod
    def init(self, problem: Problem) -> S:
        """The state before any data; raises if the problem lacks what this solver needs."""

    @abstractmethod
    def step(self, problem: Problem, state: S) -> S:
        """One iteration: one sweep over the data."""

    @abstractmethod
    def more_damped(self, state: S) -> S | None:
        """The same state with a more careful step, to restart a diverged iteration; None if there is none."""

    def otherwise(self, problem: Problem, state: S) -> S | None:
        """A state from which to go on in another way where this one never settles; None if there is none."""
        return None

    @abstractmethod
    def as_start(self, state: S) -> S:
        """The state as a warm start for a neighbouring problem: messages kept, step control reset."""

    @abstractmethod
    def for_new_data(self, problem: Problem, state: S) -> S:
        """The state as a warm start for other data of the same shape: what derives from data is redone."""

    def for_new_rows(self, problem: Problem, state: S) -> S | None:
        """The state as a start for a problem with other rows and the same columns; None if there is none."""
        return None

    def plausible(self, problem: Problem, state: S) -> bool:
        """Whether the state can be an answer at all; an iteration may run away and yet stand still."""
        return True

    def ended(self, state: S) -> S:
        """The state as a solution keeps it: without what only further iterations would use."""
        return state

    @abstractmethod
    def posterior(self, problem: Problem, state: S) -> Posterior:
        """The beliefs about weights and scores in this state."""


class Tuner(Protocol):
    """Turns a problem and the state of its solution into a better problem."""

    def update(self, problem: Problem, state: Any, iteration: int) -> Problem: ...

    def settled(self, iteration: int) -> bool:
        """Whether the state of this iteration follows an update: before one, standing still means nothing."""
        ...

    def tuned(self, problem: Problem) -> dict[str, Any]:
        """The current values of the parameters that `update` learns, for the history."""
        ...
