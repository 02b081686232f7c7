"""Dense models of text too large for exact covariances: leave-one-out that new documents keep."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from foldless import SparseClassifier
from foldless.estimators import classifier
from foldless.operators import Standardized, operator_from
from foldless.tuning import large


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
def test_rare_words_do_not_make_leave_one_out_promise_too_much(monkeypatch, seed):
    monkeypatch.setattr(classifier, "LARGEST_EXACT_COST", 0.0)
    monkeypatch.setattr(classifier, "TOLERATED_EXCESS", 0.0)
    X, y = documents(1500, 2000, seed)
    train, test = slice(0, 500), slice(500, None)
    losses = []
    for power in (large.PRESENCE_POWER, 0.0):
        monkeypatch.setattr(large, "PRESENCE_POWER", power)
        model = SparseClassifier().fit(X[train], y[train])
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
    presence = standardized.presence(np.ones(30))
    assert np.ptp(presence) == 0.0
    assert presence[0] == pytest.approx(1.0, abs=1e-12)
