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

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal
from scipy.special import expit, gammaln

from foldless.beliefs import Array, Response
from foldless.special import mills

# The aim is 1e-4 in slopes, a hundredth of what sampling with 10 000 draws would give: message passing damps
# and iterates, and does not notice. An integrand this far below its maximum (in logarithms) is negligible.
NEGLIGIBLE = 10.0
# Steps of the sum over levels, in units of the sharpest factor's width. For sharp factors the errors are
# those of the Gamma function, |Γ(1 + 2πi/step)| in log_z and |Γ(3 + 2πi/step)| ~ 1e-4 in curvatures.
LEVEL_STEP = 0.62
# Numbers of levels are multiples of this, so that samples can be handled together.
LEVEL_BATCH = 6
# One sharp factor among wide ones would ask for hundreds of levels. It is met by few samples, in passing, and
# coarser steps cost it digits, not its sense.
MOST_BATCHES = 12
# Up to this variance, Laplace's approximation of F with its first correction is as good as a sum.
SMALL_VAR = 0.03
# Then a softened factor needs more nodes the wider its Gaussian: (largest variance, nodes).
NODES = ((0.15, 10), (0.5, 12), (1.5, 16), (4.0, 24))
# Beyond the last of these variances it is smoother than Gumbel noise, and that is what is summed over.
GUMBEL_NODES = 12
# Newton steps to the mode and to the ends of the range; both converge from one side, so none can fail.
MODE_STEPS, END_STEPS = 6, 3
# Numbers handled at a time; they should stay in the cache.
PIECE = 1 << 17


class Softened(NamedTuple):
    """log F(x, q) and its first two derivatives in x; F is log-concave, so `second` is never positive."""

    log: Array
    first: Array
    second: Array


def gumbel_response(mean: Array, var: Array, classes: NDArray[np.intp], power: float = 1.0) -> Response:
    """log E[e^(z_y) / (Σ e^(z_k))^power], y = classes, for independent scores; slopes, own curvatures.

    mean and var are (samples, D); log_z is (samples,).
    """
    out = Response(np.empty(mean.shape[0]), np.empty(mean.shape), np.empty(mean.shape))
    shifted = mean.copy()
    own = np.arange(mean.shape[0]), classes
    shifted[own] += var[own]
    lowest, highest, mode, n_levels = _levels(shifted, var, power)
    for levels in np.unique(n_levels):
        alike = np.flatnonzero(n_levels == levels)
        rows_at_once = max(PIECE // (int(levels) * mean.shape[1] * NODES[0][1]), 1)
        for start in range(0, alike.size, rows_at_once):
            rows = alike[start : start + rows_at_once]
            part = _over_levels(
                shifted[rows],
                var[rows],
                classes[rows],
                power,
                lowest[rows],
                highest[rows],
                mode[rows],
                levels,
            )
            for whole, values in zip(out, part, strict=True):
                whole[rows] = values
    out.log_z[...] += mean[own] + 0.5 * var[own] - gammaln(power)
    return out


def _over_levels(
    mean: Array,
    var: Array,
    classes: NDArray[np.intp],
    power: float,
    lowest: Array,
    highest: Array,
    mode: Array,
    n_levels: int,
) -> Response:
    """The trapezoidal sum over levels. With ⟨·⟩ the average under the integrand, and f = ∂ log F:

        slope_k = [k = y] + ⟨f_k⟩,    curvature_k = -⟨∂f_k⟩ - Var f_k.

    Shifting all scores changes log_z by 1 - power times the shift, so slopes sum to 1 - power and the
    curvatures of any row of the full matrix, with off-diagonal entries -Cov(f_k, f_j), to zero. The own
    class is computed from these sums: for a sample that is classified well, 1 + ⟨f_y⟩ would cancel.
    """
    along = np.linspace(lowest, highest, n_levels, axis=-1)  # (rows, levels)
    level, stretch = _stretched(along, mode[:, np.newaxis], power)
    factor = log_softened(mean[:, :, np.newaxis] - level[:, np.newaxis, :], var)
    log_weight = factor.log.sum(axis=1) - power * level + np.log(stretch)
    largest = log_weight.max(axis=1, keepdims=True)
    weight = np.exp(log_weight - largest)
    total = weight.sum(axis=1)
    step = (highest - lowest) / (n_levels - 1)
    log_z = largest[:, 0] + np.log(total * step)

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
    limits = np.array([SMALL_VAR, *(largest for largest, _ in NODES)])
    regime = np.searchsorted(limits, var)
    for which in np.unique(regime):
        inside = regime == which
        arguments = x[inside], var[inside][:, np.newaxis]
        if which == 0:
            part = _by_expansion(*arguments)
        elif which < limits.size:
            part = _over_scores(*arguments, NODES[which - 1][1])
        else:
            part = _over_gumbel_noise(*arguments)
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
    """The sum over ξ around the maximum of -e^(x + √q ξ) - ξ²/2.

    With w = W(q e^x), the maximum is at ξ = -w/√q, where the exponential is w/q; with δ = √q ζ, the
    exponent falls from there by  (w/q) (e^δ - 1 - δ) + ζ²/2.  With e the exponential, and averages under the
    integrand:  ∂ log F = -⟨e⟩,  ∂² log F = Var e - ⟨e⟩.
    """
    log_w = _log_lambert(x + np.log(var))
    w = np.exp(log_w)
    root = np.sqrt(var)
    at_mode = np.exp(log_w - np.log(var))
    # Ends beyond which the fall exceeds what is negligible, from e^δ - 1 - δ >= |δ| - 1 on the left,
    # >= δ²/2 and >= (e^δ)/2 - 1 on the right.
    b = w / root
    left = np.minimum(
        (2 * NEGLIGIBLE + 2 * at_mode) / (b + np.sqrt(b * b + 2 * NEGLIGIBLE + 2 * at_mode)),
        np.sqrt(2 * NEGLIGIBLE),
    )
    right = np.minimum(
        np.sqrt(2 * NEGLIGIBLE / (1 + w)), np.log(2 + 2 * NEGLIGIBLE / np.maximum(at_mode, 1e-300)) / root
    )
    along = np.linspace(0.0, 1.0, n_nodes)
    zeta = (left + right)[..., np.newaxis] * along
    zeta -= left[..., np.newaxis]
    delta = root[..., np.newaxis] * zeta
    growth = np.exp(delta)
    exponential = at_mode[..., np.newaxis] * growth
    fall = at_mode[..., np.newaxis] * (growth - 1 - delta)
    fall += 0.5 * zeta * zeta
    weight = np.exp(-fall)
    total = weight.sum(axis=-1)
    weight /= total[..., np.newaxis]
    first = np.einsum("...j,...j->...", weight, exponential)
    exponential -= first[..., np.newaxis]
    variance = np.einsum("...j,...j,...j->...", weight, exponential, exponential)
    log_f = np.log(total * (left + right) / ((n_nodes - 1) * np.sqrt(2 * np.pi)))
    log_f -= at_mode * (1 + 0.5 * w)
    return Softened(log_f, -first, np.minimum(variance - first, 0.0))


def _over_gumbel_noise(x: Array, var: Array) -> Softened:
    """exp(-e^z) = P(c > z) for a mirrored Gumbel variable c, so that F = E_c Φ((c - x)/√q).

    A Gauss rule for the distribution of c is exact for polynomials of twice its size, and Φ over a wide
    Gaussian is nearly one. With h the inverse Mills ratio at b = (c - x)/√q:
        ∂ log F = -⟨h⟩/√q,    ∂² log F = -(⟨h (b + h)⟩ - Var h)/q.
    """
    nodes, weights = _gumbel_rule()
    root = np.sqrt(var)[..., np.newaxis]
    log_cdf, hazard, mean, _ = mills((nodes - x[..., np.newaxis]) / root)
    log_terms = log_cdf + np.log(weights)
    largest = log_terms.max(axis=-1, keepdims=True)
    share = np.exp(log_terms - largest)
    total = share.sum(axis=-1)
    share /= total[..., np.newaxis]
    first = (share * hazard).sum(axis=-1)
    bend = (share * hazard * mean).sum(axis=-1) - (share * (hazard - first[..., np.newaxis]) ** 2).sum(
        axis=-1
    )
    return Softened(largest[..., 0] + np.log(total), -first / root[..., 0], -np.maximum(bend, 0.0) / var)


@lru_cache(maxsize=1)
def _gumbel_rule() -> tuple[Array, Array]:
    """Gauss rule for the density e^c exp(-e^c), from its trapezoidal sum by Lanczos [Gragg, Harwood 1984]."""
    fine = np.linspace(-45.0, 4.5, 4000)
    mass = np.exp(fine - np.exp(fine))
    mass /= mass.sum()
    basis = [np.sqrt(mass)]
    diagonal, beside = [], []
    for _ in range(GUMBEL_NODES):
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


def _levels(mean: Array, var: Array, power: float) -> tuple[Array, Array, Array, NDArray[np.intp]]:
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
        ends.append(_unstretched(end, mode, power))
    width = np.sqrt(1 + var.min(axis=1))
    batches = np.ceil((ends[1] - ends[0]) / (LEVEL_STEP * LEVEL_BATCH * width))
    n_levels = LEVEL_BATCH * np.clip(batches, 2, MOST_BATCHES).astype(np.intp)
    return ends[0], ends[1], mode, n_levels


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


# To the right of its mode by this much, the integrand is e^(-power u) and little else.
TAIL_BEGINS = 3.0


def _stretched(along: Array, mode: Array, power: float) -> tuple[Array, Array]:
    """Levels u(v) and du/dv: v is u shifted, but stretched on the right, where e^(-power u) falls slowly."""
    more = 1.0 / power - 1.0
    beyond = along - TAIL_BEGINS
    return mode + along + more * np.logaddexp(0.0, beyond), 1.0 + more * expit(beyond)


def _unstretched(level: Array, mode: Array, power: float) -> Array:
    """A v with u(v) at least as far from the mode as `level`."""
    more = 1.0 / power - 1.0
    distance = level - mode
    beyond = np.minimum(distance, (distance + more * TAIL_BEGINS) * power)
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
