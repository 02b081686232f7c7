"""Learning curves: calibration undoes what a student says, bands are ordered, words are plain."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import beta

from foldless.theory.learning_curve import (
    Seen,
    calibrated,
    error_interval,
    extrapolated,
    recorded_error,
    with_error,
)
from foldless.theory.study import Spectrum, Study
from foldless.theory.tuned_student import expected_fit

TRUTH = Study(1000, 15, 0.9)


def said_by_its_student(study: Study, n_samples: int) -> Seen:
    student = expected_fit(study, n_samples)
    error = recorded_error(study, student)
    return Seen(n_samples, error, student.inclusion * study.n_features, student.flip_prob)


@pytest.mark.parametrize("mislabelled", [0.0, 0.08])
def test_the_study_is_found_from_what_its_student_says(mislabelled):
    truth = replace(TRUTH, mislabelled=mislabelled)
    seen = said_by_its_student(truth, 150)
    guess = replace(truth, n_markers=seen.n_believed, effect=2.0, mislabelled=0.0)
    found = calibrated(guess, seen, seen.error)
    assert_allclose(recorded_error(found, expected_fit(found, 150)), seen.error, atol=1e-3)
    assert_allclose(found.n_markers, truth.n_markers, rtol=0.15)
    assert_allclose(found.effect, truth.effect, rtol=0.1)
    assert_allclose(found.mislabelled, mislabelled, atol=0.015)
    # And so its curve is that of the truth.
    for n_samples in (80, 300):
        errors = [recorded_error(s, expected_fit(s, n_samples)) for s in (found, truth)]
        assert_allclose(errors[0], errors[1], atol=0.01)


def test_a_student_alone_is_no_good_judge_of_markers():
    """So that calibration has something to do: beliefs are off by more than a quarter."""
    assert abs(said_by_its_student(TRUTH, 150).n_believed / TRUTH.n_markers - 1) > 0.25


@pytest.mark.parametrize("effect", [0.05, 0.9, 10.0])
def test_the_effect_of_an_error_is_found_from_anywhere(effect):
    error = expected_fit(TRUTH, 100).test_error
    found = with_error(replace(TRUTH, effect=effect), 100, error)
    assert_allclose(found.effect, TRUTH.effect, rtol=0.01)


def test_correlated_guesses_keep_their_markers():
    study = replace(TRUTH, spectrum=Spectrum.of_eigenvalues([0.5, 1.5]))
    seen = Seen(100, 0.15, 40.0, 0.05)
    found = calibrated(study, seen)
    assert found.n_markers == study.n_markers
    assert found.mislabelled == 0
    error = error_interval(0.15, 100, 0.9)[0]
    assert_allclose(expected_fit(found, 100).test_error, error, atol=2e-3)


def test_the_interval_is_that_of_a_share():
    error, lower, upper = error_interval(0.1, 50, 0.9)
    assert_allclose([lower, upper], beta(5.5, 45.5).ppf([0.05, 0.95]), rtol=1e-10)
    assert_allclose(error, 5.5 / 51)
    _, none, _ = error_interval(0.0, 30, 0.9)
    assert none == 1e-3


def test_a_curve_falls_within_its_band_and_passes_where_the_model_is():
    seen = said_by_its_student(TRUTH, 60)
    curve = extrapolated(seen, replace(TRUTH, n_markers=seen.n_believed), [40, 160])
    assert list(curve.n_samples) == [40, 60, 160]
    assert np.all(np.diff(curve.error) < 0)
    assert np.all((curve.lower < curve.error) & (curve.error < curve.upper))
    error, lower, upper = error_interval(seen.error, 60, curve.level)
    assert_allclose(curve.at(60), (error, lower, upper), atol=2e-3)
    sentence = curve.sentence(100)
    assert sentence.startswith("With 100 more samples the error would fall from ")
    assert "90 % interval" in sentence
    with pytest.raises(ValueError, match="known from 40 to 160"):
        curve.at(1000)
    assert json.loads(json.dumps(curve.to_dict(), allow_nan=False))["n_samples"] == [40, 60, 160]


def test_a_model_no_better_than_chance_promises_nothing():
    curve = extrapolated(Seen(40, 0.5, 3.0, 0.05), TRUTH, [40, 140])
    assert curve.study is None
    assert np.all(curve.error == 0.5)
    assert "cannot be told" in curve.sentence(100)


@pytest.mark.parametrize(("options", "says"), [({"level": 1.0}, "level"), ({"n_samples": [2]}, "at least 8")])
def test_impossible_curves_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        extrapolated(Seen(60, 0.1, 10.0, 0.02), TRUTH, **options)
