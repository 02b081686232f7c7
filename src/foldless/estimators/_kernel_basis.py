"""Columns for nonlinear boundaries: the factor of a kernel matrix, or random features.

A linear machine on the rows of R with R Rᵀ = Gram has the posterior of the kernel machine, w = Rᵀ(α ∘ y): a
prior on the samples' coefficients that is not a product becomes one. Random Fourier features [Rahimi and
Recht 2007] do the same for the RBF kernel approximately, with a number of columns of one's choice.

Columns are scaled together so that a sample's squared length is the number of directions that the kernel
effectively has. For independent standardised features and the linear kernel that is the data themselves, so
a margin of 1 and weights of order 1 mean the same with a kernel and without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import issparse
from sklearn.metrics.pairwise import pairwise_kernels

from foldless.beliefs import Array
from foldless.registry import registered

Kernel = str | Callable[[Any, Any], float]
# Directions of the kernel matrix with less than this share of the largest are rounding.
SMALLEST_SHARE = 1e-8


@registered("columns/gram-basis")
@dataclass(frozen=True, eq=False)
class GramBasis:
    """Directions of the kernel matrix of the training samples."""

    kernel: Kernel
    options: dict[str, Any]
    training: Array
    directions: Array  # (training samples, columns)

    @classmethod
    def fit(cls, training: Array, kernel: Kernel, options: dict[str, Any], most: int | None) -> GramBasis:
        gram = kernel_matrix(training, training, kernel, **options)
        values, vectors = eigh((gram + gram.T) / 2)
        values, vectors = values[::-1], vectors[:, ::-1]
        if values[0] <= 0:
            raise ValueError(f"kernel={kernel!r} is zero for all samples: there is nothing to fit.")
        # Kernels that are no Mercer kernels have negative directions, which no weights can make.
        kept = np.flatnonzero(values > SMALLEST_SHARE * values[0])[:most]
        directions = vectors[:, kept] / np.sqrt(values[kept])
        # The sign of an eigenvector is a matter of taste: the largest entry is positive.
        largest = np.argmax(np.abs(directions), axis=0)
        directions = directions * np.sign(directions[largest, np.arange(kept.size)])
        return cls(kernel, options, training, directions * _common_scale(values[kept], len(gram)))

    def columns(self, samples: Array) -> Array:
        """The columns at these samples, which are standardised."""
        return kernel_matrix(samples, self.training, self.kernel, **self.options) @ self.directions


@registered("columns/fourier-basis")
@dataclass(frozen=True, eq=False)
class FourierBasis:
    """cos(ω'x + b) for random ω, b, whose products approximate the RBF kernel."""

    frequencies: Array  # (features, columns)
    phases: Array
    scale: float

    @classmethod
    def fit(cls, training: Array, gamma: float, n_columns: int, rng: np.random.RandomState) -> FourierBasis:
        frequencies = np.sqrt(2.0 * gamma) * rng.normal(size=(training.shape[1], n_columns))
        phases = rng.uniform(0, 2 * np.pi, n_columns)
        plain = cls(frequencies, phases, 1.0).columns(training)
        values = np.linalg.svd(plain, compute_uv=False) ** 2
        return cls(frequencies, phases, _common_scale(values, len(training)))

    def columns(self, samples: Array) -> Array:
        norm = self.scale * np.sqrt(2.0 / self.phases.size)
        return norm * np.cos(samples @ self.frequencies + self.phases)


Basis = GramBasis | FourierBasis


def _common_scale(eigenvalues: Array, n_samples: int) -> float:
    """Makes the mean squared length of a sample (Σλ)²/Σλ², the effective number of directions."""
    effective = float(np.sum(eigenvalues) ** 2 / np.sum(np.square(eigenvalues)))
    return float(np.sqrt(effective * n_samples / np.sum(eigenvalues)))


def kernel_matrix(samples: Any, others: Any, kernel: Kernel, **options: Any) -> Array:
    """The kernel of every sample with every other, dense; options that a kernel does not have are ignored."""
    options = {} if callable(kernel) else {"filter_params": True, **options}
    with np.errstate(over="ignore", invalid="ignore"):
        found = pairwise_kernels(samples, others, metric=kernel, **options)
    found = np.asarray(found.toarray() if issparse(found) else found, dtype=np.float64)
    if not np.all(np.isfinite(found)):
        raise ValueError(
            f"kernel={kernel!r} of these samples is not finite. If columns are too large for it, rescale "
            "them before, for example with StandardScaler."
        )
    return found
