"""The multinomial channel: every estimator against many draws, max-sum, blends, correlations."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import logsumexp, softmax

from foldless.beliefs import Response
from foldless.channels import BlendedMultinomial, FlippedLabels, Logistic, Multinomial
from foldless.channels.multinomial import ESTIMATORS

N_CLASSES = 4


def cavities(var, n=30, n_classes=N_CLASSES, seed=0):
    rng = np.random.default_rng(seed)
    mean = rng.normal(0, 1 + 0.5 * np.sqrt(var), (n, n_classes))
    return mean, var * rng.uniform(0.3, 1.7, (n, n_classes)), rng.integers(1, n_classes + 1, n).astype(float)


def derivative(function, x, step):
    """Of the value for each sample with respect to each score."""
    columns = []
    for k in range(x.shape[1]):
        direction = np.zeros(x.shape[1])
        direction[k] = step
        columns.append((function(x + direction) - function(x - direction)) / (2 * step))
    return np.stack(columns, axis=-1)


def by_sampling(mean, var, labels, n_draws=100_000):
    """Slope and curvature by importance sampling with derivatives, and their standard errors."""
    rng = np.random.default_rng(1)
    draws = rng.standard_normal((n_draws, mean.size))
    scores = mean + np.sqrt(var) * draws
    share = softmax(scores, axis=1)
    weight = share[:, int(labels) - 1]
    weight = weight / weight.mean()
    first = -share
    first[:, int(labels) - 1] += 1
    slope = (weight[:, None] * first).mean(axis=0)
    bend = share * (1 - share) - (first - slope) ** 2
    curvature = (weight[:, None] * bend).mean(axis=0)
    error = [
        (weight[:, None] * (values - centre)).std(axis=0) / np.sqrt(n_draws)
        for values, centre in ((first, slope), (bend, curvature))
    ]
    return slope, curvature, error


@pytest.mark.parametrize("var", [1e-3, 0.1, 1.0, 5.0, 1000.0])
def test_default_agrees_with_many_draws(var):
    mean, variances, labels = cavities(var, n=2)
    response = Multinomial(N_CLASSES).respond(mean, variances, labels)
    for m in range(2):
        slope, curvature, (slope_error, curvature_error) = by_sampling(mean[m], variances[m], labels[m])
        # Five standard errors of the sample, and the accuracy claimed.
        assert np.all(np.abs(response.slope[m] - slope) < 5 * slope_error + 3e-4)
        assert np.all(np.abs(response.curvature[m] - curvature) < 5 * curvature_error + 6e-4)


# Worst error of slope √q over the cavities below: what each approximation is good for.
GOOD_FOR = {
    "gumbel": (0.1, 1.0, 5e-4),
    "grid": (0.1, 1.0, 0.01),
    "importance": (0.1, 1.0, 0.2),
    "taylor": (0.01, 0.1, 0.03),
    "gaussian": (0.01, 0.1, 0.01),
    "mixture": (10.0, 100.0, 0.06),
}
# A mixture of normal cdfs has Gaussian tails, so labels that were improbable are beyond it (0.23 at the worst
# of these cavities, whose label had a probability of 0.002, however many nodes its integral has).
PROBABLE = {"mixture": 0.1}


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_estimator_has_its_range(name):
    *variances, tolerance = GOOD_FOR[name]
    for var in variances:
        mean, q, labels = cavities(var)
        truth = Multinomial(N_CLASSES).respond(mean, q, labels)
        answer = Multinomial(N_CLASSES, estimator=name).respond(mean, q, labels)
        kept = truth.log_z > np.log(PROBABLE.get(name, 1e-300))
        assert kept.mean() > 0.8
        q, truth, answer = q[kept], Response(*(a[kept] for a in truth)), Response(*(a[kept] for a in answer))
        assert_allclose(answer.slope * np.sqrt(q), truth.slope * np.sqrt(q), atol=tolerance)
        assert_allclose(answer.curvature * q, truth.curvature * q, atol=3 * tolerance)
        assert_allclose(answer.log_z, truth.log_z, atol=5 * tolerance)


@pytest.mark.parametrize("power", [1.0, 0.75, 0.25])
@pytest.mark.parametrize("var", [0.01, 0.2, 3.0, 20.0])
def test_slope_and_curvature_are_derivatives_of_log_z(power, var):
    mean, q, labels = cavities(var)
    channel = BlendedMultinomial(Multinomial(N_CLASSES), 1 - power)
    response = channel.respond(mean, q, labels)
    step = 0.05 * np.sqrt(0.3 * var)
    slope = derivative(lambda p: channel.respond(p, q, labels).log_z, mean, step)
    assert_allclose(response.slope, slope, atol=1e-3)
    assert_allclose(response.slope.sum(axis=1), 1 - power, atol=1e-12)
    bend = derivative(lambda p: channel.respond(p, q, labels).slope, mean, step)
    assert_allclose(response.curvature, -np.einsum("mkk->mk", bend), atol=2e-3)
    assert (response.curvature >= 0).all()


@pytest.mark.parametrize("weight", [0.0, 0.4, 1.0])
def test_both_responses_are_the_tempered_and_the_plain_one(weight):
    mean, q, labels = cavities(0.7)
    channel = BlendedMultinomial(Multinomial(N_CLASSES), weight)
    both = channel.respond_both(mean, q, labels)
    for got, alone in zip(both, (channel, channel.untempered()), strict=True):
        for part, expected in zip(got, alone.respond(mean, q, labels), strict=True):
            assert_allclose(part, expected, atol=1e-4)
    single = channel.respond_both(mean.astype(np.float32), q, labels)
    assert all(part.dtype == np.float32 for response in single for part in response)


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_a_wrong_label_is_any_of_the_other_classes(weight):
    mean, q, labels = cavities(1.0)
    base = BlendedMultinomial(Multinomial(N_CLASSES), weight) if weight else Multinomial(N_CLASSES)
    channel = FlippedLabels(base, 0.3)
    response = channel.respond(mean, q, labels)
    every = np.arange(1.0, N_CLASSES + 1)
    of_class = np.stack([base.respond(mean, q, np.full(30, k)).log_z for k in every], axis=1)
    joint = np.log(np.where(every == labels[:, None], 0.7, 0.1)) + of_class
    assert_allclose(response.log_z, logsumexp(joint, axis=1), rtol=1e-3)
    true = channel.true_class(mean, q, labels)
    assert_allclose(true, softmax(joint, axis=1), atol=1e-3)
    own = true[np.arange(30), labels.astype(int) - 1]
    assert_allclose(channel.mislabel_probability(mean, q, labels), 1 - own)
    slope = derivative(lambda x: channel.respond(x, q, labels).log_z, mean, 1e-4)
    assert_allclose(response.slope, slope, atol=1e-5)
    bend = [
        (channel.respond(mean + d, q, labels).slope - response.slope) @ d / 1e-8 for d in 1e-4 * np.eye(4)
    ]
    assert_allclose(response.curvature, -np.stack(bend, axis=1), atol=2e-3)
    if weight == 0.0:
        assert_allclose(channel.flipped_by_evidence(response.log_z), 1 - own, atol=1e-3)
        proba = np.exp(channel.log_proba(mean, q))
        assert_allclose(proba.sum(axis=1), 1.0)
        assert_allclose(np.log(proba[np.arange(30), labels.astype(int) - 1]), response.log_z, rtol=1e-3)


def test_two_classes_are_the_logistic_channel():
    for var in (1e-3, 0.1, 1.0, 10.0, 300.0):
        mean, q, labels = cavities(var, n=100, n_classes=2)
        response = Multinomial(2).respond(mean, q, labels)
        margin = mean[:, 1] - mean[:, 0]
        binary = Logistic().respond(margin, q.sum(axis=1), 2 * labels - 3)
        assert_allclose(response.log_z, binary.log_z, atol=1e-4)
        assert_allclose(response.slope[:, 1], binary.slope, atol=2e-4)
        assert_allclose(response.curvature[:, 1], binary.curvature, atol=5e-4)


def test_extremes_are_finite_and_sensible():
    mean = np.array([[-300.0, 0, 5], [300, 0, 0], [0, 0, 0], [-50, 50, 0], [0, 1e4, 0]])
    for var in (1e-30, 1e-6, 0.1, 1.0, 1e4, 1e8):
        response = Multinomial(3).respond(mean, np.full_like(mean, var), np.ones(5))
        assert all(np.isfinite(part).all() for part in response)
        assert (np.abs(response.slope) <= 1 + 1e-3).all()
        assert (response.log_z <= 1e-4).all()
    uneven = Multinomial(3).respond(np.zeros((1, 3)), np.array([[1e-4, 1.0, 1e4]]), np.array([1.0]))
    draws = np.sqrt([1e-4, 1.0, 1e4]) * np.random.default_rng(0).standard_normal((400_000, 3))
    assert uneven.log_z[0] == pytest.approx(np.log(softmax(draws, axis=1)[:, 0].mean()), abs=0.01)


def test_probabilities_of_all_classes_sum_to_one_before_they_are_made_to():
    mean, q, _ = cavities(2.0, n=50, n_classes=7)
    channel = Multinomial(7)
    total = logsumexp([channel.respond(mean, q, np.full(50, k + 1.0)).log_z for k in range(7)], axis=0)
    assert_allclose(total, 0, atol=1e-4)
    assert_allclose(np.exp(channel.log_proba(mean, q)).sum(axis=1), 1)


@pytest.mark.parametrize("var", [1e-3, 1.0, 50.0])
def test_max_sum_is_the_maximum_and_both_maximisers_agree(var):
    mean, q, labels = cavities(var)
    newton = Multinomial(N_CLASSES).proximal(mean, q, labels)
    scores = mean + q * newton.slope
    at = Multinomial(N_CLASSES).at_score(scores, labels)
    assert_allclose(at.slope, newton.slope, atol=1e-9)  # stationary: slope = d log p / dz
    other = Multinomial(N_CLASSES, maximiser="component-wise").proximal(mean, q, labels)
    for a, b in zip(newton, other, strict=True):
        assert_allclose(a, b, atol=1e-7)
    step = 1e-5
    bend = derivative(lambda p: Multinomial(N_CLASSES).proximal(p, q, labels).slope, mean, step)
    assert_allclose(newton.curvature, -np.einsum("mkk->mk", bend), atol=1e-6)


def test_blend_ends_and_max_sum():
    mean, q, labels = cavities(0.7)
    base = Multinomial(N_CLASSES)
    for rule in ("respond", "proximal"):
        plain = getattr(base, rule)(mean, q, labels)
        blended = getattr(BlendedMultinomial(base, 0.0), rule)(mean, q, labels)
        for a, b in zip(plain, blended, strict=True):
            assert_allclose(a, b)
        linear = getattr(BlendedMultinomial(base, 1.0), rule)(mean, q, labels)
        assert_allclose(linear.slope, np.eye(N_CLASSES)[labels.astype(int) - 1])
        assert (linear.curvature == 0).all()
        near = getattr(BlendedMultinomial(base, 1 - 1e-4), rule)(mean, q, labels)
        assert_allclose(near.slope, linear.slope, atol=1e-3)
    half = BlendedMultinomial(base, 0.5)
    prox = half.proximal(mean, q, labels)
    assert_allclose(half.at_score(mean + q * prox.slope, labels).slope, prox.slope, atol=1e-9)
    assert half.untempered() is base
    assert not half.normalised


def test_correlated_scores_reduce_to_independent_ones_and_know_shifts():
    mean, q, labels = cavities(1.5, n=20)
    channel = Multinomial(N_CLASSES)
    cov = np.stack([np.diag(v) for v in q])
    for diagonal, full, tolerance in (
        (channel.respond(mean, q, labels), channel.respond_full(mean, cov, labels), 5e-3),
        (channel.proximal(mean, q, labels), channel.proximal_full(mean, cov, labels), 1e-8),
    ):
        assert_allclose(full.log_z, diagonal.log_z, atol=2 * tolerance)
        assert_allclose(full.slope, diagonal.slope, atol=tolerance)
        assert_allclose(np.einsum("mkk->mk", full.curvature), diagonal.curvature, atol=3 * tolerance)
        assert_allclose(full.curvature.sum(axis=2), 0, atol=1e-9)
    # A common shift of all scores is invisible, however uncertain it is.
    shared = channel.respond_full(mean, cov + 7.0, labels)
    plain = channel.respond_full(mean, cov, labels)
    assert_allclose(shared.slope, plain.slope, atol=0.01)
    assert_allclose(shared.curvature, plain.curvature, atol=0.02)


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="gumbel"):
        Multinomial(3, estimator="guess")
    with pytest.raises(ValueError, match="labels 1 to 3"):
        Multinomial(3).respond(np.zeros((1, 3)), np.ones((1, 3)), np.array([0.0]))
    with pytest.raises(ValueError, match="gumbel"):
        Multinomial(11, estimator="mixture").respond(np.zeros((1, 11)), np.ones((1, 11)), np.array([1.0]))
    with pytest.raises(ValueError, match="gumbel"):
        Multinomial(8, estimator="grid").respond(np.zeros((1, 8)), np.ones((1, 8)), np.array([1.0]))
    with pytest.raises(ValueError, match="'gumbel'"):
        BlendedMultinomial(Multinomial(3, estimator="taylor"))
