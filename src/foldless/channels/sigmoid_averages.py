"""Powers of the logistic function averaged over Gaussians: log E[σ(x)^a], x ~ N(mean, var), and derivatives.

Narrow cavities, which are nearly all once a fit is under way, are summed at a few nodes; what is too wide or
too far out for that is a sum of exponentials. The two agree to 1e-11, so that nothing jumps where one takes
over from the other.

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

Last come the integrals of the papers, with known errors, for comparison with published algorithms.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, expit, log_expit, log_ndtr, log_softmax, logsumexp

from foldless.beliefs import Array, Response
from foldless.channels.probit import sign_response
from foldless.kernels import fastest, in_threads
from foldless.kernels.sigmoids import Rule
from foldless.special import SQRT_HALF

# With fewer rows, loading numba takes longer than all iterations together.
LEAST_ROWS_COMPILED = 4096
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
VARIATIONAL_STEPS = 500
VARIATIONAL_TOLERANCE = 1e-13
# σ(x) ≈ Σ a_k Φ(x/s_k), near-minimax with error 1.8e-7.
MIXTURE_WEIGHTS = np.array([0.01626424, 0.15866162, 0.35980546, 0.32749087, 0.12563011, 0.01214770])
MIXTURE_STDS = np.array([0.81723430, 1.09879825, 1.46691623, 1.96813206, 2.65436995, 3.62326392])
HERMITE_NODES, HERMITE_WEIGHTS = np.polynomial.hermite.hermgauss(21)
PROXIMAL_STEPS = 100
PROXIMAL_TOLERANCE = 4 * np.finfo(np.float64).eps


def sigmoid_power_response(mean: Array, var: Array, power: float = 1.0) -> Response:
    """log E[σ(x)^a] for x ~ N(mean, var), a = power in (0, 1], and its derivatives in the mean."""
    mean, var = np.broadcast_arrays(np.asarray(mean, dtype=np.float64), np.asarray(var, dtype=np.float64))
    shape = mean.shape
    mean, var = mean.ravel(), var.ravel()
    # Not `>`: what is not a number must not pass for narrow.
    narrow = (np.abs(mean) <= LARGEST_MEAN) & (var <= rules_of(power)[-1].largest_var)
    if narrow.all():
        out = _at_nodes(mean, var, power, mean.size)
    else:
        out = np.empty((3, mean.size))
        out[:, ~narrow] = exponential_sums_response(mean[~narrow], var[~narrow], power)
        out[:, narrow] = _at_nodes(mean[narrow], var[narrow], power, mean.size)
    # A power of a probability is below one, and its logarithm is concave: the rest is rounding.
    np.minimum(out[0], 0.0, out=out[0])
    np.maximum(out[2], 0.0, out=out[2])
    return Response(*(field.reshape(shape) for field in out))


def _at_nodes(mean: Array, var: Array, power: float, n_rows: int) -> Array:
    """Rows that a rule is good for, of so many in all: log_z, slope and curvature, (3, rows)."""
    out = np.empty((3, mean.size))
    loops = fastest("sigmoids", n_rows >= LEAST_ROWS_COMPILED)
    cuts = np.linspace(0, mean.size, max(mean.size // ROWS_PER_THREAD, 1) + 1).astype(int)
    tasks = [
        (float(power), mean[a:b], var[a:b], rules_of(power), *(field[a:b] for field in out))
        for a, b in pairwise(cuts)
    ]
    in_threads(loops.logistic_rows if power == 1.0 else loops.power_rows, tasks)
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
    mean, var = np.broadcast_arrays(np.asarray(mean, dtype=np.float64), np.asarray(var, dtype=np.float64))
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


# ---------------------------------------------------------------------- integrals of the papers


def variational_response(mean: Array, var: Array) -> Response:
    """The Gaussian lower bound of Jaakkola and Jordan, as in Algorithm 2 of Ziniel et al.

    With λ = tanh(ξ/2)/4ξ and ratio = 1/(1 + 2 var λ), iterate

        ξ² = V + m²,    V = var ratio,    m = ratio (mean + var/2).

    slope = (1/2 - 2 λ mean) ratio is the derivative of the bound; curvature = 2 λ ratio is the paper's, at
    fixed ξ, hence not the bound's second derivative. Errors reach 0.2 in slope for var <= 4, 0.6 beyond.
    """
    xi = np.sqrt(var + np.square(mean))
    for _ in range(VARIATIONAL_STEPS):
        lam = _bound_curvature(xi)
        ratio = 1.0 / (1.0 + 2.0 * var * lam)
        new_xi = np.sqrt(var * ratio + np.square(ratio * (mean + 0.5 * var)))
        converged = np.all(np.abs(new_xi - xi) <= VARIATIONAL_TOLERANCE * new_xi)
        xi = new_xi
        if converged:
            break
    lam = _bound_curvature(xi)
    ratio = 1.0 / (1.0 + 2.0 * var * lam)
    # log σ(ξ) - ξ/2 + λ ξ² + log ∫ e^(x/2 - λ x²) N(x), with m²/2V - mean²/2var multiplied out.
    bound = log_expit(xi) - 0.5 * xi + lam * np.square(xi) + 0.5 * np.log(ratio)
    bound += ratio * (0.5 * mean + var / 8.0 - lam * np.square(mean))
    return Response(bound, (0.5 - 2.0 * lam * mean) * ratio, 2.0 * lam * ratio)


def mixture_response(mean: Array, var: Array) -> Response:
    """σ replaced by a mixture of six normal cdfs: exact for the mixture, wrong where E[σ] < 1e-3.

    With weights ρ_k ∝ a_k Z_k of the components' probit responses:
    slope = Σ ρ_k slope_k,  curvature = Σ ρ_k curvature_k - Var_ρ(slope_k).
    """
    parts = sign_response(mean[..., None], np.square(MIXTURE_STDS) + var[..., None])
    log_parts = np.log(MIXTURE_WEIGHTS) + parts.log_z
    rho = np.exp(log_softmax(log_parts, axis=-1))
    slope = np.sum(rho * parts.slope, axis=-1)
    spread = np.sum(rho * np.square(parts.slope - slope[..., None]), axis=-1)
    curvature = np.sum(rho * parts.curvature, axis=-1) - spread
    return Response(logsumexp(log_parts, axis=-1), slope, np.maximum(curvature, 0.0))


def gauss_hermite_response(mean: Array, var: Array) -> Response:
    """21 nodes around the mode x₀ with the variance V of the Laplace approximation there.

    slope = ⟨1 - σ⟩,  curvature = ⟨σ(1 - σ)⟩ - Var(1 - σ). Error 4e-5 for var <= 4, useless beyond 10,
    where the posterior is a Gaussian with one side cut away.
    """
    mode, miss = logistic_fixed_point(mean, var)
    spread = var / (1.0 + var * miss * expit(mode))
    # From the mean, not from zero: a small spread would be lost in the rounding of x.
    offset = (var * miss)[..., None] + np.sqrt(2.0 * spread)[..., None] * HERMITE_NODES
    x = mean[..., None] + offset
    log_terms = log_expit(x) - 0.5 * np.square(offset) / var[..., None]
    log_terms += np.log(HERMITE_WEIGHTS) + np.square(HERMITE_NODES)
    log_total = logsumexp(log_terms, axis=-1)
    rho = np.exp(log_terms - log_total[..., None])
    q = expit(-x)
    slope = np.sum(rho * q, axis=-1)
    curvature = np.sum(rho * q * (1.0 - q), axis=-1)
    curvature -= np.sum(rho * np.square(q - slope[..., None]), axis=-1)
    log_z = log_total + 0.5 * np.log(spread / (np.pi * var))
    return Response(log_z, slope, np.maximum(curvature, 0.0))


def logistic_fixed_point(start: Array, pull: Array) -> tuple[Array, Array]:
    """The solution x of x = start + pull σ(-x), for pull >= 0, and t = σ(-x).

    It is the proximal point of log σ, and t the slope there. The difference of the two sides increases;
    it is convex for x < 0 and concave for x > 0. Newton's method climbs or descends to the root without
    passing it if it starts between the root and zero, or nearer at a bound of the root (0 < t < 1).
    """
    x = np.where(start + 0.5 * pull > 0.0, np.maximum(start, 0.0), np.minimum(start + pull, 0.0))
    for _ in range(PROXIMAL_STEPS):
        t = expit(-x)
        step = (start - x + pull * t) / (1.0 + pull * t * expit(x))
        x = x + step
        if np.all(np.abs(step) <= PROXIMAL_TOLERANCE * (1.0 + np.abs(x))):
            break
    return x, expit(-x)


def _bound_curvature(xi: Array) -> Array:
    """λ(ξ) = tanh(ξ/2)/4ξ, with its limit 1/8 at 0."""
    safe = np.maximum(xi, 1e-8)
    return np.tanh(0.5 * safe) / (4.0 * safe)
