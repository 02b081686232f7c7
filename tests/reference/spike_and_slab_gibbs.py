"""A Gibbs sampler for spike-and-slab probit regression: the answer that approximations are held to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_ndtr, ndtri_exp

Floats = NDArray[np.floating[Any]]


class Gibbs(NamedTuple):
    """Averages over chains and sweeps, and the standard errors of both from the chains' differences."""

    mean: Floats
    inclusion: Floats
    mean_error: Floats
    inclusion_error: Floats


def spike_and_slab_gibbs(
    X: Floats,
    labels: Floats,
    inclusion: float,
    slab_var: float,
    *,
    n_chains: int = 100,
    n_sweeps: int = 1500,
    burn_in: int = 300,
    seed: int = 0,
) -> Gibbs:
    """Many chains at once, from draws of the prior [Albert and Chib 1993; George and McCulloch 1993].

    A sweep draws the scores' noise given the weights, z ~ N(x'w, 1) with the sign of the label, and then each
    weight given z and all others, its spike decided with the weight integrated out:
        log odds = logit π - ½ log(1 + v x'x) + ½ b² V,   V = 1/(x'x + 1/v),   b = x'(z - X w without it).
    """
    rng = np.random.default_rng(seed)
    n_samples, n_features = X.shape
    columns = np.ascontiguousarray(X.T)
    square = (columns**2).sum(axis=1)
    slab_precision = square + 1.0 / slab_var
    log_odds = np.log(inclusion / (1 - inclusion)) - 0.5 * np.log1p(slab_var * square)
    w = np.where(
        rng.random((n_chains, n_features)) < inclusion,
        np.sqrt(slab_var) * rng.standard_normal((n_chains, n_features)),
        0.0,
    )
    mean, included = np.zeros_like(w), np.zeros_like(w)
    for sweep in range(n_sweeps):
        scores = w @ columns
        # Inverse of the distribution function in the tail that the label leaves, in logarithms.
        log_uniform = np.log(1.0 - rng.random((n_chains, n_samples)))
        noise = -labels * ndtri_exp(log_uniform + log_ndtr(labels * scores))
        residual = noise  # z - X w
        uniform, normal = rng.random(w.shape), rng.standard_normal(w.shape)
        for j in range(n_features):
            pull = residual @ columns[j] + square[j] * w[:, j]
            odds = expit(log_odds[j] + 0.5 * pull**2 / slab_precision[j])
            active = uniform[:, j] < odds
            slab_mean = pull / slab_precision[j]
            new = np.where(active, slab_mean + normal[:, j] / np.sqrt(slab_precision[j]), 0.0)
            residual -= np.multiply.outer(new - w[:, j], columns[j])
            w[:, j] = new
            if sweep >= burn_in:
                # What the draw is expected to be has less noise than the draw.
                included[:, j] += odds
                mean[:, j] += odds * slab_mean
    kept = n_sweeps - burn_in
    mean, included = mean / kept, included / kept
    root = np.sqrt(n_chains)
    return Gibbs(
        mean.mean(axis=0), included.mean(axis=0), mean.std(axis=0) / root, included.std(axis=0) / root
    )
