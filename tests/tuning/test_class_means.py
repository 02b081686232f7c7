"""Class means and starting values: against their formulas, and against the truth of simulated data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from foldless.channels import Logistic
from foldless.datasets import make_class_means
from foldless.priors import ElasticNet, Gaussian, GaussianMixture, Laplace, SpikeAndSlab
from foldless.tuning.class_means import (
    LEAST_SIGNAL_SHARE,
    SLAB_VARIANCE_RANGE,
    class_means,
    starting_count,
    starting_prior,
)
from foldless.tuning.table import assembled
from reference.planned import table_of


def means_of(X, labels, weight=None):
    table = table_of(X, labels, weight)
    return class_means(table)


# How many


@pytest.mark.parametrize(
    ("n_samples", "n_features", "count"),
    [(300, 30_000, 30), (200, 6000, 25), (62, 2000, 7), (1, 1, 1), (1, 10, 1), (5, 2, 2), (1000, 10, 10)],
)
def test_counts(n_samples, n_features, count):
    assert starting_count(n_features, n_samples) == count


@given(st.integers(1, 3000), st.floats(0.5, 2000))
@example(2, 0.5)
def test_the_count_is_the_largest_that_labels_encode(n_features, n_samples):
    count = starting_count(n_features, n_samples)
    assert 1 <= count <= n_features

    def bits(k):
        return k * np.log2(n_features / k)

    if bits(1) > n_samples:  # one is the least, and of two features both take no bits
        assert count == 1
        return
    assert np.all(bits(np.arange(1, count + 1)) <= n_samples)
    if count < n_features:
        assert bits(count + 1) > n_samples


@given(st.integers(1, 2000), st.floats(0.5, 500), st.floats(0.0, 500))
def test_more_labels_never_mean_fewer_features(n_features, n_samples, more):
    assert starting_count(n_features, n_samples) <= starting_count(n_features, n_samples + more)


# Class means


@pytest.mark.parametrize("weighted", [False, True])
def test_class_means_against_their_definitions(weighted):
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(40) < 0.3, 1.0, -1.0)
    X = rng.normal(3.0, 2.0, (40, 7)) + labels[:, None] * np.linspace(0, 2, 7)
    weight = rng.uniform(0.0, 3.0, 40) if weighted else np.ones(40)
    Z = (X - np.average(X, axis=0, weights=weight)) / np.sqrt(
        np.average((X - np.average(X, axis=0, weights=weight)) ** 2, axis=0, weights=weight)
    )
    plus, minus = labels > 0, labels < 0
    centers = {
        sign: np.average(Z[rows], axis=0, weights=weight[rows]) for sign, rows in ((1, plus), (-1, minus))
    }
    own_center = np.where(plus[:, None], centers[1], centers[-1])
    n_plus, n_minus = weight[plus].sum(), weight[minus].sum()

    means = means_of(X, labels, weight)
    assert_allclose(means.contrast, centers[1] - centers[-1], atol=1e-12)
    assert_allclose(means.within_var, np.average((Z - own_center) ** 2, axis=0, weights=weight), atol=1e-12)
    assert_allclose(means.noise, (n_plus + n_minus) / (n_plus * n_minus), rtol=1e-12)
    assert_allclose(means.label_mean, (n_plus - n_minus) / (n_plus + n_minus), atol=1e-14)


def test_class_means_see_through_the_assembly():
    """Pseudo-samples of mean removal and the intercept add columns and rows but change no feature's means."""
    rng = np.random.default_rng(1)
    labels = np.where(rng.random(30) < 0.4, 1.0, -1.0)
    X = rng.normal(1.0, 1.0, (30, 12)) + 0.5 * rng.standard_normal((30, 1))
    weight = rng.uniform(0.5, 2.0, 30)
    plain = means_of(X, labels, weight)
    for intercept in (False, True):
        for mean_removal in (False, True):
            table = table_of(X, labels, weight, intercept=intercept, mean_removal=mean_removal)
            problem = assembled(table, Logistic())
            means = plain.padded(problem.operator.shape[1])
            assert means.within_var.shape == (problem.operator.shape[1],)
            assert_allclose(means.within_var[:12], plain.within_var, atol=1e-12)
            assert_allclose(means.within_var[12:], 1.0)
            assert_allclose(means.class_weight, plain.class_weight, rtol=1e-12)
            assert_allclose(problem.label_weight[problem.labels > 0].sum(), plain.class_weight[1])
            assert_allclose(problem.label_weight.sum(), plain.class_weight.sum())


def test_integer_weights_are_repeated_rows():
    rng = np.random.default_rng(2)
    labels = np.where(np.arange(25) < 10, 1.0, -1.0)
    X = rng.standard_normal((25, 6))
    weight = rng.integers(1, 4, 25).astype(float)
    rows = np.repeat(np.arange(25), weight.astype(int))
    a, b = means_of(X, labels, weight), means_of(X[rows], labels[rows])
    assert_allclose(a.contrast, b.contrast, atol=1e-12)
    assert_allclose(a.within_var, b.within_var, atol=1e-12)
    assert_allclose([*a.noise, a.label_mean], [*b.noise, b.label_mean], rtol=1e-12)


def test_a_feature_that_is_the_label_keeps_some_variance():
    labels = np.where(np.arange(20) < 10, 1.0, -1.0)
    means = means_of(np.column_stack([labels, np.arange(20.0)]), labels)
    assert_allclose(means.contrast[0], 2.0)
    assert means.within_var[0] == 1 / 20


# How large


@pytest.mark.parametrize("seed", range(4))
def test_the_slab_variance_is_near_the_truth(seed):
    """x | y ~ N(y w, v), w = ±1, has log-odds weights 2 √(1 + v)/v per standard deviation."""
    data = make_class_means(200, 1000, 10, bayes_error=0.05, random_state=seed)
    means = means_of(data.X, data.y.astype(float))
    v = data.noise_var
    truth = 4 * (1 + v) / v**2
    found = means.starting_slab_variance(n_active=10)
    # |difference|² sums squares of normal variables of variance s² = v / (1 + v) / 50 around δ = 2/√(1 + v).
    s_square = v / (1 + v) * means.noise[0]
    delta_square = 4 / (1 + v)
    std = np.sqrt(1000 * 2 * s_square**2 + 10 * 4 * delta_square * s_square)
    relative_std = std / (10 * delta_square)
    assert relative_std < 0.2
    assert abs(found / truth - 1) < 5 * relative_std


@pytest.mark.parametrize("seed", range(3))
def test_noise_gives_a_small_slab_variance_and_not_a_negative_one(seed):
    rng = np.random.default_rng(seed)
    labels = np.where(np.arange(20) < 10, 1.0, -1.0)
    means = means_of(rng.standard_normal((20, 500)), labels)
    variance = means.starting_slab_variance(n_active=2)
    assert SLAB_VARIANCE_RANGE[0] <= variance <= SLAB_VARIANCE_RANGE[1]
    noise = np.sum(means.within_var) * means.noise[0]
    assert variance >= min(LEAST_SIGNAL_SHARE * noise / 2, SLAB_VARIANCE_RANGE[1]) * 0.999


# Priors


@pytest.mark.parametrize("name", ["spike-and-slab", "gaussian", "laplace", "elastic-net"])
def test_every_prior_starts_with_the_same_variance_per_weight(name):
    data = make_class_means(200, 1000, 10, random_state=0)
    means = means_of(data.X, data.y.astype(float))
    prior = starting_prior(name, means)
    inclusion = starting_count(1000, 200) / 1000
    expected = inclusion * means.starting_slab_variance(starting_count(1000, 200))
    assert isinstance(prior, SpikeAndSlab | Gaussian | Laplace | ElasticNet)
    # The elastic net shares the shrinkage between its parts, and is near rather than equal.
    assert_allclose(prior.moments()[1], expected, rtol=0.5 if name == "elastic-net" else 1e-12)


def test_a_start_is_never_denser_than_half():
    rng = np.random.default_rng(0)
    labels = np.where(np.arange(100) < 50, 1.0, -1.0)
    means = means_of(rng.standard_normal((100, 4)), labels)
    prior = starting_prior("spike-and-slab", means)
    assert isinstance(prior, SpikeAndSlab)
    assert prior.inclusion == 0.5


def test_a_mixture_starts_with_a_narrow_and_a_wide_part():
    data = make_class_means(200, 1000, 10, random_state=0)
    means = means_of(data.X, data.y.astype(float))
    prior = starting_prior("gaussian-mixture", means)
    assert isinstance(prior, GaussianMixture)
    assert prior.variances[0] < 0.1 * prior.variances[1]
    assert_allclose(sum(prior.weights), 1.0)
