"""A search on a part of the samples: which part, and that all samples have the last word."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

from foldless import GAMPClassifier
from foldless.operators import Standardized
from foldless.solution import Outcome
from foldless.tuning import sample
from foldless.tuning.sample import rows_to_search_with


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(sample, "ROWS", 400)


def logistic_data(n_samples, n_features=200, n_active=8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features))
    scores = X[:, :n_active] @ rng.choice([-1.0, 1.0], n_active)
    return X, np.where(rng.random(n_samples) < expit(scores), 1, -1)


def test_a_part_is_drawn_within_classes_from_what_counts():
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(200_000) < 0.01, 1.0, -1.0)
    weight = np.ones(labels.size)
    weight[:50_000] = 0.0
    rows = rows_to_search_with(labels, weight)
    assert_array_equal(rows, rows_to_search_with(labels, weight))
    assert np.all(np.diff(rows) > 0)
    assert rows.min() >= 50_000
    assert rows.size == pytest.approx(sample.ROWS, abs=1)
    assert np.sum(labels[rows] > 0) == round(sample.ROWS * np.mean(labels[50_000:] > 0))
    # From all over the table, which may be sorted.
    assert np.mean(rows) == pytest.approx(125_000, abs=5 * 150_000 / np.sqrt(12 * sample.ROWS))


def test_a_rare_class_has_a_row_in_the_part(small_parts):
    labels = np.full(100_000, -1.0)
    labels[:3] = 1.0
    assert np.sum(labels[rows_to_search_with(labels, np.ones(labels.size))] > 0) == 1


def test_few_samples_are_searched_whole(small_parts):
    for n_samples, is_whole in ((1599, True), (1600, False)):
        labels = np.where(np.arange(n_samples) % 2, 1.0, -1.0)
        assert (rows_to_search_with(labels, np.ones(n_samples)) is None) == is_whole
        twice_as_many = np.concatenate([labels, labels])
        weight = np.concatenate([np.ones(n_samples), np.zeros(n_samples)])
        assert (rows_to_search_with(twice_as_many, weight) is None) == is_whole


def test_all_samples_have_the_last_word(small_parts, monkeypatch):
    X, y = logistic_data(2000)
    options = {"channel": "robust-logistic", "tol": 1e-6}
    sizes = []
    watch = sample.rows_to_search_with

    def watched(labels, weight):
        rows = watch(labels, weight)
        sizes.append(None if rows is None else rows.size)
        return rows

    monkeypatch.setattr("foldless.tuning.fit.rows_to_search_with", watched)
    by_part = GAMPClassifier(**options).fit(X, y)
    assert sizes == [400, None]
    monkeypatch.setattr("foldless.tuning.fit.rows_to_search_with", lambda labels, weight: None)
    whole = GAMPClassifier(**options).fit(X, y)
    assert by_part.generative_weight_ == whole.generative_weight_ == 0.0
    # The same fixed point, as closely as either was asked to come to it.
    assert_allclose(by_part.coef_, whole.coef_, atol=1e-4)
    assert by_part.loo_log_loss_ == pytest.approx(whole.loo_log_loss_, abs=1e-5)
    assert by_part.prior_.inclusion == pytest.approx(whole.prior_.inclusion, rel=1e-2)


def test_an_interrupt_in_the_part_ends_the_fit(small_parts, monkeypatch):
    X, y = logistic_data(2000)
    standardized_rows = Standardized.some_rows

    def some_rows(self, rows):
        part = standardized_rows(self, rows)
        asked = part.operator.sweep
        calls = []

        def sweep(*args, **options):
            calls.append(1)
            if len(calls) > 6:
                raise KeyboardInterrupt
            return asked(*args, **options)

        part.operator.sweep = sweep
        return part

    monkeypatch.setattr(Standardized, "some_rows", some_rows)
    model = GAMPClassifier(channel="logistic")
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert model.outcome_ is Outcome.INTERRUPTED
    assert model.coef_.shape == (1, 200)
    assert np.all(np.isfinite(model.coef_))
