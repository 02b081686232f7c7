"""Averages of the logistic function as papers have them, with known errors, for comparison with theirs."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, log_expit, log_softmax, logsumexp

from foldless.beliefs import Array, Response
from foldless.channels.probit import sign_response

VARIATIONAL_STEPS = 500
VARIATIONAL_TOLERANCE = 1e-13
# σ(x) ≈ Σ a_k Φ(x/s_k), near-minimax with error 1.8e-7.
MIXTURE_WEIGHTS = np.array([0.01626424, 0.15866162, 0.35980546, 0.32749087, 0.12563011, 0.01214770])
MIXTURE_STDS = np.array([0.81723430, 1.09879825, 1.46691623, 1.96813206, 2.65436995, 3.62326392])
HERMITE_NODES, HERMITE_WEIGHTS = np.polynomial.hermite.hermgauss(21)
PROXIMAL_STEPS = 100
PROXIMAL_TOLERANCE = 4 * np.finfo(np.float64).eps


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
