"""The two sums for averages of the logistic function agree wherever both are meant to be used."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from foldless import kernels
from foldless.channels import logistic
from foldless.channels.logistic import (
    LARGEST_MEAN,
    LOGISTIC_RULES,
    POWER_RULES,
    exponential_sums_response,
    log_sigmoid_tail,
    rules_of,
    sigmoid_power_response,
)
from foldless.kernels.sigmoids import Rule, logistic_sums, power_sums

CASES = [(1.0, number) for number in range(len(LOGISTIC_RULES))]
CASES += [(power, number) for power in (0.5, 0.03) for number in range(len(POWER_RULES))]


def sums(power: float, mean: np.ndarray, var: np.ndarray, rule: Rule, out: np.ndarray) -> None:
    """Rows by one rule, in NumPy."""
    logistic_sums(mean, var, rule, out) if power == 1.0 else power_sums(power, mean, var, rule, out)


def rule_and_rows(power: float, number: int) -> tuple[Rule, np.ndarray, np.ndarray]:
    """A rule, and means of all sizes at variances over its range, its limit included."""
    rules = rules_of(power)
    low = rules[number - 1].largest_var if number else 1e-30
    size = np.geomspace(1e-3, LARGEST_MEAN, 60)
    mean, var = np.meshgrid(
        np.concatenate([-size, [0.0], size]), np.geomspace(low, rules[number].largest_var, 7)
    )
    return rules[number], mean.ravel(), var.ravel()


@pytest.mark.parametrize(("power", "number"), CASES)
def test_a_rule_is_as_accurate_as_exponential_sums_up_to_its_limit(power, number):
    rule, mean, var = rule_and_rows(power, number)
    got = np.empty((3, mean.size))
    sums(power, mean, var, rule, got)
    expected = exponential_sums_response(mean, var, power)
    assert_allclose(got[0], expected.log_z, rtol=1e-12, atol=5e-12)
    assert_allclose(got[1], expected.slope, rtol=2e-10)
    # Two of the digits go where slope² and its like are taken off each other.
    assert_allclose(got[2], expected.curvature, rtol=2e-9)


@pytest.mark.parametrize("number", range(len(LOGISTIC_RULES)))
def test_the_limit_of_a_rule_is_where_long_arithmetic_says(number):
    """Both sums could share an error; this integral shares nothing with them."""
    rule = LOGISTIC_RULES[number]
    for mean in (-9.0, -0.7, 0.0, 2.3):
        got = np.empty((3, 1))
        sums(1.0, np.array([mean]), np.array([rule.largest_var]), rule, got)
        with mpmath.workdps(30):
            std = mpmath.sqrt(rule.largest_var)

            def integrand(t, mean=mean, std=std):
                return mpmath.npdf(t) / (1 + mpmath.exp(-mean - std * t))

            z = mpmath.quad(integrand, np.linspace(-15, 15, 31).tolist())
            assert got[0, 0] == pytest.approx(float(mpmath.log(z)), abs=5e-12)


def test_weights_are_positive():
    """So that no sum cancels."""
    assert all((rule.weights > 0).all() for rule in (*LOGISTIC_RULES, *POWER_RULES))


@pytest.mark.parametrize("number", range(4))
def test_few_nodes_have_the_moments_of_a_gaussian(number):
    """Up to the power that one node more would bring, because the step is chosen for it."""
    rule = LOGISTIC_RULES[number]
    nodes = rule.first + rule.step * np.arange(rule.weights.size)
    highest = rule.weights.size + 1
    even = [rule.weights @ nodes**k for k in range(0, highest + 1, 2)]
    assert_allclose(even, np.cumprod([1.0, *range(1, highest, 2)]), rtol=1e-11)
    odd = [rule.weights @ nodes**k for k in range(1, highest + 1, 2)]
    assert_allclose(odd, 0.0, atol=1e-11 * even[-1])


@pytest.mark.parametrize("power", [1.0, 0.4])
def test_rows_do_not_depend_on_their_company_beyond_rounding(power):
    """Wide, narrow and far rows in one call take other ways than alone."""
    rng = np.random.default_rng(0)
    var = rng.permutation(np.geomspace(1e-8, 1e3, 3000))
    mean = rng.normal(scale=np.where(rng.random(3000) < 0.05, 1e3, 3.0))
    together = sigmoid_power_response(mean, var, power)
    for half in (slice(None, None, 2), slice(1, None, 2)):
        for got, expected in zip(sigmoid_power_response(mean[half], var[half], power), together, strict=True):
            assert_allclose(got, expected[half], rtol=1e-12, atol=1e-13)
    narrow = var < 1e-2
    alone = sigmoid_power_response(mean[narrow], var[narrow], power)
    assert_allclose(alone.log_z, together.log_z[narrow], rtol=1e-12, atol=5e-12)
    assert_allclose(alone.slope, together.slope[narrow], rtol=2e-10)


def test_no_rows_and_broken_rows_are_answered():
    empty = sigmoid_power_response(np.empty(0), np.empty(0))
    assert empty.log_z.shape == (0,)
    broken = sigmoid_power_response(np.array([0.0, np.nan, 1.0]), np.array([1.0, 1.0, np.nan]))
    assert_array_equal(np.isnan(broken.slope), [False, True, True])


@pytest.fixture
def compiled_rows(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.delenv("FOLDLESS_COMPILED", raising=False)
    kernels.compiled.cache_clear()
    monkeypatch.setattr(logistic, "LEAST_ROWS_COMPILED", 0)
    monkeypatch.setattr(logistic, "ROWS_PER_THREAD", 700)
    yield
    kernels.compiled.cache_clear()


@pytest.mark.usefixtures("compiled_rows")
@pytest.mark.parametrize("power", [1.0, 0.3])
def test_compiled_rows_are_those_of_numpy(monkeypatch, power):
    """All rules, both signs, the far and the wide; and the same bits for any number of threads."""
    rng = np.random.default_rng(3)
    var = np.concatenate(
        [rng.permutation(np.geomspace(1e-12, 1e4, 3000)), [r.largest_var for r in LOGISTIC_RULES]]
    )
    mean = rng.normal(size=var.size) * np.where(rng.random(var.size) < 0.1, 500.0, 5.0)
    mean[:3] = 0.0, np.nan, -0.0
    answers = []
    for threads in (1, 3):
        monkeypatch.setattr(kernels, "n_threads", lambda threads=threads: threads)
        answers.append(sigmoid_power_response(mean, var, power))
    for got, expected in zip(*answers, strict=True):
        assert_array_equal(got, expected)
    # Each row by its own rule, which in company NumPy may exchange for a finer one.
    plain = np.array(exponential_sums_response(mean, var, power))
    rules = rules_of(power)
    rule_of = np.searchsorted([rule.largest_var for rule in rules], var)
    rule_of[~(np.abs(mean) <= LARGEST_MEAN)] = len(rules)
    for number, rule in enumerate(rules):
        rows = rule_of == number
        part = np.empty((3, int(rows.sum())))
        sums(power, mean[rows], var[rows], rule, part)
        plain[:, rows] = part
    assert_allclose(answers[0].log_z, np.minimum(plain[0], 0.0), rtol=1e-13, atol=1e-13)
    assert_allclose(answers[0].slope, plain[1], rtol=1e-12)
    assert_allclose(answers[0].curvature, plain[2], rtol=1e-10)
    if power == 1.0:
        tail = log_sigmoid_tail(mean, var)
        assert_allclose(tail, sigmoid_power_response(-np.abs(mean), var).log_z, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("compiled_rows")
def test_a_row_alone_is_the_row_among_others_when_compiled():
    rng = np.random.default_rng(4)
    mean, var = rng.normal(size=50), np.geomspace(1e-4, 10.0, 50)
    together = sigmoid_power_response(mean, var)
    for row in range(0, 50, 7):
        alone = sigmoid_power_response(mean[row : row + 1], var[row : row + 1])
        assert_array_equal([field[0] for field in alone], [field[row] for field in together])
