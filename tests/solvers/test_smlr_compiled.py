"""The fast extra changes seconds and nothing else: every compiled loop gives what its twin in NumPy gives."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from foldless import SMLRClassifier, kernels
from foldless.datasets import make_class_means
from foldless.kernels.smlr import follow_signs
from foldless.operators import operator_from
from foldless.solvers.smlr import (
    L1,
    Columns,
    Labels,
    Regression,
    fit,
    largest_rate,
    newton,
    newton_loo,
    nothing,
)
from foldless.solvers.smlr.design import Design

needs_numba = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="needs the extra `fast` (numba)"
)


@pytest.fixture
def in_numpy(monkeypatch):
    """What is called from here on runs without compiled loops."""

    def switch():
        monkeypatch.setattr(kernels, "compiled", lambda name: None)
        monkeypatch.setattr(newton_loo, "compiled", lambda name: None)

    return switch


def quadratic_problem(size: int, seed: int):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(size + 5, size)) + rng.normal(size=(size + 5, 1))
    rates = np.full(size, 5.0)
    rates[0] = 0.0
    start = np.where(rng.random(size) < 0.5, rng.normal(size=size), 0.0)
    return rows.T @ rows, 3 * rows.T @ rng.normal(size=size + 5), rates, start


@needs_numba
@pytest.mark.parametrize("size", [1, 2, 7, 40, 120])
@pytest.mark.parametrize("seed", range(5))
def test_signs_are_followed_to_the_same_minimum(size, seed):
    given = quadratic_problem(size, seed)
    found, definite = kernels.compiled("smlr").follow_signs(*given)
    plain, plain_definite = follow_signs(*given)
    assert definite
    assert plain_definite
    assert_array_equal(found == 0, plain == 0)
    assert_allclose(found, plain, rtol=1e-9, atol=1e-11)


@needs_numba
def test_what_is_not_positive_definite_is_refused_by_both():
    given = (np.array([[1.0, 2.0], [2.0, 1.0]]), np.ones(2), np.zeros(2), np.ones(2))
    assert not follow_signs(*given)[1]
    assert not kernels.compiled("smlr").follow_signs(*given)[1]


@needs_numba
@pytest.mark.parametrize("n_plain", [0, 1])
@pytest.mark.parametrize("share", [0.9, 0.3, 0.02])
def test_newton_takes_the_same_steps(n_plain, share):
    data = make_class_means(n_samples=40, n_features=60, n_active=5, random_state=3)
    weight = np.random.default_rng(0).integers(0, 3, 40).astype(float)
    labels = Labels.of((data.y > 0).astype(np.intp), 2, weight)
    problem = Regression(operator_from(data.X), labels, bool(n_plain))
    rate = share * largest_rate(L1, nothing(problem))
    columns = np.ones((40, n_plain + 60), order="F")
    columns[:, n_plain:] = data.X
    design = Design(columns, n_plain, labels, L1(rate))
    start = np.zeros((n_plain + 60, 1))
    heard: dict[str, list[float]] = {"compiled": [], "plain": []}
    found, steps = newton.newton(design, start, 1e-6, 100, heard["compiled"].append)
    plain, plain_steps = newton.newton_steps(design, start, 1e-6, 100, heard["plain"].append)
    assert steps == plain_steps
    assert_array_equal(found == 0, plain == 0)
    assert_allclose(found, plain, rtol=1e-7, atol=1e-10)
    assert_allclose(heard["compiled"], heard["plain"], rtol=1e-10)
    assert np.all(np.diff(heard["compiled"]) <= 1e-12 * heard["compiled"][0])


@needs_numba
@pytest.mark.parametrize("n_classes", [2, 3])
def test_leave_one_out_is_the_same(n_classes, in_numpy):
    rng = np.random.default_rng(5)
    code = rng.integers(0, n_classes, 45)
    X = rng.normal(size=(45, 70)) + 0.8 * np.eye(n_classes, 70)[code]
    ones = np.ones(45)
    problem = Regression(operator_from(X), Labels.of(code, n_classes, ones))
    penalty = L1(0.25 * largest_rate(L1, nothing(problem)))
    fitted = fit(problem, penalty)
    columns = Columns(problem.operator)

    def both():
        stepped = newton_loo.NewtonLOO(problem, ones, columns).by_steps(penalty, fitted)
        return stepped.loo.log_proba, newton_loo.NewtonLOO(problem, ones).of(penalty, fitted).log_proba

    fast = both()
    in_numpy()
    for by_loops, plain in zip(fast, both(), strict=True):
        assert_allclose(by_loops, plain, rtol=1e-7, atol=1e-9)


@needs_numba
def test_a_whole_fit_is_the_same(in_numpy):
    data = make_class_means(n_samples=50, n_features=120, n_active=4, random_state=1)
    fast = SMLRClassifier().fit(data.X, data.y)
    in_numpy()
    plain = SMLRClassifier().fit(data.X, data.y)
    assert fast.rate_ == plain.rate_
    assert_allclose(fast.coef_, plain.coef_, rtol=1e-4, atol=1e-6)
    assert_allclose(fast.loo_log_loss_, plain.loo_log_loss_, rtol=1e-4)


@pytest.fixture
def asked_afresh():
    kernels.compiled.cache_clear()
    yield
    kernels.compiled.cache_clear()


@pytest.mark.usefixtures("asked_afresh")
def test_numba_is_left_alone_if_it_is_missing_or_unwanted(monkeypatch):
    monkeypatch.setenv("FOLDLESS_COMPILED", "0")
    assert kernels.compiled("smlr") is None
    kernels.compiled.cache_clear()
    monkeypatch.delenv("FOLDLESS_COMPILED")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert kernels.compiled("smlr") is None


@pytest.mark.usefixtures("asked_afresh")
@pytest.mark.parametrize(
    "error", [ImportError, OSError, RuntimeError]
)  # OSError: its library cannot be loaded
def test_a_broken_numba_is_named_and_done_without(error, monkeypatch):
    def broken(name):
        raise error(f"{name} is broken")

    monkeypatch.delenv("FOLDLESS_COMPILED", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.warns(RuntimeWarning, match=r"cannot be used \(numba is broken\)"):
        assert kernels.compiled("smlr") is None
