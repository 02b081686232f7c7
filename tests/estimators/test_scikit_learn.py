"""Classifiers by message passing pass every scikit-learn check, and live well among scikit-learn's tools.

What holds for every estimator, names, labels and storages among it, is in tests/testing.
"""

import pickle
import warnings

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from foldless import (
    BayesPointClassifier,
    EPBayesPointClassifier,
    GAMPClassifier,
    PrunedBayesClassifier,
    SparseClassifier,
)
from foldless.channels import FlippedLabels, Logistic, Probit
from foldless.datasets import make_class_means
from foldless.priors import Gaussian, Laplace, SpikeAndSlab
from foldless.problem import Outcome

CLASSIFIERS = [SparseClassifier(), GAMPClassifier()]
# These select nothing, so fewer checks apply. Without choices the knapsack needs no folds, and no numba; EP
# with one kind of noise instead of three is a third of the time.
BAYES_POINTS = [
    EPBayesPointClassifier("probit"),
    BayesPointClassifier(violation_cost=1.0, n_sweeps=5, beta=1.0, n_bins=16),
]
every_classifier = pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda m: type(m).__name__)
# Its decisions are not linear, and what it selects depends on a density that is given, not learnt.
PRUNED = PrunedBayesClassifier(density=0.02, noise=0.1)
pruned_too = pytest.mark.parametrize("model", [*CLASSIFIERS, PRUNED], ids=lambda m: type(m).__name__)


@pytest.fixture(scope="module")
def data():
    return make_class_means(n_samples=80, n_features=400, n_active=5, random_state=3)


@pytest.mark.parametrize("model", [*CLASSIFIERS, PrunedBayesClassifier()], ids=lambda m: type(m).__name__)
def test_every_scikit_learn_check_passes(model, record_property):
    with warnings.catch_warnings():
        # The checks fit noise, three samples, one feature; that such a fit says it did not settle is right.
        warnings.simplefilter("ignore")
        results = check_estimator(model, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] in ("failed", "xfail")}
    ran = sum(r["status"] == "passed" for r in results)
    print(f"{type(model).__name__}: {ran} scikit-learn checks passed")
    assert failed == {}
    assert ran >= 64


@pytest.mark.parametrize("model", BAYES_POINTS, ids=lambda m: type(m).__name__)
def test_every_check_of_a_classifier_passes_for_bayes_points(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(model, on_fail=None)
    assert {r["check_name"]: r["exception"] for r in results if r["status"] in ("failed", "xfail")} == {}
    assert sum(r["status"] == "passed" for r in results) >= 60


@pruned_too
def test_fitted_attributes_have_their_shapes(model, data):
    fitted = clone(model).fit(data.X, data.y)
    n_samples, n_features = data.X.shape
    assert fitted.coef_.shape == fitted.coef_std_.shape == (1, n_features)
    assert fitted.intercept_.shape == (1,)
    assert fitted.inclusion_probability_.shape == (n_features,)
    assert np.all((fitted.inclusion_probability_ >= 0) & (fitted.inclusion_probability_ <= 1))
    assert fitted.loo_proba_.shape == (n_samples, 2)
    assert_allclose(fitted.loo_proba_.sum(axis=1), 1)
    own = fitted.loo_proba_[np.arange(n_samples), (data.y == fitted.classes_[1]).astype(int)]
    assert_allclose(fitted.loo_log_loss_, -np.log(own).mean(), rtol=1e-9)
    assert_allclose(fitted.loo_error_, np.mean(own <= 0.5))
    assert fitted.outcome_ is Outcome.CONVERGED
    assert fitted.n_iter_ >= len(fitted.history_) > 0


@every_classifier
def test_selection_finds_the_active_features(model, data):
    fitted = clone(model).fit(data.X, data.y)
    assert set(fitted.get_support(fdr=0.1, indices=True)) == set(data.active)
    assert fitted.get_support(0.0).sum() <= fitted.get_support(0.1).sum() <= fitted.get_support(0.9).sum()
    assert_array_equal(fitted.transform(data.X), data.X[:, fitted.get_support()])


@every_classifier
def test_linear_attributes_reproduce_the_decision(model, data):
    fitted = clone(model).fit(data.X, data.y)
    assert_allclose(
        data.X @ fitted.coef_[0] + fitted.intercept_[0], fitted.decision_function(data.X), rtol=1e-9
    )
    assert_array_equal(fitted.predict(data.X), np.where(fitted.decision_function(data.X) > 0, 1, -1))
    assert_allclose(np.exp(fitted.predict_log_proba(data.X)), fitted.predict_proba(data.X), rtol=1e-9)


def test_nested_parameters_can_be_searched(data):
    model = GAMPClassifier(prior=SpikeAndSlab(Gaussian(1.0), 0.02), tune=False, generative_weight=0.5)
    search = GridSearchCV(model, {"prior__slab__variance": [1e-4, 1.0], "prior__inclusion": [0.01]}, cv=3)
    search.fit(data.X, data.y)
    assert search.best_params_["prior__slab__variance"] == 1.0
    assert search.best_estimator_.prior_.slab.variance == 1.0
    assert search.best_estimator_.prior_.inclusion == 0.01
    assert model.prior.inclusion == 0.02, "the search must not change the estimator it was given"


@pruned_too
def test_clone_and_pickle(model, data):
    fitted = clone(model).fit(data.X, data.y)
    again = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(again.predict_proba(data.X), fitted.predict_proba(data.X))
    assert len(pickle.dumps(fitted)) < data.X.nbytes / 2, "a model must not carry its data"
    with pytest.raises(NotFittedError):
        clone(fitted).predict(data.X)


def test_fit_leaves_constructor_parameters_alone(data):
    prior, channel = SpikeAndSlab(Laplace(2.0), 0.05), FlippedLabels(Probit(), 0.05)
    model = GAMPClassifier(prior, channel).fit(data.X, data.y)
    assert model.prior is prior
    assert model.channel is channel
    assert prior == SpikeAndSlab(Laplace(2.0), 0.05)
    assert model.prior_ != prior
    assert model.channel_ != channel


def test_metadata_routing_carries_sample_weight(data):
    weight = np.random.default_rng(0).integers(0, 3, data.y.size).astype(float)
    with sklearn.config_context(enable_metadata_routing=True):
        model = SparseClassifier().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        scores = cross_validate(model, data.X, data.y, params={"sample_weight": weight}, cv=3)
    assert np.all(scores["test_score"] > 0.6)


def test_selector_in_a_pipeline(data):
    pipeline = make_pipeline(SparseClassifier(fdr=0.2), LogisticRegression())
    assert pipeline.fit(data.X, data.y).score(data.X, data.y) > 0.9


def test_warm_start_goes_on_where_the_last_fit_ended(data):
    model = GAMPClassifier(warm_start=True, generative_weight=0.5).fit(data.X, data.y)
    first, n_first = model.coef_, model.n_iter_
    model.fit(data.X, data.y)
    assert model.n_iter_ < n_first
    assert_allclose(model.coef_, first, atol=1e-3 * np.abs(first).max())
    model.fit(data.X[:60], data.y[:60])  # other samples: a cold start, not an error


def test_verbose_prints_every_iteration(data, capsys):
    GAMPClassifier(verbose=1, generative_weight=0.5, channel=Logistic()).fit(data.X, data.y)
    assert "iteration    1  change" in capsys.readouterr().out
