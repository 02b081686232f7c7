"""The pruned prior: its constraints hold in all fields, and its answers are the integrals they stand for."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import clone

from foldless.priors import Blocks, Gaussian, Multipliers, Pruned, Ridged, SpikeAndSlab

DENSITIES = (0.0025, 0.01, 0.2, 0.8, 0.99)
# From no field at all to fields of which a single one decides everything.
FIELD_SCALES = (0.0, 1e-3, 1.0, 30.0, 1e4)


def constraint_residuals(prior: Pruned, r: np.ndarray, tau: np.ndarray) -> np.ndarray:
    """How far share and power of the active weights are off, relative to what they must be."""
    answer, inclusion = prior.tilted(r, tau), prior.inclusion_probability(r, tau)
    power = answer.var + answer.mean**2
    return np.array([inclusion.mean() / prior.density, power.mean() / prior.power]) - 1.0


@pytest.mark.parametrize("variance", [1.0, 0.03])
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("scale", FIELD_SCALES)
def test_constraints_hold_to_eight_digits_in_all_fields(scale, density, variance):
    rng = np.random.default_rng(5)
    prior = Pruned(density, variance)
    for n in (1, 2, 2000):
        field = scale * rng.standard_normal(n)
        for tau in (np.full(n, 1e12), np.ones(n), np.full(n, 1e-12), rng.lognormal(0.0, 2.0, n)):
            assert np.abs(constraint_residuals(prior, field * tau, tau)).max() < 1e-8


def test_multipliers_are_the_minimum_of_a_convex_function():
    rng = np.random.default_rng(0)
    h, tau, density, variance = rng.normal(0, 3, 200), rng.uniform(0.2, 2.0, 200), 0.15, 2.0

    def objective(x):
        log_odds, precision = x
        a = precision + 1 / tau
        if np.any(a <= 0):
            return np.inf
        log_z = np.logaddexp(0.0, log_odds - 0.5 * np.log(a) + h**2 / (2 * a))
        return log_z.mean() - log_odds * density + 0.5 * precision * density * variance

    best = minimize(objective, [0.0, 1.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-15})
    found = Pruned(density, variance).constrained(h * tau, tau)
    assert_allclose([found.log_odds, found.slab_precision], best.x, rtol=1e-5)
    # The log normalisers add up to the value at the minimum, less that of the prior before any data.
    excess = np.mean(Pruned(density, variance).tilted(h * tau, tau).log_z)
    zero = np.mean(-0.5 * h**2 * tau - 0.5 * np.log(2 * np.pi * tau))
    entropy = -density * np.log(density) - (1 - density) * np.log(1 - density)
    volume = entropy + 0.5 * density * (1 + np.log(variance))
    assert_allclose(excess - zero, best.fun - volume, rtol=1e-10)


@pytest.mark.parametrize("slab_precision", [1.7, 0.2, -0.3])
def test_answers_are_integrals_also_where_the_slab_is_no_distribution(slab_precision):
    tau, log_odds = 0.8, -0.7
    prior = Multipliers(slab_precision + 2.0, 2.0, log_odds)
    for r in (-3.0, 0.0, 0.4, 5.0):

        def weighted(x, power, r=r):
            slab = np.exp(log_odds - 0.5 * slab_precision * x * x) / np.sqrt(2 * np.pi)
            return x**power * slab * np.exp(-((x - r) ** 2) / (2 * tau)) / np.sqrt(2 * np.pi * tau)

        i0, i1, i2 = (quad(weighted, -60, 60, args=(k,), points=[r], epsabs=1e-13)[0] for k in range(3))
        spike = np.exp(-r * r / (2 * tau)) / np.sqrt(2 * np.pi * tau)
        z = i0 + spike
        answer = prior.tilted(np.array([r]), np.array([tau]))
        assert_allclose(answer.mean[0], i1 / z, rtol=1e-9, atol=1e-12)
        assert_allclose(answer.var[0], i2 / z - (i1 / z) ** 2, rtol=1e-9)
        assert_allclose(answer.log_z[0], np.log(z), rtol=1e-10)
        assert_allclose(prior.inclusion_probability(np.array([r]), np.array([tau]))[0], i0 / z, rtol=1e-10)


def test_a_proper_slab_is_spike_and_slab_far_into_the_tails():
    precision, log_odds = 0.5, -2.0
    odds = np.exp(log_odds) / np.sqrt(precision)
    same = SpikeAndSlab(Gaussian(1 / precision), odds / (1 + odds))
    prior = Multipliers(precision, 0.0, log_odds, log_volume=np.log1p(odds))
    r = np.concatenate([-np.geomspace(1e6, 1e-3, 30), [0.0], np.geomspace(1e-3, 1e6, 30)])
    for tau in (1e-4, 1.0, 1e4):
        for ours, theirs in zip(prior.tilted(r, tau), same.tilted(r, tau), strict=True):
            assert_allclose(ours, theirs, rtol=1e-9, atol=1e-300)
    assert_allclose(prior.moments(), same.moments())
    draws = prior.sample(100_000, np.random.default_rng(0))
    assert abs(np.mean(draws != 0) - same.inclusion) < 5 * np.sqrt(same.inclusion / draws.size)
    assert_allclose(np.var(draws), same.moments()[1], rtol=0.05)


def test_without_data_the_multipliers_are_those_of_the_prior():
    met = Pruned(0.2, 3.0).constrained(np.zeros(50), np.full(50, 1e15))
    assert_allclose(met.slab_precision, 1 / 3.0, rtol=1e-9)
    assert_allclose(expit(met.log_odds + 0.5 * np.log(3.0)), 0.2, rtol=1e-9)
    assert_allclose(met.log_volume, -np.log1p(-0.2), rtol=1e-9)


def test_means_are_derivatives_of_the_log_evidence_of_all_weights():
    """The identity of every prior, for the sum of log_z: it is stationary in the multipliers."""
    rng = np.random.default_rng(4)
    r, tau, prior = rng.normal(0, 2, 12), rng.uniform(0.3, 2.0, 12), Pruned(0.3, 0.7)
    answer = prior.tilted(r, tau)
    for k in range(r.size):
        step = np.eye(12)[k] * 1e-4
        slope = (prior.tilted(r + step, tau).log_z.sum() - prior.tilted(r - step, tau).log_z.sum()) / 2e-4
        assert_allclose(answer.mean[k], r[k] + tau[k] * slope, atol=1e-6)


def test_weights_count_like_repetitions():
    rng = np.random.default_rng(1)
    r, tau, count = rng.normal(0, 2, 40), rng.uniform(0.5, 1, 40), rng.integers(0, 4, 40)
    counted = Pruned(0.1).constrained(r, tau, count)
    repeated = Pruned(0.1).constrained(np.repeat(r, count), np.repeat(tau, count))
    assert_allclose(counted.slab_precision, repeated.slab_precision, rtol=1e-9)
    assert_allclose(counted.log_odds, repeated.log_odds, rtol=1e-9)


def test_blocks_and_ridges_leave_other_columns_out_of_the_constraints():
    rng = np.random.default_rng(2)
    r, tau = rng.normal(0, 2, 30), np.full(30, 0.5)
    r[-1] = 1e6  # an intercept, which would take all the power
    blocks = Blocks(Pruned(0.2), others=((slice(-1, None), Gaussian(100.0)),))
    met = blocks.constrained(r, tau)
    alone = Pruned(0.2).tilted(r[:-1], tau[:-1])
    assert_allclose(met.tilted(r, tau).mean[:-1], alone.mean, rtol=1e-9)
    # Also without being asked for its constraints: a solver that does not know of them still meets them.
    assert_allclose(blocks.tilted(r, tau).mean[:-1], alone.mean, rtol=1e-9)
    inclusion = blocks.inclusion_probability(r, tau)
    assert_allclose(inclusion[:-1].mean(), 0.2, rtol=1e-8)
    assert inclusion[-1] == 1.0
    plain = Blocks(SpikeAndSlab(), others=((slice(-1, None), Gaussian(100.0)),))
    assert plain.constrained(r, tau) is plain
    ridged = Ridged(Pruned(0.2), precision=0.7)
    inner_r, inner_tau = ridged.inner_cavity(r[:-1], tau[:-1])
    assert_allclose(
        ridged.constrained(r[:-1], tau[:-1]).tilted(r[:-1], tau[:-1]).mean,
        Pruned(0.2).tilted(inner_r, inner_tau).mean,
        rtol=1e-9,
    )


def test_an_iteration_that_ran_away_gets_an_answer_that_shows_it():
    r = np.array([0.1, np.nan, 2.0])
    answer = Pruned(0.3).tilted(r, np.ones(3))
    assert np.isnan(answer.mean[1])
    assert np.isfinite(answer.mean[[0, 2]]).all()


def test_samples_meet_the_constraints_together():
    draws = Pruned(0.25, 4.0).sample((20, 10), np.random.default_rng(0))
    assert np.count_nonzero(draws) == 50
    assert_allclose(np.sum(draws**2), 200.0)


def test_float32_scalars_copies_and_errors():
    prior = Pruned(0.1)
    r = np.linspace(-3, 3, 50, dtype=np.float32)
    assert all(part.dtype == np.float32 for part in prior.tilted(r, 0.5))
    assert prior.inclusion_probability(r, 0.5).dtype == np.float32
    assert np.isfinite(prior.tilted(0.3, 0.5).mean)
    for copy in (clone(prior), pickle.loads(pickle.dumps(prior))):
        assert copy == prior
        assert_array_equal(copy.tilted(r, 0.5).mean, prior.tilted(r, 0.5).mean)
    with pytest.raises(ValueError, match=r"strictly between 0 and 1; got 1.0.*Gaussian prior"):
        Pruned(1.0)
    with pytest.raises(ValueError, match="must be a finite number > 0"):
        Pruned(0.1, variance=0.0)
    with pytest.raises(ValueError, match="no moments of its own"):
        Multipliers(1.0, 2.0).moments()
