"""The blended likelihood: its two ends, its symmetries, and leave-one-out as the judge of its weight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

from foldless import GAMPClassifier
from foldless.channels import Blended, FlippedLabels, Logistic, Pinned, Probit
from foldless.datasets import make_class_means
from foldless.priors import Blocks, Gaussian, Laplace, Ridged, SpikeAndSlab
from foldless.problem import Outcome, Solution
from foldless.solvers import GAMP, Stopping, solve
from foldless.solvers.gamp import VARIANCES
from foldless.tuning.class_means import BlendTuner, blended, can_blend, class_means, descend, unblended
from foldless.tuning.em import EM, tunable_names
from foldless.tuning.table import assembled
from reference.planned import table_of

TIGHT = Stopping(tol=1e-11, max_iter=3000, patience=1000)
PRIOR = SpikeAndSlab(Gaussian(1.0), inclusion=0.025)


def blend_problem(X, labels, *, channel=None, prior=PRIOR, weight=None, intercept=False, mean_removal=False):
    """The problem before blending, and its class means."""
    table = table_of(X, labels, weight, intercept=intercept, mean_removal=mean_removal)
    problem = assembled(table, channel or Logistic(), prior)
    return problem, means_of(table).padded(problem.operator.shape[1])


def means_of(table):
    return class_means(table)


def information(means):
    """n₊ n₋ / (n₊ + n₋)"""
    return np.prod(means.class_weight) / means.class_weight.sum()


@pytest.fixture(scope="module")
def data():
    return make_class_means(60, 200, 5, bayes_error=0.05, random_state=0)


def test_weight_zero_is_the_same_problem(data):
    problem, means = blend_problem(data.X, data.y.astype(float))
    assert blended(problem, 0.0, means) is problem


@pytest.mark.parametrize("mean_removal", [False, True])
@pytest.mark.parametrize("channel", [Logistic(2.0), FlippedLabels(Logistic(), 0.05)], ids=repr)
def test_unblending_restores(data, channel, mean_removal):
    problem, means = blend_problem(
        data.X, data.y.astype(float), channel=channel, intercept=True, mean_removal=mean_removal
    )
    for weight in (0.0, 0.25, 1.0):
        blend = blended(problem, weight, means)
        restored = unblended(blend)
        assert restored.channel == problem.channel
        assert restored.prior == problem.prior
        assert restored.operator is problem.operator
        assert blend.channel.predictive() == channel
        assert isinstance(blend.prior, Blocks)
        assert isinstance(blend.prior.base, Ridged) == (weight > 0)


def test_unblending_keeps_what_was_tuned(data):
    problem, means = blend_problem(data.X, data.y.astype(float), channel=FlippedLabels(Logistic(), 0.05))
    blend = blended(problem, 0.5, means)
    tuned = blend.but(
        prior=blend.prior.with_params(base__base__inclusion=0.3),
        channel=blend.channel.with_params(flip_prob=0.2),
    )
    restored = unblended(tuned)
    assert restored.prior.base == SpikeAndSlab(Gaussian(1.0), 0.3)
    assert restored.channel == FlippedLabels(Logistic(), 0.2)


def test_what_can_be_blended():
    assert can_blend(Logistic())
    assert can_blend(Pinned(FlippedLabels(Logistic(2.0))))
    assert not can_blend(Probit())
    assert not can_blend(FlippedLabels(Probit()))
    assert not can_blend(Logistic(integral="variational"))


def test_a_probit_says_why_not(data):
    problem, means = blend_problem(data.X, data.y.astype(float), channel=Probit())
    with pytest.raises(ValueError, match="needs a logistic channel"):
        blended(problem, 0.5, means)


# The generative end


@pytest.mark.parametrize("variances", VARIANCES)
@pytest.mark.parametrize("scale", [1.0, 2.0])
@pytest.mark.parametrize("prior", [PRIOR, Laplace(3.0), Gaussian(0.5)], ids=repr)
@pytest.mark.parametrize("n_negative", [30, 18])
def test_at_weight_one_the_answer_is_that_of_the_class_means(n_negative, prior, scale, variances):
    """One denoiser per weight, at difference / within_var, of precision information · within_var."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.where(np.arange(60) < n_negative, -1.0, 1.0))
    X = rng.standard_normal((60, 200))
    X[:, :5] += 0.7 * labels[:, None]
    problem, means = blend_problem(X, labels, channel=Logistic(scale), prior=prior)
    solution = solve(blended(problem, 1.0, means), GAMP(variances=variances), stopping=TIGHT)
    precision = information(means) * means.within_var * scale**2
    contrast = means_of(table_of(X, labels)).contrast
    expected = prior.tilted(contrast / means.within_var / scale, 1 / precision)
    assert solution.outcome is Outcome.CONVERGED
    assert np.max(np.abs(expected.mean)) > 0.3
    assert_allclose(solution.posterior.mean, expected.mean, atol=1e-8)
    assert_allclose(solution.posterior.var, expected.var, rtol=1e-7)


def test_weights_count_samples_at_the_generative_end():
    rng = np.random.default_rng(1)
    labels = np.where(np.arange(40) < 15, 1.0, -1.0)
    X = rng.standard_normal((40, 50))
    X[:, 0] += labels
    weight = rng.integers(1, 4, 40).astype(float)
    rows = np.repeat(np.arange(40), weight.astype(int))
    for omega in (0.5, 1.0):
        answers = []
        for problem, means in (
            blend_problem(X, labels, weight=weight),
            blend_problem(X[rows], labels[rows]),
        ):
            answers.append(solve(blended(problem, omega, means), GAMP(), stopping=TIGHT).posterior)
        assert_allclose(answers[0].mean, answers[1].mean, atol=1e-10)
        assert_allclose(answers[0].var, answers[1].var, rtol=1e-9)


@pytest.mark.parametrize("channel", [Logistic(), FlippedLabels(Logistic(), 0.05)], ids=repr)
@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_classes_may_be_called_either_way(data, weight, channel):
    labels = data.y.astype(float)
    labels[:10] = 1.0  # unequal classes, or symmetry would hide an error in the label mean
    answers = []
    for sign in (1.0, -1.0):
        problem, means = blend_problem(data.X, sign * labels, channel=channel, intercept=True)
        blend = blended(problem, weight, means)
        tuner = BlendTuner(EM(tunable_names(blend)), means)
        answers.append(solve(blend, GAMP(), tuner=tuner, stopping=Stopping(tol=1e-8, max_iter=2000)))
    first, second = answers
    assert first.outcome is second.outcome
    assert_allclose(first.posterior.mean, -second.posterior.mean, atol=1e-6)
    assert_allclose(first.posterior.var, second.posterior.var, rtol=1e-5)
    assert_allclose(first.loo_log_loss(), second.loo_log_loss(), rtol=1e-6)
    for name in tunable_names(first.problem):
        assert_allclose(first.history.tuned(name)[-1], second.history.tuned(name)[-1], rtol=1e-5)


def test_the_ridge_without_label_noise_is_the_information_of_the_class_means(data):
    problem, means = blend_problem(data.X, data.y.astype(float))
    for weight in (0.3, 1.0):
        blend = blended(problem, weight, means)
        assert_allclose(
            blend.prior.base.precision, weight * information(means) * means.within_var, rtol=1e-12
        )
        assert isinstance(blend.channel, Blended)
        assert blend.channel.generative_weight == weight
        assert_allclose(blend.channel.label_mean, means.label_mean, atol=1e-14)


def test_label_noise_does_not_weaken_the_ridge(data):
    """Labels that may be flipped spread around their mean as much as certain ones do, or more."""
    problem, means = blend_problem(data.X, data.y.astype(float), channel=FlippedLabels(Logistic(), 0.1))
    plain, _ = blend_problem(data.X, data.y.astype(float))
    noisy, clean = blended(problem, 1.0, means), blended(plain, 1.0, means)
    assert np.all(noisy.prior.base.precision >= clean.prior.base.precision * (1 - 1e-12))


# Leave-one-out


def refits(problem, solver, stopping):
    """Scores of every sample, and log densities of its label, from a fit in which it had no weight."""
    n_samples, n_features = problem.operator.shape
    X = problem.operator.columns(np.arange(n_features))
    scores, variances = np.empty(n_samples), np.empty(n_samples)
    for m in range(n_samples):
        weight = np.ones(n_samples)
        weight[m] = 0.0
        posterior = solve(problem.but(sample_weight=weight), solver, stopping=stopping).posterior
        scores[m], variances[m] = X[m] @ posterior.mean, X[m] ** 2 @ posterior.var
    predictive = problem.channel.predictive()
    return scores, predictive.respond(scores, variances, problem.labels).log_z


# Measured over four data sets of this kind, cavities against refits. Exact variances: correlation .9999, rms
# difference of the scores at most 1.0 % of their spread, loss within 0.0041, for weights 0.5 and 1. Rank-one:
# .9991, 4.8 %, and a loss up to 0.018 too high, as samples share one variance per squared norm. Weight 0:
# correlation .975 to .9997, and a loss up to 0.09 too low.
LOO_CASES = [
    ("per-coordinate", 1.0, 0.9998, 0.015, 0.006),
    ("per-coordinate", 0.5, 0.9998, 0.015, 0.004),
    ("rank-one", 1.0, 0.998, 0.06, 0.02),
    ("rank-one", 0.5, 0.998, 0.06, 0.02),
    ("rank-one", 0.0, 0.97, 0.24, 0.1),
]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("variances", "omega", "correlation", "rms", "loss"), LOO_CASES)
def test_cavities_are_leave_one_out(seed, variances, omega, correlation, rms, loss):
    data = make_class_means(60, 200, 5, bayes_error=0.05, random_state=seed)
    problem, means = blend_problem(data.X, data.y.astype(float))
    problem, solver = blended(problem, omega, means), GAMP(variances=variances)
    stopping = Stopping(tol=1e-6, max_iter=2000, patience=500)
    solution = solve(problem, solver, stopping=stopping)
    scores, log_densities = refits(problem, solver, stopping)
    cavity = solution.posterior.loo_mean
    assert np.corrcoef(cavity, scores)[0, 1] > correlation
    assert np.sqrt(np.mean((cavity - scores) ** 2)) < rms * np.std(scores)
    assert abs(solution.loo_log_loss() + np.mean(log_densities)) < loss
    # Only samples whose score is about zero may be called differently.
    differ = np.sign(cavity) != np.sign(scores)
    assert np.all(np.abs(scores[differ]) < 4 * rms * np.std(scores))
    error, refit_error = np.mean(problem.labels * cavity <= 0), np.mean(problem.labels * scores <= 0)
    assert abs(error - refit_error) <= (2 if omega else 4) / 60
    # Leave-one-out is not training: its loss is clearly larger.
    training = problem.channel.predictive().log_likelihood(
        problem.operator.scores(solution.posterior.mean), problem.labels
    )
    assert -np.mean(log_densities) > -1.2 * np.mean(training)


def test_leave_one_out_is_consistent_with_itself(data):
    problem, means = blend_problem(data.X, data.y.astype(float), weight=np.linspace(0.5, 2.0, 60))
    solution = solve(blended(problem, 0.5, means), GAMP())
    log_odds, log_densities = solution.loo_log_odds(), solution.loo_log_densities()
    assert_allclose(np.exp(log_densities), expit(data.y * log_odds), rtol=1e-12)
    weight = np.linspace(0.5, 2.0, 60)
    assert_allclose(solution.loo_log_loss(), -np.average(log_densities, weights=weight), rtol=1e-12)


# The choice of the weight


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_misleading_class_means_are_found_out(seed):
    """Logistic labels, AR(0.6) columns, neighbouring weights +2 and -2: class means hide the features."""
    rng = np.random.default_rng(seed)
    n = 400
    X = rng.standard_normal((n, n))
    for j in range(1, n):
        X[:, j] = 0.6 * X[:, j - 1] + 0.8 * X[:, j]
    weights = np.zeros(n)
    first = 2 * rng.choice(n // 2, 5, replace=False)
    weights[first], weights[first + 1] = 2.0, -2.0
    labels = np.where(rng.random(n) < expit(X @ weights), 1.0, -1.0)
    model = GAMPClassifier().fit(X, labels)
    losses = dict(model.generative_path_)
    assert model.generative_weight_ == 0.0
    assert losses[0.0] < 0.7 * losses[1.0]
    assert_array_equal(
        np.sort(np.argsort(-model.inclusion_probability_)[:10]), np.sort(np.r_[first, first + 1])
    )


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_class_means_are_trusted_where_they_are_right(seed):
    data = make_class_means(200, 2000, 10, bayes_error=0.05, random_state=seed)
    chosen = GAMPClassifier().fit(data.X, data.y)
    plain = GAMPClassifier(generative_weight=0.0).fit(data.X, data.y)
    assert chosen.generative_weight_ >= 0.5
    assert data.test_error(chosen.coef_, chosen.intercept_[0]) < 0.065
    assert data.test_error(chosen.coef_, chosen.intercept_[0]) < data.test_error(
        plain.coef_, plain.intercept_[0]
    )


@dataclass(frozen=True, eq=False)
class WithLoss(Solution):
    loss: float

    def loo_log_loss(self):
        return self.loss


def told(n_samples, inclusion, prior=None):
    """A solution with so many samples of a table with 1000 features, as far as `descend` looks at it."""
    X = np.random.default_rng(0).standard_normal((n_samples, 1000))
    labels = np.where(np.arange(n_samples) % 2 == 0, 1.0, -1.0)
    prior = prior or SpikeAndSlab(Gaussian(1.0), inclusion)
    problem = blend_problem(X, labels, prior=prior)[0]
    return solve(problem, GAMP(), stopping=Stopping(max_iter=1))


@pytest.mark.parametrize(
    ("n_samples", "inclusion", "prior", "expected"),
    [
        # 5 of 1000 features are named in 31 nats, 50 of them in 199. Labels here say 0.2 nats each.
        (400, 0.005, None, 1),
        (700, 0.005, None, 0),
        (700, 0.05, None, 1),
        # Nobody names features of a dense prior.
        (700, 0.0, Gaussian(1.0), 1),
    ],
)
def test_a_second_opinion_is_asked_where_labels_might_mean_other_features(
    n_samples, inclusion, prior, expected
):
    solution = told(n_samples, inclusion, prior)
    losses = {1.0: 0.65, 0.0: np.log(2) - 0.2}
    asked = []

    def solve_at(weight, previous, glance):
        asked.append((weight, previous is None))
        parts = solution.problem, solution.posterior, Outcome.CONVERGED, solution.history, solution.state
        return WithLoss(*parts, losses[weight])

    chosen = descend(solve_at, float(np.log(2)), grid=(1.0, 0.0))[0]
    assert chosen == 0.0
    assert asked == [(1.0, True), (0.0, False)] + expected * [(0.0, True)]
