"""Whitening: directions in which training samples vary are given equal variance.

With the centred matrix X = U S Vᵀ of M samples (weighted, if they are), its k directions of positive variance
are made equal by x ↦ √M x V S⁻¹. These k *components* are new variables. Turning them back by Vᵀ gives a
whitened version of every *feature*, the one that resembles it most, so that choosing it can be read as
choosing the feature. Neither needs a matrix of features x features, but V is as large as X.

The left-out sample of a leave-one-out has taken part in whitening: with fewer samples than features the
whitened samples are all equally far apart, whatever their labels, and leave-one-out says little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.operators.base import Operator
from foldless.operators.dense import Dense
from foldless.registry import registered

Whiten = Literal["features", "components"]
WHITENINGS: tuple[Whiten, ...] = ("features", "components")
# Directions with less than this share of the largest variance are rounding errors.
LEAST_RELATIVE_VARIANCE = 1e-10


@registered("columns/whitening")
@dataclass(frozen=True, eq=False)
class Whitening:
    """x ↦ x `to_components` (`to_features`, if features are wanted); rows have unit length on average."""

    to_components: Array  # (features, k)
    to_features: Array | None  # (k, features)

    @classmethod
    def fit(cls, operator: Operator, sample_weight: Array, kind: Whiten) -> Whitening:
        """From centred columns, so that variances are sums of squares."""
        axes, variance = principal_axes(operator, sample_weight)
        if variance.size == 0:
            raise ValueError("No column varies between samples: there is nothing to whiten or to learn.")
        # k components of variance one have squared length k.
        scale = 1.0 / np.sqrt(variance * variance.size)
        return cls(axes * scale, axes.T if kind == "features" else None)

    @property
    def n_columns(self) -> int:
        return self.to_components.shape[1] if self.to_features is None else self.to_features.shape[1]

    def whitened(self, operator: Operator) -> NDArray[np.float64]:
        """The whitened samples, dense."""
        components = operator.scores(self.to_components)
        return np.asarray(components if self.to_features is None else components @ self.to_features)

    def operator(self, operator: Operator) -> Dense:
        return Dense(self.whitened(operator).astype(operator.dtype))

    def weights(self, whitened_weights: Array) -> Array:
        """Weights of the features as they were, from weights of whitened columns: the same scores."""
        inner = whitened_weights if self.to_features is None else self.to_features @ whitened_weights
        return np.asarray(self.to_components @ inner)

    def weight_variances(self, whitened_var: Array) -> Array:
        """Variances of those weights, whitened ones being independent."""
        if self.to_features is None:
            return np.asarray(np.square(self.to_components) @ whitened_var)
        covariance = (self.to_features * whitened_var) @ self.to_features.T
        return np.einsum("ij,jk,ik->i", self.to_components, covariance, self.to_components, optimize=True)


def principal_axes(operator: Operator, sample_weight: Array) -> tuple[Array, Array]:
    """Unit directions (features, k) in which samples vary, and variances, from the smaller Gram matrix."""
    n_samples, n_features = operator.shape
    share = sample_weight / sample_weight.sum()
    root = np.sqrt(share)
    by_samples = n_samples <= n_features
    gram = np.zeros((n_samples, n_samples) if by_samples else (n_features, n_features))
    for where, tile in operator.dense_columns() if by_samples else operator.dense_rows():
        tile *= root[:, np.newaxis] if by_samples else root[where, np.newaxis]
        gram += tile @ tile.T if by_samples else tile.T @ tile
    variance, vectors = np.linalg.eigh(gram)
    kept = variance > LEAST_RELATIVE_VARIANCE * max(float(variance[-1]), 0.0)
    variance, vectors = variance[kept], vectors[:, kept]
    if by_samples:
        vectors = operator.adjoint(root[:, np.newaxis] * vectors) / np.sqrt(variance)
    return vectors, variance
