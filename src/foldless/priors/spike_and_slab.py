"""Spike and slab: most weights, or rows of them, are exactly zero, the others from any continuous prior."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from math import log, log1p
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logit

from foldless.beliefs import Array, Tilted
from foldless.component import Names, inner_names, wants
from foldless.priors.base import (
    Continuous,
    HyperPrior,
    Learner,
    Prior,
    TiltedRows,
    Weight,
    as_cavity,
    in_pieces,
    pieces,
    require_prior,
    slab_evidence_of,
    total_weight,
    weighted_sum,
)
from foldless.priors.gaussian import Gaussian
from foldless.registry import registered

# With a hyper-prior, the learned inclusion rate expects at least half a feature and at most half of them:
# beyond these the model is empty or not sparse, and EM does not find back.
LEAST_EXPECTED_ACTIVE = 0.5
LARGEST_INCLUSION = 0.5
# Without one, only far enough from 0 and 1 for the log-odds to be finite.
INCLUSION_MARGIN = 1e-12


class Odds(NamedTuple):
    """Probabilities of slab and spike: p and 1 - p, whichever is meant, without a subtraction."""

    inclusion: Array
    product: Array  # p (1 - p)
    minus_log_inclusion: Array


@dataclass(frozen=True)
class Spiked(Learner):
    """A slab beside a spike at zero, for single weights or for rows of them."""

    slab: Prior = field(default_factory=Gaussian)
    inclusion: float = 0.1

    tunable: ClassVar[tuple[str, ...]] = ("inclusion",)
    counted: ClassVar[str] = "weights that are not zero"

    def __post_init__(self) -> None:
        require_prior(self, "slab", self.slab)
        if not (np.ndim(self.inclusion) == 0 and 0.0 < self.inclusion < 1.0):
            raise ValueError(
                f"{type(self).__name__}(inclusion=...) is the expected share of {self.counted}, strictly "
                f"between 0 and 1; got {self.inclusion!r}. For no spike use the slab itself as the prior."
            )

    @abstractmethod
    def inclusion_probability(self, cavity_mean: Array, cavity_var: Array) -> Array:
        """Posterior probability that the weight, or its row, is not exactly zero."""

    @abstractmethod
    def _active(self, inclusion: Array, weight: Weight) -> tuple[float, float]:
        """Σρ p and n = Σρ, over weights or rows."""

    def moments(self) -> tuple[float, float]:
        mean, var = self.slab.moments()
        p = float(self.inclusion)
        return p * mean, p * var + p * (1.0 - p) * mean**2

    def _learned(self, r: Array, tau: Array, weight: Weight, names: Names, hyper: HyperPrior) -> Self:
        """With p the posterior inclusion, n = Σρ the number of weights, a and b of the hyper-prior:

            inclusion = (Σρ p + a) / (n + b n + a),

        and the slab's own EM step with every weight counted ρ p times.
        """
        inclusion = self.inclusion_probability(r, tau)
        active, n = self._active(inclusion, weight)
        if n <= 0.0:
            return self
        learned = self
        if wants(names, "inclusion"):
            count = hyper.active_count
            rate = (active + count) / (n + hyper.sparsity * n + count)
            if count > 0.0 or hyper.sparsity > 0.0:
                rate = min(max(rate, LEAST_EXPECTED_ACTIVE / n), LARGEST_INCLUSION)
            rate = float(np.clip(rate, INCLUSION_MARGIN, 1.0 - INCLUSION_MARGIN))
            learned = replace(learned, inclusion=rate)
        slab_names = inner_names(names, "slab")
        if slab_names is None or slab_names:
            slab = self.slab.em_update(  # type: ignore[attr-defined]
                r, tau, weight=inclusion * weight, names=slab_names, hyper=hyper
            )
            learned = replace(learned, slab=slab)
        return learned


@registered("prior/spike-and-slab")
@dataclass(frozen=True)
class SpikeAndSlab(Spiked):
    """(1 - inclusion) δ(w) + inclusion slab(w), for any slab."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.slab, SpikeAndSlab):
            raise ValueError(
                f"SpikeAndSlab(slab=...) must not have a spike of its own; got {self.slab!r}. "
                "Two spikes are one: multiply the inclusions."
            )

    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """From the slab's m, V, Z₁ and the posterior inclusion p:

            log odds = logit π + log Z₁ - log N(0; r, τ),    p = expit(log odds),
            mean = p m,    var = p V + p (1 - p) m²,    log_z = log π + log Z₁ - log p.

        The variance has no E[x²] - E[x]², and log_z is logaddexp of slab and spike in one term.
        """
        r, tau = as_cavity(cavity_mean, cavity_var)
        # A wrapper as slab may have one parameter per weight, which pieces would tear apart.
        same_for_all = isinstance(self.slab, Continuous)
        return in_pieces(self._tilted, r, tau) if same_for_all else self._tilted(r, tau)

    def _tilted(self, r: Array, tau: Array) -> Tilted:
        mean, slab_var, log_z, log_bayes_factor = slab_evidence_of(self.slab, r, tau)
        inclusion, product, minus_log_inclusion = self._odds(log_bayes_factor)
        # In place from here: every temporary is a pass over all weights.
        product *= mean
        product *= mean
        var = inclusion * slab_var
        var += product
        mean *= inclusion
        log_z += minus_log_inclusion
        log_z += log(self.inclusion)
        # Where the inclusion underflows the weight is zero for certain; its variance must remain positive.
        var = np.maximum(var, np.finfo(r.dtype).tiny)
        return Tilted(*(np.asarray(a, dtype=r.dtype) for a in (mean, var, log_z)))

    def of_columns(self, columns: NDArray[np.intp], n_weights: int) -> Prior:
        slab = self.slab.of_columns(columns, n_weights)
        return self if slab is self.slab else replace(self, slab=slab)

    def inclusion_probability(self, cavity_mean: Array, cavity_var: Array) -> Array:
        r, tau = as_cavity(cavity_mean, cavity_var)
        if not isinstance(self.slab, Continuous) or r.ndim != 1:
            return self._inclusion(r, tau)
        inclusion = np.empty_like(r)
        for piece, part in pieces(r, tau):
            inclusion[piece] = self._inclusion(r[piece], part)
        return inclusion

    def _inclusion(self, r: Array, tau: Array) -> Array:
        inclusion = self._odds(slab_evidence_of(self.slab, r, tau).log_bayes_factor).inclusion
        return np.asarray(inclusion, dtype=r.dtype)

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> Array:
        return np.where(rng.random(size) < self.inclusion, self.slab.sample(size, rng), 0.0)

    def _active(self, inclusion: Array, weight: Weight) -> tuple[float, float]:
        return weighted_sum(inclusion, weight), total_weight(weight, inclusion)

    def _odds(self, log_bayes_factor: Array) -> Odds:
        """Probabilities from log-odds o, with e = exp(-|o|), which cannot overflow.

            the larger one = 1/(1 + e),    the smaller one = e/(1 + e),
            -log p = max(-o, 0) + log(1 + e).

        log instead of log1p: 1 + e is there already, and the error is one rounding of a number near one.
        """
        log_odds = log_bayes_factor + (log(self.inclusion) - log1p(-self.inclusion))
        smaller = np.exp(-np.abs(log_odds))
        one_plus = 1.0 + smaller
        larger = 1.0 / one_plus
        smaller *= larger
        inclusion = np.where(log_odds > 0.0, larger, smaller)
        larger *= smaller
        minus_log_inclusion = np.log(one_plus)
        minus_log_inclusion -= np.minimum(log_odds, 0.0)
        return Odds(inclusion, larger, minus_log_inclusion)


@registered("prior/row-sparse")
@dataclass(frozen=True)
class RowSparse(Spiked):
    """(1 - inclusion) δ(w_n) + inclusion Π_k slab(w_nk), for the row w_n of a feature's weights.

    Weights are (features, scores). The log-odds of a feature are sums over its scores, so weak evidence from
    each of several classes adds up. The thesis gives row sparsity up where covariances are diagonal; with
    them it costs no more than independent spikes. log_z of a row is shared out evenly among its scores.
    """

    counted: ClassVar[str] = "features that matter"

    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """With the slab's m, V, log Bayes factors b, and p the inclusion of the row:

        log odds = logit π + Σ_k b_k,    mean = p m,    var = p V + p (1 - p) m²,
        log_z = Σ_k log Z_k + log π - log p.
        """
        r, tau = as_cavity(cavity_mean, cavity_var)
        mean, slab_var, log_z, bayes_factor = slab_evidence_of(self.slab, r, tau)
        log_odds = self._log_odds(bayes_factor)
        p = expit(log_odds)
        var = p * slab_var + p * expit(-log_odds) * mean**2
        row = log_z.sum(axis=-1, keepdims=True) + np.log(self.inclusion) - log_expit(log_odds)
        log_z = np.broadcast_to(row / r.shape[-1], r.shape)
        var = np.maximum(var, np.finfo(r.dtype).tiny)
        return Tilted(*(np.array(a, dtype=r.dtype) for a in (p * mean, var, log_z)))

    def tilted_rows(self, shift: Array, precision: Array) -> TiltedRows:
        """The same under full covariances: log odds = logit π + log Z of the slab, as a spike has Z = 1."""
        if not hasattr(self.slab, "tilted_rows"):
            raise ValueError(
                f"RowSparse under full covariances needs a Gaussian slab; got {self.slab!r}. Use "
                "RowSparse(Gaussian()) or RowSparse(MultivariateGaussian(covariance))."
            )
        mean, cov, log_z = self.slab.tilted_rows(shift, precision)
        log_odds = logit(self.inclusion) + log_z
        p, q = expit(log_odds), expit(-log_odds)
        outer = mean[:, :, np.newaxis] * mean[:, np.newaxis, :]
        cov = p[:, np.newaxis, np.newaxis] * (cov + q[:, np.newaxis, np.newaxis] * outer)
        log_z = np.logaddexp(np.log1p(-self.inclusion), np.log(self.inclusion) + log_z)
        return TiltedRows(p[:, np.newaxis] * mean, cov, log_z)

    def inclusion_probability(self, cavity_mean: Array, cavity_var: Array) -> Array:
        """Posterior probability that a row is not zero; (features, scores), the same along a row."""
        r, tau = as_cavity(cavity_mean, cavity_var)
        p = expit(self._log_odds(slab_evidence_of(self.slab, r, tau).log_bayes_factor))
        return np.array(np.broadcast_to(p, r.shape), dtype=r.dtype)

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> Array:
        draws = self.slab.sample(size, rng)
        return np.where(rng.random((*draws.shape[:-1], 1)) < self.inclusion, draws, 0.0)

    def _active(self, inclusion: Array, weight: Weight) -> tuple[float, float]:
        of_row = np.broadcast_to(np.asarray(weight, dtype=np.float64), inclusion.shape)[..., 0]
        return float(np.sum(inclusion[..., 0] * of_row)), float(of_row.sum())

    def _log_odds(self, log_bayes_factor: Array) -> Array:
        return np.asarray(logit(self.inclusion) + log_bayes_factor.sum(axis=-1, keepdims=True))
