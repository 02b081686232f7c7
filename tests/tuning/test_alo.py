"""Leave-one-out of L1 fits is what refits without each sample say, also where one step would run away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from foldless.operators import operator_from
from foldless.solvers.smlr import L1, Labels, Regression, largest_rate, nothing, path
from foldless.solvers.smlr.newton_loo import NewtonLOO, scored


def problem_of(n_samples, n_features, n_classes, apart, seed):
    rng = np.random.default_rng(seed)
    code = np.arange(n_samples) % n_classes
    X = rng.normal(size=(n_samples, n_features)) + apart * np.eye(n_classes, n_features)[code]
    labels = Labels.of(code, n_classes, np.ones(n_samples))
    return Regression(operator_from((X - X.mean(axis=0)) / X.std(axis=0)), labels)


def refitted(problem, rates):
    """Log probabilities of each sample from fits without it, at every rate."""
    labels = problem.labels
    out = np.empty((len(rates), labels.code.size, labels.n_classes))
    for m in range(labels.code.size):
        weight = np.ones(labels.code.size)
        weight[m] = 0.0
        without = replace(problem, labels=replace(labels, sample_weight=weight))
        for i, fitted in enumerate(path(without, L1, rates)):
            eta = labels.full(fitted.scores[m : m + 1])[0]
            out[i, m] = eta - np.logaddexp.reduce(eta)
    return out


# Nearly separable: at the smallest rates a sample that stands in the way of its class moves far.
CASES = {"wide": (40, 150, 2, 1.5), "tall": (60, 4, 3, 2.5), "many classes": (50, 6, 4, 2.0)}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_log_loss_is_that_of_refits_down_to_the_smallest_rates(case, seed):
    problem = problem_of(*CASES[case], seed)
    ones = np.ones(problem.labels.code.size)
    rates = largest_rate(L1, nothing(problem)) * np.geomspace(0.5, 0.01, 5)
    exact = refitted(problem, rates)
    for fitted, log_proba in zip(path(problem, L1, rates), exact, strict=True):
        found = NewtonLOO(problem, ones).of(L1(fitted.rate), fitted)
        true = scored(log_proba, problem.labels.code, ones)
        assert_allclose(found.log_loss, true.log_loss, rtol=0.02)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_weights_and_intercept_nothing_moves(n_classes):
    problem = replace(problem_of(40, 5, n_classes, 1.0, 0), intercept=False)
    ones = np.ones(40)
    fitted = replace(nothing(problem), rate=1e3)
    found = NewtonLOO(problem, ones).of(L1(1e3), fitted)
    assert_allclose(found.log_loss, np.log(n_classes))


def test_the_only_sample_of_a_class_leaves_the_loss_finite():
    rng = np.random.default_rng(0)
    code = np.repeat([0, 1, 2], [20, 20, 1])
    X = rng.normal(size=(41, 5)) + code[:, np.newaxis]
    problem = Regression(operator_from(X), Labels.of(code, 3, np.ones(41)))
    rate = 0.3 * largest_rate(L1, nothing(problem))
    (fitted,) = path(problem, L1, np.array([rate]))
    found = NewtonLOO(problem, np.ones(41)).of(L1(rate), fitted)
    # Nobody else knows the class. One nat per sample is what guessing among three costs.
    assert np.argmax(found.log_proba[-1]) != 2
    assert found.log_loss < np.log(3)
