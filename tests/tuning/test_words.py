"""Dense models of text too large for exact covariances: leave-one-out that new documents keep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from scipy.special import expit

from foldless import GAMPClassifier, SparseClassifier
from foldless.operators import Standardized, operator_from
from foldless.problem import Outcome
from foldless.tuning.models import sparse as sparse_model
from foldless.tuning.record import FLAGS
from reference.planned import CORRELATED, NEVER_EXACT, Planned


def documents(n_documents, n_words, seed):
    """Words by Zipf's law in documents of five topics, unit rows; words matter alike where they occur."""
    rng = np.random.default_rng(seed)
    zipf = np.exp(0.8 * rng.standard_normal((5, n_words))) / np.arange(1, n_words + 1)
    topics = np.cumsum(zipf / zipf.sum(axis=1, keepdims=True), axis=1)
    rows, words = [], []
    for row, topic in enumerate(rng.integers(0, 5, n_documents)):
        drawn = np.unique(np.searchsorted(topics[topic], rng.random(40) * (1 - 1e-9)))
        rows += [row] * drawn.size
        words += list(drawn)
    X = sparse.csr_array((np.ones(len(rows)), (rows, words)), shape=(n_documents, n_words))
    X = sparse.diags_array(1 / np.sqrt(X.sum(axis=1))) @ X
    scores = X @ rng.standard_normal(n_words)
    scores = 4 * (scores - scores.mean()) / scores.std()
    return X.tocsr(), np.where(rng.random(n_documents) < expit(scores), 1, -1)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.filterwarnings("ignore:.*stalled")
def test_rare_words_do_not_make_leave_one_out_promise_too_much(seed):
    X, y = documents(1500, 2000, seed)
    train, test = slice(0, 500), slice(500, None)
    losses = []
    for facts in ({}, {"median_nonzero_fraction": 1.0}):
        model = Planned().but(NEVER_EXACT, **CORRELATED, **facts).fit(X[train], y[train])
        assert model.plan_.dense.per_occurrence == (not facts)
        probability = model.predict_proba(X[test])[:, 1]
        loss = -np.mean(np.log(np.where(y[test] > 0, probability, 1 - probability)))
        losses.append((loss, loss - model.loo_log_loss_))
    (loss, excess), (plain_loss, plain_excess) = losses
    # The log loss of a sample varies by about one half: three standard errors of both sides.
    assert excess < 3 * 0.5 * np.sqrt(1 / 500 + 1 / 1000)
    assert excess < plain_excess
    assert loss < plain_loss


def test_columns_without_zeros_have_one_prior():
    X = np.random.default_rng(0).standard_normal((30, 8))
    standardized = Standardized.fit(operator_from(X))
    assert_array_equal(standardized.nonzero_weight(np.ones(30)), 30.0)


def independent_words(n_documents, n_words, boost, n_own, seed):
    """Two classes, each with words of its own that it uses a little more often; words are independent."""
    rng = np.random.default_rng(seed)
    frequency = np.tile(1.0 / np.arange(1, n_words + 1), (2, 1))
    for of_class in frequency:
        of_class[rng.choice(n_words, n_own, replace=False)] *= boost
    frequency = np.minimum(60 * frequency / frequency.sum(axis=1, keepdims=True), 0.9)
    y = np.arange(n_documents) % 2
    return sparse.csr_array((rng.random((n_documents, n_words)) < frequency[y]).astype(float)), y


def share_of_sparse(model):
    return sum(share.weight for share in model.models_ if share.code == "sparse")


@pytest.mark.parametrize(("boost", "n_own", "ridges_help"), [(1.6, 500, True), (8.0, 10, False)])
def test_independent_words_have_ridges_beside_the_sparse_model_if_these_help(boost, n_own, ridges_help):
    X, y = independent_words(1400, 1500, boost, n_own, seed=0)
    train, test = slice(0, 600), slice(600, None)
    model = SparseClassifier().fit(X[train], y[train])
    assert model.solver_ == "GAMP"
    assert model.flags_ in ([FLAGS["narrow-intervals"]], [FLAGS["narrow-intervals"], FLAGS["not-sparse"]])
    assert (share_of_sparse(model) < 0.5) == ridges_help
    loss = -np.mean(np.log(model.predict_proba(X[test])[np.arange(800), y[test]]))
    assert abs(loss - model.loo_log_loss_) < 3 * 0.5 * np.sqrt(1 / 600 + 1 / 800)
    alone = GAMPClassifier().fit(X[train], y[train])
    loss_alone = -np.mean(np.log(alone.predict_proba(X[test])[np.arange(800), y[test]]))
    assert loss < loss_alone + (-0.02 if ridges_help else 0.02)


@pytest.mark.filterwarnings("ignore:.*stalled")
def test_class_means_settle_what_labels_alone_do_not(monkeypatch):
    """Correlated words whose sparse model would have no share, had it not settled the other way."""
    X, y = independent_words(600, 1500, 8.0, 10, seed=0)
    found = sparse_model._from_plain_parameters

    def unsettled(*args):
        fits = found(*args)
        return replace(fits, judged=replace(fits.judged, outcome=Outcome.STALLED))

    monkeypatch.setattr(sparse_model, "_from_plain_parameters", unsettled)
    model = Planned().but(NEVER_EXACT, **CORRELATED).fit(X, y)
    assert [run.used for run in model.record_.of("sparse", "fit")] == [False, True]
    assert share_of_sparse(model) > 0.5
    assert model.outcome_.trustworthy


def test_correlated_words_have_few_effects_over_a_ridge():
    """Topics correlate words, and a few common words tell the classes apart."""
    rng = np.random.default_rng(0)
    X, _ = documents(2000, 3000, seed=3)
    words = np.flatnonzero(np.asarray((X > 0).mean(axis=0)).ravel() > 0.1)
    true = rng.choice(words, 6, replace=False)
    scores = 4.0 * (X[:, true] > 0) @ np.where(np.arange(6) % 2, 1.0, -1.0)
    y = np.where(rng.logistic(size=2000) < scores, 1, -1)
    train, test = slice(0, 400), slice(400, None)
    model = Planned().but(**CORRELATED).fit(X[train], y[train])
    assert model.solver_ == "BackgroundEP"
    assert model.plan_.because("in-kernel")
    assert [run.solver for run in model.record_.runs] == ["BackgroundEP"] * 2
    assert all(run.outcome.trustworthy for run in model.record_.runs)
    assert set(model.get_support(fdr=0.1, indices=True)) <= set(true)
    assert len(model.get_support(fdr=0.1, indices=True)) >= 3
    probability = model.predict_proba(X[test])[:, 1]
    loss = -np.mean(np.log(np.where(y[test] > 0, probability, 1 - probability)))
    assert abs(loss - model.loo_log_loss_) < 3 * 0.5 * np.sqrt(1 / 400 + 1 / 1600)
