"""Screening: iterations over the few weights that may matter, and visits to all of them.

With millions of features nearly all weights are out and stay out, and what an iteration costs is the visit
to every one of them, by the sweep, the prior and EM. So a run goes in rounds:

    all weights ─▶ which may move? ─▶ their columns, gathered: a small problem, solved ─▶ a visit to all
                         ▲                                                                      │
                         └──────────────────── weights or scores still move ◀───────────────────┘

**The small problem.** Let I be the weights in it and O the others. The cavity of a score is p = X w - τp s
with τp = (X∘X) τw, sums over weights, and so has a part of each:

    p = (X_I w_I - τp_I s) + (X_O w_O - τp_O s),    τp = τp_I + τp_O.

The second part as a whole is what is kept from the last visit (`ScreenedOut`), and not X_O w_O: slopes
that change by ds move w_O by diag(τw_O) X_Oᵀ ds and its scores by X_O diag(τw_O) X_Oᵀ ds, for many columns
τp_O ds, which the correction takes out again. So what is kept is what O says after having followed.

**Parameters.** A single weight of O is out, but the small probabilities of millions add up to several
features, and EM must count them. It sees their cavities of the last visit (`WithScreenedOut`), so that
inclusion follows the parameters. Where small, it is in proportion to the prior's, and so are w_O and τw_O:
their part of scores is multiplied by what their variances add up to now over what they did (`_Following`).

**Who is left out.** With z = r/√τr the log odds of a weight rise by at most j|z| + j²/2 when its cavity moves
away from zero by j standard deviations: their derivative is the slab's mean over τr, which for a slab about
zero is between zero and r/τr. The weight's answer to its cavity, dw/dr = τw/τr, is small in proportion to its
odds. A weight whose answer would be small even after a jump is left out.

**A visit** is an iteration over all weights, whose scores are made of the gathered columns and of the part
that was kept (`PartlyVisited`). Only a visit ends a run as converged, if it moves neither weights nor, by
millions of small moves in one direction, the cavities of scores.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.component import Component
from foldless.operators import Dense, Operator
from foldless.operators.dense import in_memory
from foldless.operators.partly_visited import PartlyVisited
from foldless.priors import Blocks, Prior
from foldless.priors.wrappers import WithScreenedOut, around_innermost, innermost, innermost_cavity
from foldless.problem import History, Outcome, Problem, ScreenedOut, Solution
from foldless.solvers import GAMP, Stopping, solve
from foldless.solvers.base import Solver, State, Tuner
from foldless.solvers.gamp import GAMPState, weight_evidence
from foldless.solvers.message_passing import SETTLED_SCORE
from foldless.solvers.solve import Watch

# Small problems cost next to nothing, and one that does not settle by now is better seen to by a visit.
SMALL_ITERATIONS = 50
# Rounds that come no closer to the end than an earlier one.
LARGEST_SETBACKS = 2
# Bytes of columns in double precision, on their way into a copy.
GATHERED_AT_ONCE = 1 << 25
# What ends a run in its first iterations. (A state that is not plausible yet may still become so.)
ENDS = (Outcome.CONVERGED, Outcome.RESCUED, Outcome.INTERRUPTED)


@dataclass(frozen=True)
class Screening(Component):
    """When to screen, and whom to leave out.

    least_weights
        Below, rounds cost about what they save. Measured with 200 samples in memory: nothing is gained at
        100 000 features, a fifth of the time at 300 000, more than half at 2 000 000.
    jump, notable
        A weight is left out if it would answer to its cavity by less than `notable`, in units of the cavity's
        move, after the cavity has moved away from zero by `jump` standard deviations.
    largest_share
        Of the columns, that may be gathered: the copy is to be small beside X. With more, none is left out.
    largest_length
        Of data that are not in memory, the copy is to be small beside the vectors over features that a fit
        holds: at most so many of them.
    opening
        Iterations over all weights before the first screen of a run from scratch.
    """

    least_weights: int = 1_000_000
    jump: float = 2.0
    notable: float = 0.5
    largest_share: float = 0.05
    largest_length: int = 16
    opening: int = 1

    def applies(self, problem: Problem, solver: Solver[Any]) -> bool:
        """Whether this is a problem whose weights can be left out for a while.

        Max-sum has no odds, exact variances need all columns, a joint prior all weights, and parameters of
        single columns could not be learnt from others.
        """
        n_weights = problem.operator.shape[1]
        return (
            n_weights >= self.least_weights
            and type(solver) is GAMP
            and not solver.max_sum
            and solver.variances != "per-coordinate"
            and isinstance(problem.prior, Blocks)
            and not problem.prior.joint
            and (inner := innermost(problem.prior.base)).of_columns(np.arange(1), n_weights) == inner
            and problem.channel.score_shape == ()
        )

    def may_move(self, problem: Problem, state: GAMPState) -> NDArray[np.intp]:
        """The weights that are not left out, in order."""
        assert isinstance(problem.prior, Blocks)
        mean, var = innermost_cavity(problem.prior.base, state.cavity_mean, state.cavity_var)
        with np.errstate(divide="ignore"):
            answer = np.log(state.weight_var / var)
        answer += self.jump * np.abs(mean) / np.sqrt(var)
        moves = answer >= np.log(self.notable) - self.jump**2 / 2
        # Blocks of their own are few, but for columns that never vary, about which nothing is ever said.
        for columns, _ in problem.prior.others:
            moves[columns] = state.norms.column[columns] > 0
        if problem.kept is not None:
            moves[problem.kept.positions] = True
        return np.flatnonzero(moves)

    def may_gather(self, operator: Operator, n_gathered: int) -> bool:
        """Whether a copy of so many columns is small."""
        n_rows, n_columns = operator.shape
        return n_gathered <= self.largest_share * n_columns and (
            in_memory(operator) or n_rows * n_gathered <= self.largest_length * n_columns
        )


class TunerFor(Protocol):
    """Makes the tuner of a problem, or of one that has some columns only; or one that learns nothing."""

    def __call__(
        self, problem: Problem, columns: NDArray[np.intp] | None = None, *, delay: int = 0, learn: bool = True
    ) -> Tuner: ...


class _Gathered(NamedTuple):
    """Some columns, and an operator that has no others."""

    columns: NDArray[np.intp]
    operator: Operator

    @classmethod
    def of(cls, operator: Operator, columns: NDArray[np.intp]) -> _Gathered:
        n_rows = operator.shape[0]
        copy = np.empty((n_rows, columns.size), dtype=operator.dtype)
        # Columns come in double precision. From elsewhere they come by a pass over all data, and so at once.
        width = max(GATHERED_AT_ONCE // (8 * n_rows), 1) if in_memory(operator) else columns.size
        for start in range(0, columns.size, width):
            some = slice(start, start + width)
            copy[:, some] = operator.columns(columns[some])
        return cls(columns, Dense(copy))

    def covers(self, columns: NDArray[np.intp]) -> bool:
        return bool(np.isin(columns, self.columns, assume_unique=True).all())


def solve_screened(
    problem: Problem,
    solver: Solver[Any],
    screening: Screening,
    *,
    stopping: Stopping,
    small_stopping: Stopping,
    tuner_for: TunerFor,
    state: GAMPState | None = None,
    watch: Watch | None = None,
) -> Solution:
    """As `solve`, in rounds. `stopping` is about visits to all weights, `small_stopping` about the rest."""
    return _Rounds(problem, solver, screening, stopping, small_stopping, tuner_for, watch).run(state)


@dataclass
class _Rounds:
    """A run: the problem as tuned so far, and what has happened."""

    problem: Problem
    solver: Solver[Any]
    screening: Screening
    stopping: Stopping
    small_stopping: Stopping
    tuner_for: TunerFor
    watch: Watch | None
    history: History = field(default_factory=History)
    # Iterations over all weights, which `stopping` is about, and what the last of them left.
    n_whole: int = 0
    state: GAMPState | None = None

    def run(self, state: GAMPState | None) -> Solution:
        self.state = state
        try:
            return self._run()
        except KeyboardInterrupt:
            # Between iterations, where columns are gathered and scores are made.
            if self.state is None:
                raise
            return self._interrupted(self.state)

    def _run(self) -> Solution:
        if self.state is None:
            opening = self._whole(None, self.screening.opening)
            if opening.outcome in ENDS or self.n_whole >= self.stopping.max_iter:
                return self._ended(opening, opening.outcome)
            self.problem, self.state = opening.problem, opening.state
        state: GAMPState = self.state
        gathered: _Gathered | None = None
        scores: Array | None = None
        closest, setbacks = np.inf, 0
        while setbacks <= LARGEST_SETBACKS:
            columns = self.screening.may_move(self.problem, state)
            if not self.screening.may_gather(self.problem.operator, columns.size):
                break
            if gathered is None or not gathered.covers(columns):
                gathered = None  # free before the next is made
                gathered = _Gathered.of(self.problem.operator, columns)
            if scores is None:
                scores = self.problem.operator.scores(state.weights)
            small = self._small(state, gathered, scores)
            if small.outcome is Outcome.DIVERGED:
                break
            self._learn_from(small)
            screened_out = small.problem.screened_out
            assert screened_out is not None
            # Those of the small problem are as it left them, the others as they followed.
            state = state.with_part(gathered.columns, small.state, screened_out.scale)
            if small.outcome is Outcome.INTERRUPTED:
                return self._interrupted(state)
            visit = self._visit(state, gathered, screened_out)
            if visit.outcome is Outcome.INTERRUPTED:
                return self._ended(visit, visit.outcome)
            self.state = state = visit.state
            scores = self.problem.operator.scores(state.weights)
            distance = max(state.change, _drift(state, scores))
            if visit.outcome is Outcome.CONVERGED and distance <= self.stopping.tol:
                return self._ended(visit, visit.outcome)
            if self.n_whole >= self.stopping.max_iter:
                diverged = visit.outcome is Outcome.DIVERGED
                return self._ended(visit, Outcome.DIVERGED if diverged else Outcome.BUDGET)
            closest, setbacks = min(distance, closest), setbacks + (distance >= closest)
        rest = self._whole(state, self.stopping.max_iter - self.n_whole)
        return self._ended(rest, rest.outcome)

    def _whole(self, state: GAMPState | None, max_iter: int) -> Solution:
        """So many iterations over all weights, as without a screen."""
        stopping = replace(self.stopping, max_iter=min(max_iter, self.stopping.max_iter))
        tuner = self.tuner_for(self.problem, delay=1 if state is None else 0)
        return self._solve(self.problem, stopping, tuner, state)

    def _small(self, state: GAMPState, gathered: _Gathered, scores: Array) -> Solution:
        """The problem of the gathered columns, solved and tuned."""
        problem, columns = _small_problem(self.problem, state, gathered, scores), gathered.columns
        stopping = replace(self.small_stopping, max_iter=min(SMALL_ITERATIONS, self.small_stopping.max_iter))
        tuner = _Following.of(problem, self.tuner_for(problem, columns))
        return self._solve(problem, stopping, tuner, state.of_columns(columns), visited=columns.size)

    def _visit(self, state: GAMPState, gathered: _Gathered, screened_out: ScreenedOut) -> Solution:
        """One iteration over all weights, after one over the gathered ones."""
        operator = self.problem.operator
        # What the correction takes out again.
        rest = screened_out.cavity_mean + screened_out.cavity_var * state.slopes
        problem = self.problem.but(operator=PartlyVisited(operator, *gathered, rest))
        tuner = _Resting(self.tuner_for(self.problem, learn=False), self.tuner_for(self.problem))
        visit = self._solve(problem, replace(self.stopping, max_iter=1, min_iter=1), tuner, state)
        self.problem = visit.problem.but(operator=operator)
        return replace(visit, problem=self.problem)

    def _solve(
        self,
        problem: Problem,
        stopping: Stopping,
        tuner: Tuner,
        state: GAMPState | None,
        visited: int | None = None,
    ) -> Solution:
        """As `solve`, with iterations noted that visit all weights, or so many."""
        watch, begun = self.watch, len(self.history)
        told = None if watch is None else lambda n, line: watch(begun + n, line._replace(visited=visited))
        solution = solve(problem, self.solver, stopping=stopping, tuner=tuner, state=state, watch=told)
        lines = [line._replace(visited=visited) for line in solution.history.iterations]
        self.history.iterations.extend(lines)
        self.n_whole += len(lines) if visited is None else 0
        return solution

    def _learn_from(self, small: Solution) -> None:
        """The parameters that a small problem was tuned to."""
        assert isinstance(self.problem.prior, Blocks)
        assert isinstance(small.problem.prior, Blocks)
        base = _with_learnt(self.problem.prior.base, small.problem.prior.base)
        self.problem = self.problem.but(
            channel=small.problem.channel, prior=replace(self.problem.prior, base=base)
        )
        # Some of what tuning does is not learnt but follows from the state: the ridge of a blend.
        self.problem = self.tuner_for(self.problem, learn=False).update(self.problem, small.state, 0)

    def _interrupted(self, state: GAMPState) -> Solution:
        posterior = self.solver.posterior(self.problem, state)
        return Solution(self.problem, posterior, Outcome.INTERRUPTED, self.history, state)

    def _ended(self, solution: Solution, outcome: Outcome) -> Solution:
        return replace(solution, outcome=outcome, history=self.history)


@dataclass(frozen=True, eq=False)
class _Following:
    """A tuner, after which screened-out weights are as large as its parameters make them."""

    tuner: Tuner
    screened_out: ScreenedOut
    variance: float

    @classmethod
    def of(cls, problem: Problem, tuner: Tuner) -> _Following:
        assert problem.screened_out is not None
        return cls(tuner, problem.screened_out, _screened_out_in(problem.prior).screened_out_variance())

    def update(self, problem: Problem, state: State, iteration: int) -> Problem:
        problem = self.tuner.update(problem, state, iteration)
        variance = _screened_out_in(problem.prior).screened_out_variance()
        scale = variance / self.variance if self.variance > 0 else 1.0
        return problem.but(screened_out=self.screened_out.scaled(scale))

    def settled(self, iteration: int) -> bool:
        return self.tuner.settled(iteration)

    def tuned(self, problem: Problem) -> dict[str, Any]:
        """By the names that parameters have without `WithScreenedOut` around them."""
        path, prior = "prior", problem.prior
        while not isinstance(prior, WithScreenedOut):
            path, prior = path + "__base", prior.base  # type: ignore[attr-defined]
        return {
            name.replace(f"{path}__base__", f"{path}__", 1): value
            for name, value in self.tuner.tuned(problem).items()
        }


class _Resting(NamedTuple):
    """A tuner that learns nothing, but tells what another one has learnt."""

    tuner: Tuner
    learning: Tuner

    def update(self, problem: Problem, state: State, iteration: int) -> Problem:
        return self.tuner.update(problem, state, iteration)

    def settled(self, iteration: int) -> bool:
        return self.tuner.settled(iteration)

    def tuned(self, problem: Problem) -> dict[str, Any]:
        return self.learning.tuned(problem)


def _small_problem(problem: Problem, state: GAMPState, gathered: _Gathered, scores: Array) -> Problem:
    """The problem of the gathered columns, with what all others say of it; `scores` are of all columns."""
    assert isinstance(problem.prior, Blocks)
    columns, operator = gathered
    n_weights = state.weights.size
    screened_out = np.ones(n_weights, dtype=bool)
    screened_out[columns] = False
    var = state.norms.score_var(state.weight_var * screened_out)
    mean = scores - operator.scores(state.weights[columns]) - var * state.slopes
    prior = problem.prior.of_columns(columns, n_weights)
    assert isinstance(prior, Blocks)
    own = state.of_columns(columns)
    tilted = prior.tilted(own.cavity_mean, own.cavity_var)
    evidence = state.weight_evidence - weight_evidence(tilted, own.cavity_mean, own.cavity_var)
    screened_out &= problem.prior.of_base(n_weights)
    cavity = innermost_cavity(problem.prior.base, state.cavity_mean, state.cavity_var)
    base = around_innermost(prior.base, lambda inner: WithScreenedOut.counting(inner, *cavity, screened_out))
    return problem.but(
        operator=operator,
        prior=replace(prior, base=base),
        kept=None if problem.kept is None else problem.kept.among(columns),
        screened_out=ScreenedOut(mean, var, evidence),
    )


def _screened_out_in(prior: Prior) -> WithScreenedOut:
    assert isinstance(prior, Blocks)
    found = prior.base
    while not isinstance(found, WithScreenedOut):
        found = found.base  # type: ignore[attr-defined]
    return found


def _with_learnt(base: Any, small: Any) -> Prior:
    """The prior of all weights with what its twin in a small problem has learnt; ridges remain."""
    if isinstance(small, WithScreenedOut):
        return small.base
    learnt: Prior = replace(base, base=_with_learnt(base.base, small.base))
    return learnt


def _drift(state: GAMPState, scores: Array) -> float:
    """How far cavities of scores will move next, in means and standard deviations, as a share of the scores.

    The weights' own measure of change takes columns for independent, and so misses what millions of weights
    do together that follow the labels.
    """
    var = state.norms.score_var(state.weight_var)
    mean = scores - var * state.slopes
    size = _rms(scores) + SETTLED_SCORE
    deviation = np.sqrt(var) - np.sqrt(state.score_cavity_var)
    return max(_rms(mean - state.score_cavity_mean), _rms(deviation)) / size


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values * values)))
