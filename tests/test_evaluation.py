"""Intervals are exact or held to definitions, and the p value is right on noise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.special import expit, log_expit, log_softmax
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from foldless.evaluation import (
    N_ORDERS,
    auc,
    calibration_slope,
    counted_in_pairs,
    exact_interval,
    independent_samples,
    p_value_of,
    p_value_of_losses,
    worth_of,
)
from foldless.operators import Standardized, operator_from


def standardized(X):
    return Standardized.fit(operator_from(X), np.ones(len(X)))


def two_columns(log_odds):
    return np.column_stack([log_expit(-log_odds), log_expit(log_odds)])


# ---------------------------------------------------------------------- error rates


@pytest.mark.parametrize(("hits", "n"), [(0, 63), (1, 63), (8, 62), (31, 62), (62, 62)])
def test_limits_of_an_error_rate_leave_a_fortieth_in_each_tail(hits, n):
    lower, upper = exact_interval(hits, n)
    if hits:
        assert_allclose(binom.sf(hits - 1, n, lower), 0.025)
    if hits < n:
        assert_allclose(binom.cdf(hits, n, upper), 0.025)
    assert 0 <= lower <= hits / n <= upper <= 1


def test_no_error_among_sixty_three_is_no_certainty():
    assert_allclose(exact_interval(0, 63), [0.0, 0.0569], atol=1e-4)


def test_unequal_weights_are_fewer_samples():
    rng = np.random.default_rng(0)
    code = rng.integers(0, 2, 100)
    log_proba = two_columns(2.0 * (2 * code - 1) + rng.standard_normal(100) * 2)
    even = worth_of(log_proba, code, np.full(100, 3.0))
    uneven = worth_of(log_proba, code, np.where(np.arange(100) < 20, 5.0, 1.0))
    assert even.n_samples == pytest.approx(100)
    assert uneven.n_samples == pytest.approx(180**2 / (20 * 25 + 80))
    assert np.subtract(*uneven.error_interval[::-1]) > np.subtract(*even.error_interval[::-1])
    assert even.log_loss == pytest.approx(-log_proba[np.arange(100), code].mean())


@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_samples_that_err_together_are_worth_as_many_as_their_groups(rate):
    rng = np.random.default_rng(0)
    together, group = rng.random(4000) < rate, np.repeat(np.arange(4000), 5)
    share = np.full(20_000, 1 / 20_000)
    assert independent_samples(together[group], share, group) == pytest.approx(4000, rel=0.01)
    # Errors that have nothing to do with groups lose nothing by them, and groups of one sample are samples.
    alone = rng.random(20_000) < rate
    assert independent_samples(alone, share, group) == pytest.approx(20_000, rel=0.1)
    assert independent_samples(alone, share, np.arange(20_000)) == pytest.approx(20_000, rel=1e-3)
    # Without an error nothing tells how far they go together.
    assert independent_samples(np.zeros(20_000, dtype=bool), share, group) == pytest.approx(4000)


def test_intervals_of_samples_in_groups_cover():
    """Eighteen subjects of five samples each, half of whose errors are theirs and not the samples'."""
    group, n_runs = np.repeat(np.arange(18), 5), 400
    covered = np.zeros((n_runs, 4), dtype=bool)
    for seed in range(n_runs):
        rng = np.random.default_rng(seed)
        own, common = rng.standard_normal(90), rng.standard_normal(18)[group]
        code = rng.permutation(np.arange(18) % 2)[group]
        log_proba = two_columns((2 * code - 1) * 0.5 + np.sqrt(0.8) * common + np.sqrt(0.2) * own)
        found = worth_of(log_proba, code, np.ones(90), group=group)
        naive, around = auc(np.diff(log_proba)[:, 0], code == 1)
        assert found.auc == naive
        of_error, of_auc = 0.3085, 0.7602  # Φ(-1/2), Φ(1 / √2)
        for column, (lower, upper) in enumerate([found.error_interval, found.auc_interval]):
            covered[seed, column] = lower <= (of_error, of_auc)[column] <= upper
        for column, (lower, upper) in enumerate([exact_interval(90 * found.error, 90), around]):
            covered[seed, column + 2] = lower <= (of_error, of_auc)[column] <= upper
    assert np.all(covered[:, :2].mean(axis=0) > 0.91)
    assert np.all(covered[:, 2:].mean(axis=0) < 0.80)


def test_groups_of_one_sample_are_samples():
    rng = np.random.default_rng(0)
    code = rng.integers(0, 2, 200)
    log_proba = two_columns(2.0 * (2 * code - 1) + rng.standard_normal(200) * 2)
    whole = worth_of(log_proba, code, np.ones(200))
    each = worth_of(log_proba, code, np.ones(200), group=np.arange(200)[::-1])
    # Groups are at the class frequencies of all already, by which errors may be fewer.
    assert_allclose(each.error_interval.upper, whole.error_interval.upper, rtol=0.02)
    assert whole.error_interval.lower <= each.error_interval.lower
    assert_allclose(each.auc_interval, whole.auc_interval, rtol=0.01)


def left_out_of_a_ridge(rng, n_effects, n=60, p=400, n_new=1000, noise=10.0):
    """Log probabilities of left-out labels, the labels, and the error and AUC of new samples."""
    X, new = rng.standard_normal((n, p)), rng.standard_normal((n_new, p))
    y, of_new = (rng.random(len(rows)) < expit(rows[:, :n_effects].sum(axis=1)) for rows in (X, new))
    inverse = np.linalg.inv(X @ X.T / p + 1.0 + noise * np.eye(n))
    signs = 2.0 * y - 1.0
    dual = inverse @ signs
    score = (new @ X.T / p + 1.0) @ dual
    truth = np.mean((score > 0) != of_new), roc_auc_score(of_new, score)
    return two_columns(2.0 * (signs - dual / np.diag(inverse))), y.astype(int), truth


@pytest.mark.parametrize("n_effects", [0, 8])
def test_intervals_of_samples_that_learn_from_each_other_cover(n_effects):
    n_runs, covered = 150, np.zeros((150, 4), dtype=bool)
    for seed in range(n_runs):
        log_proba, code, truth = left_out_of_a_ridge(np.random.default_rng(seed), n_effects)
        found = worth_of(log_proba, code, np.ones(60))
        independent = exact_interval(60 * found.error, 60), auc(np.diff(log_proba)[:, 0], code == 1)[1]
        limits = found.error_interval, found.auc_interval, *independent
        covered[seed] = [low <= true <= high for (low, high), true in zip(limits, 2 * truth, strict=True)]
    assert np.all(covered[:, :2].mean(axis=0) > 0.91)
    assert np.all(covered[:, 2:].mean(axis=0) < 0.88)


def test_left_out_predictions_that_are_sure_are_independent():
    density = np.full(40, 1.0 - 1e-9)
    assert counted_in_pairs(density, np.full(40, 0.5), np.ones(40)) == pytest.approx(1.0)
    guess = np.full(40, 0.475)
    assert counted_in_pairs(guess, guess, np.ones(40)) == 2.0
    # Worse than guessing is no more than twice.
    assert counted_in_pairs(guess / 2, guess, np.ones(40)) == 2.0


def test_of_equal_classes_about_which_nothing_is_known_errors_may_be_half():
    """Each is missed when left out, since its class is then the rarer one."""
    code = np.repeat([0, 1], 20)
    scores = np.where(code == 1, -1.0, 1.0) * np.log(20 / 19) / 2
    worth = worth_of(two_columns(scores), code, np.ones(40))
    assert worth.error == 1.0
    assert worth.error_interval.lower < 0.5
    assert worth.auc > 0.5


def test_class_frequencies_are_left_out_too():
    code = np.repeat([0, 1], [30, 10])
    worth = worth_of(two_columns(np.zeros(40)), code, np.ones(40))
    assert worth.guessing_error == 0.25
    expected = -(30 * np.log(30 / 41) + 10 * np.log(10 / 41)) / 40
    assert worth.guessing_log_loss == pytest.approx(expected)


def test_samples_of_which_nothing_is_known_do_not_count():
    code = np.array([0, 1, 1, 0])
    log_proba = two_columns(np.array([-1.0, 2.0, np.nan, -3.0]))
    assert worth_of(log_proba, code, np.ones(4)).n_samples == pytest.approx(3)
    assert worth_of(np.full((4, 2), np.nan), code, np.ones(4)) is None


# ---------------------------------------------------------------------- AUC


def test_the_auc_is_the_share_of_pairs_and_its_variance_delong_s():
    rng = np.random.default_rng(1)
    positive = rng.random(70) < 0.4
    scores = np.round(rng.standard_normal(70) + positive, 1)  # with ties
    found, (lower, upper) = auc(scores, positive)
    assert found == pytest.approx(roc_auc_score(positive, scores))
    pairs = np.sign(scores[positive][:, None] - scores[~positive]) / 2 + 0.5
    variance = pairs.mean(1).var(ddof=1) / pairs.shape[0] + pairs.mean(0).var(ddof=1) / pairs.shape[1]
    reach = 1.96 * np.sqrt(variance) / (found * (1 - found))
    odds = np.log(found / (1 - found))
    assert_allclose([lower, upper], expit([odds - reach, odds + reach]), rtol=1e-4)


def test_the_interval_of_the_auc_covers():
    covered = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        positive = np.arange(60) < 25
        lower, upper = auc(rng.standard_normal(60) + positive, positive)[1]
        covered.append(lower <= 0.760 <= upper)  # Φ(1 / √2)
    assert 0.91 < np.mean(covered) < 0.99


def test_classes_that_do_not_overlap_leave_doubt():
    scores = np.append(np.ones(12), np.zeros(30))
    found, interval = auc(scores, scores > 0)
    assert found == 1.0
    assert_allclose(interval, [0.025 ** (1 / 12), 1.0])
    assert_allclose(auc(-scores, scores > 0)[1], [0.0, 1 - 0.025 ** (1 / 12)])


# ---------------------------------------------------------------------- calibration


def test_the_calibration_slope_is_that_of_a_logistic_regression():
    rng = np.random.default_rng(2)
    truth = 1.5 * rng.standard_normal(400)
    code = (rng.random(400) < expit(truth)).astype(int)
    for factor in (0.5, 1.0, 3.0):
        slope, spread = calibration_slope(two_columns(factor * truth), code, np.ones(400))
        plain = LogisticRegression(C=np.inf).fit(factor * truth[:, None], code).coef_[0, 0]
        assert slope == pytest.approx(plain, rel=0.01)
        assert abs(slope - 1 / factor) < 4 * spread


def test_the_slope_of_several_classes_and_of_labels_that_are_never_missed():
    rng = np.random.default_rng(3)
    scores = rng.standard_normal((600, 4)) * 1.5
    code = np.array([rng.choice(4, p=p) for p in np.exp(log_softmax(scores, axis=1))])
    slope, spread = calibration_slope(log_softmax(2.0 * scores, axis=1), code, np.ones(600))
    assert abs(slope - 0.5) < 4 * spread < 0.4
    sure = calibration_slope(
        two_columns(np.where(np.arange(40) < 20, 1.0, -1.0)), np.arange(40) // 20, np.ones(40)
    )
    assert np.all(np.isfinite(sure))


# ---------------------------------------------------------------------- chance


def noise(rng, kind, n=50, p=120):
    X = rng.standard_normal((n, p))
    if kind == "factors":
        X = X + 3.0 * rng.standard_normal((n, 2)) @ rng.standard_normal((2, p))
    return X


@pytest.mark.parametrize("kind", ["independent", "factors", "four classes", "groups", "subjects"])
def test_p_values_of_noise_are_uniform(kind):
    """Within five standard errors of 300 draws; the smallest possible is one of 200."""
    found = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        X, code, group = noise(rng, kind), rng.integers(0, 4 if kind == "four classes" else 2, 50), None
        if kind in ("groups", "subjects"):
            group = np.arange(50) // 5
            X += 2.0 * rng.standard_normal((10, X.shape[1]))[group]
            # Labels that differ from group to group, in part or altogether.
            of_group = rng.random(10)[group] if kind == "groups" else rng.permutation(10)[group] < 5
            code = (rng.random(50) < of_group).astype(int)
        found.append(p_value_of(standardized(X), code, np.ones(50, dtype=bool), group))
    found = np.array(found)
    assert found.min() >= 1 / N_ORDERS
    for level in (0.05, 0.2, 0.5):
        assert np.mean(found <= level) < level + 5 * np.sqrt(level * (1 - level) / 300)
    assert np.mean(found <= 0.5) > 0.3


@pytest.mark.parametrize("n_active", [1, 30], ids=["one strong", "many weak"])
def test_differences_of_either_kind_are_found(n_active):
    rng = np.random.default_rng(0)
    code = np.arange(60) % 2
    X = rng.standard_normal((60, 400))
    X[:, :n_active] += (2.0 if n_active == 1 else 0.8) * code[:, np.newaxis]
    counted = np.ones(60, dtype=bool)
    assert p_value_of(standardized(X), code, counted) <= 0.015
    # Rows that do not count may be anything.
    counted[:5] = False
    X[:5] *= 100.0
    columns = Standardized.fit(operator_from(X), counted.astype(float))
    assert p_value_of(columns, code, counted) <= 0.015


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_p_values_of_stored_entries_are_those_of_dense_columns(kind):
    rng = np.random.default_rng(1)
    X = sparse.random_array((60, 300), density=0.1, format=kind, rng=rng)
    X.data[X.nonzero()[1] == 7] = 2.0
    code, group = rng.integers(0, 3, 60), np.arange(60) // 6
    counted = rng.random(60) < 0.8
    for numbers in (None, group):
        found = (
            p_value_of(Standardized.fit(operator_from(x), counted.astype(float)), code, counted, numbers)
            for x in (X, X.toarray())
        )
        assert next(found) == next(found)


def test_left_out_losses_of_many_samples():
    rng = np.random.default_rng(4)
    code = rng.integers(0, 2, 5000)
    better = np.log(np.where(rng.random(5000) < 0.6, 0.55, 0.45))
    assert p_value_of_losses(better, code, np.ones(5000)) < 0.01
    assert p_value_of_losses(np.full(5000, np.log(0.49)), code, np.ones(5000)) > 0.5
