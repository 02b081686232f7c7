"""Expectation propagation for ridges of two classes with more samples than columns.

With a Gaussian prior only labels have sites, and under the prior N(0, 1) on the weights of scaled columns B
(samples, r) an iteration is one matrix of r x r:

    A = I + Bᵀ T B = L Lᵀ,    weights  A⁻¹ Bᵀ ν,    variances of scores  |L⁻¹ b|²,

with label sites of precision T and shift ν. Sites of a neighbouring prior are a start. Matrices are in single
precision: averages of ridges need no more digits than the leave-one-out loss that weighs them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack, solve_triangular

from foldless.beliefs import Array
from foldless.channels.base import Channel
from foldless.solvers.message_passing import SETTLED_SCORE

TOLERANCE = 1e-3
MAX_ITER = 60
# Steps that turn back by more than this cosine are shortened, others lengthened up to 1.
TURNED, SHORTER, LONGER, SMALLEST_STEP = -0.3, 0.6, 1.15, 0.05
FIRST_PRECISION = 1e-3
# Label sites leave this share of their cavity's precision, and take as much at least.
LEAST_SHARE = 1e-6


@dataclass(frozen=True, eq=False)
class RidgeEP:
    """Posterior moments of the weights, and of every score without its label."""

    weights: Array  # (r,)
    weight_var: Array  # (r,)
    left_out_mean: Array  # (samples,)
    left_out_var: Array
    sites: tuple[Array, Array]  # T and ν of a row
    converged: bool
    n_iter: int


def ridge_ep(
    basis: Array,
    labels: Array,
    sample_weight: Array,
    left_out: Array,
    channel: Channel,
    start: tuple[Array, Array] | None = None,
) -> RidgeEP:
    """Labels are -1 and +1; `left_out` is the weight that leaving a sample out takes, `start` are sites."""
    single, share = basis.astype(np.float32), sample_weight / sample_weight.sum()
    precision, shift = start or (np.full(labels.size, FIRST_PRECISION), np.zeros(labels.size))
    one_row = np.minimum(sample_weight, 1.0)
    before = move_before = None
    step, converged = 1.0, False
    for n_iter in range(1, MAX_ITER + 1):
        weights, lower, spread = _posterior(single, sample_weight * precision, sample_weight * shift)
        mean = basis @ weights
        if before is not None:
            move, size = mean - before, np.sqrt(mean**2 @ share)
            if move_before is not None:
                turn = move @ move_before
                turned = turn < TURNED * np.linalg.norm(move) * np.linalg.norm(move_before)
                step = max(SHORTER * step, SMALLEST_STEP) if turned else min(LONGER * step, 1.0)
            converged = bool(np.sqrt(move**2 @ share) <= TOLERANCE * (size + SETTLED_SCORE) * step)
            move_before = move
        if converged or n_iter == MAX_ITER or not np.isfinite(mean).all():
            break
        before = mean
        at, var = _without(mean, spread, precision, shift, sample_weight, one_row)
        response = channel.respond(at, var, labels)
        curvature = np.clip(response.curvature, LEAST_SHARE / var, (1 - LEAST_SHARE) / var)
        wanted = curvature / (1.0 - var * curvature)
        wanted_shift = at * wanted + response.slope * (1.0 + var * wanted)
        precision = precision + step * (wanted - precision)
        shift = shift + step * (wanted_shift - shift)
    half = np.tril(lapack.get_lapack_funcs("trtri", (lower,))(lower, lower=1)[0])
    weight_var = np.einsum("ij,ij->j", half, half, dtype=np.float64)
    left = _without(mean, spread, precision, shift, sample_weight, left_out)
    return RidgeEP(weights, weight_var, *left, (precision, shift), converged, n_iter)


def _posterior(basis: Array, precision: Array, shift: Array) -> tuple[Array, Array, Array]:
    """Mean weights, L, and the variances of scores."""
    # Of one array with itself only a triangle is computed.
    scaled = basis * np.sqrt(precision).astype(basis.dtype)[:, np.newaxis]
    inner = scaled.T @ scaled
    inner.flat[:: inner.shape[0] + 1] += 1.0
    try:
        lower, _ = cho_factor(inner, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        if basis.dtype == np.float64:
            raise
        return _posterior(basis.astype(np.float64), precision, shift)
    weights = cho_solve((lower, True), basis.T @ shift.astype(basis.dtype), check_finite=False)
    half = solve_triangular(lower, basis.T, lower=True, check_finite=False)
    return weights.astype(np.float64), lower, np.einsum("rm,rm->m", half, half, dtype=np.float64)


def _without(
    mean: Array, spread: Array, precision: Array, shift: Array, sample_weight: Array, lost: Array
) -> tuple[Array, Array]:
    """Scores without `lost` of a sample's weight: mean and variance."""
    rest = np.maximum(1.0 - spread * sample_weight * precision, LEAST_SHARE) / spread
    var = 1.0 / (rest + (sample_weight - lost) * precision)
    return mean + lost * (precision * mean - shift) * var, var
