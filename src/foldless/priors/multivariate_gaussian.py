"""The multivariate Gaussian: weights of one feature for several classes, which may go together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from foldless.beliefs import Array, Tilted
from foldless.component import Names, wants
from foldless.priors._common import Learner, as_cavity, same_fields
from foldless.priors._rows import TiltedRows, gaussian_rows
from foldless.priors.base import HyperPrior, Weight
from foldless.registry import registered


@registered("prior/multivariate-gaussian")
@dataclass(frozen=True, eq=False)
class MultivariateGaussian(Learner):
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

    def __eq__(self, other: object) -> bool:
        return same_fields(self, other)

    def __hash__(self) -> int:
        return hash((type(self), self.covariance.shape))

    def tilted_rows(self, shift: Array, precision: Array) -> TiltedRows:
        return self._rows(shift, precision, maximum=False)

    def proximal_rows(self, shift: Array, precision: Array) -> TiltedRows:
        return self._rows(shift, precision, maximum=True)

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
        found = self._rows(r / tau, _diagonal(1.0 / tau), maximum=False)
        square = found.cov + found.mean[:, :, np.newaxis] * found.mean[:, np.newaxis, :]
        pseudo = hyper.scale_count * hyper.scale**2 * np.eye(r.shape[1])
        cov = (np.einsum("n,nij->ij", of_row, square) + pseudo) / (of_row.sum() + hyper.scale_count)
        return replace(self, covariance=cov)

    def _rows(self, shift: Array, precision: Array, *, maximum: bool) -> TiltedRows:
        nothing = np.zeros(len(self.covariance))
        return gaussian_rows(shift, precision, nothing, self.covariance, maximum=maximum)

    def _marginals(self, cavity_mean: Array, cavity_var: Array, *, maximum: bool) -> Tilted:
        r, tau = as_cavity(cavity_mean, cavity_var)
        tau = np.broadcast_to(tau, r.shape)
        found = self._rows(r / tau, _diagonal(1.0 / tau), maximum=maximum)
        # N(w; r, τ) is exp(η'w - ½ w'Λw) and this; under max-sum there is no normaliser.
        of_cavity = -0.5 * np.sum(r * r / tau, axis=1)
        if not maximum:
            of_cavity -= 0.5 * np.sum(np.log(2 * np.pi * tau), axis=1)
        log_z = np.broadcast_to(((found.log_z + of_cavity) / r.shape[1])[:, np.newaxis], r.shape)
        var = np.einsum("nii->ni", found.cov)
        return Tilted(*(np.array(part, dtype=r.dtype) for part in (found.mean, var, log_z)))


def _diagonal(values: Array) -> Array:
    out = np.zeros((*values.shape, values.shape[1]))
    out[:, np.arange(values.shape[1]), np.arange(values.shape[1])] = values
    return out
