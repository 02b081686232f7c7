"""The Gaussian prior: the plainest slab, and alone the prior of ridge regression and of intercepts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from foldless.beliefs import Array, Tilted
from foldless.component import Names, require_positive, wants
from foldless.priors._common import (
    Continuous,
    as_cavity,
    asked_explicitly,
    filled,
    total_weight,
    weighted_sum,
)
from foldless.priors._rows import TiltedRows, gaussian_rows
from foldless.priors._slab import SlabEvidence
from foldless.priors.base import HyperPrior, Weight
from foldless.registry import registered
from foldless.special import LOG_SQRT_2PI


@registered("prior/gaussian")
@dataclass(frozen=True)
class Gaussian(Continuous):
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
        return Tilted(mean, filled(var, r), log_z)

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
        return Tilted(mean, filled(var, r), maximum)

    def tilted_rows(self, shift: Array, precision: Array) -> TiltedRows:
        """Rows of weights under full covariances: independent in the prior, not in what labels say."""
        return self._rows(shift, precision, maximum=False)

    def proximal_rows(self, shift: Array, precision: Array) -> TiltedRows:
        return self._rows(shift, precision, maximum=True)

    def _rows(self, shift: Array, precision: Array, *, maximum: bool) -> TiltedRows:
        n_scores = shift.shape[1]
        mean, cov = np.full(n_scores, float(self.mean)), float(self.variance) * np.eye(n_scores)
        return gaussian_rows(shift, precision, mean, cov, maximum=maximum)

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
        if asked_explicitly(names, "mean"):
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
