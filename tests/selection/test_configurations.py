"""Configurations of spikes and slabs against brute force, where a Gaussian likelihood makes all exact."""

from __future__ import annotations

from importlib import import_module
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from foldless.priors import Blocks, Gaussian, Laplace, OverBackground, Ridged, SpikeAndSlab
from foldless.selection.clusters import (
    SpikesAndSlabs,
    all_configurations,
    spikes_and_slabs,
)
from foldless.solvers.gaussian_layer import JointCavity

# The package has a function of the same name.
module = import_module("foldless.selection.clusters")


def linear_case(n_weights, seed, *, n_samples=25, slab_means=True):
    """A regression with unit noise: y, X, priors. Some columns are duplicates or nearly so."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_weights))
    if n_weights > 2:
        X[:, 1] = X[:, 0]
        X[:, 2] = X[:, 0] + 0.3 * rng.standard_normal(n_samples)
    active = rng.random(n_weights) < 0.4
    y = X @ np.where(active, rng.normal(0, 0.7, n_weights), 0.0) + rng.standard_normal(n_samples)
    prior = SpikesAndSlabs(
        inclusion=rng.uniform(0.03, 0.5, n_weights),
        slab_mean=rng.normal(0, 0.5, n_weights) if slab_means else np.zeros(n_weights),
        slab_var=rng.uniform(0.3, 2.0, n_weights),
        ridge=np.zeros(n_weights),
        background=np.zeros(n_weights),
    )
    return X, y, prior


def priors_of(n_weights, inclusion, slab_var=1.0):
    """Slabs about zero, the same for all weights."""
    none = np.zeros(n_weights)
    return SpikesAndSlabs(none + inclusion, none, none + slab_var, none, none)


def configurations(cavity, prior, *options, **more_options):
    return all_configurations([cavity], [prior], *options, **more_options)[0]


def cavity_of(X, y):
    return JointCavity(X.T @ X, X.T @ y)


def brute_force(X, y, prior):
    """P(support | y) for every support, and the supports."""
    n_samples, n_weights = X.shape
    supports, log_p = [], []
    for bits in product([False, True], repeat=n_weights):
        s = np.array(bits)
        slab, mean = prior.slab_var[s], prior.slab_mean[s]
        covariance = np.eye(n_samples) + (X[:, s] * slab) @ X[:, s].T
        log_prior = np.sum(np.where(s, np.log(prior.inclusion), np.log1p(-prior.inclusion)))
        log_p.append(log_prior + multivariate_normal.logpdf(y, X[:, s] @ mean, covariance))
        supports.append(s)
    return np.exp(log_p - logsumexp(log_p)), np.array(supports)


@pytest.mark.parametrize("n_weights", range(1, 8))
def test_against_brute_force(n_weights):
    for seed in range(4):
        X, y, prior = linear_case(n_weights, seed)
        found = configurations(cavity_of(X, y), prior, negligible=0.0)
        p, supports = brute_force(X, y, prior)
        assert found.probability.sum() == pytest.approx(1.0, abs=1e-12)
        assert found.neglected == 0.0
        visited = {tuple(s): q for s, q in zip(found.members.tolist(), found.probability, strict=True)}
        assert len(visited) == 2**n_weights
        for s, q in zip(supports.tolist(), p, strict=True):
            assert visited[tuple(s)] == pytest.approx(q, rel=1e-8, abs=1e-12)
        assert_allclose(found.inclusion, p @ supports, atol=1e-10)
        assert found.nothing == pytest.approx(p[0], rel=1e-8)


def test_a_ridge_is_part_of_the_prior():
    X, y, prior = linear_case(5, 0, slab_means=False)
    ridge = np.array([0.0, 3.0, 0.5, 10.0, 1.0])
    found = configurations(cavity_of(X, y), prior._replace(ridge=ridge), negligible=0.0)
    # The same as pseudo-observations of zero.
    p, supports = brute_force(np.vstack([X, np.diag(np.sqrt(ridge))]), np.append(y, np.zeros(5)), prior)
    assert_allclose(found.inclusion, p @ supports, atol=1e-10)


def test_over_a_background_a_weight_is_in_by_what_is_beyond_it():
    for seed in range(4):
        X, y, prior = linear_case(5, seed)
        background = np.array([0.3, 0.02, 1.0, 0.0, 5.0])
        found = configurations(cavity_of(X, y), prior._replace(background=background), negligible=0.0)
        # The same as noise with the covariance that the background makes of scores.
        noise = np.linalg.cholesky(np.eye(y.size) + (X * background) @ X.T)
        p, supports = brute_force(np.linalg.solve(noise, X), np.linalg.solve(noise, y), prior)
        assert_allclose(found.inclusion, p @ supports, atol=1e-10)


def test_levels_end_where_little_is_left():
    X, y, prior = linear_case(10, 1)
    prior = prior._replace(inclusion=np.full(10, 0.02))
    exact = configurations(cavity_of(X, y), prior, negligible=0.0)
    rough = configurations(cavity_of(X, y), prior, negligible=1e-2)
    assert rough.probability.size < exact.probability.size / 2
    missed = 1.0 - np.sum(exact.probability[: rough.probability.size])
    assert 0.1 * missed < rough.neglected < 10 * missed + 1e-12
    assert_allclose(rough.inclusion, exact.inclusion, atol=3 * missed)


def test_large_clusters_visit_the_most_probable(monkeypatch):
    X, y, prior = linear_case(13, 2, n_samples=40)
    prior = prior._replace(inclusion=np.full(13, 0.1))
    exact = configurations(cavity_of(X, y), prior, negligible=0.0)
    assert exact.probability.size == 2**13
    monkeypatch.setattr(module, "LARGEST_WHOLE_LEVEL", 100)
    monkeypatch.setattr(module, "MOST_PARENTS", 60)
    pruned = configurations(cavity_of(X, y), prior)
    assert pruned.probability.size < 2**13 / 2
    # No configuration is visited twice.
    assert len({tuple(row) for row in pruned.members.tolist()}) == pruned.probability.size
    by_members = {tuple(s): q for s, q in zip(exact.members.tolist(), exact.probability, strict=True)}
    missed = 1.0 - sum(by_members[tuple(s)] for s in pruned.members.tolist())
    assert 0.0 < missed < 0.1
    assert pruned.neglected == pytest.approx(missed, abs=0.03)
    assert_allclose(pruned.inclusion, exact.inclusion, atol=0.03)


def test_duplicates_share_and_are_certain_together():
    rng = np.random.default_rng(3)
    column = rng.standard_normal(60)
    X = np.column_stack([column] * 10)
    y = column + rng.standard_normal(60)
    prior = priors_of(10, 0.02)
    found = configurations(cavity_of(X, y), prior)
    assert found.nothing < 1e-6
    assert_allclose(found.inclusion, found.inclusion[0], rtol=1e-8)
    assert 0.1 < found.inclusion[0] < 0.13


def test_two_that_are_improbable_alone_and_certain_together():
    rng = np.random.default_rng(4)
    common, difference = rng.standard_normal((2, 100))
    X = np.column_stack([common + 0.1 * difference, common - 0.1 * difference, rng.standard_normal(100)])
    y = X @ np.array([5.0, -5.0, 0.0]) + 0.3 * rng.standard_normal(100)
    prior = priors_of(3, 0.01, slab_var=4.0)
    found = configurations(JointCavity(X.T @ X / 0.09, X.T @ y / 0.09), prior)
    assert np.all(found.inclusion[:2] > 0.99)
    of_one = found.probability[found.members.sum(axis=1) == 1]
    assert np.all(of_one < 1e-6)


@pytest.mark.parametrize(("scale", "digits"), [(1e-12, 10), (1.0, 10), (1e5, 6), (1e8, 2), (1e14, 1)])
def test_duplicates_under_extreme_cavities(scale, digits):
    """Four equal columns of weight one in all: what each has is a small difference of large numbers."""
    ones = np.ones((4, 4))
    prior = priors_of(4, 0.1)
    found = configurations(JointCavity(scale * ones, scale * ones[0]), prior, negligible=0.0)
    # By the number of weights that are in: equal columns of variance v are one of variance s v.
    sizes = np.arange(5)
    log_p = 0.5 * sizes * scale / (1 / scale + sizes) - 0.5 * np.log1p(sizes * scale)
    p = np.exp(log_p - log_p.max()) * [0.9**4, 4 * 0.1 * 0.9**3, 6 * 0.01 * 0.81, 4 * 0.001 * 0.9, 1e-4]
    p /= p.sum()
    by_size = np.bincount(found.members.sum(axis=1), found.probability)
    assert_allclose(by_size, p, atol=10.0**-digits)
    assert_allclose(found.inclusion, p @ sizes / 4, atol=10.0**-digits)


def test_of_directions_of_negative_precision_nothing_is_known():
    known = np.array([1.0, 1.0]) / np.sqrt(2)
    unknown = np.array([1.0, -1.0]) / np.sqrt(2)
    prior = priors_of(2, 0.2)
    precision = 20.0 * np.outer(known, known)
    proper = configurations(JointCavity(precision, 15.0 * known), prior)
    improper = configurations(
        JointCavity(precision - 4.0 * np.outer(unknown, unknown), 15.0 * known + 3.0 * unknown), prior
    )
    assert_allclose(improper.inclusion, proper.inclusion, rtol=1e-8)


def test_the_order_of_weights_does_not_matter():
    X, y, prior = linear_case(8, 5)
    order = np.random.default_rng(0).permutation(8)
    found = configurations(cavity_of(X, y), prior)
    turned = configurations(cavity_of(X[:, order], y), prior.at(order))
    assert_allclose(turned.inclusion, found.inclusion[order], atol=1e-10)


def test_many_clusters_are_visited_as_one_by_one():
    cases = [linear_case(k, seed) for seed, k in enumerate([3, 5, 3, 1, 5, 5])]
    cavities, priors = [cavity_of(X, y) for X, y, _ in cases], [prior for *_, prior in cases]
    for together, cavity, prior in zip(
        all_configurations(cavities, priors, 0.0), cavities, priors, strict=True
    ):
        alone = configurations(cavity, prior, 0.0)
        assert_allclose(together.probability, alone.probability, atol=1e-12)
        assert_allclose(together.inclusion, alone.inclusion, atol=1e-12)
    assert all_configurations([], []) == []


def test_too_many_weights():
    prior = priors_of(63, 0.1)
    with pytest.raises(ValueError, match="at most 62 weights"):
        configurations(JointCavity(np.eye(63), np.zeros(63)), prior)


def test_priors_of_columns():
    base = SpikeAndSlab(Gaussian(2.0, mean=0.5), 0.1)
    ridge = np.arange(6.0)
    prior = Blocks(
        Ridged(base, ridge),
        others=((slice(-1, None), Gaussian(100.0)), ([0, 1], SpikeAndSlab(Laplace(1.0), 0.3))),
    )
    found, spiked = spikes_and_slabs(prior, 6)
    assert spiked.tolist() == [True, True, True, True, True, False]
    assert_allclose(found.inclusion[2:5], 0.1)
    assert_allclose(found.slab_mean[2:5], 0.5)
    assert_allclose(found.slab_var[2:5], 2.0)
    assert_allclose(found.ridge[2:5], ridge[2:5])
    assert_allclose(found.background[:5], 0.0)
    assert_allclose(found.inclusion[:2], 0.3)
    assert_allclose(found.slab_var[:2], Laplace(1.0).moments()[1])
    assert_allclose(found.ridge[:2], 0.0)
    found, spiked = spikes_and_slabs(Blocks(OverBackground(base, 0.2), others=prior.others), 6)
    assert spiked.tolist() == [True, True, True, True, True, False]
    assert_allclose(found.background[:5], [0.0, 0.0, 0.2, 0.2, 0.2])
    assert not spikes_and_slabs(Gaussian(), 3)[1].any()
