"""Powers of the logistic function averaged over Gaussians: whichever sum is the cheapest that is accurate.

Narrow cavities, which are nearly all once a fit is under way, are summed at a few nodes
(`trapezoidal_sums`); what is too wide or too far out for that is left to `exponential_sums`. The two agree to
1e-11, so that nothing jumps where one takes over from the other.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldless import fast
from foldless.beliefs import Array, Response
from foldless.channels.exponential_sums import exponential_sums_response
from foldless.channels.trapezoidal_sums import LARGEST_MEAN, Rule, sums_of

# A rule serves smaller variances than its own, too. All rows have the first that leaves this share of them to
# finer ones.
FEW_WIDE = 0.125
# Rows that are answered together: arrays of one number each should stay in the cache near the core.
ROWS_AT_ONCE = 8192
# With fewer rows, loading numba takes longer than all iterations together.
LEAST_ROWS_COMPILED = 4096
# Fewer rows than these are done before another thread has begun.
ROWS_PER_THREAD = 4096


def sigmoid_power_response(mean: Array, var: Array, power: float = 1.0) -> Response:
    """log E[σ(x)^a] for x ~ N(mean, var), a = power in (0, 1], and its derivatives in the mean."""
    mean, var = np.broadcast_arrays(np.asarray(mean, dtype=np.float64), np.asarray(var, dtype=np.float64))
    shape = mean.shape
    mean, var = mean.ravel(), var.ravel()
    out = np.empty((3, mean.size))
    loops = None
    if mean.size >= LEAST_ROWS_COMPILED:
        loops = fast.loops("foldless.channels.loops")
    if loops is not None:
        _respond_compiled(loops, mean, var, power, out)
    else:
        for start in range(0, mean.size, ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            _respond(mean[rows], var[rows], power, out[:, rows])
    # A power of a probability is below one, and its logarithm is concave: the rest is rounding.
    np.minimum(out[0], 0.0, out=out[0])
    np.maximum(out[2], 0.0, out=out[2])
    return Response(*(field.reshape(shape) for field in out))


def _respond(mean: Array, var: Array, power: float, out: NDArray[np.float64]) -> None:
    rules, sums = sums_of(power)
    largest = np.abs(mean).max(initial=0.0)
    if not largest <= LARGEST_MEAN:
        _in_two(np.abs(mean) <= LARGEST_MEAN, mean, var, power, out)
        return
    for rule in rules:
        wide = np.flatnonzero(~(var <= rule.largest_var))
        if wide.size <= mean.size * FEW_WIDE:
            # All rows, the wide ones wrongly: picking the others would take as long as some nodes more.
            sums(mean, np.minimum(var, rule.largest_var), rule, out)
            if wide.size:
                part = np.empty((3, wide.size))
                _respond(mean[wide], var[wide], power, part)
                out[:, wide] = part
            return
    _in_two(var <= rules[-1].largest_var, mean, var, power, out)


def _in_two(
    narrow: NDArray[np.bool_], mean: Array, var: Array, power: float, out: NDArray[np.float64]
) -> None:
    """Rows that a rule is good for, and the others."""
    out[:, ~narrow] = exponential_sums_response(mean[~narrow], var[~narrow], power)
    if narrow.any():
        part = np.empty((3, int(narrow.sum())))
        _respond(mean[narrow], var[narrow], power, part)
        out[:, narrow] = part


def _respond_compiled(loops: Any, mean: Array, var: Array, power: float, out: NDArray[np.float64]) -> None:
    rules, _ = sums_of(power)
    left = np.empty(mean.size, dtype=bool)
    n_parts = max(mean.size // ROWS_PER_THREAD, 1)
    cuts = np.linspace(0, mean.size, n_parts + 1).astype(int)
    arrays = (np.ascontiguousarray(mean), np.ascontiguousarray(var))
    parts = [slice(a, b) for a, b in pairwise(cuts)]
    fast.in_threads(
        loops.logistic_rows if power == 1.0 else loops.power_rows,
        [
            (
                float(power),
                *(array[rows] for array in arrays),
                *_as_arrays(rules),
                LARGEST_MEAN,
                *(field[rows] for field in out),
                left[rows],
            )
            for rows in parts
        ],
    )
    if left.any():
        out[:, left] = exponential_sums_response(mean[left], var[left], power)


def _as_arrays(rules: tuple[Rule, ...]) -> tuple[NDArray[Any], ...]:
    """Limits, steps, first nodes, where the weights of each rule start, and all weights."""
    columns = zip(*((rule.largest_var, rule.step, rule.first) for rule in rules), strict=True)
    starts = np.cumsum([0, *(rule.weights.size for rule in rules)])
    return (*map(np.array, columns), starts, np.concatenate([rule.weights for rule in rules]))
