"""Unsure parameters: intervals that cover, and a leave-one-out that has not seen the label."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

from foldless import SparseClassifier
from foldless.channels import FlippedLabels, Logistic
from foldless.datasets import make_logistic
from foldless.operators import Standardized, operator_from
from foldless.priors import Gaussian, HyperPrior, SpikeAndSlab
from foldless.solvers import EP, Stopping, solve
from foldless.tuning.costs import Budget
from foldless.tuning.integration import _log_hyper
from foldless.tuning.record import FLAGS
from foldless.tuning.table import Layout, LeftOut, Table, assembled


def drawn_weights(run: int, n_samples: int = 100, n_features: int = 200, n_active: int = 6):
    rng = np.random.default_rng(run)
    X = rng.standard_normal((n_samples, n_features))
    weights = np.zeros(n_features)
    weights[:n_active] = 1.5 * rng.standard_normal(n_active)
    y = rng.random(n_samples) < 1 / (1 + np.exp(-X @ weights))
    return X, y, weights


def squared_misses(runs: int, budget: Budget) -> np.ndarray:
    """((weight - its mean) / its standard deviation)² of every likely feature: 1 on average, if exact."""
    found = []
    for run in range(runs):
        X, y, weights = drawn_weights(run)
        model = SparseClassifier(generative_weight=0.0)
        model._budget = budget
        model.fit(X, y)
        assert model.plan_.sparse.integrate == (budget.integrate > 0)
        likely = model.inclusion_probability_ > 0.5
        found.append((((model.sparse_coef_[0] - weights) / model.sparse_coef_std_[0]) ** 2)[likely])
    return np.concatenate(found)


def test_intervals_know_that_the_slab_is_not_known():
    with_neighbours = squared_misses(16, Budget())
    alone = squared_misses(16, Budget(integrate=0.0))
    assert min(alone.size, with_neighbours.size) > 30
    assert np.mean(alone) > 1.2 * np.mean(with_neighbours)
    assert np.mean(with_neighbours) < 1.5
    assert np.mean(with_neighbours < 1.645**2) > 0.8


def test_a_share_of_wrong_labels_that_labels_have_found_counts_as_its_mean_over_the_prior():
    X, y, _ = drawn_weights(0, 80, 20)
    problem = fixed(X, np.where(y, 1.0, -1.0)).problem
    f, n = problem.channel.flip_prob, 80
    k = f * (n + 20.0) - 1.0
    shares = np.linspace(0.0, 1.0, 200_001)[1:-1]
    best = f**k * (1.0 - f) ** (n - k)
    mean = np.mean(beta.pdf(shares, 2.0, 20.0) * shares**k * (1.0 - shares) ** (n - k))
    hyper, right = HyperPrior(), problem.but(channel=problem.channel.base)
    gained = _log_hyper(problem, hyper) - _log_hyper(right, hyper)
    assert gained == pytest.approx(np.log(mean / best), abs=1e-4)


def test_intervals_without_exact_covariances_are_flagged():
    X, y, _ = drawn_weights(1)
    assert FLAGS["narrow-intervals"] not in SparseClassifier().fit(X, y).flags_
    model = SparseClassifier()
    model._budget = Budget(polish=0.0)
    assert FLAGS["narrow-intervals"] in model.fit(X, y).flags_


def fixed(X, y):
    standardized = Standardized(operator_from(X), np.zeros(X.shape[1]), np.ones(X.shape[1]))
    ones = np.ones(y.size)
    table = Table(standardized, y, ones, LeftOut(ones), Layout(X.shape[1]))
    problem = assembled(table, FlippedLabels(Logistic(), 0.02), SpikeAndSlab(Gaussian(2.0), 0.05))
    return solve(problem, EP(), stopping=Stopping(tol=1e-6, max_iter=300))


def test_the_evidence_without_a_label_is_the_whole_evidence_over_its_density():
    """What the weights of the neighbours in leave-one-out rest on."""
    X, y, _ = drawn_weights(3, 50, 60, 4)
    y = np.where(y, 1.0, -1.0)
    whole = fixed(X, y)
    density = whole.loo_log_densities()
    # The intercept's prior is centred at the classes' log-odds, which one label hardly moves.
    for left_out in range(8):
        rest = np.arange(y.size) != left_out
        without = fixed(X[rest], y[rest]).posterior.log_evidence
        assert whole.posterior.log_evidence - without == pytest.approx(density[left_out], abs=0.05)


def test_the_share_of_wrong_labels_is_its_mean_over_the_neighbours():
    X, y, _ = drawn_weights(1)
    clean = SparseClassifier(generative_weight=0.0).fit(X, y)
    spoilt = y.copy()
    spoilt[::12] = ~spoilt[::12]
    noisy = SparseClassifier(generative_weight=0.0).fit(X, spoilt)
    assert 0 < clean.channel_.flip_prob < noisy.channel_.flip_prob


def test_an_interrupted_neighbour_leaves_the_fit_that_was_there():
    data = make_logistic(60, 80, 3, random_state=0)
    seen = []

    def stop_late(iteration, line):
        seen.append(iteration)
        if len(seen) == last - 3:
            raise KeyboardInterrupt

    last = SparseClassifier(generative_weight=0.0).fit(data.X, data.y).n_iter_
    model = SparseClassifier(generative_weight=0.0)
    model._on_iteration = stop_late
    with pytest.raises(KeyboardInterrupt):
        model.fit(data.X, data.y)
    assert np.all(np.isfinite(model.coef_))


def test_the_hyper_prior_is_that_of_imaginary_weights():
    hyper = HyperPrior(scale_count=3.0, scale=2.0)
    variances = np.array([0.5, 1.0, 7.0])
    normal = [3 * (-0.5 * np.log(v) - 0.5 * 2.0**2 / v) for v in variances]
    assert [hyper.log_density(v) for v in variances] == pytest.approx(normal)
