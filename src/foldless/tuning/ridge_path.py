"""Multinomial ridge regressions of several strengths, each with its leave-one-out scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foldless.beliefs import Array
from foldless.operators import Standardized
from foldless.solvers.kernel_multinomial import kernel_multinomial

# Prior variances of the scores of samples, in squared log-odds: from weak signals to separated classes.
SCORE_VARIANCES = (0.1, 1.0, 10.0, 100.0, 1000.0)
# Wide beside any log-odds of class sizes.
INTERCEPT_VARIANCE = 10.0
# A dense solve of samples by samples for each class and strength takes minutes beyond this.
MOST_SAMPLES = 2000


@dataclass(frozen=True, eq=False)
class RidgePath:
    """Weights in the units of the standardised columns, for every strength that converged."""

    weights: Array  # (strengths, columns, D)
    intercepts: Array  # (strengths, D)
    loo_scores: Array  # (strengths, samples, D)


def fit_ridge_path(standardized: Standardized, indicator: Array, sample_weight: Array) -> RidgePath | None:
    """Ridge regressions of every strength; None where there are too many samples. Weight 0 is no sample."""
    counted = sample_weight > 0
    n_samples = int(counted.sum())
    if n_samples > MOST_SAMPLES:
        return None
    products = np.zeros((indicator.shape[0], n_samples))
    for _, tile in standardized.dense_columns():
        products += tile @ tile[counted].T
    weight = sample_weight[counted]
    mean_square = float(weight @ np.diag(products[counted])) / float(weight.sum())
    if mean_square == 0:
        return None
    found = []
    for score_variance in SCORE_VARIANCES:
        scale = score_variance / mean_square
        kernel = scale * products + INTERCEPT_VARIANCE
        fitted = kernel_multinomial(kernel[counted], indicator[counted], weight)
        if not (fitted.converged and np.isfinite(fitted.loo_scores).all()):
            continue
        loo_scores = kernel @ fitted.dual
        loo_scores[counted] = fitted.loo_scores
        dual = np.zeros_like(indicator)
        dual[counted] = fitted.dual
        zeros = np.zeros((standardized.shape[1], dual.shape[1]))
        sums = standardized.sweep(zeros, None, lambda rows, scores, var, dual=dual: (dual[rows], None)).slopes
        found.append((scale * sums, INTERCEPT_VARIANCE * dual.sum(axis=0), loo_scores))
    if not found:
        return None
    return RidgePath(*(np.stack(parts) for parts in zip(*found, strict=True)))
