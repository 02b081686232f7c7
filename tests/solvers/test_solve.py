"""The one loop: how it ends, what it returns, what it tells."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from foldless.channels import Logistic, Probit
from foldless.operators import Dense
from foldless.priors import Gaussian, SpikeAndSlab
from foldless.problem import Outcome, Problem
from foldless.solvers import GAMP, AdaptiveDamping, ConstantDamping, Stopping, solve
from foldless.solvers.base import Solver
from foldless.solvers.message_passing import damping_from
from foldless.tuning.em import EM, tunable_names


def problem_of(X, labels, channel, prior):
    return Problem(Dense(X), labels, np.ones(labels.size), channel, prior)


@pytest.fixture(scope="module")
def easy():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 60))
    labels = np.where(X[:, 0] - X[:, 1] + rng.standard_normal(80) > 0, 1.0, -1.0)
    return problem_of(X, labels, Logistic(), SpikeAndSlab())


@pytest.fixture(scope="module")
def correlated():
    """Columns with a common factor, on which undamped iterations run away."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 200)) + 0.5 * rng.standard_normal((150, 1))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    scores = X @ rng.normal(0.0, 0.14, 200)
    labels = np.where(scores + rng.standard_normal(150) > 0, 1.0, -1.0)
    return problem_of(X, labels, Probit(), Gaussian(0.02))


def check_usable(solution):
    """Whatever the outcome, its numbers are numbers and its words say what to do."""
    posterior = solution.posterior
    for name in ("mean", "var", "cavity_mean", "cavity_var", "loo_mean", "loo_var"):
        assert np.all(np.isfinite(getattr(posterior, name))), name
    assert np.all(posterior.var > 0)
    assert np.isfinite(posterior.log_evidence)
    assert len(solution.outcome.advice) > 20
    for course in (solution.history.change, solution.history.step, solution.history.log_evidence):
        assert course.shape == (len(solution.history),)
        assert np.all(np.isfinite(course))


# Outcomes of GAMP


def test_converged(easy):
    stopping = Stopping(tol=1e-6)
    solution = solve(easy, GAMP(), stopping=stopping)
    check_usable(solution)
    assert solution.outcome is Outcome.CONVERGED
    assert solution.outcome.trustworthy
    assert solution.history.change[-1] <= 1e-6
    assert np.all(solution.history.change[stopping.min_iter - 1 : -1] > 1e-6)
    assert solution.state.iteration == len(solution.history)
    assert solution.posterior.log_evidence == solution.history.log_evidence[-1]
    assert solution.problem is easy


def test_budget(easy):
    solution = solve(easy, GAMP(), stopping=Stopping(max_iter=4))
    check_usable(solution)
    assert solution.outcome is Outcome.BUDGET
    assert not solution.outcome.trustworthy
    assert len(solution.history) == 4


def test_a_budget_can_be_continued(easy):
    solver, tight = GAMP(), Stopping(tol=1e-10)
    first = solve(easy, solver, stopping=Stopping(max_iter=5))
    rest = solve(easy, solver, stopping=tight, state=first.state)
    whole = solve(easy, solver, stopping=tight)
    assert len(first.history) + len(rest.history) == len(whole.history)
    assert_array_equal(rest.posterior.mean, whole.posterior.mean)


def test_stalled(correlated):
    stopping = Stopping(patience=30)
    solution = solve(correlated, GAMP(damping=ConstantDamping(1.0)), stopping=stopping)
    check_usable(solution)
    assert solution.outcome is Outcome.STALLED
    assert not solution.outcome.trustworthy
    changes = solution.history.change
    assert len(changes) == np.argmin(changes) + 1 + 30
    # The best state is returned, not the last.
    assert solution.state.change == changes.min()


def test_diverged_and_rescued(correlated):
    """Next to the fixed point moves are small at first and then explode."""
    stopping = Stopping(tol=1e-8, max_iter=1000)
    solution = solve(correlated, GAMP(), stopping=stopping)
    assert solution.outcome is Outcome.CONVERGED
    undamped = GAMP(damping=ConstantDamping(1.0))
    neighbour = correlated.but(prior=Gaussian(0.02001))
    rescued = solve(neighbour, undamped, stopping=stopping, state=undamped.as_start(solution.state))
    check_usable(rescued)
    assert rescued.outcome is Outcome.RESCUED
    assert rescued.outcome.trustworthy
    assert rescued.history.step[0] == 1.0
    assert rescued.history.step[-1] < 0.5
    careful = solve(neighbour, GAMP(damping=ConstantDamping(0.1)), stopping=stopping)
    assert_allclose(rescued.posterior.mean, careful.posterior.mean, atol=1e-6)


def test_interrupted(easy):
    def impatient(iteration, line):
        if iteration == 6:
            raise KeyboardInterrupt

    solution = solve(easy, GAMP(), stopping=Stopping(tol=1e-12), watch=impatient)
    check_usable(solution)
    assert solution.outcome is Outcome.INTERRUPTED
    assert not solution.outcome.trustworthy
    assert len(solution.history) == 6


def test_other_exceptions_are_not_swallowed(easy):
    def broken(iteration, line):
        raise RuntimeError("no disk left")

    with pytest.raises(RuntimeError, match="no disk left"):
        solve(easy, GAMP(), watch=broken)


def test_every_iteration_is_watched(easy):
    seen = []
    solution = solve(easy, GAMP(), watch=lambda iteration, line: seen.append((iteration, line)))
    assert [iteration for iteration, _ in seen] == list(range(1, len(solution.history) + 1))
    assert [line for _, line in seen] == solution.history.iterations


@pytest.mark.parametrize("outcome", Outcome, ids=str)
def test_every_outcome_speaks(outcome):
    assert outcome.advice.endswith(".")
    assert str(outcome) == outcome.value


# The loop itself, with a solver that moves as it is told


@dataclass(frozen=True)
class ScriptedState:
    at: int = 0
    change: float = np.inf
    step: float = 1.0
    log_evidence: float = 0.0


@dataclass(frozen=True)
class Scripted(Solver):
    """Each step has the next change of the script; a more damped state goes on in the script."""

    script: tuple[float, ...] = ()
    calmest: float = 0.01

    def init(self, problem):
        return ScriptedState()

    def step(self, problem, state):
        at = _clock.tick()
        return replace(state, at=at, change=self.script[at])

    def more_damped(self, state):
        return None if state.step / 4 < self.calmest else replace(state, step=state.step / 4)

    def as_start(self, state):
        return state

    def for_new_data(self, problem, state):
        return state

    def posterior(self, problem, state):
        return state


class _Clock:
    def __init__(self):
        self.time = -1

    def tick(self):
        self.time += 1
        return self.time


_clock = _Clock()


def run(script, *, calmest=0.01, **stopping):
    _clock.time = -1
    return solve(None, Scripted(tuple(script), calmest), stopping=Stopping(**stopping))


def test_convergence_needs_min_iter():
    assert len(run([1e-9] * 10, min_iter=5).history) == 5


def test_an_explosion_is_relative_and_absolute():
    # 1e-5 after 1e-9 is large beside the smallest but small in itself; 2 after 1 is not much larger.
    assert run([0.1, 1e-4, 0.9, 1e-6], tol=1e-5).outcome is Outcome.CONVERGED
    assert run([2.0, 1.0, 900.0, 1e-6], tol=1e-5).outcome is Outcome.CONVERGED
    assert run([0.1, 1e-4, 1.1, 0.5, 1e-6], tol=1e-5).outcome is Outcome.RESCUED
    assert run([0.1, np.nan, 0.5, 1e-6], tol=1e-5).outcome is Outcome.RESCUED
    assert run([0.1, np.inf, 0.5, 1e-6], tol=1e-5).outcome is Outcome.RESCUED


def test_a_rescue_starts_from_the_best_state_with_a_smaller_step():
    solution = run([0.5, 1e-3, 0.1, 5.0, 0.2, 1e-6], tol=1e-5)
    assert solution.outcome is Outcome.RESCUED
    assert_array_equal(solution.history.change, [0.5, 1e-3, 0.1, 0.2, 1e-6])
    assert_array_equal(solution.history.step, [1.0, 1.0, 1.0, 0.25, 0.25])


def test_explosions_without_end_are_a_divergence():
    solution = run([1e-3, 500.0] * 10, min_iter=100)
    assert solution.outcome is Outcome.DIVERGED
    # Steps of 1, 1/4, 1/16 and 1/64, each with one iteration that went well; 1/256 is below the calmest.
    assert_array_equal(solution.history.step, [1.0, 0.25, 0.0625, 0.015625])
    assert solution.state.change == 1e-3


def test_patience_counts_from_the_smallest_change():
    solution = run([1.0, 0.5, 0.9, 0.4, 0.9, 0.9, 0.9, 0.3, 0.2], patience=3)
    assert solution.outcome is Outcome.STALLED
    assert solution.state.at == 3
    assert len(solution.history) == 7


def test_no_iteration_at_all():
    solution = run([], max_iter=0)
    assert solution.outcome is Outcome.BUDGET
    assert len(solution.history) == 0


# A tuner in the loop


class CountingTuner:
    """Adds one to a counter each time, and settles after a while."""

    def __init__(self, settled_after):
        self.settled_after = settled_after

    def update(self, problem, state, iteration):
        return problem + 1

    def settled(self, iteration):
        return iteration >= self.settled_after

    def tuned(self, problem):
        return {"count": problem}


def test_a_tuner_is_called_between_iterations_and_asked_before_the_end():
    _clock.time = -1
    solution = solve(0, Scripted((1e-9,) * 20), tuner=CountingTuner(settled_after=7))
    assert len(solution.history) == 8
    assert_array_equal(solution.history.tuned("count"), np.arange(8))
    assert solution.problem == 7


def test_the_problem_of_the_best_state_is_returned_with_it():
    _clock.time = -1
    script = (1.0, 0.5, 0.2, 0.9, 0.9, 0.9, 0.9)
    solution = solve(0, Scripted(script), tuner=CountingTuner(0), stopping=Stopping(patience=3))
    assert solution.outcome is Outcome.STALLED
    assert solution.problem == 2


# Damping


def test_constant_damping_never_changes():
    damping = ConstantDamping(0.3)
    assert damping.first == 0.3
    assert damping.following(0.3, growth=100.0, turn=-1.0) == 0.3


@pytest.mark.parametrize("size", [0.0, -0.1, 1.1, np.nan])
def test_damping_must_be_a_step(size):
    with pytest.raises(ValueError, match=r"\(0, 1\]"):
        ConstantDamping(size)


@pytest.mark.parametrize(
    ("growth", "turn", "factor"),
    [
        (1.0, -0.5, 0.6),  # an oscillation
        (0.5, -0.5, 1.1),  # one that dies out
        (1.5, 0.9, 1.1),  # a drift
        (3.0, 0.9, 0.6),  # an explosion
    ],
)
def test_adaptive_damping_tells_drift_from_oscillation(growth, turn, factor):
    damping = AdaptiveDamping()
    assert_allclose(damping.following(0.5, growth, turn), 0.5 * factor)
    assert damping.following(damping.smallest, 1.0, -1.0) == damping.smallest
    assert damping.following(1.0, 0.1, 1.0) == damping.first


def test_damping_from_names_and_numbers():
    assert damping_from("adaptive") == AdaptiveDamping()
    assert damping_from(1) == ConstantDamping(1.0)
    assert damping_from(ConstantDamping(0.2)) == ConstantDamping(0.2)
    for wrong in ("fast", True, None, 0, 2.0):
        with pytest.raises(ValueError, match=r"\(0, 1\]"):
            damping_from(wrong)


# What went wrong once


def test_a_jump_of_em_is_no_divergence():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 500))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    labels = np.where(np.arange(20) < 10, 1.0, -1.0)
    problem = Problem(Dense(X), labels, np.ones(20), Logistic(), SpikeAndSlab(Gaussian(1.0), 0.3))
    assert solve(problem, GAMP(), tuner=EM(tunable_names(problem))).outcome is Outcome.CONVERGED


def test_weights_that_run_away_are_a_divergence_even_if_they_stand_still():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((150, 200)) + 2
    labels = np.where(X @ rng.normal(0, 0.14, 200) + rng.standard_normal(150) > 0, 1.0, -1.0)
    solution = solve(Problem(Dense(X), labels, np.ones(150), Probit(), Gaussian(0.02)), GAMP())
    assert solution.outcome is Outcome.DIVERGED or np.abs(solution.posterior.mean).max() < 10


def test_a_breakdown_in_the_first_sweep_ends_at_once():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 40))
    X[3, 4] = 1e200
    labels = np.where(np.arange(30) < 15, 1.0, -1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        solution = solve(Problem(Dense(X), labels, np.ones(30), Logistic(), Gaussian(1.0)), GAMP())
    assert solution.outcome is Outcome.DIVERGED
    assert len(solution.history) < 20


def test_an_interrupt_in_the_first_iteration_keeps_it():
    rng = np.random.default_rng(0)
    labels = np.where(np.arange(30) < 15, 1.0, -1.0)
    problem = Problem(Dense(rng.standard_normal((30, 40))), labels, np.ones(30), Logistic(), Gaussian(1.0))

    def interrupt(iteration, line):
        raise KeyboardInterrupt

    solution = solve(problem, GAMP(), watch=interrupt)
    assert solution.outcome is Outcome.INTERRUPTED
    assert solution.state.iteration == 1
    assert np.isfinite(solution.posterior.log_evidence)
