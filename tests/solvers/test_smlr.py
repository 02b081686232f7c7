"""SMLR finds the optimum, certifies it, and every algorithm of the paper finds the same one, never rising."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from foldless.kernels.smlr import follow_signs
from foldless.operators import Standardized, operator_from
from foldless.problem import Outcome
from foldless.solvers.smlr import (
    L1,
    Labels,
    NoPenalty,
    Penalty,
    Regression,
    Ridge,
    RowGroups,
    Stop,
    fit,
    largest_rate,
    nothing,
    path,
)
from foldless.solvers.smlr.component_wise import _Probabilities
from foldless.solvers.smlr.design import Design
from foldless.solvers.smlr.newton import _line_search, _promised, _step
from reference.gap_safe import safe_zeros
from reference.scikit_learn import mixed_penalty

EVERY_ALGORITHM = ["auto", "block", "component-wise"]
EXACT = Stop(tol=1e-11, max_iter=20_000)


def regression(
    n_samples: int = 60,
    n_features: int = 12,
    n_classes: int = 3,
    *,
    intercept: bool = True,
    reference: int | None = None,
    weighted: bool = False,
    seed: int = 0,
) -> Regression:
    """Correlated columns of unequal sizes, classes of unequal sizes, labels that no line separates."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_samples, n_features)) + 0.7 * rng.normal(size=(n_samples, 1))
    X *= rng.uniform(0.5, 2.0, n_features)
    truth = rng.normal(size=(n_features, n_classes)) * (rng.random((n_features, 1)) < 0.5)
    code = np.argmax(X @ truth + rng.gumbel(size=(n_samples, n_classes)) + np.arange(n_classes), axis=1)
    code[:n_classes] = np.arange(n_classes)
    weight = rng.integers(1, 4, n_samples).astype(float) if weighted else np.ones(n_samples)
    return Regression(operator_from(X), Labels.of(code, n_classes, weight, reference), intercept)


def matrix(problem: Regression) -> np.ndarray:
    return problem.operator.columns(np.arange(problem.operator.shape[1]))


def objective(problem: Regression, penalty: Penalty, weights: np.ndarray, intercept: np.ndarray) -> float:
    """Spelt out, by another route than the solver's."""
    eta = problem.labels.full(matrix(problem) @ weights + intercept)
    loss = np.logaddexp.reduce(eta, axis=1) - eta[np.arange(len(eta)), problem.labels.code]
    return float(problem.labels.sample_weight @ loss) + penalty.value(weights)


# ---------------------------------------------------------------------- the likelihood


@pytest.mark.parametrize(("n_classes", "reference"), [(2, None), (2, 1), (3, None), (3, 1), (5, None)])
def test_slopes_and_curvatures_are_derivatives_of_the_loss(n_classes, reference):
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.5, 2.0, 7)
    labels = Labels.of(rng.integers(0, n_classes, 7), n_classes, weight, reference)
    scores = rng.normal(size=(7, labels.n_scores))
    at = labels.at(scores)
    step = 1e-5
    for k in range(labels.n_scores):
        move = step * np.eye(labels.n_scores)[k]
        forth, back = labels.at(scores + move), labels.at(scores - move)
        assert_allclose(-at.residual[:, k].sum(), (forth.loss - back.loss) / (2 * step), rtol=1e-7)
        bend = -(forth.residual - back.residual) / (2 * step)
        for j in range(labels.n_scores):
            assert_allclose(labels.curvature(at, k, j), bend[:, j], rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("size", [0.0, 1.0, 40.0, 500.0, 1e6])
def test_loss_and_residual_are_exact_far_out(n_classes, size):
    for own in range(n_classes):
        labels = Labels.of(np.array([own]), n_classes, np.ones(1))
        scores = size * np.linspace(1.0, -0.5, labels.n_scores)[np.newaxis]
        at = labels.at(scores)
        with mpmath.workdps(60):
            eta = [mpmath.mpf(float(v)) for v in labels.full(scores)[0]]
            total = sum(mpmath.exp(v - eta[own]) for v in eta)
            loss, away = mpmath.log(total), (total - 1) / total
            if loss < mpmath.mpf(10) ** -50:  # beyond the 60 digits
                loss = away = sum(mpmath.exp(v - eta[own]) for i, v in enumerate(eta) if i != own)
            assert_allclose(at.loss, float(loss), rtol=1e-14)
            if own in labels.free:
                assert_allclose(at.residual[0, list(labels.free).index(own)], float(away), rtol=1e-13)


# ---------------------------------------------------------------------- the quadratic


@pytest.mark.parametrize("seed", range(8))
def test_signs_are_followed_to_the_optimum_from_any_start(seed):
    rng = np.random.default_rng(seed)
    n = 12
    half = rng.normal(size=(n + 2, n))
    curvature, linear = half.T @ half, 6 * rng.normal(size=n)
    rates = np.where(rng.random(n) < 0.2, 0.0, rng.uniform(0.5, 8.0, n))
    answers = [
        follow_signs(curvature, linear, rates, start)[0]
        for start in (np.zeros(n), rng.normal(size=n), 100 * rng.normal(size=n))
    ]
    for u in answers:
        descent = linear - curvature @ u
        on = (u != 0) | (rates == 0)
        assert_allclose(descent[on], (rates * np.sign(u))[on], atol=1e-9)
        assert np.all(np.abs(descent[~on]) <= rates[~on] + 1e-9)
        assert_allclose(u, answers[0], atol=1e-10)


# ---------------------------------------------------------------------- the optimum


def scikit_learn(problem: Regression, penalty: Penalty) -> LogisticRegression:
    """A long saga run (L1) or Newton run (L2), in scikit-learn's words."""
    if isinstance(penalty, L1):
        model = LogisticRegression(
            **mixed_penalty(1.0),
            solver="saga",
            C=1 / penalty.rate,
            tol=1e-13,
            max_iter=200_000,
            fit_intercept=problem.intercept,
            random_state=0,
        )
    else:
        C = 1 / penalty.rate if penalty.rate else np.inf
        model = LogisticRegression(
            C=C, solver="newton-cg", tol=1e-13, max_iter=10_000, fit_intercept=problem.intercept
        )
    return model.fit(matrix(problem), problem.labels.code, sample_weight=problem.labels.sample_weight)


@pytest.mark.parametrize(
    ("n_classes", "intercept", "weighted"),
    [(2, True, False), (2, False, True), (3, True, True), (4, False, False)],
)
@pytest.mark.parametrize("penalty", [L1(3.0), L1(0.5), Ridge(2.0)], ids=repr)
def test_the_objective_is_that_of_a_long_scikit_learn_run(n_classes, intercept, weighted, penalty):
    problem = regression(n_classes=n_classes, intercept=intercept, weighted=weighted)
    ours = fit(problem, penalty, stop=EXACT)
    rival = scikit_learn(problem, penalty)
    coef, theirs = rival.coef_.T, rival.intercept_
    assert ours.outcome is Outcome.CONVERGED
    assert_allclose(ours.objective, objective(problem, penalty, coef, theirs), rtol=1e-8)
    assert_allclose(
        ours.objective,
        objective(problem, penalty, ours.coef(problem.operator.shape[1]), ours.intercept),
        rtol=1e-12,
    )
    # Under L1 a feature with weights of both signs in equal number is only known up to a shift: compare what
    # is the same for all versions.
    assert_allclose(ours.at.proba, rival.predict_proba(matrix(problem)), atol=1e-4)


def test_a_feature_in_all_classes_has_the_version_with_a_zero():
    problem = regression(n_classes=4, intercept=False)
    ours = fit(problem, L1(0.5), stop=EXACT)
    assert not np.any(np.all(ours.weights != 0, axis=1) & (np.sign(ours.weights).sum(axis=1) == 0))
    assert scikit_learn(problem, L1(0.5)).coef_[:, 0].all(), "the case must be there to be tested"


def test_maximum_likelihood_is_that_of_scikit_learn():
    problem = regression(300, 4, 3)
    ours = fit(problem, NoPenalty(0.0), stop=EXACT)
    rival = scikit_learn(problem, NoPenalty(0.0))
    centred = rival.coef_ - rival.coef_.mean(axis=0)  # what adds the same to all classes is free
    assert_allclose(ours.coef(4).T, centred, atol=1e-6)
    assert ours.kkt_residual < 1e-6


@pytest.mark.parametrize("penalty", [L1(4.0), RowGroups(4.0), Ridge(4.0)], ids=repr)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_block_and_component_wise_agree_with_newton(penalty, n_classes):
    problem = regression(n_classes=n_classes)
    fits = {name: fit(problem, penalty, stop=EXACT, algorithm=name) for name in EVERY_ALGORITHM}
    newton = fits["auto"]
    for name, other in fits.items():
        assert other.outcome is Outcome.CONVERGED, name
        assert_allclose(other.objective, newton.objective, rtol=1e-10)
        assert_allclose(other.coef(12), newton.coef(12), atol=1e-4)
        if penalty.sparse:
            assert set(other.rows) == set(newton.rows)


@pytest.mark.parametrize("algorithm", EVERY_ALGORITHM)
@pytest.mark.parametrize(
    ("penalty", "n_samples", "n_features", "n_classes"),
    [
        (L1(1.0), 60, 12, 3),
        (L1(1.0), 30, 60, 2),
        (RowGroups(1.0), 60, 12, 3),
        (RowGroups(2.0), 30, 60, 3),
        (Ridge(1.0), 60, 12, 3),
        (Ridge(1.0), 30, 60, 2),
        (NoPenalty(0.0), 60, 12, 3),
    ],
    ids=str,
)
def test_the_objective_never_rises(algorithm, penalty, n_samples, n_features, n_classes):
    problem = regression(n_samples, n_features, n_classes, seed=4)
    course: list[float] = []
    fitted = fit(problem, penalty, stop=Stop(1e-9, 500), algorithm=algorithm, watch=course.append)
    assert len(course) >= 3
    assert np.all(np.diff(course) <= 1e-12 * np.abs(course[:-1]))
    assert fitted.objective <= course[-1] * (1 + 1e-12)


def test_the_reference_form_is_the_paper_s_and_depends_on_the_reference():
    values = []
    for reference in (0, 1, 2):
        problem = regression(reference=reference)
        ours = fit(problem, L1(3.0), stop=EXACT)
        assert ours.weights.shape[1] == 2
        slow = fit(problem, L1(3.0), stop=EXACT, algorithm="component-wise")
        assert_allclose(ours.objective, slow.objective, rtol=1e-10)
        values.append(ours.objective)
    for a, b in itertools.combinations(values, 2):
        assert abs(a - b) > 1e-6
    # Two classes have one score, and which of them has it does not matter.
    first, second = (fit(regression(n_classes=2, reference=r), L1(3.0), stop=EXACT) for r in (0, 1))
    assert_allclose(first.objective, second.objective, rtol=1e-10)
    assert_allclose(first.coef(12), -second.coef(12), atol=1e-5)


def design_of(problem: Regression, penalty: Penalty) -> Design:
    return Design(matrix(problem), 0, problem.labels, penalty)


def test_a_large_move_of_one_weight_overflows_nothing():
    problem = regression(intercept=False)
    design, weights = design_of(problem, L1(1.0)), np.zeros((12, 3))
    state = _Probabilities(design, weights)
    for by in (1000.0, -1990.0, 0.5):
        weights[3, 1] += by
        state.change(design.columns[:, 3], 1, by, weights)
        expected = _Probabilities(design, weights)
        for k in range(3):
            own, exact = (each.slope_and_bound(design.columns[:, 3], k) for each in (state, expected))
            assert_allclose(own, exact, rtol=1e-9, atol=1e-12)


def test_rows_that_would_pass_zero_stop_there():
    problem = regression(intercept=False)
    design = design_of(problem, RowGroups(4.0))
    weights = np.full((12, 3), 1e-3)
    at = design.labels.at(design.scores(weights))
    gradient = design.gradient(at)
    step = _step(design, at, weights, gradient)
    found = _line_search(design, at, weights, step, _promised(design, weights, gradient, step))
    assert found is not None
    passed = np.sum(weights * (weights + step), axis=1) < 0
    assert np.any(passed)
    moved, scores = found[0], design.labels.at(design.scores(found[0]))
    assert np.all(np.any(moved != 0, axis=1) | passed)
    assert not np.all(np.any(moved != 0, axis=1))
    assert_allclose(scores.loss, found[1].loss, rtol=1e-12)


def test_the_order_of_classes_does_not_matter():
    problem = regression()
    turned = Regression(
        problem.operator, Labels.of((problem.labels.code + 1) % 3, 3, problem.labels.sample_weight)
    )
    ours, other = fit(problem, L1(2.0), stop=EXACT), fit(turned, L1(2.0), stop=EXACT)
    assert_allclose(ours.coef(12), other.coef(12)[:, [1, 2, 0]], atol=1e-5)


def test_weights_count_rows():
    problem = regression(weighted=True)
    times = problem.labels.sample_weight.astype(int)
    repeated = Regression(
        operator_from(np.repeat(matrix(problem), times, axis=0)),
        Labels.of(np.repeat(problem.labels.code, times), 3, np.ones(times.sum())),
    )
    for penalty in (L1(2.0), RowGroups(2.0), Ridge(2.0)):
        ours, other = fit(problem, penalty, stop=EXACT), fit(repeated, penalty, stop=EXACT)
        assert_allclose(ours.coef(12), other.coef(12), atol=1e-5)
        assert_allclose(ours.objective, other.objective, rtol=1e-10)


# ---------------------------------------------------------------------- certificates, screening, paths


@pytest.mark.parametrize("penalty", [L1, RowGroups])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_gap_bounds_the_distance_to_the_optimum(penalty, n_classes):
    problem = regression(40, 80, n_classes)
    rate = 0.2 * largest_rate(penalty, nothing(problem))
    best = fit(problem, penalty(rate), stop=EXACT)
    for n_steps in (1, 2, 4, 8):
        rough = fit(problem, penalty(rate), stop=Stop(1e-12, n_steps), algorithm="component-wise")
        assert rough.outcome is Outcome.BUDGET
        assert rough.objective - best.objective <= rough.duality_gap
        assert rough.duality_gap > best.duality_gap
        out = safe_zeros(problem, penalty(rate), rough)
        assert not out[best.rows].any()
    # The gap of the best fit is a few ulps of the objective, or zero: mere rounding, for which screening must
    # allow.
    for gap in (best.duality_gap, 0.0):
        sure = safe_zeros(problem, penalty(rate), replace(best, duality_gap=gap))
        assert sure.sum() > 40
        assert not sure[best.rows].any()


@pytest.mark.parametrize("penalty", [L1, RowGroups])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_largest_rate_is_the_smallest_that_silences_all(penalty, n_classes):
    problem = regression(n_classes=n_classes)
    rate = largest_rate(penalty, nothing(problem))
    assert fit(problem, penalty(rate * (1 + 1e-9)), stop=EXACT).rows.size == 0
    assert fit(problem, penalty(rate * 0.99), stop=EXACT).rows.size > 0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_path_ends_where_single_fits_do(n_classes):
    problem = regression(40, 200, n_classes)
    rates = largest_rate(L1, nothing(problem)) * np.geomspace(1.0, 0.05, 12)
    for fitted in path(problem, L1, rates, stop=EXACT):
        alone = fit(problem, L1(fitted.rate), stop=EXACT)
        assert fitted.outcome is Outcome.CONVERGED
        assert_allclose(fitted.objective, alone.objective, rtol=1e-10)
        assert set(fitted.rows) == set(alone.rows)
        assert fitted.duality_gap <= 1e-11 * fitted.objective
        assert fitted.kkt_residual <= 1e-3 * fitted.rate


@pytest.mark.parametrize("tol", [1e-6, 1e-10])
def test_float32_ends_at_the_tolerance_and_not_above(tol):
    """Columns far from zero, whose products in float32 have few digits."""
    rng = np.random.default_rng(0)
    code = np.arange(80) % 3
    X = 50.0 + rng.normal(size=(80, 30)) + 0.5 * code[:, np.newaxis] * (np.arange(30) < 4)
    operator = Standardized.fit(operator_from(X.astype(np.float32)), np.ones(80))
    problem = Regression(operator, Labels.of(code, 3, np.ones(80)))
    found = fit(problem, L1(0.5), stop=Stop(tol, 1000))
    assert found.outcome is Outcome.CONVERGED
    assert found.duality_gap <= tol * found.objective


@pytest.mark.parametrize("storage", ["dense", "F", "csr", "csc", "float32"])
def test_every_storage_gives_the_same_fit(storage):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 90)) * (rng.random((50, 90)) < 0.3)
    code = (X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=50) > 0).astype(int)
    stored: Any = {
        "dense": X,
        "F": np.asfortranarray(X),
        "csr": sparse.csr_array(X),
        "csc": sparse.csc_array(X),
        "float32": X.astype(np.float32),
    }[storage]
    labels = Labels.of(code, 2, np.ones(50))
    expected = fit(Regression(Standardized.fit(operator_from(X)), labels), L1(3.0), stop=EXACT)
    ours = fit(Regression(Standardized.fit(operator_from(stored)), labels), L1(3.0), stop=EXACT)
    assert ours.outcome is Outcome.CONVERGED
    tolerance = 1e-4 if storage == "float32" else 1e-9
    assert_allclose(ours.objective, expected.objective, rtol=tolerance)
    assert_allclose(ours.scores, expected.scores, atol=100 * tolerance)


def test_repeated_columns_do_no_harm():
    problem = regression(40, 10, 3)
    X = matrix(problem)
    twice = Regression(operator_from(np.hstack([X, X, np.zeros((40, 2))])), problem.labels)
    ours, other = fit(problem, L1(2.0), stop=EXACT), fit(twice, L1(2.0), stop=Stop(1e-9))
    assert other.outcome is Outcome.CONVERGED
    assert_allclose(ours.objective, other.objective, rtol=1e-8)


def test_separable_classes_are_fitted_down_to_small_rates():
    X = np.vstack([np.eye(4)] * 5)
    labels = Labels.of(np.tile(np.arange(4), 5), 4, np.ones(20))
    for fitted in path(Regression(operator_from(X), labels), L1, np.geomspace(1, 1e-6, 7), stop=Stop(1e-8)):
        assert fitted.outcome is Outcome.CONVERGED
    assert fitted.at.loss < 1e-3


@pytest.mark.parametrize("name", ["colon", "leukemia", "fgl"])
def test_real_data_are_fitted_exactly_by_two_routes(real_data, name):
    data = real_data(name)
    code = np.unique(data["y"], return_inverse=True)[1]
    labels = Labels.of(code, code.max() + 1, np.ones(code.size))
    problem = Regression(Standardized.fit(operator_from(data["X"].astype(np.float64))), labels)
    rates = largest_rate(L1, nothing(problem)) * np.array([0.5, 0.3])
    for fitted in path(problem, L1, rates, stop=Stop(1e-10)):
        slow = fit(problem, L1(fitted.rate), stop=Stop(1e-9, 5000), algorithm="component-wise")
        assert slow.outcome is Outcome.CONVERGED
        assert_allclose(fitted.objective, slow.objective, rtol=1e-8)
