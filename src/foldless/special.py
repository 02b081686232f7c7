"""Functions of the Gaussian that stay accurate on the whole line: channels and priors rest on them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh_tridiagonal
from scipy.special import erfcx, log_ndtr

from foldless.beliefs import Array

LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)
SQRT_HALF = np.sqrt(0.5)
SQRT_2_OVER_PI = np.sqrt(2.0 / np.pi)

# Left of this point the sums c + h and 1 - h (c + h) lose more than a digit, and the continued fraction
# takes over.
TAIL_START = -3.0
# Half the number of levels of the continued fraction, by where it is used: it converges faster further
# out. Both reach rounding error at the near end of their range.
NEAR_TAIL_PAIRS = 30
FAR_TAIL_START = -8.0
FAR_TAIL_PAIRS = 8
# Arguments are cut here: beyond, their squares (the log of the cdf) would overflow.
LARGEST_ARGUMENT = {np.dtype(np.float64): 1e150, np.dtype(np.float32): 1e18}


class Mills(NamedTuple):
    """The normal cdf at c, and the unit normal around c cut to the positive half line."""

    log_cdf: Array  # log Φ(c)
    hazard: Array  # h = φ(c) / Φ(c), the inverse Mills ratio: the derivative of log Φ
    mean: Array  # d = c + h > 0, mean of N(c, 1) given that it is positive
    var: Array  # 1 - h d in (0, 1], its variance; h d is minus the second derivative of log Φ


def mills(c: ArrayLike) -> Mills:
    """log Φ(c), the inverse Mills ratio, and mean and variance of N(c, 1) cut to (0, ∞).

    With h = φ(c)/Φ(c) = √(2/π) / erfcx(-c/√2):

        mean = c + h,    var = 1 - h (c + h).

    Both cancel for c << 0. There, with t = -c and the tail e = 2/(t + 3/(t + 4/(t + ...))) of the
    Laplace continued fraction of the Mills ratio:

        mean = 1/(t + e),    h = t + mean,    var = (e - mean)/(t + e).

    Arguments beyond ±1e150 (float32: ±1e18) are treated as lying there.
    """
    c = np.asarray(c)
    dtype = c.dtype if c.dtype in LARGEST_ARGUMENT else np.dtype(np.float64)
    limit = LARGEST_ARGUMENT[dtype]
    c = np.clip(c.astype(np.float64, copy=False), -limit, limit)

    hazard = np.asarray(SQRT_2_OVER_PI / erfcx(-SQRT_HALF * c))
    mean = np.asarray(c + hazard)
    var = np.asarray(1.0 - hazard * mean)

    tail = c < TAIL_START
    if tail.any():
        t = -c[tail]
        e = _continued_fraction_tail(t)
        tail_mean = 1.0 / (t + e)
        hazard[tail] = t + tail_mean
        mean[tail] = tail_mean
        var[tail] = (e - tail_mean) / (t + e)
    return Mills(*(np.asarray(a, dtype=dtype) for a in (log_ndtr(c), hazard, mean, var)))


def log_normal_density(x: ArrayLike, mean: ArrayLike, var: ArrayLike) -> Array:
    """log N(x; mean, var)."""
    var = np.asarray(var)
    difference = np.asarray(x) - np.asarray(mean)
    # Standardised before squaring, so that far points overflow only when the result does. The constant
    # is a Python float: it must not widen float32.
    standardised = difference / np.sqrt(var)
    return np.asarray(-0.5 * (standardised * standardised + np.log(var)) - float(LOG_SQRT_2PI))


def _continued_fraction_tail(t: NDArray[np.float64]) -> NDArray[np.float64]:
    """e(t) = 2/(t + 3/(t + 4/(t + ...))) for t >= 3.

    Cut after 2n levels, the fraction is a sum of n simple terms, 2 t Σ_i w_i / (t² + x_i²) with all
    w_i > 0: a few array operations instead of 2n, and no cancellation.
    """
    e = np.empty_like(t)
    far = t > -FAR_TAIL_START
    for part, pairs in ((~far, NEAR_TAIL_PAIRS), (far, FAR_TAIL_PAIRS)):
        if part.any():
            squared_nodes, weights = _continued_fraction_terms(pairs)
            inside = t[part]
            e[part] = 2.0 * inside * ((1.0 / (np.square(inside)[:, None] + squared_nodes)) @ weights)
    return e


@lru_cache(maxsize=8)
def _continued_fraction_terms(pairs: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Partial fractions of 1/(t + 3/(t + 4/(t + ...))) cut after 2 * pairs levels.

    The fraction is the Stieltjes transform on the imaginary axis of the measure whose orthogonal
    polynomials have recurrence coefficients 3, 4, 5, ...: its convergents are Gauss quadratures, nodes
    and weights the eigenvalues and squared first components of the Jacobi matrix [Golub, Welsch 1969].
    """
    size = 2 * pairs
    nodes, vectors = eigh_tridiagonal(np.zeros(size), np.sqrt(np.arange(3.0, 2.0 + size)))
    weights = np.square(vectors[0])
    # Nodes come in pairs ±x with equal weights; the upper half stands for both.
    # Their sum is 1 but for rounding, which would be all that is wrong far out.
    return np.square(nodes[pairs:]), weights[pairs:] / weights[pairs:].sum()
