"""SMLRClassifier: the scikit-learn face, kernels, and the rate chosen without folds."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris, make_moons
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from foldless import SMLRClassifier
from foldless.datasets import make_class_means
from foldless.problem import Outcome
from foldless.theory import bound
from reference.scikit_learn import mixed_penalty

EVERY_PENALTY = ["l1", "l2", "group", "none"]


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def wide():
    return make_class_means(n_samples=50, n_features=120, n_active=4, random_state=1)


@pytest.mark.parametrize(
    "model",
    [
        SMLRClassifier(n_rates=4),
        SMLRClassifier(penalty="group", rate=1.0),
        SMLRClassifier(kernel="rbf", n_rates=4),
    ],
    ids=repr,
)
def test_every_scikit_learn_check_passes(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(model, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] in ("failed", "xfail")}
    assert failed == {}
    assert sum(r["status"] == "passed" for r in results) >= 66


@pytest.mark.parametrize("penalty", EVERY_PENALTY)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_attributes_have_their_shapes_and_reproduce_the_decision(iris, penalty, n_classes):
    X, y = iris
    X, y = X[y >= 3 - n_classes], y[y >= 3 - n_classes]
    X = X + np.random.default_rng(0).normal(size=X.shape)  # nothing separable, for maximum likelihood
    model = SMLRClassifier(penalty=penalty, n_rates=10).fit(X, y)
    n_scores = 1 if n_classes == 2 else n_classes
    assert model.coef_.shape == (n_scores, 4)
    assert model.intercept_.shape == (n_scores,)
    assert model.outcome_ is Outcome.CONVERGED
    scores = X @ model.coef_.T + model.intercept_
    assert_allclose(np.squeeze(scores), model.decision_function(X), rtol=1e-9, atol=1e-12)
    assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X), rtol=1e-12)
    assert_array_equal(model.predict(X), model.classes_[np.argmax(model.predict_proba(X), axis=1)])
    own = model.loo_proba_[np.arange(y.size), y - y.min()]
    assert_allclose(model.loo_log_loss_, -np.log(own).mean(), rtol=1e-9)
    assert model.n_kept_ == model.get_support().sum()
    if penalty != "none":
        assert 0 <= model.duality_gap_ <= 1e-6 * model.objective_
        assert model.rate_ > 0


def test_without_standardisation_it_is_scikit_learn_s_objective(iris):
    X, y = iris
    ours = SMLRClassifier(rate=2.0, standardize=False, tol=1e-12).fit(X, y)
    theirs = LogisticRegression(
        C=0.5, **mixed_penalty(1.0), solver="saga", tol=1e-10, max_iter=100_000, random_state=0
    ).fit(X, y)
    assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-4)


@pytest.mark.parametrize("n_features", [5, 200])
def test_ridge_is_the_same_in_either_space(n_features):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, n_features))
    y = np.argmax(X[:, :3] + rng.normal(size=(60, 3)), axis=1)
    ours = SMLRClassifier(penalty="l2", rate=3.0, tol=1e-10).fit(X, y)
    scaled = StandardScaler().fit_transform(X)
    theirs = LogisticRegression(C=1 / 3.0, solver="newton-cg", tol=1e-12, max_iter=10_000).fit(scaled, y)
    assert_allclose(ours.coef_ * X.std(axis=0), theirs.coef_, atol=1e-5)
    assert_allclose(ours.predict_proba(X), theirs.predict_proba(scaled), atol=1e-6)


@pytest.mark.parametrize(
    # Groups of several classes use the formula for weights that stay zero: fewer features than samples.
    ("penalty", "n_features"),
    [("l1", 60), ("l2", 60), ("group", 6)],
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_leave_one_out_is_that_of_refits(penalty, n_features, n_classes):
    rng = np.random.default_rng(3)
    n_samples = 36
    X = rng.normal(size=(n_samples, n_features))
    y = np.argmax(2 * X[:, :n_classes] + rng.normal(size=(n_samples, n_classes)), axis=1)
    model = SMLRClassifier(penalty=penalty, rate=2.0, standardize=False).fit(X, y)
    refitted = np.empty((n_samples, n_classes))
    for m in range(n_samples):
        others = np.arange(n_samples) != m
        refitted[m] = clone(model).fit(X[others], y[others]).predict_proba(X[m : m + 1])[0]
    exact = -np.log(refitted[np.arange(n_samples), y]).mean()
    training = -np.log(model.predict_proba(X)[np.arange(n_samples), y]).mean()
    assert exact > 1.1 * training, "there must be something to be estimated"
    assert_allclose(model.loo_log_loss_, exact, rtol=0.02)
    if penalty == "l1":
        assert_allclose(model.loo_proba_, refitted, atol=0.1)
        assert np.abs(model.loo_proba_ - refitted).mean() < 0.01


def test_leave_one_out_takes_one_of_two_equal_rows(iris):
    X, y = iris
    some = np.random.default_rng(0).permutation(150)[:40]
    weight = np.ones(40)
    weight[:10] = 2
    weighted = SMLRClassifier(rate=2.0).fit(X[some], y[some], sample_weight=weight)
    twice = np.repeat(some, weight.astype(int))
    repeated = SMLRClassifier(rate=2.0).fit(X[twice], y[twice])
    assert_allclose(weighted.coef_, repeated.coef_, atol=1e-4)
    assert_allclose(weighted.loo_log_loss_, repeated.loo_log_loss_, rtol=1e-3)


@pytest.mark.parametrize("penalty", ["l1", "l2"])
@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_array])
def test_weights_are_rows_with_a_kernel_too(penalty, stored):
    rng = np.random.default_rng(6)
    X = np.round(rng.normal(size=(40, 3)), 1)
    y = (X[:, 0] ** 2 + rng.normal(size=40) > 1).astype(int)
    weight = rng.integers(0, 3, 40)
    model = SMLRClassifier(penalty=penalty, kernel="rbf", rate=0.5, tol=1e-10)
    weighted = clone(model).fit(stored(X), y, sample_weight=weight)
    repeated = clone(model).fit(stored(np.repeat(X, weight, axis=0)), np.repeat(y, weight))
    # A ridge would split a weight over equal basis functions and pay less for it; there are none.
    assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-6)
    assert weighted.n_kept_ == repeated.n_kept_
    assert np.all(weight[weighted.basis_indices_] > 0)


@pytest.mark.parametrize("tuning", ["alo", "cv"])
def test_the_rate_is_chosen_for_the_classes_that_count(tuning):
    # Class 1 counts for nothing, and noise is all there is to learn about it.
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(60, 5)), np.tile([0, 1], 30)
    model = SMLRClassifier(tuning=tuning, kernel="rbf", n_rates=8, class_weight={0: 1000.0, 1: 1e-4})
    assert np.all(model.fit(X, y).predict(rng.normal(size=(40, 5))) == 0)


@pytest.mark.parametrize("tuning", ["alo", "bayes", "cv"])
def test_tuning_finds_a_useful_rate(wide, tuning):
    model = SMLRClassifier(tuning=tuning).fit(wide.X, wide.y)
    assert set(wide.active) <= set(model.get_support(indices=True))
    assert wide.test_error(model.coef_, model.intercept_[0]) < 0.12
    assert 4 <= model.n_kept_ < 40
    assert len(model.rate_path_) >= 2
    again = SMLRClassifier(tuning=tuning).fit(wide.X, wide.y)
    assert_array_equal(again.coef_, model.coef_)


def test_alo_and_folds_look_at_the_same_thing(wide):
    alo = SMLRClassifier(tuning="alo").fit(wide.X, wide.y)
    folds = SMLRClassifier(tuning="cv", n_folds=wide.y.size // 2).fit(wide.X, wide.y)
    assert abs(np.log(alo.rate_ / folds.rate_)) < np.log(1.6)
    best = min(loss for _, loss in folds.rate_path_)
    assert_allclose(min(loss for _, loss in alo.rate_path_), best, rtol=0.1)


def test_the_integrated_rate_is_a_fixed_point(wide):
    model = SMLRClassifier(tuning="bayes").fit(wide.X, wide.y)
    inside = model.coef_[0] * wide.X.std(axis=0)
    assert_allclose(model.rate_, np.count_nonzero(inside) / np.abs(inside).sum(), rtol=1e-3)


def test_no_signal_leaves_no_feature_under_the_integrated_rate():
    rng = np.random.default_rng(0)
    model = SMLRClassifier(tuning="bayes").fit(rng.normal(size=(40, 3)), np.tile([0, 1], 20))
    assert model.n_kept_ == 0
    assert_allclose(model.predict_proba(np.zeros((1, 3))), 0.5)


def test_the_bound_chooses_a_rate_for_many_samples():
    data = make_class_means(n_samples=3000, n_features=20, n_active=5, random_state=0)
    model = SMLRClassifier(tuning="bound", n_rates=20).fit(data.X, data.y)
    found = bound(model, data.X, data.y, delta=0.05 / 20)
    assert_allclose(found.gibbs, min(value for _, value in model.rate_path_), rtol=1e-6)
    assert data.test_error(model.coef_, model.intercept_[0]) < found.gibbs < 0.5
    with pytest.raises(ValueError, match="two classes"):
        SMLRClassifier(tuning="bound").fit(*load_iris(return_X_y=True))


def test_kernels_keep_few_training_samples():
    X, y = make_moons(200, noise=0.15, random_state=0)
    model = SMLRClassifier(kernel="rbf", gamma=3.0, n_rates=20).fit(X, y)
    assert model.score(X, y) > 0.95 > SMLRClassifier().fit(X, y).score(X, y)
    assert model.n_kept_ < 60
    assert_array_equal(model.basis_, X[model.basis_indices_])
    by_hand = rbf_kernel(X, model.basis_, gamma=3.0) @ model.coef_[0] + model.intercept_[0]
    assert_allclose(model.decision_function(X), by_hand, rtol=1e-6, atol=1e-8)
    assert not hasattr(model, "_training"), "a model must not carry its data"
    # A sparse X gives the same basis functions.
    stored = SMLRClassifier(kernel="rbf", gamma=3.0, n_rates=20).fit(sparse.csr_array(X), y)
    assert_allclose(stored.decision_function(sparse.csr_array(X)), model.decision_function(X), atol=1e-4)


def test_a_callable_that_is_no_mercer_kernel():
    X, y = make_moons(60, noise=0.1, random_state=0)
    model = SMLRClassifier(kernel=lambda a, b: float(np.abs(a - b).sum() ** 0.7), n_rates=10).fit(X, y)
    assert model.score(X, y) > 0.85


def test_a_kernel_is_linear_regression_on_its_columns():
    X, y = make_moons(60, noise=0.2, random_state=0)
    by_kernel = SMLRClassifier(kernel="rbf", gamma=1.0, rate=0.5).fit(X, y)
    columns = rbf_kernel(X, X, gamma=1.0)
    by_columns = SMLRClassifier(rate=0.5).fit(columns, y)
    assert_allclose(by_kernel.decision_function(X), by_columns.decision_function(columns), rtol=1e-8)
    # Nothing of a kernel outlives it.
    assert not hasattr(by_kernel.set_params(kernel=None).fit(X, y), "basis_")


def test_the_reference_class_has_no_weights(iris):
    model = SMLRClassifier(rate=1.0, reference_class=1).fit(*iris)
    assert not model.coef_[1].any()
    assert model.intercept_[1] == 0
    assert model.score(*iris) > 0.9
    with pytest.raises(ValueError, match="not among the classes"):
        SMLRClassifier(reference_class="rose").fit(*iris)


def test_frames_strings_sparse_float32_pickle(wide):
    names = [f"gene {j}" for j in range(wide.X.shape[1])]
    labels = np.where(wide.y > 0, "tumour", "normal")
    frame = pd.DataFrame(wide.X, columns=names)
    model = SMLRClassifier(rate=3.0).fit(frame, labels)
    assert list(model.classes_) == ["normal", "tumour"]
    assert list(model.get_feature_names_out()) == [names[j] for j in model.get_support(indices=True)]
    for stored in (sparse.csr_array(wide.X), sparse.csc_array(wide.X), np.asfortranarray(wide.X)):
        other = SMLRClassifier(rate=3.0).fit(stored, labels)
        assert_allclose(other.coef_, model.coef_, atol=1e-4)
    single = SMLRClassifier(rate=3.0).fit(wide.X.astype(np.float32), labels)
    assert single.coef_.dtype == single.predict_proba(wide.X.astype(np.float32)).dtype == np.float32
    assert_allclose(single.coef_, model.coef_, atol=1e-2)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    assert (
        make_pipeline(SMLRClassifier(rate=3.0), LogisticRegression()).fit(frame, labels).score(frame, labels)
        > 0.9
    )


def test_class_weights_are_sample_weights(wide):
    weight = np.where(wide.y > 0, 3.0, 1.0)
    by_class = SMLRClassifier(rate=3.0, class_weight={1: 3.0, -1: 1.0}).fit(wide.X, wide.y)
    by_sample = SMLRClassifier(rate=3.0).fit(wide.X, wide.y, sample_weight=weight)
    assert_allclose(by_class.coef_, by_sample.coef_, atol=1e-6)


def test_an_unfinished_fit_says_so(wide):
    with pytest.warns(ConvergenceWarning, match="max_iter was reached"):
        model = SMLRClassifier(rate=0.1, algorithm="component-wise", max_iter=2).fit(wide.X, wide.y)
    assert model.outcome_ is Outcome.BUDGET
    assert model.duality_gap_ > 1e-6 * model.objective_


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"penalty": "l0"}, "penalty must be one of"),
        ({"tuning": "aic"}, "tuning must be one of"),
        ({"rate": "best"}, "rate must be 'auto'"),
        ({"rate": -1.0}, "rate"),
        ({"algorithm": "magic"}, "algorithm must be one of"),
        ({"kernel": "precomputed"}, "kernel=None"),
        ({"tuning": "bayes", "penalty": "l2"}, "penalty='l1'"),
        ({"tuning": "cv", "n_folds": 1}, "n_folds"),
    ],
)
def test_nonsense_is_refused_with_a_way_out(wide, params, message):
    with pytest.raises(ValueError, match=message):
        SMLRClassifier(**params).fit(wide.X, wide.y)
    with pytest.raises(NotFittedError):
        SMLRClassifier(**params).predict(wide.X)
