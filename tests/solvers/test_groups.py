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
from foldless.solvers.ep import left_out_groups

CLOSE = Stopping(tol=1e-6, max_iter=400)


def problem_of(X, y, prior, weight=None):
    return Problem(Dense(X), y, np.ones(y.size) if weight is None else weight, Logistic(), prior)


def dense(n_features):
    return Gaussian(5.0 / n_features)


def sparse(n_features):
    return SpikeAndSlab(Gaussian(1.0), 10.0 / n_features)


def grouped_data(n_samples, n_features, n_groups, seed):
    """Samples of a group share some of their features; a few weights, log-odds of about two."""
    rng = np.random.default_rng(seed)
    group = np.arange(n_samples) % n_groups
    factors = rng.normal(size=(n_samples, 5)) + rng.normal(size=(n_groups, 5))[group]
    X = factors @ rng.normal(size=(5, n_features)) + rng.normal(size=(n_samples, n_features))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    scores = X @ np.where(rng.random(n_features) < 10 / n_features, rng.normal(size=n_features), 0.0)
    odds = np.exp(2 * scores / scores.std())
    return X, np.where(rng.random(n_samples) < odds / (1 + odds), 1.0, -1.0), group


def log_loss(mean, var, y):
    return -np.mean(Logistic().respond(mean, var, y).log_z)


def refitted(problem, group):
    """Beliefs about every score from a fit without its group."""
    mean, var = np.empty(group.size), np.empty(group.size)
    for number in np.unique(group):
        inside = group == number
        without = problem.but(sample_weight=np.where(inside, 0.0, problem.sample_weight))
        at = solve(without, EP(), stopping=CLOSE).state.gaussian
        mean[inside], var[inside] = at.scores.mean[inside], at.scores.var[inside]
    return mean, var


@pytest.mark.parametrize("prior", [dense, sparse])
@pytest.mark.parametrize("shape", [(40, 80), (60, 20)], ids=str)
def test_groups_of_one_are_the_cavities(prior, shape):
    X, y, _ = grouped_data(*shape, 4, seed=0)
    solution = solve(problem_of(X, y, prior(shape[1])), EP(), stopping=CLOSE)
    assert solution.outcome.trustworthy
    mean, var = left_out_groups(solution.problem, solution.state, np.arange(y.size))
    assert_allclose(mean, solution.posterior.loo_mean, rtol=1e-10)
    assert_allclose(var, solution.posterior.loo_var, rtol=1e-10)
    # A group beside them changes nothing for those that are alone.
    group = np.maximum(np.arange(y.size) - 3, 0)
    together, _ = left_out_groups(solution.problem, solution.state, group)
    assert_allclose(together[4:], mean[4:], rtol=1e-10)
    assert np.all(together[:4] != mean[:4])


# Measured: log losses within 0.0001.
@pytest.mark.parametrize("shape", [(60, 120), (80, 30)], ids=str)
def test_with_a_dense_prior_groups_are_what_refits_say(shape):
    for seed in range(2):
        X, y, group = grouped_data(*shape, 6, seed)
        solution = solve(problem_of(X, y, dense(shape[1])), EP(), stopping=CLOSE)
        found = left_out_groups(solution.problem, solution.state, group)
        truth = refitted(solution.problem, group)
        assert abs(log_loss(*found, y) - log_loss(*truth, y)) < 5e-4
        assert_allclose(found[0], truth[0], atol=0.02 * np.std(truth[0]))
        assert_allclose(found[1], truth[1], rtol=0.02)


# Measured over the seeds, mean difference of log losses: -0.002, -0.004, -0.0002; without iterations 0.004,
# 0.017, -0.002.
@pytest.mark.parametrize("iterations", [2, 0])
@pytest.mark.parametrize(("shape", "n_groups"), [((100, 300), 10), ((60, 400), 6), ((120, 40), 8)], ids=str)
def test_with_a_sparse_prior_groups_are_near_refits(shape, n_groups, iterations, monkeypatch):
    monkeypatch.setattr("foldless.solvers.ep.GROUP_ITERATIONS", iterations)
    differences = []
    for seed in range(4):
        X, y, group = grouped_data(*shape, n_groups, seed)
        solution = solve(problem_of(X, y, sparse(shape[1])), EP(), stopping=CLOSE)
        found = left_out_groups(solution.problem, solution.state, group)
        truth = refitted(solution.problem, group)
        assert np.all(found[1] > 0)
        assert np.corrcoef(found[0], truth[0])[0, 1] > (0.99 if iterations else 0.97)
        differences.append(log_loss(*found, y) - log_loss(*truth, y))
    assert abs(np.mean(differences)) < (0.006 if iterations else 0.02)


def test_many_groups_are_left_out_without_iterations(monkeypatch):
    X, y, _ = grouped_data(40, 60, 4, seed=5)
    solution = solve(problem_of(X, y, sparse(60)), EP(), stopping=CLOSE)
    group = np.arange(40) // 2
    monkeypatch.setattr("foldless.solvers.ep.GROUP_ITERATIONS_IN_ALL", 19)
    quick = left_out_groups(solution.problem, solution.state, group)[0]
    monkeypatch.setattr("foldless.solvers.ep.GROUP_ITERATIONS", 0)
    assert_allclose(left_out_groups(solution.problem, solution.state, group)[0], quick, rtol=0)


def test_a_group_without_weight_is_predicted():
    X, y, group = grouped_data(40, 60, 4, seed=3)
    weight = np.where(group == 2, 0.0, 1.0)
    solution = solve(problem_of(X, y, sparse(60), weight), EP(), stopping=CLOSE)
    mean, var = left_out_groups(solution.problem, solution.state, group)
    # Nothing was there to be taken out, and so nothing answers.
    at, inside = solution.state.gaussian, group == 2
    assert_allclose(mean[inside], at.scores.mean[inside], atol=1e-5)
    assert_allclose(var[inside], at.scores.var[inside], rtol=1e-5)


def test_all_labels_of_a_class_may_be_one_group():
    X, y, _ = grouped_data(40, 60, 4, seed=4)
    solution = solve(problem_of(X, y, sparse(60)), EP(), stopping=CLOSE)
    mean, var = left_out_groups(solution.problem, solution.state, (y > 0).astype(np.intp))
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(var) & (var > 0))
    # One class alone still says in which direction it lies.
    assert np.corrcoef(mean, solution.posterior.loo_mean)[0, 1] > 0.8
