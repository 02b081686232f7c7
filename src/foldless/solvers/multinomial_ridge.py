"""Ridge multinomial regression, dense in its weights, with leave-one-out and leave-one-group-out.

Where all columns share the signal, sparsity is the wrong belief. With the prior N(0, 1) on the weights of
scaled columns B (samples, r), for each of D classes, scores are B W and the posterior is log-concave. Its
mode is where the dual weights  a = weight (e_y - π)  make  W = Bᵀ a. Newton's method finds it; its equations
are solved by conjugate gradients, after a change of variables by the Cholesky factor of  I + Bᵀ diag(h) B,
h the mean curvature of a sample: what is left to them is how samples' curvatures differ between classes.

**Leave-one-out.** Let V be the D x D posterior covariance of a sample's scores f under the curvatures
weight (diag π - π πᵀ) = weight C of all samples. Its own quadratic taken out leaves the covariance
Q = (V⁻¹ - C)⁻¹ and the mean  f - Q (e_y - π)  [Rasmussen, Williams 2006, section 3.5 for what V is]. With
few weights V comes from the inverse of the r D x r D curvature of the objective. With many, blocks
A_k = I + Bᵀ diag(weight π_k) B and G_k = B A_k⁻¹ Bᵀ give, by Woodbury,

    V_kl = [k = l] diag G_k + diag( G_k P_k S⁻¹ P_l G_l ),  P_k = diag(√weight π_k),  S = I - Σ_k P_k G_k P_k,

for O(D M³): nothing larger than samples by samples. Groups are few, and each is left out by a refit that
starts from the fit of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, lapack, solve_triangular
from scipy.special import logsumexp, softmax

from foldless.beliefs import Array
from foldless.solvers.newton import damped_newton

# Newton's decrement, in nats of all samples together: far below what leave-one-out resolves.
TOLERANCE = 1e-6
# Of a refit without a group, from which nothing else starts: losses a sample are right to three digits.
GROUP_TOLERANCE = 1e-4
MAX_ITER = 60
# Newton's equations are solved this well, relative to their right-hand side: better ones are not worth it
# before the last steps, which are short anyway.
CG_TOLERANCE, CG_ITERATIONS = 0.03, 60


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """The mode."""

    weights: Array  # (r, D)
    scores: Array  # (samples, D)
    converged: bool


def multinomial_ridge(
    basis: Array,
    indicator: Array,
    sample_weight: Array,
    start: Array | None = None,
    tolerance: float = TOLERANCE,
) -> RidgeFit:
    """The mode; indicator is (samples, D), one of each row 1. `start` is where Newton's method begins."""
    weight, n_weights = sample_weight[:, np.newaxis], basis.shape[1]
    weights = np.zeros((n_weights, indicator.shape[1])) if start is None else start

    # A point is the weights above the scores, which are linear in them.
    def loss(point: Array) -> float:
        weights, scores = point[:n_weights], point[n_weights:]
        own = np.einsum("mk,mk->m", indicator, scores)
        return float(0.5 * np.sum(weights * weights) - sample_weight @ (own - logsumexp(scores, axis=1)))

    def expand(point: Array) -> tuple[Array, Array]:
        share = softmax(point[n_weights:], axis=1)
        descent = basis.T @ (weight * (indicator - share)) - point[:n_weights]
        step = _newton_step(basis, weight * share, share, descent)
        return np.vstack([-descent, np.zeros_like(share)]), np.vstack([step, basis @ step])

    begin = np.vstack([weights, basis @ weights])
    found = damped_newton(loss, expand, begin, tolerance=tolerance, max_iter=MAX_ITER)
    return RidgeFit(found.at[:n_weights], found.at[n_weights:], found.converged)


def _newton_step(basis: Array, weighted_share: Array, share: Array, gradient: Array) -> Array:
    """(I + Σ weight C ⊗ b bᵀ)⁻¹ gradient, by preconditioned conjugate gradients."""
    n_classes = share.shape[1]
    mean_curvature = np.sum(weighted_share * (1.0 - share), axis=1) / max(n_classes - 1, 1)
    # Of one array with itself only a triangle is computed.
    scaled = basis * np.sqrt(mean_curvature)[:, np.newaxis]
    inner = scaled.T @ scaled
    inner.flat[:: inner.shape[0] + 1] += 1.0
    factor = cho_factor(inner, lower=True, overwrite_a=True, check_finite=False)

    def curved(direction: Array) -> Array:
        moved = basis @ direction
        along = np.sum(share * moved, axis=1, keepdims=True)
        return direction + basis.T @ (weighted_share * (moved - along))

    step = np.zeros_like(gradient)
    left = gradient
    better = cho_solve(factor, left, check_finite=False)
    direction, size = better, float(np.sum(left * better))
    enough = CG_TOLERANCE**2 * size
    for _ in range(CG_ITERATIONS):
        if size <= enough:
            break
        image = curved(direction)
        length = size / float(np.sum(direction * image))
        step = step + length * direction
        left = left - length * image
        better = cho_solve(factor, left, check_finite=False)
        before, size = size, float(np.sum(left * better))
        direction = better + (size / before) * direction
    return step


def leave_one_out(basis: Array, indicator: Array, sample_weight: Array, fitted: RidgeFit) -> Array:
    """Scores (samples, D) of every sample without it, whatever its weight."""
    share = softmax(fitted.scores, axis=1)
    n_classes = share.shape[1]
    # Rows as weights count them: a weight of 2 and a row twice must go the same way.
    by_weights = basis.shape[1] * n_classes <= sample_weight.sum()
    spread = (_spread_by_weights if by_weights else _spread_by_samples)(basis, share, sample_weight)
    lost = sample_weight[:, np.newaxis, np.newaxis]
    bend = share[:, :, np.newaxis] * (np.eye(n_classes) - share[:, np.newaxis, :])
    # Q s = (I - V C)⁻¹ V s, without inverting V.
    pull = np.einsum("mij,mj->mi", spread, sample_weight[:, np.newaxis] * (indicator - share))
    system = np.eye(n_classes) - lost * (spread @ bend)
    return np.asarray(fitted.scores - np.linalg.solve(system, pull[..., np.newaxis])[..., 0])


def leave_groups_out(
    basis: Array, indicator: Array, sample_weight: Array, group: NDArray[np.intp], fitted: RidgeFit
) -> Array:
    """Scores (samples, D) of every sample from a fit without its group."""
    scores = np.empty_like(fitted.scores)
    for number in np.unique(group):
        inside = group == number
        others = ~inside
        part = basis[others], indicator[others], sample_weight[others]
        refit = multinomial_ridge(*part, fitted.weights, GROUP_TOLERANCE)
        scores[inside] = basis[inside] @ refit.weights
    return scores


def _spread_by_weights(basis: Array, share: Array, sample_weight: Array) -> Array:
    """V of every sample, (samples, D, D), from the covariance of all weights."""
    n_columns, n_classes = basis.shape[1], share.shape[1]
    precision = np.empty((n_classes, n_columns, n_classes, n_columns))
    for k in range(n_classes):
        for other in range(k + 1):
            curvature = sample_weight * share[:, k] * ((k == other) - share[:, other])
            block = (basis * curvature[:, np.newaxis]).T @ basis
            precision[k, :, other] = block
            precision[other, :, k] = block
    flat = precision.reshape(n_classes * n_columns, -1)
    flat.flat[:: flat.shape[0] + 1] += 1.0
    lower, _ = cho_factor(flat, lower=True, overwrite_a=True, check_finite=False)
    half = lapack.dtrtri(lower, lower=1)[0]
    half = np.tril(half).reshape(-1, n_classes, n_columns)
    images = np.einsum("akc,mc->mka", half, basis, optimize=True)
    return np.asarray(images @ images.transpose(0, 2, 1))


def _spread_by_samples(basis: Array, share: Array, sample_weight: Array) -> Array:
    """V of every sample in matrices of samples by samples (module docstring)."""
    (n_samples, n_columns), n_classes = basis.shape, share.shape[1]
    root = np.sqrt(sample_weight)[:, np.newaxis] * share  # P_k
    between = np.eye(n_samples)
    spread = np.zeros((n_samples, n_classes, n_classes))
    scaled = np.empty((n_classes, n_samples, n_samples))
    for k in range(n_classes):
        scaled_basis = basis * np.sqrt(sample_weight * share[:, k])[:, np.newaxis]
        inner = scaled_basis.T @ scaled_basis
        inner.flat[:: n_columns + 1] += 1.0
        lower, _ = cho_factor(inner, lower=True, overwrite_a=True, check_finite=False)
        half = solve_triangular(lower, basis.T, lower=True, check_finite=False)
        block = half.T @ half  # G_k
        spread[:, k, k] = block.diagonal()
        scaled[k] = root[:, k, np.newaxis] * block  # P_k G_k
        between -= scaled[k] * root[:, k]
    # Beyond doubt about a sample, rounding takes what is left of S.
    between.flat[:: n_samples + 1] += 1e-12
    lower, _ = cho_factor(between, lower=True, overwrite_a=True, check_finite=False)
    for k in range(n_classes):
        scaled[k] = solve_triangular(lower, scaled[k], lower=True, check_finite=False, overwrite_b=True)
    of_samples = scaled.transpose(2, 0, 1)
    return spread + of_samples @ of_samples.transpose(0, 2, 1)
