"""Exact spike-and-slab probit posteriors for few features: all supports, each integrated numerically."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp, ndtri
from scipy.stats import qmc

Floats = NDArray[np.floating[Any]]
LOG_2PI = float(np.log(2 * np.pi))


class Exact(NamedTuple):
    inclusion: Floats
    mean: Floats
    log_evidence: float


def exact_spike_and_slab(
    X: Floats, labels: Floats, inclusion: float, slab_var: float, n_draws: int = 2**10
) -> Exact:
    """P(w_j ≠ 0), E[w] and log p(labels) for P(y = 1 | x) = Φ(x'w), weights (1 - π) δ + π N(0, slab_var)."""
    n_features = X.shape[1]
    signed = labels[:, np.newaxis] * X
    log_evidences, means, supports = [], [], []
    for bits in product([False, True], repeat=n_features):
        support = np.array(bits)
        log_prior = support.sum() * np.log(inclusion) + (~support).sum() * np.log1p(-inclusion)
        log_z, mean = gaussian_probit(signed[:, support], slab_var, n_draws)
        log_evidences.append(log_prior + log_z)
        means.append(np.zeros(n_features))
        means[-1][support] = mean
        supports.append(support)
    log_evidence = float(logsumexp(log_evidences))
    share = np.exp(np.array(log_evidences) - log_evidence)
    return Exact(share @ np.array(supports), share @ np.array(means), log_evidence)


def gaussian_probit(signed: Floats, prior_var: float, n_draws: int = 2**10) -> tuple[float, Floats]:
    """log ∫ Π Φ(s'w) N(w; 0, prior_var) dw and the mean of that integrand.

    Importance sampling at Sobol points from a Gaussian: first the Laplace approximation, then one with the
    mean and covariance found, both widened so that their tails are not the lighter ones.
    """
    n_samples, n_features = signed.shape
    if n_features == 0:
        return n_samples * float(log_ndtr(0.0)), np.zeros(0)
    mean = np.zeros(n_features)
    for _ in range(50):  # Newton's method; log-concave and regularised, so plain steps do
        c = signed @ mean
        hazard = np.exp(-0.5 * c * c - 0.5 * LOG_2PI - log_ndtr(c))
        hessian = (
            signed.T @ ((hazard * (c + hazard))[:, np.newaxis] * signed) + np.eye(n_features) / prior_var
        )
        step = np.linalg.solve(hessian, signed.T @ hazard - mean / prior_var)
        mean = mean + step
        if np.max(np.abs(step)) < 1e-10:
            break
    cov = np.linalg.inv(hessian)
    for n_points in (n_draws // 4, n_draws):
        root = 1.2 * np.linalg.cholesky(cov)
        points = _normal_points(n_features, n_points)
        draws = mean + points @ root.T
        log_ratio = log_ndtr(draws @ signed.T).sum(axis=1)
        log_ratio -= 0.5 * (draws**2).sum(axis=1) / prior_var + 0.5 * n_features * np.log(prior_var)
        log_ratio += 0.5 * (points**2).sum(axis=1) + np.log(np.diag(root)).sum()
        log_total = float(logsumexp(log_ratio))
        share = np.exp(log_ratio - log_total)
        mean = share @ draws
        cov = (draws - mean).T @ (share[:, np.newaxis] * (draws - mean))
    return log_total - float(np.log(n_draws)), mean


@lru_cache
def _normal_points(n_features: int, n_draws: int) -> Floats:
    return ndtri(qmc.Sobol(n_features, seed=0).random(n_draws))
