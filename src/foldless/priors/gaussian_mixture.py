"""A mixture of Gaussians: heavy tails, or many small weights among a few large ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array, Tilted
from foldless.component import Names, wants
from foldless.priors.base import (
    Continuous,
    HyperPrior,
    SlabEvidence,
    Weight,
    as_cavity,
    in_pieces,
    total_weight,
    weighted_sum,
)
from foldless.registry import registered
from foldless.special import LOG_SQRT_2PI

# Weights that differ from a sum of one by more than this are taken for a mistake, not for rounding.
SUM_TOLERANCE = 1e-6
# A component that explains nothing keeps this weight: from exactly zero it could never come back.
LEAST_WEIGHT = 1e-12
# The pseudo-observations of a component are at most this much smaller or larger than the mixture's own
# variance, so that a component can neither collapse onto zero nor run off.
LEAST_RELATIVE_VARIANCE = 1e-3
LARGEST_RELATIVE_VARIANCE = 1e3


class Components(NamedTuple):
    """One row per component, over the cavities."""

    responsibility: Array
    mean: Array
    var: Array
    log_z: Array  # of the mixture: no row per component
    log_bayes_factor: Array  # of the mixture


@registered("prior/gaussian-mixture")
@dataclass(frozen=True)
class GaussianMixture(Continuous):
    """Σ_l weights_l N(w; means_l, variances_l). `means=None` puts all components at zero.

    EM learns weights and variances, and the means only if they are named and given.
    """

    weights: Sequence[float] = (0.8, 0.2)
    variances: Sequence[float] = (0.01, 1.0)
    means: Sequence[float] | None = None

    tunable: ClassVar[tuple[str, ...]] = ("weights", "variances")

    def __post_init__(self) -> None:
        weights, variances = np.asarray(self.weights, float), np.asarray(self.variances, float)
        if (
            weights.ndim != 1
            or weights.size == 0
            or not (np.all(weights > 0) and np.all(np.isfinite(weights)))
        ):
            raise ValueError(
                f"GaussianMixture(weights=...) must be positive numbers; got {self.weights!r}. "
                "Leave a component without weight out."
            )
        if abs(weights.sum() - 1.0) > SUM_TOLERANCE:
            raise ValueError(
                f"GaussianMixture(weights=...) must sum to 1; {self.weights!r} sums to {weights.sum():.6g}. "
                "Divide them by their sum."
            )
        if variances.shape != weights.shape or not (np.all(variances > 0) and np.all(np.isfinite(variances))):
            raise ValueError(
                f"GaussianMixture(variances=...) must be {weights.size} finite numbers > 0, one per weight; "
                f"got {self.variances!r}. For a component at exactly zero wrap the mixture in SpikeAndSlab."
            )
        if self.means is not None:
            means = np.asarray(self.means, float)
            if means.shape != weights.shape or not np.all(np.isfinite(means)):
                raise ValueError(
                    f"GaussianMixture(means=...) must be None or {weights.size} finite numbers, one per "
                    f"weight; got {self.means!r}. None puts all components at zero."
                )

    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """With m_l, v_l, Z_l of each component (`Gaussian.tilted`) and ρ = softmax(log ω_l + log Z_l):

        mean = Σ ρ_l m_l,    var = Σ ρ_l (v_l + (m_l - mean)²),    log_z = log Σ ω_l Z_l.
        """
        return in_pieces(
            lambda r, tau: Tilted(*self.slab_evidence(r, tau)[:3]), *as_cavity(cavity_mean, cavity_var)
        )

    def slab_evidence(self, cavity_mean: Array, cavity_var: Array) -> SlabEvidence:
        """`tilted`, with the log Bayes factor against w = 0."""
        each = self._components(*as_cavity(cavity_mean, cavity_var))
        mean = np.sum(each.responsibility * each.mean, axis=0)
        var = np.sum(each.responsibility * (each.var + (each.mean - mean) ** 2), axis=0)
        return SlabEvidence(mean, var, each.log_z, each.log_bayes_factor)

    def moments(self) -> tuple[float, float]:
        weights, variances, means = self._parameters()
        mean = float(weights @ means)
        return mean, float(weights @ (variances + (means - mean) ** 2))

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> Array:
        weights, variances, means = self._parameters()
        chosen = rng.choice(weights.size, p=weights / weights.sum(), size=size)
        return means[chosen] + np.sqrt(variances[chosen]) * rng.standard_normal(size)

    def _learned(self, r: Array, tau: Array, weight: Weight, names: Names, hyper: HyperPrior) -> Self:
        """With n_l = Σρ ρ_l the share of component l, and its part c/L of the pseudo-observations:

            ω_l = (n_l + c/L) / (n + c),
            μ_l = Σρ ρ_l m_l / n_l                                               (if named),
            σ²_l = [Σρ ρ_l ((m_l - μ_l)² + v_l) + s²_l c/L] / (n_l + c/L).

        The pseudo-observations keep the components apart: s²_l is scale² times the component's own variance
        relative to that of the mixture, within bounds. Equal ones would pull all components onto each
        other, where EM can no longer tell them apart.
        """
        n = total_weight(weight, r)
        if n <= 0.0:
            return self
        each = self._components(r, tau)
        count = hyper.scale_count / len(self.weights)
        shares = np.array([weighted_sum(one, weight) for one in each.responsibility])
        weights, variances, means = self._parameters()
        relative = variances / self.moments()[1]

        seen = shares > 0.0
        safe_shares = np.where(seen, shares, 1.0)
        if self.means is not None and names is not None and "means" in names:
            sums = [weighted_sum(p * m, weight) for p, m in zip(each.responsibility, each.mean, strict=True)]
            means = np.where(seen, np.array(sums) / safe_shares, means)
        if wants(names, "variances"):
            squares = np.array(
                [
                    weighted_sum(p * ((m - mu) ** 2 + v), weight)
                    for p, m, v, mu in zip(each.responsibility, each.mean, each.var, means, strict=True)
                ]
            )
            relative = np.clip(relative, LEAST_RELATIVE_VARIANCE, LARGEST_RELATIVE_VARIANCE)
            pseudo = count * hyper.scale**2 * relative
            # A component with neither data nor pseudo-observations stays as it is.
            variances = np.where(seen, (squares + pseudo) / (safe_shares + count), variances)
            variances = np.minimum(variances, hyper.bounded_size(np.inf) ** 2)
        if wants(names, "weights"):
            weights = np.maximum((shares + count) / (n + hyper.scale_count), LEAST_WEIGHT)
            weights /= weights.sum()
        return replace(
            self,
            weights=tuple(weights.tolist()),
            variances=tuple(variances.tolist()),
            means=None if self.means is None else tuple(means.tolist()),
        )

    def _parameters(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        weights = np.asarray(self.weights, dtype=np.float64)
        means = np.zeros_like(weights) if self.means is None else np.asarray(self.means, dtype=np.float64)
        return weights, np.asarray(self.variances, dtype=np.float64), means

    def _components(self, r: Array, tau: Array) -> Components:
        """Every component's answer. With V_l = σ²_l + τ, the log-odds of component l against the first are

            log ω_l/ω_0 - ½ log V_l/V_0
                + ½ [(r - μ_0)² (σ²_l - σ²_0)/(V_l V_0) + (μ_l - μ_0)(2r - μ_0 - μ_l)/V_l],

        the squares subtracted by hand: a wide cavity makes them huge and almost equal. log_z and the Bayes
        factor (`Gaussian.slab_evidence`) are those of the most responsible component, less the log of its
        responsibility.
        """
        weights, variances, means = (
            p.astype(r.dtype).reshape((-1,) + (1,) * r.ndim) for p in self._parameters()
        )
        total = variances + tau
        half_log_total = 0.5 * np.log(total)
        log_odds = 0.5 * (r - means[0]) ** 2 * (variances - variances[0]) / (total * total[0])
        log_odds += 0.5 * (means - means[0]) * (2.0 * r - means[0] - means) / total
        log_odds += np.log(weights) - half_log_total
        best = np.argmax(log_odds, axis=0)[None]
        log_odds -= np.take_along_axis(log_odds, best, axis=0)
        mass = np.exp(log_odds)
        mass_sum = mass.sum(axis=0)

        def of_best(values: Array) -> Array:
            return np.take_along_axis(np.broadcast_to(values, mass.shape), best, axis=0)[0]

        best_total, best_mean = of_best(total), of_best(means)
        log_share = of_best(np.log(weights) - half_log_total) + np.log(mass_sum)
        against_zero = r * r * of_best(variances) / tau + best_mean * (2.0 * r - best_mean)
        return Components(
            responsibility=mass / mass_sum,
            mean=(tau * means + variances * r) / total,
            var=np.broadcast_to(variances * tau / total, mass.shape),
            log_z=log_share - 0.5 * (r - best_mean) ** 2 / best_total - float(LOG_SQRT_2PI),
            log_bayes_factor=log_share + 0.5 * np.log(tau) + 0.5 * against_zero / best_total,
        )
