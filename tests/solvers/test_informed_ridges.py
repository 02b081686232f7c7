"""Informed ridges: EP in kernels is EP, and leave-one-out is what refits would have said."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import log_expit

from foldless.channels import FlippedLabels, Logistic
from foldless.operators import Dense, WithIntercept
from foldless.priors import Blocks, Gaussian
from foldless.problem import Problem
from foldless.solvers import EP, Stopping, solve
from foldless.solvers.gaussian_layer import Tiles
from foldless.solvers.informed_ridges import (
    Base,
    Contrasts,
    Penalised,
    Ridge,
    fit_informed,
    informed_weights,
)
from foldless.solvers.label_ep import kernel_ep


def factor_data(n_samples=40, n_features=300, seed=0):
    """Columns with three common factors, of which one carries the classes."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(n_samples, 3))
    X = factors @ rng.normal(size=(3, n_features)) + 1.5 * rng.normal(size=(n_samples, n_features))
    y = np.where(factors[:, 0] + 0.7 * rng.normal(size=n_samples) > 0, 1.0, -1.0)
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def one_by_one(y, weight=None, group=None):
    weight = np.ones(y.size) if weight is None else weight
    group = np.arange(y.size) if group is None else group
    return Contrasts(y, weight, group)


def base_of(y, variance=1.0):
    log_odds = np.log(np.sum(y > 0) / np.sum(y < 0))
    return Base(np.ones((y.size, 1)), np.array([log_odds]), np.array([variance]))


def columns_of(X):
    return Penalised(list(Dense(X).dense_columns(tile_bytes=X.shape[0] * 8 * 70)), np.ones(X.shape[1], bool))


@pytest.mark.parametrize("kept", [True, False])
def test_tiles_of_another_solver_serve_without_what_is_not_penalised(kept):
    X, y = factor_data(n_features=50)
    tiles = Tiles(WithIntercept(Dense(X)), keeps=kept)
    free = np.ones(51, dtype=bool)
    free[[7, 50]] = False
    columns, apart = Penalised(tiles, free), np.delete(X, 7, axis=1)
    for _ in range(2):
        visited = list(columns)
        assert_allclose(np.hstack([tile for _, tile in visited]), apart)
    # An intercept at the end is left out of a view.
    assert np.shares_memory(next(iter(Penalised(tiles, np.arange(51) < 50)))[1], next(iter(tiles))[1]) == kept
    found, alone = (
        fit_informed(each, base_of(y), one_by_one(y), RIDGES[:6]) for each in (columns, columns_of(apart))
    )
    assert_allclose(found.loo_mean, alone.loo_mean, atol=1e-9)
    weights, of_others = informed_weights(columns, base_of(y), found), np.flatnonzero(free)
    assert_allclose(
        weights.mean[:, of_others], informed_weights(columns_of(apart), base_of(y), alone).mean, atol=1e-12
    )
    assert not weights.mean[:, ~free].any()
    assert not weights.var[:, ~free].any()


def brute_relevance(x, y):
    first, second = x[y > 0], x[y < 0]
    difference = first.mean() - second.mean()
    within = np.sum((first - first.mean()) ** 2) + np.sum((second - second.mean()) ** 2)
    t_squared = difference**2 / (within / (x.size - 2) * (1 / first.size + 1 / second.size))
    return max(t_squared - 1, 0.0), (first.mean() + second.mean()) / 2


@pytest.mark.parametrize("by_group", [False, True])
def test_contrasts_without_a_group_are_those_of_the_other_samples(by_group):
    X, y = factor_data(n_features=5)
    group = np.arange(y.size) % 7 if by_group else np.arange(y.size)
    contrasts = one_by_one(y, group=group)
    whole, left = contrasts.of(X), contrasts.without_groups(X)
    for column in range(5):
        relevance, middle = brute_relevance(X[:, column], y)
        assert_allclose(whole.relevance[column], relevance, rtol=1e-10)
        assert_allclose(whole.middle[column], middle, atol=1e-12)
        for g in (0, 3):
            others = group != g
            relevance, middle = brute_relevance(X[others, column], y[others])
            assert_allclose(left.relevance[g, column], relevance, rtol=1e-8)
            assert_allclose(left.middle[g, column], middle, atol=1e-10)


def test_a_class_without_samples_left_says_nothing():
    X, _ = factor_data(n_samples=6, n_features=4)
    y = np.array([1.0, -1, -1, -1, -1, -1])
    left = one_by_one(y).without_groups(X)
    assert_allclose(left.relevance[0], 0.0)
    assert np.all(np.isfinite(left.middle))


def test_no_samples_left_say_nothing():
    X, y = factor_data(n_samples=6, n_features=4)
    with np.errstate(all="raise"):
        nothing = one_by_one(y, group=np.zeros(6, dtype=int)).without(0).of(X)
    assert_allclose(nothing.relevance, 0.0)
    assert np.all(np.isfinite(nothing.middle))


def test_wide_ridges_have_kernels_in_double_precision():
    """Of spectra whose classes differ where columns hardly vary, of single precision nothing is left."""
    rng, at, y = np.random.default_rng(0), np.linspace(0, 1, 400), np.where(np.arange(60) % 2, 1.0, -1.0)
    bands = np.exp(-((at - np.linspace(0, 1, 12)[:, np.newaxis]) ** 2) / 0.02)
    X = 10 * rng.standard_normal((60, 12)) @ bands + 0.02 * rng.standard_normal((60, 400))
    X += 0.05 * np.multiply.outer(y, np.exp(-((at - 0.4) ** 2) / 0.0005))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    widest = Ridge(1e6, 0, Logistic())
    alone = fit_informed(
        Penalised(Tiles(Dense(X)), np.ones(400, dtype=bool)), base_of(y), one_by_one(y), (widest,)
    )
    beside = fit_informed(columns_of(X), base_of(y), one_by_one(y), (widest, Ridge(1.0, 1, Logistic())))
    # Variances are differences of what is ten million times as large.
    assert_allclose(alone.loo_mean[0], beside.loo_mean[0], rtol=1e-3)
    assert_allclose(alone.loo_var[0], beside.loo_var[0], rtol=1e-3)


@pytest.mark.parametrize("channel", [Logistic(), FlippedLabels(Logistic(), 0.1)])
def test_ep_in_kernels_is_ep_with_a_gaussian_prior(channel):
    X, y = factor_data()
    weight = np.where(np.arange(y.size) % 5 == 0, 2.0, 1.0)
    prior = Blocks(Gaussian(0.02), ((slice(-1, None), Gaussian(1.0)),))
    problem = Problem(WithIntercept(Dense(X)), y, weight, channel, prior)
    exact = solve(problem, EP(), stopping=Stopping(tol=1e-8, max_iter=500))
    kernel = 0.02 * X @ X.T + 1.0
    fits = kernel_ep(kernel[np.newaxis], np.zeros(y.size), y, weight, channel)
    assert fits.converged.all()
    assert_allclose(0.02 * fits.dual[0] @ X, exact.posterior.mean[:-1], atol=2e-3)
    assert_allclose(fits.dual[0].sum(), exact.posterior.mean[-1], atol=5e-3)


CHANNELS = Logistic(), FlippedLabels(Logistic(), 0.1)
RIDGES = tuple(Ridge(v, a, channel) for a in (0, 1, 2) for v in (10.0, 100.0) for channel in CHANNELS)


def loss_of(ridge, y, mean, var):
    return -log_expit(y * ridge.channel.log_odds(mean, var))


def refitted(X, y, ridge, contrasts):
    """Scores of left-out groups from models fitted without them, by brute force."""
    mean, var = np.empty(y.size), np.empty(y.size)
    base = base_of(y)
    left = contrasts.without_groups(X)
    for g in range(contrasts.n_groups):
        inside = contrasts.group == g
        prior = left.relevance[g] ** ridge.exponent if ridge.exponent else np.ones(X.shape[1])
        centred = X - left.to_the_power(ridge.exponent)[1][g]
        kernel = ridge.score_variance / prior.sum() * (centred * prior) @ centred.T + base.kernel(
            ridge.exponent
        )
        others = np.flatnonzero(~inside)
        fits = kernel_ep(
            kernel[np.newaxis, others][:, :, others],
            base.scores[others],
            y[others],
            contrasts.sample_weight[others],
            ridge.channel,
        )
        rows = kernel[np.ix_(inside, others)]
        mean[inside] = base.scores[inside] + rows @ fits.dual[0]
        var[inside] = np.diag(kernel)[inside] - np.sum((rows @ fits.inverse[0]) * rows, axis=1)
    return mean, var


@pytest.mark.parametrize("seed", [0, 1])
def test_leave_one_out_is_what_refits_would_say(seed):
    X, y = factor_data(seed=seed)
    contrasts = one_by_one(y)
    found = fit_informed(columns_of(X), base_of(y), contrasts, RIDGES)
    assert set(found.ridges) == set(RIDGES)
    for n, ridge in enumerate(found.ridges):
        mean, var = refitted(X, y, ridge, contrasts)
        from_fit = loss_of(ridge, y, found.loo_mean[n], found.loo_var[n])
        from_refits = loss_of(ridge, y, mean, var)
        assert abs(from_fit.mean() - from_refits.mean()) < 0.05 * from_refits.mean(), ridge
        assert np.mean(np.sign(mean) != np.sign(found.loo_mean[n])) <= 0.06


def test_leave_one_group_out_is_what_refits_would_say():
    X, y = factor_data(n_samples=60)
    contrasts = one_by_one(y, group=np.arange(60) // 6)
    found = fit_informed(columns_of(X), base_of(y), contrasts, RIDGES)
    for n, ridge in enumerate(found.ridges):
        mean, var = refitted(X, y, ridge, contrasts)
        from_fit = loss_of(ridge, y, found.loo_mean[n], found.loo_var[n])
        from_refits = loss_of(ridge, y, mean, var)
        assert abs(from_fit.mean() - from_refits.mean()) < 0.03, ridge


def test_informed_variances_of_noise_do_not_look_like_a_signal():
    """Labels without any relation to X: a leave-one-out that saw them twice would be far below log 2."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(40, 500))
    y = np.where(rng.permutation(40) < 20, 1.0, -1.0)
    found = fit_informed(columns_of(X), base_of(y), one_by_one(y), RIDGES)
    for n, ridge in enumerate(found.ridges):
        assert loss_of(ridge, y, found.loo_mean[n], found.loo_var[n]).mean() > 0.6, ridge


def test_weights_make_the_scores():
    X, y = factor_data()
    base, contrasts = base_of(y), one_by_one(y)
    found = fit_informed(columns_of(X), base, contrasts, RIDGES)
    weights = informed_weights(columns_of(X), base, found)
    whole = contrasts.of(X)
    for n, ridge in enumerate(found.ridges):
        prior = whole.relevance**ridge.exponent if ridge.exponent else np.ones(X.shape[1])
        assert_allclose(weights.prior_var[n], ridge.score_variance * prior / prior.sum(), rtol=1e-10)
        centred = X - whole.to_the_power(ridge.exponent)[1]
        kernel = (centred * weights.prior_var[n]) @ centred.T + base.kernel(ridge.exponent)
        scores = base.scores + kernel @ found.fits.dual[n]
        assert_allclose(X @ weights.mean[n] + weights.kept_mean[n, 0], scores, atol=1e-8)
        covariance = np.diag(weights.prior_var[n]) - (weights.prior_var[n][:, None] * centred.T) @ (
            found.fits.inverse[n] @ (centred * weights.prior_var[n])
        )
        if ridge.exponent:
            assert_allclose(weights.var[n], np.diag(covariance), atol=1e-10)
        else:
            # Of a ridge, labels take the same share of every variance: right in all.
            assert_allclose(weights.var[n].sum(), np.trace(covariance), rtol=1e-10)


def test_samples_are_left_out_whatever_their_weight():
    """Against refits without each sample: all weights 2, and random ones, are as close as ones."""
    X, y = factor_data()
    for weight in (np.full(y.size, 2.0), np.random.default_rng(1).uniform(0.3, 3.0, y.size)):
        contrasts = one_by_one(y, weight)
        found = fit_informed(columns_of(X), base_of(y), contrasts, RIDGES)
        for n, ridge in enumerate(found.ridges):
            mean, var = refitted(X, y, ridge, contrasts)
            from_fit = loss_of(ridge, y, found.loo_mean[n], found.loo_var[n])
            assert abs(from_fit.mean() - loss_of(ridge, y, mean, var).mean()) < 0.04, ridge
