"""Weights, kept columns, mean removal and warm starts: where an estimator is easily almost right."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from foldless import GAMPClassifier, SparseClassifier
from foldless.channels import CHANNELS, Blended, FlippedLabels
from foldless.datasets import make_class_means
from foldless.priors import Gaussian, Observed, Ridged, SpikeAndSlab
from foldless.tuning.table import assembled
from reference.planned import table_of


@pytest.fixture(scope="module")
def unequal():
    """Logistic data with an intercept: classes of unequal size."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 50))
    y = (rng.random(400) < expit(2.5 * X[:, 0] + 2.5 * X[:, 1] - 4)).astype(int)
    return X, y


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_mean_removal_changes_neither_intercept_nor_weights(unequal, weight):
    X, y = unequal
    plain, removed = (
        GAMPClassifier(mean_removal=m, generative_weight=weight, variances="per-coordinate").fit(X, y)
        for m in (False, True)
    )
    assert_allclose(removed.intercept_, plain.intercept_, rtol=0.02)
    assert_allclose(removed.coef_[0, :2], plain.coef_[0, :2], rtol=0.02)
    assert_allclose(removed.predict_proba(X), plain.predict_proba(X), atol=0.02)


def test_the_fitted_scores_are_those_that_predict(unequal):
    X, y = unequal
    for removed in (False, True):
        table = table_of(X, np.where(y == 1, 1.0, -1.0), mean_removal=removed)
        problem = assembled(table, CHANNELS["logistic"]())
        beta = np.zeros(problem.operator.shape[1])
        beta[0], beta[-1] = 1.5, -2.0
        if removed:  # the extra weights that keep the two constraints
            extra = problem.operator.columns(np.arange(50, 52))[-2:]
            pins = problem.operator.scores(beta)[-2:]
            solvable = np.abs(np.diag(extra)) > 0
            beta[50:52][solvable] = -pins[solvable] / np.diag(extra)[solvable]
        expected = 1.5 * (X[:, 0] - X[:, 0].mean()) / X[:, 0].std() - 2.0
        assert_allclose(problem.operator.scores(beta)[:400], expected, atol=1e-9)


def test_mean_removal_takes_a_common_factor_and_kept_columns(unequal):
    X, y = unequal
    common = X + 0.5 * np.random.default_rng(1).standard_normal((400, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        plain = GAMPClassifier("gaussian", always_keep=[3], generative_weight=0.0, damping=0.2).fit(common, y)
        removed = GAMPClassifier(
            "gaussian", always_keep=[3], generative_weight=0.0, mean_removal=True, damping=0.2
        ).fit(common, y)
    assert_allclose(removed.coef_[0, 3], plain.coef_[0, 3], atol=0.15)
    assert removed.score(common, y) > 0.9


def test_rows_of_weight_zero_are_not_there_even_for_mean_removal(unequal):
    X, y = unequal
    spoiled, weight = X.copy(), np.ones(y.size)
    spoiled[7], weight[7] = 1e3, 0.0
    rest = np.arange(y.size) != 7
    for model in (GAMPClassifier(mean_removal=True, generative_weight=0.0), SparseClassifier()):
        with_row = model.fit(spoiled, y, sample_weight=weight).predict_proba(X[:50])
        without = model.fit(X[rest], y[rest]).predict_proba(X[:50])
        assert_allclose(with_row, without, rtol=1e-6)


@pytest.mark.parametrize("class_weight", [{-1: 0.3}, {1: 3.0}])
def test_leave_one_out_with_class_weights_against_refits(class_weight):
    data = make_class_means(n_samples=50, n_features=40, n_active=4, bayes_error=0.2, random_state=3)
    model = GAMPClassifier(
        prior=SpikeAndSlab(Gaussian(0.5), 0.1),
        tune=False,
        generative_weight=0.0,
        class_weight=class_weight,
        variances="per-coordinate",
        tol=1e-6,
    ).fit(data.X, data.y)
    # The class weights themselves do not change when a sample is left out.
    losses = []
    for m in range(50):
        rest = np.arange(50) != m
        refit = GAMPClassifier(**model.get_params(deep=False)).fit(data.X[rest], data.y[rest])
        own = refit.predict_proba(data.X[m : m + 1])[0, int(data.y[m] == 1)]
        losses.append(-np.log(own))
    assert_allclose(model.loo_log_loss_, np.mean(losses), rtol=0.25)


def test_leave_one_out_of_a_sample_of_weight_zero_is_its_prediction():
    data = make_class_means(n_samples=80, n_features=60, n_active=4, random_state=2)
    weight = np.ones(80)
    weight[:10] = 0.0
    model = SparseClassifier(tol=1e-7).fit(data.X, data.y, sample_weight=weight)
    assert_allclose(model.loo_proba_[:10], model.predict_proba(data.X[:10]), atol=0.02)


def test_warm_start_on_new_data_gives_the_answer_of_the_new_data():
    first = make_class_means(n_samples=80, n_features=100, n_active=4, random_state=5)
    second = make_class_means(n_samples=80, n_features=100, n_active=4, random_state=6)
    rng = np.random.default_rng(0)
    parameters = {"generative_weight": 0.5, "tol": 1e-8}
    warm = GAMPClassifier(warm_start=True, **parameters).fit(first.X, first.y)
    for X, y, weight in [
        (second.X * rng.uniform(0.3, 3.0, (80, 1)), second.y, None),
        (second.X, second.y, rng.uniform(0.5, 2.0, 80)),
    ]:
        cold = GAMPClassifier(**parameters).fit(X, y, sample_weight=weight)
        warm.fit(X, y, sample_weight=weight)
        assert_allclose(warm.coef_, cold.coef_, atol=1e-5 * np.abs(cold.coef_).max())


def test_constant_columns_change_nothing():
    data = make_class_means(n_samples=80, n_features=100, n_active=4, random_state=7)
    plain = SparseClassifier().fit(data.X, data.y)
    padded = SparseClassifier().fit(np.hstack([data.X, np.ones((80, 500))]), data.y)
    assert_allclose(
        padded.predict_proba(np.hstack([data.X, np.ones((80, 500))])), plain.predict_proba(data.X), rtol=1e-6
    )


def test_columns_kept_by_decree_do_not_make_room_for_false_ones():
    data = make_class_means(n_samples=80, n_features=300, n_active=4, bayes_error=0.15, random_state=8)
    plain = SparseClassifier().fit(data.X, data.y)
    kept = [j for j in range(300) if j not in data.active][:30]
    model = SparseClassifier(always_keep=kept).fit(data.X, data.y)
    support = model.get_support(fdr=0.1)
    assert support[kept].all()
    free = np.setdiff1d(np.flatnonzero(support), kept)
    mistakes = 1 - model.inclusion_probability_[free]
    assert mistakes.size == 0 or mistakes.mean() <= 0.1
    assert free.size <= plain.get_support(fdr=0.1).sum() + 2


def test_a_constant_column_that_is_to_be_kept_is_kept():
    data = make_class_means(n_samples=40, n_features=20, n_active=2, random_state=9)
    X = np.hstack([data.X, np.ones((40, 1))])
    model = SparseClassifier(always_keep=[20]).fit(X, data.y)
    assert model.get_support()[20]
    assert model.coef_[0, 20] == 0


def test_always_keep_takes_a_mask():
    data = make_class_means(n_samples=40, n_features=20, n_active=2, random_state=9)
    mask = np.arange(20) < 2
    by_mask = SparseClassifier(always_keep=mask).fit(data.X, data.y)
    assert_array_equal(by_mask.coef_, SparseClassifier(always_keep=[0, 1]).fit(data.X, data.y).coef_)
    with pytest.raises(ValueError, match="one value for each of the 20 columns"):
        SparseClassifier(always_keep=[True, False]).fit(data.X, data.y)


@pytest.mark.parametrize("name", sorted(CHANNELS))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_channel_fits_by_its_name(name):
    data = make_class_means(n_samples=100, n_features=80, n_active=3, random_state=10)
    model = GAMPClassifier(channel=name).fit(data.X, data.y)
    assert model.score(data.X, data.y) > 0.85
    assert np.isfinite(model.loo_log_loss_)


@pytest.mark.parametrize(
    "parameters",
    [
        {"channel": Blended()},
        {"channel": FlippedLabels(Blended())},
        {"prior": Ridged(Gaussian(), 1.0)},
        {"prior": Observed(Gaussian(), 1.0, 0.0)},
    ],
    ids=["Blended", "FlippedLabels(Blended)", "Ridged", "Observed"],
)
def test_what_the_estimator_makes_itself_is_refused(parameters):
    data = make_class_means(n_samples=30, n_features=10, n_active=2, random_state=0)
    with pytest.raises(ValueError, match="made by the estimator itself"):
        GAMPClassifier(**parameters).fit(data.X, data.y)


def test_positional_true_is_no_rate():
    data = make_class_means(n_samples=30, n_features=10, n_active=2, random_state=0)
    with pytest.raises(ValueError, match="indices=True"):
        SparseClassifier().fit(data.X, data.y).get_support(True)


def test_a_failed_fit_leaves_the_last_one_whole():
    data = make_class_means(n_samples=30, n_features=10, n_active=2, random_state=0)
    model = SparseClassifier().fit(data.X, data.y)
    before = model.predict(data.X)
    with pytest.raises(ValueError, match="only one class"):
        model.fit(data.X, np.ones(30))
    assert_array_equal(model.predict(data.X), before)


@pytest.mark.parametrize("class_weight", [{1: 0.0}, {1: -1.0}])
def test_class_weights_must_be_positive(class_weight):
    data = make_class_means(n_samples=30, n_features=10, n_active=2, random_state=0)
    with pytest.raises(ValueError, match="class_weight"):
        SparseClassifier(class_weight=class_weight).fit(data.X, data.y)


def test_a_named_slab_mean_is_learnt():
    data = make_class_means(n_samples=100, n_features=60, n_active=6, random_state=11)
    model = GAMPClassifier(
        SpikeAndSlab(), tune=["prior__slab__mean", "prior__inclusion"], generative_weight=1.0
    ).fit(data.X * np.where(data.weights == 0, 1, data.weights), data.y)
    assert model.prior_.slab.mean > 0.2
    assert model.prior_.slab.variance == 1.0
