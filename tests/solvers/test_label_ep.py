"""Ridges of two classes in their smaller dimension: expectation propagation, and refits without samples."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from foldless.channels import FlippedLabels, Logistic
from foldless.operators import operator_from
from foldless.priors import Gaussian
from foldless.problem import Problem
from foldless.solvers import EP, Stopping, label_ep, solve
from foldless.solvers.label_ep import kernel_ep, ridge_ep


def labelled(n_samples=200, n_columns=20, size=1.0, seed=0):
    rng = np.random.default_rng(seed)
    basis = size * (rng.standard_normal((n_samples, n_columns)) + rng.standard_normal((n_samples, 1)))
    truth = rng.standard_normal(n_columns) / np.sqrt(n_columns)
    return basis, np.where(basis @ truth / size + rng.logistic(size=n_samples) > 0, 1.0, -1.0)


# Wrong labels and a wide prior have several fixed points.
@pytest.mark.parametrize(
    ("channel", "size"),
    [(Logistic(), 0.1), (Logistic(), 1.0), (Logistic(), 5.0), (FlippedLabels(Logistic(), 0.1), 0.1)],
)
def test_is_expectation_propagation(channel, size):
    basis, labels = labelled(size=size)
    weight = np.random.default_rng(1).choice([0.5, 1.0, 2.0], labels.size)
    found = ridge_ep(basis, labels, weight, weight, channel)
    assert found.converged
    problem = Problem(operator_from(basis), labels, weight, channel, Gaussian())
    exact = solve(problem, EP(), stopping=Stopping(tol=1e-5, max_iter=300)).posterior
    scale = np.sqrt(exact.var)
    assert np.max(np.abs(found.weights - exact.mean) / scale) < 0.02
    assert_allclose(found.weight_var, exact.var, rtol=0.01)
    assert np.max(np.abs(found.left_out_mean - exact.loo_mean) / np.sqrt(exact.loo_var)) < 0.03
    assert_allclose(found.left_out_var, exact.loo_var, rtol=0.02)


def test_left_out_is_that_of_refits():
    basis, labels = labelled(150, 12)
    ones = np.ones(labels.size)
    found = ridge_ep(basis, labels, ones, ones, Logistic())
    for m in range(0, labels.size, 10):
        others = np.arange(labels.size) != m
        refit = ridge_ep(basis[others], labels[others], ones[others], ones[others], Logistic())
        error = abs(basis[m] @ refit.weights - found.left_out_mean[m])
        assert error < 0.1 * np.sqrt(found.left_out_var[m])


def test_wide_ridges_of_near_twins_settle():
    """In single precision they go on for ever, since rounding moves what little tells twins apart."""
    rng, labels = np.random.default_rng(0), np.where(np.arange(400) % 2, 1.0, -1.0)
    twins = rng.standard_normal((400, 5))[:, np.arange(30) % 5] + 1e-3 * rng.standard_normal((400, 30))
    twins[:, 0] += 2e-3 * labels
    basis, ones = np.sqrt(1e5 / 30) * twins / twins.std(axis=0), np.ones(400)
    found = ridge_ep(basis, labels, ones, ones, Logistic())
    assert found.converged
    others = np.arange(400) != 7
    refit = ridge_ep(basis[others], labels[others], ones[others], ones[others], Logistic())
    error = abs(basis[7] @ refit.weights - found.left_out_mean[7])
    assert error < 0.1 * np.sqrt(found.left_out_var[7])


@pytest.mark.parametrize("weights", [[1.0], [0.5, 1.0, 4.0]])
def test_sites_of_a_neighbour_are_a_start(weights):
    basis, labels = labelled()
    weight = np.random.default_rng(1).choice(weights, labels.size)
    first = ridge_ep(basis, labels, weight, weight, Logistic())
    again = ridge_ep(basis, labels, weight, weight, Logistic(), first.sites)
    assert again.n_iter <= 3 < first.n_iter
    assert_allclose(again.weights, first.weights, atol=5e-3)


def test_fits_under_a_kernel_go_on_from_where_they_ended(monkeypatch):
    basis, labels = labelled(60, 8)
    weight, kernel = np.random.default_rng(1).choice([0.5, 1.0, 4.0], 60), (basis @ basis.T)[np.newaxis]
    first = kernel_ep(kernel, np.zeros(60), labels, weight, Logistic())
    start = first.label_precision, first.label_shift
    monkeypatch.setattr(label_ep, "MAX_ITER", 2)
    assert not kernel_ep(kernel, np.zeros(60), labels, weight, Logistic()).converged.any()
    again = kernel_ep(kernel, np.zeros(60), labels, weight, Logistic(), start)
    assert first.converged.all()
    assert again.converged.all()
    assert_allclose(again.dual, first.dual, atol=1e-3 * np.abs(first.dual).max())
