"""The Gaussian that sites make: means, variances and normaliser, with exact covariances.

Precision  Λ = diag(λ) + G,  G = Xᵀ T X,  and shift  Λ μ = γ + Xᵀ ν, for M samples and N weights.

Weights come in two kinds. The prior site of a *held* weight has a precision λ > 0 of at least the order of
what labels add to it, so that 1/λ is harmless. The sites of *free* weights are weak or negative; they are
few. With N > M the held weights H are integrated in M x M matrices,

    K = X_H diag(1/λ) X_Hᵀ,    B = I + T^½ K T^½ = L Lᵀ,
    P = L⁻¹ T^½ X,    r = ν - T^½ B⁻¹ T^½ (X_H γ/λ + K ν),

which leaves of the free weights F a small Gaussian of their own (`Opened`), to which their sites are added:

    Λ_F = diag(λ_F) + P_Fᵀ P_F,    Λ_F μ_F = γ_F + X_Fᵀ r.

Λ is positive definite if and only if Λ_F is, so that two Cholesky factors are all that is ever needed. With
Q = Λ_F^-½ P_Fᵀ P and the residual ρ = r - T^½ L⁻ᵀ P_F μ_F, a held weight has

    e = |P_i|² - |Q_i|²,    var = (1 - e/λ)/λ,    mean = (γ + X_iᵀ ρ)/λ,

and scores have mean X_H γ/λ + K ρ + X_F μ_F and variance (1 - b)/T, b = diag L⁻ᵀ (I - P_F Λ_F⁻¹ P_Fᵀ) L⁻¹.
With N <= M all weights are free: P_Fᵀ P_F is G itself.

Expectation propagation needs marginals without their own site. Of a weight that is known mostly by its prior,
subtracting the site would leave nothing but rounding. So what is left is computed directly:

    of a weight   precision a = 1/var - λ = e / (1 - e/λ) = (G Λ⁻¹)_ii / var,    mean μ + (Xᵀ ρ)_i / a
    of a score    precision c = 1/var - T = b / var

Where samples have several scores, each has its own such Gaussian; sites and moments of all scores are held
side by side, (weights or samples, scores), and covariances between scores are left out.

X is visited in dense tiles of a few MB; nothing of its size is formed unless it is small.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import blas, lapack

from foldless.beliefs import Array
from foldless.operators.base import DENSE_TILE_BYTES, Operator

Positions = NDArray[np.intp]

# Up to this size a dense float64 copy of X is kept during a solve: less than what BLAS and NumPy take up
# themselves, and making the tiles anew would be most of the work of an iteration. Above it, tiles are remade.
KEPT_BYTES = 64 << 20
# A weight retains the share 1 - e/λ of its prior variance. A share of this size is rounding error.
LEAST_RETAINED = 8 * np.finfo(np.float64).eps
# The precision of factors of I + T^½ K T^½, in half of the time that double precision takes. Its eigenvalues
# are one and more, so that rounding moves scores by far less than the tolerance.
FACTOR_DTYPE = np.dtype(np.float32)
# The precision that labels add to a weight is computed as a difference, unless its prior site is so many
# times as precise.
FAR_SURER, FAR_SURER_IN_SINGLE = 1e6, 1e3
# Rows of a triangle that are copied to the other at a time.
BLOCK_ROWS = 256
# 1 - b is the share of its score's precision that is a label's own. Below about this share it is not computed
# as a difference.
WEAK_LABEL = 1e-4
# Labels are near those of a factor while their precisions have moved, on average, by less than the first
# share of those of their scores: variances are then wrong by about its square. Moves shrink to a third each
# time. So after a move of more than the second share, the next one will lead away from any new factor, and
# none is kept.
NEAR, FAR = 0.02, 0.06
# Label precisions below this share of the inverse variance of the field are raised to it in a factor; the
# difference counts as a move.
LEAST_LABEL = 1e-3
# Jacobi steps for how labels that have moved change each other's scores; and refinements of means at most,
# which end at this relative error, not far from rounding in single precision.
JACOBI_STEPS, MOST_REFINED, REFINED = 2, 8, 1e-5


class NotPositiveDefinite(ValueError):
    """The sites make no distribution."""


class Tiles:
    """A matrix in dense tiles, of columns if it has more columns than rows, else of rows.

    Tiles and their products are in the precision of the caller's data, or in the one asked for; sums of
    products are in double precision, or in that of `factors` for matrices of columns by columns. With `keeps`
    the tiles of a matrix that is not large are kept for further visits.
    """

    def __init__(
        self,
        operator: Operator,
        dtype: DTypeLike | None = None,
        factors: DTypeLike = np.float64,
        *,
        keeps: bool = True,
    ) -> None:
        self.operator, self.factors = operator, np.dtype(factors)
        self.dtype = np.dtype(operator.dtype if dtype is None else dtype)
        n_rows, n_columns = self.shape = operator.shape
        self.by_columns = n_columns > n_rows
        self._kept: list[tuple[slice, Array]] | None = None
        self._keeps = keeps and self.dtype.itemsize * n_rows * n_columns <= KEPT_BYTES

    def __reduce__(self) -> tuple[Any, ...]:
        return Tiles, (self.operator, self.dtype, self.factors)

    @property
    def kept(self) -> bool:
        """Whether another visit finds the tiles made."""
        return self._kept is not None

    def __iter__(self) -> Iterator[tuple[slice, Array]]:
        if self._kept is not None:
            return iter(self._kept)
        # As large as the matrices that they are multiplied with, if that is larger than is usual.
        size = max(DENSE_TILE_BYTES, 8 * min(self.shape) ** 2)
        operator = self.operator
        double = operator.dense_columns(size) if self.by_columns else operator.dense_rows(size)
        made: Iterator[tuple[slice, Array]] = map(self._in_precision, double)
        if not self._keeps:
            return made
        self._kept = list(made)
        return iter(self._kept)

    def _in_precision(self, made: tuple[slice, Array]) -> tuple[slice, Array]:
        """A function of its own, which holds nothing of what a tile was made from when the next is.

        Columns that the caller has one after the other would be laid out anew in every product.
        """
        return made[0], made[1].astype(self.dtype, order="C" if self.by_columns else "K", copy=False)

    def opened(self, sites: Sites, sample_weight: Array, free: Positions) -> Opened:
        """All but the prior sites of the free weights, which must include every site that is not positive.

        With more samples than weights all weights are free, whatever is asked for.
        """
        if self.by_columns:
            return _HeldIntegrated(self, sites, sample_weight, free)
        return _AllFree(self, sites, sample_weight)

    def columns(self, positions: Positions) -> Array:
        """A few columns, in ascending order of their positions."""
        if not (self.by_columns and self._kept is not None):
            return self.operator.columns(positions)
        ends = np.searchsorted(positions, [columns.stop for columns, _ in self._kept])
        starts = [0, *ends[:-1]]
        return np.hstack(
            [
                tile[:, positions[start:end] - columns.start]
                for (columns, tile), start, end in zip(self._kept, starts, ends, strict=True)
            ]
        )


def columns_of(values: Array) -> list[Array]:
    """The values of every score: of one, a vector; of several, the columns of a matrix."""
    return [values] if values.ndim == 1 else list(np.ascontiguousarray(values.T))


def side_by_side(parts: Sequence[Array]) -> Array:
    """The values of every score as one array: the reverse of `columns_of`."""
    return parts[0] if len(parts) == 1 else np.column_stack(parts)


def of_any_score(which: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where something holds of at least one score."""
    return which if which.ndim == 1 else np.asarray(which.any(axis=1))


class Sites(NamedTuple):
    """Gaussian factors exp(shift x - precision x²/2), one for each weight and one for each sample.

    Of several scores side by side. A sample of weight 2 has two equal factors; what is here is one of them.
    """

    prior_precision: Array
    prior_shift: Array
    label_precision: Array
    label_shift: Array

    def of_scores(self) -> list[Sites]:
        """The sites of each score."""
        return [Sites(*parts) for parts in zip(*map(columns_of, self), strict=True)]

    def towards(self, other: Sites, step: float) -> Sites:
        """Part of the way to other sites."""
        return Sites(*(own + step * (its - own) for own, its in zip(self, other, strict=True)))

    def as_vector(self) -> Array:
        return np.concatenate([part.ravel() for part in self])

    def from_vector(self, vector: Array) -> Sites:
        """Other sites, as `as_vector` has them; label sites that are not positive are void."""
        parts = np.split(vector, np.cumsum([part.size for part in self])[:-1])
        found = Sites(*(part.reshape(like.shape) for part, like in zip(parts, self, strict=True)))
        return found._replace(label_precision=np.maximum(found.label_precision, 0.0))

    def with_prior(self, positions: Positions, precision: Array | float, shift: Array) -> Sites:
        """With other prior sites of some weights."""
        prior_precision, prior_shift = self.prior_precision.copy(), self.prior_shift.copy()
        prior_precision[positions], prior_shift[positions] = precision, shift
        return self._replace(prior_precision=prior_precision, prior_shift=prior_shift)


class Scores(NamedTuple):
    """Marginals of scores, and their precisions without any of their sample's sites."""

    mean: Array
    var: Array
    rest_precision: Array

    @classmethod
    def side_by_side(cls, parts: Sequence[Scores]) -> Scores:
        return cls(*map(side_by_side, zip(*parts, strict=True)))


class Gaussian(NamedTuple):
    """Marginals of weights and scores, and log ∫ of the product of all sites."""

    mean: Array
    var: Array
    # Of each weight without its prior site: the precision a, and Xᵀ ρ, the slope of the log density at its
    # mean.
    data_precision: Array
    data_slope: Array
    scores: Scores
    log_normaliser: float

    @classmethod
    def of_moments(
        cls, mean: Array, var: Array, precision: Array, slope: Array, scores: Scores, exponent: float
    ) -> Gaussian:
        """The Gaussian of these moments, in the order of its fields, if there is one.

        Its log normaliser is ½ (exponent + N log 2π), with the exponent γᵀ μ + νᵀ X μ - log|Λ|.
        """
        finite = (mean, scores.mean, precision, slope)
        # Where label sites are negative, weights can be proper and a score over their background not.
        proper = np.all(var > 0) and np.all(scores.var >= 0)
        if not (proper and all(np.all(np.isfinite(values)) for values in finite)):
            raise NotPositiveDefinite("a marginal variance is not positive")
        log_normaliser = 0.5 * (exponent + mean.size * float(np.log(2 * np.pi)))
        return cls(mean, var, precision, slope, scores, log_normaliser)

    @classmethod
    def of_scores(cls, parts: Sequence[Gaussian]) -> Gaussian:
        """The Gaussians of all scores, side by side."""
        mean, var, precision, slope = map(side_by_side, zip(*(part[:4] for part in parts), strict=True))
        scores = Scores.side_by_side([part.scores for part in parts])
        return cls(mean, var, precision, slope, scores, sum(part.log_normaliser for part in parts))


def without_labels(operator: Operator, prior_precision: Array, prior_shift: Array) -> Gaussian:
    """The Gaussian of prior sites alone, whose precisions must be positive."""
    var = 1.0 / prior_precision
    mean = var * prior_shift
    score_var = _floored(operator.score_variances(var))
    scores = Scores(operator.scores(mean), score_var, 1.0 / score_var)
    nothing, exponent = np.zeros_like(var), float(np.sum(prior_shift * mean + np.log(var)))
    return Gaussian.of_moments(mean, var, nothing, nothing, scores, exponent)


class JointCavity(NamedTuple):
    """exp(-½ wᵀ precision w + shiftᵀ w) for the weights of some columns."""

    precision: Array
    shift: Array


class Block:
    """The free weights under their sites: exp(-½ wᵀ Λ w + (γ + h)ᵀ w) with Λ = diag(s) + H.

    Raises NotPositiveDefinite if there is no such Gaussian.
    """

    def __init__(self, opened: Opened, site_precision: Array, site_shift: Array) -> None:
        self.opened, self.site_precision, self.site_shift = opened, site_precision, site_shift
        matrix = opened.precision.copy()
        matrix.flat[:: matrix.shape[0] + 1] += site_precision.astype(matrix.dtype, copy=False)
        self.root, self.log_determinant = _cholesky(matrix)  # L of Λ = L Lᵀ
        half = _inverse(self.root)
        single, shift = half.dtype == np.float32, site_shift + opened.shift
        self.mean = np.asarray((half @ shift.astype(half.dtype, copy=False)) @ half, dtype=np.float64)
        self.var = np.asarray(_squares(half), dtype=np.float64)
        if not np.all(self.var > 0):
            raise NotPositiveDefinite("a marginal variance is not positive")
        # What labels and other weights add, without cancellation whether the prior is stronger or weaker.
        surer = FAR_SURER_IN_SINGLE if single else FAR_SURER
        self._sure: NDArray[np.bool_] = site_precision > surer * opened.precision.diagonal()
        self.data_precision = 1.0 / self.var - site_precision
        self.data_slope = site_precision * self.mean - site_shift
        if (sure := self._sure).any():
            rows, own = opened.precision[sure], half[:, sure].T @ half
            self.data_precision[sure] = np.einsum("ij,ij->i", rows, own) / self.var[sure]
            self.data_slope[sure] = opened.shift[sure] - rows @ self.mean

    @cached_property
    def covariance(self) -> Array:
        half = _inverse(self.root)
        return half.T @ half

    @property
    def moments(self) -> tuple[Array, Array, Array, Array]:
        """The first four fields of a `Gaussian`."""
        return self.mean, self.var, self.data_precision, self.data_slope

    def cavity(self, at: Positions) -> JointCavity:
        """The joint cavity of free weights at these places among them.

        With μ and Σ the mean and covariance, S = diag(s) and the places C, H Σ = I - S Σ gives

            P = Σ_CC⁻¹ - S_C = (H Σ)_CC Σ_CC⁻¹,    P μ_C + S_C μ_C - γ_C,

        whose rows are taken from H Σ where the prior is the stronger, and from I - S Σ where labels are: a
        prior that is sure of a weight has a huge S, of which the difference would leave nothing, and of
        collinear columns with weak priors the sum cancels. P may be singular: of duplicated columns data see
        the sum only.
        """
        opened, site, sure = self.opened, self.site_precision[at], self._sure[at]
        covariance = self.covariance[np.ix_(at, at)]
        said = np.eye(at.size) - site[:, np.newaxis] * covariance
        slope = site * self.mean[at] - self.site_shift[at]
        if sure.any():
            said[sure] = opened.precision[at[sure]] @ self.covariance[:, at]
            slope[sure] = opened.shift[at[sure]] - opened.precision[at[sure]] @ self.mean
        unit = np.sqrt(covariance.diagonal())
        scaled = covariance / np.multiply.outer(unit, unit)
        precision = np.linalg.solve(scaled, (said / unit).T).T / unit
        precision = 0.5 * (precision + precision.T)
        return JointCavity(precision, precision @ self.mean[at] + slope)


class Opened(ABC):
    """The free weights before their sites: labels and held weights make exp(-½ wᵀ H w + hᵀ w) of them."""

    free: Positions
    precision: Array  # H
    shift: Array  # h

    def block_of(self, sites: Sites) -> Block:
        """The free weights with these sites; raises NotPositiveDefinite if there is no such Gaussian."""
        return Block(self, sites.prior_precision[self.free], sites.prior_shift[self.free])

    @abstractmethod
    def relabelled(self, sites: Sites, sample_weight: Array) -> Opened:
        """The same prior sites with other label sites, without another visit of held columns."""

    @abstractmethod
    def scores(self, block: Block) -> Scores:
        """The scores under all sites, with these of the free weights."""

    @abstractmethod
    def closed(self, block: Block) -> Gaussian:
        """The Gaussian of all sites, with these of the free weights."""


class HeldKernel(Opened):
    """Held weights integrated in M x M matrices; only the field that they make of scores is kept."""

    def __init__(
        self,
        kernel: Array,
        held_scores: Array,
        free: Positions,
        free_columns: Array,
        sites: Sites,
        sample_weight: Array,
    ) -> None:
        # Covariance and mean of scores by held weights, under their prior sites.
        self.kernel, self.held_scores = kernel, held_scores
        self.free, self.free_columns = free, free_columns
        self._set_labels(sites, sample_weight)

    def _set_labels(self, sites: Sites, sample_weight: Array) -> None:
        self.sites = sites
        self.label_precision = sample_weight * sites.label_precision
        self.label_shift = sample_weight * sites.label_shift
        self.label_root = root = np.sqrt(self.label_precision)
        scale = root.astype(self.kernel.dtype, copy=False)
        matrix = self.kernel * scale
        matrix *= scale[:, np.newaxis]
        matrix.flat[:: root.size + 1] += 1.0
        self.lower, self.log_determinant = _cholesky(matrix)
        # P_F, in Fortran's order as LAPACK leaves it.
        self.free_half = _half(self.lower, root[:, np.newaxis] * self.free_columns)
        self.precision = self.free_half.T @ self.free_half
        self.__dict__.pop("_inverse", None)
        self._set_shifts()

    def _set_shifts(self) -> None:
        before, root = self.held_scores + self._field(self.label_shift), self.label_root
        half = _half(self.lower, (root * before)[:, np.newaxis])[:, 0]
        self.residual = self.label_shift - root * _back(self.lower, half)
        self.shift = self.residual @ self.free_columns

    def shifted(self, sites: Sites, sample_weight: Array) -> HeldKernel:
        """With other shifts of labels, whose precisions are the same: without another factor."""
        other = copy(self)
        other.sites, other.label_shift = sites, sample_weight * sites.label_shift
        other._set_shifts()
        return other

    def relabelled(self, sites: Sites, sample_weight: Array) -> Opened:
        other = copy(self)
        other._set_labels(sites, sample_weight)
        return other

    def scores(self, block: Block) -> Scores:
        mean = self.held_scores + self._field(self._residual(block)) + self.free_columns @ block.mean
        return Scores(mean, *self._score_variances(block))

    def _field(self, row_values: Array) -> Array:
        """K row_values, in the precision of K."""
        return np.asarray(self.kernel @ row_values.astype(self.kernel.dtype, copy=False), dtype=np.float64)

    def closed(self, block: Block) -> Gaussian:
        """The Gaussian of the free weights; held ones have been integrated."""
        scores = self.scores(block)
        square = float(block.site_shift @ block.mean + self.label_shift @ scores.mean)
        exponent = square + float(self.held_scores @ self._residual(block))
        exponent -= self.log_determinant + block.log_determinant
        return Gaussian.of_moments(*block.moments, scores, exponent)

    def of_columns(self, tiles: Tiles, block: Block) -> tuple[Array, Array]:
        """Xᵀ ρ and e = |P_i|² - |Q_i|² of all columns, with these sites of the free weights.

        e = x_iᵀ W x_i, for which one triangle of the symmetric W is enough.
        """
        residual = self._residual(block).astype(tiles.dtype)
        half = self._inverse * self.label_root.astype(self._inverse.dtype)
        by_free = self._explained_by(block).astype(half.dtype) @ half
        triangle = np.tril(2.0 * (half.T @ half - by_free.T @ by_free)).astype(tiles.dtype)
        triangle.flat[:: residual.size + 1] *= 0.5
        multiply = blas.strmm if tiles.dtype == np.float32 else blas.dtrmm
        slope, explained = np.empty(tiles.shape[1]), np.empty(tiles.shape[1])
        for columns, tile in tiles:
            slope[columns] = residual @ tile
            # In Fortran's order tile and triangle are their transposes.
            image = multiply(1.0, triangle.T, tile.T, side=1).T
            explained[columns] = np.einsum("ij,ij->j", tile, image)
        return slope, explained

    def _residual(self, block: Block) -> Array:
        """ρ, the slope of the labels' log density in the scores, at their mean."""
        return self.residual - self.label_root * _back(self.lower, self.free_half @ block.mean)

    def _explained_by(self, block: Block) -> Array:
        """(P_F Λ_F^-½)ᵀ: what free weights explain of P."""
        return _half(block.root, self.free_half.T)

    @cached_property
    def _inverse(self) -> Array:
        return _inverse(self.lower)

    @property
    def known(self) -> KnownLabels:
        return KnownLabels(self.kernel, self.label_precision, _squares(self._inverse).astype(np.float64))

    def _score_variances(self, block: Block) -> tuple[Array, Array]:
        """Variances of scores, and their precisions without their own labels."""
        kernel, inverse = self.kernel, self._inverse
        explained = _squares(self._explained_by(block).astype(inverse.dtype) @ inverse)
        retained = np.asarray(_squares(inverse) - explained, dtype=np.float64)
        diagonal, label_precision = kernel.diagonal(), self.label_precision
        weak = label_precision * diagonal < WEAK_LABEL
        with np.errstate(divide="ignore", invalid="ignore"):
            score_var: Array = np.maximum(1.0 - retained, LEAST_RETAINED) / label_precision
        if weak.any():
            # 1 - b would cancel. K - K W K, and what free weights add to it, are computed without it.
            half = _half(self.lower, self.label_root[:, np.newaxis] * kernel[:, weak])
            held_var = np.maximum(diagonal[weak] - _squares(half), LEAST_RETAINED * diagonal[weak])
            columns = self.free_columns[weak] - half.T @ self.free_half
            score_var[weak] = held_var + _squares(_half(block.root, columns.T))
        score_var = _floored(score_var)
        rest_precision = np.where(weak, 1.0 / score_var - label_precision, retained / score_var)
        return score_var, rest_precision


class _HeldIntegrated(HeldKernel):
    """Held weights in M x M matrices, and their marginals, for N > M."""

    def __init__(self, tiles: Tiles, sites: Sites, sample_weight: Array, free: Positions) -> None:
        self.tiles = tiles
        precision = sites.prior_precision.copy()
        precision[free] = np.inf
        self.spread = 1.0 / precision
        prior_mean, root_spread = self.spread * sites.prior_shift, np.sqrt(self.spread)
        n_samples = tiles.shape[0]
        kernel, held_scores = np.zeros((n_samples, n_samples)), np.zeros(n_samples)
        for columns, tile in tiles:
            held_scores += tile @ prior_mean[columns].astype(tile.dtype)
            scaled = tile * root_spread[columns].astype(tile.dtype)
            # Of one array with itself only a triangle is computed.
            kernel += scaled @ scaled.T
        super().__init__(kernel, held_scores, free, tiles.columns(free), sites, sample_weight)

    def closed(self, block: Block) -> Gaussian:
        sites, free, spread = self.sites, self.free, self.spread
        data_slope, explained = self.of_columns(self.tiles, block)
        mean = spread * (sites.prior_shift + data_slope)
        retained = np.maximum(1.0 - spread * explained, LEAST_RETAINED)
        var = spread * retained
        data_precision = explained / retained
        mean[free], var[free] = block.mean, block.var
        data_precision[free], data_slope[free] = block.data_precision, block.data_slope

        scores = self.scores(block)
        held = sites.with_prior(free, 1.0, block.site_shift)
        of_held = float(np.sum(np.log(held.prior_precision)))
        square = float(held.prior_shift @ mean + self.label_shift @ scores.mean)
        exponent = square - (of_held + self.log_determinant + block.log_determinant)
        return Gaussian.of_moments(mean, var, data_precision, data_slope, scores, exponent)


class _AllFree(Opened):
    """All weights in N x N matrices, for N <= M."""

    def __init__(self, tiles: Tiles, sites: Sites, sample_weight: Array) -> None:
        self.tiles = tiles
        self.label_precision = sample_weight * sites.label_precision
        self.label_shift = sample_weight * sites.label_shift
        n_weights = tiles.shape[1]
        self.free = np.arange(n_weights)
        self.precision = np.zeros((n_weights, n_weights), dtype=tiles.factors)
        self.shift = np.zeros(n_weights)
        root = np.sqrt(self.label_precision)
        for rows, tile in tiles:
            scaled = tile * root[rows, np.newaxis].astype(tile.dtype)
            self.precision += scaled.T @ scaled
            self.shift += self.label_shift[rows] @ tile

    def relabelled(self, sites: Sites, sample_weight: Array) -> Opened:
        return _AllFree(self.tiles, sites, sample_weight)

    def scores(self, block: Block) -> Scores:
        n_samples = self.tiles.shape[0]
        mean, spread = np.empty(n_samples), np.empty(n_samples)
        for rows, tile in self.tiles:
            mean[rows] = tile @ block.mean
            spread[rows] = _squares(_half(block.root, tile.T))
        var = _floored(spread)
        return Scores(mean, var, 1.0 / var - self.label_precision)

    def closed(self, block: Block) -> Gaussian:
        scores = self.scores(block)
        square = float(block.site_shift @ block.mean + self.label_shift @ scores.mean)
        return Gaussian.of_moments(*block.moments, scores, square - block.log_determinant)


class KnownLabels(NamedTuple):
    """Label precisions for which a factor was made, and the shares b of scores' precisions beside them."""

    kernel: Array  # K
    label_precision: Array
    retained: Array  # b


class Factor(NamedTuple):
    """B⁻¹ of labels that may move a little (`NearKernel`), as a whole matrix, in the precision of K."""

    kernel: Array  # K
    label_precision: Array
    inverse: Array  # B⁻¹
    squares: Array  # of its entries
    log_determinant: float  # of B

    @classmethod
    def of(cls, kernel: Array, label_precision: Array) -> Factor:
        """The factor for these labels; none counts as void, since covariances are found by dividing."""
        label_precision = np.maximum(label_precision, LEAST_LABEL / kernel.diagonal())
        root = np.sqrt(label_precision).astype(kernel.dtype)
        matrix = kernel * root
        matrix *= root[:, np.newaxis]
        matrix.flat[:: root.size + 1] += 1.0
        lower, log_determinant = _cholesky(matrix)
        multiply = lapack.slauum if lower.dtype == np.float32 else lapack.dlauum
        inverse = multiply(_inverse(lower, overwrite=True), lower=1, overwrite_c=1)[0]
        for start in range(0, root.size, BLOCK_ROWS):
            rows, after = slice(start, start + BLOCK_ROWS), slice(start + BLOCK_ROWS, None)
            inverse[rows, after] = inverse[after, rows].T
            inverse[rows, rows] += np.tril(inverse[rows, rows], -1).T
        return cls(kernel, label_precision, inverse, inverse * inverse, log_determinant)

    def without(self, kernel: Array, columns: Array, spread: Array) -> Factor:
        """The factor of this kernel, from which columns, with weights of these variances, have been taken."""
        single = self.inverse.dtype
        scaled = (columns * np.sqrt(self.label_precision)[:, np.newaxis]).astype(single)
        image = self.inverse @ scaled
        root, log_determinant = _cholesky(np.diag(1.0 / spread) - (scaled.T @ image).astype(np.float64))
        half = _half(root.astype(single), image.T)
        inverse = half.T @ half
        inverse += self.inverse
        log_determinant += self.log_determinant + float(np.sum(np.log(spread)))
        return Factor(kernel, self.label_precision, inverse, inverse * inverse, log_determinant)

    @property
    def retained(self) -> Array:
        """b, the share of its score's precision that is not a label's own, under held weights alone."""
        return self.inverse.diagonal().astype(np.float64)


def share_moved(known: Factor | KnownLabels, label_precision: Array) -> float:
    """By what share of the precisions of their scores label precisions have moved since, on average."""
    least = LEAST_LABEL / known.kernel.diagonal()
    before = np.maximum(known.label_precision, least)
    moved = np.abs(np.maximum(label_precision, least) - before)
    return float(np.mean(moved * (1.0 - known.retained) / before))


class NearKernel(Opened):
    """`HeldKernel` for labels near those of a factor, in O(M²) for each free weight.

    Let C be the covariance of scores under held weights and the labels of the factor, and D the change of
    label precisions since: the covariance now is (C⁻¹ + D)⁻¹. The effect of a label on the variance of its
    own score is exact, c / (1 + d c), and that on the variance of another is of first order, in C_mk². The
    determinant is right to second order, and H of the free weights to third. Means are refined until they fit
    the present labels.
    """

    def __init__(
        self, factor: Factor, held_scores: Array, columns: Array, sites: Sites, sample_weight: Array
    ) -> None:
        self.factor, self.held_scores, self.free_columns = factor, held_scores, columns
        self.free, self.root = np.arange(columns.shape[1]), np.sqrt(factor.label_precision)
        along = self.root[:, np.newaxis]
        self._image = (factor.inverse @ (along * columns).astype(factor.inverse.dtype)).astype(np.float64)
        self._said = columns.T @ (along * self._image)
        self.residual: Array = np.zeros(self.root.size)
        self._set_labels(sites, sample_weight)

    def _set_labels(self, sites: Sites, sample_weight: Array) -> None:
        self.label_precision = sample_weight * sites.label_precision
        factor, along = self.factor, self.root[:, np.newaxis]
        before, retained, single = factor.label_precision, factor.retained, factor.inverse.dtype
        # Variances of scores under held weights and labels of the factor; and how much its own label's move
        # divides each.
        own, moved = (1.0 - retained) / before, self.label_precision - before
        self.grown = 1.0 + moved * own
        # G = (I + C D)⁻¹ G₀, how scores change with free weights, by a few of Jacobi's steps.
        first, grown = self._image / along, self.grown[:, np.newaxis]
        self.smoothed = first / grown
        # With a new factor only labels that were almost void have moved, and hardly.
        furthest = float(np.max(np.abs(moved) * own, initial=0.0))
        for _ in range(JACOBI_STEPS if furthest > LEAST_LABEL else int(furthest > 0)):
            pull = moved[:, np.newaxis] * self.smoothed / along
            of_others = factor.inverse @ pull.astype(single) - retained[:, np.newaxis] * pull
            self.smoothed = (first + of_others / along) / grown
        gained = first.T @ (moved[:, np.newaxis] * self.smoothed)
        self.precision = self._said + 0.5 * (gained + gained.T)
        share = moved / self.grown
        of_others = factor.squares @ (share / before).astype(single) - retained**2 * share / before
        of_others /= before
        self.rest_precision: Array = before * retained / (1.0 - retained) + of_others / own**2
        self.log_determinant = factor.log_determinant + float(np.sum(np.log(self.grown)))
        self.log_determinant -= 0.5 * float(share @ of_others)
        self._set_shifts(sites, sample_weight)

    def _set_shifts(self, sites: Sites, sample_weight: Array) -> None:
        self.sites, self.label_shift = sites, sample_weight * sites.label_shift
        self.residual = self._residual(np.zeros(self.free.size))
        self.shift = self.residual @ self.free_columns

    def shifted(self, sites: Sites, sample_weight: Array) -> NearKernel:
        """With other shifts of labels, whose precisions are the same."""
        other = copy(self)
        other._set_shifts(sites, sample_weight)
        return other

    def moved(self, sites: Sites, sample_weight: Array) -> NearKernel:
        """With other labels near those of the factor."""
        other = copy(self)
        other._set_labels(sites, sample_weight)
        return other

    def relabelled(self, sites: Sites, sample_weight: Array) -> Opened:
        kernel = self.factor.kernel
        return HeldKernel(kernel, self.held_scores, self.free, self.free_columns, sites, sample_weight)

    def scores(self, block: Block) -> Scores:
        return self._scores(block, self._residual(block.mean))

    def closed(self, block: Block) -> Gaussian:
        residual = self._residual(block.mean)
        scores = self._scores(block, residual)
        square = float(block.site_shift @ block.mean + self.label_shift @ scores.mean)
        exponent = square + float(self.held_scores @ residual)
        exponent -= self.log_determinant + block.log_determinant
        return Gaussian.of_moments(*block.moments, scores, exponent)

    def _scores(self, block: Block, residual: Array) -> Scores:
        mean = self.held_scores + self._field(residual) + self.free_columns @ block.mean
        of_held = 1.0 / (self.rest_precision + self.label_precision)
        of_free = _squares(_half(block.root, self.smoothed.T))
        var = of_held + of_free
        return Scores(mean, var, (self.rest_precision * of_held - self.label_precision * of_free) / var)

    def _residual(self, free_mean: Array) -> Array:
        """ρ = ν - T (scores of held weights and K ρ, and of free weights with this mean)."""
        fixed = self.held_scores + self.free_columns @ free_mean
        wanted = self.label_shift - self.label_precision * fixed
        found = self.residual - self.label_precision * (self.smoothed @ free_mean)
        for _ in range(MOST_REFINED):
            lacks = wanted - found - self.label_precision * self._field(found)
            if np.linalg.norm(lacks) <= REFINED * np.linalg.norm(wanted):
                break
            step = (lacks / (self.grown * self.root)).astype(self.factor.inverse.dtype)
            found = found + self.root * (self.factor.inverse @ step)
        return found

    def _field(self, row_values: Array) -> Array:
        return np.asarray(self.factor.kernel @ row_values.astype(self.factor.kernel.dtype), dtype=np.float64)


def _floored(score_var: Array) -> Array:
    """Variances that can be divided by, also of a score that does not vary (a sample of zeros)."""
    return np.clip(score_var, 1e-300, 1e300)


def _squares(columns: Array) -> Array:
    """The squared length of every column."""
    return np.einsum("ij,ij->j", columns, columns)


# Cholesky factors. Without free weights matrices have no rows, and LAPACK refuses these.


def _cholesky(matrix: Array) -> tuple[Array, float]:
    """L of a matrix L Lᵀ, which is overwritten, and the log determinant of the matrix."""
    if matrix.size == 0:
        return matrix, 0.0
    factorise = lapack.spotrf if matrix.dtype == np.float32 else lapack.dpotrf
    lower, info = factorise(matrix.T, lower=1, clean=1, overwrite_a=1)
    # A matrix with NaN passes LAPACK, and a pivot of infinity leaves zeros.
    if info != 0 or not np.all(np.isfinite(pivots := lower.diagonal())):
        raise NotPositiveDefinite("a pivot is not positive")
    return lower, 2 * float(np.sum(np.log(pivots)))


def _half(lower: Array, columns: Array) -> Array:
    """L⁻¹ columns."""
    if columns.size == 0:
        return columns
    # In C's order columns are the transpose of what BLAS wants, so the system is solved from the right.
    solve = blas.strsm if lower.dtype == np.float32 or columns.dtype == np.float32 else blas.dtrsm
    return solve(1.0, lower, columns.T, side=1, lower=1, trans_a=1).T


def _back(lower: Array, vector: Array) -> Array:
    """L⁻ᵀ vector."""
    solve = blas.strsv if lower.dtype == np.float32 else blas.dtrsv
    return solve(lower, vector, lower=1, trans=1)


def _inverse(lower: Array, *, overwrite: bool = False) -> Array:
    """L⁻¹."""
    if lower.size == 0:
        return lower
    invert = lapack.strtri if lower.dtype == np.float32 else lapack.dtrtri
    return invert(lower, lower=1, overwrite_c=overwrite)[0]
