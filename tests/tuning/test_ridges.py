"""Ridges of several classes, and averages with them in tables too large for exact covariances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from foldless import SparseClassifier
from foldless.problem import Outcome
from foldless.tuning.models import sparse as sparse_model
from foldless.tuning.models.ridges import newton_ridges, ridges, searched
from foldless.tuning.plan import SEARCHED_RIDGES
from foldless.tuning.planned import DensePlan
from foldless.tuning.record import FLAGS, Recorder
from foldless.tuning.table import survey
from reference.planned import INDEPENDENT, NEVER_EXACT, Planned, table_of


def log_loss(model, X, y):
    return -np.mean(np.log(model.predict_proba(X)[np.arange(y.size), y]))


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


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore:.*stalled")
def test_pixels_are_predicted_as_a_ridge_would():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(y.size)  # writers come one after the other
    train, test = order[:500], order[500:]
    model = Planned().but(NEVER_EXACT).fit(X[train], y[train])
    assert model.solver_ == "GAMP"
    assert FLAGS["diagonal-covariances"] in model.flags_
    ridges = [
        make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=500)).fit(X[train], y[train])
        for strength in (0.01, 0.1, 1.0)
    ]
    best = min(log_loss(ridge, X[test], y[test]) for ridge in ridges)
    # The log loss of a sample varies by about three quarters: three standard errors of 500 of them.
    assert log_loss(model, X[test], y[test]) < best + 0.1
    assert abs(log_loss(model, X[test], y[test]) - model.loo_log_loss_) < 0.1


@pytest.mark.parametrize("exact", [True, False])
def test_text_is_averaged_with_ridges_and_leave_one_out_is_kept(exact):
    budget = NEVER_EXACT if exact else replace(NEVER_EXACT, ridge_step=0.0)
    X, y = topics(1200, 1000, 4, seed=0)
    train, test = slice(0, 400), slice(400, None)
    model = Planned().but(budget).fit(X[train], y[train])
    assert model.plan_.dense.solver == ("Newton" if exact else "GAMP")
    loss = log_loss(model, X[test], y[test])
    assert any(share.code == "ridge" and share.weight > 0.3 for share in model.models_)
    assert abs(loss - model.loo_log_loss_) < 3 * 0.75 * np.sqrt(1 / 400 + 1 / 800)
    alone = Planned().but(budget, **INDEPENDENT, median_nonzero_fraction=1.0).fit(X[train], y[train])
    assert [(share.code, share.weight) for share in alone.models_] == [("sparse", 1.0)]
    assert loss < log_loss(alone, X[test], y[test]) - 0.02


def spectra(n_samples, seed):
    """Curves that are nearly the same but for their size; the classes differ in how they are bent."""
    rng = np.random.default_rng(seed)
    place = np.linspace(-1, 1, 80)
    bend = rng.standard_normal(n_samples)
    size, level = rng.normal(3, 1, (n_samples, 1)), rng.normal(0, 0.5, (n_samples, 1))
    curves = size * np.exp(-(place**2)) + level
    X = curves + 0.02 * bend[:, np.newaxis] * np.sin(3 * place) + 1e-4 * rng.standard_normal((n_samples, 80))
    return X, (bend > 0).astype(int)


# Of more samples than columns, and of fewer.
@pytest.mark.parametrize("n_train", [160, 60])
def test_where_classes_differ_along_what_hardly_varies_wider_ridges_follow(n_train, monkeypatch):
    X, y = spectra(1000, seed=0)
    X_test, y_test = X[n_train:], y[n_train:]
    model = SparseClassifier().fit(X[:n_train], y[:n_train])
    planned = model.plan_.dense
    tried = {share.name: share for share in model.models_}
    assert planned.wider[0].score_variance == 10 * planned.widest.score_variance
    assert sum(tried[recipe.name].weight for recipe in planned.wider if recipe.name in tried) > 0.5
    # They follow one after the other, from narrow to wide.
    names = [recipe.name for recipe in planned.wider]
    assert [name for name in names if name in tried] == names[: sum(name in tried for name in names)]
    monkeypatch.setattr("foldless.tuning.path.CLEAR_STANDARD_ERRORS", np.inf)
    without = SparseClassifier().fit(X[:n_train], y[:n_train])
    assert log_loss(model, X_test, y_test) < 0.8 * log_loss(without, X_test, y_test)
    assert model.loo_log_loss_ < 0.8 * without.loo_log_loss_


def test_wider_ridges_do_not_follow_where_nothing_is_to_be_learnt():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 60)) + rng.standard_normal((100, 1))
    model = SparseClassifier().fit(X, rng.integers(0, 2, 100))
    wider = {recipe.name for recipe in model.plan_.dense.wider}
    assert wider
    assert not wider & {share.name for share in model.models_}


@pytest.mark.parametrize("weighted", [False, True])
def test_two_classes_in_their_smaller_dimension_are_expectation_propagation(weighted):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 30)) + rng.standard_normal((300, 1))
    X[:, 7] = 1.0
    y = np.where(X[:, :5].sum(axis=1) + 2 * rng.logistic(size=300) > 0, 1.0, -1.0)
    weight = rng.choice([0.0, 1.0, 2.0], 300) if weighted else None
    table, unit = table_of(X, y, weight, always_kept=(3,)), np.linspace(0.5, 1.5, 30)
    unit /= np.sqrt(np.mean(unit[table.free] ** 2))
    primal, _ = newton_ridges(table, DensePlan("primal EP", SEARCHED_RIDGES, searched=True), unit, Recorder())
    by_ep, _ = ridges(table, DensePlan("EP", SEARCHED_RIDGES), unit, Recorder())
    of_name = {model.name: model for model in by_ep}
    assert len(primal) >= 2
    for one in primal:
        other = of_name[one.name]
        assert_allclose(one.left_out.mean, other.left_out.mean, atol=0.02, rtol=0.01)
        in_use = table.sample_weight > 0
        assert_allclose(one.left_out.var[in_use], other.left_out.var[in_use], rtol=0.02)
        for mine, reference in zip(vars(one.weights()).values(), vars(other.weights()).values(), strict=True):
            assert (mine is None) == (reference is None)
            if mine is not None:
                assert_allclose(mine, reference, atol=0.01, rtol=0.02)


def test_columns_that_are_mostly_zeros_are_told_in_any_storage():
    X = np.zeros((60, 6))
    X[::15] = np.arange(1, 25).reshape(4, 6)
    y = np.arange(60) % 4
    for stored, expected in ((X, 4 / 60), (sparse.csr_array(X), 4 / 60), (X + 1.0, 1.0)):
        table = table_of(stored, y + 1)
        facts = survey(table)
        assert_allclose(facts.median_nonzero_fraction, expected)


def test_where_exact_covariances_do_not_settle_message_passing_has_its_say(monkeypatch):
    rng = np.random.default_rng(1)
    y = np.arange(90) % 3
    means = np.zeros((3, 150))
    means[:, :5] = rng.normal(0, 1.5, (3, 5))
    X = means[y] + rng.standard_normal((90, 150)) + 0.7 * rng.standard_normal((90, 1))
    settled = SparseClassifier().fit(X, y)
    found = sparse_model._from_plain_parameters

    def unsettled(table, planned, *args):
        fits = found(table, planned, *args)
        if planned.solver != "EP":
            return fits
        solution = replace(fits.judged, outcome=Outcome.STALLED)
        return replace(fits, selects=replace(fits.selects, solution=solution), judged=solution)

    monkeypatch.setattr(sparse_model, "_from_plain_parameters", unsettled)
    rescued = SparseClassifier().fit(X, y)
    assert settled.solver_ == "EP"
    assert rescued.solver_ == "GAMP"
    assert FLAGS["fell-back"] in rescued.flags_
    assert FLAGS["fell-back"] not in settled.flags_
    assert {share.code: share.weight for share in rescued.models_}["sparse"] > 0.3
    assert rescued.outcome_.trustworthy
    assert rescued.loo_log_loss_ < settled.loo_log_loss_ + 0.2


def test_a_search_over_strengths_goes_from_neighbour_to_neighbour():
    asked = []

    def fitted(recipe):
        asked.append(recipe.score_variance)
        return recipe.score_variance

    def unless_ten(recipe):
        return None if recipe.score_variance == 10.0 else recipe.score_variance

    def loss(strength):
        return abs(np.log(strength / 2000.0))

    best = [(recipe, recipe.score_variance) for recipe in SEARCHED_RIDGES[3:6]]
    assert searched(SEARCHED_RIDGES, fitted, loss) == best
    assert_allclose(asked, [10.0, 100.0, 1000.0, 10000.0])
    assert searched(SEARCHED_RIDGES, lambda recipe: None, loss) == []
    # Down to the weakest and up to the strongest.
    for at, ends in ((0, slice(0, 2)), (len(SEARCHED_RIDGES) - 1, slice(-2, None))):
        edge = SEARCHED_RIDGES[at].score_variance

        def to_edge(strength, edge=edge):
            return abs(np.log(strength / edge))

        assert [recipe for recipe, _ in searched(SEARCHED_RIDGES, fitted, to_edge)] == list(
            SEARCHED_RIDGES[ends]
        )
    assert searched(SEARCHED_RIDGES, unless_ten, loss) == best
