"""Replica theory and macroscopic dynamics: published numbers, identities, each other, the algorithm."""

from __future__ import annotations

from math import acos, pi, sqrt

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import expit, ndtr
from scipy.stats import norm

from foldless.channels import FlippedLabels, Hinge, Logistic, Probit, Step
from foldless.operators import Dense
from foldless.priors import Gaussian, Pruned, SpikeAndSlab
from foldless.problem import Problem
from foldless.solvers import GAMP, ConstantDamping
from foldless.theory import (
    Macroscopic,
    Model,
    error_curve,
    free_energy,
    macroscopic,
    optimal_error,
    saddle_point,
    state_evolution,
)

NOISE, TRUE_DENSITY = 0.05, 0.2
STEP = Step(NOISE)
SETTING = {"true_density": TRUE_DENSITY, "channel": STEP}
CHANNELS = [STEP, Probit(0.1), FlippedLabels(Logistic(5.0), 0.1)]


# ---------------------------------------------------------------- the saddle point


@pytest.mark.parametrize(
    ("density", "bayes", "gibbs"), [(0.1, 0.2532, 0.2995), (0.2, 0.2418, 0.3103), (0.3, 0.2460, 0.3260)]
)
def test_errors_are_those_of_an_independent_calculation(density, bayes, gibbs):
    point = saddle_point(1.0, density=density, **SETTING)
    assert point.converged
    assert_allclose([point.bayes_error, point.gibbs_error], [bayes, gibbs], atol=6e-5)


@pytest.mark.parametrize("density", [0.05, 0.2, 0.6])
def test_errors_of_a_step_are_angles(density):
    point = saddle_point(0.7, density=density, **SETTING)
    r, q = point.overlap, point.estimate_power
    bayes = NOISE + (1 - 2 * NOISE) * acos(r / sqrt(q * TRUE_DENSITY)) / pi
    gibbs = NOISE + (1 - 2 * NOISE) * acos(r / sqrt(density * TRUE_DENSITY)) / pi
    assert_allclose([point.bayes_error, point.gibbs_error], [bayes, gibbs], rtol=1e-9)


def test_saddle_point_equations_hold_by_adaptive_quadrature():
    """All six equations written out as in the sheet, sharing no code with the library."""
    ratio, density = 1.3, 0.1
    r, q, r_hat, q_hat, a, log_odds = saddle_point(ratio, density=density, **SETTING).at
    s2, v = TRUE_DENSITY - r * r / q, density - q

    def slope(z):
        p = sqrt(q) * z
        return (1 - 2 * NOISE) * norm.pdf(p, scale=sqrt(v)) / (NOISE + (1 - 2 * NOISE) * ndtr(p / sqrt(v)))

    def over_z(f):
        return quad(lambda z: norm.pdf(z) * f(z), -12, 12, limit=400, epsabs=1e-12, points=[0.0])[0]

    right = over_z(lambda z: (NOISE + (1 - 2 * NOISE) * ndtr(r * z / sqrt(q * s2))) * slope(z) ** 2)
    moved = over_z(lambda z: (1 - 2 * NOISE) * norm.pdf(r * z / sqrt(q), scale=sqrt(s2)) * slope(z))
    assert_allclose([q_hat, r_hat], [2 * ratio * right, 2 * ratio * moved], rtol=1e-8)

    def rho(h):
        return expit(log_odds - 0.5 * np.log(a) + h * h / (2 * a))

    def over_h(f):
        on, off = sqrt(q_hat + r_hat**2), sqrt(q_hat)
        return TRUE_DENSITY * over_z(lambda z: f(on * z)) + (1 - TRUE_DENSITY) * over_z(lambda z: f(off * z))

    assert_allclose(over_h(rho), density, rtol=1e-8)
    assert_allclose(over_h(lambda h: rho(h) * (1 / a + (h / a) ** 2)), density, rtol=1e-8)
    assert_allclose(over_h(lambda h: (rho(h) * h / a) ** 2), q, rtol=1e-8)
    on = sqrt(q_hat + r_hat**2)
    active = over_z(lambda z: rho(on * z) * (on * z) ** 2 / a)
    assert_allclose(TRUE_DENSITY * r_hat / on**2 * active, r, rtol=1e-8)


@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
@pytest.mark.parametrize("density", [0.1, 0.3])
def test_free_energy_is_stationary_in_all_six_numbers(density, channel):
    setting = {"density": density, "true_density": TRUE_DENSITY, "channel": channel}
    at = saddle_point(1.0, **setting).at
    for k in range(6):
        step = 1e-4 * abs(at[k])
        up, down = list(at), list(at)
        up[k], down[k] = at[k] + step, at[k] - step
        rise = free_energy(Macroscopic(*up), 1.0, **setting) - free_energy(Macroscopic(*down), 1.0, **setting)
        # Beside the curvature: one per cent away from the saddle the slope must be a hundred times larger.
        away = list(at)
        away[k] = at[k] * 1.01
        moved = free_energy(Macroscopic(*away), 1.0, **setting) - free_energy(at, 1.0, **setting)
        assert abs(rise / 2) < 1e-2 * abs(moved) + 1e-12


@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
def test_nishimori_identities_hold_at_the_true_density_only(channel):
    matched = saddle_point(1.0, density=0.2, true_density=0.2, channel=channel).at
    assert_allclose(matched.overlap, matched.estimate_power, rtol=1e-9)
    assert_allclose(matched.field_gain, matched.field_var, rtol=1e-9)
    # The multipliers are those of the teacher: slab variance 1, odds C/(1 - C).
    assert_allclose(matched.precision - matched.field_var, 1.0, rtol=1e-9)
    assert_allclose(matched.log_odds, np.log(0.2 / 0.8), rtol=1e-8)
    other = saddle_point(1.0, density=0.3, true_density=0.2, channel=channel).at
    assert abs(other.overlap - other.estimate_power) > 1e-3


def test_the_bayes_error_is_least_at_the_true_density_and_the_gibbs_error_is_not():
    densities = np.array([0.1, 0.15, 0.19, 0.2, 0.21, 0.25, 0.3])
    curve = error_curve(1.0, densities, TRUE_DENSITY, STEP)
    bayes, gibbs = [p.bayes_error for p in curve], [p.gibbs_error for p in curve]
    assert densities[np.argmin(bayes)] == TRUE_DENSITY
    assert densities[np.argmin(gibbs)] == densities[0]
    assert np.all(np.array(gibbs) > np.array(bayes))
    assert_allclose(optimal_error(1.0, TRUE_DENSITY, STEP), min(bayes))


def test_replica_symmetry_breaks_at_small_densities_only():
    stability = [saddle_point(1.0, density=c, **SETTING).stability for c in (0.03, 0.1, 0.2, 0.5)]
    assert stability[0] > 1 > stability[1]
    assert np.all(np.diff(stability) < 0)


# ---------------------------------------------------------------- beside state evolution


@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
@pytest.mark.parametrize("ratio", [0.5, 2.0])
def test_at_the_true_density_it_is_unconstrained_state_evolution(ratio, channel):
    """A matched student needs no constraints: the known Bernoulli-Gauss prior, in state evolution's units."""
    teacher = Model(SpikeAndSlab(Gaussian(ratio), TRUE_DENSITY), channel)
    evolution = state_evolution(ratio, teacher).fixed_point
    point = saddle_point(ratio, density=TRUE_DENSITY, true_density=TRUE_DENSITY, channel=channel)
    assert_allclose(point.overlap, evolution.overlap, rtol=1e-7)
    assert_allclose(point.estimate_power, evolution.estimate_power, rtol=1e-7)
    assert_allclose(point.score_cavity_var, evolution.score_cavity_var, rtol=1e-7)
    assert_allclose(point.bayes_error, evolution.test_error, rtol=1e-7)


@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
@pytest.mark.parametrize("density", [0.1, 0.3])
def test_macroscopic_dynamics_end_at_the_saddle_point(density, channel):
    evolution = macroscopic(0.8, density=density, true_density=TRUE_DENSITY, channel=channel)
    point = saddle_point(0.8, density=density, true_density=TRUE_DENSITY, channel=channel)
    assert evolution.converged
    end = evolution.fixed_point
    assert_allclose([end.overlap, end.estimate_power], [point.overlap, point.estimate_power], rtol=1e-7)
    assert_allclose(
        [end.score_cavity_var, end.test_error], [point.score_cavity_var, point.bayes_error], rtol=1e-7
    )
    assert_allclose(evolution.score_power, point.score_power, rtol=1e-9)


def test_a_fixed_prior_with_the_multipliers_found_has_the_same_fixed_point():
    ratio, density = 1.0, 0.3
    at = saddle_point(ratio, density=density, **SETTING).at
    curvature = 1.0 / macroscopic(ratio, density=density, **SETTING).fixed_point.cavity_var
    precision = at.precision / ratio - curvature  # G in the units of state evolution
    odds = np.exp(at.log_odds) / np.sqrt(precision * ratio)
    student = Model(SpikeAndSlab(Gaussian(1 / precision), odds / (1 + odds)), STEP)
    teacher = Model(SpikeAndSlab(Gaussian(ratio), TRUE_DENSITY), STEP)
    end = state_evolution(ratio, teacher, student).fixed_point
    assert_allclose([end.overlap, end.estimate_power], [at.overlap, at.estimate_power], rtol=1e-6)


def test_dynamics_have_the_values_of_an_independent_calculation():
    course = macroscopic(1.0, density=0.2, **SETTING).test_error
    assert_allclose(course[:3], [0.2805, 0.2534, 0.2456], atol=6e-5)
    assert_allclose(course[-1], 0.2418, atol=6e-5)


# ---------------------------------------------------------------- beside the algorithm


@pytest.mark.parametrize("density", [0.1, 0.2, 0.3])
def test_the_algorithm_follows_the_dynamics(density):
    n, iterations, runs = 1000, 4, 12
    theory = macroscopic(1.0, density=density, max_iter=iterations, **SETTING)
    solver = GAMP(variances="uniform", damping=ConstantDamping(1.0))
    error = np.empty((runs, iterations))
    cavity_var = np.empty((runs, iterations))
    for run in range(runs):
        rng = np.random.default_rng([7, run])
        truth = SpikeAndSlab(Gaussian(), TRUE_DENSITY).sample(n, rng)
        X = rng.standard_normal((n, n)) / sqrt(n)
        labels = np.where(X @ truth > 0, 1.0, -1.0) * np.where(rng.random(n) < NOISE, -1.0, 1.0)
        problem = Problem(Dense(X), labels, np.ones(n), STEP, Pruned(density))
        state = solver.init(problem)
        for t in range(iterations):
            state = solver.step(problem, state)
            cosine = state.weights @ truth / np.linalg.norm(state.weights) / np.linalg.norm(truth)
            error[run, t] = NOISE + (1 - 2 * NOISE) * acos(cosine) / pi
            cavity_var[run, t] = density - np.mean(state.weights**2)
    noise = error.std(axis=0, ddof=1) / sqrt(runs)
    # Finite size moves the error up by about 0.002 at N = 1000.
    assert np.all(np.abs(error.mean(axis=0) - theory.test_error) < 5 * noise)
    assert_allclose(cavity_var.mean(axis=0), density - theory.estimate_power, rtol=0.05)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ratio": 0.0}, "samples / features"),
        ({"density": 0.0}, "strictly between 0 and 1"),
        ({"true_density": 1.5}, "share of features that matter"),
        ({"channel": Hinge()}, "do not sum to one"),
        ({"channel": 0.05}, "must be a channel"),
    ],
)
def test_bad_settings_are_named(change, message):
    setting = {"ratio": 1.0, "density": 0.1, **SETTING, **change}
    with pytest.raises((ValueError, TypeError), match=message):
        saddle_point(setting.pop("ratio"), **setting)


def test_a_constrained_teacher_is_refused():
    with pytest.raises(ValueError, match="SpikeAndSlab"):
        state_evolution(1.0, Model(Pruned(0.1), STEP))
