"""Orders and projections of panels, and tests of single features, against what others compute."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp
from scipy.stats import f_oneway, false_discovery_control, ttest_ind
from sklearn.metrics import roc_auc_score

from foldless.operators import Standardized, operator_from
from foldless.selection.marginal import areas, class_sums, q_values
from foldless.selection.panel import (
    Target,
    divergence,
    forward_order,
    importances,
    ordered,
    projected,
    stand_ins,
)


def task(n_samples=60, n_features=40, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features)) + rng.standard_normal((n_samples, 1))
    scores = X[:, : n_classes - 1] - X[:, [5]]
    scores = np.column_stack([np.zeros(n_samples), 2 * scores])
    codes = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    weight = rng.integers(1, 4, n_samples).astype(float)
    return Standardized.fit(operator_from(X), weight), codes, Target.of(log_softmax(scores, axis=1), weight)


def test_every_step_adds_the_most():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 20)) + rng.standard_normal((50, 1))
    y = X @ rng.standard_normal((20, 2)) + rng.standard_normal((50, 2))
    order = forward_order(X, y, 6)
    # A ridge is more rows.
    ridge = np.sqrt(np.max(np.sum(X**2, axis=0)))
    rows, target = np.vstack([X, ridge * np.eye(20)]), np.vstack([y, np.zeros((20, 2))])

    def left(columns):
        return np.sum((target - rows[:, columns] @ np.linalg.lstsq(rows[:, columns], target)[0]) ** 2)

    for n in range(6):
        others = np.setdiff1d(np.arange(20), order[:n])
        assert order[n] == others[np.argmin([left([*order[:n], j]) for j in others])]


def test_twins_enter_one_after_the_other():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((40, 10))
    X[:, 7] = X[:, 2]
    order = forward_order(X, X[:, [2]] + 0.1 * X[:, [4]], 3).tolist()
    assert order[:2] == [2, 7]


def test_importance_is_marginal_times_conditional():
    standardized, codes, target = task(n_classes=3)
    weights = np.random.default_rng(0).standard_normal((40, 2))
    weights[3] = 0.0
    found = importances(standardized, codes, target, weights)
    size = np.linalg.norm(weights, axis=1)
    size[3] = 1e-3 * size.max()  # few weights are an order of all features
    marginal = class_sums(standardized, codes, target.weight, 3).ratio
    assert_allclose(found, np.sqrt(marginal) * size)
    assert_allclose(importances(standardized, codes, target, 0 * weights), np.sqrt(marginal))
    assert importances(standardized, codes, target, None).argmax() in (0, 1, 5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_projection_maximises_what_it_says(n_classes):
    standardized, _, target = task(n_classes=n_classes)
    columns = standardized.columns([0, 1, 5])
    ratio = np.array([1.0, 2.0, 6.0])
    found = projected(columns, target, ratio)
    variance = target.score_variance / 3.0 * ratio[:, np.newaxis] / 3.0
    proba = np.exp(target.log_proba)

    def loss(flat):
        weights = flat.reshape(4, n_classes)
        scores = columns @ weights[:3] + weights[3]
        own = np.sum(proba * scores, axis=1) - logsumexp(scores, axis=1)
        prior = np.sum(weights[:3] ** 2 / variance) + np.sum(weights[3] ** 2) / 100.0
        return 0.5 * prior - target.weight @ own

    start = np.zeros(4 * n_classes)
    best = minimize(loss, start, method="BFGS", options={"gtol": 1e-7})
    reached = loss(np.vstack([found.weights, found.intercept]).ravel())
    assert reached - best.fun < 1e-4
    assert reached < loss(start) - 1.0
    assert_allclose(found.weights, best.x.reshape(4, -1)[:3], atol=5e-3)
    assert (
        0
        < divergence(found, columns, target)
        < divergence(projected(columns[:, :1], target, ratio[:1]), columns[:, :1], target)
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_where_a_projection_starts_does_not_matter(n_classes):
    standardized, _, target = task(n_classes=n_classes)
    columns, ratio = standardized.columns([0, 1, 5]), np.array([1.0, 2.0, 6.0])
    found = projected(columns, target, ratio)
    for start in (found, projected(columns[:, :2], target, ratio[:2])):
        assert_allclose(projected(columns, target, ratio, start).weights, found.weights, atol=5e-3)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_features_behind_the_scores_come_first(n_classes):
    standardized, codes, target = task(300, 60, n_classes)
    order = ordered(standardized, codes, target, None, np.array([], dtype=np.intp), 8)
    assert {*range(n_classes - 1), 5} <= set(order.features[: n_classes + 1].tolist())


def test_what_is_kept_is_not_ordered_and_explains_its_share():
    standardized, codes, target = task(200, 30)
    order = ordered(standardized, codes, target, None, np.array([0]), 5)
    assert 0 not in order.features
    assert order.features[0] == 5


def test_stand_ins_have_the_loss_of_a_refit():
    standardized, codes, target = task(100, 40)
    order = ordered(standardized, codes, target, None, np.array([], dtype=np.intp), 4)
    members = order.features[:3]
    columns = standardized.columns(members)
    ratio = order.importance[members]
    found = stand_ins(columns, ratio, members, order, target)
    assert list(found) == members.tolist()
    whole = projected(columns, target, ratio)
    start = divergence(whole, columns, target)
    for n, member in enumerate(members):
        best = found[int(member)][0]
        assert best.feature not in members
        losses = []
        for j in np.setdiff1d(np.arange(40), members):
            swapped = columns.copy()
            swapped[:, n] = standardized.columns([j])[:, 0]
            losses.append(divergence(projected(swapped, target, ratio, whole), swapped, target) - start)
        # Only the first few by a first-order loss are refitted.
        assert best.loss <= np.sort(losses)[2] + 1e-6
        assert best.loss >= min(losses) - 1e-9


@pytest.mark.parametrize("n_classes", [2, 3])
def test_single_features_are_tested_as_scipy_does(n_classes):
    rng = np.random.default_rng(0)
    codes = np.arange(45) % n_classes
    X = np.round(rng.standard_normal((45, 8)) + codes[:, np.newaxis] * np.linspace(0, 1, 8), 1)
    ones = np.ones(45)
    found = class_sums(Standardized.fit(operator_from(X), ones), codes, ones, n_classes)
    classes = [X[codes == c] for c in range(n_classes)]
    assert_allclose(found.p_value, f_oneway(*classes).pvalue, rtol=1e-9)
    assert_allclose(q_values(found.p_value), false_discovery_control(found.p_value), rtol=1e-9)
    area = areas(operator_from(X), codes, n_classes, ones)
    if n_classes == 2:
        tested = ttest_ind(classes[1], classes[0])
        assert_allclose(found.ratio, tested.statistic**2, rtol=1e-9)
        spread = np.sqrt(sum(c.var(axis=0) * len(c) for c in classes) / 43)
        assert_allclose(found.difference, (classes[1].mean(0) - classes[0].mean(0)) / spread, rtol=1e-9)
        assert_allclose(area, [roc_auc_score(codes, x) for x in X.T], rtol=1e-12)
    else:
        each = np.array([[roc_auc_score(codes == c, x) for x in X.T] for c in range(3)])
        assert_allclose(np.abs(area - 0.5), np.abs(each - 0.5).max(axis=0), rtol=1e-9)
