"""Both Bayes points from the outside: their attributes, kernels, many classes, bad input."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from scipy.special import ndtr
from sklearn.base import clone
from sklearn.datasets import load_iris, make_circles
from sklearn.exceptions import NotFittedError
from sklearn.svm import SVC

from foldless import BayesPointClassifier, EPBayesPointClassifier
from foldless.channels import FlippedLabels, Probit, Step
from foldless.problem import Outcome

# Without choices, and so without folds: fast in plain NumPy.
PLAIN = {"violation_cost": 1.0, "n_sweeps": 4, "beta": 1.0, "n_bins": 16}
MODELS = [BayesPointClassifier(**PLAIN), EPBayesPointClassifier()]
both = pytest.mark.parametrize("model", MODELS, ids=["knapsack", "ep"])


def two_clouds(n_each=50, seed=0):
    """The toy data of the paper's figure 1c: unit Gaussians around (1, 1) and (-1, -1)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2 * n_each, 2)) + np.repeat([[1.0], [-1.0]], n_each, axis=0)
    return X, np.repeat([1, -1], n_each)


def true_error(model):
    """Of a linear classifier on the two clouds; 7.865 % at best."""
    coef, level = model.coef_[0], model.intercept_[0]
    length = np.linalg.norm(coef)
    return float(np.mean(ndtr(-(coef.sum() + np.array([1.0, -1.0]) * level) / length)))


@both
def test_attributes_have_their_shapes_and_meaning(model):
    X, y = two_clouds()
    fitted = clone(model).fit(X, np.where(y > 0, "up", "down"))
    assert list(fitted.classes_) == ["down", "up"]
    assert fitted.coef_.shape == fitted.coef_std_.shape == (1, 2)
    assert fitted.intercept_.shape == (1,)
    assert_allclose(X @ fitted.coef_[0] + fitted.intercept_, fitted.decision_function(X), rtol=1e-9)
    marginals = fitted.weight_marginals_
    assert_allclose(marginals.mean, fitted.coef_, rtol=1e-9)
    assert_allclose(marginals.std, fitted.coef_std_, rtol=2e-2)
    interval = marginals.interval(0.9)
    assert interval.shape == (1, 2, 2)
    assert np.all((interval[..., 0] < fitted.coef_) & (fitted.coef_ < interval[..., 1]))
    assert marginals.skew.shape == (1, 2)
    assert true_error(fitted) < 0.0865
    assert_allclose(np.exp(fitted.predict_log_proba(X)), fitted.predict_proba(X))
    assert_array_equal(fitted.predict_proba(X)[:, 1] > 0.5, fitted.predict(X) == "up")
    votes = fitted.vote_margin(X)
    assert np.all(np.abs(votes) <= 1)
    assert_array_equal(votes > 0, fitted.predict(X) == "up")
    assert fitted.outcome_ is (Outcome.CONVERGED if model is MODELS[1] else Outcome.EARLY)
    assert fitted.n_iter_ >= 1


def test_ep_has_a_leave_one_out_and_an_evidence():
    X, y = two_clouds(100)
    fitted = EPBayesPointClassifier().fit(X, y)
    assert_allclose(fitted.loo_error_, 0.079, atol=0.05)
    refits = []
    for left in range(0, 200, 20):
        rest = np.arange(200) != left
        again = EPBayesPointClassifier(channel=fitted.channel_).fit(X[rest], y[rest])
        refits.append(again.predict_proba(X[left : left + 1])[0])
    assert_allclose(fitted.loo_proba_[::20], refits, atol=0.02)
    channels = [channel for channel, _ in fitted.evidence_path_]
    assert [type(c) for c in channels] == [Probit, FlippedLabels, Step]
    assert_allclose(fitted.log_evidence_, max(e for _, e in fitted.evidence_path_))


def test_the_evidence_chooses_the_noise():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    clean = np.where(X @ [2.0, -1.0, 0.5, 1.0] > 0, 1, -1)
    flipped = np.where(rng.random(400) < 0.2, -clean, clean)
    fitted = EPBayesPointClassifier().fit(X, flipped)
    noise = getattr(fitted.channel_, "noise", None) or getattr(fitted.channel_, "flip_prob", None)
    assert_allclose(noise, 0.2, atol=0.06)
    assert np.mean(fitted.predict(X) == clean) > 0.97


def test_ep_with_more_features_than_samples():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 300))
    y = np.where(X[:, :30].sum(axis=1) > 0, 1, -1)
    fitted = EPBayesPointClassifier().fit(X[:50], y[:50])
    assert fitted.score(X[:50], y[:50]) > 0.9
    assert fitted.coef_[0, :30].mean() > 3 * abs(fitted.coef_[0, 30:].mean())


@pytest.mark.parametrize("standardize", [False, "robust"])
def test_an_outlier_counts_as_one_error(standardize):
    """The point (10, 0) on the wrong side moves an SVM; the knapsack machine takes it for one error.

    Mean and variance are moved by an outlier themselves: columns must be left alone, or scaled robustly.
    """
    options = PLAIN | {"violation_cost": 3.0, "n_bins": 32, "standardize": standardize}
    models = {"knapsack": BayesPointClassifier(**options), "svm": SVC(kernel="linear")}
    changes = {name: [] for name in models}
    for seed in range(4):
        X, y = two_clouds(seed=seed)
        with_outlier = np.vstack([X, [10.0, 0.0]]), np.append(y, -1)
        for name, model in models.items():
            before = true_error(clone(model).fit(X, y))
            changes[name].append(100 * (true_error(clone(model).fit(*with_outlier)) - before))
    assert np.mean(changes["svm"]) > 0.1
    if standardize == "robust":
        # Quartiles move, but by one sample of a hundred.
        assert abs(np.mean(changes["knapsack"])) < np.mean(changes["svm"]) / 4
    else:
        assert abs(np.mean(changes["knapsack"])) < 0.02


def test_robust_scales_count_weights_and_leave_two_values_alone():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=40) * 3 + 5, rng.integers(0, 2, 40) * (np.arange(40) < 9)])
    y = np.where(X[:, 0] > 5, 1, -1)
    weight = rng.integers(1, 4, 40)
    repeated = np.repeat(np.arange(40), weight)
    model = BayesPointClassifier(standardize="robust", **PLAIN)
    by_weight, by_rows = clone(model).fit(X, y, weight), clone(model).fit(X[repeated], y[repeated])
    assert_allclose(by_weight.coef_, by_rows.coef_, rtol=1e-6)
    # The second column has quartiles 0 and 0: it keeps its mean and variance.
    plain = BayesPointClassifier(**PLAIN).fit(X, y)
    assert_allclose(clone(model).fit(X, y)._scale[1], plain._scale[1])
    assert_allclose(clone(model).fit(X, y)._scale[0], 3.0, rtol=0.5)


def test_folds_are_used_where_there_is_a_choice():
    X, y = two_clouds(15)
    fitted = BayesPointClassifier(violation_cost=1.0, beta=1.0, n_bins=12, n_sweeps="auto").fit(X, y)
    assert sum(s.share for s in fitted.settings_) == pytest.approx(1.0)
    assert {s.cost for s in fitted.settings_} == {1.0}
    assert fitted.settings_[0].share == max(s.share for s in fitted.settings_)
    assert 0.0 <= fitted.cv_error_ <= 0.3
    assert 0.0 < fitted.cv_log_loss_ < np.log(2)
    alone = BayesPointClassifier(**PLAIN).fit(X, y)
    assert np.isnan(alone.cv_error_)
    assert [s.n_sweeps for s in alone.settings_] == [4, 4]
    assert {s.outer_every for s in alone.settings_} == {None, 1}


@pytest.mark.parametrize("prior", ["l1", "l0", lambda w: -(w**4)])
def test_priors_need_not_be_convex(prior):
    X, y = two_clouds(20)
    fitted = BayesPointClassifier(prior=prior, **PLAIN).fit(X, y)
    assert true_error(fitted) < 0.11  # 0.079 at best, 0.5 by chance
    assert np.all(fitted.coef_ > 0)


def test_exact_messages_and_the_outer_loop_are_options():
    X, y = two_clouds(8)
    exact = BayesPointClassifier(messages="exact", **PLAIN | {"n_bins": 8}).fit(X, y)
    linear = BayesPointClassifier(**PLAIN | {"n_bins": 8}).fit(X, y)
    outer = BayesPointClassifier(outer_every=1, **PLAIN | {"n_bins": 8}).fit(X, y)
    cosine = exact.coef_[0] @ linear.coef_[0]
    cosine /= np.linalg.norm(exact.coef_) * np.linalg.norm(linear.coef_)
    assert cosine > 0.95
    assert not np.allclose(outer.coef_, linear.coef_)


@both
def test_units_constants_and_class_names_do_not_matter(model):
    X, y = two_clouds(30)
    plain = clone(model).fit(X, y)
    other = clone(model).fit(np.column_stack([1e6 * X[:, 0] + 3, X[:, 1] * 1e-3, np.ones(60)]), y)
    assert_allclose(other.coef_[0, :2] * [1e6, 1e-3], plain.coef_[0], rtol=1e-6)
    assert other.coef_[0, 2] == 0.0
    turned = clone(model).fit(X, -y)
    assert_allclose(turned.coef_, -plain.coef_, rtol=1e-3, atol=1e-6)


@both
def test_weights_are_numbers_of_samples(model):
    X, y = two_clouds(20)
    weight = np.random.default_rng(0).integers(0, 3, 40)
    repeated = np.repeat(np.arange(40), weight)
    by_weight, by_rows = clone(model).fit(X, y, weight), clone(model).fit(X[repeated], y[repeated])
    assert_allclose(by_weight.coef_, by_rows.coef_, rtol=1e-5, atol=1e-8)
    assert_allclose(by_weight.predict_proba(X), by_rows.predict_proba(X), rtol=1e-4, atol=1e-6)


@both
def test_storage(model):
    X, y = two_clouds(20)
    X = np.where(np.abs(X) > 0.5, X, 0.0)
    fitted = clone(model).fit(X, y)
    assert_allclose(clone(model).fit(csr_array(X), y).coef_, fitted.coef_, rtol=1e-9)
    single = clone(model).fit(X.astype(np.float32), y)
    assert single.coef_.dtype == single.predict_proba(X.astype(np.float32)).dtype == np.float32
    assert_allclose(single.coef_, fitted.coef_, rtol=1e-3, atol=1e-4)
    framed = clone(model).fit(pd.DataFrame(X, columns=["a", "b"]), y)
    assert list(framed.feature_names_in_) == ["a", "b"]


@both
def test_many_classes_are_coupled(model):
    X, y = load_iris(return_X_y=True)
    fitted = clone(model).fit(X, y)
    proba = fitted.predict_proba(X)
    assert fitted.coef_.shape == (3, 4)
    assert fitted.weight_marginals_.points.shape[:2] == (3, 4)
    assert fitted.vote_margin(X).shape == (150, 3)
    assert_allclose(proba.sum(axis=1), 1.0)
    assert_array_equal(np.argmax(proba, axis=1), np.argmax(fitted.decision_function(X), axis=1))
    # The middle class has no line between itself and the rest.
    assert fitted.score(X, y) > (0.9 if model is MODELS[1] else 0.7)
    if model is MODELS[1]:
        assert fitted.loo_proba_.shape == (150, 3)
        assert len(fitted.log_evidence_) == 3


@both
@pytest.mark.parametrize(
    "kernel",
    [{"kernel": "rbf", "n_components": 12}, {"random_features": True, "n_components": 25}],
    ids=["kernel", "random features"],
)
def test_kernels_bend_the_boundary(model, kernel):
    X, y = make_circles(120, noise=0.08, factor=0.4, random_state=0)
    linear = clone(model).fit(X[:80], y[:80])
    bent = clone(model).set_params(gamma=1.0, **kernel).fit(X[:80], y[:80])
    assert linear.score(X[80:], y[80:]) < 0.8
    assert bent.score(X[80:], y[80:]) > 0.9
    assert bent.coef_.shape == (1, kernel["n_components"])


def test_a_linear_kernel_is_the_linear_machine():
    X, y = two_clouds(30)
    kernel = EPBayesPointClassifier(kernel="linear", channel="probit").fit(X, y)
    linear = EPBayesPointClassifier(channel="probit").fit(X, y)
    # Up to size: the learnt variance of the prior is drawn to 1 in either's own units.
    scores = kernel.decision_function(X), linear.decision_function(X)
    assert np.corrcoef(*scores)[0, 1] > 0.9999
    assert_allclose(*scores, rtol=0.1, atol=0.02)


@both
def test_there_is_no_support_to_get(model):
    """Every feature is kept: no prior here has inclusion probabilities."""
    assert not hasattr(clone(model).fit(*two_clouds(10)), "get_support")
    with pytest.raises(NotFittedError):
        clone(model).predict([[0.0]])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"prior": "horseshoe"}, "prior must be one of .* or a function"),
        ({"violation_cost": -1.0}, "violation_cost"),
        ({"violation_cost": "low"}, "'auto' or a positive number"),
        ({"beta": 0.0}, "beta"),
        ({"n_sweeps": 0}, "n_sweeps"),
        ({"n_bins": 2}, "n_bins"),
        ({"weight_range": 0.0}, "weight_range"),
        ({"messages": "some"}, "messages must be one of"),
        ({"engine": "fortran"}, "engine must be one of"),
        ({"n_folds": 1}, "n_folds"),
        ({"outer_every": 0}, "outer_every"),
        ({"outer_every": "often"}, "outer_every"),
        ({"standardize": "minmax"}, "standardize must be True, False or 'robust'"),
        ({"random_features": True, "kernel": "poly"}, "stand in for the RBF kernel"),
        ({"n_bins": 10**9}, "would take .* GB. Use EPBayesPointClassifier"),
    ],
)
def test_bad_choices_are_refused(parameters, message):
    with pytest.raises((ValueError, TypeError), match=message):
        BayesPointClassifier(**parameters).fit(*two_clouds(5))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"channel": "cauchit"}, "Unknown channel"),
        ({"max_iter": 0}, "max_iter"),
        ({"n_components": 0}, "n_components"),
    ],
)
def test_bad_choices_of_ep_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        EPBayesPointClassifier(**parameters).fit(*two_clouds(5))


@both
@pytest.mark.parametrize("y", [np.zeros(10), np.linspace(0, 1, 10)], ids=["one class", "numbers"])
def test_bad_labels_are_refused(model, y):
    with pytest.raises(ValueError, match=r"only one class|Unknown label type"):
        clone(model).fit(two_clouds(5)[0], y)


def test_verbose_tells_every_sweep(capsys):
    X, y = two_clouds(5)
    BayesPointClassifier(verbose=1, **PLAIN).fit(X, y)
    EPBayesPointClassifier(verbose=1, channel="probit").fit(X, y)
    told = capsys.readouterr().out
    assert "sweep    4  change" in told
    assert "iteration    1  change" in told


def test_an_iteration_that_does_not_settle_says_so():
    X, y = two_clouds(20)
    with pytest.warns(match="EPBayesPointClassifier: budget after 2 iterations"):
        EPBayesPointClassifier(channel="probit", max_iter=2).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BayesPointClassifier(**PLAIN).fit(X, y)  # stops early on purpose
