"""Gaussian integrals of powers of the logistic function, by sums over a few equidistant nodes.

For x = mean + √var t and a step h of t, the trapezoidal sum h Σ φ(jh) f(x_j) converges faster than any power
of h. Two things limit it: the Gaussian itself, by e^(-2π²/h²), and the poles of the logistic function at
x = ±iπ, by e^(π²/2var - 2π²/(h√var)) where they are nearer than the Gaussian's own limit [Trefethen,
Weideman 2014]. So a step serves all variances up to a limit, and half the step those up to a few times more.

Where the variance is small, f is nearly a polynomial over the whole Gaussian. Weights that match its moments
then need not reach into its tails, and 7 to 19 nodes do.

Since nodes are equidistant, e^x is a geometric sequence: two exponentials make all of it, and a node costs a
few multiplications and a division. `exponential_sums` knows no limit of the variance, at many times the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from foldless.beliefs import Array

# Standard deviations of the Gaussian on either side that count: the mass beyond is 1e-12.
REACH = 7.0
# An exponential e^kx moves a Gaussian by k √var of its standard deviations, and in the tails slopes and
# curvatures are integrals of exponentials with k up to 2.
FASTEST_TILT = 2.0
# Means beyond this, where squares of σ leave the range of float64, are not for sums of σ itself.
LARGEST_MEAN = 300.0
# Numbers in an array of nodes by rows: two such arrays should stay in the cache near the core.
NODES_AT_ONCE = 12_000


class Rule(NamedTuple):
    """Nodes at first, first + step, ... standard deviations, for variances up to a limit."""

    largest_var: float
    step: float
    first: float
    weights: NDArray[np.float64]


def _trapezoidal(step: float, largest_var: float) -> Rule:
    """Nodes as far as the Gaussian counts, and on the side of the tail as far as a tilted one does."""
    tilted = REACH + FASTEST_TILT * np.sqrt(largest_var)
    low, high = -int(np.ceil(tilted / step)), int(np.ceil(REACH / step))
    nodes = step * np.arange(low, high + 1)
    weights = np.exp(-0.5 * np.square(nodes))
    weights /= weights.sum()
    return Rule(largest_var, step, float(nodes[0]), weights)


def _matched(n_side: int, largest_var: float, steps: tuple[float, float]) -> Rule:
    """2 n_side + 1 nodes with the moments of a Gaussian up to the power 2 n_side + 3, thanks to the step.

    For 3, 5, 7 and 9 nodes a side there is one such step, between the two given, and weights are positive.
    """
    half_powers = np.arange(n_side + 2)
    # E[t^2k] = 1 · 3 · 5 ... (2k - 1)
    moments = np.cumprod(np.maximum(2.0 * half_powers - 1.0, 1.0))
    # A node and its mirror image count twice, zero once.
    counts = np.append(1.0, np.full(n_side, 2.0))

    def weights_and_excess(step: float) -> tuple[NDArray[np.float64], float]:
        powers = (step * np.arange(n_side + 1.0)) ** (2 * half_powers[:, None]) * counts / moments[:, None]
        side = np.linalg.solve(powers[:-1], np.ones(n_side + 1))
        return side, float(powers[-1] @ side - 1.0)

    step = float(brentq(lambda step: weights_and_excess(step)[1], *steps, xtol=1e-14))
    side = weights_and_excess(step)[0]
    return Rule(largest_var, step, -n_side * step, np.concatenate([side[:0:-1], side]))


# At the limits of the variance, log_z errs by about 1e-12. By rising variance and number of nodes.
FEW_NODES = (
    _matched(3, 0.015, (1.0, 1.4)),
    _matched(5, 0.08, (0.8, 1.2)),
    _matched(7, 0.2, (0.7, 1.0)),
    _matched(9, 0.36, (0.6, 0.9)),
)
LOGISTIC_RULES = (
    *FEW_NODES,
    _trapezoidal(0.5, 1.3),
    _trapezoidal(0.375, 2.56),
    _trapezoidal(0.1875, 11.56),
)
# Powers need a logarithm and an exponential at every node, so that more nodes than these do not pay.
POWER_RULES = FEW_NODES

# (mean, var, rule, out) with out for log_z, slope and curvature
Sums = Callable[[Array, Array, Rule, NDArray[np.float64]], None]


def sums_of(power: float) -> tuple[tuple[Rule, ...], Sums]:
    """The rules for E[σ^power], and what to do with them."""
    return (LOGISTIC_RULES, logistic_sums) if power == 1.0 else (POWER_RULES, partial(power_sums, power))


def logistic_sums(mean: Array, var: Array, rule: Rule, out: NDArray[np.float64]) -> None:
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


def power_sums(power: float, mean: Array, var: Array, rule: Rule, out: NDArray[np.float64]) -> None:
    """log E[σ(x)^a] for x ~ N(mean, var), a = power, and its derivatives; see `exponential_sums`."""
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
