"""The innermost loops of SMLR, compiled by numba. Each is the twin of a function in NumPy, named in it.

They are what NumPy is bad at: thousands of decisions about vectors of twenty numbers. Compiled code is
kept beside this file, or in the user's cache folder, so that only the first fit of an installation waits.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from foldless.beliefs import Array

# Sums in the order in which they are written: the same to rounding as NumPy, the same to the bit every time.
njit: Any = numba.njit(cache=True, nogil=True, error_model="numpy")


@njit
def follow_signs(
    curvature: Array, linear: Array, rates: Array, start: Array, slack: float, rounds_per_unknown: int
) -> tuple[Array, bool]:
    """`quadratic.follow_signs`; False if the curvature is not positive definite."""
    size = start.size
    u = start.copy()
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
        largest = 0.0
        for i in range(size):
            total = linear[i]
            for j in range(size):
                if u[j] != 0:
                    total -= curvature[i, j] * u[j]
            descent[i] = total
            largest = max(largest, abs(total))
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
        for b in range(a + 1):
            total = curvature[at[a], at[b]]
            for c in range(b):
                total -= factor[a, c] * factor[b, c]
            if a == b:
                if not total > 0:
                    return False
                factor[a, a] = np.sqrt(total)
            else:
                factor[a, b] = total / factor[b, b]
    for a in range(n_active):
        for c in range(a):
            right[a] -= factor[a, c] * right[c]
        right[a] /= factor[a, a]
    for a in range(n_active - 1, -1, -1):
        for c in range(a + 1, n_active):
            right[a] -= factor[c, a] * right[c]
        right[a] /= factor[a, a]
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
