"""A sparse model over few columns: they are the right ones, and the others are judged as by all columns."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from foldless.channels import Logistic, Multinomial
from foldless.operators import Dense
from foldless.priors import PRIORS, Gaussian
from foldless.problem import Outcome
from foldless.solvers import EP, Stopping, few_columns, solve
from foldless.solvers.few_columns import forward_selected, solve_few
from foldless.tuning.table import assembled
from reference.planned import table_of


def factors(n_samples, n_features, n_classes, seed):
    """Columns of five common factors, of which six matter; labels 1 to D, or -1 and +1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, 5)) @ rng.standard_normal((5, n_features))
    X = X / X.std(axis=0) + rng.standard_normal((n_samples, n_features))
    true = rng.choice(n_features, 6, replace=False)
    scores = X[:, true] @ rng.normal(0, 1.5, (6, n_classes))
    y = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1) + 1.0
    return X, (2.0 * y - 3.0 if n_classes == 2 else y)


def problem_of(n_samples, n_features, n_classes, seed):
    X, y = factors(n_samples, n_features, n_classes, seed)
    table = table_of(X, y)
    prior = PRIORS["spike-and-slab" if n_classes == 2 else "row-sparse"](slab=Gaussian(4.0), inclusion=0.1)
    problem = assembled(table, Logistic() if n_classes == 2 else Multinomial(n_classes), prior)
    return problem, np.append(table.free, False)


def by_ep(problem):
    return solve(problem, EP(), stopping=Stopping(tol=1e-3, max_iter=300, patience=60))


def test_columns_are_those_of_least_squares_one_after_the_other():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 12)) @ rng.standard_normal((12, 12))
    targets, weight = rng.standard_normal((80, 3)), rng.uniform(0.5, 2.0, 80)
    allowed = np.arange(12) != 4
    found = forward_selected(Dense(X), targets, weight, allowed, np.array([2]), 4)
    chosen, root = [2], np.sqrt(weight)[:, np.newaxis]
    for _ in range(4):
        left = {}
        for j in set(range(12)) - {4, *chosen}:
            inside = root * X[:, [*chosen, j]]
            fitted = inside @ np.linalg.lstsq(inside, root * targets, rcond=None)[0]
            left[j] = np.sum((root * targets - fitted) ** 2)
        chosen.append(min(left, key=left.get))
    assert_array_equal(found, np.sort(chosen[1:]))


def test_twins_are_not_both_chosen():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    X = np.hstack([X, X + 1e-3 * rng.standard_normal((60, 3))])
    found = forward_selected(
        Dense(X), X[:, :3], np.ones(60), np.ones(6, dtype=bool), np.array([], dtype=int), 6
    )
    assert_array_equal(np.sort(found % 3), [0, 1, 2])


def test_neighbours_are_the_most_correlated_columns():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 9))
    X[:, 5], X[:, 7] = X[:, 1] + 0.3 * X[:, 5], X[:, 1] + 0.6 * X[:, 7]
    allowed, nothing = np.arange(9) != 5, np.array([], dtype=int)
    found = [
        forward_selected(Dense(X), X[:, [1]], np.ones(200), which, nothing, 1, 1)
        for which in (allowed, allowed | True)
    ]
    assert_array_equal(found[0], [1, 7])
    assert_array_equal(found[1], [1, 5])


def test_of_columns_that_are_alike_none_is_sure():
    """Of two columns that are nearly the same either could matter; without its neighbour one is sure."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 30))
    X[:, 15:] = X[:, :15] + 0.02 * rng.standard_normal((500, 15))
    y = np.where(1.5 * X[:, 0] - X[:, 1] + rng.logistic(size=500) > 0, 1.0, -1.0)
    table = table_of(X, y)
    prior = PRIORS["spike-and-slab"](slab=Gaussian(4.0), inclusion=0.1)
    problem = assembled(table, Logistic(), prior)
    sure = []
    for n_neighbours in (0, 1):
        at = solve_few(problem, by_ep, 6, n_neighbours).posterior
        sure.append(problem.prior.inclusion_probability(at.cavity_mean, at.cavity_var)[[0, 15]])
    assert sure[0].max() > 0.99
    assert sure[1].max() < 0.9


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_inclusion_is_that_of_a_model_of_all_columns(n_classes, seed):
    problem, allowed = problem_of(800, 60, n_classes, seed)
    few, whole = solve_few(problem, by_ep, 20), by_ep(problem)
    assert few.outcome.trustworthy
    assert whole.outcome.trustworthy
    probability = [
        problem.prior.inclusion_probability(s.posterior.cavity_mean, s.posterior.cavity_var)[allowed]
        for s in (few, whole)
    ]
    assert_allclose(*probability, atol=0.1)
    # Of several classes only differences of weights are determined.
    means = [s.posterior.mean.reshape(61, -1) for s in (few, whole)]
    assert_allclose(*(m - m.mean(axis=1, keepdims=True) * (n_classes > 2) for m in means), atol=0.1)
    assert_allclose(few.loo_log_loss(), whole.loo_log_loss(), atol=0.005)
    # The sites of all columns are where a model of these goes on from, and it hardly moves.
    after = EP().step(problem, EP().as_start(few.state))
    assert after.change < 0.05


def test_what_does_not_settle_leaves_the_answer_before():
    problem, _ = problem_of(400, 40, 2, 0)
    first = solve_few(problem, by_ep, 2)
    asked = []

    def once(small):
        asked.append(small.operator.shape[1])
        found = by_ep(small)
        return found if len(asked) == 1 else few_columns.replace(found, outcome=Outcome.DIVERGED)

    found = solve_few(problem, once, 2)
    assert len(asked) == 2
    assert found.outcome.trustworthy
    # Two and the intercept.
    assert np.count_nonzero(found.posterior.mean) == 3 < np.count_nonzero(first.posterior.mean)
