"""Moments of softmax_y(z) N(z; p, diag q) by the approximations of Byrne's thesis, under their names.

All take the cavity (samples, D), variances of the same shape and classes 0..D-1, and answer like a channel.
They are here for comparison: `gumbel` is more accurate than any of them and as fast as most
(benchmarks/studies/softmax_estimators). Errata of the printed formulas are corrected: the Gaussian
approximation has no factor 2 in its precision, and the mixture's components have means of their own.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from foldless.beliefs import Array, Response
from foldless.special import mills

Classes = NDArray[np.intp]

# The thesis' grid: so many points per score, over so many standard deviations on either side.
GRID_POINTS, GRID_REACH = 7, 4.0
# A grid of more scores than this would have millions of points.
LARGEST_GRID = 7
IMPORTANCE_DRAWS = 1500
OUTER_NODES, OUTER_WEIGHTS = np.polynomial.hermite_e.hermegauss(21)
# A Taylor series is no probability; where it turns negative this share of the likelihood is kept.
LEAST_TAYLOR_SHARE = 0.05
# Numbers handled at a time.
PIECE = 1 << 16

# Two-component fits of 1/(1 + Σ e^-δ_k) by Σ_l a_l Π_k Φ((δ_k - μ_l)/s_l), one line for each D: (a, μ, s).
MIXTURES = {
    2: ((0.55838, 0.44162), (-0.0001, 0.0001), (1.29647, 2.28891)),
    3: ((0.37265, 0.62735), (-1.34638, 0.72729), (1.33665, 1.41310)),
    4: ((0.37817, 0.62183), (-1.38350, 0.78071), (1.27594, 1.42503)),
    5: ((0.38904, 0.61096), (-1.37032, 0.82181), (1.25631, 1.44871)),
    6: ((0.39325, 0.60675), (-1.35773, 0.82884), (1.27523, 1.47646)),
    7: ((0.39700, 0.60300), (-1.34464, 0.83083), (1.30069, 1.50348)),
    8: ((0.39630, 0.60370), (-1.33608, 0.82255), (1.31554, 1.53000)),
    9: ((0.39603, 0.60397), (-1.33442, 0.81803), (1.33373, 1.55064)),
    10: ((0.39120, 0.60880), (-1.33509, 0.79125), (1.34191, 1.57298)),
}


def grid_response(mean: Array, var: Array, classes: Classes) -> Response:
    """A sum over a regular grid around the cavity mean."""
    n_classes = mean.shape[1]
    if n_classes > LARGEST_GRID:
        raise ValueError(
            f"A grid over {n_classes} scores has {GRID_POINTS}^{n_classes} points. Use estimator='gumbel', "
            f"or at most {LARGEST_GRID} classes."
        )
    line = np.linspace(-GRID_REACH, GRID_REACH, GRID_POINTS)
    nodes = np.array(list(product(line, repeat=n_classes)))
    return _weighted_nodes(mean, var, classes, nodes, -0.5 * np.sum(nodes**2, axis=1))


def importance_response(mean: Array, var: Array, classes: Classes) -> Response:
    """Draws from the cavity weighted by the likelihood; the same draws for every sample and call."""
    nodes = np.random.default_rng(0).standard_normal((IMPORTANCE_DRAWS, mean.shape[1]))
    return _weighted_nodes(mean, var, classes, nodes, np.zeros(IMPORTANCE_DRAWS))


def _weighted_nodes(mean: Array, var: Array, classes: Classes, nodes: Array, log_mass: Array) -> Response:
    """Moments of scores p + √q ξ at given ξ, weighted by mass and likelihood."""
    log_mass = log_mass - logsumexp(log_mass)
    root = np.sqrt(var)
    log_z, first, second = np.empty(classes.size), np.empty_like(mean), np.empty_like(mean)
    rows_at_once = max(PIECE // nodes.size, 1)
    for start in range(0, classes.size, rows_at_once):
        rows = slice(start, start + rows_at_once)
        scores = mean[rows, np.newaxis] + root[rows, np.newaxis] * nodes
        own = np.take_along_axis(scores, classes[rows, np.newaxis, np.newaxis], axis=2)[..., 0]
        log_weight = own - logsumexp(scores, axis=2) + log_mass
        log_z[rows] = logsumexp(log_weight, axis=1)
        weight = np.exp(log_weight - log_z[rows, np.newaxis])
        first[rows], second[rows] = weight @ nodes, weight @ nodes**2
    return Response(log_z, first / root, (1.0 - second + first**2) / var)


def taylor_response(mean: Array, var: Array, classes: Classes) -> Response:
    """The likelihood's second-order series at the cavity mean: for variances well below one.

    With f the likelihood and s the softmax:  f_i = f (δ_iy - s_i),  f_yy = f (1 - s_y)(1 - 2 s_y),
    f_ii = -f s_i (1 - 2 s_i), and C = f + ½ Σ f_dd q_d:  slope = f_i/C,  curvature = slope² - f_ii/C.
    """
    share = softmax(mean, axis=1)
    rows = np.arange(classes.size)
    own = share[rows, classes]
    first = -share
    first[rows, classes] += 1.0
    second = -share * (1.0 - 2.0 * share)
    second[rows, classes] = (1.0 - own) * (1.0 - 2.0 * own)
    ratio = np.maximum(1.0 + 0.5 * np.sum(second * var, axis=1), LEAST_TAYLOR_SHARE)  # C / f
    slope = first / ratio[:, np.newaxis]
    log_likelihood = mean[rows, classes] - logsumexp(mean, axis=1)
    return Response(log_likelihood + np.log(ratio), slope, slope**2 - second / ratio[:, np.newaxis])


def gaussian_response(mean: Array, var: Array, classes: Classes) -> Response:
    """The log-likelihood's second-order series at the cavity mean: one Newton step towards the mode.

    With g = e_y - s, ρ = s/(1 + q s), by the formula of Sherman and Morrison:
        slope = g/(1 + q s) + ρ Σ(q ρ g)/Σρ,    curvature = ρ (1 - ρ/Σρ).
    """
    share = softmax(mean, axis=1)
    rows = np.arange(classes.size)
    gradient = -share
    gradient[rows, classes] += 1.0
    shrunk = 1.0 + var * share
    rho = share / shrunk
    total = rho.sum(axis=1, keepdims=True)
    slope = gradient / shrunk + rho * (np.sum(var * rho * gradient, axis=1, keepdims=True) / total)
    log_z = mean[rows, classes] - logsumexp(mean, axis=1)
    log_z += 0.5 * np.sum(gradient * var * slope, axis=1)
    log_z -= 0.5 * (np.log(shrunk).sum(axis=1) + np.log(total[:, 0]))
    return Response(log_z, slope, rho * (total - rho) / total)


def mixture_response(mean: Array, var: Array, classes: Classes) -> Response:
    """The softmax as a mixture of products of normal cdfs in δ_k = z_y - z_k; a sum over z_y remains.

    Given z_y, with x = (z_y - p_k - μ_l)/S, S² = s_l² + q_k and h the inverse Mills ratio, class k has
    slope -h/S and curvature (x h + h²)/S² under component l.
    """
    n_samples, n_classes = mean.shape
    if n_classes not in MIXTURES:
        raise ValueError(
            f"The mixture of normal cdfs is fitted for 2 to 10 classes; got {n_classes}. "
            "Use estimator='gumbel'."
        )
    shares, centres, scales = (np.array(values) for values in MIXTURES[n_classes])
    nodes, log_mass = OUTER_NODES, np.log(OUTER_WEIGHTS / OUTER_WEIGHTS.sum())
    rows = np.arange(n_samples)
    others = np.ones((n_samples, n_classes), dtype=bool)
    others[rows, classes] = False
    other_mean = mean[others].reshape(n_samples, 1, 1, n_classes - 1)
    other_var = var[others].reshape(n_samples, 1, 1, n_classes - 1)
    own_mean, own_var = mean[rows, classes], var[rows, classes]
    own = own_mean[:, np.newaxis] + np.sqrt(own_var)[:, np.newaxis] * nodes
    spread = np.sqrt(scales[:, np.newaxis] ** 2 + other_var)  # (samples, 1, components, others)
    x = (own[:, :, np.newaxis, np.newaxis] - other_mean - centres[:, np.newaxis]) / spread
    log_cdf, hazard, _, _ = mills(x)
    log_weight = log_cdf.sum(axis=3) + np.log(shares) + log_mass[:, np.newaxis]
    log_z = logsumexp(log_weight, axis=(1, 2))
    weight = np.exp(log_weight - log_z[:, np.newaxis, np.newaxis])

    slope, curvature = np.empty_like(mean), np.empty_like(mean)
    other_slope = -np.einsum("mjl,mjlk->mk", weight, hazard / spread)
    slope[others] = other_slope.ravel()
    curvature[others] = (np.einsum("mjl,mjlk->mk", weight, x * hazard / spread**2) + other_slope**2).ravel()
    of_own = weight.sum(axis=2)
    first, second = of_own @ nodes, of_own @ nodes**2
    slope[rows, classes] = first / np.sqrt(own_var)
    curvature[rows, classes] = (1.0 - second + first**2) / own_var
    return Response(log_z, slope, curvature)
