"""Predictions of many samples, as loops only: scores of dense rows, and a mixture of models of two classes.

A model's share is a logistic function averaged over a Gaussian score, T(m, v) = E[σ(-x)], x ~ N(|m|, v), of
the improbable class. `channels.logistic` has it to eleven digits, at a few hundred nanoseconds each, which
would be most of what such predictions cost. Here it comes from a table of log T over

    s = |m|/√(1 + v),    t = log(v + SMALLEST_WIDTH),

patches of polynomials of degree five in both. Errors are below 1e-8 in log T where T is above e^-30, and 3e-7
anywhere. Wider scores, of variance v + π²/3 with the noise of the logistic itself, are counted in units in
which they are as wide as the table: to 1/v² that noise is as good as Gaussian. Scores beyond the table have
the sum of two exponentials for T if they are narrow, and else T below e^-40, as T <= E[e^(-x min(1, m/v))]
shows: nothing beside other models, and where it is not, the row is left as NaN, for the plain form
(`tuning.portfolio`) to fill in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from foldless.beliefs import Array
from foldless.kernels import kernel

SMALLEST_WIDTH, WIDEST = 0.3, 4e5
SCORE_STEP = 0.3
SCORE_CELLS, WIDTH_CELLS = 48, 96
# Of scores beyond the table: up to which variance two exponentials serve, and what T is below otherwise.
WIDEST_SUMMED, LARGEST_BEYOND = 9.0, np.exp(-40.0)
NEGLIGIBLE = 1e-9
LOGISTIC_VAR = np.pi**2 / 3
WIDTH_STEP = (np.log(WIDEST + SMALLEST_WIDTH) - np.log(SMALLEST_WIDTH)) / WIDTH_CELLS
POWERS = 6
# Sums of probabilities below this have lost terms to underflow.
SMALLEST_SUM = 1e-290


def tail_table(log_tail: Callable[[Array, Array], Array]) -> Array:
    """Coefficients of patches, (widths, scores, powers of t, powers of s), of log T(|mean|, var)."""
    node = 0.5 * (1.0 - np.cos(np.pi * (np.arange(POWERS) + 0.5) / POWERS))
    s = SCORE_STEP * (np.arange(SCORE_CELLS)[:, np.newaxis] + node)
    t = WIDTH_STEP * (np.arange(WIDTH_CELLS)[:, np.newaxis] + node)
    var = SMALLEST_WIDTH * np.expm1(t)[..., np.newaxis, np.newaxis]
    values = log_tail(s * np.sqrt(1.0 + var), np.broadcast_to(var, (*t.shape, *s.shape)))
    to_powers = np.linalg.inv(np.vander(node, increasing=True))
    coefficients = np.einsum("kb,iajb,la->ijlk", to_powers, values, to_powers)
    return np.ascontiguousarray(coefficients.reshape(WIDTH_CELLS, SCORE_CELLS, POWERS * POWERS))


@kernel()
def mixture_rows(
    means: Array, variances: Array, mean_at: Any, var_at: Any, intercept: Array, own_var: Array,
    factor: Array, flip: Array, weight: Array, table: Array, proba: Array,
) -> None:  # fmt: skip
    """proba (rows, 2) of parts whose scores are columns of `means` and `variances`, -1 for none."""
    for i in range(proba.shape[0]):
        lower, upper, missed = 0.0, 0.0, 0.0
        for part in range(weight.size):
            mean = intercept[part]
            if mean_at[part] >= 0:
                mean += means[i, mean_at[part]]
            size = abs(mean)
            if var_at[part] < 0:
                odds = np.exp(-size)
                tail = odds / (1.0 + odds)
            else:
                var = factor[part] * (variances[i, var_at[part]] + own_var[part])
                # Also of what is not a number.
                if not 0.0 <= var < np.inf:
                    missed = np.nan
                    break
                if var > WIDEST:
                    size *= np.sqrt((WIDEST + LOGISTIC_VAR) / (var + LOGISTIC_VAR))
                    var = WIDEST
                s = size / (SCORE_STEP * np.sqrt(1.0 + var))
                if s < SCORE_CELLS:
                    t = np.log(1.0 + var / SMALLEST_WIDTH) / WIDTH_STEP
                    cell, range_ = int(s), min(int(t), WIDTH_CELLS - 1)
                    s, t = s - cell, t - range_
                    patch = table[range_, cell]
                    log_tail = 0.0
                    for k in range(5, -1, -1):
                        inner = patch[k + 30]
                        for power in range(4, -1, -1):
                            inner = inner * t + patch[6 * power + k]
                        log_tail = log_tail * s + inner
                    tail = np.exp(log_tail)
                elif var <= WIDEST_SUMMED:
                    tail = np.exp(0.5 * var - size) - np.exp(2.0 * (var - size))
                else:
                    tail = 0.0
                    missed += weight[part] * LARGEST_BEYOND
            tail += flip[part] * (1.0 - 2.0 * tail)
            if mean < 0.0:
                upper += weight[part] * tail
                lower += weight[part] * (1.0 - tail)
            else:
                lower += weight[part] * tail
                upper += weight[part] * (1.0 - tail)
        if not (missed <= NEGLIGIBLE * min(lower, upper) and min(lower, upper) > SMALLEST_SUM):
            lower = upper = np.nan
        proba[i, 0], proba[i, 1] = lower, upper


@kernel(fastmath={"reassoc", "contract"})
def of_rows(X: Any, vectors: Any, square_vectors: Any, center: Any, out: Array, square_out: Array) -> None:
    """Of an array by rows: out = X vectors', and in the same visit square_out = (X - center)² vectors'.

    Four rows (there are at least as many) are in a near cache while they are multiplied by one vector after
    the other, which BLAS, for few vectors and with squares to be made, cannot match.
    """
    squares = np.empty((4, center.size), dtype=center.dtype)
    for begin in range(0, X.shape[0], 4):
        first = min(begin, X.shape[0] - 4)
        rows, squared_rows = X[first : first + 4], square_out[first : first + 4]
        _of_four(rows, vectors, out[first : first + 4])
        for i in range(4):
            for j in range(center.size):
                deviation = rows[i, j] - center[j]
                squares[i, j] = deviation * deviation
        _of_four(squares, square_vectors, squared_rows)


@kernel(inline="always", fastmath={"reassoc", "contract"})
def _of_four(rows: Any, vectors: Any, out: Array) -> None:
    """By two vectors at a time: by one, nearly every multiplication would wait for a load of its own."""
    x, y, z, w = rows[0], rows[1], rows[2], rows[3]
    for k in range(0, vectors.shape[0], 2):
        other = min(k + 1, vectors.shape[0] - 1)
        u, v = vectors[k], vectors[other]
        a = b = c = d = e = f = g = h = vectors.dtype.type(0.0)
        for j in range(u.size):
            a += x[j] * u[j]
            b += y[j] * u[j]
            c += z[j] * u[j]
            d += w[j] * u[j]
            e += x[j] * v[j]
            f += y[j] * v[j]
            g += z[j] * v[j]
            h += w[j] * v[j]
        out[0, k], out[1, k], out[2, k], out[3, k] = a, b, c, d
        out[0, other], out[1, other], out[2, other], out[3, other] = e, f, g, h
