"""The softmax likelihood averaged over independent Gaussian scores, as one integral over a Gumbel level.

With a = power in (0, 1] and Γ(a) = ∫ t^(a-1) e^-t dt, t = e^-u Σ_k e^(z_k),

    e^(z_y) / (Σ_k e^(z_k))^a  =  1/Γ(a) ∫ e^(-a u) e^(z_y) Π_k exp(-e^(z_k - u)) du,

a product over classes inside a single integral. (For a = 1 this is the race of Gumbel noises that the
largest perturbed score wins; smaller powers are the blended likelihood.) Averages over z_k ~ N(p_k, q_k) go
inside the product, and the factor e^(z_y) moves the mean of class y by q_y. All that remains is one function,

    log F(x, q),    F = E[exp(-e^(x + √q ξ))],    ξ ~ N(0, 1),

which `softened` has in a table, with its derivatives. log_z is the log of an integral over u, and its
derivatives are averages over u: for D classes the cost is D x (levels) where a grid would need (nodes)^D.

The integral is a trapezoidal sum of an analytic function, which converges exponentially, at a rate set by the
imaginary distance π/2 within which exp(-e^z) stays bounded. The integrand is log-concave: from a level near
its mode, the sum goes to the right and then to the left until terms are negligible, which need not be known
beforehand. `gumbel_loops` are the same sums compiled.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln

from foldless import fast
from foldless.beliefs import Array, Response
from foldless.channels.softened import WIDEST, Softened, Widths, as_arguments

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
# Newton steps to where the sum begins. The mode is found in six; the sum does not need it.
START_STEPS = 1
# Scores handled at a time by NumPy; a dozen arrays of them should stay in the cache.
PIECE = 1 << 12
# And so many levels at a time, at most.
MOST_AT_ONCE = 6
# With fewer scores, loading numba takes longer than all iterations together.
LEAST_SCORES_COMPILED = 1 << 12
# Fewer scores than these are done before another thread has begun.
SCORES_PER_THREAD = 1 << 12


def gumbel_response(mean: Array, var: Array, classes: NDArray[np.intp], power: float = 1.0) -> Response:
    """log E[e^(z_y) / (Σ e^(z_k))^power], y = classes, for independent scores; slopes, own curvatures.

    mean and var are (samples, D); log_z is (samples,).
    """
    return gumbel_responses(mean, var, classes, (power,))[0]


def gumbel_responses(
    mean: Array, var: Array, classes: NDArray[np.intp], powers: tuple[float, ...]
) -> list[Response]:
    """The same for several powers, the smallest first: nearly all of the work is the factors they share."""
    if var.max(initial=0.0) > 1.01 * WIDEST:
        return [_in_larger_units(mean, var, classes, power) for power in powers]
    var = np.minimum(var, WIDEST)
    n_samples, n_classes = mean.shape
    shape = (n_samples, len(powers), n_classes)
    out = Response(np.empty(shape[:2]), np.empty(shape), np.empty(shape))
    own = np.arange(n_samples), classes
    shifted = mean.copy()
    shifted[own] += var[own]
    loops = _loops_for(mean.size)
    if loops is not None:
        exponents = np.array(powers, dtype=np.float64)
        var, table, rule = np.ascontiguousarray(var), as_arguments(), _rule()
        tasks = [
            (shifted[rows], var[rows], classes[rows], exponents, table, rule, *(part[rows] for part in out))
            for rows in _pieces(n_samples, max(SCORES_PER_THREAD // n_classes, 1))
        ]
        fast.in_threads(loops.response_rows, tasks)
    else:
        for rows in _pieces(n_samples, max(PIECE // n_classes, 1)):
            found = _over_levels(shifted[rows], var[rows], classes[rows], powers)
            for number, response in enumerate(found):
                for whole, values in zip(out, response, strict=True):
                    whole[rows, number] = values
    out.log_z[...] += (mean[own] + 0.5 * var[own])[:, np.newaxis] - gammaln(powers)
    return [
        Response(*(np.ascontiguousarray(part[:, number]) for part in out)) for number in range(len(powers))
    ]


def _in_larger_units(mean: Array, var: Array, classes: NDArray[np.intp], power: float) -> Response:
    """Scores so uncertain that the softmax is a step, which has no unit: they are counted in larger ones.

    (The shift of class y by q_y would be so many standard deviations that no range of levels is found.) Of a
    power the exponential e^((1 - a) z_y) remains, which no step could explain; what is beyond all sense is
    taken as only just so.
    """
    if power < 1.0:
        return gumbel_response(mean, np.minimum(var, WIDEST), classes, power)
    unit = np.sqrt(np.maximum(var.max(axis=1, keepdims=True) / WIDEST, 1.0))
    log_z, slope, curvature = gumbel_response(mean / unit, var / unit**2, classes)
    return Response(log_z, slope / unit, curvature / unit**2)


def _rule() -> tuple[float, ...]:
    """How levels are summed over, as compiled loops take it."""
    ends = NEGLIGIBLE, NEGLIGIBLE_LEFT, float(START_STEPS), float(MOST_LEVELS)
    return (LEVEL_STEP, PRODUCT_STEP, SHORTEST_STEP, TAIL_BEGINS, TAIL_FALLS, *ends)


def _loops_for(n_scores: int) -> Any:
    if fast.whole(n_scores) < LEAST_SCORES_COMPILED:
        return None
    return fast.loops("foldless.channels.gumbel_loops")


def _pieces(n_rows: int, at_once: int) -> list[slice]:
    cuts = np.linspace(0, n_rows, max(-(-n_rows // at_once), 1) + 1).astype(int)
    return [slice(begin, end) for begin, end in pairwise(cuts)]


def _over_levels(
    mean: Array, var: Array, classes: NDArray[np.intp], powers: tuple[float, ...]
) -> list[Response]:
    """The trapezoidal sum over levels, from the start to the right and then to the left."""
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
            factors = _Factors.of(
                inside.at_levels(mean[rows, np.newaxis] - level[:, :, np.newaxis]), classes[rows]
            )
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
    return [of_power.response(step, classes, power) for of_power, power in zip(sums, powers, strict=True)]


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
        n_rows = shape[0]
        return cls(
            np.full(n_rows, -np.inf),
            *(np.zeros(n_rows) for _ in range(3)),
            *(np.zeros(shape) for _ in range(2)),
        )

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


def gumbel_log_proba(mean: Array, var: Array) -> Array:
    """log E[softmax_k] of all classes at once, (samples, D).

    e^(z_k - u) exp(-e^(z_k - u)) is minus the derivative of exp(-e^(z_k - u)) in z_k, so that class k has the
    probability  ∫ (-f_k) Π F du,  f = ∂ log F, and all of them the same factors. Together they integrate a
    derivative from 0 to 1.
    """
    if var.max(initial=0.0) > WIDEST:
        unit = np.sqrt(np.maximum(var.max(axis=1, keepdims=True) / WIDEST, 1.0))
        mean, var = mean / unit, np.minimum(var / unit**2, WIDEST)
    out = np.full(mean.shape, -np.inf)
    loops = _loops_for(mean.size)
    if loops is not None:
        mean, var, table = np.ascontiguousarray(mean), np.ascontiguousarray(var), as_arguments()
        levels = _levels_of_the_largest(mean, var)
        tasks = [
            (mean[rows], var[rows], table, *(part[rows] for part in levels), out[rows])
            for rows in _pieces(mean.shape[0], max(SCORES_PER_THREAD // mean.shape[1], 1))
        ]
        fast.in_threads(loops.log_proba_rows, tasks)
    else:
        for rows in _pieces(mean.shape[0], max(PIECE // mean.shape[1], 1)):
            _add_probabilities(mean[rows], var[rows], out[rows])
    return np.asarray(out - np.logaddexp.reduce(out, axis=1, keepdims=True))


def _levels_of_the_largest(mean: Array, var: Array) -> tuple[Array, Array, NDArray[np.int64]]:
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


def _add_probabilities(mean: Array, var: Array, log_proba: Array) -> None:
    lowest, step, n_levels = _levels_of_the_largest(mean, var)
    rows, widths = np.arange(lowest.size), Widths.of(var)
    for number in range(int(n_levels.max(initial=0))):
        if np.any(n_levels[rows] <= number):
            going = n_levels[rows] > number
            rows, widths = rows[going], widths.of_rows(going)
        level = lowest[rows] + number * step[rows]
        log_f, f, _ = widths.at(mean[rows] - level[:, np.newaxis])
        with np.errstate(divide="ignore"):
            log_terms = log_f.sum(axis=1, keepdims=True) + np.log(-f)
        log_proba[rows] = np.logaddexp(log_proba[rows], log_terms)
