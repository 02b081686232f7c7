"""A search on a part of the samples: which part, and that all samples have the last word."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

from foldless import GAMPClassifier, SparseClassifier
from foldless.estimators import classifier
from foldless.operators import Dense, Standardized
from foldless.solution import Outcome
from foldless.tuning import large, sample
from foldless.tuning.fit import Choices, Columns, fit
from foldless.tuning.large import foretells
from foldless.tuning.sample import parts_of


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of a few hundred rows, and of a larger share than is worth it, so that tests are quick."""
    monkeypatch.setattr(sample, "ROWS", 400)
    monkeypatch.setattr(sample, "LARGEST_SHARE", 0.25)


def logistic_data(n_samples, n_features=200, n_active=8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features))
    scores = X[:, :n_active] @ rng.choice([-1.0, 1.0], n_active)
    return X, np.where(rng.random(n_samples) < expit(scores), 1, -1)


def test_a_part_is_drawn_within_classes_from_what_counts():
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(300_000) < 0.01, 1.0, -1.0)
    weight = np.ones(labels.size)
    weight[:50_000] = 0.0
    rows = parts_of(labels, weight).search
    assert_array_equal(rows, parts_of(labels, weight).search)
    assert np.all(np.diff(rows) > 0)
    assert rows.min() >= 50_000
    assert rows.size == pytest.approx(sample.ROWS, abs=1)
    assert np.sum(labels[rows] > 0) == round(sample.ROWS * np.mean(labels[50_000:] > 0))
    others = parts_of(labels, weight).check
    assert not np.intersect1d(rows, others).size
    assert others.min() >= 50_000
    assert np.sum(labels[others] > 0) == np.sum(labels[rows] > 0)
    # From all over the table, which may be sorted.
    assert np.mean(rows) == pytest.approx(175_000, abs=5 * 250_000 / np.sqrt(12 * sample.ROWS))


def test_a_rare_class_has_a_row_in_the_part(small_parts):
    labels = np.full(100_000, -1.0)
    labels[:3] = 1.0
    assert np.sum(labels[parts_of(labels, np.ones(labels.size)).search] > 0) == 1


def test_few_samples_are_searched_whole(small_parts):
    for n_samples, is_whole in ((1599, True), (1600, False)):
        labels = np.where(np.arange(n_samples) % 2, 1.0, -1.0)
        assert (parts_of(labels, np.ones(n_samples)) is None) == is_whole
        twice_as_many = np.concatenate([labels, labels])
        weight = np.concatenate([np.ones(n_samples), np.zeros(n_samples)])
        assert (parts_of(twice_as_many, weight) is None) == is_whole


def test_all_samples_have_the_last_word(small_parts, monkeypatch):
    X, y = logistic_data(2000)
    options = {"channel": "robust-logistic", "tol": 1e-6}
    sizes = []

    def watched(labels, weight):
        parts = parts_of(labels, weight)
        sizes.append(None if parts is None else parts.search.size)
        return parts

    monkeypatch.setattr("foldless.tuning.fit.parts_of", watched)
    by_part = GAMPClassifier(**options).fit(X, y)
    assert sizes == [400, None]
    monkeypatch.setattr("foldless.tuning.fit.parts_of", lambda labels, weight: None)
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


def with_a_factor(n_samples, strength, seed=0):
    """Columns that share a factor, as words share the length of their document; few of them matter."""
    rng = np.random.default_rng(seed)
    X, y = logistic_data(n_samples, 400, n_active=3, seed=seed)
    return X + strength * rng.standard_normal((n_samples, 1)), y


def test_many_samples_of_correlated_columns_fit_what_a_sample_has_found_worthwhile(small_parts, monkeypatch):
    """A table too large for exact covariances, by decree."""
    monkeypatch.setattr(classifier, "LARGEST_EXACT_COST", 0.0)
    X, y = with_a_factor(2600, 0.1)
    fitted = []
    solve = large.solve

    def watched(problem, solver, **options):
        solution = solve(problem, solver, **options)
        fitted.append((problem.operator.shape[0], options.get("state") is not None))
        return solution

    monkeypatch.setattr(large, "solve", watched)
    model = SparseClassifier().fit(X[:1600], y[:1600])
    # Ridges of a sample, each from the one before; none of them is worth fitting to all samples.
    assert fitted == [(400, False), *(3 * [(400, True)])]
    assert [name for name, weight in model.models_ if weight > 0.1] == ["sparse"]
    whole = SparseClassifier()
    monkeypatch.setattr(large, "parts_of", lambda labels, weight: None)
    whole.fit(X[:1600], y[:1600])
    assert model.loo_log_loss_ <= whole.loo_log_loss_ + 1e-3
    error, expected = (np.mean(m.predict(X[1600:]) != y[1600:]) for m in (model, whole))
    assert error <= expected + 0.01
    assert model.loo_error_ == pytest.approx(error, abs=5 * np.sqrt(0.25 / 1000))


def test_dense_models_of_a_sample_go_on_with_all_samples(small_parts, monkeypatch):
    monkeypatch.setattr(classifier, "LARGEST_EXACT_COST", 0.0)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 200)) + 0.12 * rng.standard_normal((2000, 1))
    y = np.where(rng.random(2000) < expit(X @ rng.standard_normal(200) / 6), 1, -1)
    seen = []
    solve = large.solve

    def watched(problem, solver, **options):
        seen.append((problem.operator.shape[0], options.get("state") is not None))
        return solve(problem, solver, **options)

    monkeypatch.setattr(large, "solve", watched)
    model = SparseClassifier().fit(X, y)
    assert (2000, True) in seen
    assert (2000, False) not in seen
    assert sum(weight for name, weight in model.models_ if name.startswith("ridge")) > 0.1


def test_leave_one_out_that_promised_too_much_is_found_out():
    X, y = logistic_data(1200)
    labels = y.astype(float)
    standardized = Standardized.fit(Dense(X))
    part, others = standardized.some_rows(np.arange(400)), standardized.some_rows(np.arange(400, 1200))
    columns = Columns(200, (), intercept=True, means_removed=False)
    choices = SparseClassifier()._choices()
    assert isinstance(choices, Choices)
    found = fit(part, labels[:400], np.ones(400), columns, choices)
    assert foretells(found, others, labels[400:], np.ones(800))
    # The same fit, whose other samples have labels of chance.
    chance = np.where(np.random.default_rng(1).random(800) < 0.5, 1.0, -1.0)
    assert not foretells(found, others, chance, np.ones(800))
