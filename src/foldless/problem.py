"""A problem, as a solver is given it, and its solution: what was found, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array, Posterior
from foldless.channels.base import Channel
from foldless.operators.base import Operator
from foldless.priors.base import Prior
from foldless.registry import registered


@dataclass(frozen=True, eq=False)
class KeptColumns:
    """The columns that are always kept, the intercept and covariates: where they are, and their values."""

    positions: NDArray[np.intp]
    values: Array  # (rows, kept columns)

    def among(self, columns: NDArray[np.intp]) -> KeptColumns:
        """Where they are among some columns, in order, that have all of them."""
        return KeptColumns(np.searchsorted(columns, self.positions), self.values)

    @cached_property
    def squares(self) -> Array:
        return self.values**2


@dataclass(frozen=True, eq=False)
class ScreenedOut:
    """What weights that a problem leaves out say of it: their part of scores' cavities, and of the evidence.

    A part of a cavity does not hold what the sample's own label said, so it stays what it is while labels and
    the other weights come to terms.
    """

    cavity_mean: Array
    cavity_var: Array
    log_evidence: float
    # Of these weights, since they were last looked at.
    scale: float = 1.0

    def scaled(self, scale: float) -> ScreenedOut:
        """As it is where these weights and their variances are so many times as large."""
        return replace(
            self, cavity_mean=scale * self.cavity_mean, cavity_var=scale * self.cavity_var, scale=scale
        )


@dataclass(frozen=True, eq=False)
class Problem:
    """Operator, labels, channel (labels given scores) and prior (weights).

    Tuning makes a new problem, it never changes one. Labels are -1 and +1. A label of 0 marks a row that is
    no sample but a constraint on the weights.
    """

    operator: Operator
    labels: Array
    # A sample of weight 2 counts as two equal rows, one of weight 0 as no row. Leave-one-out takes out a
    # sample with all of its weight (`tuning.table.LeftOut`).
    sample_weight: Array
    channel: Channel
    prior: Prior
    kept: KeptColumns | None = None
    # Weights whose columns the operator has not (`solvers/screening.py`).
    screened_out: ScreenedOut | None = None

    def but(self, **changes: Any) -> Problem:
        """The same problem with some parts replaced."""
        return replace(self, **changes)

    @property
    def label_weight(self) -> Array:
        """The weight of each row as a labelled sample: 0 for constraints."""
        return self.sample_weight * (self.labels != 0)

    @property
    def n_samples(self) -> float:
        """The number of samples as the likelihood counts them."""
        return float(self.label_weight.sum())


@registered("outcome")
class Outcome(Enum):
    """How an iteration ended. An outcome is a result, not an exception; only estimators warn."""

    CONVERGED = "converged"
    STALLED = "stalled"
    RESCUED = "diverged and rescued"
    DIVERGED = "diverged"
    INTERRUPTED = "interrupted"
    BUDGET = "budget"
    EARLY = "stopped early"

    @property
    def advice(self) -> str:
        """What the outcome means for the answer, and what to do about it."""
        return _ADVICE[self]

    @property
    def trustworthy(self) -> bool:
        """Whether the answer is a fixed point of the algorithm."""
        return self in (Outcome.CONVERGED, Outcome.RESCUED)

    @property
    def may_be_judged(self) -> bool:
        """Whether left-out labels may say what it is worth: slowly on its way, if not a fixed point yet.

        What runs in circles may promise anything.
        """
        return self.trustworthy or self is Outcome.BUDGET

    def __str__(self) -> str:
        return self.value


_ADVICE = {
    Outcome.CONVERGED: "The iteration reached its tolerance.",
    Outcome.STALLED: (
        "The iteration keeps moving a little without settling, which is typical of strongly correlated "
        "columns. Read probabilities as a ranking, and trust the leave-one-out error. GAMPClassifier offers "
        "what may help: damping=0.1, mean_removal=True, variances='per-coordinate'."
    ),
    Outcome.RESCUED: (
        "The iteration diverged, was restarted from its best state with stronger damping, and then "
        "reached its tolerance. The answer is a fixed point; correlated columns are the usual cause."
    ),
    Outcome.DIVERGED: (
        "The iteration diverged and stronger damping did not help; the best state seen is returned and "
        "should not be trusted. Remove near-duplicate columns, or try GAMPClassifier with "
        "mean_removal=True, variances='per-coordinate', or a calmer prior such as prior='gaussian'."
    ),
    Outcome.INTERRUPTED: "The fit was interrupted; the state reached by then is returned.",
    Outcome.EARLY: (
        "The iteration was ended before its fixed point on purpose: how long it goes on is a parameter of "
        "the model, chosen with the others."
    ),
    Outcome.BUDGET: "max_iter was reached before the tolerance. Raise max_iter, or accept a larger tol.",
}


@registered("solution/iteration")
class Iteration(NamedTuple):
    """One line of the history."""

    change: float  # relative change of the weights, before damping
    step: float  # the damping step in force: 1 is undamped
    log_evidence: float
    tuned: dict[str, Any]  # the tuned parameters after this iteration
    visited: int | None = None  # how many weights, where it was not all of them


@registered("solution/history")
@dataclass
class History:
    """What happened in each iteration."""

    iterations: list[Iteration] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.iterations)

    @property
    def change(self) -> Array:
        return np.array([i.change for i in self.iterations])

    @property
    def step(self) -> Array:
        return np.array([i.step for i in self.iterations])

    @property
    def log_evidence(self) -> Array:
        return np.array([i.log_evidence for i in self.iterations])

    def tuned(self, name: str) -> Array:
        """The course of one tuned parameter."""
        return np.array([i.tuned[name] for i in self.iterations])


@dataclass(frozen=True, eq=False)
class Solution:
    """A posterior with its problem (as tuned), its outcome and its history; `state` allows a warm start."""

    problem: Problem
    posterior: Posterior
    outcome: Outcome
    history: History
    state: Any

    # Leave-one-out comes from cavities: what was believed of each score without its own label, however much
    # that counts; a sample of weight zero was never in.

    def loo_log_odds(self) -> Array:
        """Log-odds of label +1 for every training sample, from all other samples."""
        return self.problem.channel.predictive().log_odds(self.posterior.loo_mean, self.posterior.loo_var)

    def loo_log_densities(self) -> Array:
        """log P(label) of every training sample's own label, from all other samples."""
        channel, posterior = self.problem.channel.predictive(), self.posterior
        if not channel.score_shape:
            return -np.logaddexp(0.0, -self.problem.labels * self.loo_log_odds())
        if posterior.loo_log_density is not None:
            return posterior.loo_log_density
        return channel.respond(posterior.loo_mean, posterior.loo_var, self.problem.labels).log_z

    def loo_log_loss(self) -> float:
        """Mean leave-one-out log loss; infinite if it is not a number."""
        weight = self.problem.label_weight
        loss = -float(weight @ self.loo_log_densities()) / float(weight.sum())
        return loss if np.isfinite(loss) else np.inf

    def without_data(self) -> Solution:
        """Messages and parameters without the samples they came from, which are not to be held in memory."""
        return replace(self, problem=replace(self.problem, operator=None, kept=None))  # type: ignore[arg-type]
