"""Stacking finds the best mixture, and an average predicts as its parts do."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose
from scipy.special import expit, log_expit

from foldless.channels import FlippedLabels, Logistic
from foldless.operators import Dense, Standardized
from foldless.tuning.average import Candidate, Linear, averaged, mixed_log_odds
from foldless.tuning.spectrum import spectral_excess
from foldless.tuning.stacking import PSEUDO_SAMPLES, stacking_weights


def test_stacking_weights_are_stationary():
    """At the maximum every model in use has the same gradient, and none has a larger one."""
    rng = np.random.default_rng(0)
    density = rng.uniform(0.05, 1.0, size=(6, 200))
    density[2] = np.minimum(density[2] * 2, 1.0)
    sample_weight = rng.uniform(0.5, 2.0, 200)
    weights = stacking_weights(np.log(density), sample_weight)
    gradient = density @ (sample_weight / (weights @ density)) + PSEUDO_SAMPLES / 6 / weights
    assert_allclose(gradient, sample_weight.sum() + PSEUDO_SAMPLES, rtol=1e-7)
    assert weights.argmax() == 2


def test_stacking_weights_survive_densities_of_any_size():
    """One model that is right about everything, and others that rule out what happens, or know nothing."""
    log_density = np.array([np.full(50, -1e-9), np.full(50, -800.0), np.full(50, np.log(0.5))])
    log_density[1, :25] = -1e-9
    weights = stacking_weights(log_density, np.ones(50))
    assert_allclose(weights.sum(), 1.0)
    assert np.all(weights > 0)
    # What the prior leaves to a model that adds nothing: α over the total, and a little more for half of it.
    assert weights[0] > 0.9
    assert_allclose(weights[1], PSEUDO_SAMPLES / 3 / (25 + PSEUDO_SAMPLES), rtol=0.1)


def test_the_better_model_gets_the_weight_and_equal_models_share_it():
    truth = np.log(np.full(500, 0.8))
    weights = stacking_weights(np.array([truth, truth, truth - 1.0]), np.ones(500))
    assert_allclose(weights[0], weights[1])
    assert weights[2] < 0.01


def test_mixed_log_odds_are_those_of_the_mean_probability():
    rng = np.random.default_rng(1)
    odds, weights = rng.normal(scale=3, size=(3, 20)), np.array([0.5, 0.3, 0.2])
    mean = weights @ expit(odds)
    assert_allclose(mixed_log_odds(weights, odds), np.log(mean / (1 - mean)), rtol=1e-10)
    # Far out, where probabilities round to one, log-odds do not.
    assert_allclose(mixed_log_odds(np.ones(1), np.array([[800.0]])), 800.0)


def candidate(name, mean, labels, rng, noise, channel=None):
    scores = labels * mean + noise * rng.normal(size=labels.size)
    linear = Linear(np.array([mean]), np.array([0.1]), 0.0, 0.1, np.array([0.1]))
    return Candidate(name, channel or Logistic(), scores, np.full(labels.size, 0.5), lambda: linear)


def test_an_average_prefers_what_predicts_left_out_labels():
    rng = np.random.default_rng(2)
    labels = np.where(rng.random(100) < 0.5, 1.0, -1.0)
    standardized = Standardized.fit(Dense(labels[:, np.newaxis] + rng.normal(size=(100, 1))), np.ones(100))
    good, bad = candidate("good", 2.0, labels, rng, 0.5), candidate("bad", 0.0, labels, rng, 2.0)
    average = averaged([good, bad], standardized, labels, np.ones(100))
    shares = {name: weight for name, _, weight in average.tried}
    assert shares["good"] > 0.9
    assert -log_expit(labels * average.loo_log_odds).mean() < 0.3
    # The variance of a new sample's score is on average what leave-one-out found.
    part = average.parts[0]
    assumed = part.spread * standardized.score_variances(part.linear.score_var)
    assert_allclose(assumed.mean(), 0.5, rtol=1e-6)


def test_mislabelled_samples_are_suspected():
    rng = np.random.default_rng(3)
    labels = np.where(rng.random(60) < 0.5, 1.0, -1.0)
    standardized = Standardized.fit(Dense(rng.normal(size=(60, 1))), np.ones(60))
    noisy = candidate("noisy", 4.0, labels, rng, 0.5, FlippedLabels(Logistic(), 0.1))
    seen = labels.copy()
    seen[:3] *= -1
    average = averaged([noisy], standardized, seen, np.ones(60))
    assert average.mislabel_probability[:3].min() > 0.5 > average.mislabel_probability[3:].max()


def test_spectral_excess_tells_factors_from_independence():
    rng = np.random.default_rng(4)
    labels = np.where(rng.random(100) < 0.5, 1.0, -1.0)
    independent = rng.normal(size=(100, 800))
    heavy = rng.standard_t(3, size=(100, 800))
    common = independent + rng.normal(size=(100, 1))
    for X, correlated in ((independent, False), (heavy, False), (common, True)):
        excess = spectral_excess(Standardized.fit(Dense(X), np.ones(100)), labels, np.ones(100))
        assert (excess > 1.0) == correlated
    order, columns = rng.permutation(100), rng.permutation(800)
    shuffled = Standardized.fit(Dense(common[order][:, columns]), np.ones(100))
    whole = Standardized.fit(Dense(common), np.ones(100))
    assert_allclose(
        spectral_excess(shuffled, labels[order], np.ones(100)),
        spectral_excess(whole, labels, np.ones(100)),
        rtol=1e-8,
    )
