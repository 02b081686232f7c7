"""Leave-one-group-out from one fit: the sites of a group's labels are taken out together, no fit is repeated.

With prior sites (λ, γ) and label sites (T, ν), scores have prior mean  m = X γ/λ  and kernel
K = X diag(1/λ) Xᵀ.  Without group g, whose other samples are o,

    z = (I + K_oo T_o)⁻¹ (m_o + K_oo ν_o),    r = ν_o - T_o z,
    mean of g = m_g + K_go r,    covariance = K_gg - K_go T_o (I + K_oo T_o)⁻¹ K_og.

Sites of negative precision are no exception: nothing here needs K to be positive definite.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.problem import Problem
from foldless.solvers.gaussian_layer import Sites

LEAST_VARIANCE = 1e-6


def left_out_groups(problem: Problem, sites: Sites, group: NDArray[np.intp]) -> tuple[Array, Array]:
    """Mean and variance of every score from the samples of other groups; groups are numbered from 0."""
    n_samples = problem.operator.shape[0]
    spread = 1.0 / sites.prior_precision
    kernel, prior_scores = np.zeros((n_samples, n_samples)), np.zeros(n_samples)
    for columns, tile in problem.operator.dense_columns():
        kernel += (tile * spread[columns]) @ tile.T
        prior_scores += tile @ (spread * sites.prior_shift)[columns]
    precision = problem.sample_weight * sites.label_precision
    shift = problem.sample_weight * sites.label_shift
    mean, var = np.empty(n_samples), np.empty(n_samples)
    for number in range(int(group.max()) + 1):
        inside, others = np.flatnonzero(group == number), np.flatnonzero(group != number)
        across, own = kernel[np.ix_(others, inside)], np.diag(kernel)[inside]
        known = kernel[np.ix_(others, others)]
        through = np.eye(others.size) + known * precision[others]
        before = prior_scores[others] + known @ shift[others]
        solved = np.linalg.solve(through, np.column_stack([before, across]))
        mean[inside] = prior_scores[inside] + across.T @ (shift[others] - precision[others] * solved[:, 0])
        explained = np.einsum("ij,ij->j", across, precision[others, np.newaxis] * solved[:, 1:])
        var[inside] = np.maximum(own - explained, LEAST_VARIANCE)
    return mean, var
