"""Predictions of many samples, as loops only: scores of dense rows, and a mixture of models of two classes.

A model's share is a logistic function averaged over a Gaussian score, T(m, v) = E[σ(-x)], x ~ N(|m|, v), of
the improbable class. `channels.logistic` has it to eleven digits, at a few hundred nanoseconds each, which
would be most of what such predictions cost. Here it comes from a table of log T over

    s = |m|/√(1 + v),    t = log(v + SMALLEST_WIDTH),

patches of polynomials of degree five in both. Errors are below 1e-8 in log T where T is above e^-30, and 3e-7
anywhere. Beyond the table T is the sum of two exponentials where scores are narrow, and below e^-40
elsewhere, as T <= E[e^(-x min(1, m/v))] shows: nothing beside other models, and where it is not, the row is
left as NaN, for the plain form (`tuning.portfolio`) to fill in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from foldless.beliefs import Array
from foldless.kernels import kernel

SMALLEST_WIDTH, WIDEST = 0.3, 4000.0
SCORE_STEP = 0.3
SCORE_CELLS, WIDTH_CELLS = 48, 64
# Of scores beyond the table: up to which variance two exponentials serve, and what T is below otherwise.
WIDEST_SUMMED, LARGEST_BEYOND = 9.0, np.exp(-40.0)
NEGLIGIBLE = 1e-9
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
                s = size / (SCORE_STEP * np.sqrt(1.0 + var))
                # Also of what is not a number.
                if not 0.0 <= var < WIDEST:
                    missed = np.nan
                    break
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

    A row is in the nearest cache while it is multiplied by one vector after the other, which BLAS, for few
    vectors and with squares to be made, cannot match.
    """
    squares = np.empty_like(center)
    for i in range(X.shape[0]):
        x = X[i]
        for k in range(vectors.shape[0]):
            vector, total = vectors[k], vectors.dtype.type(0.0)
            for j in range(x.size):
                total += x[j] * vector[j]
            out[i, k] = total
        for j in range(x.size):
            deviation = x[j] - center[j]
            squares[j] = deviation * deviation
        for k in range(square_vectors.shape[0]):
            vector, total = square_vectors[k], vectors.dtype.type(0.0)
            for j in range(x.size):
                total += squares[j] * vector[j]
            square_out[i, k] = total
