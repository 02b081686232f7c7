"""Many classes in tables too large for exact covariances: averages that predict, and promises they keep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import log_softmax
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from foldless import SparseClassifier
from foldless.channels import Multinomial
from foldless.estimators import classifier
from foldless.operators import Standardized, operator_from
from foldless.solution import Outcome
from foldless.tuning import many_correlated, many_large
from foldless.tuning.many_models import ManyTable
from foldless.tuning.ridge_path import searched


@pytest.fixture
def too_large(monkeypatch):
    monkeypatch.setattr(classifier, "LARGEST_EXACT_COST", 0.0)


def log_loss(model, X, y):
    return -np.mean(np.log(model.predict_proba(X)[np.arange(y.size), y]))


def table_of(X, y):
    weight = np.ones(y.size)
    standardized = Standardized.fit(operator_from(X), weight)
    return ManyTable(standardized, y + 1.0, weight, weight, (), Multinomial(int(y.max()) + 1))


def topics(n_documents, n_words, n_classes, seed):
    """Words by Zipf's law in documents of five topics, unit rows; words matter alike where they occur."""
    rng = np.random.default_rng(seed)
    zipf = np.exp(0.8 * rng.standard_normal((5, n_words))) / np.arange(1, n_words + 1)
    frequencies = np.cumsum(zipf / zipf.sum(axis=1, keepdims=True), axis=1)
    words = [
        np.unique(np.searchsorted(frequencies[topic], rng.random(40) * (1 - 1e-9)))
        for topic in rng.integers(0, 5, n_documents)
    ]
    rows = np.repeat(np.arange(n_documents), [drawn.size for drawn in words])
    X = sparse.csr_array((np.ones(rows.size), (rows, np.concatenate(words))), shape=(n_documents, n_words))
    X = (sparse.diags_array(1 / np.sqrt(X.sum(axis=1))) @ X).tocsr()
    scores = X @ rng.standard_normal((n_words, n_classes))
    scores = 6 * (scores - scores.mean(axis=0)) / scores.std()
    return X, np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)


@pytest.mark.usefixtures("too_large")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore:.*stalled")
def test_pixels_are_predicted_as_a_ridge_would():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(y.size)  # writers come one after the other
    train, test = order[:500], order[500:]
    model = SparseClassifier().fit(X[train], y[train])
    assert model.solver_ == "GAMP"
    assert classifier.TOO_LARGE_FOR_ITS_CORRELATIONS in model.flags_
    ridges = [
        make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=500)).fit(X[train], y[train])
        for strength in (0.01, 0.1, 1.0)
    ]
    best = min(log_loss(ridge, X[test], y[test]) for ridge in ridges)
    # The log loss of a sample varies by about three quarters: three standard errors of 500 of them.
    assert log_loss(model, X[test], y[test]) < best + 0.1
    assert abs(log_loss(model, X[test], y[test]) - model.loo_log_loss_) < 0.1


@pytest.mark.usefixtures("too_large")
@pytest.mark.parametrize("exact", [True, False])
def test_text_is_averaged_with_ridges_and_leave_one_out_is_kept(monkeypatch, exact):
    if not exact:
        monkeypatch.setattr(many_large, "LARGEST_STEP_COST", 0.0)
    X, y = topics(1200, 1000, 4, seed=0)
    train, test = slice(0, 400), slice(400, None)
    model = SparseClassifier().fit(X[train], y[train])
    loss = log_loss(model, X[test], y[test])
    assert any(name.startswith("ridge") and weight > 0.3 for name, weight in model.models_)
    assert abs(loss - model.loo_log_loss_) < 3 * 0.75 * np.sqrt(1 / 400 + 1 / 800)
    monkeypatch.setattr(classifier, "TOLERATED_EXCESS", np.inf)
    monkeypatch.setattr(ManyTable, "mostly_zeros", False)
    alone = SparseClassifier().fit(X[train], y[train])
    assert alone.models_ == [("sparse", 1.0)]
    assert loss < log_loss(alone, X[test], y[test]) - 0.02


def test_left_out_in_parts_is_nearly_left_out_one_by_one(monkeypatch):
    X, y = load_digits(return_X_y=True)
    table = table_of(X[:300], y[:300])
    one_by_one = {model.name: model.loo_mean for model in many_large._ridges(table)}
    monkeypatch.setattr(many_large, "LARGEST_LOO_COST", 0.0)
    in_parts = {model.name: model.loo_mean for model in many_large._ridges(table)}
    assert one_by_one.keys() == in_parts.keys()
    own = np.arange(300), y[:300]
    for name, scores in one_by_one.items():
        one, part = (-log_softmax(z, axis=1)[own] for z in (scores, in_parts[name]))
        assert abs(np.mean(part - one)) < 3 * np.std(part - one) / np.sqrt(300) + 0.1 * one.mean()
        assert np.corrcoef(one, part)[0, 1] > 0.8


def test_parts_have_all_classes_and_do_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 8)), np.arange(60) % 3
    parts, order = many_large.parts_of(table_of(X, y)), rng.permutation(60)
    assert_array_equal(many_large.parts_of(table_of(X[order], y[order])), parts[order])
    for part in range(many_large.N_PARTS):
        assert_array_equal(np.bincount(y[parts == part]), [4, 4, 4])


def test_columns_that_are_mostly_zeros_are_told_in_any_storage():
    X = np.zeros((60, 6))
    X[::15] = np.arange(1, 25).reshape(4, 6)
    y = np.arange(60) % 4
    assert table_of(X, y).mostly_zeros
    assert table_of(sparse.csr_array(X), y).mostly_zeros
    assert not table_of(X + 1.0, y).mostly_zeros


def test_where_exact_covariances_do_not_settle_message_passing_has_its_say(monkeypatch):
    rng = np.random.default_rng(1)
    y = np.arange(90) % 3
    means = np.zeros((3, 150))
    means[:, :5] = rng.normal(0, 1.5, (3, 5))
    X = means[y] + rng.standard_normal((90, 150)) + 0.7 * rng.standard_normal((90, 1))
    settled = SparseClassifier().fit(X, y)
    found = many_correlated.at_plain_parameters

    def unsettled(*args, **kwargs):
        plain, tuned = found(*args, **kwargs)
        solution = replace(plain.solution, outcome=Outcome.STALLED)
        return replace(plain, solution=solution), replace(tuned, solution=solution)

    monkeypatch.setattr(many_correlated, "at_plain_parameters", unsettled)
    rescued = SparseClassifier().fit(X, y)
    assert settled.solver_ == "EP"
    assert dict(rescued.models_)["sparse"] > 0.3
    assert rescued.outcome_.trustworthy
    assert rescued.loo_log_loss_ < settled.loo_log_loss_ + 0.2


def test_a_search_over_strengths_goes_from_neighbour_to_neighbour():
    asked = []

    class At:
        def __init__(self, strength):
            asked.append(strength)
            self.strength, self.loo_loss = strength, abs(np.log(strength / 2000.0))

    assert_allclose([found.strength for found in searched(At)], [100.0, 1000.0, 10000.0])
    assert_allclose(asked, [10.0, 100.0, 1000.0, 10000.0])
    assert searched(lambda strength: None) == []
    beyond_a_failure = searched(lambda strength: None if strength == 10.0 else At(strength))
    assert_allclose([found.strength for found in beyond_a_failure], [100.0, 1000.0, 10000.0])
