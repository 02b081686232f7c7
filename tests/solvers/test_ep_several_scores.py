"""EP with several scores: against SHyGAMP, against the ridge, leave-one-out against refits."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from foldless.channels import Multinomial
from foldless.operators import operator_from
from foldless.priors import Gaussian, RowSparse
from foldless.problem import Outcome, Problem
from foldless.solvers import EP, GAMP, Stopping, solve
from foldless.solvers.ep import left_out_groups
from foldless.solvers.multinomial_ridge import multinomial_ridge
from foldless.solvers.sites import share_of_way


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
    exact, simple = (solve(problem, solver, stopping=stopping) for solver in (EP(), GAMP()))
    assert exact.outcome is Outcome.CONVERGED
    largest = np.abs(exact.posterior.mean).max()
    assert_allclose(exact.posterior.mean, simple.posterior.mean, atol=0.1 * largest)
    assert exact.posterior.log_evidence == pytest.approx(simple.posterior.log_evidence, rel=0.02)
    size = np.linalg.norm(exact.posterior.mean, axis=1)
    assert set(np.argsort(-size)[:3]) == {0, 1, 2}


def test_correlated_columns_settle_and_only_the_right_ones_are_in():
    X, y = three_classes(n_samples=300, shared=0.7)
    prior = RowSparse(Gaussian(2.0), 0.2)
    solution = solve(a_problem(X, y, prior), EP(), stopping=Stopping(tol=1e-3, patience=60))
    assert solution.outcome.trustworthy
    posterior = solution.posterior
    inclusion = prior.inclusion_probability(posterior.cavity_mean, posterior.cavity_var)[:, 0]
    assert (inclusion[:3] > 0.95).all()
    assert (inclusion[3:] < 0.5).all()


def test_with_a_gaussian_prior_means_are_near_the_mode():
    X, y = three_classes(shared=0.5)
    solution = solve(a_problem(X, y, Gaussian(0.1)), EP(), stopping=Stopping(tol=1e-4))
    mode = multinomial_ridge(np.sqrt(0.1) * X, np.eye(3)[y], np.ones(200))
    means = X @ solution.posterior.mean
    assert np.corrcoef(means.ravel(), mode.scores.ravel())[0, 1] > 0.999
    assert_allclose(means, mode.scores, atol=0.1 * np.abs(mode.scores).max())


def correlated_classes(n_samples=240, n_features=120, seed=3):
    """Columns of ten factors, a few of which tell four classes apart: rows compete for what labels say."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((n_samples, 10))
    X = factors @ rng.standard_normal((10, n_features)) + 1.5 * rng.standard_normal((n_samples, n_features))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = np.argmax(3.0 * X[:, :8] @ rng.standard_normal((8, 4)) + rng.gumbel(size=(n_samples, 4)), axis=1)
    return X, y


def test_from_a_ridge_rows_settle_where_they_do_from_plain_parameters():
    X, y = correlated_classes()
    problem = Problem(
        operator_from(X), y + 1.0, np.ones(y.size), Multinomial(4), RowSparse(Gaussian(4.0), 10 / 120)
    )
    stopping, solver = Stopping(tol=2e-4), EP()
    plain = solve(problem, solver, stopping=stopping)
    variance = 1000.0 / X.shape[1]
    mode = multinomial_ridge(np.sqrt(variance) * X, np.eye(4)[y], np.ones(y.size))
    precision = np.full(X.shape[1], 1.0 / variance)
    start = solver.from_ridge(problem, np.arange(X.shape[1]), precision, mode.scores)
    after = solve(problem, solver, stopping=stopping, state=start)
    assert plain.outcome is Outcome.CONVERGED
    assert after.outcome is Outcome.CONVERGED
    # What is added to the weights of all classes no label can see, and only the prior pulls it in.
    found, known = (s.posterior.mean - s.posterior.mean.mean(axis=1, keepdims=True) for s in (after, plain))
    assert_allclose(found, known, atol=0.01 * np.abs(known).max())
    assert after.posterior.log_evidence == pytest.approx(plain.posterior.log_evidence, abs=0.05)


def test_factors_in_single_precision_make_the_same_scores():
    X, y = correlated_classes()
    problem = Problem(
        operator_from(X), y + 1.0, np.ones(y.size), Multinomial(4), RowSparse(Gaussian(4.0), 10 / 120)
    )
    stopping = Stopping(tol=1e-3, patience=60)
    double, single = (solve(problem, EP(single=single), stopping=stopping) for single in (False, True))
    assert single.outcome is Outcome.CONVERGED
    largest = np.abs(double.posterior.loo_mean).max()
    assert_allclose(single.posterior.loo_mean, double.posterior.loo_mean, atol=1e-3 * largest)
    inclusion = [
        problem.prior.inclusion_probability(found.posterior.cavity_mean, found.posterior.cavity_var)
        for found in (double, single)
    ]
    assert_allclose(inclusion[1], inclusion[0], atol=2e-3)


def test_a_step_of_factors_goes_the_same_share_of_a_factor_up_and_down():
    present, wanted = np.array([2.0, 2000.0, 3.0, -1.0, 0.0]), np.array([2000.0, 2.0, 3.0, 5.0, 4.0])
    share = share_of_way(present, wanted, 0.5)
    reached = present + share * (wanted - present)
    assert_allclose(reached[:2], np.sqrt(4000.0), rtol=1e-12)
    assert_allclose(share[2:], 0.5)


def log_densities_without(problem, left, stopping):
    """Of each of these labels, by a refit in which its sample has no weight; and the scores' means."""
    densities, means = [], []
    for m in left:
        weight = np.ones(problem.labels.size)
        weight[m] = 0.0
        refit = solve(problem.but(sample_weight=weight), EP(), stopping=stopping)
        densities.append(refit.loo_log_densities()[m])
        means.append(refit.posterior.loo_mean[m])
    return np.array(densities), np.array(means)


# The sites of other samples answer to a label that is taken out: what they say of a score depends, to first
# order, on the scores of all classes, and one class's Gaussian does not know those (the next test shows that
# this is all). Differences of D scores are stiffer by D/(D - 1) for it, if classes are equally probable.
# Cavities that leave this out, those of the state, go too far by three times as much and more.
@pytest.mark.parametrize(
    "prior", [RowSparse(Gaussian(1.0), 0.3), Gaussian(0.3)], ids=["row-sparse", "gaussian"]
)
def test_left_out_scores_are_refits_without_the_sample(prior):
    X, y = three_classes(n_samples=60, n_features=15, shared=0.5)
    stopping, left = Stopping(tol=1e-3), np.arange(0, 60, 4)
    whole = solve(a_problem(X, y, prior), EP(), stopping=stopping)
    refits, means = log_densities_without(whole.problem, left, stopping)
    losses = whole.loo_log_densities()[left]
    scores = whole.state.gaussian.scores[:2]
    trained = whole.problem.channel.respond(*scores, y + 1.0).log_z[left]
    assert abs(np.mean(refits) - np.mean(losses)) < 0.1 * (np.mean(trained) - np.mean(refits))
    assert np.corrcoef(losses, refits)[0, 1] > 0.995
    off, off_alone = (
        np.sqrt(np.mean((found[left] - means) ** 2))
        for found in (whole.posterior.loo_mean, whole.state.score_cavity_mean)
    )
    assert off < 0.5 * off_alone


def test_with_what_classes_say_to_each_other_cavities_are_refits():
    """Full curvatures of every label, and the linear answer of all classes' scores to one of them less.

    Three classes' curvatures sum to zero along rows, so that those between classes follow from their own.
    Cavities alone are off by twenty times as much.
    """
    n_samples, n_classes = 60, 3
    X, y = three_classes(n_samples=n_samples, n_features=15, shared=0.5)
    problem = a_problem(X, y, Gaussian(0.3))
    stopping, left = Stopping(tol=1e-4), np.arange(0, n_samples, 10)
    state = solve(problem, EP(), stopping=stopping).state
    at, sites = state.score_cavities, state.sites
    response = problem.channel.respond(at.mean, at.var, problem.labels)
    curvature = np.stack([np.diag(own) for own in response.curvature])
    for i, j, k in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
        own = response.curvature
        curvature[:, i, j] = curvature[:, j, i] = 0.5 * (own[:, k] - own[:, i] - own[:, j])
    identity = np.eye(n_classes)
    full = np.array(
        [c @ np.linalg.inv(identity - v[:, None] * c) for c, v in zip(curvature, at.var, strict=True)]
    )
    # Scores (sample, class) under sites of one class each, then with those between classes.
    alone = np.zeros((n_samples, n_classes, n_samples, n_classes))
    between = np.zeros_like(alone)
    for k, site in enumerate(sites.of_scores()):
        precision = np.diag(site.prior_precision) + X.T @ (site.label_precision[:, None] * X)
        alone[:, k, :, k] = X @ np.linalg.solve(precision, X.T)
    for m in range(n_samples):
        between[m, :, m] = full[m] - np.diag(sites.label_precision[m])
    alone, between = (matrix.reshape(n_samples * n_classes, -1) for matrix in (alone, between))
    joint = np.linalg.solve(np.eye(n_samples * n_classes) + alone @ between, alone)
    joint = joint.reshape(n_samples, n_classes, n_samples, n_classes)
    score_mean = state.gaussian.scores.mean
    found = np.array(
        [
            score_mean[m]
            - np.linalg.solve(identity - joint[m, :, m] @ full[m], joint[m, :, m] @ response.slope[m])
            for m in left
        ]
    )
    _, refits = log_densities_without(problem, left, stopping)
    off, off_alone = (np.sqrt(np.mean((means - refits) ** 2)) for means in (found, at.mean[left]))
    assert off < 0.1 * off_alone
    assert off < 0.02


def test_groups_are_refits_without_the_group():
    X, y = three_classes(n_samples=90, n_features=15, shared=0.5)
    prior, stopping = RowSparse(Gaussian(1.0), 0.3), Stopping(tol=1e-3)
    group = np.arange(90) // 15
    whole = solve(a_problem(X, y, prior), EP(), stopping=stopping)
    mean, var = left_out_groups(whole.problem, whole.state, group)
    own = Multinomial(3).respond(mean, var, y + 1.0).log_z
    refits = np.empty(90)
    for number in range(3):
        inside = group == number
        weight = np.where(inside, 0.0, 1.0)
        refit = solve(a_problem(X, y, prior, weight), EP(), stopping=stopping)
        refits[inside] = refit.loo_log_densities()[inside]
    seen = group < 3
    assert abs(np.mean(own[seen]) - np.mean(refits[seen])) < 0.02
    assert np.corrcoef(own[seen], refits[seen])[0, 1] > 0.98


def test_it_goes_on_from_beliefs_of_gamp():
    X, y = three_classes(n_samples=60, n_features=15)
    problem, stopping = a_problem(X, y, RowSparse(Gaussian(1.0), 0.3)), Stopping(tol=1e-5)
    gamp, cold = (solve(problem, solver, stopping=stopping) for solver in (GAMP(), EP()))
    start = EP().from_state(problem, gamp.state)
    largest = np.abs(cold.posterior.mean).max()
    assert np.abs(start.gaussian.mean - gamp.posterior.mean).max() < 0.2 * largest
    warm = solve(problem, EP(), stopping=stopping, state=start)
    assert warm.outcome is Outcome.CONVERGED
    assert len(warm.history) < len(cold.history)
    assert_allclose(warm.posterior.mean, cold.posterior.mean, atol=1e-3 * largest)
