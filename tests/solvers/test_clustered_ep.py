"""Clustered EP against enumeration, on columns that only make sense together (Gibbs: the study)."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from foldless.channels import Logistic, Probit
from foldless.operators import Dense, Standardized, WithIntercept
from foldless.priors import Blocks, Gaussian, SpikeAndSlab
from foldless.problem import Problem
from foldless.solvers import EP, Stopping, solve
from foldless.solvers.clusters import SpikesAndSlabs, equivalent_cavities
from foldless.solvers.ep import ClusteredEP
from foldless.tuning.em import EM, tunable_names
from reference.exact_probit import exact_spike_and_slab

RATE = 0.05
TIGHT = Stopping(tol=1e-9, max_iter=2000, patience=300)


def block_data(n_samples, n_features, seed, *, block, correlation, n_active, size=1.0):
    """Standardised blocks of correlated columns, some weights ±size, and probit labels."""
    rng = np.random.default_rng(seed)
    common = np.repeat(rng.standard_normal((n_samples, n_features // block)), block, axis=1)
    X = np.sqrt(correlation) * common
    X += np.sqrt(1 - correlation) * rng.standard_normal((n_samples, n_features))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    weights = np.zeros(n_features)
    weights[rng.choice(n_features, n_active, replace=False)] = size * rng.choice([-1.0, 1.0], n_active)
    return X, np.where(X @ weights + rng.standard_normal(n_samples) > 0, 1.0, -1.0), weights


def fitted(X, labels, prior, solver, channel=None, stopping=TIGHT, tuner=None):
    problem = Problem(Dense(X), labels, np.ones(labels.size), channel or Probit(), prior)
    return solve(problem, solver, stopping=stopping, tuner=tuner)


def inclusion_of(solution):
    at = solution.posterior
    return solution.problem.prior.inclusion_probability(at.cavity_mean, at.cavity_var)


# With all columns in one cluster, only labels are approximated.
@pytest.mark.parametrize(("shape", "size"), [((60, 6), 1.5), ((30, 6), 1.5), ((7, 8), 10.0)], ids=str)
@pytest.mark.parametrize("correlation", [0.9, 1.0])
def test_one_cluster_against_enumeration(shape, size, correlation):
    errors, errors_of_ep = [], []
    for seed in range(6):
        X, labels, _ = block_data(
            *shape, seed, block=shape[1], correlation=correlation, n_active=1, size=size
        )
        prior = SpikeAndSlab(Gaussian(1.0), RATE)
        exact = exact_spike_and_slab(X, labels, RATE, 1.0, n_draws=2**8)
        # Where labels speak for no column, there is no seed and no cluster.
        if exact.inclusion.max() < 2.5 * RATE:
            continue
        solution, plain = fitted(X, labels, prior, ClusteredEP()), fitted(X, labels, prior, EP())
        assert solution.outcome.trustworthy
        assert [cluster.columns.size for cluster in solution.state.clusters] == [shape[1]]
        errors.append(
            [
                np.abs(inclusion_of(solution) - exact.inclusion).max(),
                np.abs(solution.posterior.mean - exact.mean).max(),
                abs(solution.posterior.log_evidence - exact.log_evidence),
            ]
        )
        errors_of_ep.append(np.abs(inclusion_of(plain) - exact.inclusion).max())
    assert len(errors) >= 2
    # Measured: inclusion 0.026, means 0.047, log evidence 0.136; of seven labels the evidence is vaguest.
    assert np.all(np.max(errors, axis=0) < [0.03, 0.055, 0.16])
    # Of EP: 0.14.
    if shape[0] > shape[1]:
        assert np.mean(errors, axis=0)[0] < 0.5 * np.mean(errors_of_ep)


def test_without_correlation_it_is_ep():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 40))
    labels = np.where(X[:, 0] - X[:, 1] + rng.standard_normal(200) > 0, 1.0, -1.0)
    prior = SpikeAndSlab(Gaussian(1.0), 0.1)
    clustered, plain = fitted(X, labels, prior, ClusteredEP()), fitted(X, labels, prior, EP())
    assert clustered.state.clusters == ()
    assert_allclose(clustered.posterior.mean, plain.posterior.mean, atol=1e-6)
    assert_allclose(clustered.posterior.log_evidence, plain.posterior.log_evidence, atol=1e-5)


@pytest.mark.parametrize("shape", [(60, 40), (40, 60)], ids=str)
def test_duplicates_share(shape):
    X, labels, _ = block_data(*shape, 3, block=4, correlation=1.0, n_active=2, size=1.5)
    solution = fitted(X, labels, SpikeAndSlab(Gaussian(1.0), 0.05), ClusteredEP())
    assert solution.outcome.trustworthy
    inclusion = inclusion_of(solution)
    for cluster in solution.state.clusters:
        assert cluster.columns.size == 4
        assert_allclose(inclusion[cluster.columns], inclusion[cluster.columns[0]], rtol=1e-4)


@pytest.mark.parametrize("shape", [(60, 40), (40, 60)], ids=str)
def test_the_order_of_columns_does_not_matter(shape):
    X, labels, _ = block_data(*shape, 4, block=4, correlation=0.9, n_active=3)
    prior = SpikeAndSlab(Gaussian(1.0), 0.05)
    order = np.random.default_rng(0).permutation(shape[1])
    found = fitted(X, labels, prior, ClusteredEP())
    turned = fitted(X[:, order], labels, prior, ClusteredEP())
    assert len(found.state.clusters) > 0
    assert_allclose(inclusion_of(turned), inclusion_of(found)[order], atol=1e-4)
    assert_allclose(turned.posterior.mean, found.posterior.mean[order], atol=1e-4)


@pytest.mark.study
def test_two_clusters_against_enumeration():
    errors, errors_of_ep = [], []
    for seed, shape in enumerate([(60, 10), (40, 10), (9, 10)]):
        X, labels, _ = block_data(*shape, seed, block=5, correlation=0.9, n_active=2, size=2.0)
        prior = SpikeAndSlab(Gaussian(1.0), RATE)
        exact = exact_spike_and_slab(X, labels, RATE, 1.0, n_draws=2**7)
        solution, plain = fitted(X, labels, prior, ClusteredEP()), fitted(X, labels, prior, EP())
        assert solution.outcome.trustworthy
        errors.append(np.abs(inclusion_of(solution) - exact.inclusion).max())
        errors_of_ep.append(np.abs(inclusion_of(plain) - exact.inclusion).max())
    # Measured: 0.039; of EP 0.178.
    assert max(errors) < 0.05
    assert np.mean(errors) < 0.6 * np.mean(errors_of_ep)


@pytest.mark.study
def test_em_stays_sane_on_strong_blocks():
    """Where sites of single weights let the prior's parameters run away."""
    for seed in range(2):
        X, labels, _ = block_data(150, 300, seed, block=10, correlation=0.9, n_active=8, size=1.5)
        operator = WithIntercept(Standardized.fit(Dense(X)))
        prior = Blocks(SpikeAndSlab(Gaussian(0.3), 0.08), others=((slice(-1, None), Gaussian(100.0)),))
        problem = Problem(operator, labels, np.ones(150), Logistic(), prior)
        tuner = EM(tunable_names(problem))
        solution = solve(problem, ClusteredEP(), tuner=tuner, stopping=Stopping(tol=1e-3, max_iter=300))
        assert solution.outcome.trustworthy
        tuned = solution.problem.prior.base
        assert 0.005 < tuned.inclusion < 0.08
        assert 0.2 < tuned.slab.variance < 20.0
        # No data are more probable than certain.
        assert solution.posterior.log_evidence < 0.0


def test_equivalent_cavities_say_what_the_cluster_says():
    rng = np.random.default_rng(6)
    n = 2000
    prior = SpikesAndSlabs(
        rng.uniform(0.001, 0.5, n), np.zeros(n), 10.0 ** rng.uniform(-2, 2, n), np.zeros(n), np.zeros(n)
    )
    # Moments that some cavity has.
    r, tau = rng.normal(0, 3, n) * np.sqrt(prior.slab_var), 10.0 ** rng.uniform(-3, 3, n) * prior.slab_var
    for k in range(0, n, 7):
        one = SpikesAndSlabs(*(values[[k]] for values in prior))
        single = SpikeAndSlab(Gaussian(float(prior.slab_var[k])), float(prior.inclusion[k]))
        inclusion = single.inclusion_probability(r[[k]], tau[[k]])
        tilted = single.tilted(r[[k]], tau[[k]])
        mean, var = equivalent_cavities(one, inclusion, tilted.mean, tilted.var)
        again = single.tilted(mean, var)
        assert_allclose(single.inclusion_probability(mean, var), inclusion, rtol=1e-5, atol=1e-12)
        if 1e-9 < inclusion[0] < 1 - 1e-9:
            assert_allclose(again.var + again.mean**2, tilted.var + tilted.mean**2, rtol=1e-4)
            assert_allclose(again.mean, tilted.mean, rtol=1e-3, atol=1e-6)


def test_equivalent_cavities_keep_the_inclusion_whatever_the_size():
    inclusion, second = np.meshgrid([1e-8, 0.01, 0.3, 0.9, 1 - 1e-8], [1e-6, 0.01, 1.0, 30.0])
    inclusion, second = inclusion.ravel(), second.ravel() * inclusion.ravel()
    n = inclusion.size
    single = SpikeAndSlab(Gaussian(1.0), 0.05)
    prior = SpikesAndSlabs(np.full(n, 0.05), np.zeros(n), np.ones(n), np.zeros(n), np.zeros(n))
    mean, var = equivalent_cavities(prior, inclusion, np.zeros(n), second)
    assert np.all(var > 0)
    assert np.all(np.isfinite(mean))
    assert_allclose(single.inclusion_probability(mean, var), inclusion, rtol=1e-4, atol=1e-9)


def adversarial():
    rng = np.random.default_rng(0)
    for shape in ((4, 30), (20, 50), (50, 12)):
        X = rng.standard_normal(shape)
        noisy = rng.choice([-1.0, 1.0], shape[0])
        noisy[:2] = [-1.0, 1.0]
        yield np.outer(X[:, 0], X[0]), noisy
        yield np.repeat(X[:, :3], -(-shape[1] // 3), axis=1), noisy
        yield X * np.logspace(-6, 6, shape[1]), noisy
        yield rng.standard_cauchy(shape) ** 3, noisy
        yield X, np.where(X[:, 0] > np.median(X[:, 0]), 1.0, -1.0)
        yield np.repeat(X[:, :2], -(-shape[1] // 2), axis=1), np.where(X[:, 0] > 0, 1.0, -1.0)
        yield np.zeros(shape), noisy


@pytest.mark.parametrize(
    "prior", [SpikeAndSlab(Gaussian(1.0), 0.1), SpikeAndSlab(Gaussian(50.0), 0.02)], ids=str
)
def test_every_matrix_ends_in_an_outcome_with_finite_numbers(prior):
    for X, labels in adversarial():
        operator = WithIntercept(Standardized.fit(Dense(X)))
        blocks = Blocks(prior, others=((slice(-1, None), Gaussian(100.0)),))
        problem = Problem(operator, labels, np.ones(labels.size), Logistic(), blocks)
        solution = solve(problem, ClusteredEP(), stopping=Stopping(max_iter=25))
        for part in ("mean", "var", "cavity_mean", "cavity_var", "loo_mean", "loo_var"):
            assert np.all(np.isfinite(getattr(solution.posterior, part))), part
        assert np.isfinite(solution.posterior.log_evidence)


def test_a_step_changes_nothing_it_was_given():
    X, labels, _ = block_data(40, 60, 7, block=4, correlation=0.9, n_active=3)
    problem = Problem(Dense(X), labels, np.ones(40), Probit(), SpikeAndSlab(Gaussian(1.0), 0.1))
    solver = ClusteredEP()
    state = solver.init(problem)
    for _ in range(5):
        state = solver.step(problem, state)
    assert state.clusters
    before = [np.copy(values) for values in state.sites]
    before += [np.copy(state.cavity_mean), np.copy(state.cluster_sites[0].precision)]
    once, twice = solver.step(problem, state), solver.step(problem, state)
    assert_allclose(once.gaussian.mean, twice.gaussian.mean, rtol=0, atol=0)
    after = [*state.sites, state.cavity_mean, state.cluster_sites[0].precision]
    for a, b in zip(before, after, strict=True):
        assert_allclose(a, b, rtol=0, atol=0)
