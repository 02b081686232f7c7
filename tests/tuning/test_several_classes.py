"""Several classes: SHyGAMP against the binary solver and the lasso, class means."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from foldless import SparseClassifier
from foldless.channels import Logistic, Multinomial
from foldless.operators import operator_from
from foldless.priors import Blocks, Gaussian, Laplace, RowSparse, SpikeAndSlab
from foldless.problem import Outcome, Problem
from foldless.solvers import GAMP, Stopping, solve
from foldless.tuning.class_means import class_means, starting_count
from foldless.tuning.fit import Choices, fit_tuned
from foldless.tuning.record import Recorder
from reference.planned import table_of
from reference.scikit_learn import mixed_penalty


def shifted_classes(n_samples=120, n_features=300, n_active=6, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    means = np.zeros((n_classes, n_features))
    means[:, :n_active] = rng.normal(0, 1.0, (n_classes, n_active))
    y = np.arange(n_samples) % n_classes
    return means[y] + rng.standard_normal((n_samples, n_features)), y


def test_wrong_labels_of_four_classes_are_seen_through():
    """Of 1600 labels 40 % are any of the other three."""
    rng = np.random.default_rng(0)
    means = 0.5 * np.tile([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], (1, 8))
    true, new = np.arange(1600) % 4, np.arange(2000) % 4
    X, more = (means[y] + rng.standard_normal((y.size, 32)) for y in (true, new))
    wrong = rng.permutation(1600) < 640
    model = SparseClassifier().fit(X, np.where(wrong, (true + rng.integers(1, 4, 1600)) % 4, true))
    facts = model.plan_.facts
    assert facts.spectral_excess > 1.5 > 1.25 > facts.excess_beside
    assert facts.class_tails < -3 < 3 < facts.class_gap
    best = np.mean((more @ means.T).argmax(axis=1) != new)
    assert np.mean(model.predict(more) != new) < best + 0.01
    assert abs(model.flip_rate_ - 0.4) < 0.03
    assert np.mean((model.mislabel_probability_ > 0.5) == wrong) > 0.95


def test_two_scores_are_nearly_one_score_of_twice_the_variance():
    """softmax of (z₁, z₂) with w ~ N(0, v) each is the logistic of z₂ - z₁ with w ~ N(0, 2v).

    Diagonal covariances ignore that labels inform the difference only, so SHyGAMP's sum-product is off by
    0.066 of the largest weight here. That is the approximation: HyGAMP, which keeps the covariances, is the
    logistic channel to 1 % (tests/solvers/test_hygamp.py). Max-sum has no covariances in its fixed point and
    is exact.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 60))
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(150) > 0, 1.0, -1.0)
    operator, ones, stopping = operator_from(X), np.ones(150), Stopping(tol=1e-6)
    binary = solve(Problem(operator, y, ones, Logistic(), Gaussian(0.2)), GAMP(), stopping=stopping)
    many = solve(
        Problem(operator, (y + 3) / 2, ones, Multinomial(2), Gaussian(0.1)), GAMP(), stopping=stopping
    )
    assert many.outcome is Outcome.CONVERGED
    difference = many.posterior.mean[:, 1] - many.posterior.mean[:, 0]
    assert_allclose(difference, binary.posterior.mean, atol=0.08 * np.abs(binary.posterior.mean).max())
    assert np.corrcoef(difference, binary.posterior.mean)[0, 1] > 0.999
    exact = GAMP(rule="max-sum")
    binary = solve(Problem(operator, y, ones, Logistic(), Gaussian(0.2)), exact, stopping=stopping)
    many = solve(
        Problem(operator, (y + 3) / 2, ones, Multinomial(2), Gaussian(0.1)), exact, stopping=stopping
    )
    difference = many.posterior.mean[:, 1] - many.posterior.mean[:, 0]
    assert_allclose(difference, binary.posterior.mean, atol=1e-4)


def test_max_sum_reaches_the_multinomial_lasso():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((300, 80))
    y = np.argmax(X[:, :3] * 1.5 + rng.gumbel(size=(300, 3)), axis=1)
    rate = 12.0
    problem = Problem(operator_from(X), y + 1.0, np.ones(300), Multinomial(3), Laplace(rate))
    solution = solve(problem, GAMP(rule="max-sum"), stopping=Stopping(tol=1e-7, max_iter=2000))
    # saga penalises alike, without an intercept.
    saga = LogisticRegression(
        **mixed_penalty(1.0), C=1 / rate, solver="saga", fit_intercept=False, tol=1e-8, max_iter=20_000
    ).fit(X, y)

    def objective(weights):
        loss = -log_softmax(X @ weights, axis=1)[np.arange(300), y].sum()
        return loss + rate * np.abs(weights).sum()

    assert objective(solution.posterior.mean) <= objective(saga.coef_.T) * (1 + 1e-4)
    zeros = (solution.posterior.mean == 0).mean()
    assert 0.3 < zeros < 1


def test_row_sparse_is_a_joint_spike():
    r = np.array([[0.5, -0.2, 0.9], [3.0, -2.0, 1.0], [0.0, 0.0, 0.0]])
    tau = np.full_like(r, 0.4)
    prior = RowSparse(Gaussian(1.5), 0.2)
    tilted = prior.tilted(r, tau)
    step = 1e-4
    for k in range(3):
        up, down = r.copy(), r.copy()
        up[:, k] += step
        down[:, k] -= step
        log_z = [prior.tilted(x, tau).log_z.sum(axis=1) for x in (up, r, down)]
        assert_allclose(tilted.mean[:, k], r[:, k] + 0.4 * (log_z[0] - log_z[2]) / (2 * step), atol=1e-7)
        curvature = (log_z[0] - 2 * log_z[1] + log_z[2]) / step**2
        assert_allclose(tilted.var[:, k], 0.4 + 0.4**2 * curvature, atol=1e-5)
    inclusion = prior.inclusion_probability(r, tau)
    assert (np.ptp(inclusion, axis=1) == 0).all()
    # Of one score, it is the ordinary spike and slab.
    single, plain = (
        prior.tilted(r[:, :1], tau[:, :1]),
        SpikeAndSlab(Gaussian(1.5), 0.2).tilted(r[:, :1], tau[:, :1]),
    )
    for a, b in zip(single, plain, strict=True):
        assert_allclose(a, b, rtol=1e-10)


def test_class_means_and_counts_are_those_of_the_data():
    X, y = shifted_classes()
    weight = np.where(np.arange(120) % 4 == 0, 2.0, 1.0)
    table = table_of(X, y + 1.0, weight)
    means = class_means(table)
    Z = (X - table.standardized.center) / table.standardized.scale
    for k in range(3):
        inside = y == k
        assert_allclose(
            means.contrast[:, k], np.average(Z[inside], axis=0, weights=weight[inside]), atol=1e-12
        )
    assert_allclose(means.class_weight, [weight[y == k].sum() for k in range(3)])
    assert starting_count(1000, 100, 4) * 4 * np.log2(1000 / starting_count(1000, 100, 4)) <= 1.2 * 200


@pytest.mark.parametrize("prior", ["row-sparse", "spike-and-slab", "gaussian", "laplace"])
def test_every_prior_tells_classes_apart(prior):
    X, y = shifted_classes()
    test_X, test_y = shifted_classes(seed=0, n_samples=120)
    choices = Choices(prior, Multinomial(3), GAMP(), Stopping(tol=1e-3), generative_weight=0.5)
    fitted = fit_tuned(table_of(X, y + 1.0), choices, Recorder())
    assert isinstance(fitted.solution.problem.prior, Blocks)
    assert np.isfinite(fitted.candidates[0].loo_log_loss)
    assert fitted.candidates[0].loo_log_loss < np.log(3)
    strongest = np.argsort(-np.abs(fitted.solution.posterior.mean[:-1]).sum(axis=1))[:4]
    assert (strongest < 6).sum() >= 3
    assert test_X.shape == X.shape
    assert (test_y == y).all()


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_leave_one_out_densities_are_known_from_solving(weight):
    X, y = shifted_classes()
    ones = np.ones(y.size)
    choices = Choices("row-sparse", Multinomial(3), GAMP(), Stopping(tol=1e-3), generative_weight=weight)
    solution = fit_tuned(table_of(X, y + 1.0), choices, Recorder()).solution
    posterior = solution.posterior
    asked_again = Multinomial(3).respond(posterior.loo_mean, posterior.loo_var, y + 1.0).log_z
    assert posterior.loo_log_density is not None
    assert_allclose(posterior.loo_log_density, asked_again, atol=1e-4)
    # Where a sample counts as two rows, both are left out, and the cavity of one is another.
    twos = fit_tuned(table_of(X, y + 1.0, 2.0 * ones), choices, Recorder()).solution
    assert twos.posterior.loo_log_density is None
