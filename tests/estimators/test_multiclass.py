"""SparseClassifier: scikit-learn's checks, shapes, rare classes, many classes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.utils.estimator_checks import check_estimator

from foldless import SparseClassifier


def shifted(n_samples=90, n_features=150, n_classes=3, seed=0, shift=1.5):
    rng = np.random.default_rng(seed)
    y = np.arange(n_samples) % n_classes
    X = rng.standard_normal((n_samples, n_features))
    X[np.arange(n_samples), y] += shift * np.sqrt(n_classes)
    return X, np.array([f"class {k:02d}" for k in range(n_classes)])[y]


def test_every_scikit_learn_check_passes():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(SparseClassifier(), on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] in ("failed", "xfail")}
    assert failed == {}
    assert sum(r["status"] == "passed" for r in results) >= 64


def test_fitted_attributes_have_their_shapes_and_the_active_features_are_found():
    X, y = shifted()
    model = SparseClassifier().fit(X, y)
    assert model.coef_.shape == model.coef_std_.shape == (3, 150)
    assert model.intercept_.shape == (3,)
    assert model.inclusion_probability_.shape == (150,)
    assert model.loo_proba_.shape == (90, 3)
    assert_allclose(model.loo_proba_.sum(axis=1), 1, atol=1e-6)
    assert_allclose(model.predict_proba(X).sum(axis=1), 1, atol=1e-6)
    assert set(model.get_support(indices=True)) == {0, 1, 2}
    assert model.loo_error_ < 0.25
    fresh_X, fresh_y = shifted(seed=1)
    assert np.mean(model.predict(fresh_X) != fresh_y) < 0.25
    assert abs(model.loo_error_ - np.mean(model.predict(fresh_X) != fresh_y)) < 0.12


def test_a_class_of_two_samples_gets_a_small_share():
    X, y = shifted()
    keep = (y != "class 02") | (np.cumsum(y == "class 02") <= 2)
    model = SparseClassifier().fit(X[keep], y[keep])
    proba = model.predict_proba(X[keep])
    assert np.isfinite(proba).all()
    assert proba[:, 2].mean() < 0.15
    assert model.loo_error_ < 0.3


def test_fifty_classes():
    X, y = shifted(n_samples=150, n_features=60, n_classes=50, shift=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SparseClassifier(average=False, max_iter=8, generative_weight=1.0).fit(X, y)
    assert model.coef_.shape == (50, 60)
    assert np.mean(model.predict(X) != y) < 0.3


def test_max_sum_with_sure_keeps_few_features():
    X, y = shifted()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SparseClassifier(prior="laplace", rule="max-sum", average=False).fit(X, y)
    assert 3 <= (model.inclusion_probability_ > 0).sum() < 100
    assert np.mean(model.predict(X) != y) < 0.2


def test_one_class_is_an_error():
    with pytest.raises(ValueError, match="only one class"):
        SparseClassifier().fit(np.ones((5, 2)), np.zeros(5))
