"""Planning from data: pilots, spectra, learning curves of fitted models, and simulated studies."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from foldless import GAMPClassifier, SparseClassifier
from foldless.datasets import make_class_means, make_two_classes
from foldless.estimators.planning import (
    guess_from,
    learning_curve,
    pilot_study,
    seen_by,
    simulate,
    within_spectrum,
)
from foldless.operators import Standardized, operator_from
from foldless.theory.study import Spectrum, Study
from foldless.theory.tuned_student import expected_fit


@pytest.fixture(scope="module")
def pilot():
    data = make_class_means(120, 600, 10, bayes_error=0.03, random_state=3)
    return data, SparseClassifier().fit(data.X, data.y)


def test_a_pilot_tells_its_study(pilot):
    data, model = pilot
    study = pilot_study(model, data.X, data.y)
    assert study.n_features == 600
    assert study.balance == 0.5
    assert study.spectrum is None
    assert 5 < study.n_markers < 20
    assert 0.03 / 3 < study.best_error < 0.09
    # The truth of the pilot's error is known, and the study's at its size should be near.
    true_error = data.test_error(model.coef_, float(model.intercept_[0]))
    assert abs(expected_fit(study, 120).test_error - true_error) < 0.05


def test_a_learning_curve_of_a_model_holds_for_more_data(pilot):
    data, model = pilot
    curve = learning_curve(model, data.X, data.y, [240])
    later = [make_class_means(240, 600, 10, bayes_error=0.03, random_state=seed) for seed in range(4)]
    errors = []
    for more in later:
        refit = SparseClassifier().fit(more.X, more.y)
        errors.append(more.test_error(refit.coef_, float(refit.intercept_[0])))
    _, lower, upper = curve.at(240)
    assert lower < np.mean(errors) < upper
    assert upper - lower < 0.12


def test_a_correlated_pilot_brings_its_spectrum():
    rng = np.random.default_rng(2)
    loadings = rng.standard_normal((120, 3))
    X = rng.standard_normal((60, 3)) @ loadings.T + rng.standard_normal((60, 120))
    y = np.where(X[:, :4].sum(axis=1) + rng.standard_normal(60) > 0, "b", "a")
    model = SparseClassifier().fit(X, y)
    assert model.solver_ == "EP"
    curve = learning_curve(model, X, y, [180])
    assert curve.study is not None
    assert curve.study.correlated
    assert curve.study.spectrum.values.max() > 10  # a third of the variance is in each of three directions
    now, later = curve.at(60)[0], curve.at(180)[0]
    assert abs(now - (model.loo_error_ * 60 + 0.5) / 61) < 5e-3
    assert later < now


def test_a_pilot_without_signal_is_refused_with_a_reason():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 50)), np.repeat([0, 1], 15)
    model = SparseClassifier().fit(X, y)
    model.loo_error_ = 0.5
    with pytest.raises(ValueError, match="no fewer than chance"):
        pilot_study(model, X, y)


def test_labels_must_be_those_of_the_fit(pilot):
    data, model = pilot
    with pytest.raises(ValueError, match="fitted to"):
        guess_from(model, data.X, data.y[:50])


def test_other_models_are_refused(pilot):
    data, _ = pilot
    other = GAMPClassifier().fit(data.X, data.y)
    with pytest.raises(TypeError, match="SparseClassifier"):
        seen_by(other)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_spectrum_within_classes_does_not_see_their_difference(dtype):
    rng = np.random.default_rng(0)
    y = np.repeat([-1, 1], 60)
    roots = np.sqrt(np.where(np.arange(400) % 10, 0.3, 7.3))
    turned = np.linalg.qr(rng.standard_normal((400, 400)))[0]
    X = ((rng.standard_normal((120, 400)) * roots) @ turned).astype(dtype)
    moved = X + 3.0 * y[:, np.newaxis].astype(dtype)
    found = []
    for data in (X, moved):
        standardized = Standardized.fit(operator_from(np.ascontiguousarray(data)), np.ones(120))
        found.append(within_spectrum(standardized, y))
    shrunk = [s.shares @ (s.values / (s.values + 1.0)) for s in found]
    assert_allclose(shrunk[0], shrunk[1], atol=1e-4)
    truth = Spectrum.of_eigenvalues(roots**2)
    assert_allclose(shrunk[0], truth.shares @ (truth.values / (truth.values + 1.0)), atol=0.03)


def test_constant_columns_have_no_part_in_a_spectrum():
    X = np.random.default_rng(0).standard_normal((60, 100))
    with_constants = np.column_stack([X, np.full((60, 50), 7.0)])
    y = np.repeat([0, 1], 30)
    spectra = [
        within_spectrum(Standardized.fit(operator_from(data), np.ones(60)), y) for data in (X, with_constants)
    ]
    assert_allclose(spectra[0].values, spectra[1].values)


def test_a_study_is_simulated_as_it_is_planned():
    study = Study(500, 10, 1.2, mislabelled=0.05)
    heard = []
    done = simulate(study, 80, 8, watch=heard.append)
    assert heard == list(range(1, 9))
    expected = expected_fit(study, 80)
    assert abs(done.error - expected.test_error) < 0.015 + 3 * done.standard_error
    assert abs(done.power - expected.power) < 0.2
    again = simulate(study, 80, 2)
    assert again.errors == done.errors[:2]
    with pytest.raises(ValueError, match="at least 2"):
        simulate(study, 80, 1)


# ---------------------------------------------------------------------- the populations simulated


@pytest.mark.parametrize("class_means", [True, False])
@pytest.mark.parametrize("correlated", [True, False])
def test_populations_have_the_stated_covariance_and_classes(class_means, correlated):
    eigenvalues = np.linspace(0.2, 1.8, 40) if correlated else None
    population = make_two_classes(
        40,
        3,
        0.7,
        balance=0.3,
        mislabelled=0.1,
        class_means=class_means,
        eigenvalues=eigenvalues,
        random_state=0,
    )
    n = 40_000
    X, recorded, y = population.draw(n, np.random.default_rng(1))
    assert np.isclose(np.mean(recorded != y), 0.1)
    if class_means:
        assert np.isclose(np.mean(y > 0), 0.3)
        difference = X[y > 0].mean(axis=0) - X[y < 0].mean(axis=0)
        X = X - np.where(y[:, np.newaxis] > 0, X[y > 0].mean(axis=0), X[y < 0].mean(axis=0))
    covariance = X.T @ X / n
    expected = np.ones(40) if eigenvalues is None else eigenvalues
    assert_allclose(np.sort(np.linalg.eigvalsh(covariance)), expected, atol=0.15)
    if class_means:
        # The best weights are the covariance's inverse times the difference of means.
        assert_allclose(np.linalg.solve(covariance, difference), population.weights, atol=0.15)
    else:
        score = X @ population.weights
        share = np.mean(y[np.abs(score - 1.0) < 0.2] > 0)
        assert abs(share - 1 / (1 + np.exp(-1.0))) < 0.05


def test_eigenvalues_are_one_for_each_feature():
    with pytest.raises(ValueError, match="one for each of the 40"):
        make_two_classes(40, 3, 0.7, eigenvalues=np.ones(39))
