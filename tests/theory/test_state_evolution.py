"""State evolution: identities it must obey, published numbers, and GAMP itself."""

from __future__ import annotations

from math import acos, pi, sqrt

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from foldless.channels import FlippedLabels, Hinge, Logistic, Probit, Step
from foldless.operators import Dense
from foldless.priors import (
    ElasticNet,
    Gaussian,
    GaussianMixture,
    Laplace,
    Prior,
    Ridged,
    SpikeAndSlab,
)
from foldless.problem import Problem
from foldless.solvers.gamp import GAMP, Rule
from foldless.solvers.message_passing import ConstantDamping
from foldless.solvers.solve import solve
from foldless.theory import Model, state_evolution
from foldless.theory.quadrature import integrate, normal_expectation

TEACHER = Model(SpikeAndSlab(Gaussian(1.0), inclusion=0.1), Probit(variance=0.1))

EVERY_TEACHER_PRIOR = [
    Gaussian(0.5),
    Gaussian(0.01, mean=3.0),
    Laplace(2.0),
    ElasticNet(1.0, 0.5),
    GaussianMixture((0.9, 0.1), (0.01, 1.0)),
    # Components far out and far narrower than the distance between them.
    GaussianMixture((0.999, 0.001), (0.01, 1.0), (0.0, 60.0)),
    GaussianMixture((0.5, 0.5), (1e-6, 1e-6), (-1.0, 0.75)),
    SpikeAndSlab(Gaussian(1.0), 0.1),
    SpikeAndSlab(Laplace(1.0), 0.001),
]
EVERY_TEACHER_CHANNEL = [Probit(0.1), Logistic(2.0), Step(0.01), FlippedLabels(Logistic(3.0), 0.05)]


# Quadrature


def test_kinks_jumps_and_narrow_peaks_are_integrated():
    def rows(x):
        return np.array([np.abs(x - 0.3), x > 0.7, norm.pdf(x, 0.0, 0.01), np.zeros_like(x)])

    answer = integrate(rows, np.array([-1.0, 0.0, 1.0]))
    assert_allclose(answer, [(1.3**2 + 0.7**2) / 2, 0.3, 1.0, 0.0], atol=1e-9)


def test_normal_expectation_of_powers_and_of_a_sign():
    answer = normal_expectation(lambda x: np.array([np.ones_like(x), x**2, x**4, np.abs(x), x > 0]), 2.5)
    assert_allclose(answer, [1.0, 2.5, 3 * 2.5**2, sqrt(2.5 * 2 / pi), 0.5], rtol=1e-12)
    assert_allclose(normal_expectation(lambda x: np.cos(x), 0.0), [1.0])


# Identities


@pytest.mark.parametrize("channel", EVERY_TEACHER_CHANNEL, ids=repr)
@pytest.mark.parametrize("prior", EVERY_TEACHER_PRIOR, ids=repr)
def test_a_matched_student_knows_how_good_it_is(prior: Prior, channel):
    evolution = state_evolution(0.5, Model(prior, channel))
    assert evolution.converged
    scale = evolution.score_power
    assert_allclose(evolution.gain, 1.0, rtol=1e-6)
    assert_allclose(evolution.noise_var, evolution.cavity_var, rtol=1e-6)
    assert_allclose(evolution.overlap, evolution.estimate_power, atol=1e-6 * scale)
    assert_allclose(evolution.weight_var, evolution.mse, atol=1e-6 * scale)
    assert_allclose(evolution.score_cavity_var[1:], evolution.weight_var[:-1] / 0.5, rtol=1e-12)


def test_a_matched_student_learns_in_every_iteration():
    evolution = state_evolution(0.5, TEACHER)
    assert np.all(np.diff(evolution.mse) <= 1e-10)
    assert np.all(np.diff(evolution.test_error) <= 1e-10)
    assert evolution.test_error[0] < 0.5
    assert len(evolution) == evolution.mse.size


def test_more_samples_help():
    # Features have variance 1/M, so weights must grow with M for scores of the same size.
    def error(ratio: float) -> float:
        teacher = Model(SpikeAndSlab(Gaussian(ratio / 0.1), 0.1), Probit(0.1))
        return state_evolution(ratio, teacher).fixed_point.test_error

    errors = [error(ratio) for ratio in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)]
    assert np.all(np.diff(errors) < -0.01)
    assert errors[-1] > acos(1 / sqrt(1.1)) / pi  # the error of the true weights


def test_the_wrong_prior_does_not_help():
    matched = state_evolution(1.0, TEACHER).fixed_point
    for student in (Model(Gaussian(0.1), Probit(0.1)), Model(TEACHER.prior, Probit(1.0))):
        mismatched = state_evolution(1.0, TEACHER, student).fixed_point
        assert mismatched.test_error > matched.test_error + 1e-4
        assert mismatched.mse > matched.mse


@pytest.mark.parametrize("ratio", [0.3, 2.0])
def test_error_under_a_probit_teacher_is_an_angle(ratio: float):
    evolution = state_evolution(ratio, TEACHER, Model(Laplace(4.0), Logistic(2.0)))
    angle = np.arccos(evolution.overlap / np.sqrt((evolution.score_power + 0.1) * evolution.estimate_power))
    assert_allclose(evolution.test_error, angle / pi, atol=1e-10)


def test_error_under_a_logistic_teacher_against_plain_integration():
    evolution = state_evolution(1.0, Model(Gaussian(3.0), Logistic(2.0)))
    fixed, power = evolution.fixed_point, evolution.score_power

    # Given the true score z, the estimate is Gaussian: its sign is wrong for label +1 with probability
    # Φ(-mean/std). Labels are symmetric, so label +1 can stand for both.
    spread = sqrt(fixed.estimate_power - fixed.overlap**2 / power)

    def wrong(z: float) -> float:
        return 2 * expit(2 * z) * norm.cdf(-z * fixed.overlap / power / spread) * norm.pdf(z, 0, sqrt(power))

    assert_allclose(fixed.test_error, quad(wrong, -15, 15, epsabs=1e-12, points=[0])[0], atol=1e-9)


def test_gaussian_weights_under_nearly_useless_labels_stay_at_the_prior():
    fixed = state_evolution(1.0, Model(Gaussian(1.0), Probit(1e8))).fixed_point
    assert_allclose(fixed.mse, 1.0, rtol=1e-6)
    assert_allclose(fixed.test_error, 0.5, atol=1e-3)


def test_labels_that_say_nothing_teach_nothing():
    fixed = state_evolution(1.0, Model(SpikeAndSlab(Gaussian(), 0.1), Step(noise=0.499999))).fixed_point
    assert_allclose(fixed.mse, 0.1, rtol=1e-6)


# Published numbers: the table of the formula sheet, made with another program


@pytest.mark.parametrize(
    ("ratio", "student", "rule", "error", "mse"),
    [
        (1.0, None, "sum-product", 0.3266, 0.0463),
        (0.5, None, "sum-product", 0.3269, 0.0599),
        (1.0, Model(Laplace(4.0), Logistic(4.0)), "sum-product", 0.3505, 0.0591),
        (1.0, Model(Laplace(6.0), Logistic(4.0)), "max-sum", 0.3733, 0.0806),
    ],
)
def test_table_of_the_formula_sheet(
    ratio: float, student: Model | None, rule: Rule, error: float, mse: float
):
    evolution = state_evolution(ratio, TEACHER, student, rule=rule)
    assert evolution.converged
    assert evolution.fixed_point.test_error == pytest.approx(error, abs=1e-3)
    assert evolution.fixed_point.mse == pytest.approx(mse, abs=1e-3)


def test_a_smaller_step_ends_at_the_same_fixed_point():
    student = Model(Laplace(6.0), Logistic(4.0))
    plain = state_evolution(1.0, TEACHER, student, rule="max-sum", tol=1e-8)
    careful = state_evolution(1.0, TEACHER, student, rule="max-sum", tol=1e-8, step=0.5)
    assert plain.converged
    assert careful.converged
    assert careful.fixed_point.mse == pytest.approx(plain.fixed_point.mse, abs=1e-6)


def test_a_hinge_has_a_fixed_point_although_labels_within_its_margin_say_nothing_at_first():
    evolution = state_evolution(1.0, TEACHER, Model(Laplace(1.0), Hinge()), rule="max-sum", tol=1e-6)
    assert evolution.converged
    assert 0.33 < evolution.fixed_point.test_error < 0.36


# GAMP itself


def measured(ratio: float, student: Model, solver: GAMP, trials: int) -> tuple[np.ndarray, np.ndarray]:
    """Test errors and mean squared errors of GAMP on draws from TEACHER."""
    n_features, inclusion, noise_var = 600, 0.1, 0.1
    n_samples, n_active = round(ratio * n_features), round(inclusion * n_features)
    errors, squares = np.empty(trials), np.empty(trials)
    for trial in range(trials):
        rng = np.random.default_rng([7, trial])
        weights = np.zeros(n_features)
        # Exactly the expected number and size of non-zeros: less spread between trials.
        weights[:n_active] = rng.standard_normal(n_active)
        weights *= sqrt(n_active / (weights @ weights))
        X = rng.standard_normal((n_samples, n_features)) / sqrt(n_samples)
        y = np.where(X @ weights + sqrt(noise_var) * rng.standard_normal(n_samples) > 0, 1.0, -1.0)
        problem = Problem(Dense(X), y, np.ones(n_samples), student.channel, student.prior)
        solution = solve(problem, solver)
        assert solution.outcome.trustworthy
        estimate = solution.posterior.mean
        size = np.linalg.norm(estimate) * sqrt(weights @ weights + noise_var * n_samples)
        errors[trial] = acos(weights @ estimate / size) / pi
        squares[trial] = np.mean((estimate - weights) ** 2)
    return errors, squares


@pytest.mark.parametrize(
    ("ratio", "student", "rule"),
    [
        (1.0, TEACHER, "sum-product"),
        (2.0, TEACHER, "sum-product"),
        (1.0, Model(Laplace(4.0), Logistic(4.0)), "sum-product"),
        (2.0, Model(Laplace(6.0), Logistic(4.0)), "max-sum"),
    ],
)
def test_gamp_does_as_predicted(ratio: float, student: Model, rule: Rule):
    predicted = state_evolution(ratio, TEACHER, student, rule=rule).fixed_point
    trials = 8
    solver = GAMP(rule=rule, variances="uniform", damping=ConstantDamping(0.5))
    errors, squares = measured(ratio, student, solver, trials)
    for values, expected in ((errors, predicted.test_error), (squares, predicted.mse)):
        standard_error = values.std(ddof=1) / sqrt(trials)
        assert abs(values.mean() - expected) < 5 * standard_error
        # Five standard errors of eight trials must still be a test.
        assert standard_error < 0.08 * expected


# Errors that help


def test_bad_input_is_explained():
    with pytest.raises(ValueError, match="samples / features"):
        state_evolution(0.0, TEACHER)
    with pytest.raises(ValueError, match="rule must be one of"):
        state_evolution(1.0, TEACHER, rule="maximum")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="teacher must be a Model"):
        state_evolution(1.0, Laplace(1.0))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a prior"):
        Model("laplace", Probit())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a channel"):
        Model(Laplace(), Probit)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"step in \(0, 1\]"):
        state_evolution(1.0, TEACHER, step=0.0)


def test_max_sum_needs_proximal_points():
    with pytest.raises(ValueError, match="prior with `proximal`"):
        state_evolution(1.0, TEACHER, rule="max-sum")
    with pytest.raises(ValueError, match="channel with `proximal`"):
        state_evolution(1.0, TEACHER, Model(Laplace(), Step()), rule="max-sum")


def test_a_teacher_must_be_a_distribution():
    with pytest.raises(ValueError, match="do not sum to one"):
        state_evolution(1.0, Model(Gaussian(), Hinge()))
    with pytest.raises(ValueError, match="does not integrate to its own moments"):
        state_evolution(1.0, Model(Ridged(Gaussian(), 3.0), Probit()))
