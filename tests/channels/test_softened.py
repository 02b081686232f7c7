"""The table of softened exponentials against long arithmetic, and the sums over levels that use it."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from foldless import kernels
from foldless.channels import multinomial
from foldless.kernels import gumbel as gumbel_kernels
from foldless.kernels.softened import (
    LEFT_END,
    RIGHT_MARGIN,
    SMALLEST_WIDTH,
    WIDEST,
    WIDTH_STEP,
    Widths,
    _summed,
)

# Within a range of widths, at its ends, on either side of where the table's own sums change, and the last.
EDGE = SMALLEST_WIDTH * np.expm1(7 * WIDTH_STEP)
VARIANCES = (0.0, 1e-9, 0.004, 0.1, EDGE, 0.7, 3.9, 4.1, 31.0, 2e3, WIDEST)


@pytest.mark.parametrize("var", [0.01, 0.5, 3.9, 4.1, 50.0])
def test_the_sums_of_the_table_are_those_of_long_arithmetic(var):
    for s in (-5.5, 0.3, 4.0):
        x = s * np.sqrt(1 + var)
        with mpmath.workdps(18):
            root = mpmath.sqrt(var)
            cuts = np.linspace(-14, 14, 29).tolist()

            def share(t, x=x, root=root):
                return mpmath.npdf(t) * -mpmath.expm1(-mpmath.exp(x + root * t))

            missed = mpmath.quad(share, cuts)
            rest = mpmath.quad(
                lambda t, x=x, root=root: mpmath.npdf(t) * mpmath.exp(-mpmath.exp(x + root * t)), cuts
            )
            expected = mpmath.log1p(-missed) if missed < 0.5 else mpmath.log(rest)
        assert _summed(np.array([x]), var).log[0] == pytest.approx(float(expected), rel=1e-8)


@pytest.mark.parametrize("var", VARIANCES)
def test_the_table_is_accurate_between_its_nodes(var):
    """In log F, and in derivatives in units of their width, wherever a factor is not negligible."""
    s = np.random.default_rng(0).uniform(LEFT_END, np.sqrt(var) + RIGHT_MARGIN, 2000)
    width = np.sqrt(1 + var)
    expected = _summed(s * width, var)
    found = Widths.of(np.full(s.size, var)).at(s * width)
    kept = expected.log > -12
    for power, (got, true) in enumerate(zip(found, expected, strict=True)):
        assert_allclose(got[kept] * width**power, true[kept] * width**power, atol=6e-5)
    # In the tail where F is nearly one, relative to what it lacks.
    assert_allclose(found.log[s < -1], expected.log[s < -1], rtol=2e-4)


@pytest.mark.parametrize("var", VARIANCES)
def test_derivatives_are_derivatives_in_the_table_and_beyond_its_ends(var):
    width = np.sqrt(1 + var)
    x = width * np.linspace(LEFT_END - 3, np.sqrt(var) + RIGHT_MARGIN + 1, 401)
    widths, step = Widths.of(np.full(x.size, var)), 1e-4 * width
    low, here, high = (widths.at(x + shift) for shift in (-step, 0.0, step))
    assert_allclose((high.log - low.log) / (2 * step), here.first, rtol=1e-6)
    # Not where a difference reaches over the end of the table, beyond which lines are straight.
    s = x / width
    smooth = (s > LEFT_END + 1e-3) & (s < np.sqrt(var) + RIGHT_MARGIN - 1e-3)
    assert_allclose(
        ((high.first - low.first) / (2 * step))[smooth], here.second[smooth], rtol=1e-4, atol=1e-7 / width**2
    )
    assert (here.second <= 0).all()


def test_far_to_the_left_a_factor_lacks_the_mean_of_the_lognormal():
    x = np.array([-20.0, -40.0, -700.0])
    found = Widths.of(np.full(3, 2.0)).at(x)
    assert_allclose(found.log[:2], -np.exp(x[:2] + 1.0), rtol=0.01)
    assert_allclose(found.first, found.log, rtol=1e-3)
    assert (found.log < 0).all()


def rows_of_all_kinds(n_rows, n_classes, seed=0):
    """Narrow, wide and uneven scores; labels that were probable and labels that were not."""
    rng = np.random.default_rng(seed)
    var = np.exp(rng.uniform(np.log(1e-6), np.log(1e4), (n_rows, 1))) * rng.uniform(
        0.1, 1.0, (n_rows, n_classes)
    )
    mean = (
        rng.standard_normal((n_rows, n_classes))
        * (1 + np.sqrt(var))
        * rng.choice([0.3, 1.0, 4.0], (n_rows, 1))
    )
    return mean, var, rng.integers(n_classes, size=n_rows)


# The default, with steps and ends that leave nothing to be gained but rounding.
FINE = {
    "LEVEL_STEP": 0.1,
    "NEGLIGIBLE": 25.0,
    "NEGLIGIBLE_LEFT": 25.0,
    "SHORTEST_STEP": 0.01,
    "MOST_LEVELS": 20_000,
}


@pytest.mark.parametrize("power", [1.0, 0.5, 0.1])
@pytest.mark.parametrize("n_classes", [2, 5, 40])
def test_the_sum_over_levels_is_as_accurate_as_it_says(monkeypatch, n_classes, power):
    rows = rows_of_all_kinds(150, n_classes)
    std = np.sqrt(rows[1])
    found = multinomial.gumbel_response(*rows, power)
    monkeypatch.setattr(multinomial, "LEAST_SCORES_COMPILED", 10**9)  # loops have constants built in
    for name, value in FINE.items():
        monkeypatch.setattr(gumbel_kernels, name, value)
    truth = multinomial.gumbel_response(*rows, power)
    assert_allclose(found.log_z, truth.log_z, atol=2e-4, rtol=1e-9)
    assert_allclose(found.slope * std, truth.slope * std, atol=1e-3)
    assert_allclose(found.curvature * std**2, truth.curvature * std**2, atol=2e-3)


@pytest.mark.parametrize("n_classes", [2, 5, 40])
def test_powers_that_share_factors_are_those_summed_alone(n_classes):
    """Also where scores are so wide that one integrand lies many of its widths beside the other."""
    rows = rows_of_all_kinds(150, n_classes)
    std = np.sqrt(rows[1])
    for power, found in zip((0.2, 1.0), multinomial.gumbel_responses(*rows, (0.2, 1.0)), strict=True):
        alone = multinomial.gumbel_response(*rows, power)
        assert_allclose(found.log_z, alone.log_z, atol=2e-4, rtol=1e-9)
        assert_allclose(found.slope * std, alone.slope * std, atol=1e-3)
        assert_allclose(found.curvature * std**2, alone.curvature * std**2, atol=2e-3)


def test_rows_do_not_depend_on_their_company_beyond_rounding():
    mean, var, classes = rows_of_all_kinds(300, 7)
    together = multinomial.gumbel_response(mean, var, classes, 0.6)
    for half in (slice(None, None, 2), slice(1, None, 2)):
        alone = multinomial.gumbel_response(mean[half], var[half], classes[half], 0.6)
        for got, expected in zip(alone, together, strict=True):
            assert_allclose(got, expected[half], rtol=1e-10, atol=1e-14)


def test_no_rows_and_broken_rows_are_answered():
    empty = multinomial.gumbel_response(np.empty((0, 3)), np.empty((0, 3)), np.empty(0, dtype=np.intp))
    assert empty.log_z.shape == (0,)
    assert empty.slope.shape == (0, 3)
    assert multinomial.gumbel_log_proba(np.empty((0, 3)), np.empty((0, 3))).shape == (0, 3)


@pytest.fixture
def compiled(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.delenv("FOLDLESS_COMPILED", raising=False)
    kernels.compiled.cache_clear()
    yield
    kernels.compiled.cache_clear()


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("power", [1.0, 0.3])
def test_compiled_rows_are_those_of_numpy(monkeypatch, power):
    """To rounding, for rows of all kinds; and the same bits for any number of threads."""
    rows = rows_of_all_kinds(400, 6)
    monkeypatch.setattr(multinomial, "LEAST_SCORES_COMPILED", 10**9)
    expected = multinomial.gumbel_response(*rows, power)
    of_classes = multinomial.gumbel_log_proba(*rows[:2])
    monkeypatch.setattr(multinomial, "LEAST_SCORES_COMPILED", 0)
    monkeypatch.setattr(multinomial, "SCORES_PER_THREAD", 300)
    found = multinomial.gumbel_response(*rows, power)
    assert_allclose(found.log_z, expected.log_z, rtol=1e-11, atol=1e-11)
    assert_allclose(found.slope, expected.slope, rtol=1e-9, atol=1e-12)
    assert_allclose(found.curvature, expected.curvature, rtol=1e-8, atol=1e-12)
    assert_allclose(multinomial.gumbel_log_proba(*rows[:2]), of_classes, rtol=1e-10, atol=1e-10)
    with kernels.at_most(1):
        for alone, together in zip(multinomial.gumbel_response(*rows, power), found, strict=True):
            assert_array_equal(alone, together)


@pytest.mark.usefixtures("compiled")
def test_compiled_rows_of_several_powers_are_those_of_numpy(monkeypatch):
    rows = rows_of_all_kinds(200, 6)
    monkeypatch.setattr(multinomial, "LEAST_SCORES_COMPILED", 10**9)
    expected = multinomial.gumbel_responses(*rows, (0.3, 1.0))
    monkeypatch.setattr(multinomial, "LEAST_SCORES_COMPILED", 0)
    for got, true in zip(multinomial.gumbel_responses(*rows, (0.3, 1.0)), expected, strict=True):
        assert_allclose(got.log_z, true.log_z, rtol=1e-11, atol=1e-11)
        assert_allclose(got.slope, true.slope, rtol=1e-9, atol=1e-12)
        assert_allclose(got.curvature, true.curvature, rtol=1e-8, atol=1e-12)


def test_a_part_is_compiled_if_the_whole_is_worth_it(monkeypatch):
    asked = []
    monkeypatch.setattr(kernels, "compiled", asked.append)
    rows = rows_of_all_kinds(10, 3)
    multinomial.gumbel_response(*rows)
    assert not asked
    with kernels.part_of(multinomial.LEAST_SCORES_COMPILED):
        multinomial.gumbel_response(*rows)
    assert asked == ["gumbel"]
    multinomial.gumbel_response(*rows)
    assert len(asked) == 1


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("least", [0, 10**9])
def test_what_is_not_a_number_stays_in_its_row(monkeypatch, least):
    monkeypatch.setattr(multinomial, "LEAST_SCORES_COMPILED", least)
    mean, var, classes = rows_of_all_kinds(4, 3)
    expected = multinomial.gumbel_response(mean, var, classes)
    mean[1, 2], var[2, 0] = np.nan, np.nan
    with np.errstate(invalid="ignore"):
        found = multinomial.gumbel_response(mean, var, classes)
    assert np.isnan(found.slope[1:3]).all(axis=1).all()
    for got, true in zip(found, expected, strict=True):
        assert_allclose(got[[0, 3]], true[[0, 3]], rtol=1e-12)


@pytest.mark.parametrize("var", [0.0, 1.0, 100.0, 1e8])
def test_classes_beyond_the_least_double_have_log_probabilities(var):
    """No more than beside the likeliest alone, and in the order of the scores."""
    mean = np.array([[0.0, -1e4, -1e6, -1e9]]) * (1.0 + np.sqrt(var))
    found = multinomial.Multinomial(4).log_proba(mean, np.full(mean.shape, var))
    assert np.all(np.isfinite(found))
    assert np.all(np.diff(found) < 0)
    assert found[0, 3] < -745
    if var <= 1.0:  # two exponentials
        assert_allclose(found[0, 1:], mean[0, 1:] + var, rtol=1e-9)
