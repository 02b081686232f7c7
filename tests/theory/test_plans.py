"""Planning: the tuned student against theory of other origin and against real fits; plans and their words."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ndtr

from foldless import SparseClassifier
from foldless.channels import FlippedLabels, Logistic
from foldless.datasets import make_class_means
from foldless.priors import Gaussian, SpikeAndSlab
from foldless.theory import Model, state_evolution
from foldless.theory.planning import plan
from foldless.theory.study import Spectrum, Study
from foldless.theory.tuned_student import expected_fit


def autoregressive(correlation: float, n: int) -> np.ndarray:
    angle = (np.arange(n) + 0.5) / n * np.pi
    return (1 - correlation**2) / (1 + correlation**2 - 2 * correlation * np.cos(angle))


# ---------------------------------------------------------------------- the study


def test_the_best_error_of_balanced_classes_is_that_of_their_distance():
    assert_allclose(Study(1000, 20, 0.8).best_error, ndtr(-np.sqrt(20) * 0.4), rtol=1e-12)


@pytest.mark.parametrize("labels", ["class-means", "logistic"])
@pytest.mark.parametrize("balance", [0.5, 0.2])
def test_the_best_error_is_that_of_the_true_weights(labels, balance):
    study = Study(50, 3, 0.9, labels=labels, balance=balance)
    rng, n = np.random.default_rng(0), 400_000
    power = study.score_power
    if labels == "class-means":
        y = np.where(rng.random(n) < balance, 1.0, -1.0)
        score = y * power / 2 + np.sqrt(power) * rng.standard_normal(n) + np.log(balance / (1 - balance))
    else:
        score = np.sqrt(power) * rng.standard_normal(n) + study.teacher_intercept
        y = np.where(rng.random(n) < 1 / (1 + np.exp(-score)), 1.0, -1.0)
        assert abs(np.mean(y > 0) - balance) < 5 * 0.5 / np.sqrt(n)
    assert abs(np.mean(score * y < 0) - study.best_error) < 5 * 0.5 / np.sqrt(n)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"n_features": 1}, "at least 2"),
        ({"n_markers": 0}, "how many features"),
        ({"n_markers": 100}, "below the number of features"),
        ({"effect": 0.0}, "0.2 is small"),
        ({"effect": np.nan}, "effect"),
        ({"balance": 1.0}, "share of one class"),
        ({"mislabelled": 0.5}, "below 0.5"),
        ({"sizes": "some"}, "equal"),
        ({"labels": "probit"}, "class-means"),
    ],
)
def test_impossible_studies_are_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        Study(**{"n_features": 100, "n_markers": 5, **changes})


# ---------------------------------------------------------------------- spectra


@pytest.mark.parametrize(
    "population",
    [np.ones(600), autoregressive(0.8, 600), np.where(np.arange(600) % 10, 0.3, 7.3)],
    ids=["independent", "autoregressive", "blocks"],
)
def test_a_population_spectrum_is_found_in_a_sample(population):
    rng = np.random.default_rng(1)
    n_rows = 150
    rows = rng.standard_normal((n_rows, population.size)) * np.sqrt(population)
    found = Spectrum.of_sample(np.linalg.eigvalsh(rows @ rows.T) / n_rows, population.size)
    truth = Spectrum.of_eigenvalues(population)
    for ridge in (0.1, 1.0, 10.0):
        shrunk = [s.shares @ (s.values / (s.values + ridge)) for s in (found, truth)]
        assert abs(shrunk[0] - shrunk[1]) < 0.02, ridge
    assert_allclose(found.shares @ found.values, 1.0)


def test_a_sample_spectrum_is_far_from_its_population():
    """So that the test above tests something: shrinkage of raw sample eigenvalues is off by a lot."""
    rows = np.random.default_rng(1).standard_normal((150, 600))
    raw = np.append(np.linalg.eigvalsh(rows @ rows.T) / 150, np.zeros(450))
    assert abs(np.mean(raw / (raw + 1)) - 0.5) > 0.2


@pytest.mark.parametrize("values", [[], [0.0, 0.0], [-1.0, 2.0], [np.nan, 1.0]])
def test_impossible_spectra_are_refused(values):
    with pytest.raises(ValueError, match="Spectrum"):
        Spectrum.of_eigenvalues(values)


# ---------------------------------------------------------------------- the tuned student


@pytest.mark.parametrize("flat", [True, False], ids=["independent", "by-its-spectrum"])
def test_a_tuned_student_ends_where_state_evolution_leads_one_with_its_parameters(flat):
    """Two derivations of one number: here EM and the fixed point at once, there GAMP with what EM found.

    The spectrum is flat but for 1e-4, so that the vector form is used and must give the same.
    """
    n_features, n_markers, effect, n_samples = 2000, 40, 0.3, 2000
    spectrum = None if flat else Spectrum(np.array([0.9999, 1.0001]), np.array([0.5, 0.5]))
    study = Study(n_features, n_markers, effect, sizes="normal", labels="logistic", spectrum=spectrum)
    found = expected_fit(study, n_samples)
    assert found.converged
    assert found.generative_weight == 0
    # State evolution has features of variance 1/M, so weights are √M times as large.
    scale = float(n_samples)
    teacher = Model(SpikeAndSlab(Gaussian(scale * effect**2), n_markers / n_features), Logistic())
    student = Model(
        SpikeAndSlab(Gaussian(scale * found.slab_variance), found.inclusion),
        FlippedLabels(Logistic(), found.flip_prob),
    )
    expected = state_evolution(n_samples / n_features, teacher, student, tol=1e-6).fixed_point
    assert_allclose(found.test_error, expected.test_error, atol=5e-4)
    # Lengths differ a little: surprised labels have negative curvature, which fits ignore (and the tuned
    # student with them), while state evolution averages it.
    direction = found.overlap / np.sqrt(found.estimate_power)
    assert_allclose(direction, expected.overlap / np.sqrt(expected.estimate_power), rtol=3e-3)


def test_effects_of_equal_size_are_those_of_a_narrow_mixture():
    """State evolution cannot have point masses as effects, but narrow slabs on either side."""
    n_features, n_markers, effect, n_samples = 2000, 100, 0.5, 3000
    found = expected_fit(Study(n_features, n_markers, effect, labels="logistic"), n_samples)
    share = n_markers / n_features
    size, narrow = np.sqrt(n_samples) * effect, 1e-3 * n_samples * effect**2
    # Weights of either sign are alike to a student that is, so one side of them will do.
    teacher = Model(SpikeAndSlab(Gaussian(narrow, mean=size), share), Logistic())
    student = Model(
        SpikeAndSlab(Gaussian(n_samples * found.slab_variance), found.inclusion),
        FlippedLabels(Logistic(), found.flip_prob),
    )
    expected = state_evolution(n_samples / n_features, teacher, student, tol=1e-6).fixed_point
    assert_allclose(found.test_error, expected.test_error, atol=1e-3)


@pytest.mark.parametrize(
    ("n_features", "n_markers", "bayes_error", "n_samples", "mislabelled"),
    [(1000, 20, 0.05, 100, 0.0), (2000, 10, 0.02, 100, 0.1)],
)
def test_the_expected_error_is_that_of_fits(n_features, n_markers, bayes_error, n_samples, mislabelled):
    runs = [
        make_class_means(
            n_samples,
            n_features,
            n_markers,
            bayes_error=bayes_error,
            mislabelled=mislabelled,
            random_state=seed,
        )
        for seed in range(16)
    ]
    effect = 2.0 / np.sqrt(runs[0].noise_var)
    study = Study(n_features, n_markers, effect, mislabelled=mislabelled)
    assert_allclose(study.best_error, bayes_error, rtol=1e-9)
    errors, powers = [], []
    for data in runs:
        model = SparseClassifier().fit(data.X, data.y)
        errors.append(data.test_error(model.coef_, float(model.intercept_[0])))
        powers.append(np.isin(data.active, model.get_support(indices=True)).mean())
    found = expected_fit(study, n_samples)
    noise = np.std(errors) / np.sqrt(len(errors))
    assert noise < 0.01
    assert abs(found.test_error - np.mean(errors)) < 0.01 + 3 * noise
    assert abs(found.power - np.mean(powers)) < 0.1 + 3 * np.std(powers) / np.sqrt(len(powers))


@pytest.mark.parametrize("labels", ["class-means", "logistic"])
@pytest.mark.parametrize("spectrum", [None, Spectrum.of_eigenvalues(autoregressive(0.7, 200))])
def test_many_samples_lead_to_the_best_error_and_all_markers(labels, spectrum):
    study = Study(200, 5, 0.8, labels=labels, spectrum=spectrum)
    found = expected_fit(study, 20_000)
    assert found.converged
    assert_allclose(found.test_error, study.best_error, atol=2e-3)
    assert found.power > 0.999


def test_what_makes_a_study_harder_raises_its_error():
    base = {"n_features": 2000, "n_markers": 20, "effect": 0.8}
    error = expected_fit(Study(**base), 100).test_error
    assert expected_fit(Study(**base), 50).test_error > error + 0.05
    assert expected_fit(Study(**base, mislabelled=0.1), 100).test_error > error + 0.01
    assert expected_fit(Study(**{**base, "effect": 0.6}), 100).test_error > error + 0.05
    assert expected_fit(Study(**{**base, "n_features": 20_000}), 100).test_error > error + 0.02


def test_strong_effects_in_strongly_correlated_features_have_one_answer_each():
    """Long steps swing there; what they end with is not a curve."""
    values, shares = [0.02, 0.3, 0.9, 3, 15, 100, 820], [0.1, 0.4, 0.3, 0.16, 0.034, 0.005, 0.0009]
    study = Study(7000, 12, 2.5, spectrum=Spectrum(np.array(values), np.array(shares)), balance=0.35)
    found = [expected_fit(study, n_samples) for n_samples in (30, 48, 72)]
    assert all(fit.converged for fit in found)
    errors = [fit.test_error for fit in found]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] < 0.02


def test_nothing_is_found_in_noise_and_nothing_breaks():
    found = expected_fit(Study(5000, 1, 0.05), 20)
    assert 0.45 < found.test_error <= 0.5 + 1e-12
    assert np.isfinite(found.log_loss)


# ---------------------------------------------------------------------- plans


def test_the_number_needed_is_the_smallest_that_reaches_the_target():
    study = Study(2000, 20)
    answer = plan(study, error=0.1, power=0.6)
    assert answer.needed is not None
    needed = answer.needed.n_samples
    assert answer.needed.error <= 0.1
    assert answer.needed.power >= 0.6
    fewer = expected_fit(study, 0.95 * needed)
    assert fewer.test_error > 0.1 or fewer.power < 0.6
    errors = [row.error for row in answer.rows]
    assert errors == sorted(errors, reverse=True)
    assert any(row.n_samples >= needed for row in answer.rows)


def test_a_plan_says_what_it_found_in_a_sentence():
    answer = plan(Study(20_000, 20), error=0.1)
    sentence = answer.sentence()
    assert answer.needed is not None
    for part in (
        f"You need about {answer.needed.n_samples} samples",
        f"({answer.needed.n_samples // 2} of each class)",
        "at most 10 % of new samples",
        "20 of the 20 000 features",
        "0.8 standard deviations",
        "of the 20 markers",
    ):
        assert part in sentence
    assert not re.search(r"log-odds|prior|channel|state evolution", sentence)


def test_a_target_below_the_best_error_is_called_so():
    answer = plan(Study(2000, 5), error=0.1)
    assert answer.needed is None
    assert "even a classifier that knows all of them misjudges 19 %" in answer.sentence()


def test_sizes_asked_for_are_the_table_and_the_target_is_still_searched():
    answer = plan(Study(2000, 20), [60, 40], error=0.1)
    assert [row.n_samples for row in answer.rows] == [40, 60]
    assert answer.needed is not None
    assert answer.needed.n_samples > 60
    alone = plan(Study(2000, 20), [60])
    assert alone.needed is None
    assert alone.sentence().startswith("With 60 samples (30 of each class), expect")


def test_a_plan_is_json():
    spectrum = Spectrum.of_eigenvalues([0.5, 1.5])
    answer = plan(Study(500, 10, spectrum=spectrum, mislabelled=0.02), [80, 160], error=0.2)
    read = json.loads(json.dumps(answer.to_dict(), allow_nan=False))
    assert read["study"]["spectrum"]["values"] == [0.5, 1.5]
    assert [row["n_samples"] for row in read["table"]] == [80, 160]
    assert read["needed"]["error"] <= 0.2
    assert read["assumptions"] == answer.assumptions()


def test_everything_known_is_told_to_whoever_watches():
    seen = []
    answer = plan(Study(500, 10), [50, 100], watch=seen.append)
    assert tuple(seen) == answer.rows


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"error": 0.0}, "error must be between 0 and 1"),
        ({"power": 1.0}, "power must be between 0 and 1"),
        ({"error": 0.1, "fdr": 0.0}, "fdr"),
        ({"n_samples": [4]}, "at least 8 samples"),
    ],
)
def test_impossible_targets_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        plan(Study(500, 10), **options)
