"""Stacking finds the best mixture, also without each sample."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import log_expit

from foldless.evaluation import jackknifed, stacking_weights


def test_stacking_weights_are_stationary():
    """At the maximum every model in use has the same gradient, and none has a larger one."""
    rng = np.random.default_rng(0)
    density = rng.uniform(0.05, 1.0, size=(6, 200))
    density[2] = np.minimum(density[2] * 2, 1.0)
    sample_weight = rng.uniform(0.5, 2.0, 200)
    prior = np.linspace(0.1, 0.9, 6)
    weights = stacking_weights(np.log(density), sample_weight, prior)
    gradient = density @ (sample_weight / (weights @ density)) + prior / weights
    assert_allclose(gradient, sample_weight.sum() + prior.sum(), rtol=1e-7)
    assert weights.argmax() == 2


def test_stacking_weights_survive_densities_of_any_size():
    """One model that is right about everything, and others that rule out what happens, or know nothing."""
    log_density = np.array([np.full(50, -1e-9), np.full(50, -800.0), np.full(50, np.log(0.5))])
    log_density[1, :25] = -1e-9
    weights = stacking_weights(log_density, np.ones(50), np.ones(3))
    assert_allclose(weights.sum(), 1.0)
    assert np.all(weights > 0)
    # What the prior leaves to a model that adds nothing: α over the total, and a little more for half of it.
    assert weights[0] > 0.9
    assert_allclose(weights[1], 1 / (25 + 3), rtol=0.1)


def test_the_better_model_gets_the_weight_and_equal_models_share_it():
    truth = np.log(np.full(500, 0.8))
    weights = stacking_weights(np.array([truth, truth, truth - 1.0]), np.ones(500), np.ones(3))
    assert_allclose(weights[0], weights[1])
    assert weights[2] < 0.01


@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("n_in_group", [1, 5])
@pytest.mark.parametrize(("n_samples", "n_models"), [(30, 10), (60, 27), (200, 27)])
def test_weights_without_a_sample_are_those_of_a_fit_without_it(n_samples, n_models, n_in_group, weighted):
    """Measured: within 0.003 of refits, 0.011 where groups are weighted; without a step 0.02 to 0.09."""
    rng = np.random.default_rng(0)
    labels = rng.choice([-1, 1], n_samples)
    signal = 1.5 * rng.standard_normal(n_samples) + labels
    size, noise = rng.uniform(0.1, 3.0, (n_models, 1)), rng.uniform(0.1, 2.0, (n_models, 1))
    log_density = log_expit(labels * (size * signal + noise * rng.standard_normal((n_models, n_samples))))
    weight = rng.uniform(0.2, 3.0, n_samples) if weighted else np.ones(n_samples)
    group = np.arange(n_samples) // n_in_group
    prior = np.full(n_models, 3.0 / n_models)
    all_in = stacking_weights(log_density, weight, prior)
    # Of slopes that are nothing beside those of a guess the others do not count.
    together, guess = None if n_in_group == 1 else group, np.full(n_samples, -1e300)
    found = jackknifed(all_in, log_density, weight, together, prior, guess)
    refits = np.array(
        [stacking_weights(log_density[:, group != g], weight[group != g], prior) for g in group]
    ).T

    def loss(weights):
        return -float(weight @ np.log(np.sum(weights * np.exp(log_density), axis=0))) / weight.sum()

    assert_allclose(found.sum(axis=0), 1.0)
    optimism = loss(refits) - loss(all_in[:, np.newaxis])
    assert abs(loss(found) - loss(refits)) < 0.15 * optimism


def test_a_sample_that_is_left_out_was_among_the_others_too():
    """Models of noise, one for each set of columns, that learn from every sample: all is left out at last.

    A label that a model predicts from the others is one from which it predicts the others. Measured: the
    optimism that remains is a tenth of what it is if only the sample's own density is left out.
    """
    remaining, once = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n_samples, n_models = 40, 8
        labels, columns = rng.choice([-1.0, 1.0], n_samples), rng.standard_normal((n_models, n_samples, 30))
        kernels = np.matmul(columns, columns.transpose(0, 2, 1)) / 60
        kernels[:, np.arange(n_samples), np.arange(n_samples)] = 0.0
        scores, prior = kernels @ labels, np.full(n_models, 3.0 / n_models)
        density, everyone = log_expit(labels * scores), np.ones(n_samples)
        weights = stacking_weights(density, everyone, prior)

        def loss(without, density=density):
            return -np.mean(np.log(np.sum(without * np.exp(density), axis=0)))

        refits = []
        for m in range(n_samples):
            others = np.arange(n_samples) != m
            left = log_expit(labels * (scores - kernels[:, :, m] * labels[m]))[:, others]
            refits.append(stacking_weights(left, everyone[others], prior))
        truth = loss(np.array(refits).T)
        for guess, found in ((0.5, remaining), (-1e300, once)):
            of_all = np.full(n_samples, guess)
            found.append(loss(jackknifed(weights, density, everyone, None, prior, of_all)) - truth)
    assert np.mean(once) < -0.005
    assert abs(np.mean(remaining)) < 0.4 * abs(np.mean(once))
