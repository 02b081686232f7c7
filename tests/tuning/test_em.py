"""EM: it finds the parameters data were made with, keeps its head on tiny data, and learns no scale twice."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit

from foldless.channels import Blended, FlippedLabels, Hinge, Logistic, Pinned, Probit, Step
from foldless.operators import Dense
from foldless.priors import (
    NO_HYPER_PRIOR,
    Blocks,
    ElasticNet,
    Gaussian,
    GaussianMixture,
    Laplace,
    Ridged,
    SpikeAndSlab,
)
from foldless.problem import Outcome, Problem
from foldless.solvers import GAMP, Stopping, solve
from foldless.tuning import em
from foldless.tuning.em import EM, checked_names, is_scale, tunable_names

TIGHT = Stopping(tol=1e-7, max_iter=3000, patience=1000)


def problem_of(X, labels, channel, prior):
    return Problem(Dense(X), labels, np.ones(labels.size), channel, prior)


def tuned(problem, *, stopping=TIGHT, solver=None, **options):
    return solve(problem, solver or GAMP(), tuner=EM(tunable_names(problem), **options), stopping=stopping)


# Known parameters


def simulated(seed, *, n_samples=3000, n_features=1000):
    rng = np.random.default_rng(seed)
    return rng, rng.standard_normal((n_samples, n_features))


def spike_and_slab_weights(rng, inclusion, variance, size=1000):
    return np.where(rng.random(size) < inclusion, rng.normal(0.0, np.sqrt(variance), size), 0.0)


def scale_information(channel, scores):
    """Fisher information of the logarithm of a common factor of all scores: Σ E[(z dlog p(y|z)/dz)²]."""
    information = 0.0
    for label in (1.0, -1.0):
        at = channel.at_score(scores, np.full_like(scores, label))
        information += np.sum(np.exp(at.log_z) * (scores * at.slope) ** 2)
    return information


def check_spike_and_slab(solution, weights, scores):
    """What was learnt, against the weights themselves, in posterior standard deviations of what they sum to.

    Given the data the number of active weights is a sum of independent coins with the inclusion
    probabilities, and Σ w² a sum with the variances below; EM sets its parameters by the means of both.
    What all weights have in common, their scale, is known no better than the labels tell it.
    """
    posterior, prior = solution.posterior, solution.problem.prior
    at = posterior.cavity_mean, posterior.cavity_var
    p, slab = prior.inclusion_probability(*at), prior.slab.tilted(*at)
    count_std = np.sqrt(np.sum(p * (1 - p)))
    assert count_std < 0.15 * np.count_nonzero(weights)  # or the test would say nothing
    assert abs(prior.inclusion * weights.size - np.count_nonzero(weights)) < 5 * count_std

    square = slab.mean**2 + slab.var
    fourth = slab.mean**4 + 6 * slab.mean**2 * slab.var + 3 * slab.var**2
    own_var = np.sum(p * fourth - (p * square) ** 2)
    common_var = 4 * np.sum(weights**2) ** 2 / scale_information(solution.problem.channel, scores)
    square_std = np.sqrt(own_var + common_var)
    learnt = prior.slab.variance * prior.inclusion * weights.size
    assert square_std < 0.2 * np.sum(weights**2)
    assert abs(learnt - np.sum(weights**2)) < 5 * square_std


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_inclusion_and_slab_variance_are_found(seed):
    """Measured: inclusion .057, .049, .045 for .052, .051, .043; variance .45, .71, .61 for .52, .76, .54."""
    rng, X = simulated(seed)
    weights = spike_and_slab_weights(rng, 0.05, 0.5)
    labels = np.where(rng.random(3000) < expit(X @ weights), 1.0, -1.0)
    start = SpikeAndSlab(Gaussian(5.0), inclusion=0.3)
    solution = tuned(problem_of(X, labels, Logistic(), start), hyper=NO_HYPER_PRIOR)
    assert solution.outcome is Outcome.CONVERGED
    check_spike_and_slab(solution, weights, X @ weights)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_hyper_prior_is_weak_on_much_data(seed):
    rng, X = simulated(seed)
    weights = spike_and_slab_weights(rng, 0.05, 0.5)
    labels = np.where(rng.random(3000) < expit(X @ weights), 1.0, -1.0)
    problem = problem_of(X, labels, Logistic(), SpikeAndSlab(Gaussian(1.0), inclusion=0.1))
    with_hyper = tuned(problem).problem.prior
    without = tuned(problem, hyper=NO_HYPER_PRIOR).problem.prior
    # Two imaginary weights of size one among fifty; one active feature more, a fifth more inactive ones.
    assert_allclose(with_hyper.slab.variance, without.slab.variance, rtol=0.1)
    assert_allclose(with_hyper.inclusion, without.inclusion, rtol=0.25)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_flip_probability_is_found(seed):
    rng, X = simulated(seed, n_features=500)
    weights = spike_and_slab_weights(rng, 0.1, 0.5, 500)
    labels = np.where(X @ weights + rng.standard_normal(3000) > 0, 1.0, -1.0)
    flipped = rng.random(3000) < 0.08
    labels[flipped] *= -1
    start = problem_of(X, labels, FlippedLabels(Probit(), 0.01), SpikeAndSlab(Gaussian(1.0), 0.2))
    solution = tuned(start, hyper=NO_HYPER_PRIOR)
    assert solution.outcome is Outcome.CONVERGED
    posterior, channel = solution.posterior, solution.problem.channel
    q = channel.mislabel_probability(posterior.loo_mean, posterior.loo_var, labels)
    std = np.sqrt(np.sum(q * (1 - q)))
    assert std < 0.1 * np.count_nonzero(flipped)
    assert abs(channel.flip_prob * 3000 - np.count_nonzero(flipped)) < 5 * std
    # The suspicions themselves: samples called wrong with probability q are wrong as often as that.
    assert np.mean(q[flipped]) > 5 * np.mean(q[~flipped])
    check_spike_and_slab(solution, weights, X @ weights)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_laplace_rate_is_found(seed):
    """Measured: 11.6, 10.7 and 11.3 for 11.8, 11.8 and 12.4, from a start at 3."""
    rng, X = simulated(seed)
    weights = rng.laplace(0.0, 1 / 12, 1000)
    labels = np.where(rng.random(3000) < expit(X @ weights), 1.0, -1.0)
    solution = tuned(problem_of(X, labels, Logistic(), Laplace(3.0)), hyper=NO_HYPER_PRIOR)
    assert solution.outcome is Outcome.CONVERGED
    # |w| varies no more than w does; a weight is hardly informed, so the sum is known to a few per cent.
    std = np.sqrt(np.sum(solution.posterior.var))
    assert std < 0.03 * np.sum(np.abs(weights))
    assert abs(1000 / solution.problem.prior.rate - np.sum(np.abs(weights))) < 5 * std


@pytest.mark.parametrize(
    "starts",
    [
        [SpikeAndSlab(Gaussian(4.0), 0.4), SpikeAndSlab(Gaussian(0.2), 0.02)],
        [Laplace(2.0), Laplace(30.0)],
        [Gaussian(3.0), Gaussian(0.01)],
        [ElasticNet(2.0, 1.0), ElasticNet(10.0, 10.0)],
    ],
    ids=lambda starts: type(starts[0]).__name__,
)
def test_the_start_does_not_matter_on_informative_data(starts):
    rng, X = simulated(5, n_samples=1500, n_features=300)
    weights = spike_and_slab_weights(rng, 0.1, 0.5, 300)
    labels = np.where(rng.random(1500) < expit(X @ weights), 1.0, -1.0)
    first, second = (tuned(problem_of(X, labels, Logistic(), start)) for start in starts)
    names = tunable_names(first.problem)
    for name in names:
        inner = name.removeprefix("prior__").split("__")
        a, b = first.problem.prior, second.problem.prior
        for part in inner:
            a, b = getattr(a, part), getattr(b, part)
        assert_allclose(a, b, rtol=1e-3, err_msg=name)


# Extrapolation


@pytest.mark.parametrize(
    ("channel", "prior"),
    [
        (Logistic(), SpikeAndSlab(Gaussian(3.0), 0.3)),
        (Logistic(), Laplace(2.0)),
        (FlippedLabels(Logistic(), 0.02), SpikeAndSlab(Gaussian(1.0), 0.1)),
    ],
    ids=repr,
)
def test_jumps_do_not_move_the_fixed_point(channel, prior, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 300))
    labels = np.where(2 * X[:, :4].sum(axis=1) + rng.logistic(size=150) > 0, 1.0, -1.0)
    problem = problem_of(X, labels, channel, prior)
    stopping = Stopping(tol=1e-8, max_iter=5000, patience=5000)
    jumping = tuned(problem, stopping=stopping)
    monkeypatch.setattr(em, "_jump", lambda course: 0.0)
    plain = tuned(problem, stopping=stopping)
    assert jumping.outcome.trustworthy
    assert plain.outcome.trustworthy
    assert len(jumping.history) < len(plain.history)
    for name in tunable_names(problem):
        assert_allclose(
            jumping.history.tuned(name)[-1], plain.history.tuned(name)[-1], rtol=1e-5, err_msg=name
        )
    assert_allclose(jumping.posterior.mean, plain.posterior.mean, atol=1e-5)


def test_a_jump_goes_to_the_limit_of_a_geometric_course():
    limit, ratio = 3.0, 0.9
    course = [limit - ratio**k * 0.5 for k in range(5)]
    assert_allclose(course[-1] + em._jump(course), limit, rtol=1e-12)


@pytest.mark.parametrize(
    "course",
    [
        [1.0, 1.0, 1.0, 1.0, 1.0],  # at rest
        [0.0, 1.0, 0.5, 0.75, 0.6],  # turning round
        [0.0, 1.0, 3.0, 7.0, 15.0],  # growing
        [0.0, 1.0, 1.5, 1.75, 1.875],  # fast enough without
        [0.0, 1.0, 1.9, 2.2, 2.45],  # not steady
    ],
)
def test_no_jump_without_a_slow_steady_course(course):
    assert em._jump(course) == 0.0


def test_no_jump_is_larger_than_a_factor_of_two():
    assert_allclose(em._jump(list(np.arange(5) - 1e-3 * np.arange(5) ** 2)), np.log(2))


# Tiny data


def tiny(kind, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((20, 500))
    labels = np.where(np.arange(20) < 10, 1.0, -1.0)
    if kind == "one feature is the label":
        X[:, 0] = labels
    elif kind == "separated by one feature":
        labels = np.where(X[:, 0] > np.median(X[:, 0]), 1.0, -1.0)
    return (X - X.mean(axis=0)) / X.std(axis=0), labels


@pytest.mark.parametrize("channel", [Logistic(), Probit(), FlippedLabels(Logistic(), 0.02)], ids=repr)
@pytest.mark.parametrize("kind", ["noise", "one feature is the label", "separated by one feature"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_tiny_data_do_not_make_a_dense_or_boundless_model(seed, kind, channel):
    """Measured: inclusion at most 0.014, slab variance at most 6, over all of these."""
    X, labels = tiny(kind, seed)
    solution = tuned(problem_of(X, labels, channel, SpikeAndSlab(Gaussian(1.0), 0.1)), stopping=Stopping())
    prior, history = solution.problem.prior, solution.history
    assert solution.outcome.trustworthy
    assert 0 < prior.inclusion < 0.05
    assert 0.1 < prior.slab.variance < 15.0
    assert np.max(history.tuned("prior__inclusion")) < 0.5
    assert np.all(np.isfinite(history.tuned("prior__slab__variance")))
    assert np.all(np.isfinite(solution.posterior.mean))
    if kind == "one feature is the label":
        p = prior.inclusion_probability(solution.posterior.cavity_mean, solution.posterior.cavity_var)
        assert np.argmax(p) == 0
        assert p[0] > 0.5


# Names


def names_of(prior, channel):
    return tunable_names(problem_of(np.ones((2, 2)), np.array([1.0, -1.0]), channel, prior))


@pytest.mark.parametrize(
    ("prior", "channel", "expected"),
    [
        (SpikeAndSlab(), Logistic(), {"prior__inclusion", "prior__slab__variance"}),
        (Laplace(), Probit(), {"prior__rate"}),
        (ElasticNet(), Hinge(), {"prior__rate", "prior__ridge"}),
        (SpikeAndSlab(Laplace()), Logistic(), {"prior__inclusion", "prior__slab__rate"}),
        # The sign of a score says nothing about scale.
        (SpikeAndSlab(), Step(), {"prior__inclusion", "channel__noise"}),
        (Laplace(), Step(), {"channel__noise"}),
        # Neither through wrappers.
        (Laplace(), FlippedLabels(Logistic()), {"prior__rate", "channel__flip_prob"}),
        (Laplace(), Pinned(FlippedLabels(Probit())), {"prior__rate", "channel__base__flip_prob"}),
        (Laplace(), Blended(Logistic(), 0.5), {"prior__rate"}),
        (Ridged(SpikeAndSlab(), 1.0), Logistic(), {"prior__base__inclusion", "prior__base__slab__variance"}),
        (GaussianMixture(), Logistic(), {"prior__weights", "prior__variances"}),
    ],
    ids=lambda value: str(sorted(value)) if isinstance(value, set) else repr(value),
)
def test_the_scale_of_the_prior_is_learnt_and_that_of_the_channel_is_not(prior, channel, expected):
    assert names_of(prior, channel) == expected


def test_always_kept_columns_are_not_tuned():
    prior = Blocks(SpikeAndSlab(), ((slice(-1, None), Gaussian(100.0)),))
    assert names_of(prior, Logistic()) == {"prior__base__inclusion", "prior__base__slab__variance"}


def test_names_may_be_chosen():
    problem = problem_of(np.ones((2, 2)), np.array([1.0, -1.0]), Logistic(), SpikeAndSlab())
    names = frozenset({"channel__scale", "prior__inclusion"})
    assert checked_names(problem, names) == names
    with pytest.raises(ValueError, match=r"cannot be learnt here.*prior__slab__variance"):
        checked_names(problem, frozenset({"prior__rate"}))
    with pytest.raises(ValueError, match="are one parameter"):
        checked_names(problem, frozenset({"channel__scale", "prior__slab__variance"}))
    with pytest.raises(ValueError, match="only sees the sign"):
        checked_names(problem.but(channel=Step()), frozenset({"prior__slab__variance"}))


@pytest.mark.parametrize("name", ["scale", "base__scale", "slab__variance", "prior__rate", "variances"])
def test_scales(name):
    assert is_scale(name)


@pytest.mark.parametrize("name", ["inclusion", "flip_prob", "channel__noise", "prior__weights", "scale__x"])
def test_what_is_no_scale(name):
    assert not is_scale(name)


@pytest.mark.parametrize("channel", [Logistic(), Probit()], ids=repr)
def test_the_scale_of_the_channel_may_be_learnt_instead_with_the_same_predictions(channel):
    """(w, scale) and (k w, scale/k) are the same model, so learning either scale ends at the same scores."""
    rng, X = simulated(3, n_samples=600, n_features=100)
    weights = spike_and_slab_weights(rng, 0.3, 0.5, 100)
    labels = np.where(X @ weights + rng.logistic(size=600) > 0, 1.0, -1.0)
    problem = problem_of(X, labels, channel, SpikeAndSlab(Gaussian(1.0), 0.3))
    scale = "channel__scale" if isinstance(channel, Logistic) else "channel__variance"
    answers = [
        solve(problem, GAMP(), tuner=EM(frozenset({name}), hyper=NO_HYPER_PRIOR), stopping=TIGHT)
        for name in ("prior__slab__variance", scale)
    ]
    first, second = (answer.posterior for answer in answers)
    assert all(answer.outcome is Outcome.CONVERGED for answer in answers)
    ratio = np.sqrt(answers[0].problem.prior.slab.variance)
    assert abs(np.log(ratio)) > 0.05  # the start was not the answer already
    assert_allclose(first.mean, ratio * second.mean, atol=2e-4)
    assert_allclose(first.log_evidence, second.log_evidence, rtol=1e-5)


def test_without_names_nothing_moves():
    _, X = simulated(3, n_samples=60, n_features=30)
    labels = np.where(X[:, 0] > 0, 1.0, -1.0)
    problem = problem_of(X, labels, Logistic(), SpikeAndSlab())
    solution = solve(problem, GAMP(), tuner=EM())
    plain = solve(problem, GAMP())
    assert solution.problem is problem
    assert len(solution.history) == len(plain.history)
    assert solution.history.iterations[-1].tuned == {}


def test_max_sum_learns_the_rate_at_its_optimum():
    rng, X = simulated(4, n_samples=400, n_features=200)
    weights = rng.laplace(0.0, 1 / 4, 200)
    labels = np.where(rng.random(400) < expit(X @ weights), 1.0, -1.0)
    problem = problem_of(X, labels, Logistic(), Laplace(1.0))
    rare = tuned(problem, solver=GAMP("max-sum"), every=20)
    often = tuned(problem, solver=GAMP("max-sum"), every=5)
    assert rare.outcome.trustworthy
    assert often.outcome.trustworthy
    assert_allclose(rare.problem.prior.rate, often.problem.prior.rate, rtol=1e-4)
