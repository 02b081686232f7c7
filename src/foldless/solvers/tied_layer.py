"""The Gaussian of tied sites: one precision for all weights, one for all samples, a few columns exact.

One eigendecomposition of the Gram matrix gives means and mean variances for every pair of precisions
(`TiedLayer`), so that an iteration of VAMP visits the data only for products with vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from foldless.beliefs import Array
from foldless.operators.base import Operator
from foldless.problem import Problem
from foldless.solvers.gaussian_layer import Positions

# A cavity keeps at least this share of its marginal's precision: labels that say nothing leave weights a
# cavity so wide that every prior answers with its own moments.
LEAST_CAVITY_SHARE = 1e-12
# Columns with priors of another width are treated exactly up to this many; more are a group to be tied.
MOST_EXACT_COLUMNS = 32


class TiedSites(NamedTuple):
    """Gaussian sites: one precision for all tied weights, one for all samples, one for each kept column."""

    precision: float  # λ
    mean: Array  # r₂ of the tied weights, at equal column norms
    label_precision: float  # τ, of one of the equal rows that a sample counts as
    label_mean: Array  # p₂
    kept_precision: Array
    kept_shift: Array

    def towards(self, other: TiedSites, step: float) -> TiedSites:
        """Part of the way in precisions and in shifts, precision times mean.

        Means are not safe to mix: where labels say next to nothing they are next to infinite, and only
        their shifts are of any size.
        """
        if step == 1.0:
            return other

        def between(a: Array, b: Array) -> Array:
            return a + step * (b - a)

        precision = self.precision + step * (other.precision - self.precision)
        label_precision = self.label_precision + step * (other.label_precision - self.label_precision)
        return TiedSites(
            precision,
            between(self.precision * self.mean, other.precision * other.mean) / precision,
            label_precision,
            between(self.label_precision * self.label_mean, other.label_precision * other.label_mean)
            / label_precision,
            between(self.kept_precision, other.kept_precision),
            between(self.kept_shift, other.kept_shift),
        )


class Belief(NamedTuple):
    """The Gaussian that the sites make: marginals, and the tied cavities without cancellation."""

    mean: Array  # of the tied weights, at equal column norms
    var: float
    cavity_precision: float  # 1/var - λ
    kept_mean: Array
    kept_var: Array
    score_mean: Array
    score_var: float
    score_cavity_precision: float  # 1/score_var - τ
    log_normaliser: float


class TiedLayer(ABC):
    """The Gaussian of tied sites, from eigenvalues d of the Gram matrix of A = W^½ X/norm.

    With B = W^½ (kept columns), Λ and γ the kept sites' precisions and shifts, q = W^½ p₂, b = q - A r₂ and
    functions of the Gram matrix written as functions of d:

        δ = λ/(λ + τ d),   h = τ/(λ + τ d),   C = diag Λ + τ Bᵀ δ B   (precision of the kept weights u)
        u = C⁻¹ (γ + τ Bᵀ δ b),    w = r₂ + Aᵀ h (b - B u)
        N vw = Σ 1/(λ + τ d) + tr C⁻¹ Bᵀ A h² Aᵀ B,    M vz = Σ d/(λ + τ d) + tr C⁻¹ Bᵀ δ² B
        log |precision| = Σ log(λ + τ d) + log |C|,

    N, M and the sums counting all weights and all rows, those with d = 0 included. N (1 - λ vw) and
    M (1 - τ vz), the numerators of the cavity precisions, are summed without cancellation.
    """

    def __init__(self, problem: Problem, tied: Positions, kept: Positions, norm: Array) -> None:
        self.operator: Operator = problem.operator
        self.sample_weight = problem.sample_weight
        self.n_samples = float(problem.sample_weight.sum())
        self.n_weights = problem.operator.shape[1]
        self.tied, self.kept, self.norm = tied, kept, norm
        self.root_weight = np.sqrt(problem.sample_weight)
        self.kept_values = (
            problem.operator.columns(kept) if kept.size else np.zeros((self.root_weight.size, 0))
        )
        self.weighted_kept = self.root_weight[:, np.newaxis] * self.kept_values  # B

    values: Array  # d, as many as the Gram matrix that was decomposed has

    @abstractmethod
    def _means(self, sites: TiedSites, h: Array, kept_precision: _Factor) -> tuple[Array, Array, Array]:
        """w, u and the scores."""

    @abstractmethod
    def _kept_products(self, sites: TiedSites, delta: Array, h: Array) -> tuple[Array, Array, Array]:
        """Bᵀ δ B, Bᵀ δ² B and Bᵀ A h² Aᵀ B."""

    def serves(self, problem: Problem) -> bool:
        """Whether this is the layer of that problem too, whatever its prior and channel."""
        return self.operator is problem.operator and (
            self.sample_weight is problem.sample_weight
            or np.array_equal(self.sample_weight, problem.sample_weight)
        )

    def belief(self, sites: TiedSites) -> Belief:
        weight_precision, label_precision = sites.precision, sites.label_precision
        n_tied = self.tied.size
        precisions = weight_precision + label_precision * self.values
        delta, h = weight_precision / precisions, label_precision / precisions
        residual, residual_square, leak = self._kept_products(sites, delta, h)
        kept = _Factor(sites.kept_precision, label_precision * residual)
        mean, kept_mean, score_mean = self._means(sites, h, kept)

        # Degrees of freedom: those of weights that labels inform, those of scores that they do not.
        from_kept, scores_from_kept = kept.trace_of_solved(leak), kept.trace_of_solved(residual_square)
        informed = float(np.sum(h * self.values)) - weight_precision * from_kept
        free = self.n_samples - self.values.size + float(np.sum(delta)) - label_precision * scores_from_kept
        unseen = n_tied - self.values.size  # directions that no sample sees; none or negative for N <= M
        var = (float(np.sum(1.0 / precisions)) + unseen / weight_precision + from_kept) / max(n_tied, 1)
        score_var = (float(np.sum(self.values / precisions)) + scores_from_kept) / self.n_samples
        tiny = np.finfo(float).tiny
        # Without any tied column a variance is needed in name only.
        var, score_var = max(var, tiny) if n_tied else 1.0, max(score_var, tiny)

        shift_times_mean = (
            weight_precision * float(sites.mean @ mean)
            + float(sites.kept_shift @ kept_mean)
            + label_precision * float((self.sample_weight * sites.label_mean) @ score_mean)
        )
        log_determinant = (
            float(np.sum(np.log(precisions))) + unseen * np.log(weight_precision) + kept.log_determinant
        )
        log_normaliser = 0.5 * (
            shift_times_mean - log_determinant + (n_tied + self.kept.size) * np.log(2 * np.pi)
        )
        return Belief(
            mean=mean,
            var=var,
            cavity_precision=max(informed / max(n_tied, 1), LEAST_CAVITY_SHARE) / var,
            kept_mean=kept_mean,
            kept_var=kept.diagonal_of_inverse(),
            score_mean=score_mean,
            score_var=score_var,
            score_cavity_precision=max(free / self.n_samples, LEAST_CAVITY_SHARE) / score_var,
            log_normaliser=log_normaliser,
        )

    def _scores(self, tied: Array) -> Array:
        """Scores of the tied weights alone."""
        weights = np.zeros(self.n_weights)
        weights[self.tied] = tied / self.norm
        return self.operator.scores(weights)

    def _slopes(self, row_vector: Array) -> Array:
        """(X/norm)ᵀ row_vector for the tied columns."""
        sweep = self.operator.sweep(
            np.zeros(self.n_weights), None, lambda rows, scores, score_var: (row_vector[rows], None)
        )
        return sweep.slopes[self.tied] / self.norm


class _BySamples(TiedLayer):
    """Eigenvectors U of A Aᵀ, M x M, for N > M: everything between two products with X is M x M."""

    def __init__(self, problem: Problem, tied: Positions, kept: Positions, norm: Array) -> None:
        super().__init__(problem, tied, kept, norm)
        gram = np.zeros((self.root_weight.size, self.root_weight.size))
        inverse_norm = np.zeros(self.n_weights)
        inverse_norm[tied] = 1.0 / norm
        for columns, tile in self.operator.dense_columns():
            tile = tile * inverse_norm[columns]
            gram += tile @ tile.T
        # Without sample weights, for the scores of samples of weight 0 too.
        self.gram = gram
        self.values, self.vectors = _eigen(self.root_weight[:, np.newaxis] * gram * self.root_weight)
        self.kept_inside = self.vectors.T @ self.weighted_kept  # Uᵀ B

    def _kept_products(self, sites: TiedSites, delta: Array, h: Array) -> tuple[Array, Array, Array]:
        b = self.kept_inside
        leak = self.values * h**2
        return (
            b.T @ (delta[:, np.newaxis] * b),
            b.T @ ((delta**2)[:, np.newaxis] * b),
            b.T @ (leak[:, np.newaxis] * b),
        )

    def _means(self, sites: TiedSites, h: Array, kept_precision: _Factor) -> tuple[Array, Array, Array]:
        site_scores = self._scores(sites.mean)
        rest = self.vectors.T @ (self.root_weight * (sites.label_mean - site_scores))
        # τ δ = λ h.
        kept_mean = kept_precision.solve(
            sites.kept_shift + sites.precision * (self.kept_inside.T @ (h * rest))
        )
        pull = self.root_weight * (self.vectors @ (h * (rest - self.kept_inside @ kept_mean)))
        mean = sites.mean + self._slopes(pull)
        return mean, kept_mean, site_scores + self.gram @ pull + self.kept_values @ kept_mean


class _ByWeights(TiedLayer):
    """Eigenvectors V of AᵀA, N x N, for N <= M. Functions of A Aᵀ are taken from d = 0 and moved:

    f(A Aᵀ) = f(0) I + A V (f(d) - f(0))/d Vᵀ Aᵀ,  where (δ - 1)/d = -h and (δ² - 1)/d = -h (1 + δ).
    """

    def __init__(self, problem: Problem, tied: Positions, kept: Positions, norm: Array) -> None:
        super().__init__(problem, tied, kept, norm)
        gram, across = np.zeros((tied.size, tied.size)), np.zeros((tied.size, kept.size))
        for rows, block in self.operator.dense_rows():
            block = self.root_weight[rows, np.newaxis] * block[:, tied] / norm
            gram += block.T @ block
            across += block.T @ self.weighted_kept[rows]
        self.values, self.vectors = _eigen(gram)
        self.kept_inside = self.vectors.T @ across  # Vᵀ Aᵀ B
        self.kept_gram = self.weighted_kept.T @ self.weighted_kept

    def _kept_products(self, sites: TiedSites, delta: Array, h: Array) -> tuple[Array, Array, Array]:
        f = self.kept_inside
        residual = self.kept_gram - f.T @ (h[:, np.newaxis] * f)
        residual_square = self.kept_gram - f.T @ ((h * (1 + delta))[:, np.newaxis] * f)
        return residual, residual_square, f.T @ ((h**2)[:, np.newaxis] * f)

    def _means(self, sites: TiedSites, h: Array, kept_precision: _Factor) -> tuple[Array, Array, Array]:
        weighted_labels = self.sample_weight * sites.label_mean
        site_inside = self.vectors.T @ sites.mean
        rest = self.vectors.T @ self._slopes(weighted_labels) - self.values * site_inside
        of_kept = self.kept_values.T @ weighted_labels - self.kept_inside.T @ (site_inside + h * rest)
        kept_mean = kept_precision.solve(sites.kept_shift + sites.label_precision * of_kept)
        mean = sites.mean + self.vectors @ (h * (rest - self.kept_inside @ kept_mean))
        return mean, kept_mean, self._scores(mean) + self.kept_values @ kept_mean


class _Factor:
    """The precision C of the kept weights, decomposed; possibly 0 x 0."""

    def __init__(self, site_precision: Array, from_labels: Array) -> None:
        matrix = np.diag(site_precision) + from_labels
        # LAPACK refuses what is not finite; the loop knows what to do with it.
        broken = np.nan if not np.all(np.isfinite(matrix)) else 1.0
        values, self.vectors = _eigen(np.nan_to_num(matrix))
        values *= broken
        # Labels only add precision; what rounding took below that of the sites is put back.
        self.values = np.maximum(values, np.min(site_precision, initial=np.inf))
        self.log_determinant = float(np.sum(np.log(self.values)))

    def solve(self, vector: Array) -> Array:
        return self.vectors @ ((self.vectors.T @ vector) / self.values)

    def trace_of_solved(self, matrix: Array) -> float:
        """tr C⁻¹ matrix."""
        return float(np.sum((self.vectors * (matrix @ self.vectors)).sum(axis=0) / self.values))

    def diagonal_of_inverse(self) -> Array:
        return (self.vectors**2) @ (1.0 / self.values)


def _eigen(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues, none below zero, and eigenvectors of a positive semi-definite matrix of any size."""
    if matrix.shape[0] == 0:
        return np.zeros(0), np.zeros((0, 0))
    values, vectors = eigh(matrix, driver="evd")
    return np.maximum(values, 0.0), vectors


def tied_layer(problem: Problem) -> TiedLayer:
    """The layer of a problem: which columns are tied, which are exact, and the smaller Gram matrix."""
    n_rows = problem.operator.shape[0]
    _, squared = problem.operator.squared_norms(problem.sample_weight)
    kept = _exact_columns(problem, squared > 0)
    is_tied = squared > 0
    is_tied[kept] = False
    tied = np.flatnonzero(is_tied)
    norm = np.sqrt(squared[tied])
    if tied.size:
        # In units of the typical column, so that standardised columns stay as they are.
        norm = norm / np.sqrt(np.mean(norm**2))
    shape = _BySamples if tied.size > n_rows else _ByWeights
    return shape(problem, tied, kept, norm)


def _exact_columns(problem: Problem, varies: NDArray[np.bool_]) -> Positions:
    """Kept columns, and columns with a prior of another width if these are few."""
    n_weights = problem.operator.shape[1]
    mean, var = problem.prior.start(n_weights)
    usual_mean, usual_var = problem.prior.moments()
    others = np.flatnonzero(varies & ((mean != usual_mean) | (var != usual_var)))
    if others.size > MOST_EXACT_COLUMNS:
        others = others[:0]
    kept = others[:0] if problem.kept is None else problem.kept.positions
    return np.union1d(kept, others).astype(np.intp)
