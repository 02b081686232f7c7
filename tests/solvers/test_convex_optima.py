"""Max-sum with three losses and three penalties, at the optimum that other solvers find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog, minimize
from scipy.special import expit, log_expit, log_ndtr

from foldless.channels import Hinge, Logistic, Multinomial, Probit
from foldless.operators import Dense
from foldless.priors import ElasticNet, Gaussian, Laplace
from foldless.problem import Outcome, Problem
from foldless.solvers import GAMP, Stopping, solve
from foldless.solvers.frozen import Frozen

CHANNELS = {"logistic": Logistic(), "probit": Probit(), "hinge": Hinge()}
# Rate of |w| and of w².
PENALTIES = {"l1": (8.0, 0.0), "l2": (0.0, 4.0), "elastic-net": (4.0, 2.0)}
SETTLED = Stopping(tol=1e-10, max_iter=20_000, patience=200)


def loss(name, margin):
    """The sum over samples, and its derivatives."""
    if name == "hinge":
        return float(np.sum(np.maximum(0.0, 1.0 - margin))), np.where(margin < 1.0, -1.0, 0.0)
    if name == "logistic":
        return -float(np.sum(log_expit(margin))), -expit(-margin)
    log_density = -0.5 * margin**2 - 0.5 * np.log(2 * np.pi)
    return -float(np.sum(log_ndtr(margin))), -np.exp(log_density - log_ndtr(margin))


def smooth_optimum(name, A, rate, ridge):
    """w = u - v with u, v >= 0, where the penalty is smooth."""

    def objective(parts):
        u, v = np.split(parts, 2)
        value, slope = loss(name, A @ (u - v))
        slope = A.T @ slope + 2 * ridge * (u - v)
        value += rate * parts.sum() + ridge * np.sum((u - v) ** 2)
        return value, np.concatenate([slope + rate, -slope + rate])

    start = np.full(2 * A.shape[1], 1e-3)
    options = {"maxiter": 50_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 50}
    bounds = [(0, None)] * start.size
    return minimize(objective, start, jac=True, bounds=bounds, method="L-BFGS-B", options=options).fun


def hinge_optimum(A, rate, ridge):
    """A linear programme; with a ridge the dual, which is smooth: max Σα - Σ(|A'α| - rate)²₊/(4 ridge)."""
    n_samples, n_features = A.shape
    if ridge == 0:
        cost = np.concatenate([np.full(2 * n_features, rate), np.ones(n_samples)])
        return linprog(cost, A_ub=np.hstack([-A, A, -np.eye(n_samples)]), b_ub=-np.ones(n_samples)).fun

    def negative_dual(alpha):
        pull = A.T @ alpha
        beyond = np.sign(pull) * np.maximum(np.abs(pull) - rate, 0.0) / (2 * ridge)
        return ridge * beyond @ beyond - alpha.sum(), A @ beyond - 1.0

    options = {"maxiter": 50_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 50}
    bounds = [(0.0, 1.0)] * n_samples
    start = np.full(n_samples, 0.5)
    return -minimize(negative_dual, start, jac=True, bounds=bounds, method="L-BFGS-B", options=options).fun


@pytest.mark.parametrize("shape", [(90, 60), (60, 120)], ids=str)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("name", CHANNELS)
def test_every_loss_and_penalty_at_its_optimum(name, penalty, shape):
    rng, (rate, ridge) = np.random.default_rng(0), PENALTIES[penalty]
    X = rng.standard_normal(shape)
    labels = np.where(rng.random(shape[0]) < expit(1.5 * X[:, :5].sum(axis=1)), 1.0, -1.0)
    if penalty == "elastic-net":
        prior = ElasticNet(rate, ridge)
    else:
        prior = Laplace(rate) if rate else Gaussian(1 / (2 * ridge))
    problem = Problem(Dense(X), labels, np.ones(shape[0]), CHANNELS[name], prior)
    solution = solve(problem, GAMP("max-sum"), stopping=SETTLED)
    w, A = solution.posterior.mean, labels[:, None] * X
    value = loss(name, A @ w)[0] + rate * np.abs(w).sum() + ridge * w @ w
    optimum = hinge_optimum(A, rate, ridge) if name == "hinge" else smooth_optimum(name, A, rate, ridge)
    assert solution.outcome in (Outcome.CONVERGED, Outcome.RESCUED)
    assert_allclose(value, optimum, rtol=1e-8)


def test_weights_of_samples_count_and_a_runaway_is_no_optimum():
    """GAMP alone runs away here to weights of 1e9, where it stands still."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 60))
    labels = np.where(X[:, 0] + rng.standard_normal(40) > 0, 1.0, -1.0)
    weight = rng.integers(0, 3, 40).astype(float)
    problem = Problem(Dense(X), labels, weight, Hinge(), Laplace(5.0))
    solution = solve(problem, GAMP("max-sum"), stopping=SETTLED)
    w = solution.posterior.mean
    value = weight @ np.maximum(0.0, 1.0 - labels * (X @ w)) + 5.0 * np.abs(w).sum()
    repeated = np.repeat(labels[:, None] * X, weight.astype(int), axis=0)
    assert solution.outcome in (Outcome.CONVERGED, Outcome.RESCUED)
    assert_allclose(value, hinge_optimum(repeated, 5.0, 0.0), rtol=1e-8)


@pytest.mark.parametrize("variances", ["rank-one", "per-coordinate"])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_maximum_that_was_found_without_variances_has_those_of_the_maximum(n_classes, variances):
    """GAMP's where it settles, however far off those are that it left where it ran away.

    On a slice of a brain with eight objects (`haxby_slice`, rate 9) weights by themselves err on 42 % of new
    samples; averaged over the variances that were left they erred on 86 %, and on 99.8 % of those left out.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 60))
    if n_classes == 2:
        channel, labels = Logistic(), np.where(X[:, 0] + rng.standard_normal(90) > 0, 1.0, -1.0)
    else:
        channel = Multinomial(n_classes)
        labels = 1 + np.argmax(X[:, :4] + rng.standard_normal((90, 4)), axis=1)
    problem = Problem(Dense(X), labels, np.ones(90), channel, Laplace(6.0))
    solver = GAMP("max-sum", variances=variances)
    settled = solve(problem, solver, stopping=SETTLED)
    state = settled.state
    assert settled.outcome is Outcome.CONVERGED
    assert state.frozen is None
    ran_away = replace(
        state,
        weight_var=1e6 * state.weight_var,
        cavity_var=1e6 * state.cavity_var,
        score_cavity_var=1e6 * state.score_cavity_var,
        frozen=Frozen.begun(problem, state.weights, state.slopes),
    )
    found, own = solver.posterior(problem, ran_away), settled.posterior
    assert_allclose(found.var, own.var, rtol=1e-2, atol=1e-12)
    assert_allclose(found.loo_var, own.loo_var, rtol=1e-2)
    assert_allclose(found.loo_mean, own.loo_mean, atol=1e-2)
    assert_allclose(found.cavity_mean, own.cavity_mean, atol=1e-2)
