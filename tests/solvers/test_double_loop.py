"""Two loops: near twins settle at the fixed point of EP that they circle otherwise."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from foldless.channels import FlippedLabels, Logistic
from foldless.operators import Dense, Standardized
from foldless.priors import Gaussian, OverBackground, SpikeAndSlab
from foldless.solvers import BackgroundEP, Stopping, solve
from foldless.solvers.double_loop import Marginals
from foldless.solvers.gaussian_layer import Block, NotPositiveDefinite
from foldless.tuning.table import Layout, LeftOut, Table, assembled

STOPPING = Stopping(tol=1e-3, max_iter=500, patience=60)


def prior(n_weights):
    return OverBackground(SpikeAndSlab(Gaussian(4.0), 10.0 / n_weights), 20.0 / n_weights)


def neighbours(n_samples, n_features, correlation, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features))
    for j in range(1, n_features):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    scores = X[:, rng.choice(n_features, 8, replace=False)].sum(axis=1)
    y = np.where(rng.logistic(size=n_samples) < 2.5 * scores / scores.std(), 1.0, -1.0)
    weight = np.ones(n_samples)
    layout = Layout(n_features)
    table = Table(Standardized.fit(Dense(X), weight), y, weight, LeftOut(weight), layout)
    return assembled(table, FlippedLabels(Logistic(), 0.01), prior(n_features))


@pytest.fixture
def twins():
    """Ten columns that all but agree, about which labels say that one of them has an effect."""
    said = 30.0 * (0.9 * np.ones((10, 10)) + 0.1 * np.eye(10))
    return SimpleNamespace(precision=said, shift=said[3] * 1.5)


def test_the_best_sites_have_the_moments_of_the_priors_at_their_cavities(twins):
    alone = twins.precision.diagonal().copy()
    block = Block(twins, alone, np.zeros(10))
    marginals = Marginals.of(block.mean, block.var)
    for _ in range(5):
        block = marginals.answered(prior(1000), block)
    cavity = marginals.precision - block.site_precision
    mean, var, _ = prior(1000).tilted((marginals.shift - block.site_shift) / cavity, 1.0 / cavity)
    assert_allclose(mean, block.mean, atol=1e-3)
    assert_allclose(var, block.var, rtol=1e-2)


def test_two_loops_end_at_one_fixed_point_from_two_starts(twins):
    ends = []
    for share in (1.0, 0.2):
        block = Block(twins, share * twins.precision.diagonal(), np.zeros(10))
        marginals = Marginals.of(block.mean, block.var)
        for _ in range(300):
            block = marginals.answered(prior(1000), block)
            marginals = marginals.following(block.mean, block.var, block.site_precision)
        ends.append(block)
    assert_allclose(ends[0].mean, ends[1].mean, atol=1e-3)
    cavity = 1.0 / ends[0].var - ends[0].site_precision
    assert np.all(cavity > 0)
    shift = ends[0].mean / ends[0].var - ends[0].site_shift
    mean, _, _ = prior(1000).tilted(shift / cavity, 1.0 / cavity)
    assert_allclose(mean, ends[0].mean, atol=1e-3)


def test_sites_that_leave_no_cavity_are_refused(twins):
    block = Block(twins, twins.precision.diagonal().copy(), np.zeros(10))
    with pytest.raises(NotPositiveDefinite, match="no precision"):
        Marginals(0.5 * block.site_precision, np.zeros(10)).answered(prior(1000), block)


@pytest.mark.parametrize("seed", [0, 1])
def test_near_twins_settle_by_two_loops_alone(seed):
    class OneLoop(BackgroundEP):
        def otherwise(self, problem, state):
            return None

    problem = neighbours(200, 3000, 0.95, seed)
    assert not solve(problem, OneLoop(exact_looks=True), stopping=STOPPING).outcome.trustworthy
    solution = solve(problem, BackgroundEP(exact_looks=True), stopping=STOPPING)
    assert solution.outcome.trustworthy
    state = solution.state
    assert state.marginals is not None
    # What priors answer at proper cavities is what the Gaussian has, as at any fixed point of EP.
    at = state.weight_cavities
    mean, _, _ = state.reduced.prior.tilted(at.mean, at.var)
    sure = at.proper & (at.var < 100 * state.gaussian.var)
    assert sure.mean() > 0.9
    assert_allclose(mean[sure], state.gaussian.mean[sure], atol=0.1)
