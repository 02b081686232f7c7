"""One iteration of the default fit, taken out of it, with the problem as `SparseClassifier` assembles it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.channels import FlippedLabels, Logistic
from foldless.operators import Standardized, operator_from
from foldless.priors import Blocks
from foldless.problem import Problem
from foldless.solvers import GAMP
from foldless.tuning.em import EM, tunable_names
from foldless.tuning.fit import Columns, assemble
from foldless.tuning.start import class_means, starting_prior

# By then every array is there and caches are warm.
STEPS_BEFORE = 3


class Iteration(NamedTuple):
    """What the loop of a fit does between two looks at its convergence."""

    problem: Problem
    step: Callable[[], Any]  # GAMP: one sweep, the channel, the prior, damping
    tune: Callable[[], Any]  # EM on prior and channel


def default_iteration(X: Any, y: NDArray[np.float64]) -> Iteration:
    """For labels -1 and +1, without a generative part."""
    weight = np.ones(y.size)
    standardized = Standardized.fit(operator_from(X), weight)
    columns = Columns(X.shape[1], (), intercept=True, means_removed=False)
    problem = assemble(standardized, y, weight, columns, FlippedLabels(Logistic()))
    means = class_means(standardized, y, weight)
    assert isinstance(problem.prior, Blocks)
    prior = replace(problem.prior, base=starting_prior("spike-and-slab", means, float(y.size)))
    problem = problem.but(prior=prior)
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
