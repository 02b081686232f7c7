"""Weights of a mixture by what its parts predict for left-out labels (stacking), and scores on one scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import softmax

from foldless.beliefs import Array
from foldless.solvers.solve import damped_newton

# Sizes of scores, and of slopes, below this are none.
LEAST = 1e-6
# Without a sample stacking is not left with less than this share of its curvature along what it predicts.
LEAST_STAYS = 0.25
# Newton's method takes a dozen steps, until nothing is left to gain in log likelihood.
MAX_ITER = 100
TOLERANCE = 1e-10
# No step goes further than this share of the way to where a weight would be zero.
LARGEST_SHARE = 0.95


def stacking_weights(log_density: Array, sample_weight: Array, prior: Array) -> Array:
    """Mixture weights w that maximise  Σ_m weight_m log Σ_c w_c p_c(m)  and a Dirichlet log prior.

    log_density is (models, samples): log p_c(m), of left-out labels. With α_c log w_c of the prior, and
    T = Σ weight + Σ α,

        Σ_m weight_m log Σ_c w_c p_c(m) + Σ_c α_c log w_c - T Σ_c w_c

    has its maximum where the weights add up to one, so that there is no constraint but their sign, which the
    prior keeps. It is concave, and Newton's method climbs it from equal weights, the same every time. EM
    would crawl: models that predict nearly alike are what there is to weigh.
    """
    density = np.exp(log_density - log_density.max(axis=0))
    total = float(sample_weight.sum() + prior.sum())

    def loss(weights: Array) -> float:
        likelihood = float(sample_weight @ np.log(weights @ density))
        return total * float(weights.sum()) - likelihood - float(prior @ np.log(weights))

    def expand(weights: Array) -> tuple[Array, Array]:
        relative = density / (weights @ density)
        slope = total - relative @ sample_weight - prior / weights
        curvature = (relative * sample_weight) @ relative.T + np.diag(prior / weights**2)
        return slope, cho_solve(cho_factor(curvature), -slope)

    def room(weights: Array, step: Array) -> float:
        shrinks = step < 0
        return LARGEST_SHARE * float(np.min(-weights[shrinks] / step[shrinks], initial=np.inf))

    start = np.full(prior.size, 1.0 / prior.size)
    found = damped_newton(loss, expand, start, tolerance=TOLERANCE, max_iter=MAX_ITER, room=room)
    return np.asarray(found.at / found.at.sum())


def jackknifed(
    weights: Array,
    log_density: Array,
    prior: Array,
    guess: Array,
    weight: Array,
    group: NDArray[np.intp] | None = None,
) -> Array:
    """Stacking weights without each sample, or group, in turn: (models, samples), like the densities.

    An average whose weights were fitted to a left-out density is not judged by it fairly. From the weights of
    all samples, one Newton step leads to those without sample m: with q_c = w_c p_c(m) / Σ w p(m), the loss
    has there, in units of w, the slope and the curvature

        lost_m (q - w),    diag α + Σ weight q qᵀ - lost_m q qᵀ,

    and a step of u is taken as a factor exp(u), so that weights stay positive. Groups are few, and weights
    are found again without each.

    What is lost is more than the sample's own density: it was among the others when each of them was left
    out, and to predict m from k is to predict k from m. Where nothing is learnt, with slopes 1 - p of log
    densities like those of class frequencies, the `guess`, that is as much again. Both ends of a pair have
    such a slope, so that it is the square of their mean share otherwise.
    """
    slopes = weight @ (1.0 - weights @ np.exp(log_density)), weight @ (1.0 - guess)
    times = 1.0 + min(float(slopes[0] / max(slopes[1], LEAST)), 1.0) ** 2
    if group is not None:
        every = np.arange(int(group.max()) + 1)[:, np.newaxis]
        without = [stacking_weights(log_density[:, rest], weight[rest], prior) for rest in group != every]
        steps = times * np.log(np.array(without) / weights)
        return np.asarray(softmax(np.log(weights) + steps, axis=1)[group].T)
    density = np.exp(log_density - log_density.max(axis=0))
    share = weights[:, np.newaxis] * density / (weights @ density)
    curvature = (share * weight) @ share.T
    curvature[np.diag_indices_from(curvature)] += prior
    factor, lost = cho_factor(curvature), times * weight
    step, along_own = (cho_solve(factor, part) for part in (lost * (share - weights[:, np.newaxis]), share))
    stays = 1.0 - lost * np.einsum("cm,cm->m", share, along_own)
    along = np.einsum("cm,cm->m", share, step)
    step += along_own * (lost * along / np.maximum(stays, LEAST_STAYS))
    return np.asarray(softmax(np.log(weights)[:, np.newaxis] - step, axis=0))


def scale_of(scores: Array, log_proba: Array, share: Array) -> Any:
    """The k for which the plain logistic of k · scores is nearest to these probabilities of samples.

    It maximises  Σ share Σ_c p_c log softmax_c(k · scores), less a very small ridge: a score that is the same
    for all samples has no scale. Of several models, which are the first axis, each has its own: Newton's
    method, or half of the way to where the slope is known to have the other sign.
    """
    if scores.shape[-1] == 1:
        scores = np.concatenate([np.zeros_like(scores), scores], axis=-1)
    # Of samples that count: the ridge is in these units, and others must not move it.
    unit = np.maximum(np.max(np.abs(scores[..., share > 0, :]), axis=(-2, -1)), LEAST)
    scores, proba = scores / unit[..., np.newaxis, np.newaxis], np.exp(log_proba)
    wanted = np.sum(proba * scores, axis=-1) @ share
    k = np.zeros(unit.shape)
    low, high = np.full(k.shape, -np.inf), np.full(k.shape, np.inf)
    for _ in range(MAX_ITER):
        own = softmax(k[..., np.newaxis, np.newaxis] * scores, axis=-1)
        mean = np.sum(own * scores, axis=-1)
        slope = LEAST * k + mean @ share - wanted
        curvature = LEAST + (np.sum(own * scores**2, axis=-1) - mean**2) @ share
        on = slope**2 > TOLERANCE * curvature
        if not on.any():
            break
        low, high = np.where(slope < 0, k, low), np.where(slope > 0, k, high)
        there = k - slope / curvature
        with np.errstate(invalid="ignore"):  # between infinities, where Newton's step is inside
            there = np.where((low < there) & (there < high), there, 0.5 * (low + high))
        k = np.where(on, there, k)
    return np.maximum(k, LEAST) / unit
