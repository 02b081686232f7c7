"""How much each of several models has to say: weights that predict left-out labels best, as a mixture."""

from __future__ import annotations

import numpy as np

from foldless.beliefs import Array

# What the models have in common counts like this many further samples, which all predict alike: with few
# samples, the best of many models is best by chance.
PSEUDO_SAMPLES = 3.0
MAX_ITER = 5000
TOLERANCE = 1e-6


def stacking_weights(log_density: Array, sample_weight: Array) -> Array:
    """Mixture weights w that maximise  Σ_m weight_m log Σ_c w_c p_c(m)  and a Dirichlet log prior.

    log_density is (models, samples): log p_c(m), of left-out labels. The problem is convex; EM climbs it
    from equal weights, the same every time.
    """
    n_models = log_density.shape[0]
    prior = np.full(n_models, 1.0 / n_models)
    density = np.exp(log_density - log_density.max(axis=0))
    weights = prior.copy()
    total = float(sample_weight.sum()) + PSEUDO_SAMPLES
    for _ in range(MAX_ITER):
        mixture = weights @ density
        updated = (weights * (density @ (sample_weight / mixture)) + PSEUDO_SAMPLES * prior) / total
        moved = float(np.abs(updated - weights).sum())
        weights = updated
        if moved < TOLERANCE:
            break
    return np.asarray(weights / weights.sum())
