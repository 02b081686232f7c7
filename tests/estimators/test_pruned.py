"""PrunedBayesClassifier: what it chooses, what leave-one-out is worth, whitening, and what it refuses."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from foldless import PrunedBayesClassifier
from foldless.channels import FlippedLabels, Logistic, Probit, Step
from foldless.datasets import make_class_means
from foldless.operators import Dense, Standardized
from foldless.operators.whitened import Whitening
from foldless.priors import Pruned
from foldless.problem import Outcome
from foldless.theory import saddle_point


@pytest.fixture(scope="module")
def data():
    return make_class_means(n_samples=80, n_features=300, n_active=5, random_state=3)


def teacher_data(n: int, seed: int, true_density: float = 0.1, noise: float = 0.05):
    """N = M samples of a sparse teacher, and new ones."""
    rng = np.random.default_rng(seed)
    weights = np.where(rng.random(n) < true_density, rng.standard_normal(n), 0.0)
    X = rng.standard_normal((3 * n, n))
    y = np.where(X @ weights > 0, 1, -1) * np.where(rng.random(3 * n) < noise, -1, 1)
    return X[:n], y[:n], X[n:], y[n:]


# ---------------------------------------------------------------- the classifier


def test_error_leave_one_out_and_theory_agree():
    errors = []
    for seed in range(4):
        X, y, X_test, y_test = teacher_data(300, seed)
        model = PrunedBayesClassifier(density=0.1, noise=0.05).fit(X, y)
        assert model.outcome_ is Outcome.CONVERGED
        errors.append([np.mean(model.predict(X_test) != y_test), model.loo_error_])
    test, loo = np.mean(errors, axis=0)
    theory = saddle_point(1.0, density=0.1, true_density=0.1, channel=Step(0.05)).bayes_error
    # Five standard errors of 2400 test samples and 1200 left-out ones, and as much for four teachers.
    assert abs(test - theory) < 5 * np.sqrt(2 * theory * (1 - theory) / 2400) + 0.01
    assert abs(loo - test) < 5 * np.sqrt(theory * (1 - theory) / 1200)


def test_leave_one_out_is_that_of_refits():
    X, y, _, _ = teacher_data(60, 7)
    model = PrunedBayesClassifier(density=0.1, noise=0.1, tol=1e-6).fit(X, y)
    refitted = np.empty(30)
    for k in range(30):
        rest = np.arange(60) != k
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            one = PrunedBayesClassifier(density=0.1, noise=0.1, tol=1e-6).fit(X[rest], y[rest])
        refitted[k] = one.predict_proba(X[k : k + 1])[0, 1]
    assert np.corrcoef(refitted, model.loo_proba_[:30, 1])[0, 1] > 0.95
    assert np.mean(np.abs(refitted - model.loo_proba_[:30, 1])) < 0.05


def test_probabilities_are_those_of_a_step_behind_gaussian_scores(data):
    model = PrunedBayesClassifier(density=0.02, noise=0.1).fit(data.X, data.y)
    (part,) = model._average.parts
    operator = model._standardized(data.X)
    mean, var = part.weights.scores(operator)[:, 0], part.weights.score_variances(operator)[:, 0]
    assert_allclose(model.predict_proba(data.X)[:, 1], 0.1 + 0.8 * ndtr(mean / np.sqrt(var)), rtol=1e-9)
    assert_allclose(data.X @ model.coef_[0] + model.intercept_[0], mean, rtol=1e-6, atol=1e-9)
    assert_array_equal(model.predict(data.X), np.where(mean > 0, 1, -1))
    assert_allclose(np.exp(model.predict_log_proba(data.X)), model.predict_proba(data.X), rtol=1e-9)


def test_constraints_hold_in_the_answer(data):
    model = PrunedBayesClassifier(density=0.05, noise=0.1, standardize=True).fit(data.X, data.y)
    assert_allclose(model.inclusion_probability_.mean(), 0.05, rtol=1e-8)
    scale = np.sqrt(data.X.shape[1]) * data.X.std(axis=0)
    power = np.mean((model.coef_[0] ** 2 + model.coef_std_[0] ** 2) * scale**2)
    assert_allclose(power, 0.05, rtol=1e-6)
    assert model.prior_ == Pruned(0.05)
    assert model.channel_ == Step(0.1)


def test_finds_the_active_features():
    data = make_class_means(n_samples=300, n_features=500, n_active=5, random_state=0)
    model = PrunedBayesClassifier(density=0.01, noise=0.1).fit(data.X, data.y)
    assert set(np.argsort(-model.inclusion_probability_)[:5]) == set(data.active)
    assert set(model.get_support(fdr=0.1, indices=True)) <= set(data.active)


def test_constant_columns_are_not_counted(data):
    with_constants = np.column_stack([data.X, np.ones((80, 100))])
    plain = PrunedBayesClassifier(density=0.02, noise=0.1).fit(data.X, data.y)
    model = PrunedBayesClassifier(density=0.02, noise=0.1).fit(with_constants, data.y)
    assert_allclose(model.coef_[0, :300], plain.coef_[0], rtol=1e-6, atol=1e-9)
    assert_array_equal(model.coef_[0, 300:], 0.0)


def test_without_scaling_the_length_of_a_sample_does_not_matter(data):
    """Rank-one variances behind a step: a sample counts by its direction, as with |x|² = N in the paper."""
    X = data.X - data.X.mean(axis=0)
    length = np.random.default_rng(0).uniform(0.5, 2.0, 80)
    stretched = np.vstack([X * length[:, np.newaxis], -X * length[:, np.newaxis]])
    plain = np.vstack([X, -X])  # mirrored, so that means stay at zero
    y = np.concatenate([data.y, -data.y])
    choice = {"density": 0.02, "noise": 0.1, "standardize": False, "tol": 1e-7}
    a, b = (PrunedBayesClassifier(**choice).fit(Z, y) for Z in (plain, stretched))
    row = np.linalg.norm(X, axis=1)
    # Exactly so for samples of equal length; columns are averaged over samples, which stretching reweights.
    assert np.std(row) / np.mean(row) < 0.06
    cosine = a.coef_[0] @ b.coef_[0] / np.linalg.norm(a.coef_) / np.linalg.norm(b.coef_)
    assert cosine > 0.99


@pytest.mark.parametrize("channel", [Probit(0.01), Logistic(10.0)], ids=repr)
def test_general_activations_with_and_without_noise(data, channel):
    clean = PrunedBayesClassifier(density=0.02, noise=0.0, channel=channel).fit(data.X, data.y)
    noisy = PrunedBayesClassifier(density=0.02, noise=0.1, channel=channel).fit(data.X, data.y)
    assert clean.channel_ == channel
    assert noisy.channel_ == FlippedLabels(channel, 0.1)
    assert clean.loo_error_ < 0.2
    assert noisy.loo_error_ < 0.2
    assert np.abs(clean.loo_proba_ - 0.5).max() > np.abs(noisy.loo_proba_ - 0.5).max()


def test_messages_on_edges_give_the_same_answer():
    rng = np.random.default_rng(1)
    X = rng.choice([-1.0, 1.0], (200, 200))  # of equal squares, as the paper assumes
    y = np.where(X[:, :20] @ rng.standard_normal(20) > 0, 1, -1)
    node, edge = (
        PrunedBayesClassifier(density=0.1, noise=0.1, messages=m).fit(X, y) for m in ("per-node", "per-edge")
    )
    # A small example, for which O(1/N) is visible; `tests/solvers/test_edge_messages.py` measures it.
    assert np.mean(np.abs(node.inclusion_probability_ - edge.inclusion_probability_)) < 0.03
    assert np.corrcoef(node.loo_proba_[:, 1], edge.loo_proba_[:, 1])[0, 1] > 0.95
    assert not np.array_equal(node.coef_, edge.coef_)


# ---------------------------------------------------------------- choosing by leave-one-out


def test_the_grid_takes_the_least_error_and_breaks_ties_by_log_loss(data):
    model = PrunedBayesClassifier(density=[0.01, 0.1, 0.6], noise=[0.1, 0.3]).fit(data.X, data.y)
    assert len(model.tried_) == 4 * 6
    best = min(model.tried_, key=lambda tried: (tried[2], tried[3]))
    assert (model.density_, model.noise_) == best[:2]
    assert (model.standardized_, model.has_intercept_) == best[5:]
    assert model.loo_error_ <= best[2] + 2 / 80  # the rough fit that was chosen, finished


def test_scales_are_kept_where_they_tell_and_dropped_where_they_do_not():
    """The same columns, the active ones larger; then in units that make the others larger."""
    data = make_class_means(n_samples=60, n_features=300, n_active=10, random_state=1)
    larger = np.where(np.isin(np.arange(300), data.active), 5.0, 1.0)
    fits = [PrunedBayesClassifier(noise=0.1).fit(data.X * units, data.y) for units in (larger, 1.0 / larger)]
    assert [fit.standardized_ for fit in fits] == [False, True]
    given = PrunedBayesClassifier(noise=0.1, standardize=True, fit_intercept=False).fit(data.X, data.y)
    assert (given.standardized_, given.has_intercept_) == (True, False)
    with pytest.raises(ValueError, match="standardize must be 'loo'"):
        PrunedBayesClassifier(standardize="robust").fit(data.X, data.y)


def test_the_paper_s_grid_is_the_default_and_drops_shares_below_one_feature(data):
    model = PrunedBayesClassifier().fit(data.X, data.y)
    densities = {tried[0] for tried in model.tried_}
    assert densities == {0.005, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8}
    assert {tried[1] for tried in model.tried_} == {0.1, 0.2, 0.3, 0.4}
    assert model.loo_error_ < 0.15


def test_continuous_search_finds_no_worse_log_loss_and_keeps_what_is_given():
    X, y, _, _ = teacher_data(120, 2)
    grid = PrunedBayesClassifier(density=[0.01, 0.1, 0.4], noise=[0.1, 0.3]).fit(X, y)
    free = PrunedBayesClassifier(tuning="continuous").fit(X, y)
    assert min(t[3] for t in free.tried_) <= min(t[3] for t in grid.tried_)
    assert free.density_ not in (0.01, 0.1, 0.4)
    half = PrunedBayesClassifier(noise=0.2, tuning="continuous").fit(X, y)
    assert half.noise_ == 0.2
    assert half.density_ not in (0.01, 0.1, 0.4)


@pytest.mark.parametrize(
    ("tuning", "when"), [("grid", 3), ("grid", 15), ("continuous", 3), ("continuous", 60)]
)
def test_an_interrupted_choice_holds_the_best_so_far_and_says_so(data, monkeypatch, tuning, when):
    model = PrunedBayesClassifier(density=[0.02, 0.1], noise=[0.1, 0.3], tuning=tuning)

    calls = 0

    def interrupt(iteration, line):
        nonlocal calls
        calls += 1
        if calls == when:
            raise KeyboardInterrupt

    monkeypatch.setattr(model, "_on_iteration", interrupt, raising=False)
    with pytest.raises(KeyboardInterrupt, match="holds the state reached"):
        model.fit(data.X, data.y)
    assert model.outcome_ is Outcome.INTERRUPTED
    assert calls == when, "an interrupt ends the whole choice, not one candidate"
    assert model.predict(data.X).shape == data.y.shape


# ---------------------------------------------------------------- whitening


@pytest.mark.parametrize("shape", [(30, 80), (80, 30)])
@pytest.mark.parametrize("kind", ["features", "components"])
def test_whitened_samples_have_equal_variance_in_all_directions(shape, kind):
    rng = np.random.default_rng(0)
    X = rng.standard_normal(shape) @ rng.standard_normal((shape[1], shape[1]))
    weight = rng.integers(0, 3, shape[0]).astype(float)
    operator = Standardized.fit(Dense(X), weight)
    whitening = Whitening.fit(operator, weight, kind)
    Z = whitening.whitened(operator)
    variances = np.linalg.eigvalsh((Z * weight[:, None]).T @ Z / weight.sum())[::-1]
    rank = whitening.to_components.shape[1]
    assert rank == min(np.count_nonzero(weight) - 1, shape[1])
    assert_allclose(variances[:rank], 1 / rank, rtol=1e-6)
    assert_allclose(variances[rank:], 0.0, atol=1e-9)
    w = rng.standard_normal(whitening.n_columns)
    assert_allclose(operator.scores(whitening.weights(w)), Z @ w, rtol=1e-6, atol=1e-8)
    var = rng.uniform(0.1, 1.0, whitening.n_columns)
    basis = (
        whitening.to_components if kind == "components" else whitening.to_components @ whitening.to_features
    )
    assert_allclose(whitening.weight_variances(var), basis**2 @ var, rtol=1e-8)


@pytest.mark.parametrize("kind", ["features", "components"])
def test_whitened_fits_report_weights_of_the_features(kind):
    rng = np.random.default_rng(1)
    factors = rng.standard_normal((120, 3)) @ rng.standard_normal((3, 40))
    X = factors + 0.5 * rng.standard_normal((120, 40))
    first_component = np.linalg.svd(X)[2][0]
    direction = np.eye(40)[0] - np.eye(40)[1] if kind == "features" else first_component
    y = np.where(X @ direction > 0, 1, -1)
    model = PrunedBayesClassifier(density=0.1, noise=0.1, whiten=kind).fit(X[:80], y[:80])
    assert model.coef_.shape == model.coef_std_.shape == (1, 40)
    linear = X @ model.coef_[0] + model.intercept_[0]
    assert_array_equal(model.predict(X), np.where(linear > 0, 1, -1))
    assert np.mean(model.predict(X[80:]) != y[80:]) < 0.25
    if kind == "components":
        assert model.component_inclusion_.shape == (40,)
        assert_allclose(model.component_inclusion_.mean(), 0.1, rtol=1e-6)
        assert np.argmax(model.component_inclusion_) == 39  # components come in the order of their variance
        assert_array_equal(model.inclusion_probability_, 1.0)
    else:
        assert set(np.argsort(-model.inclusion_probability_)[:2]) == {0, 1}
        assert not hasattr(model, "component_inclusion_")


def test_whitening_sees_training_samples_only():
    X, y, X_test, _ = teacher_data(60, 3)
    model = PrunedBayesClassifier(density=0.1, noise=0.1, whiten="components").fit(X, y)
    alone = [model.predict_proba(row[np.newaxis])[0] for row in X_test[:5]]
    assert_allclose(model.predict_proba(X_test[:5]), alone, rtol=1e-9)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"density": 0.0}, "density must be above 0"),
        ({"density": 1.0}, "below 1; got 1.0"),
        ({"density": "auto"}, "'loo', a number or a list"),
        ({"density": []}, "empty list"),
        ({"noise": 0.5}, "noise must be at least 0 and below 0.5"),
        ({"noise": [0.1, -0.1]}, "got -0.1"),
        ({"noise": True}, "got True"),
        ({"tuning": "cv"}, "tuning must be one of"),
        ({"whiten": True}, "whiten must be None or one of"),
        ({"messages": "all"}, "'per-node' or 'per-edge'"),
        ({"channel": "hinge"}, "do not sum to one"),
        ({"damping": 0.0}, r"in \(0, 1\]"),
        ({"variances": "none"}, "variances must be one of"),
        ({"tol": -1.0}, "tol"),
    ],
)
def test_bad_parameters_are_refused_before_any_work(data, parameters, message):
    model = PrunedBayesClassifier(**parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(data.X, data.y)
    assert not hasattr(model, "classes_")


def test_nothing_to_whiten_is_said():
    X = np.ones((6, 3))
    with pytest.raises(ValueError, match="nothing to whiten"):
        PrunedBayesClassifier(density=0.4, noise=0.1, whiten="features").fit(X, [0, 1, 0, 1, 0, 1])


def test_weights_count_like_repetitions(data):
    weight = np.random.default_rng(0).integers(1, 3, data.y.size)
    choice = PrunedBayesClassifier(density=0.02, noise=0.2, tol=1e-7)
    weighted = clone(choice).fit(data.X, data.y, sample_weight=weight)
    repeated = clone(choice).fit(np.repeat(data.X, weight, axis=0), np.repeat(data.y, weight))
    assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-4, atol=1e-6)
