"""HyGAMP: full covariances against one score, against SHyGAMP, against the lasso; priors of rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from foldless.channels import Logistic, Multinomial
from foldless.operators import operator_from
from foldless.priors import Blocks, Gaussian, GaussianMixture, Laplace, MultivariateGaussian, RowSparse
from foldless.priors.laplace import l1_rows
from foldless.problem import Outcome, Problem
from foldless.solvers import GAMP, HyGAMP, Stopping, solve
from reference.scikit_learn import mixed_penalty


def three_classes(n_samples=200, n_features=40, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features))
    return X, np.argmax(1.5 * X[:, :3] + rng.gumbel(size=(n_samples, 3)), axis=1)


def a_problem(X, y, prior, n_classes=3):
    return Problem(operator_from(X), y + 1.0, np.ones(len(y)), Multinomial(n_classes), prior)


@pytest.mark.parametrize("variances", ["rank-one", "uniform", "per-coordinate"])
def test_two_classes_are_the_logistic_channel(variances):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 60))
    y = (X[:, 0] + 0.5 * rng.standard_normal(150) > 0).astype(int)
    stopping = Stopping(tol=1e-5)
    binary = solve(
        Problem(operator_from(X), 2.0 * y - 1, np.ones(150), Logistic(), Gaussian(0.2)),
        GAMP(variances=variances),
        stopping=stopping,
    )
    full = solve(a_problem(X, y, Gaussian(0.1), 2), HyGAMP(variances=variances), stopping=stopping)
    assert full.outcome is Outcome.CONVERGED
    difference = full.posterior.mean[:, 1] - full.posterior.mean[:, 0]
    largest = np.abs(binary.posterior.mean).max()
    assert_allclose(difference, binary.posterior.mean, atol=0.01 * largest)
    # Nothing is said of the sum, whose weights keep their prior.
    assert_allclose(full.posterior.mean.sum(axis=1), 0, atol=1e-3 * largest)
    spread = np.array([1.0, -1.0]) @ full.state.weight_cov @ np.array([1.0, -1.0])
    assert_allclose(spread, binary.posterior.var, rtol=0.01)
    assert full.posterior.log_evidence == pytest.approx(binary.posterior.log_evidence, abs=0.3)


def test_max_sum_reaches_the_multinomial_lasso_as_shygamp_does():
    X, y = three_classes()
    rate, stopping = 10.0, Stopping(tol=1e-7, max_iter=2000)
    saga = LogisticRegression(
        **mixed_penalty(1.0), C=1 / rate, solver="saga", fit_intercept=False, tol=1e-8, max_iter=20_000
    ).fit(X, y)

    def objective(weights):
        loss = -log_softmax(X @ weights, axis=1)[np.arange(len(y)), y].sum()
        return loss + rate * np.abs(weights).sum()

    problem = a_problem(X, y, Laplace(rate))
    best = objective(saga.coef_.T)
    found = {}
    for solver in (GAMP(rule="max-sum"), GAMP(rule="max-sum", variances="uniform"), HyGAMP(rule="max-sum")):
        solution = solve(problem, solver, stopping=stopping)
        found[repr(solver)] = solution.posterior.mean
        assert objective(solution.posterior.mean) <= best * (1 + 1e-4)
        assert 0.3 < (solution.posterior.mean == 0).mean() < 1
    first, *others = found.values()
    for other in others:
        assert_allclose(other, first, atol=2e-3)


def test_ridge_modes_agree_and_means_nearly_do():
    X, y = three_classes()
    problem, stopping = a_problem(X, y, Gaussian(0.3)), Stopping(tol=1e-6, max_iter=1000)
    simple, full = (solve(problem, s("max-sum"), stopping=stopping) for s in (GAMP, HyGAMP))
    assert_allclose(full.posterior.mean, simple.posterior.mean, atol=1e-4)
    simple, full = (solve(problem, s(), stopping=Stopping(tol=1e-4)) for s in (GAMP, HyGAMP))
    largest = np.abs(full.posterior.mean).max()
    # What leaving covariances between classes out costs SHyGAMP: 0.06 of the largest weight here.
    assert_allclose(simple.posterior.mean, full.posterior.mean, atol=0.1 * largest)
    assert np.corrcoef(simple.posterior.mean.ravel(), full.posterior.mean.ravel())[0, 1] > 0.998


def test_an_independent_multivariate_gaussian_is_the_gaussian():
    X, y = three_classes(100, 20)
    stopping = Stopping(tol=1e-5)
    for solver in (GAMP(), HyGAMP()):
        plain = solve(a_problem(X, y, Gaussian(0.3)), solver, stopping=stopping)
        whole = solve(a_problem(X, y, MultivariateGaussian(0.3 * np.eye(3))), solver, stopping=stopping)
        assert_allclose(whole.posterior.mean, plain.posterior.mean, atol=1e-6)
        assert whole.posterior.log_evidence == pytest.approx(plain.posterior.log_evidence, rel=1e-6)
    together = 0.3 * (np.eye(3) + 5.0)
    # A common shift of a feature's weights is invisible to labels, however probable it is.
    shifted = solve(a_problem(X, y, MultivariateGaussian(together)), HyGAMP(), stopping=stopping)
    assert_allclose(shifted.posterior.mean, whole.posterior.mean, atol=0.02)


def test_row_sparse_selects_and_blocks_keep_an_intercept():
    X, y = three_classes(300, 60)
    X = np.column_stack([X, np.ones(300)])
    prior = Blocks(RowSparse(Gaussian(1.0), 0.1), ((slice(-1, None), Gaussian(10.0)),))
    solution = solve(a_problem(X, y, prior), HyGAMP(), stopping=Stopping(tol=1e-4))
    assert solution.outcome.trustworthy
    size = np.linalg.norm(solution.posterior.mean[:-1], axis=1)
    assert set(np.argsort(-size)[:3]) == {0, 1, 2}
    assert size[3:].max() < 0.3 * size[:3].min()


def test_moments_of_rows_are_derivatives_of_log_z():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((5, 3, 3))
    precision = root @ root.transpose(0, 2, 1)
    shift = rng.standard_normal((5, 3))
    slab = MultivariateGaussian([[1.0, 0.5, 0.0], [0.5, 2.0, -0.3], [0.0, -0.3, 0.7]])
    step = 1e-4
    for prior in (Gaussian(0.7, mean=0.4), slab, RowSparse(slab, 0.2), RowSparse(Gaussian(1.5), 0.4)):
        mean, cov, _ = prior.tilted_rows(shift, precision)
        for k in range(3):
            up, down = shift.copy(), shift.copy()
            up[:, k] += step
            down[:, k] -= step
            above, below = prior.tilted_rows(up, precision), prior.tilted_rows(down, precision)
            assert_allclose((above.log_z - below.log_z) / (2 * step), mean[:, k], atol=1e-6)
            assert_allclose((above.mean - below.mean) / (2 * step), cov[:, :, k], atol=1e-6)


def test_marginals_of_the_multivariate_gaussian_are_derivatives_of_log_z():
    rng = np.random.default_rng(1)
    prior = MultivariateGaussian([[1.0, 0.5], [0.5, 2.0]])
    r, tau, step = rng.standard_normal((4, 2)), rng.uniform(0.2, 2.0, (4, 2)), 1e-4
    tilted = prior.tilted(r, tau)
    for k in range(2):
        up, down = r.copy(), r.copy()
        up[:, k] += step
        down[:, k] -= step
        above, at, below = (prior.tilted(x, tau).log_z.sum(axis=1) for x in (up, r, down))
        assert_allclose(tilted.mean[:, k], r[:, k] + tau[:, k] * (above - below) / (2 * step), atol=1e-6)
        curvature = (above - 2 * at + below) / step**2
        assert_allclose(tilted.var[:, k], tau[:, k] + tau[:, k] ** 2 * curvature, atol=1e-5)


def test_em_finds_the_covariance_weights_were_drawn_with():
    rng = np.random.default_rng(2)
    truth = np.array([[1.0, 0.8], [0.8, 1.5]])
    weights = rng.multivariate_normal(np.zeros(2), truth, size=20_000)
    cavity = weights + np.sqrt(0.3) * rng.standard_normal(weights.shape)
    prior = MultivariateGaussian(np.eye(2))
    for _ in range(30):
        prior = prior.em_update(cavity, np.full_like(cavity, 0.3))
    assert_allclose(prior.covariance, truth, atol=0.05)


def test_lasso_of_rows_is_stationary():
    rng = np.random.default_rng(3)
    root = rng.standard_normal((50, 4, 4))
    precision = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(4)
    shift, rate = 3 * rng.standard_normal((50, 4)), 1.0
    weights, cov, _ = l1_rows(shift, precision, rate)
    slope = shift - np.einsum("nij,nj->ni", precision, weights)
    assert_allclose(slope[weights != 0], rate * np.sign(weights[weights != 0]), atol=1e-5)
    assert (np.abs(slope) <= rate + 1e-5).all()
    assert 0 < (weights == 0).mean() < 1
    # cov is the derivative of the weights by the shift, where zeros stay.
    step = 1e-6
    moved = l1_rows(shift + step * np.eye(4)[0], precision, rate).mean
    assert_allclose((moved - weights) / step, cov[:, :, 0], atol=1e-3 * np.abs(cov).max())


def test_what_hygamp_needs_is_said():
    X, y = three_classes(30, 5)
    with pytest.raises(ValueError, match="tilted_rows"):
        HyGAMP().init(a_problem(X, y, GaussianMixture()))
    with pytest.raises(ValueError, match="proximal_rows"):
        HyGAMP(rule="max-sum").init(a_problem(X, y, RowSparse()))
    with pytest.raises(ValueError, match="Multinomial"):
        HyGAMP().init(Problem(operator_from(X), np.ones(30), np.ones(30), Logistic(), Gaussian()))
    with pytest.raises(ValueError, match="positive definite"):
        MultivariateGaussian([[1.0, 2.0], [2.0, 1.0]])
