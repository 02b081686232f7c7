"""Sweeps of a Gibbs sampler of spike-and-slab regression, compiled: one chain after the other, thinned.

Given the weights, the score of a sample has a Gaussian pseudo-label z of precision ω: for probit labels the
score with noise, cut to the side of the label [Albert and Chib 1993], for logit labels y / 2ω with a
Pólya-gamma ω [Polson, Scott and Windle 2013]. Given these, each weight is drawn with all others fixed, its
spike decided with the weight integrated out; and one active weight per sweep moves to whatever inactive
column it may, with the odds that the columns have, since columns that stand for each other would take turns
rarely.
Pseudo-labels hold what goes with them in place, so that alone would be slow. In every sweep there are
Metropolis steps, too, that are judged by the labels themselves: active weights jump to neighbouring columns,
and all of them grow or shrink together.
"""

# ruff: noqa: NPY002
# Compiled code has a generator of its own, which a chain seeds.

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

SUMS = {"reassoc", "contract"}
CUT = 0.64  # where Devroye's two series take turns
HALF_PI_SQUARED = math.pi**2 / 8
# Metropolis steps per sweep, and the standard deviation of the logarithm of a factor.
N_JUMPS, N_SCALINGS, SCALING = 20, 2, 0.2


@njit  # type: ignore[untyped-decorator]
def _beyond(low: float) -> float:
    """A standard normal above `low`."""
    if low < 0.5:
        while True:
            x = np.random.standard_normal()
            if x > low:
                return x
    rate = 0.5 * (low + math.sqrt(low * low + 4))  # Robert 1995
    while True:
        x = low + np.random.exponential() / rate
        if np.random.random() <= math.exp(-0.5 * (x - rate) ** 2):
            return x


@njit  # type: ignore[untyped-decorator]
def _coefficient(n: int, x: float) -> float:
    k = n + 0.5
    if x > CUT:
        return math.pi * k * math.exp(-0.5 * (k * math.pi) ** 2 * x)
    return math.pi * k * (2 / (math.pi * x)) ** 1.5 * math.exp(-2 * k * k / x)


@njit  # type: ignore[untyped-decorator]
def _log_ndtr(x: float) -> float:
    return math.log(0.5 * math.erfc(-x / math.sqrt(2.0)))


@njit  # type: ignore[untyped-decorator]
def _cut_inverse_gaussian(z: float) -> float:
    """Of mean 1 / z and shape 1, below CUT."""
    if z * CUT < 1:
        while True:
            # 1 / chi-square beyond the cut, and a rejection for z.
            x = 1.0 / _beyond(1.0 / math.sqrt(CUT)) ** 2
            if np.random.random() <= math.exp(-0.5 * z * z * x):
                return x
    mean = 1.0 / z
    while True:
        y = np.random.standard_normal() ** 2
        x = mean + 0.5 * mean * mean * y - 0.5 * mean * math.sqrt(4 * mean * y + (mean * y) ** 2)
        if np.random.random() > mean / (mean + x):
            x = mean * mean / x
        if x < CUT:
            return x


@njit  # type: ignore[untyped-decorator]
def polya_gamma(score: float) -> float:
    """PG(1, score), by Devroye's alternating series."""
    z = 0.5 * abs(score)
    rate = HALF_PI_SQUARED + 0.5 * z * z
    right = math.pi / (2 * rate) * math.exp(-rate * CUT)
    root = math.sqrt(1 / CUT)
    left = math.exp(-z + _log_ndtr(root * (CUT * z - 1)))
    left += math.exp(z + _log_ndtr(-root * (CUT * z + 1))) if z < 30 else 0.0
    left *= 2.0
    while True:
        if np.random.random() < right / (right + left):
            x = CUT + np.random.exponential() / rate
        else:
            x = _cut_inverse_gaussian(max(z, 1e-12))
        total = _coefficient(0, x)
        y = np.random.random() * total
        n = 0
        while True:
            n += 1
            if n % 2 == 1:
                total -= _coefficient(n, x)
                if y <= total:
                    return 0.25 * x
            else:
                total += _coefficient(n, x)
                if y > total:
                    break


@njit(fastmath=SUMS)  # type: ignore[untyped-decorator]
def _products(column: Any, precision: Any, residual: Any) -> tuple[float, float]:
    """Σ ω x² and Σ ω x r."""
    square = pull = 0.0
    for i in range(column.size):
        weighted = precision[i] * column[i]
        square += weighted * column[i]
        pull += weighted * residual[i]
    return square, pull


@njit  # type: ignore[untyped-decorator]
def _move(
    columns: Any, precision: Any, residual: Any, slab_var: Any, prior_log_odds: Any, w: Any, log_odds: Any
) -> None:
    """One active weight to a column that is drawn from all that are free."""
    free = 0
    for j in range(w.size):
        free += w[j] != 0 and prior_log_odds[j] < np.inf
    if free == 0:
        return
    which, leaves = np.random.randint(free), -1
    for j in range(w.size):
        if w[j] != 0 and prior_log_odds[j] < np.inf:
            if which == 0:
                leaves = j
            which -= 1
    residual += columns[leaves] * w[leaves]
    w[leaves] = 0.0
    best = -np.inf
    for j in range(w.size):
        log_odds[j] = -np.inf
        if w[j] == 0:
            square, pull = _products(columns[j], precision, residual)
            log_odds[j] = prior_log_odds[j] - 0.5 * math.log1p(slab_var[j] * square)
            log_odds[j] += 0.5 * pull * pull / (square + 1 / slab_var[j])
            best = max(best, log_odds[j])
    total = 0.0
    for j in range(w.size):
        log_odds[j] = math.exp(log_odds[j] - best)
        total += log_odds[j]
    place, to = np.random.random() * total, leaves
    for j in range(w.size):
        place -= log_odds[j]
        if log_odds[j] > 0:
            to = j
        if place < 0:
            break
    square, pull = _products(columns[to], precision, residual)
    inverse = 1 / (square + 1 / slab_var[to])
    w[to] = pull * inverse + math.sqrt(inverse) * np.random.standard_normal()
    residual -= columns[to] * w[to]


@njit  # type: ignore[untyped-decorator]
def _log_likelihood(scores: Any, labels: Any, logit: bool) -> float:
    total = 0.0
    for i in range(labels.size):
        c = labels[i] * scores[i]
        if logit:
            total -= math.log1p(math.exp(-c)) if c > 0 else math.log1p(math.exp(c)) - c
        elif c > -30:
            total += _log_ndtr(c)
        else:  # the first terms of the tail's series
            total -= 0.5 * c * c + math.log(-c) + 0.5 * math.log(2 * math.pi) - math.log1p(-1 / (c * c))
    return total


@njit  # type: ignore[untyped-decorator]
def _jumps(
    columns: Any, labels: Any, logit: bool, prior_log_odds: Any, slab_var: Any,
    first: Any, neighbours: Any, signs: Any, w: Any, scores: Any,
) -> None:  # fmt: skip
    """Metropolis steps with the weights' size kept, from column to column along a symmetric graph."""
    level = _log_likelihood(scores, labels, logit)
    active = np.flatnonzero((w != 0) & (prior_log_odds < np.inf))
    for _ in range(N_JUMPS if active.size else 0):
        which = np.random.randint(active.size)
        j = active[which]
        degree = first[j + 1] - first[j]
        if degree == 0:
            continue
        edge = first[j] + np.random.randint(degree)
        k = neighbours[edge]
        if w[k] != 0:
            continue
        new = signs[edge] * w[j]
        there = scores + new * columns[k] - w[j] * columns[j]
        found = _log_likelihood(there, labels, logit)
        back = first[k + 1] - first[k]
        if math.log(1 - np.random.random()) < found - level + math.log(degree / back):
            scores[:], level, w[k], w[j], active[which] = there, found, new, 0.0, k
    for _ in range(N_SCALINGS if active.size else 0):
        # One factor for all active weights; without the intercept, which stays.
        step = SCALING * np.random.standard_normal()
        factor, size = math.exp(step), 0.0
        there = scores.copy()
        for j in active:
            there += (factor - 1) * w[j] * columns[j]
            size += w[j] * w[j] / slab_var[j]
        found = _log_likelihood(there, labels, logit)
        gain = found - level - 0.5 * (factor * factor - 1) * size + active.size * step
        if math.log(1 - np.random.random()) < gain:
            scores[:], level = there, found
            for j in active:
                w[j] *= factor


@njit  # type: ignore[untyped-decorator]
def run(
    columns: Any, labels: Any, prior_log_odds: Any, slab_var: Any, logit: bool, start: Any,
    first: Any, neighbours: Any, signs: Any, warm_up: int, thinning: int, seed: int, draws: Any, moments: Any,
) -> None:  # fmt: skip
    """One chain: fills `draws` (kept x weights), and `moments` (mean, square, inclusion) of all sweeps."""
    np.random.seed(seed)
    w, n = start.copy(), labels.size
    moments[:] = 0.0
    precision, residual, log_odds = np.ones(n), np.empty(n), np.empty(w.size)
    for sweep in range(-warm_up * thinning, draws.shape[0] * thinning):
        scores = w @ columns
        _jumps(columns, labels, logit, prior_log_odds, slab_var, first, neighbours, signs, w, scores)
        for i in range(n):
            if logit:
                precision[i] = polya_gamma(scores[i])
                residual[i] = 0.5 * labels[i] / precision[i] - scores[i]
            else:
                residual[i] = labels[i] * _beyond(-labels[i] * scores[i])
        for j in range(w.size):
            square, pull = _products(columns[j], precision, residual)
            pull += square * w[j]
            inverse = 1 / (square + 1 / slab_var[j])
            odds = prior_log_odds[j] - 0.5 * math.log1p(slab_var[j] * square) + 0.5 * pull * pull * inverse
            share = 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0
            mean = pull * inverse
            new = 0.0
            if np.random.random() < share:
                new = mean + math.sqrt(inverse) * np.random.standard_normal()
            if new != w[j]:
                change = new - w[j]
                for i in range(n):
                    residual[i] -= change * columns[j, i]
                w[j] = new
            if sweep >= 0:
                moments[0, j] += share * mean
                moments[1, j] += share * (mean * mean + inverse)
                moments[2, j] += share
        _move(columns, precision, residual, slab_var, prior_log_odds, w, log_odds)
        if sweep >= 0 and (sweep + 1) % thinning == 0:
            draws[sweep // thinning] = w
    moments /= draws.shape[0] * thinning
