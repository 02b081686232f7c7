"""Slow references for probit posteriors: dense EP for a Gaussian prior, enumeration for spike and slab."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri
from scipy.stats import norm, qmc

Floats = NDArray[np.floating[Any]]


def dense_ep(X: Floats, labels: Floats, prior_var: float, noise_var: float) -> tuple[Floats, Floats, float]:
    """Mean, covariance and log evidence of w ~ N(0, prior_var) given P(y | x'w) = Φ(y x'w / √noise_var).

    Expectation propagation with full covariances, sites N(z; m, v) in natural parameters, one by one
    [Rasmussen and Williams 2006, algorithm 3.5]. On X with independent entries its error is O(1/N).
    """
    n_samples = labels.size
    kernel = prior_var * (X @ X.T)
    precision, shift = np.zeros(n_samples), np.zeros(n_samples)
    cov, mean = kernel.copy(), np.zeros(n_samples)
    for _ in range(200):
        before = precision.copy()
        for m in range(n_samples):
            cavity_precision = 1 / cov[m, m] - precision[m]
            cavity_var = 1 / cavity_precision
            cavity_mean = cavity_var * (mean[m] / cov[m, m] - shift[m])
            std = np.sqrt(noise_var + cavity_var)
            c = labels[m] * cavity_mean / std
            hazard = np.exp(norm.logpdf(c) - log_ndtr(c))
            tilted_mean = cavity_mean + cavity_var * labels[m] * hazard / std
            tilted_var = cavity_var - cavity_var**2 * hazard * (c + hazard) / std**2
            step = 1 / tilted_var - cavity_precision - precision[m]
            precision[m] += step
            shift[m] = tilted_mean / tilted_var - cavity_mean / cavity_var
            column = cov[:, m].copy()
            cov -= np.outer(column, column) * (step / (1 + step * cov[m, m]))
            mean = cov @ shift
        root = np.sqrt(precision)
        inner = np.eye(n_samples) + root[:, None] * kernel * root
        cov = kernel - kernel @ (root[:, None] * np.linalg.solve(inner, root[:, None] * kernel))
        mean = cov @ shift
        if np.max(np.abs(precision - before)) < 1e-13 * np.max(precision):
            break
    # The weights, given Gaussian sites on their scores.
    weight_cov = np.linalg.inv(np.eye(X.shape[1]) / prior_var + X.T @ (precision[:, None] * X))
    weight_mean = weight_cov @ (X.T @ shift)
    # Evidence: site normalisers from the cavities, and the Gaussian integral over the scores.
    var = np.diag(cov)
    cavity_var = 1 / (1 / var - precision)
    cavity_mean = cavity_var * (mean / var - shift)
    site_mean, site_var = shift / precision, 1 / precision
    log_z = log_ndtr(labels * cavity_mean / np.sqrt(noise_var + cavity_var))
    log_z -= norm.logpdf(cavity_mean, site_mean, np.sqrt(cavity_var + site_var))
    total = kernel + np.diag(site_var)
    log_gauss = -0.5 * (
        np.linalg.slogdet(2 * np.pi * total)[1] + site_mean @ np.linalg.solve(total, site_mean)
    )
    return weight_mean, weight_cov, float(log_z.sum() + log_gauss)


def enumerated_spike_and_slab(
    X: Floats, labels: Floats, inclusion: float, slab_var: float, noise_var: float, n_draws: int = 2**10
) -> tuple[Floats, Floats]:
    """Inclusion probabilities and posterior means by enumerating supports, each integrated numerically.

    The integral over the weights of a support is importance sampling from its Laplace approximation, widened
    a little, with scrambled Sobol points; 2**10 of them give inclusion probabilities to 1e-4 (tested).
    """
    n_features = X.shape[1]
    log_evidences, means, supports = [], [], []
    for bits in product([False, True], repeat=n_features):
        support = np.array(bits)
        log_prior = support.sum() * np.log(inclusion) + (~support).sum() * np.log1p(-inclusion)
        log_z, mean = _support_evidence(X[:, support], labels, slab_var, noise_var, n_draws)
        log_evidences.append(log_prior + log_z)
        full = np.zeros(n_features)
        full[support] = mean
        means.append(full)
        supports.append(support)
    log_evidence = np.array(log_evidences)
    share = np.exp(log_evidence - np.logaddexp.reduce(log_evidence))
    return share @ np.array(supports), share @ np.array(means)


def _support_evidence(
    X: Floats, labels: Floats, slab_var: float, noise_var: float, n_draws: int
) -> tuple[float, Floats]:
    n_features = X.shape[1]
    signed = labels[:, None] * X / np.sqrt(noise_var)
    if n_features == 0:
        return labels.size * float(log_ndtr(0.0)), np.zeros(0)
    w = np.zeros(n_features)
    for _ in range(50):  # Newton's method; log-concave and regularised, so plain steps do
        c = signed @ w
        hazard = np.exp(norm.logpdf(c) - log_ndtr(c))
        hessian = signed.T @ ((hazard * (c + hazard))[:, None] * signed) + np.eye(n_features) / slab_var
        step = np.linalg.solve(hessian, signed.T @ hazard - w / slab_var)
        w = w + step
        if np.max(np.abs(step)) < 1e-12:
            break
    # 1.1 standard deviations: tails of the proposal must not be lighter than the posterior's.
    root = 1.1 * np.linalg.cholesky(np.linalg.inv(hessian))
    points = ndtri(qmc.Sobol(n_features, seed=0).random(n_draws))
    draws = w + points @ root.T
    log_ratio = log_ndtr(draws @ signed.T).sum(axis=1)
    log_ratio += norm.logpdf(draws, 0.0, np.sqrt(slab_var)).sum(axis=1)
    log_ratio -= norm.logpdf(points).sum(axis=1) - np.linalg.slogdet(root)[1]
    log_total = np.logaddexp.reduce(log_ratio)
    return float(log_total - np.log(n_draws)), np.exp(log_ratio - log_total) @ draws
