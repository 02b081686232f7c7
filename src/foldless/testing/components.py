"""What every prior, channel, operator and solver owes the rest, as functions that can be run on a new one.

Each check takes a component and raises AssertionError where a contract does not hold. References that know
the density of a prior, or the matrix of an operator, are the callers' (`tests/contracts`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from foldless.beliefs import Array
from foldless.channels import Channel, Logistic
from foldless.operators import Dense, Operator
from foldless.priors import Gaussian, Prior
from foldless.problem import Problem
from foldless.solvers import solve
from foldless.solvers.base import Solver

WIDTHS = (0.05, 0.7, 20.0)


def derivative(function: Callable[[Any], Any], x: Any, step: Any) -> Any:
    """Central differences of sixth order: error about step⁶, relative to the scale of the function."""
    weights = {1: 3 / 4, 2: -3 / 20, 3: 1 / 60}
    return sum(w * (function(x + k * step) - function(x - k * step)) for k, w in weights.items()) / step


def _part(rule: Callable[..., Any], part: Any, given: Any, x: Any) -> Any:
    """One part of an answer, as a function of the last argument."""
    return rule(x, given)[part]


# ---------------------------------------------------------------- priors


def check_prior_moments(prior: Any) -> None:
    """mean = r + v ∂log_z/∂r and var = v + v² ∂²log_z/∂r²."""
    for tau in WIDTHS:
        r = np.linspace(-4.0, 4.0, 41) * max(1.0, np.sqrt(tau))
        step = 0.01 * np.sqrt(tau)
        tilted = prior.tilted(r, tau)
        slope = derivative(partial(_part, prior.tilted, 2, tau), r, step)
        gain = derivative(partial(_part, prior.tilted, 0, tau), r, step)
        scale = np.sqrt(tau) * (1 + np.abs(r) / np.sqrt(tau))
        assert_allclose((tilted.mean - r - tau * slope) / scale, 0.0, atol=1e-9)
        assert_allclose(tilted.var, tau * gain, rtol=1e-7, atol=1e-9 * tau)


def check_prior_variances(prior: Any) -> None:
    """Positive everywhere, and all that is answered finite, in both precisions."""
    for dtype in (np.float32, np.float64):
        r = np.concatenate([-np.geomspace(1e8, 1e-8, 60), [0.0], np.geomspace(1e-8, 1e8, 60)]).astype(dtype)
        for tau in np.geomspace(1e-12, 1e8, 21).astype(dtype):
            tilted = prior.tilted(r, tau)
            assert np.all(tilted.var > 0)
            assert all(np.all(np.isfinite(part)) for part in tilted)


def check_prior_scalars(prior: Any) -> None:
    for part, whole in zip(prior.tilted(0.3, 0.5), prior.tilted(np.array([0.3]), 0.5), strict=True):
        assert_allclose(part, whole[0], rtol=1e-14)


def check_prior_own_moments(prior: Any) -> None:
    """Under an infinitely wide cavity the moments are those of the prior itself."""
    tilted = prior.tilted(np.zeros(9), 1e12)
    mean, var = prior.moments()
    assert_allclose(tilted.mean[4], mean, rtol=1e-9, atol=1e-9)
    assert_allclose(tilted.var[4], var, rtol=1e-9)


def check_prior_samples(prior: Any) -> None:
    """Samples have the stated moments, within five standard errors."""
    draws = prior.sample(100_000, np.random.default_rng(3))[3:-2]
    mean, var = prior.moments()
    centred = draws - mean
    assert abs(centred.mean()) < 5 * np.sqrt(var / draws.size)
    assert abs(np.mean(centred**2) - var) < 5 * np.std(centred**2) / np.sqrt(draws.size)
    assert prior.sample((20, 3), np.random.default_rng(0)).shape == (20, 3)


def check_prior(prior: Prior) -> None:
    """Every contract of a prior."""
    check_prior_moments(prior)
    check_prior_variances(prior)
    check_prior_scalars(prior)
    check_prior_own_moments(prior)
    check_prior_samples(prior)


# ---------------------------------------------------------------- channels


def cavities(
    means: Any = None, variances: Sequence[float] = (0.05, 0.7, 3.0, 40.0)
) -> tuple[Array, Array, Array]:
    """Means, variances and labels of a grid."""
    means = np.linspace(-6.0, 6.0, 25) if means is None else means
    mean, var, label = np.meshgrid(means, variances, [-1.0, 1.0])
    return mean.ravel(), var.ravel(), label.ravel()


def check_channel_derivatives(channel: Any) -> None:
    """Slope and curvature are the derivatives of log_z."""
    mean, var, label = cavities()
    response = channel.respond(mean, var, label)
    # Any response is smooth on the scale of the cavity's spread, even if the likelihood has a kink;
    # mixtures of two labels may change faster.
    step = 0.01 * np.sqrt(var)
    slope = derivative(lambda p: channel.respond(p, var, label).log_z, mean, step)
    curvature = -derivative(lambda p: channel.respond(p, var, label).slope, mean, step)
    assert_allclose(response.slope * np.sqrt(var), slope * np.sqrt(var), atol=2e-9, rtol=1e-9)
    assert_allclose(response.curvature * var, curvature * var, atol=2e-8, rtol=1e-8)


def check_channel_at_scores(channel: Any) -> None:
    """`at_score` has the derivatives of the log likelihood."""
    z = np.linspace(-5.03, 5.08, 60)
    for label in (-1.0, 1.0):
        at = channel.at_score(z, label)
        slope = derivative(partial(_part, channel.log_likelihood, ..., label), z, 2e-3)
        curvature = -derivative(partial(_part, channel.at_score, 1, label), z, 2e-3)
        assert_allclose(at.slope, slope, atol=2e-7)
        assert_allclose(at.curvature, curvature, atol=1e-6)


def check_channel_normalised(channel: Any) -> None:
    """`normalised` is whether the likelihoods of both labels sum to one."""
    z = np.linspace(-4.1, 4, 30)
    total = np.exp(channel.log_likelihood(z, 1.0)) + np.exp(channel.log_likelihood(z, -1.0))
    assert (np.abs(total - 1).max() < 1e-14) == channel.normalised


def check_channel_without_spread(channel: Any) -> None:
    """A cavity of no width is the likelihood itself."""
    z, label = np.array([-2.3, -0.4, 0.3, 2.2]), np.array([1.0, -1.0, 1.0, -1.0])
    response = channel.respond(z, 0.0, label)
    assert_allclose(response.log_z, channel.log_likelihood(z, label), atol=2e-11, rtol=1e-12)


def check_channel_precision(channel: Any) -> None:
    """Single precision in, single precision out."""
    mean, var, label = (part.astype(np.float32) for part in cavities())
    single = channel.respond(mean, var, label)
    double = channel.respond(mean.astype(float), var.astype(float), label.astype(float))
    for got, expected in zip(single, double, strict=True):
        assert got.dtype == np.float32
        assert expected.dtype == np.float64
        assert_allclose(got, expected, rtol=2e-7, atol=1e-37)
    assert channel.log_likelihood(mean, label).dtype == np.float32


def check_channel_shapes(channel: Any) -> None:
    """Inputs broadcast, and labels may be integers."""
    mean, label = np.linspace(-2, 2, 5)[:, None], np.array([-1, 1, 1])
    got = channel.respond(mean, 0.5, label)
    one_by_one = [[channel.respond(p, 0.5, float(y)) for y in label] for p in mean[:, 0]]
    for k, field in enumerate(got):
        assert field.shape == (5, 3)
        assert_allclose(field, [[r[k] for r in row] for row in one_by_one], rtol=1e-10, atol=1e-13)


def check_channel(channel: Channel) -> None:
    """Every contract of a channel."""
    check_channel_derivatives(channel)
    check_channel_at_scores(channel)
    check_channel_normalised(channel)
    check_channel_without_spread(channel)
    check_channel_precision(channel)
    check_channel_shapes(channel)


# ---------------------------------------------------------------- operators and solvers


def check_operator(operator: Operator, matrix: Any, rtol: float = 1e-10) -> None:
    """Every product of an operator is that of its matrix, which is given."""
    A = np.asarray(matrix, dtype=np.float64)
    rng: Any = np.random.default_rng(0)
    w, v = rng.standard_normal(A.shape[1]), rng.gamma(1.0, size=A.shape[1])
    slopes, curvatures = rng.standard_normal(A.shape[0]), rng.standard_normal(A.shape[0])

    def same(answer: Any, expected: Array) -> None:
        assert answer.shape == expected.shape
        assert_allclose(
            answer, expected, rtol=0, atol=rtol * max(float(np.abs(expected).max(initial=0)), 1e-300)
        )

    assert operator.shape == A.shape
    seen: dict[str, list[Any]] = {"scores": [], "variances": [], "rows": []}

    def row_step(rows: slice, scores: Any, score_var: Any) -> Any:
        seen["rows"].append(np.arange(A.shape[0])[rows])
        seen["scores"].append(np.array(scores))
        seen["variances"].append(np.array(score_var))
        return slopes[rows], curvatures[rows]

    swept = operator.sweep(w, v, row_step)
    assert_array_equal(np.concatenate(seen["rows"]), np.arange(A.shape[0]), "every row once, in order")
    same(np.concatenate(seen["scores"]), A @ w)
    same(np.concatenate(seen["variances"]), A**2 @ v)
    same(np.asarray(swept.slopes), A.T @ slopes)
    same(np.asarray(swept.curvatures), (A**2).T @ curvatures)
    same(operator.scores(w), A @ w)
    same(operator.score_variances(v), A**2 @ v)
    same(operator.adjoint(slopes), A.T @ slopes)
    same(operator.columns([0, A.shape[1] - 1]), A[:, [0, -1]])
    times = rng.integers(1, 4, A.shape[0])
    mean, variance = operator.column_moments(times.astype(np.float64))
    repeated = np.repeat(A, times, axis=0)
    same(mean, repeated.mean(axis=0))
    same(variance, repeated.var(axis=0))


def check_solver(solver: Solver[Any]) -> None:
    """Two plain effects are found by a fit that settles, the same again, and from a warm start."""
    rng: Any = np.random.default_rng(0)
    X = rng.standard_normal((80, 6))
    truth = np.array([2.0, -2.0, 0.0, 0.0, 0.0, 0.0])
    y = np.where(rng.random(80) < 1 / (1 + np.exp(-X @ truth)), 1.0, -1.0)
    problem = Problem(Dense(X), y, np.ones(80), Logistic(), Gaussian(2.0))
    solution = solve(problem, solver)
    assert solution.outcome.trustworthy, solution.outcome
    mean, var = solution.posterior.mean, solution.posterior.var
    assert np.all(np.isfinite(mean))
    assert np.all(var > 0)
    assert np.all(np.sign(mean[:2]) == np.sign(truth[:2]))
    assert np.abs(mean[:2]).min() > np.abs(mean[2:]).max()
    again = solve(problem, solver)
    assert_array_equal(again.posterior.mean, mean)
    warm = solve(problem, solver, state=solver.as_start(solution.state))
    assert_allclose(warm.posterior.mean, mean, atol=1e-2 * float(np.abs(mean).max()))
