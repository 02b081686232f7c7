"""Simulators: what they say about their data is true of them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, ndtr, ndtri

from foldless.datasets import make_class_means, make_logistic


def within_noise(sample, expected):
    """The mean of a sample is what is expected, within five standard errors."""
    error = np.std(sample) / np.sqrt(np.size(sample))
    return abs(np.mean(sample) - expected) < 5 * error


# Class means


@pytest.mark.parametrize("intercept", [0.0, 1.5])
def test_the_test_error_is_that_of_new_data(intercept):
    data = make_class_means(50, 30, 5, bayes_error=0.1, random_state=0)
    rng = np.random.default_rng(1)
    coef = data.weights + 0.5 * rng.standard_normal(30)
    y = rng.choice([-1.0, 1.0], 200_000)
    scores = np.empty(y.size)
    for rows in np.array_split(np.arange(y.size), 20):
        X = np.sqrt(data.noise_var) * rng.standard_normal((rows.size, 30)) + y[rows, None] * data.weights
        scores[rows] = X @ coef + intercept
    assert within_noise(y * scores < 0, data.test_error(coef, intercept))


@pytest.mark.parametrize("bayes_error", [0.01, 0.05, 0.2])
def test_the_best_classifier_errs_as_promised(bayes_error):
    data = make_class_means(20, 100, 7, bayes_error=bayes_error, random_state=0)
    assert_allclose(data.test_error(data.weights), bayes_error, rtol=1e-12)
    assert_allclose(data.test_error(3 * data.weights), bayes_error, rtol=1e-12)
    assert_allclose(data.test_error(-data.weights), 1 - bayes_error, rtol=1e-12)
    assert data.test_error(np.zeros(100)) == 0.5
    assert_allclose(data.test_error(data.weights[np.newaxis], 1e9), 0.5)
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = data.weights + 0.3 * rng.standard_normal(100)
        assert data.test_error(other, rng.normal()) > bayes_error


def test_features_have_the_means_and_variances_they_should():
    data = make_class_means(4000, 50, 8, bayes_error=0.05, random_state=3)
    noise = data.X - data.y[:, None] * data.weights
    assert data.noise_var == 8 / ndtri(0.05) ** 2
    # Over all features at once: means have variance noise_var/n, variances 2 noise_var²/n.
    assert np.max(np.abs(noise.mean(axis=0))) < 5 * np.sqrt(data.noise_var / 4000)
    assert np.max(np.abs(noise.var(axis=0) / data.noise_var - 1)) < 5 * np.sqrt(2 / 4000)
    correlation = np.corrcoef(noise.T) - np.eye(50)
    assert np.max(np.abs(correlation)) < 5 / np.sqrt(4000)
    assert_array_equal(np.flatnonzero(data.weights), data.active)
    assert_array_equal(np.abs(data.weights[data.active]), 1.0)
    assert data.active.size == 8


@pytest.mark.parametrize(("n_samples", "negative"), [(100, 50), (101, 50)])
def test_classes_are_balanced(n_samples, negative):
    data = make_class_means(n_samples, 10, 2, random_state=0)
    assert np.count_nonzero(data.y == -1) == negative
    assert np.count_nonzero(data.y == 1) == n_samples - negative
    assert not np.array_equal(data.y, np.sort(data.y))


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.1, 20), (0.024, 5)])
def test_mislabelled_samples_are_the_ones_named(share, count):
    clean = make_class_means(200, 40, 4, random_state=5)
    data = make_class_means(200, 40, 4, mislabelled=share, random_state=5)
    assert data.mislabelled.size == count
    assert_array_equal(np.flatnonzero(clean.y != data.y), data.mislabelled)
    # Flipped after the features were drawn.
    assert_array_equal(clean.X, data.X)


# Logistic


@pytest.mark.parametrize("correlation", [0.0, 0.6, -0.5])
def test_columns_are_correlated_as_stated(correlation):
    data = make_logistic(5000, 20, 3, correlation=correlation, random_state=0)
    found = np.corrcoef(data.X.T)
    distance = np.abs(np.subtract.outer(np.arange(20), np.arange(20)))
    assert_allclose(found, float(correlation) ** distance, atol=5 / np.sqrt(5000))
    assert_allclose(data.X.var(axis=0), 1.0, atol=5 * np.sqrt(2 / 5000))
    assert np.max(np.abs(data.X.mean(axis=0))) < 5 / np.sqrt(5000)


def test_labels_follow_the_logistic_model():
    data = make_logistic(20_000, 30, 5, size=0.7, random_state=1)
    scores = data.X @ data.weights
    assert set(np.unique(data.y)) == {-1, 1}
    # Residuals are uncorrelated with the scores and with a nonlinear function of them.
    residual = (data.y > 0) - expit(scores)
    for function in (np.ones_like(scores), scores, np.abs(scores), scores**3):
        assert within_noise(residual * function, 0.0)
    assert_array_equal(np.flatnonzero(data.weights), data.active)
    assert_array_equal(np.abs(data.weights[data.active]), 0.7)
    assert data.mislabelled.size == 0


@pytest.mark.parametrize("make", [make_class_means, make_logistic])
def test_seeds(make):
    first, second, other = (make(30, 20, 4, random_state=seed) for seed in (0, 0, 1))
    from_generator = make(30, 20, 4, random_state=np.random.default_rng(0))
    for name in ("X", "y", "weights", "active", "mislabelled"):
        assert_array_equal(getattr(first, name), getattr(second, name))
        assert_array_equal(getattr(first, name), getattr(from_generator, name))
    assert not np.array_equal(first.X, other.X)
    assert not np.array_equal(make(30, 20, 4).X, make(30, 20, 4).X)


def test_the_test_error_formula_by_hand():
    data = make_class_means(20, 10, 1, bayes_error=0.05, random_state=0)
    coef = np.zeros(10)
    coef[data.active] = 2 * data.weights[data.active]
    std = 2 * np.sqrt(data.noise_var)
    assert_allclose(data.test_error(coef, 0.5), (ndtr(-2.5 / std) + ndtr(-1.5 / std)) / 2, rtol=1e-12)
