"""The sums of `gumbel` and the table of `softened` compiled by numba: the same numbers, row by row."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from foldless.beliefs import Array

njit: Any = numba.njit(cache=True, nogil=True, error_model="numpy")
inlined: Any = numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")


@inlined
def _place(
    var: Array, begins: Any, smallest_width: float, width_step: float, score_step: float,
    over_unit: Array, position: Array, begin: Any, last: Any,
) -> None:  # fmt: skip
    """`Widths.of`, for one row."""
    for k in range(var.size):
        over_unit[k] = 1.0 / (score_step * np.sqrt(1.0 + var[k]))
        t = np.log1p(var[k] / smallest_width) / width_step
        part = min(max(int(t), 0), begins.size - 2)
        position[k] = t - part
        begin[k] = begins[part]
        last[k] = begins[part + 1] - begins[part] - 1


@inlined
def _softened(
    mean: Array, level: float, patches: Array, offset: float, over_unit: Array, position: Array, begin: Any,
    last: Any, first: Array, second: Array,
) -> float:  # fmt: skip
    """`Widths.at` for all classes of one row: the sum of log F, and its derivatives for each."""
    total = 0.0
    for k in range(mean.size):
        s = (mean[k] - level) * over_unit[k] - offset
        # Not `max(s, 0)`: what is not a number must become one before it is an index.
        inside = min(s, last[k] + 1.0) if s > 0.0 else 0.0
        cell = min(int(inside), last[k])
        along = inside - cell
        patch = patches[begin[k] + cell]
        at = position[k]
        value, slope, bend = 0.0, 0.0, 0.0
        for back in range(6):
            power = 5 - back
            bend = bend * along + slope
            slope = slope * along + value
            value = value * along + (patch[power] + at * (patch[power + 6] + at * patch[power + 12]))
        if s != inside:
            value += slope * (s - inside)
            bend = 0.0
        size = np.exp(value)
        slope *= over_unit[k]
        total -= size
        first[k] = -size * slope
        second[k] = -size * max(slope * slope + 2.0 * bend * over_unit[k] * over_unit[k], 0.0)
    return total


@inlined
def _start(
    mean: Array, var: Array, power: float, start_steps: int, patches: Array, offset: float, over_unit: Array,
    position: Array, begin: Any, last: Any, f: Array, df: Array,
) -> tuple[float, float]:  # fmt: skip
    """`_start_of_levels`, for one row."""
    highest = -np.inf
    for k in range(mean.size):
        highest = max(highest, mean[k] - power * var[k])
    total = 0.0
    for k in range(mean.size):
        f[k] = np.exp(mean[k] - power * var[k] - highest)
        total += f[k]
    highest = -np.inf
    for k in range(mean.size):
        f[k] = mean[k] - power * f[k] / total * var[k]
        highest = max(highest, f[k])
    total = 0.0
    for k in range(mean.size):
        total += np.exp(f[k] - highest)
    level, turn = highest + np.log(total) - np.log(power), 1.0
    for _ in range(start_steps):
        _softened(mean, level, patches, offset, over_unit, position, begin, last, f, df)
        pull, turn = -f.sum(), -df.sum()
        level += np.log(pull / power) * pull / turn
    return level, turn


@njit
def response_rows(
    mean: Array, var: Array, classes: Any, powers: Array, table: Any, rule: Any,
    log_z: Array, slope: Array, curvature: Array,
) -> None:  # fmt: skip
    """`_over_levels`; the rule is `_rule`, and what is returned has an axis of powers after that of rows."""
    patches, begins, smallest_width, width_step, score_step, left_end = table
    level_step, product_step, shortest_step, tail_begins, tail_falls, negligible, negligible_left = rule[:7]
    start_steps, most_levels = int(rule[7]), int(rule[8])
    n_classes, n_powers = mean.shape[1], powers.size
    offset = left_end / score_step
    more = tail_falls / powers[0] - 1.0
    over_unit, position = np.empty(n_classes), np.empty(n_classes)
    begin, last = np.empty(n_classes, np.int64), np.empty(n_classes, np.int64)
    f, df = np.empty(n_classes), np.empty(n_classes)
    total, others, product = np.empty(n_powers), np.empty(n_powers), np.empty(n_powers)
    largest = np.empty(n_powers)
    first, bend = np.empty((n_powers, n_classes)), np.empty((n_powers, n_classes))  # of f, and of f² + ∂f
    for m in range(mean.shape[0]):
        _place(var[m], begins, smallest_width, width_step, score_step, over_unit, position, begin, last)
        sharpest, widest = var[m, 0], var[m, 0]
        for k in range(n_classes):
            sharpest, widest = min(sharpest, var[m, k]), max(widest, var[m, k])
        widest = np.sqrt(1.0 + widest)
        start, turn = _start(
            mean[m], var[m], powers[0], start_steps, patches, offset, over_unit, position, begin, last, f, df
        )
        for n in range(1, n_powers):
            _, other = _start(
                mean[m], var[m], powers[n], start_steps, patches, offset, over_unit, position, begin, last,
                f, df,
            )  # fmt: skip
            turn = max(turn, other)
        width = 1.0 / np.sqrt(turn)
        step = max(min(level_step * np.sqrt(1.0 + sharpest), product_step * width), shortest_step * width)

        own_class = classes[m]
        total[:], others[:], product[:], largest[:] = 0.0, 0.0, 0.0, -np.inf
        first[:], bend[:] = 0.0, 0.0
        for side in range(2):
            for number in range(side, most_levels):
                along = number * step if side == 0 else -number * step
                beyond = along / widest - tail_begins
                size = np.exp(-abs(beyond))
                level = start + along + more * widest * (max(beyond, 0.0) + np.log1p(size))
                log_product = np.log(1.0 + more * ((1.0 if beyond >= 0.0 else size) / (1.0 + size)))
                log_product += _softened(
                    mean[m], level, patches, offset, over_unit, position, begin, last, f, df
                )
                going = False
                for n in range(n_powers):
                    log_weight = log_product - powers[n] * level
                    if log_weight > largest[n]:
                        shrink = np.exp(largest[n] - log_weight)
                        largest[n] = log_weight
                        total[n] *= shrink
                        others[n] *= shrink
                        product[n] *= shrink
                        for k in range(n_classes):
                            first[n, k] *= shrink
                            bend[n, k] *= shrink
                    # What is not a number ends here, too.
                    if log_weight >= largest[n] - (negligible if side == 0 else negligible_left):
                        going = True
                if not going:
                    break
                of_others = 0.0
                for k in range(n_classes):
                    df[k] += f[k] * f[k]
                    if k != own_class:
                        of_others += f[k]
                for n in range(n_powers):
                    weight = np.exp(log_product - powers[n] * level - largest[n])
                    for k in range(n_classes):
                        first[n, k] += weight * f[k]
                        bend[n, k] += weight * df[k]
                    total[n] += weight
                    others[n] += weight * of_others
                    product[n] += weight * of_others * f[own_class]
        for n in range(n_powers):
            log_z[m, n] = largest[n] + np.log(total[n] * step)
            over = 1.0 / total[n]
            sum_of_others = 0.0
            for k in range(n_classes):
                average = over * first[n, k]
                if k == own_class:
                    curvature[m, n, k] = max(over * (product[n] - average * others[n]), 0.0)
                else:
                    slope[m, n, k] = average
                    sum_of_others += average
                    curvature[m, n, k] = max(average * average - over * bend[n, k], 0.0)
            slope[m, n, own_class] = (1.0 - powers[n]) - sum_of_others


@njit
def log_proba_rows(
    mean: Array, var: Array, table: Any, lowest: Array, step: Array, n_levels: Any, log_proba: Array
) -> None:
    """`_add_probabilities`."""
    patches, begins, smallest_width, width_step, score_step, left_end = table
    n_classes = mean.shape[1]
    offset = left_end / score_step
    over_unit, position = np.empty(n_classes), np.empty(n_classes)
    begin, last = np.empty(n_classes, np.int64), np.empty(n_classes, np.int64)
    f, df = np.empty(n_classes), np.empty(n_classes)
    for m in range(mean.shape[0]):
        _place(var[m], begins, smallest_width, width_step, score_step, over_unit, position, begin, last)
        for number in range(n_levels[m]):
            level = lowest[m] + number * step[m]
            log_weight = _softened(mean[m], level, patches, offset, over_unit, position, begin, last, f, df)
            for k in range(n_classes):
                term = log_weight + np.log(-f[k])
                before = log_proba[m, k]
                if term > before:
                    log_proba[m, k] = term + np.log1p(np.exp(before - term))
                elif term > -np.inf:
                    log_proba[m, k] = before + np.log1p(np.exp(term - before))
