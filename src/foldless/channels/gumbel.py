"""The softmax likelihood averaged over independent Gaussian scores, as one integral over a Gumbel level.

With a = power in (0, 1] and Γ(a) = ∫ t^(a-1) e^-t dt, t = e^-u Σ_k e^(z_k),

    e^(z_y) / (Σ_k e^(z_k))^a  =  1/Γ(a) ∫ e^(-a u) e^(z_y) Π_k exp(-e^(z_k - u)) du,

a product over classes inside a single integral. (For a = 1 this is the race of Gumbel noises that the
largest perturbed score wins; smaller powers are the blended likelihood.) Averages over z_k ~ N(p_k, q_k) go
inside the product, and the factor e^(z_y) moves the mean of class y by q_y. All that remains is one function,

    log F(x, q),    F = E[exp(-e^(x + √q ξ))],    ξ ~ N(0, 1),

the Laplace transform of the lognormal distribution, which `log_softened` gives with its derivatives. log_z is
the log of an integral over u, and its derivatives are averages over u: for D classes the cost is
D x (levels) x (nodes) where a grid would need (nodes)^D.

Both integrals are trapezoidal sums of analytic functions over the range where the integrand is not
negligible: they converge exponentially, at a rate set by the imaginary distance π/2 within which exp(-e^z)
stays bounded. The range is found from Laplace's approximation of F [Asmussen, Jensen, Rojas-Nandayapa 2016]
with the Lambert function w of q e^x:  log F ≈ -(w² + 2w)/2q - ½ log(1 + w).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal
from scipy.special import erfcx, expit, gammaln

from foldless.beliefs import Array, Response
from foldless.special import SQRT_2_OVER_PI, SQRT_HALF

# The aim is 1e-3 in slopes times standard deviations, a tenth of what anything downstream could notice:
# message passing damps and iterates. An integrand this far below its maximum (in logarithms) is negligible.
NEGLIGIBLE = 9.0
# Steps of the sum over levels, in units of the sharpest factor's width. For sharp factors the errors are
# those of the Gamma function, |Γ(1 + 2πi/step)| ~ 1e-5 in log_z and |Γ(3 + 2πi/step)| ~ 1e-3 in curvatures.
LEVEL_STEP = 0.68
# Numbers of levels are multiples of this, so that samples can be handled together.
LEVEL_BATCH = 6
# One sharp factor among wide ones would ask for hundreds of levels. It is met by few samples, in passing, and
# coarser steps cost it digits, not its sense.
MOST_BATCHES = 12
# Up to this variance, Laplace's approximation of F with its first correction is as good as a sum.
SMALL_VAR = 0.1
# Then a softened factor needs more nodes the wider its Gaussian: (largest variance, nodes).
NODES = ((0.4, 6), (1.2, 9), (2.5, 13))
# Beyond the last of these variances it is smoother than Gumbel noise, and that is what is summed over, with
# fewer nodes the wider the Gaussian: (largest variance, nodes).
GUMBEL_NODES = ((6.0, 10), (20.0, 8), (np.inf, 6))
# Scores wider than this are counted in larger units: there a softmax is a step but for a hundredth of them.
WIDEST = 1e4
# Newton steps to the mode and to the ends of the range; both converge from one side, so none can fail.
MODE_STEPS, END_STEPS = 6, 3
# Numbers handled at a time; they should stay in the cache.
PIECE = 1 << 17
# Beyond so many standard deviations the normal cdf is one.
CERTAIN = 8.0


class Softened(NamedTuple):
    """log F(x, q) and its first two derivatives in x; F is log-concave, so `second` is never positive."""

    log: Array
    first: Array
    second: Array


def gumbel_response(mean: Array, var: Array, classes: NDArray[np.intp], power: float = 1.0) -> Response:
    """log E[e^(z_y) / (Σ e^(z_k))^power], y = classes, for independent scores; slopes, own curvatures.

    mean and var are (samples, D); log_z is (samples,).
    """
    if power == 1.0 and var.max(initial=0.0) > 1.01 * WIDEST:
        return _as_a_race(mean, var, classes)
    out = Response(np.empty(mean.shape[0]), np.empty(mean.shape), np.empty(mean.shape))
    shifted = mean.copy()
    own = np.arange(mean.shape[0]), classes
    shifted[own] += var[own]
    for rows, levels in _batches(*_range_of_levels(shifted, var, power), mean.shape[1]):
        part = _over_levels(_Levels.of(shifted[rows], var[rows], power, *levels), classes[rows], power)
        for whole, values in zip(out, part, strict=True):
            whole[rows] = values
    out.log_z[...] += mean[own] + 0.5 * var[own] - gammaln(power)
    return out


def _as_a_race(mean: Array, var: Array, classes: NDArray[np.intp]) -> Response:
    """Scores so uncertain that the softmax is a step, which has no unit: they are counted in larger ones.

    (The shift of class y by q_y would be so many standard deviations that no range of levels is found.)
    """
    unit = np.sqrt(np.maximum(var.max(axis=1, keepdims=True) / WIDEST, 1.0))
    log_z, slope, curvature = gumbel_response(mean / unit, var / unit**2, classes)
    return Response(log_z, slope / unit, curvature / unit**2)


def gumbel_log_proba(mean: Array, var: Array) -> Array:
    """log E[softmax_k] of all classes at once, (samples, D).

    e^(z_k - u) exp(-e^(z_k - u)) is minus the derivative of exp(-e^(z_k - u)) in z_k, so that class k has the
    probability  ∫ (-f_k) Π F du,  f = ∂ log F, and all of them the same factors. Together they integrate a
    derivative from 0 to 1.
    """
    out = np.empty_like(mean)
    # The level is now the largest of D perturbed scores: no lower than any of them, and hardly higher than
    # all, each a Gaussian plus Gumbel noise with the quantiles below.
    reach = np.sqrt(2 * NEGLIGIBLE * var)
    lowest = (mean - reach).max(axis=1) - np.log(NEGLIGIBLE)
    highest = (mean + reach).max(axis=1) + NEGLIGIBLE + np.log(mean.shape[1])
    n_levels = _enough_levels(highest - lowest, var)
    for rows, levels in _batches(lowest, highest, np.zeros_like(lowest), n_levels, mean.shape[1]):
        at = _Levels.of(mean[rows], var[rows], 0.0, *levels)
        with np.errstate(divide="ignore"):
            of_class = at.log_weight[:, np.newaxis, :] + np.log(-at.factor.first)
        out[rows] = np.logaddexp.reduce(of_class, axis=2)
    return np.asarray(out - np.logaddexp.reduce(out, axis=1, keepdims=True))


def _batches(
    lowest: Array, highest: Array, mode: Array, n_levels: NDArray[np.intp], n_classes: int
) -> Iterator[tuple[NDArray[np.intp], tuple[Array, Array, Array, int]]]:
    """Rows that are summed over as many levels, a few at a time, with their range and mode."""
    for levels in np.unique(n_levels):
        alike = np.flatnonzero(n_levels == levels)
        rows_at_once = max(PIECE // (int(levels) * n_classes * NODES[0][1]), 1)
        for start in range(0, alike.size, rows_at_once):
            rows = alike[start : start + rows_at_once]
            yield rows, (lowest[rows], highest[rows], mode[rows], int(levels))


def _enough_levels(reach: Array, var: Array) -> NDArray[np.intp]:
    """How many levels resolve a range of this size."""
    width = np.sqrt(1 + var.min(axis=1))
    batches = np.ceil(reach / (LEVEL_STEP * LEVEL_BATCH * width))
    return LEVEL_BATCH * np.clip(batches, 2, MOST_BATCHES).astype(np.intp)


class _Levels(NamedTuple):
    """Levels of each row, the log of what is summed over them, and the factors of the classes there."""

    log_weight: Array  # (rows, levels), steps included
    factor: Softened  # (rows, D, levels)

    @classmethod
    def of(
        cls, mean: Array, var: Array, power: float, lowest: Array, highest: Array, mode: Array, n_levels: int
    ) -> _Levels:
        along = np.linspace(lowest, highest, n_levels, axis=-1)
        begins = _tail_begins(var)[:, np.newaxis]
        level, stretch = _stretched(along, mode[:, np.newaxis], begins, power if power else 1.0)
        factor = log_softened(mean[:, :, np.newaxis] - level[:, np.newaxis, :], var)
        step = np.log((highest - lowest) / (n_levels - 1))[:, np.newaxis]
        return cls(factor.log.sum(axis=1) - power * level + np.log(stretch) + step, factor)


def _over_levels(at: _Levels, classes: NDArray[np.intp], power: float) -> Response:
    """The trapezoidal sum over levels. With ⟨·⟩ the average under the integrand, and f = ∂ log F:

        slope_k = [k = y] + ⟨f_k⟩,    curvature_k = -⟨∂f_k⟩ - Var f_k.

    Shifting all scores changes log_z by 1 - power times the shift, so slopes sum to 1 - power and the
    curvatures of any row of the full matrix, with off-diagonal entries -Cov(f_k, f_j), to zero. The own
    class is computed from these sums: for a sample that is classified well, 1 + ⟨f_y⟩ would cancel.
    """
    log_weight, factor = at
    largest = log_weight.max(axis=1, keepdims=True)
    weight = np.exp(log_weight - largest)
    total = weight.sum(axis=1)
    log_z = largest[:, 0] + np.log(total)

    weight = (weight / total[:, np.newaxis])[:, np.newaxis, :]
    average = (weight * factor.first).sum(axis=2)
    spread = factor.first - average[:, :, np.newaxis]
    curvature = (weight * -factor.second).sum(axis=2) - (weight * spread**2).sum(axis=2)
    rows = np.arange(classes.size)
    others = spread.sum(axis=1) - spread[rows, classes]
    curvature[rows, classes] = (weight[:, 0] * spread[rows, classes] * others).sum(axis=1)
    slope = average
    slope[rows, classes] = 0.0
    slope[rows, classes] = (1.0 - power) - slope.sum(axis=1)
    return Response(log_z, slope, np.maximum(curvature, 0.0))


def log_softened(x: Array, var: Array) -> Softened:
    """log F(x, q) with derivatives; x is (rows, D, levels), q is (rows, D)."""
    out = Softened(np.empty_like(x), np.empty_like(x), np.empty_like(x))
    limits = np.array([SMALL_VAR, *(largest for largest, _ in NODES), *(v for v, _ in GUMBEL_NODES)])
    regime = np.searchsorted(limits, var)
    for which in np.unique(regime):
        inside = regime == which
        arguments = x[inside], var[inside][:, np.newaxis]
        if which == 0:
            part = _by_expansion(*arguments)
        elif which <= len(NODES):
            part = _over_scores(*arguments, NODES[which - 1][1])
        else:
            part = _over_gumbel_noise(*arguments, GUMBEL_NODES[which - 1 - len(NODES)][1])
        for whole, values in zip(out, part, strict=True):
            whole[inside] = values
    return out


def _by_expansion(x: Array, var: Array) -> Softened:
    """Laplace's approximation with the first term of its error, whose next is of order q²; w = W(q e^x):

        log F = -(w² + 2w)/2q - ½ log(1 + w) + q C,    C = w (2w - 3) / 24 (1 + w)³,

    and derivatives by dw/dx = w/(1 + w).
    """
    log_w = _log_lambert(x + np.log(var))
    w = np.exp(log_w)
    over = 1.0 / (1.0 + w)
    ratio = np.exp(log_w - np.log(var))  # w/q, also where q e^x underflows
    part, cube = w * over, over * over * over
    small = var * w * cube / 24.0
    log_f = small * (2.0 * w - 3.0) - ratio * (1.0 + 0.5 * w) + 0.5 * np.log(over)
    small *= over * over
    first = small * (10.0 * w - 2.0 * w * w - 3.0) - ratio - 0.5 * part * over
    small *= over * over
    second = (
        small * (4.0 * w**3 - 36.0 * w * w + 32.0 * w - 3.0) - ratio * over - 0.5 * part * (1.0 - w) * cube
    )
    return Softened(log_f, first, np.minimum(second, 0.0))


def _over_scores(x: Array, var: Array, n_nodes: int) -> Softened:
    """Gauss-Hermite about the maximum of -e^(x + √q ξ) - ξ²/2.

    With w = W(q e^x), the maximum is at ξ = -w/√q, where the exponential is w/q; with δ = √q ζ, the
    exponent falls from there by  (w/q) (e^δ - 1 - δ) + ζ²/2,  of which (1 + w) ζ²/2 is Hermite's. With e the
    exponential, and averages under the integrand:  ∂ log F = -⟨e⟩,  ∂² log F = Var e - ⟨e⟩.
    """
    nodes, log_mass = hermite_rule(n_nodes)
    log_w = _log_lambert(x + np.log(var))
    w = np.exp(log_w)
    at_mode = np.exp(log_w - np.log(var))[..., np.newaxis]
    delta = np.sqrt(var / (1 + w))[..., np.newaxis] * nodes
    growth = np.exp(delta)
    # The Gaussian part of the fall is in the masses: (w/q) δ²/2 of it is taken out again.
    weight = np.exp(log_mass - at_mode * (growth - 1 - delta - 0.5 * delta * delta))
    total = weight.sum(axis=-1)
    weight /= total[..., np.newaxis]
    growth *= at_mode
    first = np.einsum("...j,...j->...", weight, growth)
    growth -= first[..., np.newaxis]
    variance = np.einsum("...j,...j,...j->...", weight, growth, growth)
    log_f = np.log(total) - 0.5 * np.log1p(w) - at_mode[..., 0] * (1 + 0.5 * w)
    return Softened(log_f, -first, np.minimum(variance - first, 0.0))


def _over_gumbel_noise(x: Array, var: Array, n_nodes: int) -> Softened:
    """exp(-e^z) = P(c > z) for a mirrored Gumbel variable c, so that F = E_c Φ((c - x)/√q).

    A Gauss rule for the distribution of c is exact for polynomials of twice its size, and Φ over a wide
    Gaussian is nearly one. With h = φ/Φ the inverse Mills ratio at b = (c - x)/√q:
        ∂ log F = -⟨h⟩/√q,    ∂² log F = -(⟨h (b + h)⟩ - Var h)/q.
    """
    nodes, weights = _gumbel_rule(n_nodes)
    root = np.sqrt(var)[..., np.newaxis]
    b = np.minimum((nodes - x[..., np.newaxis]) / root, CERTAIN)
    # What `special.mills` has in full relative precision; here differences of h are of the order of one.
    scaled = erfcx(-SQRT_HALF * b)
    log_terms = np.log(scaled) - 0.5 * b * b + np.log(0.5 * weights)
    hazard = SQRT_2_OVER_PI / scaled
    largest = log_terms.max(axis=-1, keepdims=True)
    share = np.exp(log_terms - largest)
    total = share.sum(axis=-1)
    share /= total[..., np.newaxis]
    first = np.einsum("...j,...j->...", share, hazard)
    # ⟨h (b + h)⟩ - ⟨h²⟩ + ⟨h⟩²
    bend = np.einsum("...j,...j,...j->...", share, hazard, b) + first * first
    return Softened(largest[..., 0] + np.log(total), -first / root[..., 0], -np.maximum(bend, 0.0) / var)


@lru_cache(maxsize=4)
def _gumbel_rule(n_nodes: int) -> tuple[Array, Array]:
    """Gauss rule for the density e^c exp(-e^c), from its trapezoidal sum by Lanczos [Gragg, Harwood 1984]."""
    fine = np.linspace(-45.0, 4.5, 4000)
    mass = np.exp(fine - np.exp(fine))
    mass /= mass.sum()
    basis = [np.sqrt(mass)]
    diagonal, beside = [], []
    for _ in range(n_nodes):
        vector = fine * basis[-1]
        diagonal.append(float(vector @ basis[-1]))
        # Orthogonal to all earlier vectors, twice: Lanczos alone loses that.
        for _ in range(2):
            for earlier in basis:
                vector = vector - (vector @ earlier) * earlier
        beside.append(float(np.linalg.norm(vector)))
        basis.append(vector / beside[-1])
    nodes, vectors = eigh_tridiagonal(np.array(diagonal), np.array(beside[:-1]))
    return nodes, np.square(vectors[0])


@lru_cache(maxsize=8)
def hermite_rule(n_nodes: int) -> tuple[Array, Array]:
    """Nodes and log weights of the Gauss-Hermite rule for the unit normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return nodes, np.log(weights / weights.sum())


def _range_of_levels(mean: Array, var: Array, power: float) -> tuple[Array, Array, Array, NDArray[np.intp]]:
    """For each sample the range of levels that matters, its mode, and how many levels resolve it.

    The log integrand φ(u) = -power u + Σ_k log F(p_k - u) is concave, with its mode at the `balance_level`.
    At the ends, where φ is lower by what is negligible, tangents of a concave function lie above it, so that
    Newton's method comes from outside. Ends are returned in the coordinate of `_stretched`.
    """
    log_var = np.log(var)
    mode = balance_level(mean, log_var, power, MODE_STEPS)
    highest, _, bend = _laplace_log_integrand(mode, mean, log_var, power)
    reach = np.sqrt(2 * NEGLIGIBLE / bend)
    ends = []
    for side in (-1.0, 1.0):
        end = mode + side * reach
        for _ in range(END_STEPS):
            value, slope, _ = _laplace_log_integrand(end, mean, log_var, power)
            slope = -np.maximum(-side * slope, 1e-3 * power) * side
            end = end + (highest - NEGLIGIBLE - value) / slope
            end = np.maximum(end, mode) if side > 0 else np.minimum(end, mode)
        ends.append(_unstretched(end, mode, _tail_begins(var), power))
    return ends[0], ends[1], mode, _enough_levels(ends[1] - ends[0], var)


def balance_level(mean: Array, log_var: Array, power: float, n_steps: int) -> Array:
    """The level u at which Σ_k e_k = power, where e_k = W(q_k e^(p_k - u))/q_k.

    log Σ e_k is concave in u, so Newton's method comes from the right without overshooting.
    """
    level = np.logaddexp.reduce(mean, axis=1) - np.log(power)
    for _ in range(n_steps):
        log_w = _log_lambert(mean - level[:, np.newaxis] + log_var, TO_ROUNDING)
        pull = np.exp(log_w - log_var)
        total = pull.sum(axis=1)
        bend = (pull / (1 + np.exp(log_w))).sum(axis=1)
        level = level + np.log(total / power) * total / bend
    return level


def pulls_at(level: Array, mean: Array, log_var: Array) -> Array:
    """e_k = W(q_k e^(p_k - u))/q_k: how far each score is pulled down, in units of its variance."""
    return np.exp(_log_lambert(mean - level[:, np.newaxis] + log_var, TO_ROUNDING) - log_var)


def _laplace_log_integrand(
    level: Array, mean: Array, log_var: Array, power: float
) -> tuple[Array, Array, Array]:
    """φ, φ' and -φ'' with Laplace's approximation of F, constants and its square root left out."""
    log_w = _log_lambert(mean - level[:, np.newaxis] + log_var)
    w = np.exp(log_w)
    slope = np.exp(log_w - log_var)
    value = -power * level - (slope * (1 + 0.5 * w)).sum(axis=1)
    return value, slope.sum(axis=1) - power, (slope / (1 + w)).sum(axis=1)


def _tail_begins(var: Array) -> Array:
    """How far to the right of its mode the integrand is e^(-power u) and little else."""
    return np.asarray(3.0 * np.sqrt(1.0 + var.max(axis=1)))


def _stretched(along: Array, mode: Array, begins: Array, power: float) -> tuple[Array, Array]:
    """Levels u(v) and du/dv: v is u shifted, but stretched on the right, where e^(-power u) falls slowly."""
    more = 1.0 / power - 1.0
    beyond = along - begins
    return mode + along + more * np.logaddexp(0.0, beyond), 1.0 + more * expit(beyond)


def _unstretched(level: Array, mode: Array, begins: Array, power: float) -> Array:
    """A v with u(v) at least as far from the mode as `level`."""
    more = 1.0 / power - 1.0
    distance = level - mode
    beyond = np.minimum(distance, (distance + more * begins) * power)
    return np.where(distance < 0, distance, np.maximum(beyond, 0.0))


# Newton steps of the Lambert function: three leave an error of 1e-8, five none.
TO_EIGHT_DIGITS, TO_ROUNDING = 3, 5


def _log_lambert(log_y: Array, n_steps: int = TO_EIGHT_DIGITS) -> Array:
    """log W(y) for log y: the root of λ + e^λ = log y, by Newton's method from W <= log(1 + y)."""
    log_w = np.where(log_y < -30.0, log_y, np.log(np.logaddexp(0.0, np.maximum(log_y, -30.0))))
    for _ in range(n_steps):
        w = np.exp(log_w)
        log_w = log_w - (log_w + w - log_y) / (1 + w)
    return np.asarray(log_w)
