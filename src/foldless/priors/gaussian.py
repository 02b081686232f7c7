"""Gaussian priors: the plainest slab, and alone the prior of ridge regression and of intercepts.

The multivariate one is for the weights of one feature for several classes, which may go together.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from foldless.beliefs import Array, Tilted
from foldless.component import Names, require_positive, wants
from foldless.priors.base import (
    Continuous,
    HoldsArrays,
    HyperPrior,
    SlabEvidence,
    TiltedRows,
    Weight,
    as_cavity,
    total_weight,
    weighted_sum,
)
from foldless.registry import registered
from foldless.special import LOG_SQRT_2PI


class GaussianRows:
    """Rows of weights, one for each class, under full covariances: a Gaussian prior of a row."""

    @abstractmethod
    def _of_row(self, n_scores: int) -> tuple[Array, Array]:
        """μ and Σ of a row."""

    def tilted_rows(self, shift: Array, precision: Array) -> TiltedRows:
        """With S = (Σ⁻¹ + Λ)⁻¹ and m = S (Σ⁻¹μ + η):

        log_z = ½ (m'S⁻¹m - μ'Σ⁻¹μ) - ½ log|I + ΣΛ|.
        """
        found, cov = self._explained(shift, precision)
        scale = np.linalg.slogdet(np.eye(shift.shape[1]) + cov @ precision)[1]
        return found._replace(log_z=found.log_z - 0.5 * scale)

    def proximal_rows(self, shift: Array, precision: Array) -> TiltedRows:
        """The maximum has - ½ log|2πΣ| in place of the last term."""
        found, cov = self._explained(shift, precision)
        return found._replace(log_z=found.log_z - 0.5 * float(np.linalg.slogdet(2 * np.pi * cov)[1]))

    def _explained(self, shift: Array, precision: Array) -> tuple[TiltedRows, Array]:
        """All but the last term, and Σ."""
        mean, cov = self._of_row(shift.shape[1])
        prior_precision = np.linalg.inv(cov)
        posterior = np.linalg.inv(prior_precision + precision)
        posterior = 0.5 * (posterior + posterior.transpose(0, 2, 1))
        total_shift = shift + prior_precision @ mean
        moved = np.einsum("nij,nj->ni", posterior, total_shift)
        log_z = 0.5 * (np.einsum("ni,ni->n", moved, total_shift) - mean @ prior_precision @ mean)
        return TiltedRows(moved, posterior, log_z), cov


@registered("prior/gaussian")
@dataclass(frozen=True)
class Gaussian(GaussianRows, Continuous):
    """N(w; mean, variance). EM learns the variance, and the mean only if it is named.

    A mean of its own makes a slab one-sided, which is right for few models: so the rule is not to learn it.
    """

    variance: float = 1.0
    mean: float = 0.0

    tunable: ClassVar[tuple[str, ...]] = ("variance",)
    tunable_on_request: ClassVar[tuple[str, ...]] = ("mean",)

    def __post_init__(self) -> None:
        require_positive(self, "variance", self.variance, "A weight fixed at zero is a column left out.")
        if not (np.ndim(self.mean) == 0 and np.isfinite(self.mean)):
            raise ValueError(
                f"Gaussian(mean=...) must be a finite number; got {self.mean!r}. "
                "For means that differ between columns use Blocks."
            )

    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """With r, τ the cavity, μ, σ² the prior and V = σ² + τ:

        mean = (τ μ + σ² r) / V,    var = σ² τ / V,    log_z = log N(r; μ, V).
        """
        r, tau = as_cavity(cavity_mean, cavity_var)
        mean, var, total = self._moments_and_total(r, tau)
        log_z = r - self.mean
        log_z *= log_z
        log_z /= -2.0 * total
        log_z -= 0.5 * np.log(total) + float(LOG_SQRT_2PI)
        return Tilted(mean, _filled(var, r), log_z)

    def slab_evidence(self, cavity_mean: Array, cavity_var: Array) -> SlabEvidence:
        """`tilted` with the log Bayes factor against w = 0, where the squares are subtracted by hand:

        log bf = ½ log(τ/V) + ½ [r²/τ - (r - μ)²/V]
               = ½ log(τ/V) + ½ [r² σ²/(τ V) + μ (2r - μ)/V].
        """
        r, tau = as_cavity(cavity_mean, cavity_var)
        mean, var, total = self._moments_and_total(r, tau)
        half_log_total = 0.5 * np.log(total)
        half_square: Array = r * r
        half_square *= 0.5
        log_bayes_factor = half_square * (float(self.variance) / (tau * total))
        log_bayes_factor += 0.5 * np.log(tau) - half_log_total
        if self.mean == 0.0:
            log_z = half_square
        else:
            log_bayes_factor += (0.5 * float(self.mean)) * (2.0 * r - float(self.mean)) / total
            log_z = r - float(self.mean)
            log_z *= 0.5 * log_z
        log_z /= -total
        log_z -= half_log_total + float(LOG_SQRT_2PI)
        return SlabEvidence(mean, var, log_z, log_bayes_factor)

    def proximal(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """The mode of a Gaussian is its mean; the maximum is log N(μ; μ, σ²) - (r - μ)²/2V."""
        r, tau = as_cavity(cavity_mean, cavity_var)
        mean, var, total = self._moments_and_total(r, tau)
        maximum = -0.5 * (r - float(self.mean)) ** 2 / total
        maximum -= 0.5 * float(np.log(self.variance)) + float(LOG_SQRT_2PI)
        return Tilted(mean, _filled(var, r), maximum)

    def _of_row(self, n_scores: int) -> tuple[Array, Array]:
        return np.full(n_scores, float(self.mean)), float(self.variance) * np.eye(n_scores)

    def moments(self) -> tuple[float, float]:
        return float(self.mean), float(self.variance)

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> Array:
        return rng.normal(self.mean, np.sqrt(self.variance), size)

    def _learned(self, r: Array, tau: Array, weight: Weight, names: Names, hyper: HyperPrior) -> Self:
        """With ρ the weight, m and V the tilted moments, c pseudo-observations of size s:

        μ = Σρ m / Σρ  (if named),    σ² = [Σρ ((m - μ)² + V) + c s²] / [Σρ + c].
        """
        n = total_weight(weight, r)
        if n <= 0.0:
            return self
        mean, var, _ = self._moments_and_total(r, tau)
        learned = self
        if names is not None and "mean" in names:
            learned = replace(learned, mean=weighted_sum(mean, weight) / n)
        if wants(names, "variance"):
            squares = weighted_sum((mean - learned.mean) ** 2 + var, weight)
            pseudo = hyper.scale_count * hyper.scale**2
            size = np.sqrt((squares + pseudo) / (n + hyper.scale_count))
            learned = replace(learned, variance=float(hyper.bounded_size(size)) ** 2)
        return learned

    def _moments_and_total(self, r: Array, tau: Array) -> tuple[Array, Array, Array]:
        """Tilted mean and variance, and V; the last two in the shape of the cavity variance."""
        total = tau + float(self.variance)
        shrinkage = float(self.variance) / total
        mean = r * shrinkage
        if self.mean != 0.0:
            mean += float(self.mean) * (tau / total)
        return mean, tau * shrinkage, total


@registered("prior/multivariate-gaussian")
@dataclass(frozen=True, eq=False)
class MultivariateGaussian(GaussianRows, HoldsArrays):
    """N(w_n; 0, covariance) for the row w_n of a feature's weights, one for each of D classes.

    Weights are (features, D). With diagonal cavities (SHyGAMP) answers are marginal; HyGAMP has them whole.
    """

    covariance: Array

    tunable: ClassVar[tuple[str, ...]] = ("covariance",)

    def __post_init__(self) -> None:
        cov = np.asarray(self.covariance, dtype=np.float64)
        square = cov.ndim == 2 and cov.shape[0] == cov.shape[1] and np.all(np.isfinite(cov))
        if not (square and np.allclose(cov, cov.T) and np.all(np.linalg.eigvalsh(cov) > 0)):
            raise ValueError(
                "MultivariateGaussian(covariance=...) must be a symmetric positive definite matrix of "
                f"classes by classes; got {self.covariance!r}. Without covariances use Gaussian(variance)."
            )
        object.__setattr__(self, "covariance", cov)

    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """Marginals at independent cavities; log_z of a row is shared out evenly among its scores."""
        return self._marginals(cavity_mean, cavity_var, maximum=False)

    def proximal(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """The mode of a Gaussian is its mean."""
        return self._marginals(cavity_mean, cavity_var, maximum=True)

    def moments(self) -> tuple[float, float]:
        """Mean and variance of a weight, averaged over classes."""
        return 0.0, float(np.mean(np.diag(self.covariance)))

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draws for (features, D) weights, of which `size` is the shape or the number of features."""
        n_rows = size if isinstance(size, int) else size[0]
        return rng.multivariate_normal(np.zeros(len(self.covariance)), self.covariance, size=n_rows)

    def _learned(self, r: Array, tau: Array, weight: Weight, names: Names, hyper: HyperPrior) -> Self:
        """The mean of S + m m' over rows, and of the hyper prior's pseudo-observations."""
        tau = np.broadcast_to(tau, r.shape)
        of_row = np.broadcast_to(np.asarray(weight, dtype=np.float64), r.shape)[:, 0]
        if not wants(names, "covariance") or of_row.sum() <= 0:
            return self
        found = self.tilted_rows(r / tau, np.eye(r.shape[1]) / tau[:, np.newaxis])
        square = found.cov + found.mean[:, :, np.newaxis] * found.mean[:, np.newaxis, :]
        pseudo = hyper.scale_count * hyper.scale**2 * np.eye(r.shape[1])
        cov = (np.einsum("n,nij->ij", of_row, square) + pseudo) / (of_row.sum() + hyper.scale_count)
        return replace(self, covariance=cov)

    def _of_row(self, n_scores: int) -> tuple[Array, Array]:
        return np.zeros(n_scores), self.covariance

    def _marginals(self, cavity_mean: Array, cavity_var: Array, *, maximum: bool) -> Tilted:
        r, tau = as_cavity(cavity_mean, cavity_var)
        tau = np.broadcast_to(tau, r.shape)
        rule = self.proximal_rows if maximum else self.tilted_rows
        found = rule(r / tau, np.eye(r.shape[1]) / tau[:, np.newaxis])
        # N(w; r, τ) is exp(η'w - ½ w'Λw) and this; under max-sum there is no normaliser.
        of_cavity = -0.5 * np.sum(r * r / tau, axis=1)
        if not maximum:
            of_cavity -= 0.5 * np.sum(np.log(2 * np.pi * tau), axis=1)
        log_z = np.broadcast_to(((found.log_z + of_cavity) / r.shape[1])[:, np.newaxis], r.shape)
        var = np.einsum("nii->ni", found.cov)
        return Tilted(*(np.array(part, dtype=r.dtype) for part in (found.mean, var, log_z)))


def _filled(values: Array, like: Array) -> Array:
    """`values` as a writable array in the shape and dtype of `like`, which a result must have."""
    if isinstance(values, np.ndarray) and values.shape == like.shape and values.dtype == like.dtype:
        return values
    return np.array(np.broadcast_to(values, like.shape), dtype=like.dtype)
