"""Spectra of populations: how far features are correlated, as theory needs it, and its estimate from data.

The eigenvalues of the correlation matrix of N features are described by a few values and their shares. A
sample of M rows has other eigenvalues: spread out, and all but M of them zero. With v(x) = (1/M) Σ 1/(lᵢ + x)
over the M eigenvalues lᵢ of XXᵀ/M, population and sample are related by [Silverstein 1995; El Karoui 2008]

    (N/M) ∫ t v(x) / (1 + t v(x)) dH(t) = 1 - x v(x)        for every x > 0,

which is linear in the population's distribution H. So H on a grid of values t is found by non-negative least
squares, without any N x N matrix. x > 0 keeps away from the sample's own eigenvalues, where v is rough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from foldless.beliefs import Array

# Values that population eigenvalues may have, and points at which the relation is asked to hold.
N_VALUES, N_POINTS = 60, 80
SMALLEST_VALUE = 0.02
# The trace is known exactly, as columns have unit variance; this many times as sure as one equation.
TRACE_WEIGHT = 30.0
# Eigenvalues nearer than this share are one, once shares are known.
SMALLEST_SHARE = 1e-9


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of a correlation matrix and the share of each; their mean is one."""

    values: Array
    shares: Array

    def __post_init__(self) -> None:
        values, shares = np.asarray(self.values, dtype=float), np.asarray(self.shares, dtype=float)
        if values.ndim != 1 or values.shape != shares.shape or not values.size:
            raise ValueError(
                f"Spectrum needs one share for each value; got {values.shape} values, {shares.shape} shares."
            )
        if not (np.all(np.isfinite(values)) and np.all(values >= 0) and np.any(values > 0)):
            raise ValueError("Spectrum(values=...) are eigenvalues: finite, at least 0, not all 0.")
        if not (np.all(np.isfinite(shares)) and np.all(shares >= 0) and shares.sum() > 0):
            raise ValueError("Spectrum(shares=...) must be finite, at least 0, not all 0.")
        shares = shares / shares.sum()
        # Correlations: columns of unit variance, so the mean eigenvalue is one.
        object.__setattr__(self, "values", values / float(shares @ values))
        object.__setattr__(self, "shares", shares)

    @classmethod
    def of_eigenvalues(cls, eigenvalues: ArrayLike) -> Spectrum:
        """From all eigenvalues of a known correlation matrix."""
        values = np.asarray(eigenvalues, dtype=float)
        return cls(values, np.full(values.shape, 1.0 / max(values.size, 1)))

    @classmethod
    def of_sample(cls, eigenvalues: ArrayLike, n_features: int) -> Spectrum:
        """The population's spectrum, estimated from the eigenvalues of XXᵀ/M of M rows.

        All M of them are needed, zeros included. If means were taken out of X, M is what is left of the
        degrees of freedom.
        """
        sample = np.clip(np.asarray(eigenvalues, dtype=float), 0.0, None)
        if sample.ndim != 1 or sample.size < 2 or not np.any(sample > 0):
            raise ValueError("A spectrum needs the eigenvalues of at least two rows that differ.")
        n_rows = sample.size
        # Columns of unit variance: (1/N) trace is one.
        sample = sample * (n_features / sample.sum())
        ratio = n_features / n_rows
        mean = float(sample.mean())
        points = np.geomspace(1e-2 * mean, 10.0 * sample.max(), N_POINTS)
        v = np.mean(1.0 / (sample[:, np.newaxis] + points), axis=0)
        # One minus x v without cancellation, and in the units of the right-hand side.
        answer = np.mean(sample[:, np.newaxis] / (sample[:, np.newaxis] + points), axis=0)
        values = np.unique(np.append(np.geomspace(SMALLEST_VALUE, max(sample.max(), 2.0), N_VALUES), 1.0))
        tv = values * v[:, np.newaxis]
        rows = ratio * (tv / (1.0 + tv)) / answer[:, np.newaxis]
        system = np.vstack([rows, TRACE_WEIGHT * np.ones_like(values), TRACE_WEIGHT * values])
        shares, _ = nnls(system, np.concatenate([np.ones(N_POINTS), TRACE_WEIGHT * np.ones(2)]))
        kept = shares > SMALLEST_SHARE
        return cls(values[kept], shares[kept])

    @property
    def correlated(self) -> bool:
        """Whether eigenvalues differ at all."""
        return bool(np.ptp(self.values) > 1e-6)

    def to_dict(self) -> dict[str, Any]:
        return {"values": self.values.tolist(), "shares": self.shares.tolist()}
