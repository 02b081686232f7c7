"""The rate by leave-one-out: few looks, the same choice as looking everywhere, no early despair."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from foldless.datasets import make_class_means
from foldless.operators import Standardized, operator_from
from foldless.solvers.smlr import L1, Columns, Labels, Regression, Ridge, Stop, path
from foldless.solvers.smlr.newton_loo import NewtonLOO
from foldless.solvers.smlr.rate import WORTH_REFITS, Task, by_leave_one_out, rate_grid


def problem_of(X, y, *, intercept=True, standardized=True):
    code = np.unique(y, return_inverse=True)[1]
    operator = operator_from(X)
    if standardized:
        operator = Standardized.fit(operator, np.ones(code.size))
    return Regression(operator, Labels.of(code, int(code.max()) + 1, np.ones(code.size)), intercept)


@pytest.mark.parametrize("penalty", [L1, Ridge])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_few_looks_find_what_looking_everywhere_finds(penalty, seed):
    data = make_class_means(n_samples=60, n_features=40, n_active=5, random_state=seed)
    problem = problem_of(data.X, data.y)
    ones = np.ones(60)
    rates = rate_grid(problem, penalty, 40)
    tuned = by_leave_one_out(Task(problem, penalty, Stop()), rates, ones)
    columns = Columns(problem.operator)
    every = [
        NewtonLOO(problem, ones, columns).of(penalty(f.rate), f).log_loss
        for f in path(problem, penalty, rates)
    ]
    assert tuned.rates.size <= 20
    # In nats per sample, where nothing learnt costs 0.69; closer than WORTH_REFITS rates are not told apart.
    assert tuned.loo.log_loss <= np.nanmin(every) / (1 - WORTH_REFITS) + 0.005


def test_a_rise_before_any_gain_ends_nothing():
    # As with crabs: size, the direction of nearly all variance, says nothing, and wide kernels begin with it.
    rng = np.random.default_rng(0)
    size, shape = rng.normal(size=(2, 60, 1))
    X = size * np.ones(4) + 0.2 * shape * np.array([1.0, -1.0, 1.0, -1.0])
    y = shape[:, 0] > np.median(shape)
    problem = problem_of(rbf_kernel(X, gamma=0.01), y, intercept=False, standardized=False)
    ones = np.ones(60)
    tuned = by_leave_one_out(Task(problem, L1, Stop()), rate_grid(problem, L1, 10), ones)
    order = np.argsort(-tuned.rates)
    assert tuned.criterion[order][1] > tuned.criterion[order][0]
    assert tuned.criterion.min() < 0.5 * np.log(2)


def test_noise_is_left_alone():
    rng = np.random.default_rng(1)
    problem = problem_of(rng.normal(size=(50, 200)), np.arange(50) % 2)
    ones = np.ones(50)
    tuned = by_leave_one_out(Task(problem, L1, Stop()), rate_grid(problem, L1, 30), ones)
    assert tuned.criterion.min() > 0.9 * np.log(2)
    assert tuned.fitted.rows.size <= 5


@pytest.mark.parametrize("seed", [0, 2])
def test_steps_that_promise_too_much_are_not_believed(seed):
    # As with crabs again: at small rates of wide kernels a step says little of what a refit does.
    rng = np.random.default_rng(seed)
    size, shape = rng.normal(size=(2, 60, 1))
    X = size * np.ones(4) + 0.2 * (shape + 0.15 * rng.normal(size=(60, 1))) * np.array([1.0, -1.0, 1.0, -1.0])
    y = shape[:, 0] > np.median(shape)
    problem = problem_of(rbf_kernel(X, gamma=0.001), y, intercept=False, standardized=False)
    ones = np.ones(60)
    task, rates = Task(problem, L1, Stop()), rate_grid(problem, L1, 10)
    tuned = by_leave_one_out(task, rates, ones)
    looked = [task.at(rate) for rate in tuned.rates]
    true = [NewtonLOO(problem, ones).of(L1(f.rate), f).log_loss for f in looked]
    columns = Columns(problem.operator)
    promised = [NewtonLOO(problem, ones, columns).by_steps(L1(f.rate), f).loo.log_loss for f in looked]
    by_steps, chosen = int(np.argmin(promised)), int(np.flatnonzero(tuned.rates == tuned.fitted.rate)[0])
    assert true[by_steps] > 1.5 * min(true), "there must be something to be mistaken about"
    assert true[chosen] <= min(true) / (1 - WORTH_REFITS)
