"""Powers of the logistic function averaged over Gaussians: whichever sum is the cheapest that is accurate.

Narrow cavities, which are nearly all once a fit is under way, are summed at a few nodes
(`trapezoidal_sums`); what is too wide or too far out for that is left to `exponential_sums`. The two agree to
1e-11, so that nothing jumps where one takes over from the other.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from foldless.beliefs import Array, Response
from foldless.channels.exponential_sums import exponential_sums_response
from foldless.channels.trapezoidal_sums import LARGEST_MEAN, rules_of
from foldless.kernels import fastest, in_threads

# With fewer rows, loading numba takes longer than all iterations together.
LEAST_ROWS_COMPILED = 4096
# Fewer rows than these are done before another thread has begun.
ROWS_PER_THREAD = 4096


def sigmoid_power_response(mean: Array, var: Array, power: float = 1.0) -> Response:
    """log E[σ(x)^a] for x ~ N(mean, var), a = power in (0, 1], and its derivatives in the mean."""
    mean, var = np.broadcast_arrays(np.asarray(mean, dtype=np.float64), np.asarray(var, dtype=np.float64))
    shape = mean.shape
    mean, var = mean.ravel(), var.ravel()
    # Not `>`: what is not a number must not pass for narrow.
    narrow = (np.abs(mean) <= LARGEST_MEAN) & (var <= rules_of(power)[-1].largest_var)
    if narrow.all():
        out = _at_nodes(mean, var, power, mean.size)
    else:
        out = np.empty((3, mean.size))
        out[:, ~narrow] = exponential_sums_response(mean[~narrow], var[~narrow], power)
        out[:, narrow] = _at_nodes(mean[narrow], var[narrow], power, mean.size)
    # A power of a probability is below one, and its logarithm is concave: the rest is rounding.
    np.minimum(out[0], 0.0, out=out[0])
    np.maximum(out[2], 0.0, out=out[2])
    return Response(*(field.reshape(shape) for field in out))


def _at_nodes(mean: Array, var: Array, power: float, n_rows: int) -> Array:
    """Rows that a rule is good for, of so many in all: log_z, slope and curvature, (3, rows)."""
    out = np.empty((3, mean.size))
    loops = fastest("sigmoids", n_rows >= LEAST_ROWS_COMPILED)
    cuts = np.linspace(0, mean.size, max(mean.size // ROWS_PER_THREAD, 1) + 1).astype(int)
    parts = [slice(a, b) for a, b in pairwise(cuts)]
    tasks = [
        (float(power), mean[rows], var[rows], rules_of(power), *(field[rows] for field in out))
        for rows in parts
    ]
    in_threads(loops.logistic_rows if power == 1.0 else loops.power_rows, tasks)
    return out
