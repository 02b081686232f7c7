"""A ridge on top of any prior: the quadratic part of a blended likelihood, per feature if need be."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array, Tilted
from foldless.priors._common import Denoiser, MovedCavity, as_cavity, proximal_of
from foldless.priors._slab import SlabEvidence, slab_evidence_of
from foldless.priors.base import Prior
from foldless.registry import registered


@registered("prior/ridged")
@dataclass(frozen=True, eq=False)
class Ridged(MovedCavity):
    """base(w) exp(-precision w²/2): the base after further evidence for small weights.

    The factor multiplies spike and slab alike, so it is merged into the cavity. It is not normalised: it
    is a likelihood, of the features themselves in a blend of discriminative and generative models, and so
    `moments` and `sample` are those of the base.

    `precision` is a number or an array that broadcasts against the weights.
    """

    precision: float | Array

    def __post_init__(self) -> None:
        super().__post_init__()
        precision = np.asarray(self.precision)
        if not (
            np.issubdtype(precision.dtype, np.number)
            and np.all(precision >= 0)
            and np.all(np.isfinite(precision))
        ):
            raise ValueError(
                "Ridged(precision=...) must be finite and >= 0, a number or one per feature; "
                f"got {self.precision!r}. A precision of 0 is no ridge."
            )

    def of_columns(self, columns: NDArray[np.intp], n_weights: int) -> Prior:
        precision = np.asarray(self.precision)
        own = precision[columns] if precision.ndim and precision.shape[0] == n_weights else self.precision
        return replace(self, base=self.base.of_columns(columns, n_weights), precision=own)

    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """The base at the inner cavity (r', τ'); with κ the precision

        log_z = log_z of the base - ½ κ r r' - ½ log(1 + κ τ).
        """
        return self._with_ridge(self.base.tilted, cavity_mean, cavity_var, normalised=True)

    @property
    def proximal(self) -> Denoiser:
        """Max-sum, if the base has it: the base's maximum at the inner cavity, less ½ κ r r'."""
        inner = proximal_of(self.base, self)
        return lambda cavity_mean, cavity_var: self._with_ridge(
            inner, cavity_mean, cavity_var, normalised=False
        )

    def slab_evidence(self, cavity_mean: Array, cavity_var: Array) -> SlabEvidence:
        """The ridge is one at w = 0, so the Bayes factor is that of the base at the inner cavity."""
        r, tau = as_cavity(cavity_mean, cavity_var)
        inner_mean, inner_var = self.inner_cavity(r, tau)
        base = slab_evidence_of(self.base, inner_mean, inner_var)
        return base._replace(log_z=base.log_z + self._log_factor(r, tau, inner_mean, normalised=True))

    def inner_cavity(self, cavity_mean: Array, cavity_var: Array) -> tuple[Array, Array]:
        """Precisions add: τ' = 1/(1/τ + κ), r' = r τ'/τ. Right for a cavity of any width."""
        r, tau = as_cavity(cavity_mean, cavity_var)
        inner_var = 1.0 / (1.0 / tau + np.asarray(self.precision, dtype=r.dtype))
        return np.asarray(r * (inner_var / tau)), np.asarray(inner_var)

    def _with_ridge(
        self, rule: Denoiser, cavity_mean: Array, cavity_var: Array, *, normalised: bool
    ) -> Tilted:
        r, tau = as_cavity(cavity_mean, cavity_var)
        inner_mean, inner_var = self.inner_cavity(r, tau)
        mean, var, log_z = rule(inner_mean, inner_var)
        return Tilted(mean, var, log_z + self._log_factor(r, tau, inner_mean, normalised=normalised))

    def _log_factor(self, r: Array, tau: Array, inner_mean: Array, *, normalised: bool) -> Array:
        """-½ κ r r' - ½ log(1 + κ τ): what cavity times ridge has more than the inner cavity."""
        precision = np.asarray(self.precision, dtype=r.dtype)
        log_factor = -0.5 * precision * r * inner_mean
        if normalised:
            log_factor -= 0.5 * np.log1p(precision * tau)
        return log_factor
