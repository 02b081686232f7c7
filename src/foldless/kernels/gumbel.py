"""The sums of `channels.multinomial` over levels, two forms of each; the formulas are there.

NumPy takes a piece of rows, all their classes and some levels at a time, and drops the rows that have ended.
The loops go row by row, without arrays of levels, and look up `softened` for one row as `Widths` for many.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from foldless.beliefs import Array, Response
from foldless.kernels import kernel
from foldless.kernels.softened import WIDEST, Softened, Widths

# Scores handled at a time by NumPy; a dozen arrays of them should stay in the cache.
PIECE = 1 << 12
# And so many levels at a time, at most.
MOST_AT_ONCE = 6
# The aim is 1e-3 in slopes times standard deviations, a tenth of what anything downstream could notice:
# message passing damps and iterates. An integrand this far below its maximum (in logarithms) is negligible.
NEGLIGIBLE = 10.0
# And on the left, where derivatives of the factors are large.
NEGLIGIBLE_LEFT = 12.0
# Steps of the sum over levels, in units of the sharpest factor's width. For sharp factors the errors are
# those of the Gamma function, |Γ(1 + 2πi/step)| ~ 2e-6 in log_z and |Γ(3 + 2πi/step)| ~ 2e-4 in curvatures.
LEVEL_STEP = 0.65
# The product of many wide factors is narrower than any of them. In units of its own standard deviation; for a
# Gaussian, errors would be 2 exp(-2π²/step²), and what there are is of skewness.
PRODUCT_STEP = 0.9
# One sharp factor among wide ones would ask for hundreds of levels. It is met by few samples, in passing, and
# steps of this many standard deviations of the integrand cost it digits, not its sense.
SHORTEST_STEP = 1 / 6
# Integrands are narrower than this many steps on either side, but for a few that are lost in a tail.
MOST_LEVELS = 300
# Where the tail on the right begins, in widths of the widest factor.
TAIL_BEGINS = 5.0
# And how fast it falls there, whatever the power, in the variable of the sum.
TAIL_FALLS = 4.0
# Of a sum of numbers relative to its largest weight; below, terms may have left the range of float64.
SMALLEST_SUM = 1e-280
# Scores are no more certain than this.
SMALLEST_VAR = 1e-30
# Newton steps to where the sum begins. The mode is found in six; the sum does not need it.
START_STEPS = 1


def response_rows(
    mean: Array, var: Array, classes: NDArray[np.intp], powers: Array, table: Any, log_z: Array, slope: Array,
    curvature: Array,
) -> None:  # fmt: skip
    """The trapezoidal sum over levels, from the start to the right and then to the left.

    `powers` rise; log_z, slope and curvature have an axis of powers after that of rows. `table` is that of
    `softened`, for the loops.
    """
    every, widths = np.arange(mean.shape[0]), Widths.of(var)
    # Integrands of larger powers lie to the left, and may be more bent.
    start, bend = _start_of_levels(mean, var, widths, powers[0])
    for power in powers[1:]:
        bend = np.maximum(bend, _start_of_levels(mean, var, widths, power)[1])
    step, widest = _step_of_levels(var, bend), np.sqrt(1.0 + var.max(axis=1))
    sums = [_Sums.none(mean.shape) for _ in powers]
    # With few rows, a step in Python takes longer than its sums, so several levels are taken in one.
    at_once = int(np.clip(PIECE // max(mean.size, 1), 1, MOST_AT_ONCE))
    for side, begin, negligible in ((1.0, 0, NEGLIGIBLE), (-1.0, 1, NEGLIGIBLE_LEFT)):
        rows, inside = every, widths
        for number in range(begin, MOST_LEVELS, at_once):
            along = np.multiply.outer(side * step[rows], np.arange(number, number + at_once))
            level, stretch = _stretched(along, start[rows, np.newaxis], widest[rows, np.newaxis], powers[0])
            at_levels = inside.of_rows(np.s_[:, np.newaxis])
            softened = at_levels.at(mean[rows, np.newaxis] - level[:, :, np.newaxis])
            factors = _Factors.of(softened, classes[rows])
            log_product = factors.log_product + np.log(stretch)
            going = np.zeros(level.shape, dtype=bool)
            log_weights = [log_product - power * level for power in powers]
            for log_weight, of_power in zip(log_weights, sums, strict=True):
                largest = np.maximum(log_weight, of_power.largest[rows, np.newaxis])
                going |= log_weight >= np.maximum.accumulate(largest, axis=1) - negligible
            # Up to the first that is negligible, whatever comes after it.
            going = np.logical_and.accumulate(going, axis=1)
            for log_weight, of_power in zip(log_weights, sums, strict=True):
                of_power.add(np.where(going, log_weight, -np.inf), factors, rows)
            if not going[:, -1].all():
                rows, inside = rows[going[:, -1]], inside.of_rows(going[:, -1])
                if rows.size == 0:
                    break
    for n, (of_power, power) in enumerate(zip(sums, powers, strict=True)):
        log_z[:, n], slope[:, n], curvature[:, n] = of_power.response(step, classes, power)


class _Factors(NamedTuple):
    """Of all classes, at several levels of some rows: what weights are made of, and what they average."""

    log_product: Array  # (rows, levels)
    first: Array  # f_k, (rows, levels, D)
    second: Array  # ∂f_k + f_k²
    own: Array  # f_y, (rows, levels)
    others: Array  # Σ_(k≠y) f_k

    @classmethod
    def of(cls, softened: Softened, classes: NDArray[np.intp]) -> _Factors:
        log_f, f, df = softened
        df += f * f
        at = np.arange(classes.size), slice(None), classes
        own = f[at]
        # Not all less one's own, which would cancel.
        f[at] = 0.0
        others = f.sum(axis=2)
        f[at] = own
        return cls(log_f.sum(axis=2), f, df, own, others)


class _Sums(NamedTuple):
    """Of weights over levels, and of what is averaged under them, relative to the largest weight so far."""

    largest: Array  # its logarithm
    total: Array
    others: Array  # of Σ_(k≠y) f_k
    product: Array  # and of its product with f_y
    first: Array  # of f_k, (rows, D)
    second: Array  # of ∂f_k + f_k²

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> _Sums:
        of_rows, of_scores = [np.zeros(shape[0]) for _ in range(3)], [np.zeros(shape) for _ in range(2)]
        return cls(np.full(shape[0], -np.inf), *of_rows, *of_scores)

    def add(self, log_weight: Array, factors: _Factors, rows: NDArray[np.intp]) -> None:
        """Levels of some rows with weights (rows, levels)."""
        largest = np.maximum(self.largest[rows], log_weight.max(axis=1))
        higher = np.flatnonzero(largest > self.largest[rows])
        if higher.size:
            # What has been summed becomes smaller where a weight is larger than all before.
            shrunk = np.exp(self.largest[rows[higher]] - largest[higher])
            self.largest[rows[higher]] = largest[higher]
            for part in self[1:]:
                part[rows[higher]] *= shrunk if part.ndim == 1 else shrunk[:, np.newaxis]
        weight = np.exp(log_weight - largest[:, np.newaxis])
        self.total[rows] += weight.sum(axis=1)
        self.first[rows] += np.einsum("ml,mlk->mk", weight, factors.first)
        self.second[rows] += np.einsum("ml,mlk->mk", weight, factors.second)
        of_others = weight * factors.others
        self.others[rows] += of_others.sum(axis=1)
        self.product[rows] += np.einsum("ml,ml->m", of_others, factors.own)

    def response(self, step: Array, classes: NDArray[np.intp], power: float) -> Response:
        """With ⟨·⟩ the average under the weights, and f = ∂ log F:

            slope_k = [k = y] + ⟨f_k⟩,    curvature_k = -⟨∂f_k⟩ - Var f_k.

        Shifting all scores changes log_z by 1 - power times the shift, so slopes sum to 1 - power and the
        curvatures of any row of the full matrix, with off-diagonal entries -Cov(f_k, f_j), to zero. The own
        class is computed from these sums: for a sample that is classified well, 1 + ⟨f_y⟩ would cancel.
        """
        own = np.arange(classes.size), classes
        total = np.where(self.total > 0, self.total, np.nan)  # without a single finite term
        slope = self.first / total[:, np.newaxis]
        curvature = slope * slope - self.second / total[:, np.newaxis]
        curvature[own] = (self.product - slope[own] * self.others) / total
        slope[own] = 0.0
        slope[own] = (1.0 - power) - slope.sum(axis=1)
        return Response(self.largest + np.log(total * step), slope, np.maximum(curvature, 0.0))


def _start_of_levels(mean: Array, var: Array, widths: Widths, power: float) -> tuple[Array, Array]:
    """A level near the mode, where Σ_k -f_k = power, and how much the log integrand is bent there.

    By Newton's method for the logarithm of the sum. A class with the share a_k of all pulls has its mode
    about where Laplace's method says, at p_k - a_k q_k - log a_k: first with all of them, then with its share
    in a softmax of that.
    """
    alone = mean - power * var
    share = power * np.exp(alone - np.logaddexp.reduce(alone, axis=1, keepdims=True))
    level = np.logaddexp.reduce(mean - share * var, axis=1) - np.log(power)
    bend = np.ones_like(level)
    for _ in range(START_STEPS):
        _, f, df = widths.at(mean - level[:, np.newaxis])
        pull, bend = -f.sum(axis=1), -df.sum(axis=1)
        level = level + np.log(pull / power) * pull / bend
    return level, bend


def _step_of_levels(var: Array, bend: Array) -> Array:
    width = 1.0 / np.sqrt(bend)
    step = np.minimum(LEVEL_STEP * np.sqrt(1.0 + var.min(axis=1)), PRODUCT_STEP * width)
    return np.maximum(step, SHORTEST_STEP * width)


def _stretched(along: Array, start: Array, widest: Array, power: float) -> tuple[Array, Array]:
    """Levels u(v) and du/dv: v is u shifted, but stretched on the right, where e^(-power u) falls slowly.

    So many widths of the widest factor from the mode the integrand is that and little else.
    """
    more = TAIL_FALLS / power - 1.0
    beyond = along / widest - TAIL_BEGINS
    return start + along + more * widest * np.logaddexp(0.0, beyond), 1.0 + more * expit(beyond)


def levels_of_the_largest(mean: Array, var: Array) -> tuple[Array, Array, NDArray[np.int64]]:
    """The lowest level, the step and the number of levels.

    The level is now the largest of D perturbed scores: no lower than any of them, and hardly higher than
    all, each a Gaussian plus Gumbel noise with the quantiles below.
    """
    reach = np.sqrt(2 * NEGLIGIBLE * var)
    lowest = (mean - reach).max(axis=1) - np.log(NEGLIGIBLE)
    highest = (mean + reach).max(axis=1) + NEGLIGIBLE + np.log(mean.shape[1])
    # Of D Gaussians the largest varies less than any of them.
    step = _step_of_levels(var, np.log(mean.shape[1]) / (1.0 + var.min(axis=1)))
    number = np.clip(np.ceil((highest - lowest) / step), 1, MOST_LEVELS)
    return lowest, (highest - lowest) / number, number.astype(np.int64) + 1


def log_proba_rows(mean: Array, var: Array, table: Any, log_proba: Array) -> None:
    """log_proba (samples, D), which begins at -∞, by the sums over levels of `gumbel_log_proba`."""
    lowest, step, n_levels = levels_of_the_largest(mean, var)
    rows, widths = np.arange(lowest.size), Widths.of(var)
    most = int(n_levels.max(initial=0))
    # With few rows, a step in Python takes longer than its sums, so many levels are taken in one.
    at_once = int(np.clip(PIECE // max(mean.size, 1), 1, max(most, 1)))
    for begin in range(0, most, at_once):
        if np.any(n_levels[rows] <= begin):
            going = n_levels[rows] > begin
            rows, widths = rows[going], widths.of_rows(going)
        number = np.arange(begin, min(begin + at_once, most))
        level = lowest[rows, np.newaxis] + np.multiply.outer(step[rows], number)
        at_levels = widths.of_rows(np.s_[:, np.newaxis])
        log_f, f, _ = at_levels.at(mean[rows, np.newaxis] - level[:, :, np.newaxis])
        log_weight = np.where(number < n_levels[rows, np.newaxis], log_f.sum(axis=2), -np.inf)
        with np.errstate(divide="ignore"):
            log_terms = np.log(np.negative(f, out=f), out=f)
        log_terms += log_weight[:, :, np.newaxis]
        log_proba[rows] = np.logaddexp(log_proba[rows], np.logaddexp.reduce(log_terms, axis=1))
    log_proba -= np.logaddexp.reduce(log_proba, axis=1, keepdims=True)


# ---------------------------------------------------------------------- loops


@kernel(inline="always")
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


@kernel(inline="always")
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


@kernel(inline="always")
def _start(
    mean: Array, var: Array, power: float, patches: Array, offset: float, over_unit: Array,
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
    for _ in range(START_STEPS):
        _softened(mean, level, patches, offset, over_unit, position, begin, last, f, df)
        pull, turn = -f.sum(), -df.sum()
        level += np.log(pull / power) * pull / turn
    return level, turn


@kernel(instead_of=response_rows)
def _response_rows_in_loops(
    mean: Array, var: Array, classes: Any, powers: Array, table: Any,
    log_z: Array, slope: Array, curvature: Array,
) -> None:  # fmt: skip
    patches, begins, smallest_width, width_step, score_step, left_end = table
    n_classes, n_powers = mean.shape[1], powers.size
    offset = left_end / score_step
    more = TAIL_FALLS / powers[0] - 1.0
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
            mean[m], var[m], powers[0], patches, offset, over_unit, position, begin, last, f, df
        )
        for n in range(1, n_powers):
            _, other = _start(
                mean[m], var[m], powers[n], patches, offset, over_unit, position, begin, last,
                f, df,
            )  # fmt: skip
            turn = max(turn, other)
        width = 1.0 / np.sqrt(turn)
        step = max(min(LEVEL_STEP * np.sqrt(1.0 + sharpest), PRODUCT_STEP * width), SHORTEST_STEP * width)

        own_class = classes[m]
        total[:], others[:], product[:], largest[:] = 0.0, 0.0, 0.0, -np.inf
        first[:], bend[:] = 0.0, 0.0
        for side in range(2):
            for number in range(side, MOST_LEVELS):
                along = number * step if side == 0 else -number * step
                beyond = along / widest - TAIL_BEGINS
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
                    if log_weight >= largest[n] - (NEGLIGIBLE if side == 0 else NEGLIGIBLE_LEFT):
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


@kernel(inline="always")
def _pulls(
    mean: Array, level: float, step: float, patches: Array, offset: float, over_unit: Array, position: Array,
    begin: Any, last: Any, pull: Array, size: Array, fall: Array,
) -> float:  # fmt: skip
    """`_softened` without second derivatives: the sum of -log F, and -∂ log F of each class.

    Levels rise by `step`. Left of the table -log F is an exponential of the level: from there on, `fall` is
    its ratio from one level to the next, and before, zero.
    """
    for k in range(mean.size):
        if fall[k] > 0.0:
            continue
        s = (mean[k] - level) * over_unit[k] - offset
        inside = min(s, last[k] + 1.0) if s > 0.0 else 0.0
        cell = min(int(inside), last[k])
        along = inside - cell
        row = np.uint64(begin[k] + cell)
        at = position[k]
        value, slope = 0.0, 0.0
        for back in range(6):
            power = 5 - back
            slope = slope * along + value
            value = value * along + (
                patches[row, power] + at * (patches[row, power + 6] + at * patches[row, power + 12])
            )
        size[k] = value + slope * (s - inside)
        pull[k] = slope * over_unit[k]
    # Apart, since a call in the loop above would make it spill all it has.
    total = 0.0
    for k in range(mean.size):
        if fall[k] > 0.0:
            size[k] *= fall[k]
            pull[k] *= fall[k]
        else:
            if (mean[k] - level) * over_unit[k] < offset:
                fall[k] = np.exp(-step * pull[k])
            size[k] = np.exp(size[k])
            pull[k] *= size[k]
        total += size[k]
    return total


@kernel(inline="always")
def _levels(mean: Array, var: Array) -> tuple[float, float, int]:
    """`levels_of_the_largest`, for one row."""
    lowest, highest, sharpest = -np.inf, -np.inf, np.inf
    for k in range(mean.size):
        reach = np.sqrt(2 * NEGLIGIBLE * var[k])
        lowest, highest = max(lowest, mean[k] - reach), max(highest, mean[k] + reach)
        sharpest = min(sharpest, 1.0 + var[k])
    lowest -= np.log(NEGLIGIBLE)
    highest += NEGLIGIBLE + np.log(mean.size)
    width = np.sqrt(sharpest / np.log(mean.size))
    step = max(min(LEVEL_STEP * np.sqrt(sharpest), PRODUCT_STEP * width), SHORTEST_STEP * width)
    number = min(max(np.ceil((highest - lowest) / step), 1.0), float(MOST_LEVELS))
    return lowest, (highest - lowest) / number, int(number) + 1


@kernel(inline="always")
def _summed(
    mean: Array, lowest: float, step: float, n_levels: int, patches: Array, offset: float, over_unit: Array,
    position: Array, begin: Any, last: Any, pull: Array, sizes: Array, fall: Array, total: Array,
) -> float:  # fmt: skip
    """Sums over levels of one row, relative to the exponential of minus what is returned."""
    # That is the smallest sum so far, which falls level by level, and towards the end is zero.
    least = np.inf
    total[:], fall[:] = 0.0, 0.0
    for number in range(n_levels):
        size = _pulls(
            mean, lowest + number * step, step, patches, offset, over_unit, position, begin, last, pull,
            sizes, fall,
        )  # fmt: skip
        if size < least:
            shrink = np.exp(size - least)
            least = size
            for k in range(mean.size):
                total[k] = total[k] * shrink + pull[k]
        else:
            weight = np.exp(least - size)
            for k in range(mean.size):
                total[k] += weight * pull[k]
    return least


@kernel(instead_of=log_proba_rows)
def _log_proba_rows_in_loops(mean: Array, var: Array, table: Any, log_proba: Array) -> None:
    patches, begins, smallest_width, width_step, score_step, left_end = table
    n_classes = mean.shape[1]
    offset = left_end / score_step
    over_unit, position = np.empty(n_classes), np.empty(n_classes)
    begin, last = np.empty(n_classes, np.int64), np.empty(n_classes, np.int64)
    pull, sizes, fall = np.empty(n_classes), np.empty(n_classes), np.empty(n_classes)
    total = np.empty(n_classes)
    for m in range(mean.shape[0]):
        _place(var[m], begins, smallest_width, width_step, score_step, over_unit, position, begin, last)
        lowest, step, n_levels = _levels(mean[m], var[m])
        least = _summed(
            mean[m], lowest, step, n_levels, patches, offset, over_unit, position, begin, last, pull, sizes,
            fall, total,
        )  # fmt: skip
        for k in range(n_classes):
            if total[k] > SMALLEST_SUM:
                log_proba[m, k] = np.log(total[k]) - least
            else:
                # A class so improbable that the numbers do not reach as far as their logarithms.
                fall[:] = 0.0
                for number in range(n_levels):
                    level = lowest + number * step
                    size = _pulls(
                        mean[m], level, step, patches, offset, over_unit, position, begin, last, pull,
                        sizes, fall,
                    )  # fmt: skip
                    log_proba[m, k] = np.logaddexp(log_proba[m, k], np.log(pull[k]) - size)
        log_proba[m] -= np.log(total.sum()) - least


@kernel(fastmath={"contract"})
def mixture_rows(
    means: Array, variances: Array, mean_at: Any, var_at: Any, intercept: Array, own_var: Array,
    factor: Array, flip: Array, weight: Array, table: Any, proba: Array,
) -> None:  # fmt: skip
    """`mixtures.mixture_rows` of any number of classes, which have intercepts of their own: (parts, D)."""
    patches, begins, smallest_width, width_step, score_step, left_end = table
    n_classes = proba.shape[1]
    offset = left_end / score_step
    over_unit, position = np.empty(n_classes), np.empty(n_classes)
    begin, last = np.empty(n_classes, np.int64), np.empty(n_classes, np.int64)
    mean, var, total = np.empty(n_classes), np.empty(n_classes), np.empty(n_classes)
    pull, sizes, fall = np.empty(n_classes), np.empty(n_classes), np.empty(n_classes)
    for i in range(proba.shape[0]):
        proba[i] = 0.0
        for part in range(weight.size):
            highest, widest, at = -np.inf, SMALLEST_VAR, var_at[part]
            for k in range(n_classes):
                mean[k] = intercept[part, k]
                if mean_at[part] >= 0:
                    mean[k] += means[i, mean_at[part] + k]
                highest = max(highest, mean[k])
                if at >= 0:
                    var[k] = max(factor[part] * (variances[i, at + k] + own_var[part, k]), SMALLEST_VAR)
                    widest = max(widest, var[k])
            if at < 0:
                for k in range(n_classes):
                    total[k] = np.exp(mean[k] - highest)
            # Not `>`: what is not a number must not pass for narrow.
            elif not (widest <= WIDEST and np.abs(highest) < np.inf):
                total[:] = np.nan
            else:
                _place(var, begins, smallest_width, width_step, score_step, over_unit, position, begin, last)
                lowest, step, n_levels = _levels(mean, var)
                _summed(
                    mean, lowest, step, n_levels, patches, offset, over_unit, position, begin, last, pull,
                    sizes, fall, total,
                )  # fmt: skip
            floor = flip[part] / (n_classes - 1)
            share = weight[part] * (1.0 - n_classes * floor) / total.sum()
            for k in range(n_classes):
                proba[i, k] += weight[part] * floor + share * total[k]
        for k in range(n_classes):
            # Such sums have lost terms to underflow.
            if not proba[i, k] > SMALLEST_SUM:
                proba[i] = np.nan
                break
