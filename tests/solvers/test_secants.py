"""Leaps to a fixed point, on maps whose fixed point is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from foldless.solvers.message_passing import MEMORY, Secants


def rotation(angle, growth):
    return growth * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def leaps(matrix, scale, n, step=0.5):
    """Iterate towards the fixed point 1 of a linear map; how far away each point is."""
    target, point, secants = np.ones(len(matrix)), np.zeros(len(matrix)), Secants()
    away = []
    for _ in range(n):
        residual = (matrix - np.eye(len(matrix))) @ (point - target)
        secants = secants.seen(point, residual, scale)
        point = secants.next_point(step, scale) if len(secants) > 1 else point + step * residual
        away.append(np.max(np.abs(point - target)))
    return np.array(away)


@pytest.mark.parametrize("growth", [0.99, 1.3, 3.0])
def test_circles_are_left_for_their_centre(growth):
    # At growth 1.3 the eigenvalues' real part is above one, and no step however short comes closer.
    away = leaps(rotation(0.5, growth), np.ones(2), 6)
    assert away[3] < 1e-9


def test_as_many_slow_directions_as_are_remembered():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(40, 40)))[0]
    values = np.r_[np.linspace(0.9, 1.5, MEMORY - 1), np.zeros(41 - MEMORY)]
    values[values == 1.0] = 0.95
    matrix = basis * values @ basis.T
    away = leaps(matrix, np.exp(rng.normal(size=40)), 20)
    assert away[-1] < 1e-6
    assert np.max(np.abs(np.linalg.matrix_power(0.5 * np.eye(40) + 0.5 * matrix, 20) @ np.ones(40))) > 1


def test_a_step_may_differ_between_entries():
    secants = Secants().seen(np.zeros(3), np.ones(3), np.ones(3))
    assert_allclose(secants.next_point(np.array([0.1, 0.5, 1.0]), np.ones(3)), [0.1, 0.5, 1.0])


def test_a_leap_undoes_what_residuals_have_changed_by():
    """x + step f - (ΔX + step ΔF) γ with γ = argmin |f - ΔF γ|, by differences of points."""
    rng = np.random.default_rng(1)
    secants, scale = Secants(), np.exp(rng.normal(size=30))
    points, residuals = rng.normal(size=(2, 4, 30))
    for point, residual in zip(points, residuals, strict=True):
        secants = secants.seen(point, residual, scale)
    moves, changes = np.diff(points, axis=0), np.diff(residuals, axis=0)
    share = np.linalg.lstsq((changes * scale).T, residuals[-1] * scale, rcond=None)[0]
    wanted = points[-1] - share @ moves + 0.3 * (residuals[-1] - share @ changes)
    assert_allclose(secants.next_point(0.3, scale), wanted, atol=1e-10)


def test_another_problem_has_nothing_to_learn_from():
    first, second = object(), object()
    secants = Secants().of(first).seen(np.zeros(2), np.ones(2), np.ones(2))
    assert len(secants.of(first)) == 1
    assert len(secants.of(second)) == 0
    assert len(secants.of(second).of(first)) == 0


def test_what_led_astray_is_forgotten():
    scale = np.ones(2)
    secants = Secants()
    for n in range(10):
        secants = secants.seen(np.full(2, n), np.full(2, 0.9**n), scale)
    assert len(secants) == MEMORY + 1
    assert len(secants.last()) == 1
    astray = secants.seen(np.full(2, 11.0), np.full(2, 5.0), scale)
    assert len(astray) == 1
    assert_allclose(astray.points[0], 11.0)
    # Not so if it is only large in units that do not count.
    assert len(secants.seen(np.full(2, 11.0), np.array([5.0, 0.0]), np.array([1e-6, 1.0]))) == MEMORY + 1
