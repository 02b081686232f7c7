"""Messages on edges, messages on nodes, and the paper's equations as they are printed: one algorithm."""

from __future__ import annotations

from dataclasses import replace
from math import acos, pi, sqrt

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit, ndtr
from scipy.stats import norm

from foldless.channels import Step
from foldless.operators import Dense
from foldless.priors import Gaussian, Pruned, SpikeAndSlab
from foldless.problem import Problem
from foldless.solvers import GAMP, ConstantDamping, Stopping, solve
from foldless.solvers.edges import EdgeMessages

NOISE = 0.05
UNDAMPED = ConstantDamping(1.0)


def task(n_samples: int, n_features: int, seed: int, features: str = "spherical") -> tuple[np.ndarray, ...]:
    """X/√N with rows of unit length, labels of a sparse teacher with noise, and the teacher."""
    rng = np.random.default_rng(seed)
    truth = SpikeAndSlab(Gaussian(), 0.2).sample(n_features, rng)
    shape = (n_samples, n_features)
    X = rng.standard_normal(shape) if features == "spherical" else rng.choice([-1.0, 1.0], shape)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    labels = np.where(X @ truth > 0, 1.0, -1.0) * np.where(rng.random(n_samples) < NOISE, -1.0, 1.0)
    return X, labels, truth


def problem_of(X: np.ndarray, labels: np.ndarray, density: float, channel=None) -> Problem:
    return Problem(Dense(X), labels, np.ones(labels.size), channel or Step(NOISE), Pruned(density))


def met_constraints(h: np.ndarray, density: float) -> tuple[float, float]:
    """(29) and (30) by bisection on A, and inside it on λ - ½ log A."""

    def odds(a):
        low, high = -1e3 - (h**2).max() / a, 1e3
        for _ in range(70):
            middle = 0.5 * (low + high)
            too_many = expit(middle + h**2 / (2 * a)).mean() > density
            low, high = (low, middle) if too_many else (middle, high)
        return middle

    low, high = 1e-6, 1e6
    for _ in range(60):
        a = sqrt(low * high)
        mu = odds(a)
        power = np.mean(expit(mu + h**2 / (2 * a)) * (1 / a + (h / a) ** 2))
        low, high = (a, high) if power > density else (low, a)
    return a, mu


def test_a_damped_step_goes_a_part_of_the_way():
    X, labels, _ = task(40, 20, 0)
    problem, solver = problem_of(X, labels, 0.3), EdgeMessages()
    state = solver.step(problem, solver.step(problem, solver.init(problem)))
    ends = [solver.step(problem, replace(state, pace=replace(state.pace, step=step))) for step in (1.0, 0.25)]
    whole = ends[0]
    answer = problem.channel.respond(whole.score_cavity_mean, whole.score_cavity_var, labels)
    assert_allclose(whole.curvatures, answer.curvature, rtol=1e-12)
    for name in ("curvatures", "edge_slopes"):
        before, whole, part = (getattr(each, name) for each in (state, *ends))
        assert np.max(np.abs(whole - before)) > 1e-3
        assert_allclose(part, before + 0.25 * (whole - before), rtol=1e-12, atol=1e-14)


def test_gamp_with_a_pruned_prior_is_the_algorithm_of_the_paper():
    """(35) and (36) with (23)-(30), written out as in the paper; O(NM), and no code of the library."""
    n, m, density = 120, 80, 0.15
    X, labels, _ = task(m, n, 0)
    problem = problem_of(X, labels, density)
    solver = GAMP(variances="uniform", damping=UNDAMPED)
    state = solver.init(problem)
    mean, slope = np.zeros(n), np.zeros(m)
    for _ in range(6):
        v = density - np.mean(mean**2)
        cavity = labels * (X @ mean) - v * slope
        z = NOISE + (1 - 2 * NOISE) * ndtr(cavity / sqrt(v))
        slope = (1 - 2 * NOISE) * norm.pdf(cavity, scale=sqrt(v)) / z
        gamma = np.sum(-cavity / v * slope - slope**2) / n
        h = X.T @ (labels * slope) - gamma * mean
        a, mu = met_constraints(h, density)
        mean = expit(mu + h**2 / (2 * a)) * h / a

        state = solver.step(problem, state)
        assert_allclose(state.weights, mean, atol=1e-8)
        assert_allclose(state.score_cavity_mean * labels, cavity, atol=1e-8)


def test_messages_on_edges_are_the_sums_they_stand_for():
    """Two iterations of (23)-(31) by loops over all pairs: O(N²M)."""
    n, m, density = 9, 7, 0.3
    X, labels, _ = task(m, n, 1)
    solver = EdgeMessages(variances="uniform", damping=UNDAMPED)
    problem = problem_of(X, labels, density)
    state = solver.init(problem)
    messages, mean = np.zeros((m, n)), np.zeros(n)
    slopes = np.empty((m, n))

    def slope_at(cavity, v):
        z = NOISE + (1 - 2 * NOISE) * ndtr(cavity / sqrt(v))
        return (1 - 2 * NOISE) * norm.pdf(cavity / sqrt(v)) / sqrt(v) / z

    for _ in range(3):
        v = density - np.mean(mean**2)
        for mu in range(m):
            for el in range(n):
                others = sum(labels[mu] * X[mu, j] * messages[mu, j] for j in range(n) if j != el)
                slopes[mu, el] = slope_at(others, v)
        h = np.array([sum(labels[mu] * X[mu, el] * slopes[mu, el] for mu in range(m)) for el in range(n)])
        a, odds = met_constraints(h, density)
        mean = expit(odds + h**2 / (2 * a)) * h / a
        for mu in range(m):
            for el in range(n):
                field = sum(labels[k] * X[k, el] * slopes[k, el] for k in range(m) if k != mu)
                messages[mu, el] = expit(odds + field**2 / (2 * a)) * field / a
        state = solver.step(problem, state)
        assert_allclose(state.weights, mean, atol=1e-8)
        assert_allclose(state.edge_weights, messages, atol=1e-8)


def differences(n: int, seed: int) -> np.ndarray:
    """Error, overlap and power of messages on nodes less those of messages on edges."""
    X, labels, truth = task(n, n, seed, "signs")
    problem = problem_of(X, labels, 0.2)
    stopping = Stopping(tol=1e-4, max_iter=30)
    found = []
    for solver in (GAMP, EdgeMessages):
        w = solve(problem, solver(variances="uniform", damping=UNDAMPED), stopping=stopping).posterior.mean
        error = acos(w @ truth / np.linalg.norm(w) / np.linalg.norm(truth)) / pi
        found.append([error, np.mean(w * truth), np.mean(w**2)])
    return np.subtract(*found)


def test_both_forms_agree_to_a_thousandth_from_500_features_on():
    """Where all x² are equal, as the derivation assumes, the expansion around nodes is off by O(1/N).

    (Where they are only equal on average single runs differ by O(1/√N): the study `pruned_classifier`.)
    """
    large, small = differences(500, 0), np.array([differences(100, seed) for seed in range(4)])
    assert np.abs(large).max() < 1e-3
    assert np.abs(small).mean() > 2 * np.abs(large).mean()


def test_constraints_hold_at_every_update_on_correlated_features():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 3)) @ rng.standard_normal((3, 300)) + rng.standard_normal((40, 300))
    X *= rng.lognormal(0.0, 1.0, 300) / np.linalg.norm(X)
    labels = np.where(X[:, 0] + X[:, 1] > 0, 1.0, -1.0)
    for variances in ("uniform", "rank-one"):
        for density in (0.01, 0.1, 0.8):
            problem = problem_of(X, labels, density, Step(0.1))
            solver = GAMP(variances=variances, damping=ConstantDamping(0.5))
            state = solver.init(problem)
            for _ in range(30):
                state = solver.step(problem, state)
                power = np.mean(state.weight_var + state.weights**2)
                active = problem.prior.inclusion_probability(state.cavity_mean, state.cavity_var).mean()
                assert abs(power / density - 1) < 1e-8
                assert abs(active / density - 1) < 1e-8


def test_edges_need_sum_product():
    with pytest.raises(ValueError, match="max-sum"):
        EdgeMessages(rule="max-sum")
