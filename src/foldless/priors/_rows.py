"""Rows of weights, one for each class, under full covariances: what HyGAMP asks priors.

What labels say of a row is exp(η'w - ½ w'Λw). Λ annihilates (1, ..., 1), because the softmax does not see a
shift of all scores, so there is no cavity with a mean and a covariance, and everything is in this form.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from foldless.beliefs import Array

# Sweeps of coordinate descent between looks whether it has found the signs, and how often it may be looked.
L1_SWEEPS, L1_ROUNDS = 5, 200
L1_TOLERANCE = 1e-9
# Of the mean diagonal of Λ: where all weights of a row are in, labels alone do not hold their common shift.
L1_RIDGE = 1e-8


class TiltedRows(NamedTuple):
    """Moments of q(w) ∝ f(w) exp(η'w - ½ w'Λw), and the log of its integral; under max-sum the maximum."""

    mean: Array  # (rows, D)
    cov: Array  # (rows, D, D)
    log_z: Array  # (rows,)


def gaussian_rows(shift: Array, precision: Array, mean: Array, cov: Array, *, maximum: bool) -> TiltedRows:
    """N(μ, Σ) with S = (Σ⁻¹ + Λ)⁻¹ and m = S (Σ⁻¹μ + η):

    log_z = ½ (m'S⁻¹m - μ'Σ⁻¹μ) - ½ log|I + ΣΛ|,

    and the maximum has - ½ log|2πΣ| in place of the last term.
    """
    prior_precision = np.linalg.inv(cov)
    posterior = np.linalg.inv(prior_precision + precision)
    posterior = 0.5 * (posterior + posterior.transpose(0, 2, 1))
    total_shift = shift + prior_precision @ mean
    moved = np.einsum("nij,nj->ni", posterior, total_shift)
    log_z = 0.5 * (np.einsum("ni,ni->n", moved, total_shift) - mean @ prior_precision @ mean)
    if maximum:
        log_z = log_z - 0.5 * float(np.linalg.slogdet(2 * np.pi * cov)[1])
    else:
        log_z = log_z - 0.5 * np.linalg.slogdet(np.eye(mean.size) + cov @ precision)[1]
    return TiltedRows(moved, posterior, log_z)


def l1_rows(shift: Array, precision: Array, rate: float) -> TiltedRows:
    """The maximum of η'w - ½ w'Λw - rate |w|₁, and the inverse of Λ over the weights that are not zero.

    Coordinate descent finds which they are and their signs; given these, the maximum is linear. (The thesis
    zeroes rows and columns of the inverse instead, which is another matrix unless Λ is diagonal.)
    """
    n_scores = shift.shape[1]
    where = np.arange(n_scores)
    precision = precision.copy()
    diagonal = np.einsum("nii->ni", precision)
    precision[:, where, where] += L1_RIDGE * diagonal.mean(axis=1)[:, np.newaxis] + np.finfo(float).tiny
    curvature = precision[:, where, where]
    weights = np.zeros_like(shift)
    for _ in range(L1_ROUNDS):
        for _ in range(L1_SWEEPS):
            for k in range(n_scores):
                pull = shift[:, k] - np.einsum("nj,nj->n", precision[:, k], weights)
                pull += curvature[:, k] * weights[:, k]
                weights[:, k] = np.sign(pull) * np.maximum(np.abs(pull) - rate, 0.0) / curvature[:, k]
        signs = np.sign(weights)
        active = signs != 0
        both = active[:, :, np.newaxis] & active[:, np.newaxis, :]
        # One on the diagonal of what is zero: it does not mix with the others, and is taken out again.
        inside = np.where(both, precision, 0.0)
        inside[:, where, where] = np.where(active, curvature, 1.0)
        cov = np.where(both, np.linalg.inv(inside), 0.0)
        exact = np.einsum("nij,nj->ni", cov, shift - rate * signs)
        signs_stay = np.all(np.sign(exact) == signs, axis=1)
        weights[signs_stay] = exact[signs_stay]
        left = np.abs(shift - np.einsum("nij,nj->ni", precision, weights))
        if signs_stay.all() and np.all(left[~active] <= rate * (1 + L1_TOLERANCE)):
            break
    value = np.einsum("ni,ni->n", shift, weights)
    value -= 0.5 * np.einsum("ni,nij,nj->n", weights, precision, weights)
    return TiltedRows(weights, cov, value - rate * np.abs(weights).sum(axis=1))
