"""`trapezoidal_sums.logistic_sums` compiled by numba: the same sums, without arrays of nodes by rows.

Rows are taken in groups of the same rule, a vector register's worth and more at a time, so that the processor
works on several rows at once. A row's answer does not depend on its company.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from foldless.beliefs import Array

njit: Any = numba.njit(cache=True, nogil=True, error_model="numpy")

# Rows that are summed together.
LANES = 16


@njit
def logistic_rows(
    mean: Array, var: Array, limits: Array, steps: Array, firsts: Array, starts: Any, weights: Array,
    largest_mean: float, log_z: Array, slope: Array, curvature: Array, left: Any,
) -> None:  # fmt: skip
    """Responses of rows that a rule is good for; the others are marked in `left`.

    Rules are laid out one after another: that with number k has nodes `starts[k]` to `starts[k + 1]`.
    """
    n_rules = limits.size
    rule_of = np.empty(mean.size, np.int8)
    for i in range(mean.size):
        rule = 0
        while rule < n_rules and not var[i] <= limits[rule]:
            rule += 1
        if not abs(mean[i]) <= largest_mean:
            rule = n_rules
        rule_of[i] = rule
        left[i] = rule == n_rules
    rows = np.empty(LANES, np.int64)
    odds, ratio = np.ones(LANES), np.ones(LANES)
    first, second, third = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    for rule in range(n_rules):
        n_lanes = 0
        for i in range(mean.size):
            if rule_of[i] == rule:
                rows[n_lanes] = i
                n_lanes += 1
            if n_lanes == LANES or (i == mean.size - 1 and n_lanes > 0):
                for lane in range(n_lanes):
                    at = rows[lane]
                    std = np.sqrt(var[at])
                    odds[lane] = np.exp(abs(mean[at]) + firsts[rule] * std)
                    ratio[lane] = np.exp(steps[rule] * std)
                first[:] = 0.0
                second[:] = 0.0
                third[:] = 0.0
                for node in range(starts[rule], starts[rule + 1]):
                    weight = weights[node]
                    for lane in range(LANES):
                        tail = 1.0 / (1.0 + odds[lane])
                        odds[lane] *= ratio[lane]
                        term = weight * tail
                        first[lane] += term
                        term *= tail
                        second[lane] += term
                        third[lane] += term * tail
                for lane in range(n_lanes):
                    at = rows[lane]
                    middle = first[lane] - second[lane]
                    outer = second[lane] - third[lane]
                    z, of_sigma = first[lane], second[lane]
                    if mean[at] >= 0.0:
                        z = 1.0 - first[lane]
                        of_sigma += 1.0 - 2.0 * first[lane]
                        outer = middle - outer
                    log_z[at] = min(np.log(z), 0.0)
                    slope[at] = middle / z
                    curvature[at] = max((2.0 * outer - slope[at] * of_sigma) / z, 0.0)
                n_lanes = 0
