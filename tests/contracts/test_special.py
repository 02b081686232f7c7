"""The Gaussian's helper functions against long arithmetic, over the whole line."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from foldless import special
from foldless.special import log_normal_density, mills


def mills_in_long_arithmetic(c: float) -> tuple[float, float, float, float]:
    """The textbook forms, with so many digits that they may cancel."""
    with mpmath.workdps(400):
        c_ = mpmath.mpf(c)
        cdf = mpmath.ncdf(c_)
        hazard = mpmath.npdf(c_) / cdf
        mean = c_ + hazard
        return tuple(float(x) for x in (mpmath.log(cdf), hazard, mean, 1 - hazard * mean))


BULK = [*np.linspace(-12.0, 8.0, 81), -2.999, -3.001, -7.999, -8.001, -37.6, 20.0, 30.0, 37.0]


@pytest.mark.parametrize("column", range(4), ids=special.Mills._fields)
def test_mills_matches_long_arithmetic(column):
    expected = np.array([mills_in_long_arithmetic(c)[column] for c in BULK])
    # The density at c has a relative condition number of c², about 1e3 at the end of this list.
    assert_allclose(mills(np.array(BULK))[column], expected, rtol=2e-13)


@pytest.mark.parametrize("t", [1e2, 1e4, 1e8, 1e15])
def test_mills_far_left_matches_the_asymptotic_series(t):
    got = mills(-t)
    mean = 1 / t - 2 / t**3 + 10 / t**5
    assert_allclose(got.mean, mean, rtol=1e-10 if t < 1e3 else 4e-16)
    assert_allclose(got.hazard, t + mean, rtol=1e-14 if t < 1e3 else 4e-16)
    assert_allclose(got.var, 1 / t**2 - 6 / t**4 + 50 / t**6, rtol=1e-9 if t < 1e3 else 1e-15)
    log_cdf = -0.5 * t**2 - np.log(t) - 0.5 * np.log(2 * np.pi) + np.log1p(-1 / t**2 + 3 / t**4)
    assert_allclose(got.log_cdf, log_cdf, rtol=1e-14)


def test_mills_is_finite_and_ordered_to_the_ends_of_the_line():
    far = 10.0 ** np.arange(1.0, 151.0, 7.0)
    c = np.concatenate([-far[::-1], far, [-1e300, 1e300, -np.inf, np.inf]])
    with np.errstate(all="raise", under="ignore"):
        got = mills(c)
    for field in got:
        assert np.isfinite(field).all()
    assert (got.mean > 0).all()
    assert ((got.var > 0) & (got.var <= 1)).all()
    assert (got.hazard >= 0).all()


def test_mills_passes_nan_on():
    assert all(np.isnan(field) for field in mills(np.nan))


def test_mills_keeps_float32_and_shape():
    c = np.linspace(-50, 30, 60, dtype=np.float32).reshape(3, 20)
    got, exact = mills(c), mills(c.astype(np.float64))
    for field, reference in zip(got, exact, strict=True):
        assert field.dtype == np.float32
        assert field.shape == c.shape
        assert_allclose(field, reference, rtol=1e-6, atol=1e-37)
    assert np.isfinite(mills(np.float32([-3e38, 3e38]))).all()
    assert mills(0).hazard == pytest.approx(np.sqrt(2 / np.pi))


def test_log_normal_density():
    x, mean, var = np.array([-3.0, 0.0, 2.0]), 0.5, np.array([0.1, 1.0, 30.0])
    assert_allclose(log_normal_density(x, mean, var), norm.logpdf(x, mean, np.sqrt(var)), rtol=1e-14)
    assert np.isfinite(log_normal_density(1e150, 0.0, 1e-4))
    assert log_normal_density(np.float32(1.0), np.float32(0.0), np.float32(2.0)).dtype == np.float32
