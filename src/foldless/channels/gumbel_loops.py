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


@njit
def response_rows(
    mean: Array, var: Array, classes: Any, power: float, table: Any, rule: Any,
    log_z: Array, slope: Array, curvature: Array,
) -> None:  # fmt: skip
    """`_over_levels`; the rule is `_rule`."""
    patches, begins, smallest_width, width_step, score_step, left_end = table
    level_step, product_step, shortest_step, tail_begins, negligible, negligible_left = rule[:6]
    start_steps, most_levels = int(rule[6]), int(rule[7])
    n_classes = mean.shape[1]
    offset = left_end / score_step
    more = 1.0 / power - 1.0
    over_unit, position = np.empty(n_classes), np.empty(n_classes)
    begin, last = np.empty(n_classes, np.int64), np.empty(n_classes, np.int64)
    f, df = np.empty(n_classes), np.empty(n_classes)
    first, bend = np.empty(n_classes), np.empty(n_classes)
    for m in range(mean.shape[0]):
        _place(var[m], begins, smallest_width, width_step, score_step, over_unit, position, begin, last)
        sharpest, widest = var[m, 0], var[m, 0]
        highest = -np.inf
        for k in range(n_classes):
            sharpest, widest = min(sharpest, var[m, k]), max(widest, var[m, k])
            highest = max(highest, mean[m, k] - power * var[m, k])
        widest = np.sqrt(1.0 + widest)
        total = 0.0
        for k in range(n_classes):
            f[k] = np.exp(mean[m, k] - power * var[m, k] - highest)
            total += f[k]
        highest = -np.inf
        for k in range(n_classes):
            f[k] = mean[m, k] - power * f[k] / total * var[m, k]
            highest = max(highest, f[k])
        total = 0.0
        for k in range(n_classes):
            total += np.exp(f[k] - highest)
        start, turn = highest + np.log(total) - np.log(power), 1.0
        for _ in range(start_steps):
            _softened(mean[m], start, patches, offset, over_unit, position, begin, last, f, df)
            pull, turn = -f.sum(), -df.sum()
            start += np.log(pull / power) * pull / turn
        width = 1.0 / np.sqrt(turn)
        step = max(min(level_step * np.sqrt(1.0 + sharpest), product_step * width), shortest_step * width)

        own_class = classes[m]
        total, others, product, largest = 0.0, 0.0, 0.0, -np.inf
        first[:] = 0.0
        bend[:] = 0.0  # of f² + ∂f
        for side in range(2):
            for number in range(side, most_levels):
                along = number * step if side == 0 else -number * step
                level, log_stretch = start + along, 0.0
                if more != 0.0:
                    beyond = along / widest - tail_begins
                    size = np.exp(-abs(beyond))
                    level += more * widest * (max(beyond, 0.0) + np.log1p(size))
                    log_stretch = np.log(1.0 + more * ((1.0 if beyond >= 0.0 else size) / (1.0 + size)))
                log_weight = _softened(
                    mean[m], level, patches, offset, over_unit, position, begin, last, f, df
                )
                log_weight += log_stretch - power * level
                if log_weight > largest:
                    shrink = np.exp(largest - log_weight)
                    largest = log_weight
                    total *= shrink
                    others *= shrink
                    product *= shrink
                    for k in range(n_classes):
                        first[k] *= shrink
                        bend[k] *= shrink
                # What is not a number ends here, too.
                if not log_weight >= largest - (negligible if side == 0 else negligible_left):
                    break
                weight = np.exp(log_weight - largest)
                of_others = 0.0
                for k in range(n_classes):
                    if k != own_class:
                        of_others += f[k]
                    first[k] += weight * f[k]
                    bend[k] += weight * (df[k] + f[k] * f[k])
                total += weight
                others += weight * of_others
                product += weight * of_others * f[own_class]
        log_z[m] = largest + np.log(total * step)
        over = 1.0 / total
        sum_of_others = 0.0
        for k in range(n_classes):
            average = over * first[k]
            if k == own_class:
                curvature[m, k] = max(over * (product - average * others), 0.0)
            else:
                slope[m, k] = average
                sum_of_others += average
                curvature[m, k] = max(average * average - over * bend[k], 0.0)
        slope[m, own_class] = (1.0 - power) - sum_of_others


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
