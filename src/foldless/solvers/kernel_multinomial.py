"""Ridge multinomial regression in kernels of samples by samples, with leave-one-out.

Where columns are correlated and all of them share the signal, message passing with diagonal covariances
does not settle, and sparsity is the wrong belief. With a Gaussian prior N(0, c) on every weight the scores
of a class are a Gaussian process with kernel K = c X Xᵀ (+ a wide intercept), the posterior is log-concave,
and Newton's method finds its mode [Rasmussen, Williams 2006, algorithm 3.3]. With B = diag(π) - π πᵀ of a
sample, W the block-diagonal matrix of weight · B, D its diagonal part, E_k = (K + D_k⁻¹)⁻¹ and R the
stacked identity,

    (K⁻¹ + W)⁻¹ = K - K [E - E R (Σ_k E_k)⁻¹ Rᵀ E] K,

so that nothing larger than samples by samples is inverted, and never the singular W.

**Leave-one-out.** With V the D x D posterior covariance of a sample's scores at the mode f, and
s = weight (e_y - π), taking the sample's own quadratic out leaves the covariance C = (V⁻¹ - weight B)⁻¹ and
the mean f - C s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import logsumexp, softmax

from foldless.beliefs import Array

TOLERANCE = 1e-6
MAX_ITER = 50
SHORTENINGS = 12


@dataclass(frozen=True, eq=False)
class KernelMultinomial:
    """What the labels say under a kernel: scores are kernel @ dual."""

    dual: Array  # (samples, D): weight (e_y - π), which sums to zero over classes
    scores: Array  # (samples, D)
    loo_scores: Array  # (samples, D): from all other samples
    converged: bool


def kernel_multinomial(kernel: Array, indicator: Array, sample_weight: Array) -> KernelMultinomial:
    """The mode, and every sample's scores without its own label; indicator is (samples, D)."""
    weight = sample_weight[:, np.newaxis]
    dual = np.zeros_like(indicator)
    scores = kernel @ dual

    def objective(dual: Array, scores: Array) -> float:
        fit = sample_weight @ (np.sum(indicator * scores, axis=1) - logsumexp(scores, axis=1))
        return float(fit - 0.5 * np.sum(dual * scores))

    value, converged = objective(dual, scores), False
    for _ in range(MAX_ITER):
        share = softmax(scores, axis=1)
        inverses, joint = _inverses(kernel, weight * share)
        # Newton's target: (K⁻¹ + W)⁻¹ b in dual form, a = b - [E - E R (ΣE)⁻¹ RᵀE] K b.
        b = weight * (share * scores - share * np.sum(share * scores, axis=1, keepdims=True))
        b += weight * (indicator - share)
        through = np.einsum("kij,jk->ik", inverses, kernel @ b)
        common = cho_solve((joint, True), through.sum(axis=1))
        target = b - through + np.einsum("kij,j->ik", inverses, common)
        step, length = target - dual, 1.0
        moved = kernel @ step
        for _ in range(SHORTENINGS):
            candidate = dual + length * step, scores + length * moved
            better = objective(*candidate)
            if better >= value - 1e-10 * abs(value):
                break
            length /= 2
        (dual, scores), gain, value = candidate, better - value, better
        if abs(gain) <= TOLERANCE * (1.0 + abs(value)) and length == 1.0:
            converged = True
            break
    return KernelMultinomial(
        dual, scores, _leave_one_out(kernel, indicator, sample_weight, scores), converged
    )


def _inverses(kernel: Array, precision: Array) -> tuple[Array, Array]:
    """E_k for all classes, (D, samples, samples), and the Cholesky factor of their sum."""
    n_samples, n_classes = precision.shape
    inverses = np.empty((n_classes, n_samples, n_samples))
    for k in range(n_classes):
        root = np.sqrt(precision[:, k])
        inner = root[:, np.newaxis] * kernel * root
        inner[np.diag_indices(n_samples)] += 1.0
        factor = cho_factor(inner, lower=True, overwrite_a=True)
        inverses[k] = cho_solve(factor, np.diag(root), overwrite_b=True) * root[:, np.newaxis]
    total = inverses.sum(axis=0)
    # Samples that are classified beyond doubt have no precision left, and rounding may take the rest.
    total[np.diag_indices(n_samples)] += 1e-12 * np.trace(total) / n_samples
    return inverses, cho_factor(total, lower=True)[0]


def _leave_one_out(kernel: Array, indicator: Array, sample_weight: Array, scores: Array) -> Array:
    n_samples, n_classes = scores.shape
    share = softmax(scores, axis=1)
    inverses, joint = _inverses(kernel, sample_weight[:, np.newaxis] * share)
    cov = np.zeros((n_samples, n_classes, n_classes))
    halves = np.empty((n_classes, n_samples, n_samples))
    for k in range(n_classes):
        through = inverses[k] @ kernel
        halves[k] = solve_triangular(np.tril(joint), through, lower=True)
        cov[:, k, k] = np.diag(kernel) - np.einsum("ji,ji->i", kernel, through)
    for k in range(n_classes):
        for other in range(k + 1):
            shared = np.einsum("ji,ji->i", halves[k], halves[other])
            cov[:, k, other] += shared
            if other != k:
                cov[:, other, k] = cov[:, k, other]
    lost = np.minimum(sample_weight, 1.0)[:, np.newaxis, np.newaxis]
    bend = share[:, :, np.newaxis] * (np.eye(n_classes) - share[:, np.newaxis, :])
    # C s = (I - V B)⁻¹ V s, without inverting V.
    slope = lost[:, :, 0] * (indicator - share)
    pull = np.einsum("mij,mj->mi", cov, slope)
    system = np.eye(n_classes) - lost * cov @ bend
    return scores - np.linalg.solve(system, pull[..., np.newaxis])[..., 0]
