"""How much each of several models has to say: weights that predict left-out labels best, as a mixture."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from foldless.beliefs import Array
from foldless.solvers.newton import damped_newton

# What the models have in common counts like this many further samples, which all predict alike: with few
# samples, the best of many models is best by chance.
PSEUDO_SAMPLES = 3.0
# Newton's method takes a dozen steps, until nothing is left to gain in log likelihood.
MAX_ITER = 100
TOLERANCE = 1e-10
# No step goes further than this share of the way to where a weight would be zero.
LARGEST_SHARE = 0.95


def stacking_weights(log_density: Array, sample_weight: Array) -> Array:
    """Mixture weights w that maximise  Σ_m weight_m log Σ_c w_c p_c(m)  and a Dirichlet log prior.

    log_density is (models, samples): log p_c(m), of left-out labels. With α_c log w_c of the prior and
    T = Σ weight + Σ α,

        Σ_m weight_m log Σ_c w_c p_c(m) + Σ_c α_c log w_c - T Σ_c w_c

    has its maximum where the weights add up to one, so that there is no constraint but their sign, which the
    prior keeps. It is concave, and Newton's method climbs it from equal weights, the same every time. EM
    would crawl: models that predict nearly alike are what there is to weigh.
    """
    n_models = log_density.shape[0]
    prior = np.full(n_models, PSEUDO_SAMPLES / n_models)
    density = np.exp(log_density - log_density.max(axis=0))
    total = float(sample_weight.sum()) + PSEUDO_SAMPLES

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

    start = np.full(n_models, 1.0 / n_models)
    found = damped_newton(loss, expand, start, tolerance=TOLERANCE, max_iter=MAX_ITER, room=room)
    return np.asarray(found.at / found.at.sum())
