"""Leaving a group out of one fit: of single samples it is leave-one-out, of several it is what refits say."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from foldless.channels import Logistic
from foldless.operators import Dense
from foldless.priors import Gaussian, SpikeAndSlab
from foldless.problem import Problem
from foldless.solvers import EP, Stopping, solve
from foldless.solvers.groups import left_out_groups

PRIORS = {"dense": Gaussian(0.1), "sparse": SpikeAndSlab(Gaussian(1.0), 0.1)}


def problem_of(X, y, prior):
    return Problem(Dense(X), y, np.ones(y.size), Logistic(), prior)


def factor_data(n_samples, n_features):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_samples, 2)) @ rng.normal(size=(2, n_features)) + rng.normal(
        size=(n_samples, n_features)
    )
    y = np.where(X[:, 0] + X[:, 1] + rng.logistic(size=n_samples) > 0, 1.0, -1.0)
    return X, y


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
@pytest.mark.parametrize("shape", [(40, 80), (60, 20)])
def test_groups_of_one_are_the_cavities(prior, shape):
    X, y = factor_data(*shape)
    solution = solve(problem_of(X, y, prior), EP(), stopping=Stopping(tol=1e-6, max_iter=400))
    assert solution.outcome.trustworthy
    mean, var = left_out_groups(solution.problem, solution.state.sites, np.arange(y.size))
    assert_allclose(mean, solution.posterior.loo_mean, rtol=1e-6, atol=1e-6)
    assert_allclose(var, solution.posterior.loo_var, rtol=1e-6)


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_groups_are_near_refits(prior):
    X, y = factor_data(60, 90)
    group = np.arange(60) // 6
    solution = solve(problem_of(X, y, prior), EP(), stopping=Stopping(tol=1e-5, max_iter=400))
    mean, var = left_out_groups(solution.problem, solution.state.sites, group)
    assert np.all(var > 0)
    refitted = np.empty(60)
    for number in range(10):
        others = group != number
        without = solve(
            problem_of(X[others], y[others], prior), EP(), stopping=Stopping(tol=1e-4, max_iter=400)
        )
        refitted[~others] = X[~others] @ without.posterior.mean
    assert np.corrcoef(mean, refitted)[0, 1] > 0.97
    assert np.mean(np.sign(mean) == np.sign(refitted)) > 0.9
