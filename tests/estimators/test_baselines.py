"""The baselines against what they are defined by."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import log_expit
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

from foldless.datasets import make_class_means
from foldless.estimators.baselines import (
    OneBitCS,
    RVMClassifier,
    SBMLRClassifier,
    one_bit_weights,
    posterior_mode,
    relevance,
)


@pytest.fixture(scope="module")
def data():
    return make_class_means(n_samples=100, n_features=60, n_active=4, random_state=1)


@pytest.mark.parametrize(
    "model", [OneBitCS(sparsity=2), RVMClassifier(kernel=None), RVMClassifier()], ids=repr
)
def test_every_scikit_learn_check_passes(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(model, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] in ("failed", "xfail")}
    assert failed == {}


def test_all_find_the_active_features(data):
    for model in (SBMLRClassifier(), OneBitCS(sparsity=4), RVMClassifier(kernel=None)):
        fitted = clone(model).fit(data.X, data.y)
        assert fitted.score(data.X, data.y) > 0.85
        largest = np.argsort(-np.abs(fitted.coef_[0] * data.X.std(axis=0)))[:4]
        assert len(set(largest) & set(data.active)) >= 3


def test_one_bit_of_sparse_columns_is_that_of_dense_ones(data):
    X = np.where(np.abs(data.X) > 1, data.X, 0.0)
    X[:, 3] = 0.0  # as words that no text has
    dense = OneBitCS(sparsity=4).fit(X, data.y)
    assert dense.coef_[0, 3] == 0
    for kind in (sp.csr_array, sp.csc_matrix):
        found = OneBitCS(sparsity=4).fit(kind(X), data.y)
        assert_allclose(found.coef_, dense.coef_, atol=1e-12)
        assert_allclose(found.decision_function(kind(X)), dense.decision_function(X), atol=1e-12)
    with pytest.raises(ValueError, match="column 7 holds values beyond"):
        OneBitCS().fit(sp.csr_array(np.where(np.arange(60) == 7, 1e200, X)), data.y)


def test_sbmlr_is_a_minimum_of_the_integrated_objective(data):
    """loss + W log Σ|w| over the W weights that are not zero."""
    model = SBMLRClassifier(tol=1e-10).fit(data.X, data.y)
    X = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    weights = model.coef_[0] * data.X.std(axis=0)
    level = model.intercept_[0] + data.X.mean(axis=0) @ model.coef_[0]
    on = np.flatnonzero(weights)

    def objective(w: np.ndarray) -> float:
        loss = -log_expit(data.y * (X[:, on] @ w + level)).sum()
        return loss + on.size * np.log(np.abs(w).sum())

    best = objective(weights[on])
    for i in range(on.size):
        for change in (-1e-2, 1e-2):
            moved = weights[on].copy()
            moved[i] *= 1 + change
            assert objective(moved) > best - 1e-9


@pytest.mark.parametrize("sparsity", [1.0, 2.5, 6.0, 50.0])
def test_one_bit_weights_solve_their_programme(sparsity):
    rng = np.random.default_rng(0)
    correlation = rng.normal(size=8)
    ours = one_bit_weights(correlation, sparsity)
    assert np.linalg.norm(ours) <= 1 + 1e-12
    assert np.abs(ours).sum() <= np.sqrt(sparsity) + 1e-9
    constraints = [
        {"type": "ineq", "fun": lambda uv: 1 - np.sum((uv[:8] - uv[8:]) ** 2)},
        {"type": "ineq", "fun": lambda uv: np.sqrt(sparsity) - uv.sum()},
    ]
    found = minimize(
        lambda uv: -correlation @ (uv[:8] - uv[8:]),
        np.full(16, 0.05),
        bounds=[(0, None)] * 16,
        constraints=constraints,
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    assert_allclose(correlation @ ours, -found.fun, rtol=1e-5)


def test_one_bit_weights_without_signal_or_with_ties():
    assert not one_bit_weights(np.zeros(3), 2.0).any()
    assert_allclose(one_bit_weights(np.array([1.0, -1.0, 1.0, 1.0]), 1.0), [0.25, -0.25, 0.25, 0.25])


def test_the_mode_and_its_spread_are_those_of_the_posterior():
    rng = np.random.default_rng(0)
    columns, labels = rng.normal(size=(40, 3)), rng.choice([-1.0, 1.0], 40)
    precision = np.array([0.5, 2.0, 10.0])
    mode, spread = posterior_mode(columns, labels, precision, np.zeros(3))

    def minus_log(w: np.ndarray) -> float:
        return -log_expit(labels * (columns @ w)).sum() + 0.5 * precision @ w**2

    best = minimize(minus_log, np.zeros(3), tol=1e-12)
    assert_allclose(mode, best.x, atol=1e-5)
    step, curvature = 1e-4, np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            e, f = step * np.eye(3)[i], step * np.eye(3)[j]
            curvature[i, j] = (
                minus_log(mode + e + f)
                - minus_log(mode + e - f)
                - minus_log(mode - e + f)
                + minus_log(mode - e - f)
            ) / (4 * step**2)
    assert_allclose(spread, np.diag(np.linalg.inv(curvature)), rtol=1e-4)


def test_rvm_precisions_are_stationary_points_of_the_laplace_evidence():
    rng = np.random.default_rng(2)
    columns = rng.normal(size=(150, 5))
    labels = np.where(columns @ [2.0, -1.0, 0, 0, 0] + rng.logistic(size=150) > 0, 1.0, -1.0)
    kept, weights, precision, _, settled = relevance(columns, labels, 1e-8, 5000)
    assert settled
    assert {0, 1} <= set(kept)
    used = columns[:, kept]
    margin = labels * (used @ weights)
    bend = np.exp(log_expit(margin) + log_expit(-margin))

    # The data's part as the Gaussian that Laplace's method makes of it: MacKay's update is exact for it.
    def minus_evidence(log_precision: np.ndarray) -> float:
        a = np.exp(log_precision)
        information = (used * bend[:, None]).T @ used
        pseudo = information @ weights + used.T @ (labels * np.exp(log_expit(-margin)))
        inverse = np.linalg.inv(information + np.diag(a))
        return 0.5 * (-log_precision.sum() - np.linalg.slogdet(inverse)[1] - pseudo @ inverse @ pseudo)

    at = np.log(precision)
    for i in range(at.size):
        move = 1e-4 * np.eye(at.size)[i]
        slope = (minus_evidence(at + move) - minus_evidence(at - move)) / 2e-4
        assert abs(slope) < 1e-4


def test_rvm_keeps_few_samples_on_moons():
    X, y = make_moons(150, noise=0.2, random_state=0)
    model = RVMClassifier(gamma=2.0).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.n_kept_ < 20
    assert_array_equal(model.basis_, X[model.basis_indices_])
    assert_allclose(model.predict_proba(X).sum(axis=1), 1)


def test_an_unsettled_rvm_says_so(data):
    with pytest.warns(ConvergenceWarning, match="settled"):
        RVMClassifier(kernel=None, max_iter=2).fit(data.X, data.y)


def test_three_classes_are_refused(data):
    with pytest.raises(ValueError, match="OneVsRest"):
        OneBitCS().fit(data.X, np.arange(100) % 3)
