"""The logistic channel, log-odds linear in the score, and its blend with a model of features given labels.

Both need powers of the logistic function averaged over Gaussians: log E[σ(x)^a], x ~ N(mean, var), and its
derivatives. Narrow cavities, which are nearly all once a fit is under way, are summed at a few nodes; what is
too wide or too far out for that is a sum of exponentials. The two agree to 1e-11, so that nothing jumps where
one takes over from the other.

**Sums at a few nodes.** For x = mean + √var t and a step h of t, the trapezoidal sum h Σ φ(jh) f(x_j)
converges faster than any power of h. Two things limit it: the Gaussian itself, by e^(-2π²/h²), and the poles
of the logistic function at x = ±iπ, by e^(π²/2var - 2π²/(h√var)) where they are nearer than the Gaussian's
own limit [Trefethen, Weideman 2014]. So a step serves all variances up to a limit, and half the step those up
to a few times more. Where the variance is small, f is nearly a polynomial over the whole Gaussian. Weights
that match its moments then need not reach into its tails, and 7 to 19 nodes do. Since nodes are equidistant,
e^x is a geometric sequence: two exponentials make all of it, and a node costs a few multiplications and a
division (`kernels.sigmoids`).

**Sums of exponentials**, for any variance, at many times the cost. On either side of x = 0 the function
σ(x)^a is smooth in t = e^-|x| ∈ [0, 1]:

    x > 0:  σ^a = (1+t)^-a,        x < 0:  σ^a = t^a (1+t)^-a.

A polynomial in t that interpolates (1+t)^-a at Chebyshev points converges like (3+√8)^-degree, and each
of its monomials is an exponential e^∓kx, whose Gaussian integral over a half line is a scaled
complementary error function. The result is as accurate in the far tails as in the centre.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from functools import lru_cache, partial
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, expit, log_expit, log_ndtr

from foldless.beliefs import Array, Response
from foldless.channels.base import (
    SMALLEST_VAR,
    MarginChannel,
    ScaleLearner,
    Tempered,
    cast,
    doubles,
    score_dtype,
    through_margin,
)
from foldless.channels.sigmoid_estimators import (
    gauss_hermite_response,
    logistic_fixed_point,
    mixture_response,
    variational_response,
)
from foldless.component import require_between, require_positive
from foldless.kernels import fastest, in_threads
from foldless.kernels.mixtures import tail_table
from foldless.kernels.sigmoids import Rule
from foldless.registry import registered
from foldless.special import SQRT_HALF

# With fewer rows, loading numba takes longer than all iterations together.
LEAST_ROWS_COMPILED = 4096
# Fewer narrow rows than this, among others, take sums of exponentials as well: one way is faster than two.
LEAST_ROWS_APART = 128
# Fewer rows than these are done before another thread has begun.
ROWS_PER_THREAD = 4096
# Standard deviations of the Gaussian on either side that count: the mass beyond is 1e-12.
REACH = 7.0
# An exponential e^kx moves a Gaussian by k √var of its standard deviations, and in the tails slopes and
# curvatures are integrals of exponentials with k up to 2.
FASTEST_TILT = 2.0
# Means beyond this, where squares of σ leave the range of float64, are not for sums of σ itself.
LARGEST_MEAN = 300.0
# Of polynomials in t: about 1e-12 in log_z; coefficients stay below 1e2, so that they cost no more than two
# digits.
DEGREE = 16
# Enough digits that the conversion from nodes to monomials, which loses about `DEGREE` of them, is exact.
COEFFICIENT_DIGITS = 60
# Up to this many standard deviations from zero all integrals are erfcx times one common factor, which
# neither overflows nor loses digits. Rows further out are rare and go through logarithms.
LARGEST_DIRECT = 20.0
# Rows that are evaluated together: their integrals should stay in the cache.
ROWS_AT_ONCE = 512


@registered("channel/logistic")
@dataclass(frozen=True)
class Logistic(ScaleLearner, MarginChannel):
    """p(y | z) = σ(scale y z), σ(x) = 1/(1 + e^-x).

    ``integral`` is how σ is averaged over a Gaussian: "exponential-sums" (accurate everywhere, about
    1e-10; at a few nodes where these do), "variational" (a bound, as published for GAMP), "mixture" (six
    normal cdfs, good where the label is not a surprise), "gauss-hermite" (21 nodes, good for small
    variances).
    """

    scale: float = 1.0
    integral: str = "exponential-sums"

    tunable: ClassVar[tuple[str, ...]] = ("scale",)

    def __post_init__(self) -> None:
        advice = "It is the change of log-odds per unit of score; 1.0 makes scores log-odds."
        require_positive(self, "scale", self.scale, advice)
        if self.integral not in INTEGRALS:
            raise ValueError(
                f"Logistic(integral={self.integral!r}): unknown integral. Choose one of {sorted(INTEGRALS)}; "
                "'exponential-sums' is the accurate default."
            )

    @property
    def exact(self) -> bool:
        return self.integral == "exponential-sums"

    def log_odds(self, mean: Array, var: Array | None) -> Array:
        if var is None:
            return self.scale * mean
        if not self.exact:
            return super().log_odds(mean, var)
        m, v = doubles(mean, var)
        log_tail = log_sigmoid_tail(self.scale * m, self.scale**2 * np.maximum(v, SMALLEST_VAR))
        found = np.copysign(np.log1p(-np.exp(log_tail)) - log_tail, m)
        return found.astype(score_dtype(mean), copy=False)

    def proximal(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        return through_margin(
            partial(_power_proximal, scale=self.scale, power=1.0), labels, cavity_mean, cavity_var
        )

    def _log_scale(self) -> float:
        return float(np.log(self.scale))

    def _with_log_scale(self, log_scale: float) -> Self:
        return self.with_params(scale=float(np.exp(log_scale)))

    def _respond(self, margin: Array, var: Array) -> Response:
        return _in_log_odds(INTEGRALS[self.integral], margin, var, self.scale)

    def _at_margin(self, margin: Array) -> Response:
        return _power_at_margin(margin, self.scale, power=1.0)


@registered("channel/blended")
@dataclass(frozen=True)
class Blended(Tempered, ScaleLearner):
    """σ(a y z)^(1-ω) · exp(ω a (y - label_mean) z / 2), with ω = generative_weight and a = base.scale.

    ω = 0 is the logistic channel; ω = 1 is the part of a Gaussian model of the features that depends on
    the labels (the class-mean difference); its other part is a ridge on the weights, which belongs to the
    prior. ``label_mean``, the mean of the training labels, keeps the linear factor neutral to an intercept
    when the classes are unequal. New labels are predicted with the untempered ``base``.
    """

    base: Logistic = field(default_factory=Logistic)
    generative_weight: float = 0.5
    label_mean: float = 0.0

    scale_name: ClassVar[str] = "base__scale"

    def __post_init__(self) -> None:
        if not isinstance(self.base, Logistic):
            raise TypeError(
                f"Blended(base={self.base!r}): the base must be a Logistic channel, because only its powers "
                "have a closed integral. To allow for wrong labels, wrap the other way round: "
                "FlippedLabels(Blended())."
            )
        if self.base.integral != "exponential-sums":
            raise ValueError(
                f"Blended(base={self.base!r}): powers of the logistic function are integrated by "
                "'exponential-sums' only. Use Blended(Logistic(scale=...)), without another integral."
            )
        advice = "0 is purely discriminative (the logistic channel), 1 purely generative (class means)."
        require_between(self, "generative_weight", self.generative_weight, 0.0, 1.0, advice=advice)
        advice = "It is the mean of the labels coded as -1 and +1; 0 for equal classes."
        require_between(self, "label_mean", self.label_mean, -1.0, 1.0, advice=advice)

    def respond(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        """A linear factor e^(tz) moves a Gaussian: E[f(z) e^(tz)] = e^(t p + t² v/2) E[f] at mean p + t v."""
        of_log_odds = partial(sigmoid_power_response, power=self._power)
        of_margin = partial(_in_log_odds, of_log_odds, scale=self.base.scale)
        return self._shifted(of_margin, cavity_mean, cavity_var, labels)

    def proximal(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        of_margin = partial(_power_proximal, scale=self.base.scale, power=self._power)
        return self._shifted(of_margin, cavity_mean, cavity_var, labels)

    def at_score(self, score: Array, labels: Array) -> Response:
        z, y = doubles(score, labels)
        tilt = self._tilt(y)
        log_z, slope, curvature = _power_at_margin(y * z, self.base.scale, self._power)
        return cast(Response(log_z + tilt * z, y * slope + tilt, curvature), score_dtype(score))

    def _log_scale(self) -> float:
        """The blend, too, is a function of scale * z."""
        return float(np.log(self.base.scale))

    def _with_log_scale(self, log_scale: float) -> Self:
        return self.with_params(base__scale=float(np.exp(log_scale)))

    def _tilt(self, labels: Array) -> Array:
        """t = ω a (y - label_mean) / 2, the slope of the linear factor's logarithm."""
        return 0.5 * self.generative_weight * self.base.scale * (labels - self.label_mean)

    def _shifted(
        self,
        power_response: Callable[[Array, Array], Response],
        cavity_mean: Array,
        cavity_var: Array,
        labels: Array,
    ) -> Response:
        mean, var, y = doubles(cavity_mean, cavity_var, labels)
        var = np.maximum(var, SMALLEST_VAR)
        tilt = self._tilt(y)
        log_linear = tilt * (mean + 0.5 * tilt * var)
        if self._power == 0.0:
            response = Response(log_linear, tilt, np.zeros_like(tilt))
        else:
            log_z, slope, curvature = power_response(y * (mean + tilt * var), var)
            response = Response(log_z + log_linear, y * slope + tilt, curvature)
        return cast(response, score_dtype(cavity_mean))


def _in_log_odds(
    response: Callable[[Array, Array], Response], margin: Array, var: Array, scale: float
) -> Response:
    """The response of a function of scale * m, by the chain rule."""
    if scale == 1.0:
        return response(margin, var)
    log_z, slope, curvature = response(scale * margin, scale**2 * var)
    return Response(log_z, scale * slope, scale**2 * curvature)


def _power_at_margin(margin: Array, scale: float, power: float) -> Response:
    """log σ(scale m)^power at m = margin, and its derivatives."""
    x = scale * margin
    q = expit(-x)
    return Response(power * log_expit(x), power * scale * q, power * scale**2 * q * expit(x))


def _power_proximal(margin: Array, var: Array, scale: float, power: float) -> Response:
    """max_m [power log σ(scale m) - (m - margin)²/2var] and its derivatives in the margin.

    In x = scale m with κ = power scale² var and x₀ = scale margin, the maximum is at x = x₀ + κ t, where
    t = σ(-x). Then slope = power scale t, and with f'' = power scale² t (1 - t) the curvature is
    f''/(1 + var f'').
    """
    kappa = power * scale**2 * var
    x, t = logistic_fixed_point(scale * margin, kappa)
    bend = power * scale**2 * t * expit(x)
    slope = power * scale * t
    log_z = power * log_expit(x) - 0.5 * var * np.square(slope)
    return Response(log_z, slope, bend / (1.0 + var * bend))


# ---------------------------------------------------------------------- averages over Gaussians


def sigmoid_power_response(mean: Array, var: Array, power: float = 1.0) -> Response:
    """log E[σ(x)^a] for x ~ N(mean, var), a = power in (0, 1], and its derivatives in the mean."""
    return _averaged(mean, var, power, "logistic_rows" if power == 1.0 else "power_rows")


def log_sigmoid_tail(mean: Array, var: Array) -> Array:
    """log E[σ(-x)] for x ~ N(|mean|, var): the improbable side, from which the other follows."""
    rows = "tail_rows" if mean.size < LEAST_ROWS_COMPILED else "logistic_rows"
    return _averaged(-np.abs(mean), var, 1.0, rows).log_z


def _averaged(mean: Array, var: Array, power: float, rows: str) -> Response:
    """Narrow cavities by those `kernels.sigmoids`, the others by sums of exponentials."""
    mean, var = doubles(mean, var)
    shape = mean.shape
    mean, var = mean.ravel(), var.ravel()
    # Not `>`: what is not a number must not pass for narrow.
    narrow = (np.abs(mean) <= LARGEST_MEAN) & (var <= rules_of(power)[-1].largest_var)
    if narrow.all():
        out = _at_nodes(mean, var, power, mean.size, rows)
    elif np.count_nonzero(narrow) < LEAST_ROWS_APART:
        out = np.array(exponential_sums_response(mean, var, power))
    else:
        out = np.empty((3, mean.size))
        out[:, ~narrow] = exponential_sums_response(mean[~narrow], var[~narrow], power)
        out[:, narrow] = _at_nodes(mean[narrow], var[narrow], power, mean.size, rows)
    # A power of a probability is below one, and its logarithm is concave: the rest is rounding.
    np.minimum(out[0], 0.0, out=out[0])
    np.maximum(out[2], 0.0, out=out[2])
    return Response(*(field.reshape(shape) for field in out))


@lru_cache
def log_tails() -> Array:
    """The table of `log_sigmoid_tail` for loops over many rows."""
    return tail_table(log_sigmoid_tail)


def _at_nodes(mean: Array, var: Array, power: float, n_rows: int, rows: str) -> Array:
    """Rows that a rule is good for, of so many in all: log_z, slope and curvature, (3, rows)."""
    out = np.zeros((3, mean.size))
    loops = fastest("sigmoids", n_rows >= LEAST_ROWS_COMPILED)
    cuts = np.linspace(0, mean.size, max(mean.size // ROWS_PER_THREAD, 1) + 1).astype(int)
    tasks = [
        (float(power), mean[a:b], var[a:b], rules_of(power), *(field[a:b] for field in out))
        for a, b in pairwise(cuts)
    ]
    in_threads(getattr(loops, rows), tasks)
    return out


# ---------------------------------------------------------------------- a few nodes


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
LOGISTIC_RULES = (*FEW_NODES, _trapezoidal(0.5, 1.3), _trapezoidal(0.375, 2.56), _trapezoidal(0.1875, 11.56))
# Powers need a logarithm and an exponential at every node, so that more nodes than these do not pay.
POWER_RULES = FEW_NODES


def rules_of(power: float) -> tuple[Rule, ...]:
    """The rules for E[σ^power]."""
    return LOGISTIC_RULES if power == 1.0 else POWER_RULES


# ---------------------------------------------------------------------- sums of exponentials


def exponential_sums_response(mean: Array, var: Array, power: float = 1.0) -> Response:
    """log E[σ(x)^a] by sums of exponentials.

    With q = 1 - σ and ⟨f⟩ = E[σ^a f] / E[σ^a], integration by parts gives

        slope = a ⟨q⟩,    curvature = a (1+a) ⟨σ q⟩ - a² ⟨q⟩ ⟨σ⟩.

    All four integrals are sums of positive functions, so both tails keep their relative accuracy.
    """
    mean, var = doubles(mean, var)
    flat_mean, flat_var = mean.ravel(), var.ravel()
    coefficients, exponents = _coefficients(power), np.arange(DEGREE + 2.0)
    out = np.empty((3, flat_mean.size))
    far = np.square(flat_mean) > LARGEST_DIRECT**2 * flat_var
    for integrals, where in ((_half_line_integrals, ~far), (_half_line_integrals_far, far)):
        every = np.flatnonzero(where)
        for start in range(0, every.size, ROWS_AT_ONCE):
            rows = every[start : start + ROWS_AT_ONCE]
            log_factor, values = integrals(flat_mean[rows], flat_var[rows], exponents, exponents + power)
            z, q, sigma, sigma_q = (values @ coefficients).T
            q, sigma, sigma_q = q / z, sigma / z, sigma_q / z
            # A power of a probability is below one, and its logarithm is concave: the rest is rounding.
            out[0, rows] = np.minimum(log_factor + np.log(z), 0.0)
            out[1, rows] = power * q
            out[2, rows] = np.maximum(power * ((1.0 + power) * sigma_q - power * q * sigma), 0.0)
    return Response(*(field.reshape(mean.shape) for field in out))


def _half_line_integrals(
    mean: Array, var: Array, right: Array, left: Array
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """E[e^-kx; x > 0] for k in `right`, then E[e^kx; x < 0] for k in `left`, and the log of a factor.

    With β = mean/√var, b = √var:  E[e^-kx; x > 0] = ½ e^(-β²/2) erfcx((k b - β)/√2), and the left side
    is the same with -β. The factor ½ e^(-β²/2) is left out of the values.
    """
    root_half_var = np.sqrt(0.5 * var)[:, np.newaxis]
    half_beta = 0.5 * mean[:, np.newaxis] / root_half_var
    values = np.hstack([root_half_var * right - half_beta, root_half_var * left + half_beta])
    return -np.square(half_beta[:, 0]) - np.log(2.0), erfcx(values, out=values)


def _half_line_integrals_far(
    mean: Array, var: Array, right: Array, left: Array
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The same integrals and factor where mean/√var is large: in logs, relative to the largest."""
    logs = np.hstack([_log_half_line(mean, var, right), _log_half_line(-mean, var, left)])
    log_factor = np.maximum(logs[:, 0], logs[:, right.size])
    return log_factor, np.exp(logs - log_factor[:, None])


def _log_half_line(mean: Array, var: Array, exponents: Array) -> NDArray[np.float64]:
    """log E[e^-kx; x > 0] for x ~ N(mean, var) and every exponent k."""
    std = np.sqrt(var)
    beta = (mean / std)[:, None]
    excess = exponents * std[:, None] - beta
    # The boundary dominates if the tilted mean is negative, the tilted bulk if it is positive.
    at_boundary = -0.5 * np.square(beta) + np.log(0.5 * erfcx(SQRT_HALF * np.maximum(excess, 0.0)))
    in_bulk = exponents * (0.5 * exponents * var[:, None] - mean[:, None])
    in_bulk += log_ndtr(np.maximum(-excess, 0.0))
    return np.where(excess >= 0.0, at_boundary, in_bulk)


@lru_cache(maxsize=64)
def _coefficients(power: float) -> NDArray[np.float64]:
    """What the half-line integrals are multiplied with to give E[σ^a {1, q, σ, σq}]: one column each.

    Rows are the right exponents 0 ... DEGREE+1, then the left ones a + 0 ... a + DEGREE+1. With the
    polynomials c_j(t) ≈ (1+t)^(-a-j):

        x > 0:  c_0,     t c_1,     c_1,           t c_2
        x < 0:  t^a c_0, t^a c_1,   t^(a+1) c_1,   t^(a+1) c_2.
    """
    c0, c1, c2 = (_monomial_coefficients(power + j) for j in range(3))
    size = DEGREE + 2
    table = np.zeros((2 * size, 4))
    this, next_one = slice(0, DEGREE + 1), slice(1, DEGREE + 2)
    right, left = table[:size], table[size:]
    right[this, 0], right[next_one, 1], right[this, 2], right[next_one, 3] = c0, c1, c1, c2
    left[this, 0], left[this, 1], left[next_one, 2], left[next_one, 3] = c0, c1, c1, c2
    table.setflags(write=False)
    return table


def _monomial_coefficients(exponent: float) -> NDArray[np.float64]:
    """Polynomial in t that interpolates (1+t)^-exponent at the Chebyshev-Lobatto points of [0, 1].

    The end points are among the nodes, so the limits x → ±∞ are exact. Newton's divided differences,
    multiplied out in long decimals, because monomials are a badly conditioned basis.
    """
    nodes = 0.5 - 0.5 * np.cos(np.pi * np.arange(DEGREE + 1) / DEGREE)
    with localcontext() as context:
        context.prec = COEFFICIENT_DIGITS
        t = [Decimal(float(node)) for node in nodes]
        difference = [(1 + node) ** -Decimal(exponent) for node in t]
        for order in range(1, DEGREE + 1):
            for i in range(DEGREE, order - 1, -1):
                difference[i] = (difference[i] - difference[i - 1]) / (t[i] - t[i - order])
        # Horner in Newton's form: p <- p (t - t_i) + difference_i.
        polynomial = [difference[DEGREE]]
        for i in range(DEGREE - 1, -1, -1):
            shifted = [Decimal(0), *polynomial]
            scaled = [*(-t[i] * c for c in polynomial), Decimal(0)]
            polynomial = [a + b for a, b in zip(shifted, scaled, strict=True)]
            polynomial[0] += difference[i]
        return np.array([float(c) for c in polynomial])


INTEGRALS: dict[str, Callable[[Array, Array], Response]] = {
    "exponential-sums": sigmoid_power_response,
    "variational": variational_response,
    "mixture": mixture_response,
    "gauss-hermite": gauss_hermite_response,
}
