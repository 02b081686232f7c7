"""`trapezoidal_sums` compiled by numba: the same sums, without arrays of nodes by rows.

Rows are taken in groups of the same rule, a vector register's worth and more at a time, so that the processor
works on several rows at once. A row's answer does not depend on its company.

Rules are laid out one after another: that with number k has nodes `starts[k]` to `starts[k + 1]`.
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
def by_rule(mean: Array, var: Array, limits: Array, largest_mean: float, left: Any) -> Any:
    """Rows in the order of their rules, how many come before each, and, marked, those that have none."""
    n_rules = limits.size
    rule_of = np.zeros(mean.size, np.int64)
    for rule in range(n_rules):
        for i in range(mean.size):
            # Not `>`: what is not a number must not pass for narrow.
            rule_of[i] += not var[i] <= limits[rule]
    n_before = np.zeros(n_rules + 2, np.int64)
    for i in range(mean.size):
        if not abs(mean[i]) <= largest_mean:
            rule_of[i] = n_rules
        left[i] = rule_of[i] == n_rules
        n_before[rule_of[i] + 1] += 1
    for rule in range(n_rules + 1):
        n_before[rule + 1] += n_before[rule]
    # Sorted, because a branch for every row would be guessed wrong too often.
    order = np.empty(mean.size, np.int64)
    next_of = n_before.copy()
    for i in range(mean.size):
        order[next_of[rule_of[i]]] = i
        next_of[rule_of[i]] += 1
    return order, n_before


@njit
def logistic_rows(
    power: float, mean: Array, var: Array, limits: Array, steps: Array, firsts: Array, starts: Any,
    weights: Array, largest_mean: float, log_z: Array, slope: Array, curvature: Array, left: Any,
) -> None:  # fmt: skip
    """`logistic_sums` of rows that a rule is good for; the others are marked in `left`. The power is one."""
    order, n_before = by_rule(mean, var, limits, largest_mean, left)
    odds, ratio = np.ones(LANES), np.ones(LANES)
    first, second, third = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    for rule in range(limits.size):
        for begin in range(n_before[rule], n_before[rule + 1], LANES):
            n_lanes = min(LANES, n_before[rule + 1] - begin)
            rows = order[begin : begin + n_lanes]
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


@njit
def power_rows(
    power: float, mean: Array, var: Array, limits: Array, steps: Array, firsts: Array, starts: Any,
    weights: Array, largest_mean: float, log_z: Array, slope: Array, curvature: Array, left: Any,
) -> None:  # fmt: skip
    """`power_sums` of rows that a rule is good for; the others are marked in `left`."""
    order, n_before = by_rule(mean, var, limits, largest_mean, left)
    for rule in range(limits.size):
        for place in range(n_before[rule], n_before[rule + 1]):
            at = order[place]
            std = np.sqrt(var[at])
            odds = np.exp(-mean[at] - firsts[rule] * std)
            ratio = np.exp(-steps[rule] * std)
            z, of_sigma, of_miss, of_both = 0.0, 0.0, 0.0, 0.0
            for node in range(starts[rule], starts[rule + 1]):
                likelihood = weights[node] * np.exp(-power * np.log(1.0 + odds))
                sigma = 1.0 / (1.0 + odds)
                missed = likelihood * (odds * sigma)
                odds *= ratio
                z += likelihood
                of_sigma += likelihood * sigma
                of_miss += missed
                of_both += missed * sigma
            log_z[at] = min(np.log(z), 0.0)
            slope[at] = power * of_miss / z
            curvature[at] = max((power * (1.0 + power) * of_both - slope[at] * power * of_sigma) / z, 0.0)
