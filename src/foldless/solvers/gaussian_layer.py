"""The Gaussian that sites make: means, variances and normaliser, with exact covariances.

Precision  Λ = diag(λ) + G,  G = Xᵀ T X,  and shift  Λ μ = γ + Xᵀ ν, for M samples and N weights. With N > M
all is done in M x M matrices,

    K = X diag(1/λ) Xᵀ,   B = I + T^½ K T^½,   W = T^½ B⁻¹ T^½,   r = ν - W (X γ/λ + K ν),
    μ = (γ + Xᵀ r)/λ,   score mean = X γ/λ + K r,   e = diag Xᵀ W X,   var = (1 - e/λ)/λ,
    score var = diag(K - K W K) = (1 - diag B⁻¹)/T,   log|Λ| = Σ log|λ| + log|B|,

else Λ itself is factored. Negative λ are allowed: Λ is positive definite if and only if B has as many
negative eigenvalues as λ has negative entries (inertia of the two Schur complements of one matrix).

Expectation propagation needs marginals without their own site. Subtracting the site again would leave
nothing of a weight that its prior is sure of, so what is left is computed directly:

    of a weight   precision a = 1/var - λ = e / (1 - e/λ) = (G Λ⁻¹)_ii / var,    mean μ + (Xᵀ r)_i / a
    of a score    precision c = 1/var - T = T b / (1 - b)  with  b = (B⁻¹)_mm

X is visited in dense tiles of a few MB; nothing of its size is formed unless it is small.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import lapack

from foldless.beliefs import Array
from foldless.operators.base import Operator

# Up to this size a dense float64 copy of X is kept during a solve: less than what BLAS and NumPy take up
# themselves, and making the tiles anew would be most of the work of an iteration. Above it, tiles are remade.
KEPT_BYTES = 64 << 20
# 1 - e/λ is the share of its prior variance that a weight retains. A share of this size is rounding error.
LEAST_RETAINED = 8 * np.finfo(np.float64).eps


class NotPositiveDefinite(ValueError):
    """The sites make no distribution."""


class Tiles:
    """A matrix in dense tiles, of columns if it has more columns than rows, else of rows."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        n_rows, n_columns = self.shape = operator.shape
        self.by_columns = n_columns > n_rows
        self._kept: list[tuple[slice, Array]] | None = None
        self._keeps = 8 * n_rows * n_columns <= KEPT_BYTES

    def __reduce__(self) -> tuple[Any, ...]:
        return Tiles, (self.operator,)

    def __iter__(self) -> Iterator[tuple[slice, Array]]:
        if self._kept is not None:
            return iter(self._kept)
        made = self.operator.dense_columns() if self.by_columns else self.operator.dense_rows()
        if not self._keeps:
            return made
        self._kept = list(made)
        return iter(self._kept)


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
    # What labels alone say to a weight: precision a and Xᵀ r, the slope of their log density at its mean.
    data_precision: Array
    data_slope: Array
    # The precision c of a score without any of its sample's sites.
    rest_precision: Array


def gaussian_layer(tiles: Tiles, sites: Sites, sample_weight: Array) -> Gaussian:
    """The Gaussian of these sites; raises NotPositiveDefinite if there is none."""
    label_precision = sample_weight * sites.label_precision
    label_shift = sample_weight * sites.label_shift
    if tiles.by_columns:
        return _by_samples(tiles, sites, label_precision, label_shift)
    return _by_weights(tiles, sites, label_precision, label_shift)


def without_labels(operator: Operator, prior_precision: Array, prior_shift: Array) -> Gaussian:
    """The Gaussian of prior sites alone, whose precisions must be positive."""
    var = 1.0 / prior_precision
    mean = var * prior_shift
    score_var = _floored(operator.score_variances(var))
    log_normaliser = 0.5 * float(np.sum(prior_shift * mean + np.log(2 * np.pi * var)))
    return Gaussian(
        mean,
        var,
        operator.scores(mean),
        score_var,
        log_normaliser,
        np.zeros_like(var),
        np.zeros_like(var),
        1.0 / score_var,
    )


def _by_samples(tiles: Tiles, sites: Sites, label_precision: Array, label_shift: Array) -> Gaussian:
    """All in M x M matrices, for N > M."""
    n_samples, n_weights = tiles.shape
    spread = 1.0 / sites.prior_precision
    prior_mean = spread * sites.prior_shift
    n_negative = int(np.count_nonzero(spread < 0))
    kernel, prior_scores = np.zeros((n_samples, n_samples)), np.zeros(n_samples)
    root_spread, negative = np.sqrt(np.abs(spread)), spread < 0
    for columns, tile in tiles:
        prior_scores += tile @ prior_mean[columns]
        scaled = tile * root_spread[columns]
        # Of one array with itself only a triangle is computed. Negative sites are few at a fixed point.
        kernel += scaled @ scaled.T
        if n_negative and negative[columns].any():
            wrong_sign = scaled[:, negative[columns]]
            kernel -= 2.0 * (wrong_sign @ wrong_sign.T)
    prior_scores += kernel @ label_shift

    inner = _Inverse(kernel, label_precision, n_negative)
    residual = label_shift - inner.times(prior_scores)
    data_slope, explained = np.empty(n_weights), np.empty(n_weights)
    for columns, tile in tiles:
        data_slope[columns] = residual @ tile
        explained[columns] = inner.norms(tile)
    mean = spread * (sites.prior_shift + data_slope)
    retained = 1.0 - spread * explained
    if n_negative == 0:
        retained = np.maximum(retained, LEAST_RETAINED)
    var = spread * retained

    # Two forms of the scores' variance, each exact where the other cancels.
    diagonal = np.diag(kernel)
    score_var = np.maximum(diagonal - inner.norms(kernel), LEAST_RETAINED * np.abs(diagonal))
    with np.errstate(divide="ignore", invalid="ignore"):
        strong = label_precision * np.abs(diagonal) > 1.0 + np.abs(inner.diagonal)
        left = np.maximum(1.0 - inner.diagonal, LEAST_RETAINED)
        score_var = np.where(strong, left / label_precision, score_var)
        rest_precision = np.where(
            strong,
            label_precision * inner.diagonal / left,
            1.0 / _floored(score_var) - label_precision,
        )
    score_mean = prior_scores - kernel @ (label_shift - residual)
    log_determinant = float(np.sum(np.log(np.abs(sites.prior_precision)))) + inner.log_determinant
    return _checked(
        mean=mean,
        var=var,
        score_mean=score_mean,
        score_var=score_var,
        log_normaliser=_log_normaliser(sites, label_shift, mean, score_mean, log_determinant),
        data_precision=explained / retained,
        data_slope=data_slope,
        rest_precision=rest_precision,
    )


def _by_weights(tiles: Tiles, sites: Sites, label_precision: Array, label_shift: Array) -> Gaussian:
    """All in N x N matrices, for N <= M."""
    n_samples, n_weights = tiles.shape
    gram, shift = np.zeros((n_weights, n_weights)), np.zeros(n_weights)
    root = np.sqrt(label_precision)
    for rows, tile in tiles:
        scaled = tile * root[rows, np.newaxis]
        gram += scaled.T @ scaled
        shift += label_shift[rows] @ tile
    precision = gram + np.diag(sites.prior_precision)
    inverse_root, log_determinant = _inverse_cholesky(precision)
    mean = (inverse_root @ (sites.prior_shift + shift)) @ inverse_root
    covariance = inverse_root.T @ inverse_root
    var = np.diag(covariance)

    score_mean, spread = np.empty(n_samples), np.empty(n_samples)
    for rows, tile in tiles:
        score_mean[rows] = tile @ mean
        half = tile @ inverse_root.T
        spread[rows] = np.einsum("ij,ij->i", half, half)
    score_var = _floored(spread)

    # What labels say: without cancellation where the prior is the stronger, or where it is the weaker.
    sure = sites.prior_precision > np.diag(gram)
    data_precision = np.where(
        sure, np.einsum("ij,ij->i", gram, covariance) / var, 1.0 / var - sites.prior_precision
    )
    data_slope = np.where(sure, shift - gram @ mean, sites.prior_precision * mean - sites.prior_shift)
    return _checked(
        mean=mean,
        var=var,
        score_mean=score_mean,
        score_var=score_var,
        log_normaliser=_log_normaliser(sites, label_shift, mean, score_mean, log_determinant),
        data_precision=data_precision,
        data_slope=data_slope,
        rest_precision=1.0 / score_var - label_precision,
    )


def _log_normaliser(
    sites: Sites, label_shift: Array, mean: Array, score_mean: Array, log_determinant: float
) -> float:
    """½ (shiftᵀ μ - log|Λ| + N log 2π), with (γ + Xᵀν)ᵀ μ = γᵀ μ + νᵀ X μ."""
    square = float(sites.prior_shift @ mean + label_shift @ score_mean)
    return 0.5 * (square - log_determinant + mean.size * float(np.log(2 * np.pi)))


def _checked(**parts: Any) -> Gaussian:
    found = Gaussian(**parts)
    finite = (found.mean, found.score_mean, found.data_precision, found.data_slope)
    if not (np.all(found.var > 0) and all(np.all(np.isfinite(values)) for values in finite)):
        raise NotPositiveDefinite("a marginal variance is not positive")
    return replace(found, score_var=_floored(found.score_var))


def _floored(score_var: Array) -> Array:
    """A score that does not vary (a sample of zeros) still needs a variance to divide by."""
    return np.clip(score_var, 1e-300, 1e300)


class _Inverse:
    """W = T^½ B⁻¹ T^½ of B = I + T^½ K T^½, by Cholesky, or by LDLᵀ where prior sites are negative."""

    def __init__(self, kernel: Array, label_precision: Array, n_negative: int) -> None:
        root = np.sqrt(label_precision)
        matrix = root[:, np.newaxis] * kernel * root
        matrix.flat[:: root.size + 1] += 1.0
        self._half: Array | None = None
        if n_negative == 0:
            inverse_root, self.log_determinant = _inverse_cholesky(matrix)
            self.diagonal = np.einsum("ij,ij->j", inverse_root, inverse_root)
            self._half = inverse_root * root
            return
        negative, self.log_determinant = _inertia(matrix)
        if negative != n_negative:
            raise NotPositiveDefinite("prior sites of negative precision outweigh the labels")
        inverse = np.linalg.inv(matrix)
        self.diagonal = np.diag(inverse)
        self._whole = root[:, np.newaxis] * (0.5 * (inverse + inverse.T)) * root

    def times(self, vector: Array) -> Array:
        return self._whole @ vector if self._half is None else (self._half @ vector) @ self._half

    def norms(self, columns: Array) -> Array:
        """xᵀ W x for every column x."""
        if self._half is None:
            return np.einsum("ij,ij->j", self._whole @ columns, columns)
        half = self._half @ columns
        return np.einsum("ij,ij->j", half, half)


def _inverse_cholesky(matrix: Array) -> tuple[Array, float]:
    """L⁻¹ of a matrix L Lᵀ, and the log determinant of the matrix."""
    lower, info = lapack.dpotrf(matrix, lower=1, clean=1)
    # A matrix with NaN passes LAPACK, and a pivot of infinity leaves zeros.
    if info != 0 or not np.all(np.isfinite(pivots := np.diag(lower))):
        raise NotPositiveDefinite("a pivot is not positive")
    inverse, _ = lapack.dtrtri(lower, lower=1)
    return inverse, 2 * float(np.sum(np.log(pivots)))


def _inertia(matrix: Array) -> tuple[int, float]:
    """The number of negative eigenvalues of a symmetric matrix, and the log of its determinant's size.

    From LDLᵀ with D of blocks of 1 and 2 (Bunch and Kaufman), for an eighth of the cost of the eigenvalues.
    A block of 2 is only made where it has one eigenvalue of each sign.
    """
    if not np.all(np.isfinite(matrix)):
        raise NotPositiveDefinite("the kernel of the prior sites is not finite")
    work, _ = lapack.dsytrf_lwork(matrix.shape[0], lower=1)
    factor, pivots, info = lapack.dsytrf(matrix, lower=1, lwork=int(work))
    if info != 0:
        raise NotPositiveDefinite("the sites leave some direction without any precision")
    diagonal = np.diag(factor)
    single = pivots > 0
    # The two entries of a block of 2 carry the same negative pivot; its first is at an even place of its run.
    first = np.flatnonzero(~single)[::2]
    blocks = diagonal[first] * diagonal[first + 1] - factor[first + 1, first] ** 2
    log_determinant = float(np.sum(np.log(np.abs(diagonal[single]))) + np.sum(np.log(np.abs(blocks))))
    return int(np.count_nonzero(diagonal[single] < 0)) + first.size, log_determinant
