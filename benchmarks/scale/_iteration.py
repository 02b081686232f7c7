"""One iteration of the default fit, taken out of it, with the problem as `SparseClassifier` assembles it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.channels import Channel, FlippedLabels, Logistic
from foldless.operators import Standardized, operator_from
from foldless.problem import Problem
from foldless.solvers import GAMP
from foldless.tuning.class_means import class_means, starting_prior
from foldless.tuning.em import EM, tunable_names
from foldless.tuning.table import Layout, LeftOut, Table, assembled

# By then every array is there and caches are warm.
STEPS_BEFORE = 3


class Iteration(NamedTuple):
    """What the loop of a fit does between two looks at its convergence."""

    problem: Problem
    step: Callable[[], Any]  # GAMP: one sweep, the channel, the prior, damping
    tune: Callable[[], Any]  # EM on prior and channel


def starting_problem(X: Any, labels: NDArray[np.float64], channel: Channel) -> Problem:
    """As the estimators do it: standardised, with an intercept, and a prior with starting values."""
    weight = np.ones(labels.size)
    standardized = Standardized.fit(operator_from(X), weight)
    table = Table(standardized, labels, weight, LeftOut(weight), Layout(X.shape[1]))
    means = class_means(table)
    free = means.of_columns(np.flatnonzero(table.free))
    return assembled(table, channel, starting_prior("spike-and-slab", free))


def default_iteration(X: Any, y: NDArray[np.float64]) -> Iteration:
    """For labels -1 and +1, without a generative part."""
    problem = starting_problem(X, y, FlippedLabels(Logistic()))
    solver, names = GAMP(), tunable_names(problem)
    state = solver.init(problem)
    for n in range(STEPS_BEFORE):
        state = solver.step(problem, state)
        problem = EM(names).update(problem, state, n + 1)
    return Iteration(
        problem,
        lambda: solver.step(problem, state),
        lambda: EM(names).update(problem, state, STEPS_BEFORE + 1),
    )


def least_seconds(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The least time of each call; they take turns, so that a noisy moment hits all alike."""
    least = dict.fromkeys(calls, np.inf)
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            least[name] = min(least[name], time.perf_counter() - start)
    return least
