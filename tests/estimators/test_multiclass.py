"""SparseClassifier with more than two classes: shapes, selection, rare classes, weights, groups, dtypes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from foldless import GAMPClassifier, SparseClassifier
from foldless.solvers.multinomial_ridge import multinomial_ridge


def shifted(n_samples=90, n_features=150, n_classes=3, seed=0, shift=1.5):
    """Independent columns, of which the first shift with a class each."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_samples) % n_classes
    X = rng.standard_normal((n_samples, n_features))
    X[np.arange(n_samples), y] += shift * np.sqrt(n_classes)
    return X, np.array([f"class {k:02d}" for k in range(n_classes)])[y]


def factors(n_samples=120, n_features=60, n_classes=3, seed=0):
    """Columns that share three factors, all of which matter: dense and correlated."""
    rng = np.random.default_rng(seed)
    loadings = np.random.default_rng(99).standard_normal((3, n_features))
    factor = rng.standard_normal((n_samples, 3))
    y = np.argmax(2 * factor[:, :n_classes] + rng.gumbel(size=(n_samples, n_classes)), axis=1)
    return factor @ loadings + 0.5 * rng.standard_normal((n_samples, n_features)), y


def test_fitted_attributes_have_their_shapes_and_the_active_features_are_found():
    X, y = shifted()
    model = SparseClassifier().fit(X, y)
    assert model.solver_ == "GAMP"
    assert [(share.code, share.weight) for share in model.models_] == [("sparse", 1.0)]
    assert model.coef_.shape == model.coef_std_.shape == (3, 150)
    assert model.intercept_.shape == (3,)
    assert model.inclusion_probability_.shape == (150,)
    assert model.loo_proba_.shape == (90, 3)
    assert_allclose(model.loo_proba_.sum(axis=1), 1, atol=1e-6)
    assert_allclose(model.predict_proba(X).sum(axis=1), 1, atol=1e-6)
    assert_allclose(model.predict_log_proba(X), np.log(model.predict_proba(X)), atol=1e-6)
    assert (model.classes_[model.decision_function(X).argmax(axis=1)] == model.predict(X)).all()
    assert set(model.get_support(fdr=0.1, indices=True)) == {0, 1, 2}
    assert model.transform(X).shape == (90, 3)
    fresh_X, fresh_y = shifted(seed=1, n_samples=600)
    error = np.mean(model.predict(fresh_X) != fresh_y)
    assert error < 0.15
    # Five standard errors of 90 left-out samples.
    assert abs(model.loo_error_ - error) < 5 * np.sqrt(error * (1 - error) / 90)
    own = np.searchsorted(model.classes_, fresh_y)
    loss = -np.mean(model.predict_log_proba(fresh_X)[np.arange(600), own])
    assert abs(model.loo_log_loss_ - loss) < 0.15


def test_correlated_columns_are_fitted_with_exact_covariances_and_averaged():
    X, y = factors()
    model = SparseClassifier().fit(X, y)
    assert model.solver_ == "EP"
    assert any(share.code == "ridge" and share.weight > 0.1 for share in model.models_)
    assert sum(share.weight for share in model.models_) == pytest.approx(1)
    fresh_X, fresh_y = factors(seed=1, n_samples=1000)
    error = np.mean(model.predict(fresh_X) != fresh_y)
    best = min(
        np.mean(LogisticRegression(C=c, max_iter=5000).fit(X, y).predict(fresh_X) != fresh_y)
        for c in (1e-3, 1e-2, 0.1, 1.0)
    )
    assert error <= best + 0.02
    assert abs(model.loo_error_ - error) < 5 * np.sqrt(error * (1 - error) / 120)


def test_leave_one_out_of_the_average_is_that_of_fits_without_the_sample():
    X, y = factors(n_samples=45, n_features=8)
    model = SparseClassifier().fit(X, y)
    losses = []
    for m in range(0, 45, 3):
        others = np.arange(45) != m
        refit = SparseClassifier().fit(X[others], y[others])
        losses.append(refit.predict_log_proba(X[m : m + 1])[0, y[m]])
    own = np.log(model.loo_proba_[np.arange(0, 45, 3), y[::3]])
    trained = model.predict_log_proba(X)[np.arange(0, 45, 3), y[::3]]
    # Mixture weights have seen the left-out label, too; that is all that is left of the optimism.
    assert abs(own.mean() - np.mean(losses)) < 0.25 * (trained.mean() - np.mean(losses)) + 0.01


def test_groups_are_left_out_together():
    rng = np.random.default_rng(0)
    X, y = factors(n_samples=120, n_features=10)
    # Copies of a sample with a little noise: leaving out one of them leaves its twins in.
    X, y, groups = np.repeat(X[:40], 3, axis=0), np.repeat(y[:40], 3), np.repeat(np.arange(40), 3)
    X = X + 0.01 * rng.standard_normal(X.shape)
    alone, together = SparseClassifier().fit(X, y), SparseClassifier().fit(X, y, groups=groups)
    fresh_X, fresh_y = factors(n_samples=1000, n_features=10, seed=1)
    loss = -np.mean(together.predict_log_proba(fresh_X)[np.arange(1000), fresh_y])
    assert alone.loo_log_loss_ < together.loo_log_loss_
    assert abs(together.loo_log_loss_ - loss) < abs(alone.loo_log_loss_ - loss)


@pytest.mark.parametrize("n_rare", [1, 2])
def test_a_rare_class_gets_a_small_share(n_rare):
    for X, y in (shifted(), shifted(n_features=20)):
        keep = (y != "class 02") | (np.cumsum(y == "class 02") <= n_rare)
        model = SparseClassifier().fit(X[keep], y[keep])
        # Where message passing diverges, nothing of it is left: that was no fall on something worse.
        assert "fell-back" not in [flag.code for flag in model.flags_]
        proba = model.predict_proba(X[keep])
        assert np.isfinite(proba).all()
        assert proba[:, 2].mean() < 0.15
        common = y[keep] != "class 02"
        assert np.mean(model.predict(X[keep])[common] != y[keep][common]) < 0.1
        assert model.loo_error_ < 0.3


def test_fifty_classes():
    X, y = shifted(n_samples=200, n_features=210, n_classes=50, shift=1.2)
    model = SparseClassifier(tol=1e-2).fit(X, y)
    assert model.coef_.shape == (50, 210)
    fresh_X, fresh_y = shifted(n_samples=200, n_features=210, n_classes=50, shift=1.2, seed=1)
    assert np.mean(model.predict(fresh_X) != fresh_y) < 0.3
    assert model.get_support()[:50].mean() > 0.9
    assert model.get_support()[50:].mean() < 0.1


def test_weights_are_numbers_of_rows():
    for X, y in (shifted(n_samples=60), factors(n_samples=60, n_features=10)):
        weight = np.random.default_rng(0).integers(0, 3, 60).astype(float)
        rows = np.repeat(np.arange(60), weight.astype(int))
        weighted = SparseClassifier().fit(X, y, sample_weight=weight)
        repeated = SparseClassifier().fit(X[rows], y[rows])
        assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=0.02)
        assert weighted.loo_log_loss_ == pytest.approx(repeated.loo_log_loss_, abs=0.03)


def test_class_weights_raise_the_share_of_a_class():
    X, y = factors(n_features=10)
    plain = SparseClassifier().fit(X, y)
    heavy = SparseClassifier(class_weight={0: 5.0, 1: 1.0, 2: 1.0}).fit(X, y)
    assert heavy.predict_proba(X)[:, 0].mean() > plain.predict_proba(X)[:, 0].mean() + 0.05


def test_float32_and_sparse_stay_what_they_are():
    X, y = shifted()
    X[np.abs(X) < 1.0] = 0.0
    dense = SparseClassifier().fit(X, y)
    single = SparseClassifier().fit(X.astype(np.float32), y)
    assert single.coef_.dtype == single.predict_proba(X.astype(np.float32)).dtype == np.float32
    assert_allclose(single.predict_proba(X.astype(np.float32)), dense.predict_proba(X), atol=0.02)
    sparse = SparseClassifier().fit(sp.csr_matrix(X), y)
    assert_allclose(sparse.predict_proba(sp.csr_matrix(X)), dense.predict_proba(X), atol=1e-3)


def test_covariates_are_kept_and_constant_columns_are_not():
    X, y = factors(n_features=10)
    X[:, 4] = 7.0
    model = SparseClassifier(always_keep=[9]).fit(X, y)
    assert model.inclusion_probability_[9] == 1
    assert model.inclusion_probability_[4] == 0
    assert (model.coef_[:, 4] == 0).all()
    assert model.get_support()[9]


def test_refitting_with_two_classes_leaves_nothing_of_the_three():
    X, y = factors(n_features=10)
    model = SparseClassifier().fit(X, y)
    two = y < 2
    again = model.fit(X[two], y[two])
    fresh = SparseClassifier().fit(X[two], y[two])
    assert_allclose(again.predict_proba(X), fresh.predict_proba(X))
    assert again.coef_.shape == (1, 10)
    assert model.fit(X, y).coef_.shape == (3, 10)
    assert model.mislabel_probability_.shape == y.shape


@pytest.mark.parametrize("name", ["mislabel_probability_", "flip_rate_"])
def test_labels_taken_for_right_have_no_probability_of_being_wrong(name):
    X, y = factors(n_features=10)
    with pytest.raises(AttributeError, match="takes labels for right"):
        getattr(GAMPClassifier(channel="logistic", max_iter=300).fit(X, y), name)


def test_one_class_is_an_error():
    with pytest.raises(ValueError, match="only one class"):
        SparseClassifier().fit(np.ones((5, 2)), np.zeros(5))


def test_the_dense_member_is_the_ridge_of_its_strength():
    """A part of the average, put back together by hand from standardised columns."""
    X, y = factors(n_features=10)
    model = SparseClassifier().fit(X, y)
    part = next(p for p in model._average.parts if p.code == "ridge")
    share = next(s for s in model.models_ if s.weight == part.weight)
    score_variance = float(share.name.rpartition(" ")[2])
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    basis = np.hstack([np.sqrt(score_variance / 10) * Z, np.full((120, 1), 10.0)])
    fitted = multinomial_ridge(basis, np.eye(3)[y], np.ones(120))
    # Both stop 1e-6 nats from the mode, coming from different sides.
    assert_allclose(Z @ part.weights.mean + part.weights.intercept, fitted.scores, atol=5e-3)
