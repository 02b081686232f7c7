"""SparseClassifier on correlated columns: the path it takes, what it averages, what it says of twins."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from foldless import SparseClassifier
from foldless.operators import Dense
from foldless.tuning.costs import Budget
from foldless.tuning.path import sets_of_groups
from foldless.tuning.portfolio import class_frequencies
from foldless.tuning.record import FLAGS
from foldless.tuning.table import Layout, Table
from reference.planned import CORRELATED, NEVER_EXACT, Planned


def factor_data(n_samples=60, n_features=200, seed=0):
    """Three common factors, of which one decides the class: many features say the same."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(n_samples, 3))
    X = factors @ rng.normal(size=(3, n_features)) + rng.normal(size=(n_samples, n_features))
    return X, np.where(factors[:, 0] + 0.5 * rng.normal(size=n_samples) > 0, "tumour", "normal")


def twin_data(n_samples=150, seed=1):
    """Blocks of five near-copies; one column of the first block and one of the fourth matter."""
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.normal(size=(n_samples, 40)), 5, axis=1) + 0.3 * rng.normal(size=(n_samples, 200))
    score = 2.5 * X[:, 2] - 2.5 * X[:, 17]
    return X, np.where(rng.random(n_samples) < expit(score), 1, 0)


@pytest.fixture(scope="module")
def fitted():
    X, y = factor_data()
    return SparseClassifier().fit(X, y), X, y


def test_correlated_columns_are_noticed_and_models_averaged(fitted):
    model, _, _ = fitted
    assert model.solver_ == "EP"
    weights = [share.weight for share in model.models_]
    assert_allclose(sum(weights), 1.0)
    assert weights == sorted(weights, reverse=True)
    assert {"sparse", "class frequencies"} < {share.name for share in model.models_}


def test_predictions_agree_with_each_other(fitted):
    model, X, _ = fitted
    probability = model.predict_proba(X)
    assert_allclose(probability.sum(axis=1), 1.0)
    assert_allclose(expit(model.decision_function(X)), probability[:, 1], rtol=1e-6)
    assert_array_equal(model.predict(X), model.classes_[(probability[:, 1] > 0.5).astype(int)])
    assert_allclose(np.exp(model.predict_log_proba(X)), probability, rtol=1e-6)


def test_leave_one_out_is_near_new_data():
    errors, promised = [], []
    for seed in range(3):
        X, y = factor_data(360, seed=seed)
        model = SparseClassifier().fit(X[:60], y[:60])
        errors.append(np.mean(model.predict(X[60:]) != y[60:]))
        promised.append(model.loo_error_)
    # Three times sixty samples leave a standard error of about 0.03.
    assert abs(np.mean(errors) - np.mean(promised)) < 0.08


def test_weights_are_log_odds_of_what_predicts():
    X, y = factor_data(560, seed=1)
    model = SparseClassifier().fit(X[:60], y[:60])
    proba = model.predict_proba(X[60:])[:, 1]
    plain = expit(X[60:] @ model.coef_[0] + model.intercept_[0])
    assert len(model._average.parts) > 1
    assert np.mean(np.abs(plain - proba)) < 0.05
    assert model.sparse_coef_.shape == model.sparse_coef_std_.shape == model.coef_.shape


def test_weights_over_a_background_are_those_behind_the_labels():
    """Half of every column is one factor: what labels tell of it is no reason to shrink weights."""
    ratios, covered = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = np.sqrt(0.5) * (rng.normal(size=(240, 1)) + rng.normal(size=(240, 400)))
        weights = np.where(np.arange(400) < 4, 1.5, 0.0)
        model = SparseClassifier().fit(X, rng.random(240) < expit(X @ weights))
        assert model.solver_ == "EP"
        own, spread = model.sparse_coef_[0], model.sparse_coef_std_[0]
        likely = model.inclusion_probability_ > 0.5
        covered.append((np.abs(own - weights) < 1.645 * spread)[likely])
        ratios.append(own[:4][likely[:4]] / 1.5)
    assert np.concatenate(ratios).size > 8
    assert 0.85 < np.median(np.concatenate(ratios)) < 1.2
    assert np.mean(np.concatenate(covered)) > 0.8


def test_a_dense_signal_is_flagged():
    rng = np.random.default_rng(3)
    factor = rng.normal(size=120)
    X = factor[:, np.newaxis] + 3.0 * rng.normal(size=(120, 400))
    model = SparseClassifier().fit(X, np.where(factor > 0, 1, 0))
    assert FLAGS["not-sparse"] in model.flags_


def test_messages_that_a_dense_signal_misleads_select_nothing():
    rng = np.random.default_rng(3)
    factor = rng.normal(size=120)
    X = factor[:, np.newaxis] + 3.0 * rng.normal(size=(120, 400))
    by_messages = Budget(exact=0.0, exact_over_background=0.0)
    model = Planned().but(by_messages).fit(X, np.where(factor > 0, 1, 0))
    assert {"diagonal-covariances", "misled"} <= {flag.code for flag in model.flags_}
    assert not model.get_support(fdr=1.0).any()
    assert not model.groups_


def test_twins_are_named_together():
    X, y = twin_data()
    model = SparseClassifier().fit(X, y)
    assert model.solver_ == "EP"
    blocks = [set((each.columns // 5).tolist()) for each in model.credible_sets_]
    assert {0} in blocks
    assert {3} in blocks
    assert all(each.probability >= 0.95 for each in model.credible_sets_)


def test_sparse_and_dense_storage_give_one_answer():
    X, y = twin_data()
    X[np.abs(X) < 0.4] = 0.0
    dense, sparse = SparseClassifier().fit(X, y), SparseClassifier().fit(sp.csr_array(X), y)
    assert dense.solver_ == sparse.solver_ == "EP"
    assert_allclose(dense.predict_proba(X), sparse.predict_proba(sp.csr_array(X)), rtol=1e-5)


def test_order_and_signs_and_units_do_not_matter():
    X, y = factor_data()
    rng = np.random.default_rng(7)
    rows, columns = rng.permutation(y.size), rng.permutation(X.shape[1])
    unit = np.where(rng.random(X.shape[1]) < 0.5, -3.0, 100.0)
    changed = (X * unit)[rows][:, columns]
    before, after = SparseClassifier().fit(X, y), SparseClassifier().fit(changed, y[rows])
    assert_allclose(after.predict_proba(changed), before.predict_proba(X)[rows], rtol=1e-4, atol=1e-6)
    assert_allclose(after.loo_log_loss_, before.loo_log_loss_, rtol=1e-4)


def test_the_same_data_give_the_same_fit_and_it_survives_pickling(fitted):
    model, X, y = fitted
    again = SparseClassifier().fit(X, y)
    assert_array_equal(model.coef_, again.coef_)
    restored = pickle.loads(pickle.dumps(model))
    assert_array_equal(restored.predict_proba(X), model.predict_proba(X))


def test_float32_stays_float32(fitted):
    _, X, y = fitted
    model = SparseClassifier().fit(X.astype(np.float32), y)
    assert model.coef_.dtype == model.predict_proba(X.astype(np.float32)).dtype == np.float32


def grouped_data():
    """Twelve subjects whose samples resemble each other more than those of others with the same label."""
    rng = np.random.default_rng(11)
    subject = np.repeat(np.arange(12), 8)
    own = rng.normal(size=(12, 150))
    X = 1.5 * own[subject] + rng.normal(size=(96, 150))
    y = (subject % 2).astype(int)
    X[:, :5] += 0.8 * (2 * y[:, np.newaxis] - 1)
    return X, y, subject


def test_leaving_a_group_out_is_harder_than_leaving_a_sample_out():
    X, y, subject = grouped_data()
    alone = SparseClassifier().fit(X, y)
    together = SparseClassifier().fit(X, y, groups=subject)
    assert alone.loo_log_loss_ < together.loo_log_loss_
    assert together.loo_error_ > alone.loo_error_


def test_groups_are_checked():
    X, y, subject = grouped_data()
    with pytest.raises(ValueError, match="only one group"):
        SparseClassifier().fit(X, y, groups=np.zeros(96))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        SparseClassifier().fit(X, y, groups=subject[:-1])


def test_covariates_are_kept_and_not_selected():
    X, y = factor_data()
    model = SparseClassifier(always_keep=[0, 5]).fit(X, y)
    assert model.solver_ == "EP"
    assert model.inclusion_probability_[[0, 5]].tolist() == [1.0, 1.0]
    assert model.get_support()[[0, 5]].all()


def topic_data(n_documents=600, n_words=3000, seed=0):
    """Sparse counts: a document has a length and a topic, and half of the topics belong to a class."""
    rng = np.random.default_rng(seed)
    words = rng.dirichlet(np.full(n_words, 0.05), size=8)
    topic = rng.integers(0, 8, n_documents)
    share = 0.5 * words[topic] + 0.5 * words.mean(axis=0)
    counts = rng.poisson(share * rng.integers(30, 90, n_documents)[:, np.newaxis])
    return sp.csr_matrix(np.log1p(counts)), np.where(topic < 4, "sport", "money")


@pytest.mark.filterwarnings("ignore:.*stalled:sklearn.exceptions.ConvergenceWarning")
def test_large_correlated_text_is_averaged_over_ridges():
    X, y = topic_data()
    train, test = slice(0, 300), slice(300, None)
    model = Planned().but(NEVER_EXACT, **CORRELATED).fit(X[train], y[train])
    assert model.solver_ == "GAMP"
    assert FLAGS["diagonal-covariances"] in model.flags_
    assert model.models_[0].code == "ridge"
    error = np.mean(model.predict(X[test]) != y[test])
    grid = {"C": np.logspace(-2, 3, 6)}
    rival = GridSearchCV(LogisticRegression(max_iter=1000), grid, scoring="neg_log_loss")
    rival.fit(X[train], y[train])
    assert error <= np.mean(rival.predict(X[test]) != y[test]) + 0.02
    assert model.loo_error_ == pytest.approx(error, abs=0.05)


def without_exact_covariances(X, y, **options):
    model = SparseClassifier()
    model._budget = Budget(exact=0.0, exact_over_background=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y, **options)


def test_subjects_who_differ_in_nothing_are_not_predicted_to_be_of_the_other_class():
    """As many subjects of each class: without one, its class is the rarer, and all would be missed."""
    wrong, group = [], np.repeat(np.arange(12), 5)
    y = (np.arange(12) % 2)[group]
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((12, 150))[group] + 0.7 * rng.standard_normal((60, 150))
        model = SparseClassifier().fit(X, y, groups=group)
        assert model.plan_.left_out == "groups"
        wrong.append(model.loo_error_)
        # Errors are those of subjects: sixty samples are worth about twelve.
        assert model.loo_worth_.n_samples < 30
    assert abs(np.mean(wrong) - 0.5) < 0.15


@pytest.mark.parametrize("n_classes", [2, 3])
def test_groups_are_predicted_at_the_class_frequencies_of_all(n_classes):
    rng = np.random.default_rng(0)
    group = np.unique(rng.integers(0, 8, 60), return_inverse=True)[1]
    code, weight = group % n_classes, rng.uniform(0.5, 2.0, 60)
    table = Table.of(Dense(rng.standard_normal((60, 9))), code, weight, Layout(9), n_classes, group)
    frequencies = class_frequencies(table)
    assert_allclose(
        frequencies.left_out.mean, np.broadcast_to(frequencies.weights().intercept, (60, table.n_scores))
    )
    # Samples that are left out alone keep their own frequencies.
    alone = class_frequencies(Table.of(Dense(np.ones((60, 9))), code, weight, Layout(9), n_classes))
    assert np.ptp(alone.left_out.mean[code == 0], axis=0).max() > 0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_groups_of_a_large_table_are_left_out_by_fits_to_the_others(n_classes):
    """Labels are those of groups and nothing else: twins within a group tell them, other groups do not."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(24), 5)
    X = 2.0 * rng.standard_normal((24, 150))[group] + rng.standard_normal((120, 150))
    y = np.arange(24)[group] % n_classes
    alone, together = without_exact_covariances(X, y), without_exact_covariances(X, y, groups=group)
    assert together.plan_.left_out == "sets of groups"
    # The fit is the same; what is said of its errors is not.
    assert_array_equal(together.inclusion_probability_, alone.inclusion_probability_)
    chance = 1 - 1 / n_classes
    assert alone.loo_error_ < 0.5 * chance
    assert together.loo_error_ > 0.8 * chance
    assert together.p_value_ > 0.05


def test_groups_without_weight_leave_nothing_to_learn_from():
    """All weight is in one group: without it no sample has any, and classes are as likely as each other."""
    rng = np.random.default_rng(0)
    X, group = rng.standard_normal((40, 60)), np.repeat([0, 1], 20)
    model = without_exact_covariances(X, np.arange(40) % 2, groups=group, sample_weight=1.0 - group)
    assert model.plan_.left_out == "sets of groups"
    assert_allclose(model.loo_proba_[group == 0], 0.5)


def test_sets_of_groups_have_their_share_of_every_class():
    rng = np.random.default_rng(0)
    group = np.unique(rng.integers(0, 40, 400), return_inverse=True)[1]
    classes = np.eye(2)[(group % 4 == 0).astype(int)]
    sets = sets_of_groups(group, classes, 10)
    assert len(sets) == 10
    assert_array_equal(np.sum(sets, axis=0), 1)
    for rows in sets:
        assert not np.isin(group[rows], group[~rows]).any()
        assert_allclose(classes[rows].sum(axis=0) / classes.sum(axis=0), 0.1, atol=0.08)
    # Fewer groups than sets: each is left out alone.
    assert len(sets_of_groups(np.arange(12) % 3, np.ones((12, 1)), 10)) == 3


def test_a_class_that_only_one_group_has_is_not_learnt_from_it():
    rng = np.random.default_rng(0)
    X, group = rng.standard_normal((60, 30)), np.arange(60) % 6
    model = without_exact_covariances(X, (group == 0).astype(int), groups=group)
    assert_allclose(model.loo_proba_[group == 0, 1], 1 / 52)
