"""The innermost loops of SMLR, compiled by numba. Each is the twin of a function in NumPy, named in it.

They are what NumPy is bad at: thousands of decisions about vectors of twenty numbers. Compiled code is
kept beside this file, or in the user's cache folder, so that only the first fit of an installation waits.
Sums are taken in the order in which they are written, the same in every run.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from foldless.beliefs import Array

njit: Any = numba.njit(cache=True, nogil=True, error_model="numpy")


# ---------------------------------------------------------------------- a quadratic with an L1 penalty


@njit
def follow_signs(
    curvature: Array, linear: Array, rates: Array, start: Array, slack: float, rounds_per_unknown: int
) -> tuple[Array, bool]:
    """`quadratic.l1_quadratic`; False if the curvature is not positive definite."""
    size = start.size
    u = start.copy()
    if size == 0:
        return u, True
    signs = np.sign(u)
    active = (u != 0) | (rates == 0)
    at = np.empty(size, np.intp)
    target = np.empty(size)
    factor = np.empty((size, size))
    descent = np.empty(size)
    rounds = rounds_per_unknown * (size + 1)
    for _ in range(rounds):
        for _ in range(rounds):
            n_active = 0
            for i in range(size):
                if active[i]:
                    at[n_active] = i
                    target[n_active] = linear[i] - rates[i] * signs[i]
                    n_active += 1
            if n_active == 0:
                break
            if not _solve(curvature, at, n_active, factor, target):
                return u, False
            n_turned, at_zero = 0, False
            for a in range(n_active):
                i = at[a]
                if rates[i] != 0 and np.sign(target[a]) != signs[i]:
                    n_turned += 1
                    if u[i] == 0:
                        at_zero = True
                        active[i] = False
                        signs[i] = 0.0
            if n_turned == 0:
                for a in range(n_active):
                    u[at[a]] = target[a]
                break
            if at_zero:
                continue
            _walk_to_best(curvature, linear, rates, at, n_active, target, u, signs)
            for a in range(n_active):
                i = at[a]
                signs[i] = np.sign(u[i])
                active[i] = u[i] != 0 or rates[i] == 0
        descent[:] = linear
        for j in range(size):
            if u[j] != 0:
                for i in range(size):
                    descent[i] -= curvature[j, i] * u[j]
        largest = np.abs(descent).max()
        wanted = False
        for i in range(size):
            if not active[i] and abs(descent[i]) - rates[i] > slack * (largest + rates[i]):
                signs[i] = np.sign(descent[i])
                active[i] = True
                wanted = True
        if not wanted:
            break
    return u, True


@njit
def _solve(curvature: Array, at: Any, n_active: int, factor: Array, right: Array) -> bool:
    """Solve the active part of the system in place, by Cholesky; False if it is not positive definite."""
    for a in range(n_active):
        for b in range(a, n_active):
            factor[a, b] = curvature[at[a], at[b]]
    for k in range(n_active):
        if not factor[k, k] > 0:
            return False
        factor[k, k] = np.sqrt(factor[k, k])
        for b in range(k + 1, n_active):
            factor[k, b] /= factor[k, k]
        # Along rows, which lie together in memory and need no sum: compilers make vectors of that.
        for a in range(k + 1, n_active):
            share = factor[k, a]
            for b in range(a, n_active):
                factor[a, b] -= share * factor[k, b]
    for k in range(n_active):
        right[k] /= factor[k, k]
        for b in range(k + 1, n_active):
            right[b] -= factor[k, b] * right[k]
    for k in range(n_active - 1, -1, -1):
        for b in range(k + 1, n_active):
            right[k] -= factor[k, b] * right[b]
        right[k] /= factor[k, k]
    return True


@njit
def _walk_to_best(
    curvature: Array,
    linear: Array,
    rates: Array,
    at: Any,
    n_active: int,
    target: Array,
    u: Array,
    signs: Array,
) -> None:
    """`quadratic._best_on_the_way`, in place."""
    slope, bend, end = 0.0, 0.0, 0.0
    for a in range(n_active):
        i = at[a]
        along_start, along_step = 0.0, 0.0
        for b in range(n_active):
            j = at[b]
            along_start += curvature[i, j] * u[j]
            along_step += curvature[i, j] * (target[b] - u[j])
        step = target[a] - u[i]
        slope += step * (along_start - linear[i])
        bend += step * along_step
        end += rates[i] * abs(target[a])
    lowest, best = np.inf, -1
    for a in range(n_active):
        i = at[a]
        if rates[i] == 0 or np.sign(target[a]) == signs[i]:
            continue
        time = min(u[i] / (u[i] - target[a]), 1.0)
        value = time * slope + 0.5 * time * time * bend
        for b in range(n_active):
            j = at[b]
            if b != a:
                value += rates[j] * abs(u[j] + time * (target[b] - u[j]))
        if value < lowest:
            lowest, best = value, a
    if best < 0 or slope + 0.5 * bend + end < lowest:
        for a in range(n_active):
            u[at[a]] = target[a]
        return
    i = at[best]
    time = min(u[i] / (u[i] - target[best]), 1.0)
    for a in range(n_active):
        u[at[a]] += time * (target[a] - u[at[a]])
    u[i] = 0.0


# ---------------------------------------------------------------------- two classes under an L1 penalty


@njit
def newton(
    columns: Array,
    n_plain: int,
    label: Array,
    sample_weight: Array,
    weights: Array,
    rate: float,
    gap_target: float,
    max_iter: int,
    limits: Any,
) -> tuple[Array, int, Array]:
    """`newton.newton` for one score and an L1 penalty: weights, steps, and the objective after each."""
    slack, rounds, first_ridge, more_ridge, largest_ridge, fall, shortest, judgeable = limits
    n_samples, n_columns = columns.shape
    weights = weights.copy()
    scores = columns @ weights
    residual, bend, wrong = np.empty(n_samples), np.empty(n_samples), np.empty(n_samples)
    seen = np.empty(max_iter if max_iter < 1000 else 1000)
    n_seen = 0
    for iteration in range(max_iter):
        loss = _at_scores(scores, label, sample_weight, residual, bend, wrong)
        gradient = residual @ columns
        size = rate * np.abs(weights[n_plain:]).sum()
        objective = loss + size
        if _settled(gradient, n_plain, sample_weight, bend, wrong, objective, rate, gap_target):
            return weights, iteration, seen[:n_seen]
        moving = np.empty(n_columns, np.intp)
        n_moving = 0
        for c in range(n_columns):
            if c < n_plain or weights[c] != 0 or abs(gradient[c]) > rate:
                moving[n_moving] = c
                n_moving += 1
        moving = moving[:n_moving]
        used = np.empty((n_moving, n_samples))
        for a in range(n_moving):
            used[a] = columns[:, moving[a]]
        hessian = (used * bend) @ used.T
        flat, slope, rates = np.empty(n_moving), np.empty(n_moving), np.empty(n_moving)
        trace = 0.0
        for a in range(n_moving):
            flat[a], slope[a] = weights[moving[a]], gradient[moving[a]]
            rates[a] = rate if moving[a] >= n_plain else 0.0
            trace += hessian[a, a]
        ridge, unit = first_ridge, max(trace / max(n_moving, 1), np.finfo(np.float64).tiny)
        step = np.zeros(n_moving)
        added = 0.0
        while ridge <= largest_ridge:
            for a in range(n_moving):
                hessian[a, a] += ridge * unit - added
            added = ridge * unit
            found, definite = follow_signs(hessian, hessian @ flat + slope, rates, flat, slack, rounds)
            if definite:
                step = found - flat
                break
            ridge *= more_ridge
        promised = 0.0
        for a in range(n_moving):
            # Weight by weight, where slope and penalty nearly balance: see `newton._promised`.
            end = flat[a] + step[a]
            growth = np.sign(flat[a]) * step[a] if flat[a] * end > 0 else abs(end) - abs(flat[a])
            promised += rates[a] * growth - slope[a] * step[a]
        if not promised < 0:
            return weights, iteration + 1, seen[:n_seen]
        stretched = step @ used
        length, moved = 1.0, False
        while length >= shortest:
            value = 0.0
            for m in range(n_samples):
                margin = label[m] * (scores[m] + length * stretched[m])
                value += sample_weight[m] * (max(-margin, 0.0) + np.log1p(np.exp(-abs(margin))))
            for a in range(n_moving):
                value += rates[a] * abs(flat[a] + length * step[a])
            if value - objective <= fall * length * promised or (
                abs(promised) <= judgeable * abs(objective) and value <= objective * (1 + judgeable)
            ):
                moved = True
                break
            length *= 0.5
        if not moved:
            return weights, iteration + 1, seen[:n_seen]
        for a in range(n_moving):
            weights[moving[a]] = flat[a] + length * step[a]
        scores += length * stretched
        if n_seen < seen.size:
            seen[n_seen] = value
            n_seen += 1
    return weights, max_iter, seen[:n_seen]


@njit
def _at_scores(
    scores: Array, label: Array, sample_weight: Array, residual: Array, bend: Array, wrong: Array
) -> float:
    """`likelihood.Labels._at_one_score`: the loss; residuals, curvatures and 1 - p_own into their places."""
    loss = 0.0
    for m in range(scores.size):
        margin = label[m] * scores[m]
        small = np.exp(-abs(margin))
        loss += sample_weight[m] * (max(-margin, 0.0) + np.log1p(small))
        wrong[m] = (small if margin > 0 else 1.0) / (1.0 + small)
        residual[m] = label[m] * wrong[m] * sample_weight[m]
        bend[m] = sample_weight[m] * small / ((1.0 + small) * (1.0 + small))
    return loss


@njit
def _settled(
    gradient: Array,
    n_plain: int,
    sample_weight: Array,
    bend: Array,
    wrong: Array,
    objective: float,
    rate: float,
    gap_target: float,
) -> bool:
    """`design.Design.settled`."""
    if n_plain:
        curvature = max(bend.sum(), np.finfo(np.float64).tiny)
        if gradient[0] * gradient[0] / (2.0 * curvature) > gap_target:
            return False
    largest = 0.0
    for c in range(n_plain, gradient.size):
        largest = max(largest, abs(gradient[c]))
    shrink = 1.0 if largest <= rate else rate / largest
    entropy = 0.0
    for m in range(wrong.size):
        other = shrink * wrong[m]
        if other > 0:
            entropy -= sample_weight[m] * other * np.log(other)
        if other < 1:
            entropy -= sample_weight[m] * (1.0 - other) * np.log(1.0 - other)
    return objective - entropy <= gap_target


# ---------------------------------------------------------------------- without each sample


@njit
def without_each(
    which: Any,
    share: Array,
    x: Array,
    score: Any,
    start: Array,
    rates: Array,
    slope: Array,
    curvature: Array,
    bends: Array,
    residual: Array,
    likely: float,
    most_rounds: int,
    slack: float,
    rounds: int,
) -> Array:
    """`tuning.leaving._Expansion.without`, for the samples `which`, a row of changes each."""
    n_pairs, n_scores = start.size, bends.shape[1]
    out = np.zeros((which.size, n_pairs))
    push, left = np.empty(n_pairs), np.empty(n_pairs)
    turn, pull = np.empty(n_scores), np.empty(n_scores)
    tried = np.empty(n_pairs, np.bool_)
    for row in range(which.size):
        m = which[row]
        for a in range(n_pairs):
            push[a] = slope[a] - share[m] * x[m, a] * residual[m, score[a]]
            tried[a] = start[a] != 0 or rates[a] == 0 or abs(push[a]) > likely * rates[a]
        for _ in range(most_rounds):
            some = np.flatnonzero(tried)
            inside = np.empty((some.size, some.size))
            linear, begin, own_rates = np.empty(some.size), np.empty(some.size), np.empty(some.size)
            for i in range(some.size):
                a = some[i]
                begin[i], own_rates[i] = start[a], rates[a]
                for j in range(some.size):
                    b = some[j]
                    less = share[m] * x[m, a] * x[m, b] * bends[m, score[a], score[b]]
                    inside[i, j] = curvature[a, b] - less
            for i in range(some.size):
                linear[i] = push[some[i]]
                for j in range(some.size):
                    if begin[j] != 0:
                        linear[i] += inside[i, j] * begin[j]
            found, definite = follow_signs(inside, linear, own_rates, begin, slack, rounds)
            if not definite:
                out[row] = np.nan
                break
            for i in range(some.size):
                out[row, some[i]] = found[i] - begin[i]
            # What the step leaves of the gradient of every pair within reach, tried or not.
            left[:] = push
            turn[:] = 0.0
            for i in range(some.size):
                a = some[i]
                change = out[row, a]
                if change != 0:
                    turn[score[a]] += x[m, a] * change
                    for b in range(n_pairs):
                        left[b] -= curvature[a, b] * change
            for k in range(n_scores):
                pull[k] = 0.0
                for j in range(n_scores):
                    pull[k] += share[m] * bends[m, k, j] * turn[j]
            wanted = False
            for a in range(n_pairs):
                if not tried[a] and abs(left[a] + x[m, a] * pull[score[a]]) > rates[a]:
                    tried[a] = True
                    wanted = True
            if not wanted:
                break
    return out
