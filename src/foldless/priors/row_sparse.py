"""Row-sparse: a feature matters for all classes or for none, with one inclusion probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit, log_expit, logit

from foldless.beliefs import Array, Tilted
from foldless.priors._common import as_cavity
from foldless.priors._rows import TiltedRows
from foldless.priors._slab import slab_evidence_of
from foldless.priors.base import Weight
from foldless.priors.spike_and_slab import Spiked
from foldless.registry import registered


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
