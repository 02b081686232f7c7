"""Gaussian integrals of powers of the logistic function, by sums of exponentials.

On either side of x = 0 the function σ(x)^a is smooth in t = e^-|x| ∈ [0, 1]:

    x > 0:  σ^a = (1+t)^-a,        x < 0:  σ^a = t^a (1+t)^-a.

A polynomial in t that interpolates (1+t)^-a at Chebyshev points converges like (3+√8)^-degree, and each
of its monomials is an exponential e^∓kx, whose Gaussian integral over a half line is a scaled
complementary error function. The result is as accurate in the far tails as in the centre.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr

from foldless.beliefs import Array, Response
from foldless.special import SQRT_HALF

# About 1e-12 in log_z; coefficients stay below 1e2, so that they cost no more than two digits.
DEGREE = 16
# Enough digits that the conversion from nodes to monomials, which loses about `DEGREE` of them, is exact.
COEFFICIENT_DIGITS = 60
# Up to this many standard deviations from zero all integrals are erfcx times one common factor, which
# neither overflows nor loses digits. Rows further out are rare and go through logarithms.
LARGEST_DIRECT = 20.0
# Rows that are evaluated together: their integrals should stay in the cache.
ROWS_AT_ONCE = 512

# (mean, var, right exponents, left exponents) -> (log of a common factor, one column per exponent)
HalfLineIntegrals = Callable[[Array, Array, Array, Array], tuple[NDArray[np.float64], NDArray[np.float64]]]


def exponential_sums_response(mean: Array, var: Array, power: float = 1.0, degree: int = DEGREE) -> Response:
    """log E[σ(x)^a] for x ~ N(mean, var), a = power in (0, 1], and its derivatives in the mean.

    With q = 1 - σ and ⟨f⟩ = E[σ^a f] / E[σ^a], integration by parts gives

        slope = a ⟨q⟩,    curvature = a (1+a) ⟨σ q⟩ - a² ⟨q⟩ ⟨σ⟩.

    All four integrals are sums of positive functions, so both tails keep their relative accuracy.
    """
    mean, var = np.broadcast_arrays(np.asarray(mean, dtype=np.float64), np.asarray(var, dtype=np.float64))
    flat_mean, flat_var = mean.ravel(), var.ravel()
    out = np.empty((3, flat_mean.size))
    far = np.square(flat_mean) > LARGEST_DIRECT**2 * flat_var
    if far.any():
        out[:, far] = _in_pieces(_half_line_integrals_far, flat_mean[far], flat_var[far], power, degree)
        near = ~far
        out[:, near] = _in_pieces(_half_line_integrals, flat_mean[near], flat_var[near], power, degree)
    else:
        out = _in_pieces(_half_line_integrals, flat_mean, flat_var, power, degree)
    return Response(*(field.reshape(mean.shape) for field in out))


def _in_pieces(
    integrals: HalfLineIntegrals, mean: Array, var: Array, power: float, degree: int
) -> NDArray[np.float64]:
    """Stacked log_z, slope and curvature, a cacheful of rows at a time."""
    coefficients = _coefficients(power, degree)
    exponents = np.arange(degree + 2.0)
    out = np.empty((3, mean.size))
    for start in range(0, mean.size, ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        log_factor, values = integrals(mean[rows], var[rows], exponents, exponents + power)
        z, q, sigma, sigma_q = (values @ coefficients).T
        q, sigma, sigma_q = q / z, sigma / z, sigma_q / z
        # A power of a probability is below one, and its logarithm is concave: the rest is rounding.
        out[0, rows] = np.minimum(log_factor + np.log(z), 0.0)
        out[1, rows] = power * q
        out[2, rows] = np.maximum(power * ((1.0 + power) * sigma_q - power * q * sigma), 0.0)
    return out


def _half_line_integrals(
    mean: Array, var: Array, right: Array, left: Array
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """E[e^-kx; x > 0] for k in `right`, then E[e^kx; x < 0] for k in `left`, and the log of a factor.

    With β = mean/√var, b = √var:  E[e^-kx; x > 0] = ½ e^(-β²/2) erfcx((k b - β)/√2), and the left side
    is the same with -β. The factor ½ e^(-β²/2) is left out of the values.
    """
    root_half_var = np.sqrt(0.5 * var)
    half_beta = 0.5 * mean / root_half_var
    values = np.empty((mean.size, right.size + left.size))
    np.multiply(root_half_var[:, None], right, out=values[:, : right.size])
    values[:, : right.size] -= half_beta[:, None]
    np.multiply(root_half_var[:, None], left, out=values[:, right.size :])
    values[:, right.size :] += half_beta[:, None]
    erfcx(values, out=values)
    return -np.square(half_beta) - np.log(2.0), values


def _half_line_integrals_far(
    mean: Array, var: Array, right: Array, left: Array
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The same integrals and factor where mean/√var is large: in logs, relative to the largest."""
    logs = np.hstack([_log_half_line(mean, var, right), _log_half_line(-mean, var, left)])
    log_factor = np.maximum(logs[:, 0], logs[:, right.size])
    return log_factor, np.exp(logs - log_factor[:, None])


def _log_half_line(mean: Array, var: Array, exponents: Array) -> NDArray[np.float64]:
    """log E[e^-kx; x > 0] for x ~ N(mean, var) and every exponent k."""
    std = np.sqrt(var)
    beta = (mean / std)[:, None]
    excess = exponents * std[:, None] - beta
    # The boundary dominates if the tilted mean is negative, the tilted bulk if it is positive.
    at_boundary = -0.5 * np.square(beta) + np.log(0.5 * erfcx(SQRT_HALF * np.maximum(excess, 0.0)))
    in_bulk = exponents * (0.5 * exponents * var[:, None] - mean[:, None])
    in_bulk += log_ndtr(np.maximum(-excess, 0.0))
    return np.where(excess >= 0.0, at_boundary, in_bulk)


@lru_cache(maxsize=64)
def _coefficients(power: float, degree: int) -> NDArray[np.float64]:
    """What the half-line integrals are multiplied with to give E[σ^a {1, q, σ, σq}]: one column each.

    Rows are the right exponents 0 ... degree+1, then the left ones a + 0 ... a + degree+1. With the
    polynomials c_j(t) ≈ (1+t)^(-a-j):

        x > 0:  c_0,     t c_1,     c_1,           t c_2
        x < 0:  t^a c_0, t^a c_1,   t^(a+1) c_1,   t^(a+1) c_2.
    """
    c0, c1, c2 = (_monomial_coefficients(power + j, degree) for j in range(3))
    size = degree + 2
    table = np.zeros((2 * size, 4))
    this, next_one = slice(0, degree + 1), slice(1, degree + 2)
    right, left = table[:size], table[size:]
    right[this, 0], right[next_one, 1], right[this, 2], right[next_one, 3] = c0, c1, c1, c2
    left[this, 0], left[this, 1], left[next_one, 2], left[next_one, 3] = c0, c1, c1, c2
    table.setflags(write=False)
    return table


def _monomial_coefficients(exponent: float, degree: int) -> NDArray[np.float64]:
    """Polynomial in t that interpolates (1+t)^-exponent at the Chebyshev-Lobatto points of [0, 1].

    The end points are among the nodes, so the limits x → ±∞ are exact. Newton's divided differences,
    multiplied out in long decimals, because monomials are a badly conditioned basis.
    """
    nodes = 0.5 - 0.5 * np.cos(np.pi * np.arange(degree + 1) / degree)
    with localcontext() as context:
        context.prec = COEFFICIENT_DIGITS
        t = [Decimal(float(node)) for node in nodes]
        difference = [(1 + node) ** -Decimal(exponent) for node in t]
        for order in range(1, degree + 1):
            for i in range(degree, order - 1, -1):
                difference[i] = (difference[i] - difference[i - 1]) / (t[i] - t[i - order])
        # Horner in Newton's form: p <- p (t - t_i) + difference_i.
        polynomial = [difference[degree]]
        for i in range(degree - 1, -1, -1):
            shifted = [Decimal(0), *polynomial]
            scaled = [*(-t[i] * c for c in polynomial), Decimal(0)]
            polynomial = [a + b for a, b in zip(shifted, scaled, strict=True)]
            polynomial[0] += difference[i]
        return np.array([float(c) for c in polynomial])
