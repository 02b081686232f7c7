"""Stacking finds the best mixture, and an average predicts as its parts do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit, log_expit, log_softmax

from foldless.channels import FlippedLabels, Logistic, Multinomial, Probit
from foldless.channels.flipped_labels import flips_of
from foldless.evaluation import mixed, scale_of
from foldless.operators import operator_from
from foldless.tuning.portfolio import (
    Average,
    Model,
    Part,
    Scores,
    Weights,
    _mislabelled,
    stacked,
)
from foldless.tuning.table import Layout, Table, survey
from reference.planned import table_of


def test_an_average_is_judged_by_weights_that_have_not_seen_the_label():
    """Models without any skill: the average of all samples finds some, the left-out one must not."""
    rng = np.random.default_rng(3)
    labels = rng.choice([-1.0, 1.0], 40)
    models = [model_of(f"{n}", 0.0, labels, rng, 2.0) for n in range(30)]
    table = table_of(rng.standard_normal((40, 1)), labels)
    found = stacked(models, table)
    assert -table.log_density(found.loo_log_proba).mean() > np.log(2) - 0.01


def test_mixed_probabilities_are_the_mean_probability():
    rng = np.random.default_rng(1)
    odds, weights = rng.normal(scale=3, size=(3, 20)), np.array([0.5, 0.3, 0.2])
    mean = weights @ expit(odds)
    log_proba = np.stack([log_expit(-odds), log_expit(odds)], axis=2)
    assert_allclose(np.diff(mixed(weights, log_proba))[:, 0], np.log(mean / (1 - mean)), rtol=1e-10)
    # Far out, where probabilities round to one, log-odds do not.
    far = np.array([[[-800.0, 0.0]]])
    assert_allclose(np.diff(mixed(np.ones(1), far)), 800.0)
    assert_allclose(np.diff(mixed(np.full(2, 0.5), np.concatenate([far, far])), axis=1), 800.0)
    several = log_softmax(rng.normal(scale=3, size=(3, 20, 4)), axis=2)
    assert_allclose(np.exp(mixed(weights, several)), np.einsum("m,msk->sk", weights, np.exp(several)))


def model_of(name, mean, labels, rng, noise, channel=None):
    scores = labels * mean + noise * rng.normal(size=labels.size)
    weights = Weights(np.array([[mean]]), np.array([[0.1]]), np.zeros(1), np.full(1, 0.1))
    left_out = Scores(scores[:, np.newaxis], np.full((labels.size, 1), 0.5))
    return Model("ridge", name, channel or Logistic(), left_out, lambda: weights)


def test_an_average_prefers_what_predicts_left_out_labels():
    rng = np.random.default_rng(2)
    labels = np.where(rng.random(100) < 0.5, 1.0, -1.0)
    table = table_of(labels[:, np.newaxis] + rng.normal(size=(100, 1)), labels)
    good, bad = model_of("good", 2.0, labels, rng, 0.5), model_of("bad", 0.0, labels, rng, 2.0)
    portfolio = stacked([good, bad], table)
    shares = {share.name: share.weight for share in portfolio.models}
    assert shares["good"] > 0.9
    assert [share.name for share in portfolio.models] == ["good", "bad"]
    assert -table.log_density(portfolio.loo_log_proba).mean() < 0.3
    # The variance of a new sample's score is on average what leave-one-out found.
    part = portfolio.average.parts[0]
    assumed = part.spread * part.weights.score_variances(table.standardized)
    assert_allclose(assumed.mean(), 0.5, rtol=1e-6)


def test_mislabelled_samples_are_suspected():
    rng = np.random.default_rng(3)
    labels = np.where(rng.random(60) < 0.5, 1.0, -1.0)
    noisy = model_of("noisy", 6.0, labels, rng, 0.5, FlippedLabels(Logistic(), 0.1))
    seen = labels.copy()
    seen[:3] *= -1
    portfolio = stacked([noisy], table_of(rng.normal(size=(60, 1)), seen))
    assert abs(portfolio.flip_rate - 0.05) < 0.03
    assert portfolio.mislabel_probability[:3].min() > 0.5 > portfolio.mislabel_probability[3:].max()


def test_mislabelled_samples_of_four_classes_are_suspected_whatever_the_scale_of_scores():
    rng = np.random.default_rng(4)
    codes = np.arange(120) % 4
    seen = codes.copy()
    seen[:12] = (codes[:12] + 1 + np.arange(12) % 3) % 4
    scores = np.eye(4)[codes] + 0.1 * rng.normal(size=(120, 4))
    table = Table.of(operator_from(np.ones((120, 1))), seen, np.ones(120), Layout(1), 4)
    for scale in (2.0, 8.0):
        model = Model("ridge", "ridge", Multinomial(4), Scores(scale * scores, None), lambda: None)
        wrong, rate = _mislabelled([(model, 0.0)], table)
        assert abs(rate - 0.1) < 0.03
        assert wrong[:12].min() > 0.5 > wrong[12:].max()


def test_wrong_labels_are_counted_by_timid_models_of_two_classes():
    rng = np.random.default_rng(4)
    scores = 6.0 * rng.normal(size=(400, 1))
    labels = np.where(rng.random(400) < expit(scores[:, 0]), 1.0, -1.0)
    seen = labels.copy()
    seen[:40] *= -1
    table = table_of(rng.normal(size=(400, 1)), seen)
    timid = model_of("timid", 0.0, labels, rng, 0.1, FlippedLabels(Logistic(), 0.1))
    timid = replace(timid, left_out=Scores(0.25 * scores, timid.left_out.var))
    _, rate = _mislabelled([(timid, 0.0)], table)
    assert abs(rate - 0.1) < 0.03


def test_labels_are_judged_by_all_models_that_may_be_the_best():
    # Two models that predict alike: a label that only one of them doubts is hardly suspected.
    rng = np.random.default_rng(6)
    proba = np.full((2, 100), 0.95)
    proba[0, 0] = proba[1, 1] = 0.05
    proba[:, 2:8] = rng.uniform(0.01, 0.05, 6)
    wrong, _ = flips_of(proba, np.ones(100), 2)
    assert abs(wrong[0] - wrong[1]) < 0.05
    assert wrong[:2].max() < wrong[2:8].min()


def excess_of(X, labels):
    table = table_of(X, labels)
    return survey(table).spectral_excess


def test_wrong_labels_leave_clusters_and_factors_do_not():
    rng = np.random.default_rng(5)
    true = np.where(rng.random(1000) < 0.5, 1.0, -1.0)
    seen = np.where(rng.random(1000) < 0.3, -true, true)
    clusters = 0.2 * true[:, np.newaxis] + rng.normal(size=(1000, 100))
    found = survey(table_of(clusters, seen))
    assert found.spectral_excess > 1.5 > 1.25 > found.excess_beside
    assert found.class_tails < -3 < 3 < found.class_gap
    # A factor has Gaussian tails, and clusters of another kind than labels have no class at their ends.
    factor = rng.normal(size=1000)
    common = 0.4 * factor[:, np.newaxis] + rng.normal(size=(1000, 100))
    assert survey(table_of(common, np.where(factor + rng.normal(size=1000) > 0, 1.0, -1.0))).class_tails > -3
    assert survey(table_of(clusters, rng.permutation(true))).class_gap < 3


def test_weights_of_models_are_averaged_as_log_odds():
    """The plain logistic of scores times the scale is near to what a model of wide scores predicts."""
    rng = np.random.default_rng(6)
    scores, share = 20.0 * rng.normal(size=(500, 1)), np.full(500, 0.002)
    log_proba = Logistic().log_proba(scores, np.full((500, 1), 400.0))
    scale = scale_of(scores, log_proba, share)
    plain = Logistic().log_proba(scale * scores, None)
    assert np.max(np.abs(np.exp(plain) - np.exp(log_proba))) < 0.02
    # It is the best: any other scale is further away.
    away = [
        np.sum(np.exp(log_proba) * Logistic().log_proba(k * scores, None))
        for k in (0.97 * scale, 1.03 * scale)
    ]
    assert max(away) < np.sum(np.exp(log_proba) * plain)
    # Log-odds of three classes, as they are.
    three = rng.normal(size=(500, 3))
    assert_allclose(scale_of(3.0 * three, log_softmax(three, axis=1), share), 1 / 3, rtol=1e-4)


def test_spectral_excess_tells_factors_from_independence():
    rng = np.random.default_rng(4)
    labels = np.where(rng.random(100) < 0.5, 1.0, -1.0)
    independent = rng.normal(size=(100, 800))
    heavy = rng.standard_t(3, size=(100, 800))
    common = independent + rng.normal(size=(100, 1))
    for X, correlated in ((independent, False), (heavy, False), (common, True)):
        assert (excess_of(X, labels) > 1.0) == correlated
    order, columns = rng.permutation(100), rng.permutation(800)
    assert_allclose(excess_of(common[order][:, columns], labels[order]), excess_of(common, labels), rtol=1e-8)


def test_models_that_need_other_numbers_of_steps_have_the_scales_they_have_alone():
    rng = np.random.default_rng(0)
    scores, share = rng.normal(size=(3, 40, 2)), np.full(40, 1 / 40)
    scores[1], scores[2] = 0.0, 50.0 * scores[2]
    log_proba = log_softmax(np.array([2.0, 1.0, 0.1])[:, np.newaxis, np.newaxis] * scores, axis=2)
    together = scale_of(scores, log_proba, share)
    assert_allclose(together, [scale_of(*of, share) for of in zip(scores, log_proba, strict=True)])
    assert_allclose(together[0], 2.0, rtol=1e-4)
    # Samples that do not count do not move them, whatever their scores.
    more = np.concatenate([scores, 1e3 * scores[:, :5]], axis=1)
    theirs = log_softmax(np.concatenate([log_proba, log_proba[:, :5]], axis=1), axis=2)
    assert_allclose(scale_of(more, theirs, np.append(share, np.zeros(5))), together, rtol=1e-12)


def test_many_rows_are_predicted_as_few_are():
    """By loops over a table of integrals, or by sums: narrow and wide scores, far out, beyond the table."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(8)
    X = np.vstack([rng.normal(size=(4500, 3)), rng.normal(0.0, 60.0, (500, 3))])
    rows = operator_from(X)
    for spread in (1e-4, 1.0, 30.0, 3e4):
        wide = Weights(rng.normal(size=(3, 1)), np.full((3, 1), spread), np.array([0.2]), np.array([spread]))
        other = Weights(rng.normal(size=(3, 1)), np.full((3, 1), 0.3), np.array([-0.4]), np.zeros(1))
        robust = FlippedLabels(Logistic(), 0.1)
        few = Part("a", 0.4, Logistic(), 0.3, wide), Part("b", 0.5, robust, 1.0, other)
        # What has no table of integrals is predicted all the same.
        others = [Part("d", 0.1, channel, 1.0, other) for channel in (Logistic(scale=3.0), Probit())]
        third = Part("c", 0.1, Logistic(), 0.0, wide)
        for parts in ((*few, third), (replace(few[0], weight=1.0),), *((*few, last) for last in others)):
            average = Average(parts)
            whole = average.log_proba(rows)
            pieces = [average.log_proba(operator_from(X[at : at + 1000])) for at in range(0, 5000, 1000)]
            assert_allclose(whole, np.vstack(pieces), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("n_classes", [3, 6])
def test_many_rows_of_several_classes_are_predicted_as_few_are(n_classes):
    """In one visit of loops, or part by part: certain, narrow, wide and far out, wider than the table."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(9)
    X = np.vstack([rng.normal(size=(4300, 3)), rng.normal(0.0, 60.0, (700, 3))])
    channel = Multinomial(n_classes)

    def weights(spread: float) -> Weights:
        mean, var = rng.normal(size=(3, n_classes)), spread * rng.random((3, n_classes))
        return Weights(mean, var, rng.normal(size=n_classes), spread * rng.random(n_classes))

    for spread in (0.0, 0.1, 3.0, 3e4):
        own, other = weights(spread), weights(1.0)
        few = Part("a", 0.4, channel, 0.3, own), Part("b", 0.5, FlippedLabels(channel, 0.1), 1.0, other)
        for parts in ((*few, Part("c", 0.1, channel, 0.0, own)), (replace(few[0], weight=1.0),)):
            average = Average(parts)
            whole = average.log_proba(operator_from(X))
            pieces = [average.log_proba(operator_from(X[at : at + 1000])) for at in range(0, 5000, 1000)]
            assert_allclose(whole, np.vstack(pieces), rtol=1e-9, atol=1e-9)
