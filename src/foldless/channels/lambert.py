"""Levels at which pulls balance, by the Lambert function: what a maximum over softmax scores comes down to.

For a Gaussian score z ~ N(p, q) the maximum of  -e^(z - u) - (z - p)²/2q  is q e below p, with
e = W(q e^(p - u))/q, W the Lambert function.
"""

from __future__ import annotations

import numpy as np

from foldless.beliefs import Array

# Newton steps of the Lambert function that leave no error but rounding.
TO_ROUNDING = 5


def balance_level(mean: Array, log_var: Array, power: float, n_steps: int) -> Array:
    """The level u at which Σ_k e_k = power, where e_k = W(q_k e^(p_k - u))/q_k.

    log Σ e_k is concave in u, so Newton's method comes from the right without overshooting.
    """
    level = np.logaddexp.reduce(mean, axis=1) - np.log(power)
    for _ in range(n_steps):
        log_w = _log_lambert(mean - level[:, np.newaxis] + log_var)
        pull = np.exp(log_w - log_var)
        total = pull.sum(axis=1)
        bend = (pull / (1 + np.exp(log_w))).sum(axis=1)
        level = level + np.log(total / power) * total / bend
    return level


def pulls_at(level: Array, mean: Array, log_var: Array) -> Array:
    """e_k = W(q_k e^(p_k - u))/q_k: how far each score is pulled down, in units of its variance."""
    return np.exp(_log_lambert(mean - level[:, np.newaxis] + log_var) - log_var)


def _log_lambert(log_y: Array) -> Array:
    """log W(y) for log y: the root of λ + e^λ = log y, by Newton's method from W <= log(1 + y)."""
    log_w = np.where(log_y < -30.0, log_y, np.log(np.logaddexp(0.0, np.maximum(log_y, -30.0))))
    for _ in range(TO_ROUNDING):
        w = np.exp(log_w)
        log_w = log_w - (log_w + w - log_y) / (1 + w)
    return np.asarray(log_w)
