"""One property, every channel: derivatives, tails, dtypes, tuning, errors."""

from __future__ import annotations

import csv
import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit
from scipy.stats import norm
from sklearn.base import clone

from foldless.channels import (
    CHANNELS,
    Blended,
    Channel,
    FlippedLabels,
    Hinge,
    Logistic,
    Pinned,
    Probit,
    Step,
    SupportsEM,
    SupportsMaxSum,
    channel_from,
)
from foldless.channels.flipped_labels import FLIP_PRIOR_FLIPPED, FLIP_PRIOR_RIGHT, with_flip_prob
from foldless.channels.logistic import sigmoid_power_response
from foldless.testing.components import (
    cavities,
    check_channel_at_scores,
    check_channel_derivatives,
    derivative,
)

EVERY_CHANNEL: list[Channel] = [
    Logistic(),
    Logistic(scale=4.0),
    Logistic(scale=0.1),
    Logistic(integral="variational"),
    Logistic(integral="mixture"),
    Logistic(scale=2.0, integral="gauss-hermite"),
    Probit(),
    Probit(variance=0.01),
    Hinge(),
    Step(),
    Step(noise=0.2),
    Step(noise=0.0),
    Blended(),
    Blended(generative_weight=0.0),
    Blended(generative_weight=1.0, label_mean=0.2),
    Blended(Logistic(scale=2.0), generative_weight=0.9, label_mean=0.3),
    Blended(generative_weight=0.999999, label_mean=-0.5),
    FlippedLabels(Logistic()),
    FlippedLabels(Logistic(scale=3.0), flip_prob=0.0),
    FlippedLabels(Probit(), flip_prob=0.2),
    FlippedLabels(Step(noise=0.1), flip_prob=0.1),
    FlippedLabels(Hinge(), flip_prob=0.05),
    FlippedLabels(Blended(), flip_prob=0.02),
    FlippedLabels(Blended(Logistic(2.0), 0.8, label_mean=-0.4), flip_prob=0.1),
    FlippedLabels(FlippedLabels(Probit(0.5), 0.1), 0.1),
]
# Approximations of the logistic integral; the variational bound's curvature is the paper's, not its own.
APPROXIMATE = [c for c in EVERY_CHANNEL if getattr(c, "integral", "exponential-sums") != "exponential-sums"]
EXACT = [c for c in EVERY_CHANNEL if c not in APPROXIMATE]
LOG_CONCAVE = [c for c in EVERY_CHANNEL if not isinstance(c, FlippedLabels | Step)] + [Step(noise=0.0)]
MAX_SUM = [
    c
    for c in EVERY_CHANNEL
    if isinstance(c, SupportsMaxSum) and not isinstance(getattr(c, "base", None), Step)
]
TUNABLE = [c for c in EXACT if isinstance(c, SupportsEM) and c.tunable_params()]

# Without noise the step's likelihood is zero on one side, which its response never is.
FINITE = [c for c in EVERY_CHANNEL if c != Step(noise=0.0)]

every_channel = pytest.mark.parametrize("channel", EVERY_CHANNEL, ids=repr)
finite_channel = pytest.mark.parametrize("channel", FINITE, ids=repr)
exact_channel = pytest.mark.parametrize("channel", EXACT, ids=repr)
max_sum_channel = pytest.mark.parametrize("channel", MAX_SUM, ids=repr)


grid = cavities


# --- (a) derivatives ---------------------------------------------------------------------------------


@exact_channel
def test_slope_and_curvature_are_derivatives_of_log_z(channel):
    check_channel_derivatives(channel)


@pytest.mark.parametrize("channel", APPROXIMATE, ids=repr)
def test_approximate_integrals_are_consistent_where_they_are_meant_to_be_used(channel):
    mean, var, label = grid(variances=(0.05, 0.3, 1.0))
    response = channel.respond(mean, var, label)
    slope = derivative(lambda p: channel.respond(p, var, label).log_z, mean, 0.03 * np.sqrt(var))
    assert_allclose(response.slope, slope, atol=1e-4 if channel.integral == "gauss-hermite" else 1e-8)
    truth = Logistic(channel.scale).respond(mean, var, label)
    error = {"variational": 0.13, "mixture": 2e-3, "gauss-hermite": 2e-4}[channel.integral]
    assert_allclose(response.slope, truth.slope, atol=error)
    if channel.integral == "variational":
        assert (response.log_z <= truth.log_z + 1e-12).all(), "a lower bound"
    else:
        assert_allclose(response.curvature, truth.curvature, atol=5 * error)


@max_sum_channel
def test_proximal_curvature_is_the_derivative_of_its_slope(channel):
    mean, var, label = grid(means=np.linspace(-6.03, 5.87, 41), variances=(0.05, 0.7, 3.0))
    response = channel.proximal(mean, var, label)
    step = 1e-5
    slope = {k: channel.proximal(mean + k * step, var, label).slope for k in (-1, 0, 1)}
    left, right = (slope[-1] - slope[0]) / step, (slope[0] - slope[1]) / step
    # Next to a kink of the likelihood, or where the better of two maxima changes, there is no derivative.
    smooth = np.abs(left - right) < 1e-3 / var
    assert smooth.mean() > 0.95
    numeric = 0.5 * (left + right)
    assert_allclose((response.curvature * var)[smooth], (numeric * var)[smooth], atol=1e-7, rtol=1e-6)


@finite_channel
def test_at_score_has_the_derivatives_of_the_log_likelihood(channel):
    check_channel_at_scores(channel)


# --- (b) values --------------------------------------------------------------------------------------


def test_log_likelihoods_are_what_the_docstrings_say():
    z, y = np.linspace(-3.1, 3.0, 20), np.where(np.arange(20) % 3, 1.0, -1.0)
    logistic = expit(1.7 * y * z)
    hinge = np.exp(-np.maximum(0, 1 - y * z))
    hinge_flipped = np.exp(-np.maximum(0, 1 + y * z))
    expected = {
        Logistic(1.7): logistic,
        Probit(0.3): norm.cdf(y * z / np.sqrt(0.3)),
        Hinge(): hinge,
        Step(0.05): np.where(y * z > 0, 0.95, 0.05),
        Blended(Logistic(1.7), 0.3, 0.1): logistic**0.7 * np.exp(0.3 * 1.7 * (y - 0.1) * z / 2),
        FlippedLabels(Logistic(1.7), 0.1): 0.1 + 0.8 * logistic,
        FlippedLabels(Hinge(), 0.1): 0.9 * hinge + 0.1 * hinge_flipped,
    }
    for channel, likelihood in expected.items():
        assert_allclose(np.exp(channel.log_likelihood(z, y)), likelihood, rtol=1e-13, err_msg=repr(channel))


@every_channel
def test_normalised_says_whether_labels_sum_to_one(channel):
    z = np.linspace(-4.1, 4, 30)
    total = np.exp(channel.log_likelihood(z, 1.0)) + np.exp(channel.log_likelihood(z, -1.0))
    assert (np.abs(total - 1).max() < 1e-14) == channel.normalised
    if channel.normalised and channel in EXACT:
        mean, var, label = grid()
        both = [np.exp(channel.respond(mean, var, sign * label).log_z) for sign in (1, -1)]
        assert_allclose(sum(both), 1.0, atol=1e-11)


@exact_channel
def test_log_z_matches_quadrature_of_the_likelihood(channel):
    mean, var, label = grid(means=np.linspace(-6, 6, 7))
    x, w = np.polynomial.legendre.leggauss(24)
    for p, v, y in zip(mean, var, label, strict=True):
        spread = np.sqrt(v)
        # Slopes below 4 move the mass by at most 4 * var; steeper likelihoods move it to about zero.
        low, high = min(p - 4 * v, -0.5) - 11 * spread, max(p + 4 * v, 0.5) + 11 * spread
        near_zero = np.concatenate([[0.0], 2.0 ** np.arange(-6, 4), -(2.0 ** np.arange(-6, 4))])
        cuts = np.concatenate([np.linspace(low, high, 60), near_zero])
        cuts = np.unique(cuts[(cuts >= low) & (cuts <= high)])
        half, centre = np.diff(cuts)[:, None] / 2, (cuts[1:] + cuts[:-1])[:, None] / 2
        z = centre + half * x
        with np.errstate(divide="ignore"):
            log_likelihood = channel.log_likelihood(z, y)
        log_terms = log_likelihood - (z - p) ** 2 / (2 * v) - 0.5 * np.log(2 * np.pi * v)
        top = log_terms.max()
        expected = top + np.log(np.sum(half * w * np.exp(log_terms - top)))
        assert channel.respond(p, v, y).log_z == pytest.approx(expected, rel=1e-10, abs=2e-11)


@pytest.mark.parametrize("channel", [c for c in EVERY_CHANNEL if not c.score_shape], ids=repr)
def test_log_odds_are_those_of_the_two_labels(channel):
    """Channels may have a shorter way to them, of scores that are certain as well."""
    mean, var, _ = grid(np.array([-30.0, -2.0, 0.0, 0.4, 9.0]), (1e-9, 0.05, 3.0, 40.0))
    one = np.ones_like(mean)
    expected = channel.respond(mean, var, one).log_z - channel.respond(mean, var, -one).log_z
    assert_allclose(channel.log_odds(mean, var), expected, rtol=1e-9, atol=1e-9)
    with np.errstate(invalid="ignore"):
        expected = channel.at_score(mean, one).log_z - channel.at_score(mean, -one).log_z
    assert_allclose(channel.log_odds(mean, None), expected, rtol=1e-9, atol=1e-9)


def far_table():
    with (Path(__file__).parents[1] / "reference" / "channel_tables.csv").open() as file:
        rows = list(csv.DictReader(file))
    names = dict.fromkeys(row["channel"] for row in rows)
    return {
        name: np.array(
            [[float(v) for k, v in r.items() if k != "channel"] for r in rows if r["channel"] == name]
        ).T
        for name in names
    }


FAR_TABLE = far_table()
BY_REPR = {repr(c): c for c in EVERY_CHANNEL}


def test_every_kind_of_channel_is_in_the_table_of_the_tails():
    assert {type(BY_REPR[name]) for name in FAR_TABLE} == {type(c) for c in EVERY_CHANNEL}


@pytest.mark.parametrize("name", FAR_TABLE)
def test_tails_match_long_arithmetic(name):
    """Cavity means to ±1e6, variances from 1e-4 to 1e4; see reference/make_channel_tables.py."""
    channel = BY_REPR[name]
    label, mean, var, log_z, slope, curvature = FAR_TABLE[name]
    with np.errstate(invalid="raise", divide="raise", over="raise"):
        got = channel.respond(mean, var, label)
    assert_allclose(got.log_z, log_z, rtol=1e-12, atol=1e-11)
    assert_allclose(got.slope, slope, rtol=1e-9, atol=1e-14)
    assert_allclose(got.curvature, curvature, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("power", [1e-6, 0.3, 1.0])
def test_both_tails_of_the_logistic_keep_relative_accuracy(power):
    """Far right everything decays like e^-x, far left curvature decays like e^x; both have limits."""
    var = 0.8
    x = np.array([60.0, 90.0, 300.0])
    right, left = sigmoid_power_response(x, var, power), sigmoid_power_response(-x, var, power)
    # E[e^-x] = e^(-x + var/2); on the left the factor σ^a has moved the mean by a var.
    assert_allclose(right.slope, power * np.exp(-x + var / 2), rtol=1e-11)
    assert_allclose(right.curvature, power * np.exp(-x + var / 2), rtol=1e-11)
    assert_allclose(left.slope, power, rtol=1e-13)
    assert_allclose(left.log_z, power * (-x + power * var / 2), rtol=1e-13)
    assert_allclose(left.curvature, power * np.exp(-x + power * var + var / 2), rtol=1e-10)


def test_a_vanishing_power_says_nothing():
    response = sigmoid_power_response(np.linspace(-50, 50, 21), np.array(3.0), 1e-6)
    assert np.abs(response.slope).max() <= 1e-6
    assert np.abs(response.log_z).max() < 6e-5


# --- (c) sign of the curvature -----------------------------------------------------------------------


@pytest.mark.parametrize("channel", LOG_CONCAVE, ids=repr)
def test_log_concave_channels_have_positive_curvature(channel):
    far = np.concatenate([-np.geomspace(1e6, 1e-3, 60), np.geomspace(1e-3, 1e6, 60)])
    mean, var, label = grid(means=far, variances=(1e-4, 1.0, 1e4))
    response = channel.respond(mean, var, label)
    assert (response.curvature >= 0).all()
    # No label makes a score impossibly certain: var * curvature is at most one.
    assert channel in APPROXIMATE or (response.curvature * var <= 1 + 1e-9).all()
    for field in response:
        assert np.isfinite(field).all()


def test_outliers_have_negative_curvature_under_flips():
    assert FlippedLabels(Logistic(), 0.01).respond(-6.0, 0.5, 1.0).curvature < -0.01
    assert Step(0.01).respond(-3.0, 0.5, 1.0).curvature < -0.01


@finite_channel
def test_a_cavity_without_spread_is_the_likelihood_itself(channel):
    z, label = np.array([-2.3, -0.4, 0.3, 2.2]), np.array([1.0, -1.0, 1.0, -1.0])
    response = channel.respond(z, 0.0, label)
    tolerance = 2e-7 if channel in APPROXIMATE else 1e-12
    assert_allclose(response.log_z, channel.log_likelihood(z, label), atol=20 * tolerance, rtol=tolerance)


# --- (d) dtypes and shapes ---------------------------------------------------------------------------


@every_channel
def test_float32_in_float32_out(channel):
    mean, var, label = (a.astype(np.float32) for a in grid())
    methods = [channel.respond] + ([channel.proximal] if channel in MAX_SUM else [])
    for method in methods:
        single = method(mean, var, label)
        double = method(mean.astype(float), var.astype(float), label.astype(float))
        for got, expected in zip(single, double, strict=True):
            assert got.dtype == np.float32
            assert expected.dtype == np.float64
            assert_allclose(got, expected, rtol=2e-7, atol=1e-37)
    assert channel.log_likelihood(mean, label).dtype == np.float32


@every_channel
def test_inputs_broadcast_and_labels_may_be_integers(channel):
    mean = np.linspace(-2, 2, 5)[:, None]
    label = np.array([-1, 1, 1])
    methods = [channel.respond] + ([channel.proximal] if channel in MAX_SUM else [])
    for method in methods:
        got = method(mean, 0.5, label)
        one_by_one = [[method(p, 0.5, float(y)) for y in label] for p in mean[:, 0]]
        for k, field in enumerate(got):
            assert field.shape == (5, 3)
            assert_allclose(field, [[r[k] for r in row] for row in one_by_one], rtol=1e-10, atol=1e-13)


# --- (e) components ----------------------------------------------------------------------------------


@every_channel
def test_clone_pickle_and_parameters_round_trip(channel):
    assert clone(channel) == channel
    assert clone(channel) is not channel
    assert pickle.loads(pickle.dumps(channel)) == channel
    assert hash(channel) == hash(clone(channel))
    params = channel.get_params(deep=False)
    assert type(channel)(**params) == channel
    assert channel.with_params(**channel.get_params()) == channel
    assert set(channel.tunable_params()) <= set(channel.get_params())


def test_nested_parameters_are_reached():
    channel = FlippedLabels(Blended(), 0.02)
    changed = clone(channel).set_params(base__base__scale=3.0, flip_prob=0.1)
    assert changed == FlippedLabels(Blended(Logistic(3.0)), 0.1)
    assert channel == FlippedLabels(Blended(), 0.02)
    assert channel.tunable_params() == ("flip_prob", "base__base__scale")


def test_predictive_is_the_untempered_channel():
    assert Blended(Logistic(2.0), 0.7).predictive() == Logistic(2.0)
    assert FlippedLabels(Blended(Logistic(2.0), 0.7), 0.1).predictive() == FlippedLabels(Logistic(2.0), 0.1)
    assert Probit().predictive() == Probit()


def test_wrappers_that_wrap_nothing_equal_their_base():
    mean, var, label = grid()
    for method in ("respond", "proximal"):
        base = getattr(Logistic(3.0), method)(mean, var, label)
        for wrapper in (Blended(Logistic(3.0), generative_weight=0.0), FlippedLabels(Logistic(3.0), 0.0)):
            got = getattr(wrapper, method)(mean, var, label)
            exactly = isinstance(wrapper, Blended)
            for a, b in zip(got, base, strict=True):
                assert_allclose(a, b, rtol=0 if exactly else 1e-12, atol=0 if exactly else 1e-12)
    step = Step(0.1).respond(mean, var, label)
    for a, b in zip(FlippedLabels(Step(0.0), 0.1).respond(mean, var, label), step, strict=True):
        assert_allclose(a, b, rtol=1e-13)


def test_a_purely_generative_blend_is_linear():
    channel = Blended(Logistic(2.0), generative_weight=1.0, label_mean=0.4)
    response = channel.respond(np.array([-3.0, 5.0]), 2.0, np.array([1.0, -1.0]))
    assert_allclose(response.slope, [0.6, -1.4])
    assert_allclose(response.curvature, 0.0)


def test_a_blend_is_neutral_to_an_intercept():
    label = np.array([1.0] * 9 + [-1.0] * 3)
    channel = Blended(generative_weight=1.0, label_mean=float(label.mean()))
    assert abs(channel.respond(np.zeros(12), 1.0, label).slope.sum()) < 1e-14


# --- (f) max-sum -------------------------------------------------------------------------------------


@max_sum_channel
def test_proximal_is_the_best_of_all_scores(channel):
    mean, var, label = grid(means=np.linspace(-8, 6, 13), variances=(0.02, 0.9, 6.0, 60.0))
    response = channel.proximal(mean, var, label)
    with np.errstate(invalid="raise"):
        best = mean + var * response.slope

    def objective(z, p, v, y):
        return channel.log_likelihood(z, y) - (z - p) ** 2 / (2 * v)

    assert_allclose(objective(best, mean, var, label), response.log_z, rtol=1e-11, atol=1e-11)
    reach = 4 * var + 1
    everywhere = mean[:, None] + reach[:, None] * np.linspace(-1, 1, 4001)
    around = best[:, None] + np.sqrt(var)[:, None] * np.linspace(-1e-3, 1e-3, 41)
    for z in (everywhere, around):
        brute = objective(z, mean[:, None], var[:, None], label[:, None]).max(axis=1)
        assert (response.log_z >= brute - 1e-12 * (1 + np.abs(brute))).all()


@pytest.mark.parametrize("channel", [Logistic(), Logistic(5.0), Probit(), Probit(0.1), Hinge()], ids=repr)
def test_proximal_tails(channel):
    mean = np.array([-1e6, -1e3, 1e3, 1e6])
    for var in (1e-4, 1.0, 1e4):
        with np.errstate(invalid="raise", divide="raise", over="raise"):
            response = channel.proximal(mean, np.full(4, var), 1.0)
        score = mean + var * response.slope
        at = channel.at_score(score, 1.0)
        if not isinstance(channel, Hinge):
            assert_allclose(response.slope, at.slope, rtol=1e-7, atol=1e-100)
        assert (response.curvature >= 0).all()
        assert_allclose(response.log_z, at.log_z - 0.5 * var * response.slope**2, rtol=1e-9, atol=1e-300)


def test_a_robust_proximal_point_gives_up_on_a_hopeless_label():
    """Two maxima: obey the label, or stay. The better one changes as the label becomes less credible."""
    channel = FlippedLabels(Logistic(6.0), 0.01)
    obey, stay = channel.proximal(np.array([-0.8, -8.0]), 4.0, 1.0).slope * 4.0
    assert obey > 0.8
    assert abs(stay) < 1e-3


# --- (g) tuning --------------------------------------------------------------------------------------


def sample(channel, rng, n=400, spread=2.0, var=0.5):
    """Cavities, scores and labels that fit together: score | cavity ~ N(mean, var), label | score."""
    mean = spread * rng.standard_normal(n)
    score = mean + np.sqrt(var) * rng.standard_normal(n)
    predictive = channel.predictive()
    odds = predictive.log_likelihood(score, 1.0) - predictive.log_likelihood(score, -1.0)
    label = np.where(rng.random(n) < expit(odds), 1.0, -1.0)
    return mean, np.full(n, var), label


def log_hyper_prior(channel):
    """The Beta hyper-priors of all flip probabilities inside a channel."""
    found = [v for k, v in channel.get_params().items() if k.split("__")[-1] in ("flip_prob", "noise")]
    g = np.array(found)
    return np.sum((FLIP_PRIOR_FLIPPED - 1) * np.log(g) + (FLIP_PRIOR_RIGHT - 1) * np.log1p(-g))


EM_CASES = [
    (channel, name)
    for channel in TUNABLE
    for name in channel.tunable_params()
    # Purely generative blends have no finite best scale, and nested flip rates share one.
    if channel.get_params().get("generative_weight", 0.0) < 0.95
    and channel.get_params().get("base__generative_weight", 0.0) < 0.95
]


@pytest.mark.parametrize(("channel", "name"), EM_CASES, ids=str)
def test_em_is_monotone_and_stops_where_the_evidence_is_stationary(channel, name):
    mean, var, label = sample(channel, np.random.default_rng(5), n=150)
    weight = np.random.default_rng(6).uniform(0.5, 2.0, mean.size)

    def objective(c):
        inside = all(v > 0 for k, v in c.get_params().items() if k.endswith(("flip_prob", "noise")))
        prior = log_hyper_prior(c) if inside else 0.0
        return np.sum(weight * c.respond(mean, var, label).log_z) + prior

    tuned = channel
    if channel.get_params()[name] == 0:
        tuned = channel.with_params(**{name: 0.01})
    for _ in range(1500):
        updated = tuned.em_update(mean, var, label, weight=weight, names=frozenset({name}))
        assert objective(updated) >= objective(tuned) - 1e-9
        change = abs(np.log(updated.get_params()[name] / tuned.get_params()[name]))
        tuned = updated
        if change < 1e-12:
            break
    value = tuned.get_params()[name]
    others = {k: v for k, v in channel.get_params().items() if k in channel.tunable_params() and k != name}
    assert {k: tuned.get_params()[k] for k in others} == others, "only the named parameter moves"
    slope = derivative(
        lambda log_x: np.array([objective(tuned.with_params(**{name: float(np.exp(t))})) for t in log_x]),
        np.array([np.log(value)]),
        1e-2,
    )
    at_a_limit = value < 1.01e-6 or abs(value - 0.45) < 1e-9 or abs(abs(np.log(value)) - np.log(1e6)) < 1e-6
    assert at_a_limit or abs(slope[0]) < 1e-6 * mean.size


@pytest.mark.parametrize("base", [Logistic(), Probit(), Hinge(), Blended(generative_weight=0.3)], ids=repr)
@pytest.mark.parametrize("share", [0.02, 0.2])
def test_em_recovers_the_share_of_flipped_labels(base, share):
    n = 6000
    mean, var, label = sample(base, np.random.default_rng(11), n=n, spread=6.0)
    flipped = np.random.default_rng(12).random(n) < share
    channel = FlippedLabels(base, 0.05)
    given = np.where(flipped, -label, label)
    for _ in range(60):
        channel = channel.em_update(mean, var, given, names=frozenset({"flip_prob"}))
    # Some flips hide near the boundary: allow for twice the sampling error, five standard errors each.
    # The hinge and the blend are no probabilities, so their rates are biased by a little.
    bias = 0.0 if base.normalised else 0.02
    assert channel.flip_prob == pytest.approx(flipped.mean(), abs=10 * np.sqrt(share / n) + bias)
    suspicion = channel.mislabel_probability(mean, var, given)
    assert suspicion[flipped].mean() > 0.5 > 0.1 > suspicion[~flipped].mean()


def test_em_recovers_a_scale_and_a_variance():
    rng = np.random.default_rng(3)
    mean, var, label = sample(Logistic(2.0), rng, n=8000)
    channel = Logistic(0.1)
    for _ in range(10):
        channel = channel.em_update(mean, var, label)
    assert channel.scale == pytest.approx(2.0, rel=0.15)
    mean, var, label = sample(Probit(0.5), rng, n=8000)
    channel = Probit(20.0)
    for _ in range(10):
        channel = channel.em_update(mean, var, label)
    assert channel.variance == pytest.approx(0.5, rel=0.3)


def test_separable_labels_do_not_send_the_scale_to_infinity_at_once():
    mean = np.linspace(-3, 3, 20)
    assert Logistic(1.0).em_update(mean, 0.01, np.sign(mean)).scale == pytest.approx(2.0)


def test_mislabel_probability_follows_bayes():
    channel = FlippedLabels(Probit(), 0.1)
    mean, var, label = grid(means=np.linspace(-3, 3, 7), variances=(0.5,))
    right = norm.cdf(label * mean / np.sqrt(1.5))
    expected = 0.1 * (1 - right) / (0.1 * (1 - right) + 0.9 * right)
    assert_allclose(channel.mislabel_probability(mean, var, label), expected, rtol=1e-12)
    # Far out, where 1 - p rounds to zero, the odds are still right.
    tiny = channel.mislabel_probability(20.0, 1.0, 1.0)
    assert tiny == pytest.approx(0.1 / 0.9 * np.exp(norm.logsf(20 / np.sqrt(2))), rel=1e-10)


@pytest.mark.parametrize("flip_prob", [1e-6, 0.01, 0.3])
def test_flips_follow_from_what_the_channel_has_answered(flip_prob):
    channel = FlippedLabels(Logistic(), flip_prob)
    mean, var, label = sample(channel, np.random.default_rng(9), n=300, spread=8.0)
    log_z = channel.respond(mean, var, label).log_z
    flipped, names = channel.flipped_by_evidence(log_z), frozenset({"flip_prob"})
    assert_allclose(flipped, channel.mislabel_probability(mean, var, label), atol=1e-9)
    weight = np.random.default_rng(10).uniform(0.0, 2.0, 300)
    expected = channel.em_update(mean, var, label, weight=weight, names=names)
    updated = channel.em_by_flips(flipped, label, weight=weight, names=names)
    assert updated.flip_prob == pytest.approx(expected.flip_prob, rel=1e-8)
    assert updated.flip_prob != flip_prob
    # The scale is not among what flips determine.
    assert channel.em_by_flips(flipped, label, names=frozenset({"flip_prob", "base__scale"})) is None
    assert channel.em_by_flips(flipped, label, names=frozenset()) == channel
    assert FlippedLabels(Hinge(), flip_prob).flipped_by_evidence(log_z) is None
    # Rows that are no samples do not count.
    pinned, more = Pinned(channel), np.append(log_z, [-700.0, 0.0])
    with_pins = pinned.em_by_flips(
        pinned.flipped_by_evidence(more),
        np.append(label, [0.0, 0.0]),
        weight=np.append(weight, [1.0, 1.0]),
        names=frozenset({"base__flip_prob"}),
    )
    assert with_pins.base.flip_prob == pytest.approx(expected.flip_prob, rel=1e-8)


def test_another_flip_probability_multiplies_the_odds_of_flips():
    mean, var, label = sample(Logistic(), np.random.default_rng(9), n=100, spread=8.0)
    before, after = (FlippedLabels(Blended(), g).mislabel_probability(mean, var, label) for g in (0.01, 0.2))
    assert_allclose(with_flip_prob(before, 0.01, 0.2), after, rtol=1e-10)


# --- (h) weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", TUNABLE, ids=repr)
def test_weight_two_is_a_repeated_sample(channel):
    mean, var, label = sample(channel, np.random.default_rng(8), n=40)
    twice = np.arange(40) % 3 == 0
    weighted = channel.em_update(mean, var, label, weight=1.0 + twice)
    repeated = channel.em_update(*(np.concatenate([a, a[twice]]) for a in (mean, var, label)))
    names = channel.tunable_params()
    values = [[c.get_params()[n] for n in names] for c in (weighted, repeated, channel)]
    assert_allclose(values[0], values[1], rtol=1e-9)
    assert values[0] != values[2], "the step moved"


def test_weights_matter_to_em():
    mean, var, label = sample(Logistic(), np.random.default_rng(8), n=40)
    trusted = np.where(label * mean > 0, 1.0, 1e-3)
    everyone = FlippedLabels(Logistic(), 0.1).em_update(mean, var, label)
    chosen = FlippedLabels(Logistic(), 0.1).em_update(mean, var, label, weight=trusted)
    assert chosen.flip_prob < 0.8 * everyone.flip_prob
    assert chosen.base.scale > everyone.base.scale


@pytest.mark.parametrize("channel", TUNABLE, ids=repr)
def test_asking_for_nothing_changes_nothing(channel):
    assert channel.em_update(np.ones(3), np.ones(3), np.ones(3), names=frozenset()) == channel


# --- (i) errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Logistic(scale=0.0),
            r"Logistic\(scale=...\) must be a finite number > 0; got 0.0.*log-odds",
        ),
        (lambda: Logistic(scale=float("nan")), r"scale=.*got nan"),
        (lambda: Logistic(scale="wide"), r"scale=.*number.*got 'wide'"),
        (lambda: Logistic(integral="simpson"), r"simpson.*exponential-sums.*gauss-hermite"),
        (lambda: Probit(variance=-1.0), r"Probit\(variance=...\).*> 0; got -1.0.*Step\(\)"),
        (lambda: Step(noise=0.5), r"noise=0.5.*\[0, 0.5\)"),
        (lambda: FlippedLabels(Logistic(), flip_prob=0.7), r"flip_prob=0.7.*exchanged"),
        (lambda: FlippedLabels("logistic"), r"'logistic'.*Logistic\(\)"),
        (lambda: Blended(Probit()), r"Probit.*FlippedLabels\(Blended\(\)\)"),
        (lambda: Blended(Logistic(integral="mixture")), r"mixture.*exponential-sums"),
        (lambda: Blended(generative_weight=1.5), r"generative_weight=1.5.*discriminative"),
        (lambda: Blended(label_mean=2.0), r"label_mean=2.0"),
        (lambda: FlippedLabels(Step()).proximal(0.0, 1.0, 1.0), r"Step has only.*sum-product"),
        (lambda: channel_from("logit"), r"'logit'.*'logistic'.*'robust-logistic'.*object"),
        (lambda: channel_from(Logistic), r"Logistic\(\)"),
        (lambda: channel_from(3), r"Unknown channel 3"),
    ],
)
def test_errors_say_what_to_do(make, message):
    with pytest.raises((ValueError, TypeError, AttributeError), match=message):
        make()


def test_names_make_channels():
    assert channel_from("logistic") == Logistic()
    assert channel_from("robust-logistic") == FlippedLabels(Logistic())
    assert channel_from(Probit(2.0)) == Probit(2.0)
    for name in CHANNELS:
        assert isinstance(channel_from(name), Channel)


def test_step_has_no_proximal_point_and_only_signs_matter_to_it():
    assert not isinstance(Step(), SupportsMaxSum)
    assert [c for c in EVERY_CHANNEL if c.scale_free] == [
        c for c in EVERY_CHANNEL if isinstance(c, Step) or isinstance(getattr(c, "base", None), Step)
    ]


def test_wrappers_are_honest_about_max_sum():
    assert hasattr(FlippedLabels(Logistic()), "proximal")
    assert not hasattr(FlippedLabels(Step()), "proximal")
    assert not hasattr(Pinned(FlippedLabels(Step())), "proximal")


@pytest.mark.parametrize("rule", ["respond", "proximal"])
def test_pinned_knows_scores_whose_label_is_zero(rule):
    """A label of 0 is an observation of the score 0 with the stated variance; others are the base's."""
    mean, var = np.linspace(-2.0, 2.0, 9), np.full(9, 0.3)
    labels = np.tile([1.0, 0.0, -1.0], 3)
    pinned, known = Pinned(Logistic(), variance=0.1), labels == 0
    answer = getattr(pinned, rule)(mean, var, labels)
    base = getattr(Logistic(), rule)(mean, var, labels)
    for given, expected in zip(answer, base, strict=True):
        assert_allclose(given[~known], expected[~known], rtol=1e-14)
    assert_allclose(answer.slope[known], -mean[known] / 0.4, rtol=1e-14)
    assert_allclose(answer.curvature[known], 1 / 0.4, rtol=1e-14)
    step = 1e-5
    up, down = (getattr(pinned, rule)(mean + e, var, labels).log_z for e in (step, -step))
    assert_allclose((up - down) / (2 * step), answer.slope, atol=1e-8)


def test_pinned_learns_from_labelled_samples_only():
    mean, var = np.linspace(-2.0, 2.0, 8), np.full(8, 0.3)
    labels = np.sign(mean)
    channel = FlippedLabels(Logistic(), 0.1)
    alone = channel.em_update(mean, var, labels)
    more = (np.append(mean, [5.0, 5.0]), np.append(var, [1.0, 1.0]), np.append(labels, [0.0, 0.0]))
    assert Pinned(channel).em_update(*more).base == alone
    assert Pinned(Blended()).predictive() == Logistic()
    assert Pinned(Blended()).untempered() == Pinned(Logistic())


@pytest.mark.parametrize("flip_prob", [0.01, 0.1, 0.3])
def test_the_robust_hinge_finds_the_highest_maximum(flip_prob):
    """Against a fine grid. Measured with 100 000 cavities at each of these probabilities: none is missed."""
    rng, channel = np.random.default_rng(0), FlippedLabels(Hinge(), flip_prob)
    mean = 2 * rng.standard_normal(1000) * np.exp(1.2 * rng.standard_normal(1000))
    var, labels = np.exp(rng.uniform(np.log(1e-3), np.log(300), 1000)), rng.choice([-1.0, 1.0], 1000)
    found = channel.proximal(mean, var, labels)

    def objective(score):
        likelihood = channel.log_likelihood(score, np.broadcast_to(labels[:, None], score.shape))
        return likelihood - np.square(score - mean[:, None]) / (2 * var[:, None])

    # No slope of the likelihood is above one, and its kinks are at -1 and 1.
    grid = mean[:, None] + var[:, None] * np.linspace(-1, 1, 2001)
    best = objective(np.hstack([grid, np.tile([-1.0, 1.0], (1000, 1))])).max(axis=1)
    assert np.all(best <= found.log_z + 1e-9 * (1 + np.abs(best)))
    reached = objective((mean + var * found.slope)[:, None])[:, 0]
    assert_allclose(reached, found.log_z, rtol=1e-8, atol=1e-8)
