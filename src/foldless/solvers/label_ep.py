"""Expectation propagation under Gaussian priors, where only labels have sites.

**In kernels of samples by samples**, for many priors at once: everything a label can see of X and the prior
is the kernel  K = X diag(prior variances) Xᵀ.  A model is then a matrix of M x M, and many models of the same
data (other variances, other scales) are fitted together, one iteration costing O(M³) each whatever the number
of features. With label sites of precision T and shift ν, and prior mean m of the scores,

    W = (K + T⁻¹)⁻¹ = T^½ (I + T^½ K T^½)⁻¹ T^½,   dual weights  r = ν - W (m + K ν),

the weights are  diag(prior variances) Xᵀ r,  a score of a new sample has mean  m* + kᵀ r  and variance
k** - kᵀ W k  with k its kernel to the training samples.

**In columns**, for ridges of more samples than columns: under the prior N(0, 1) on the weights of scaled
columns B (samples, r) an iteration is one matrix of r x r,

    A = I + Bᵀ T B = L Lᵀ,    weights  A⁻¹ Bᵀ ν,    variances of scores  |L⁻¹ b|².

Sites of a neighbouring prior are a start. There matrices are in single precision, if that leaves more digits
than the leave-one-out loss needs that weighs averages: of near twins under a wide prior it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, lapack, solve_triangular

from foldless.beliefs import Array, Response
from foldless.channels.base import Channel
from foldless.solvers.message_passing import SETTLED_SCORE
from foldless.solvers.multinomial_ridge import ridge_factor

# Averages of models need no more digits than the leave-one-out loss that weighs them.
TOLERANCE = 1e-3
MAX_ITER = 100
FIRST_STEP, SMALLEST_STEP, SHORTER, LONGER = 0.7, 0.05, 0.6, 1.15
# Moves that turn back by more than this cosine are oscillations.
TURNED = -0.3
# Label sites keep this share of their cavity's precision at least, and leave as much: so T has an inverse.
LEAST_SHARE = 1e-10
# The same in single precision.
LEAST_RIDGE_SHARE = 1e-6
RIDGE_MAX_ITER = 60
# In single precision what columns leave of another must be more than this share of it: rounding then moves
# scores by a hundredth of the tolerance. With a tenth as much they never settle.
LEAST_PIVOT = 0.01
FIRST_PRECISION = 1e-3


class KernelFits(NamedTuple):
    """What the labels say under each of C kernels."""

    dual: Array  # (C, M)
    inverse: Array  # (C, M, M): W
    label_precision: Array  # (C, M): T, of all rows that a sample counts for
    label_shift: Array  # (C, M): ν, likewise
    converged: NDArray[np.bool_]  # (C,)

    def chosen(self, which: NDArray[np.intp] | NDArray[np.bool_]) -> KernelFits:
        """Some of the fits."""
        return self._replace(**{name: getattr(self, name)[which] for name in self._fields})

    @classmethod
    def joined(cls, parts: Sequence[KernelFits]) -> KernelFits:
        """The fits of several calls, in their order."""
        return parts[0] if len(parts) == 1 else cls(*map(np.concatenate, zip(*parts, strict=True)))


def kernel_ep(
    kernels: Array,
    prior_scores: Array,
    labels: Array,
    sample_weight: Array,
    channel: Channel,
    start: tuple[Array, Array] | None = None,
) -> KernelFits:
    """EP under every kernel of (C, M, M); all samples must have positive weight.

    `start` has the precisions and shifts of label sites that a neighbouring problem ended with.
    """
    n_kernels, n_samples = kernels.shape[:2]
    share = sample_weight / sample_weight.sum()
    lost = np.minimum(sample_weight, 1.0)
    precision = np.full((n_kernels, n_samples), FIRST_PRECISION)
    shift = precision * prior_scores
    if start is not None:
        precision, shift = start[0] / sample_weight, start[1] / sample_weight
    nothing = np.zeros((3, n_kernels, n_samples))
    converged = np.zeros(n_kernels, dtype=bool)
    fits = KernelFits(nothing[0], np.zeros_like(kernels), nothing[1], nothing[2], converged)
    running = np.arange(n_kernels)
    step = np.full((n_kernels, 1), FIRST_STEP)
    mean_before = move_before = None
    for n_iter in range(1, MAX_ITER + 1):
        half = None  # before another is made
        at = kernels if running.size == n_kernels else kernels[running]
        label_precision = sample_weight * precision
        dual, half, mean, retained = dual_weights(at, prior_scores, label_precision, sample_weight * shift)
        done = np.zeros(running.size, dtype=bool)
        if mean_before is not None:
            move = mean - mean_before
            size = np.sqrt(mean**2 @ share)
            done = np.sqrt(move**2 @ share) <= TOLERANCE * (size + SETTLED_SCORE) * step[:, 0]
            if move_before is not None:
                step = _next_step(step, move, move_before)
            move_before = move
        ended = done | (n_iter == MAX_ITER) | ~np.isfinite(mean).all(axis=1)
        if ended.any():
            which = running[ended]
            fits.dual[which] = dual[ended]
            for place, own in zip(which, np.flatnonzero(ended), strict=True):
                np.matmul(half[own].T, half[own], out=fits.inverse[place])
            fits.label_precision[which] = label_precision[ended]
            fits.label_shift[which] = (sample_weight * shift)[ended]
            fits.converged[which] = done[ended] & np.isfinite(mean[ended]).all(axis=1)
            on = ~ended
            if not on.any():
                break
            running, step, precision, shift = running[on], step[on], precision[on], shift[on]
            mean, retained, label_precision = mean[on], retained[on], label_precision[on]
            move_before = None if move_before is None else move_before[on]
        mean_before = mean

        # A sample of weight 2 keeps its other row when one is taken out.
        rest = label_precision * retained / np.maximum(1.0 - retained, np.finfo(float).tiny)
        cavity_precision = np.maximum(rest + (sample_weight - lost) * precision, np.finfo(float).tiny)
        cavity_var = 1.0 / cavity_precision
        cavity_mean = mean + lost * (precision * mean - shift) * cavity_var
        response = channel.respond(cavity_mean, cavity_var, np.broadcast_to(labels, mean.shape))
        wanted, wanted_shift = _wanted_sites(response, cavity_mean, cavity_var, LEAST_SHARE)
        precision = precision + step * (wanted - precision)
        shift = shift + step * (wanted_shift - shift)
    return fits


def _next_step(step: Array, move: Array, move_before: Array) -> Array:
    """Shorter where scores turn back, else longer, up to 1; samples are the last axis."""
    turn, length, before = (
        np.sum(product, axis=-1, keepdims=True) for product in (move * move_before, move**2, move_before**2)
    )
    turned = turn < TURNED * np.sqrt(length * before)
    return np.where(turned, np.maximum(SHORTER * step, SMALLEST_STEP), np.minimum(LONGER * step, 1.0))


def _wanted_sites(response: Response, mean: Array, var: Array, least_share: float) -> tuple[Array, Array]:
    """Precisions and shifts that explain the response at cavities of these moments."""
    curvature = np.clip(response.curvature, least_share / var, (1 - least_share) / var)
    precision = curvature / (1.0 - var * curvature)
    return precision, mean * precision + response.slope * (1.0 + var * precision)


def dual_weights(
    kernels: Array, prior_scores: Array, label_precision: Array, label_shift: Array
) -> tuple[Array, Array, Array, Array]:
    """Dual weights, P of W = Pᵀ P, score means, and the diagonal of (I + T^½ K T^½)⁻¹, of label sites."""
    root = np.sqrt(label_precision)
    half = root[:, :, np.newaxis] * kernels
    half *= root[:, np.newaxis, :]
    diagonal = np.arange(root.shape[1])
    half[:, diagonal, diagonal] += 1.0
    for own in half:
        # LAPACK's lower triangle is the upper one here, and of a symmetric matrix it does not matter.
        lower, info = lapack.dpotrf(own.T, lower=1, clean=1, overwrite_a=1)
        inverse, info_inverse = lapack.dtrtri(lower, lower=1, overwrite_c=1)
        own[:] = np.nan if info or info_inverse else inverse
    retained = np.einsum("nij,nij->nj", half, half)
    half *= root[:, np.newaxis, :]
    through = prior_scores + np.matmul(kernels, label_shift[:, :, np.newaxis])[:, :, 0]
    of_through = np.matmul(half, through[:, :, np.newaxis])
    dual = label_shift - np.matmul(half.transpose(0, 2, 1), of_through)[:, :, 0]
    mean = prior_scores + np.matmul(kernels, dual[:, :, np.newaxis])[:, :, 0]
    return dual, half, mean, retained


# ---------------------------------------------------------------------- in columns


class RidgeEP(NamedTuple):
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
    inner, share = basis.astype(np.float32), sample_weight / sample_weight.sum()
    precision, shift = start or (np.full(labels.size, FIRST_PRECISION), np.zeros(labels.size))
    one_row = np.minimum(sample_weight, 1.0)
    before = move_before = None
    step: Array = np.ones(1)
    converged = False
    for n_iter in range(1, RIDGE_MAX_ITER + 1):
        sites = sample_weight * precision, sample_weight * shift
        weights, lower, spread = _posterior(inner, *sites)
        if inner is not basis and _least_pivot(lower) < LEAST_PIVOT:
            inner = basis
            weights, lower, spread = _posterior(inner, *sites)
        mean = basis @ weights
        if before is not None:
            move, size = mean - before, np.sqrt(mean**2 @ share)
            if move_before is not None:
                step = _next_step(step, move, move_before)
            converged = bool(np.sqrt(move**2 @ share) <= TOLERANCE * (size + SETTLED_SCORE) * step[0])
            move_before = move
        if converged or n_iter == RIDGE_MAX_ITER or not np.isfinite(mean).all():
            break
        before = mean
        at, var = _without(mean, spread, precision, shift, sample_weight, one_row)
        response = channel.respond(at, var, labels)
        wanted, wanted_shift = _wanted_sites(response, at, var, LEAST_RIDGE_SHARE)
        precision = precision + step * (wanted - precision)
        shift = shift + step * (wanted_shift - shift)
    half = np.tril(lapack.get_lapack_funcs("trtri", (lower,))(lower, lower=1)[0])
    weight_var = np.einsum("ij,ij->j", half, half, dtype=np.float64)
    left = _without(mean, spread, precision, shift, sample_weight, left_out)
    return RidgeEP(weights, weight_var, *left, (precision, shift), converged, n_iter)


def _posterior(basis: Array, precision: Array, shift: Array) -> tuple[Array, Array, Array]:
    """Mean weights, L, and the variances of scores."""
    lower, _ = ridge_factor(basis, precision)
    weights = cho_solve((lower, True), basis.T @ shift.astype(basis.dtype), check_finite=False)
    half = solve_triangular(lower, basis.T, lower=True, check_finite=False)
    return weights.astype(np.float64), lower, np.einsum("rm,rm->m", half, half, dtype=np.float64)


def _least_pivot(lower: Array) -> float:
    """The smallest share of the diagonal of L Lᵀ that the columns before leave of a column."""
    half = np.tril(lower)
    return float(np.min(half.diagonal() ** 2 / np.einsum("ij,ij->i", half, half)))


def _without(
    mean: Array, spread: Array, precision: Array, shift: Array, sample_weight: Array, lost: Array
) -> tuple[Array, Array]:
    """Scores without `lost` of a sample's weight: mean and variance."""
    rest = np.maximum(1.0 - spread * sample_weight * precision, LEAST_RIDGE_SHARE) / spread
    var = 1.0 / (rest + (sample_weight - lost) * precision)
    return mean + lost * (precision * mean - shift) * var, var
