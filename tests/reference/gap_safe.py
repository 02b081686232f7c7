"""Gap-safe screening: what a valid duality gap allows one to say of columns, whatever made it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldless.solvers.smlr import Penalty, Regression, RegressionFit


def safe_zeros(problem: Regression, penalty: Penalty, fitted: RegressionFit) -> NDArray[np.bool_]:
    """Columns whose weights are certainly zero at the optimum, by gap-safe screening [Ndiaye et al. 2017].

    The dual optimum lies within √(2 c gap)/λ of the feasible point that the residuals make, where c is the
    largest curvature of one sample; a column whose correlation stays below one in all of that ball is out.

    A correlation of n terms x'r is rounded by up to n ulps of ‖x‖‖r‖, and the gap, a difference of two sums
    as large as the objective, by up to that share of each. Near the optimum rounding is all there is to the
    gap, which may then be zero, while the columns in use have correlations of one to the last bit.
    """
    n_samples, rate = problem.operator.shape[0], penalty.rate
    _, squares = problem.operator.squared_norms(np.ones(n_samples))
    length = np.sqrt(squares)
    eps = float(np.finfo(problem.operator.dtype).eps)
    residual_size = float(np.linalg.norm(fitted.at.residual))
    rounding = n_samples * eps * float(length.max(initial=0.0)) * residual_size / rate
    gap = fitted.duality_gap + 2.0 * rounding * fitted.objective
    steepest = problem.labels.steepest * float(problem.labels.sample_weight.max())
    radius = np.sqrt(2.0 * steepest * gap) / rate
    centre = penalty.shrink(fitted.gradient) * penalty.row_size(fitted.gradient) / rate
    certain: NDArray[np.bool_] = centre + rounding + radius * length < 1.0
    return certain
