"""Averages of powers of the logistic function by sums at a few nodes, two forms of each.

NumPy sums arrays of nodes by rows, a cacheful at a time, all rows of a piece by one rule. The loops need no
such arrays: rows are taken in groups of the same rule, a vector register's worth and more at a time, so that
the processor works on several rows at once, and a row's answer does not depend on its company.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.kernels import kernel

# Numbers in an array of nodes by rows: two such arrays should stay in the cache near the core.
NODES_AT_ONCE = 12_000
# A rule serves smaller variances than its own, too. All rows have the first that leaves this share of them to
# finer ones.
FEW_WIDE = 0.125
# Rows that loops sum together.
LANES = 16


class Rule(NamedTuple):
    """Nodes at first, first + step, ... standard deviations, for variances up to a limit."""

    largest_var: float
    step: float
    first: float
    weights: NDArray[np.float64]


Rules = tuple[Rule, ...]  # of rising variance
Out = Sequence[Array]  # for log_z, slope and curvature
Sums = Callable[[Array, Array, Rule, Out], None]


def logistic_sums(mean: Array, var: Array, rule: Rule, out: Out) -> None:
    """log E[σ(x)] for x ~ N(mean, var), and its derivatives in the mean.

    From P_k = E[σ(-x)^k] at |mean|, k = 1, 2, 3: the integrals of the improbable side, each a sum of positive
    terms, of which the other side is 1 - P₁. With Z = E[σ] and q = 1 - σ,

        mean < 0:  Z = P₁,      E[σq] = P₁ - P₂,  E[σ²] = P₂,            E[σ²q] = P₂ - P₃,
        mean ≥ 0:  Z = 1 - P₁,  E[σq] = P₁ - P₂,  E[σ²] = P₂ + 1 - 2P₁,  E[σ²q] = P₁ - P₂ - (P₂ - P₃),

        slope = E[σq]/Z,    curvature = 2 E[σ²q]/Z - slope E[σ²]/Z.

    Differences are of numbers that decay at different rates, so both tails keep their relative accuracy.
    """
    std = np.sqrt(var)
    start, ratio = np.exp(np.abs(mean) + rule.first * std), np.exp(rule.step * std)
    weights = rule.weights[:, np.newaxis]
    first, second, third = out
    for rows, odds, power in _pieces(mean.size, rule.weights.size, n_arrays=2):
        _geometric(start[rows], ratio[rows], odds)
        odds += 1.0
        tail = np.divide(1.0, odds, out=odds)
        # Sums not by BLAS, where the last bit of a row's sum depends on how many rows there are.
        np.multiply(tail, weights, out=power)
        np.add.reduce(power, axis=0, out=first[rows])
        power *= tail
        np.add.reduce(power, axis=0, out=second[rows])
        power *= tail
        np.add.reduce(power, axis=0, out=third[rows])
    # Both sides in one formula: a choice between two arrays takes longer than arithmetic.
    probable = (mean >= 0.0).astype(np.float64)
    sign = 1.0 - 2.0 * probable
    z = probable + sign * first
    middle, outer = first - second, second - third
    of_square = second + probable * (1.0 - 2.0 * first)
    log_z, slope, curvature = out
    np.log(z, out=log_z)
    np.divide(middle, z, out=slope)
    outer *= sign
    middle *= probable
    np.add(outer, middle, out=curvature)
    curvature *= 2.0
    of_square *= slope
    curvature -= of_square
    curvature /= z


def tail_sums(mean: Array, var: Array, rule: Rule, out: Out) -> None:
    """log P₁ above, where derivatives are not needed: it has most of what a prediction costs."""
    std = np.sqrt(var)
    start, ratio = np.exp(np.abs(mean) + rule.first * std), np.exp(rule.step * std)
    for rows, odds in _pieces(mean.size, rule.weights.size, n_arrays=1):
        _geometric(start[rows], ratio[rows], odds)
        odds += 1.0
        np.divide(rule.weights[:, np.newaxis], odds, out=odds)
        np.add.reduce(odds, axis=0, out=out[0][rows])
    np.log(out[0], out=out[0])


def power_sums(power: float, mean: Array, var: Array, rule: Rule, out: Out) -> None:
    """log E[σ(x)^a] for x ~ N(mean, var), a = power, and its derivatives; see `sigmoid_averages`."""
    std = np.sqrt(var)
    start, ratio = np.exp(-mean - rule.first * std), np.exp(-rule.step * std)
    weights = rule.weights[:, np.newaxis]
    z, of_miss, of_both = out
    of_sigma = np.empty(mean.size)
    for rows, odds, sigma, likelihood, product in _pieces(mean.size, rule.weights.size, n_arrays=4):
        _geometric(start[rows], ratio[rows], odds)
        np.add(odds, 1.0, out=sigma)
        np.log(sigma, out=likelihood)
        likelihood *= -power
        np.exp(likelihood, out=likelihood)
        np.divide(1.0, sigma, out=sigma)
        miss = np.multiply(odds, sigma, out=odds)
        likelihood *= weights
        np.add.reduce(likelihood, axis=0, out=z[rows])
        np.add.reduce(np.multiply(likelihood, sigma, out=product), axis=0, out=of_sigma[rows])
        likelihood *= miss
        np.add.reduce(likelihood, axis=0, out=of_miss[rows])
        likelihood *= sigma
        np.add.reduce(likelihood, axis=0, out=of_both[rows])
    log_z, slope, curvature = out
    slope *= power / z
    curvature *= power * (1.0 + power)
    of_sigma *= power
    of_sigma *= slope
    curvature -= of_sigma
    curvature /= z
    np.log(z, out=log_z)


def _pieces(n_rows: int, n_nodes: int, n_arrays: int) -> Iterator[tuple[Any, ...]]:
    """A cacheful of rows at a time, each with the same arrays of nodes by rows to work in."""
    step = min(max(NODES_AT_ONCE // n_nodes, 1), max(n_rows, 1))
    arrays = [np.empty((n_nodes, step)) for _ in range(n_arrays)]
    for start in range(0, n_rows, step):
        rows = slice(start, min(start + step, n_rows))
        yield rows, *(array[:, : rows.stop - start] for array in arrays)


def _geometric(start: Array, ratio: Array, terms: Array) -> None:
    """Fill (terms, rows) with start, start ratio, start ratio², ..., doubled at every stroke."""
    n_terms = len(terms)
    terms[0] = start
    done = 1
    while done < n_terms:
        more = min(done, n_terms - done)
        np.multiply(terms[:more], ratio, out=terms[done : done + more])
        done += more
        if done < n_terms:
            ratio = ratio * ratio


def logistic_rows(
    power: float, mean: Array, var: Array, rules: Rules, log_z: Array, slope: Array, curvature: Array
) -> None:
    """`logistic_sums` of rows none wider than the last rule; the power is one."""
    _by_rules(logistic_sums, mean, var, rules, (log_z, slope, curvature))


def power_rows(
    power: float, mean: Array, var: Array, rules: Rules, log_z: Array, slope: Array, curvature: Array
) -> None:
    """`power_sums` of rows none wider than the last rule."""
    _by_rules(partial(power_sums, power), mean, var, rules, (log_z, slope, curvature))


def tail_rows(power: float, mean: Array, var: Array, rules: Rules, log_z: Array, *_: Array) -> None:
    """`tail_sums` of rows none wider than the last rule. Loops are as fast with all sums: there are none."""
    _by_rules(tail_sums, mean, var, rules, (log_z,))


def _by_rules(sums: Sums, mean: Array, var: Array, rules: Rules, out: Out) -> None:
    for number, rule in enumerate(rules):
        wide = np.flatnonzero(var > rule.largest_var)
        if wide.size <= mean.size * FEW_WIDE:
            # All rows, the wide ones wrongly: picking the others would take as long as some nodes more.
            sums(mean, np.minimum(var, rule.largest_var), rule, out)
            if wide.size:
                part = np.empty((len(out), wide.size))
                _by_rules(sums, mean[wide], var[wide], rules[number + 1 :], list(part))
                for field, values in zip(out, part, strict=True):
                    field[wide] = values
            return


@kernel()
def _sorted_by_rule(var: Array, rules: Rules) -> Any:
    """Rows in the order of their rules, and how many come before each rule."""
    n_rules = len(rules)
    rule_of = np.zeros(var.size, np.int64)
    for rule in range(n_rules):
        for i in range(var.size):
            rule_of[i] += var[i] > rules[rule].largest_var
    n_before = np.zeros(n_rules + 1, np.int64)
    for i in range(var.size):
        n_before[rule_of[i] + 1] += 1
    for rule in range(n_rules):
        n_before[rule + 1] += n_before[rule]
    # Sorted, because a branch for every row would be guessed wrong too often.
    order = np.empty(var.size, np.int64)
    next_of = n_before.copy()
    for i in range(var.size):
        order[next_of[rule_of[i]]] = i
        next_of[rule_of[i]] += 1
    return order, n_before


@kernel(instead_of=logistic_rows)
def _logistic_rows_in_loops(
    power: float, mean: Array, var: Array, rules: Rules, log_z: Array, slope: Array, curvature: Array
) -> None:
    order, n_before = _sorted_by_rule(var, rules)
    odds, ratio = np.ones(LANES), np.ones(LANES)
    first, second, third = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    for number in range(len(rules)):
        _, step, start, weights = rules[number]
        for begin in range(n_before[number], n_before[number + 1], LANES):
            n_lanes = min(LANES, n_before[number + 1] - begin)
            rows = order[begin : begin + n_lanes]
            for lane in range(n_lanes):
                at = rows[lane]
                std = np.sqrt(var[at])
                odds[lane] = np.exp(abs(mean[at]) + start * std)
                ratio[lane] = np.exp(step * std)
            first[:], second[:], third[:] = 0.0, 0.0, 0.0
            for node in range(weights.size):
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
                log_z[at] = np.log(z)
                slope[at] = middle / z
                curvature[at] = (2.0 * outer - slope[at] * of_sigma) / z


@kernel(instead_of=power_rows)
def _power_rows_in_loops(
    power: float, mean: Array, var: Array, rules: Rules, log_z: Array, slope: Array, curvature: Array
) -> None:
    order, n_before = _sorted_by_rule(var, rules)
    for number in range(len(rules)):
        _, step, start, weights = rules[number]
        for at in order[n_before[number] : n_before[number + 1]]:
            std = np.sqrt(var[at])
            odds = np.exp(-mean[at] - start * std)
            ratio = np.exp(-step * std)
            z, of_sigma, of_miss, of_both = 0.0, 0.0, 0.0, 0.0
            for node in range(weights.size):
                likelihood = weights[node] * np.exp(-power * np.log(1.0 + odds))
                sigma = 1.0 / (1.0 + odds)
                missed = likelihood * (odds * sigma)
                odds *= ratio
                z += likelihood
                of_sigma += likelihood * sigma
                of_miss += missed
                of_both += missed * sigma
            log_z[at] = np.log(z)
            slope[at] = power * of_miss / z
            curvature[at] = (power * (1.0 + power) * of_both - slope[at] * power * of_sigma) / z
