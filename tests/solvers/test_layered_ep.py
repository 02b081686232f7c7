"""EP with a layer for each class: against SHyGAMP, against the ridge, leave-one-out against refits."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from foldless.channels import Logistic, Multinomial
from foldless.operators import operator_from
from foldless.priors import Gaussian, RowSparse
from foldless.problem import Problem
from foldless.solution import Outcome
from foldless.solvers import GAMP, LayeredEP, Stopping, solve
from foldless.solvers.layered_ep import left_out_groups
from foldless.solvers.multinomial_ridge import multinomial_ridge
from foldless.tuning.loo import loo_log_densities


def three_classes(n_samples=200, n_features=25, seed=0, shared=0.0):
    """Columns with a common part, `shared` of their variance; the first three tell the classes apart."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((n_samples, 1))
    X = np.sqrt(shared) * common + np.sqrt(1 - shared) * rng.standard_normal((n_samples, n_features))
    return X, np.argmax(1.5 * X[:, :3] + rng.gumbel(size=(n_samples, 3)), axis=1)


def a_problem(X, y, prior, weight=None):
    weight = np.ones(len(y)) if weight is None else weight
    return Problem(operator_from(X), y + 1.0, weight, Multinomial(3), prior)


@pytest.mark.parametrize("n_features", [25, 250])
def test_independent_columns_are_fitted_as_by_shygamp(n_features):
    X, y = three_classes(n_features=n_features)
    problem, stopping = a_problem(X, y, RowSparse(Gaussian(1.0), 0.1)), Stopping(tol=1e-3)
    exact, simple = (solve(problem, solver, stopping=stopping) for solver in (LayeredEP(), GAMP()))
    assert exact.outcome is Outcome.CONVERGED
    largest = np.abs(exact.posterior.mean).max()
    assert_allclose(exact.posterior.mean, simple.posterior.mean, atol=0.1 * largest)
    assert exact.posterior.log_evidence == pytest.approx(simple.posterior.log_evidence, rel=0.02)
    size = np.linalg.norm(exact.posterior.mean, axis=1)
    assert set(np.argsort(-size)[:3]) == {0, 1, 2}


def test_correlated_columns_settle_and_only_the_right_ones_are_in():
    X, y = three_classes(n_samples=300, shared=0.7)
    prior = RowSparse(Gaussian(2.0), 0.2)
    solution = solve(a_problem(X, y, prior), LayeredEP(), stopping=Stopping(tol=1e-3, patience=60))
    assert solution.outcome.trustworthy
    posterior = solution.posterior
    inclusion = prior.inclusion_probability(posterior.cavity_mean, posterior.cavity_var)[:, 0]
    assert (inclusion[:3] > 0.95).all()
    assert (inclusion[3:] < 0.5).all()


def test_with_a_gaussian_prior_means_are_near_the_mode():
    X, y = three_classes(shared=0.5)
    solution = solve(a_problem(X, y, Gaussian(0.1)), LayeredEP(), stopping=Stopping(tol=1e-4))
    mode = multinomial_ridge(np.sqrt(0.1) * X, np.eye(3)[y], np.ones(200))
    means = X @ solution.posterior.mean
    assert np.corrcoef(means.ravel(), mode.scores.ravel())[0, 1] > 0.999
    assert_allclose(means, mode.scores, atol=0.1 * np.abs(mode.scores).max())


def test_cavities_are_refits_without_the_sample():
    X, y = three_classes(n_samples=60, n_features=15, shared=0.5)
    prior, stopping = RowSparse(Gaussian(1.0), 0.3), Stopping(tol=1e-3)
    whole = solve(a_problem(X, y, prior), LayeredEP(), stopping=stopping)
    left = np.arange(0, 60, 4)
    refits = []
    for m in left:
        weight = np.ones(60)
        weight[m] = 0.0
        refit = solve(a_problem(X, y, prior, weight), LayeredEP(), stopping=stopping)
        refits.append(loo_log_densities(refit)[m])
    losses = loo_log_densities(whole)[left]
    channel = whole.problem.channel
    score_mean = np.column_stack([g.score_mean for g in whole.state.gaussians])
    score_var = np.column_stack([g.score_var for g in whole.state.gaussians])
    trained = channel.respond(score_mean, score_var, y + 1.0).log_z[left]
    # Each class's site takes a label out as though the others' had not: cavities are pessimistic, by 0.35 of
    # the optimism of training here, and in the right order.
    assert 0 <= np.mean(refits) - np.mean(losses) < 0.4 * (np.mean(trained) - np.mean(refits))
    assert np.corrcoef(losses, refits)[0, 1] > 0.99


def test_groups_are_refits_without_the_group():
    X, y = three_classes(n_samples=90, n_features=15, shared=0.5)
    prior, stopping = RowSparse(Gaussian(1.0), 0.3), Stopping(tol=1e-3)
    group = np.arange(90) // 15
    whole = solve(a_problem(X, y, prior), LayeredEP(), stopping=stopping)
    mean, var = left_out_groups(whole.problem, whole.state, group)
    own = Multinomial(3).respond(mean, var, y + 1.0).log_z
    refits = np.empty(90)
    for number in range(3):
        inside = group == number
        weight = np.where(inside, 0.0, 1.0)
        refit = solve(a_problem(X, y, prior, weight), LayeredEP(), stopping=stopping)
        refits[inside] = loo_log_densities(refit)[inside]
    seen = group < 3
    assert abs(np.mean(own[seen]) - np.mean(refits[seen])) < 0.02
    assert np.corrcoef(own[seen], refits[seen])[0, 1] > 0.98


def test_one_score_is_for_ep():
    X, y = three_classes(30, 5)
    with pytest.raises(ValueError, match="use EP"):
        LayeredEP().init(Problem(operator_from(X), np.sign(y - 0.5), np.ones(30), Logistic(), Gaussian()))
