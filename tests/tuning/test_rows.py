"""A search on a part of the samples: which part, and that all samples have the last word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.base import clone

from foldless import GAMPClassifier, SparseClassifier
from foldless.operators import Standardized
from foldless.problem import Outcome
from foldless.tuning.costs import Budget
from foldless.tuning.fit import fit_tuned
from foldless.tuning.models.sparse import loo_holds
from foldless.tuning.plan import requested
from foldless.tuning.record import Recorder
from reference.planned import table_of

ROWS = Budget().search_rows
# Parts of a few hundred rows, and of a larger share than is worth it, so that tests are quick.
SMALL_PARTS = Budget(search_rows=400, search_share=0.25)
WHOLE = Budget(search_rows=10**9)


def with_budget(model, budget):
    model._budget = budget
    return model


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
    table = table_of(rng.standard_normal((labels.size, 1)), labels, weight)
    rows, others = table.parts(ROWS)
    assert_array_equal(rows, table.parts(ROWS)[0])
    assert np.all(np.diff(rows) > 0)
    assert rows.min() >= 50_000
    assert rows.size == pytest.approx(ROWS, abs=1)
    assert np.sum(labels[rows] > 0) == round(ROWS * np.mean(labels[50_000:] > 0))
    assert not np.intersect1d(rows, others).size
    assert others.min() >= 50_000
    assert np.sum(labels[others] > 0) == np.sum(labels[rows] > 0)
    # From all over the table, which may be sorted.
    assert np.mean(rows) == pytest.approx(175_000, abs=5 * 250_000 / np.sqrt(12 * ROWS))


def test_a_rare_class_has_a_row_in_the_part():
    labels = np.full(100_000, -1.0)
    labels[:3] = 1.0
    table = table_of(np.arange(100_000.0)[:, np.newaxis], labels)
    assert np.sum(labels[table.parts(400)[0]] > 0) == 1


def test_every_class_has_its_share_of_the_part():
    labels = np.repeat([1.0, 2.0, 3.0], [500, 300, 200])
    table = table_of(np.arange(1000.0)[:, np.newaxis], labels)
    for part in table.parts(100):
        assert_array_equal(np.bincount(table.codes[part]), [50, 30, 20])


def test_few_samples_are_searched_whole():
    X, y = logistic_data(1600, 20, 2)
    for n_samples, rows in ((1599, 0), (1600, 400)):
        planned = requested("gaussian", "GAMP", (n_samples, 10), searched=True, budget=SMALL_PARTS)
        assert planned.sparse.search_rows == rows
        assert requested("gaussian", "GAMP", (n_samples, 10), searched=False).sparse.search_rows == 0
        # Rows of weight zero do not count.
        weight = np.zeros(2 * n_samples)
        weight[:n_samples] = 1.0
        twice = np.concatenate([X[:n_samples], X[:n_samples]]), np.concatenate([y[:n_samples]] * 2)
        for model in (SparseClassifier(), GAMPClassifier()):
            with_budget(model, SMALL_PARTS).fit(*twice, sample_weight=weight)
            assert model.plan_.sparse.search_rows == rows


def test_all_samples_have_the_last_word():
    X, y = logistic_data(2000)
    options = {"channel": "robust-logistic", "tol": 1e-6}
    by_part = with_budget(GAMPClassifier(**options), SMALL_PARTS).fit(X, y)
    assert by_part.plan_.sparse.search_rows == 400
    assert by_part.record_.of("sparse", "sample")
    whole = with_budget(GAMPClassifier(**options), WHOLE).fit(X, y)
    assert not whole.record_.of("sparse", "sample")
    assert by_part.generative_weight_ == whole.generative_weight_ == 0.0
    # The same fixed point, as closely as either was asked to come to it.
    assert_allclose(by_part.coef_, whole.coef_, atol=1e-4)
    assert by_part.loo_log_loss_ == pytest.approx(whole.loo_log_loss_, abs=1e-5)
    assert by_part.prior_.inclusion == pytest.approx(whole.prior_.inclusion, rel=1e-2)


@pytest.mark.parametrize(
    "model", [GAMPClassifier(channel="logistic"), SparseClassifier(generative_weight=0.0)], ids=repr
)
def test_an_interrupt_in_the_part_ends_the_fit(model, monkeypatch):
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
    model = with_budget(clone(model), SMALL_PARTS)
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


@pytest.fixture
def runs_of_ridges(monkeypatch):
    """Of every ridge: how many rows it was fitted to, and whether it had somewhere to start from."""
    seen = []
    solve = Recorder.solve

    def watched(self, problem, solver, **options):
        if options["model"] == "ridge":
            seen.append((problem.operator.shape[0], options.get("state") is not None))
        return solve(self, problem, solver, **options)

    monkeypatch.setattr(Recorder, "solve", watched)
    return seen


def test_many_samples_of_correlated_columns_fit_what_a_sample_has_found_worthwhile(runs_of_ridges):
    """A table too large for exact covariances, by decree."""
    X, y = with_a_factor(2600, 0.1)
    model = with_budget(SparseClassifier(), replace(SMALL_PARTS, exact=0.0)).fit(X[:1600], y[:1600])
    assert model.plan_.path == "diagonal"
    # Ridges of a sample, each from the one before; none of them is worth fitting to all samples.
    assert runs_of_ridges == [(400, False), *(3 * [(400, True)])]
    assert [share.code for share in model.models_ if share.weight > 0.1] == ["sparse"]
    whole = with_budget(SparseClassifier(), replace(WHOLE, exact=0.0)).fit(X[:1600], y[:1600])
    assert model.loo_log_loss_ <= whole.loo_log_loss_ + 1e-3
    error, expected = (np.mean(m.predict(X[1600:]) != y[1600:]) for m in (model, whole))
    assert error <= expected + 0.01
    assert model.loo_error_ == pytest.approx(error, abs=5 * np.sqrt(0.25 / 1000))


def test_dense_models_of_a_sample_go_on_with_all_samples(runs_of_ridges):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 200)) + 0.12 * rng.standard_normal((2000, 1))
    y = np.where(rng.random(2000) < expit(X @ rng.standard_normal(200) / 6), 1, -1)
    model = with_budget(SparseClassifier(), replace(SMALL_PARTS, exact=0.0)).fit(X, y)
    assert model.plan_.path == "diagonal"
    assert (2000, True) in runs_of_ridges
    assert (2000, False) not in runs_of_ridges
    assert sum(share.weight for share in model.models_ if share.code == "ridge") > 0.1


def test_leave_one_out_that_promised_too_much_is_found_out():
    X, y = logistic_data(1200)
    table = table_of(X, y)
    part, others = table.some_rows(np.arange(400)), table.some_rows(np.arange(400, 1200))
    found = fit_tuned(part, SparseClassifier()._choices(2), Recorder())
    assert loo_holds(found, others)
    # The same fit, whose other samples have labels of chance.
    chance = np.where(np.random.default_rng(1).random(800) < 0.5, 1.0, -1.0)
    assert not loo_holds(found, replace(others, labels=chance))
