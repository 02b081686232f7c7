"""The Gaussian that sites make: means, variances and normaliser, with exact covariances.

Precision  Λ = diag(λ) + Xᵀ T X  and shift  h = γ + Xᵀ ν, for weights of M samples and N features. With
N > M all is done in M x M matrices,

    K = X diag(1/λ) Xᵀ,   B = I + T^½ K T^½,   a = T^½ B⁻¹ T^½ X (h/λ),
    mean = (h - Xᵀa)/λ,   var = 1/λ - colsum((B^-½ T^½ X/λ)²),
    score var = diag K - colsum((B^-½ T^½ K)²),   log|Λ| = Σ log|λ| + log|B|,

else Λ itself is factored. Negative λ are allowed: Λ is positive definite if and only if B has as many
negative eigenvalues as λ has negative entries (inertia of the two Schur complements of one matrix). X is
visited in dense tiles of a few MB; nothing of its size is formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, eigh, solve_triangular

from foldless.beliefs import Array
from foldless.operators.base import Operator

# Dense tiles of columns of about this size: large enough for BLAS, small beside X.
TILE_BYTES = 8 << 20


class NotPositiveDefinite(ValueError):
    """The sites make no distribution."""


@dataclass(frozen=True, eq=False)
class Sites:
    """Gaussian factors exp(shift x - precision x²/2), one for each weight and one for each sample.

    A sample of weight 2 has two equal factors; what is here is one of them.
    """

    prior_precision: Array
    prior_shift: Array
    label_precision: Array
    label_shift: Array

    def towards(self, other: Sites, step: float) -> Sites:
        """Part of the way to other sites."""
        return Sites(
            self.prior_precision + step * (other.prior_precision - self.prior_precision),
            self.prior_shift + step * (other.prior_shift - self.prior_shift),
            self.label_precision + step * (other.label_precision - self.label_precision),
            self.label_shift + step * (other.label_shift - self.label_shift),
        )


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Marginals of weights and scores, and log ∫ of the product of all sites."""

    mean: Array
    var: Array
    score_mean: Array
    score_var: Array
    log_normaliser: float


def gaussian_layer(operator: Operator, sites: Sites, sample_weight: Array) -> Gaussian:
    """The Gaussian of these sites; raises NotPositiveDefinite if there is none."""
    n_samples, n_weights = operator.shape
    label_precision = sample_weight * sites.label_precision
    label_shift = sample_weight * sites.label_shift
    if n_weights > n_samples:
        return _by_samples(operator, sites, label_precision, label_shift)
    return _by_weights(operator, sites, label_precision, label_shift)


def _by_samples(operator: Operator, sites: Sites, label_precision: Array, label_shift: Array) -> Gaussian:
    """All in M x M matrices, for N > M."""
    n_samples, n_weights = operator.shape
    spread = 1.0 / sites.prior_precision
    shift = np.empty(n_weights)
    kernel, prior_scores = np.zeros((n_samples, n_samples)), np.zeros(n_samples)
    for columns, tile in _column_tiles(operator):
        shift[columns] = sites.prior_shift[columns] + tile.T @ label_shift
        scaled = tile * spread[columns]
        kernel += scaled @ tile.T
        prior_scores += scaled @ shift[columns]

    root = np.sqrt(label_precision)
    factor = _SquareRoot(np.eye(n_samples) + root[:, np.newaxis] * kernel * root, sites.prior_precision)
    pull = root * factor.solve(root * prior_scores)
    mean, var = np.empty(n_weights), np.empty(n_weights)
    for columns, tile in _column_tiles(operator):
        mean[columns] = spread[columns] * (shift[columns] - tile.T @ pull)
        explained = factor.column_norms(root[:, np.newaxis] * tile)
        var[columns] = spread[columns] - spread[columns] ** 2 * explained
    score_var = np.diag(kernel) - factor.column_norms(root[:, np.newaxis] * kernel)
    score_mean = prior_scores - kernel @ pull
    log_determinant = float(np.sum(np.log(np.abs(sites.prior_precision)))) + factor.log_determinant
    return _checked(mean, var, score_mean, score_var, shift, log_determinant)


def _by_weights(operator: Operator, sites: Sites, label_precision: Array, label_shift: Array) -> Gaussian:
    """All in N x N matrices, for N <= M."""
    n_samples, n_weights = operator.shape
    precision = np.diag(sites.prior_precision)
    shift = sites.prior_shift.copy()
    for rows, block in operator.dense_rows():
        precision += (block * label_precision[rows, np.newaxis]).T @ block
        shift += block.T @ label_shift[rows]
    try:
        root = cholesky(precision, lower=True, check_finite=False)
    except LinAlgError as error:
        raise NotPositiveDefinite(str(error)) from error
    mean = cho_solve((root, True), shift, check_finite=False)
    covariance = cho_solve((root, True), np.eye(n_weights), check_finite=False)
    score_mean, score_var = np.empty(n_samples), np.empty(n_samples)
    for rows, block in operator.dense_rows():
        score_mean[rows] = block @ mean
        score_var[rows] = np.einsum("ij,ij->i", block @ covariance, block)
    log_determinant = 2 * float(np.sum(np.log(np.diag(root))))
    return _checked(mean, np.diag(covariance), score_mean, score_var, shift, log_determinant)


def _checked(
    mean: Array, var: Array, score_mean: Array, score_var: Array, shift: Array, log_determinant: float
) -> Gaussian:
    if not (np.all(np.isfinite(mean)) and np.all(var > 0) and np.all(score_var >= 0)):
        raise NotPositiveDefinite("a marginal variance is not positive")
    log_normaliser = 0.5 * float(shift @ mean) - 0.5 * log_determinant + 0.5 * mean.size * np.log(2 * np.pi)
    # A score that does not vary (a sample of zeros) still needs a variance to divide by.
    return Gaussian(mean, var, score_mean, np.maximum(score_var, np.finfo(float).tiny), log_normaliser)


class _SquareRoot:
    """A factor of B = I + T^½ K T^½, by Cholesky, or by eigenvectors where prior sites are negative."""

    def __init__(self, matrix: Array, prior_precision: Array) -> None:
        n_negative = int(np.count_nonzero(prior_precision < 0))
        self.lower: Array | None = None
        if n_negative == 0:
            try:
                self.lower = cholesky(matrix, lower=True, check_finite=False)
            except LinAlgError as error:
                raise NotPositiveDefinite(str(error)) from error
            self.log_determinant = 2 * float(np.sum(np.log(np.diag(self.lower))))
            return
        if not np.all(np.isfinite(matrix)):
            raise NotPositiveDefinite("the kernel of the prior sites is not finite")
        self.values, self.vectors = eigh(matrix, check_finite=False)
        if np.count_nonzero(self.values < 0) != n_negative or np.any(self.values == 0):
            raise NotPositiveDefinite("prior sites of negative precision outweigh the labels")
        self.log_determinant = float(np.sum(np.log(np.abs(self.values))))

    def solve(self, vector: Array) -> Array:
        if self.lower is not None:
            return cho_solve((self.lower, True), vector, check_finite=False)
        return self.vectors @ ((self.vectors.T @ vector) / self.values)

    def column_norms(self, columns: Array) -> Array:
        """xᵀ B⁻¹ x for every column x."""
        if self.lower is not None:
            half = solve_triangular(self.lower, columns, lower=True, check_finite=False)
            return np.einsum("ij,ij->j", half, half)
        half = self.vectors.T @ columns
        return np.einsum("ij,ij,i->j", half, half, 1.0 / self.values)


def _column_tiles(operator: Operator) -> Iterator[tuple[slice, Array]]:
    """The matrix as dense tiles of columns."""
    n_samples, n_weights = operator.shape
    width = max(TILE_BYTES // (8 * max(n_samples, 1)), 1)
    for start in range(0, n_weights, width):
        columns = slice(start, min(start + width, n_weights))
        yield columns, operator.columns(np.arange(columns.start, columns.stop))
