"""The columns of a table in coordinates of which there are no more than samples, for ridges and the like."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from foldless.beliefs import Array
from foldless.operators import Operator

# Directions whose variance is below this share of the largest are rounding of the products X Xᵀ.
SMALLEST_VARIANCE = 1e-12


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The free columns in coordinates of which there are no more than samples: X = B Vᵀ, V orthonormal.

    With at most as many columns as samples these are the columns themselves. Otherwise V is never formed:
    weights V v are Xᵀ (back v). A ridge penalty on w is one on v = Vᵀ w.
    """

    operator: Operator
    free: NDArray[np.bool_]
    basis: Array  # (samples, coordinates)
    back: Array | None  # (samples, coordinates)

    @classmethod
    def of(cls, operator: Operator, free: NDArray[np.bool_]) -> Coordinates:
        n_samples = operator.shape[0]
        columns = np.flatnonzero(free)
        if columns.size <= n_samples:
            return cls(operator, free, operator.columns(columns), None)
        products = np.zeros((n_samples, n_samples))
        for where, tile in operator.dense_columns():
            inside = tile if free[where].all() else tile[:, free[where]]
            products += inside @ inside.T
        variance, vectors = eigh(products)
        used = variance > SMALLEST_VARIANCE * max(float(variance[-1]), np.finfo(float).tiny)
        length = np.sqrt(variance[used])
        return cls(operator, free, vectors[:, used] * length, vectors[:, used] / length)

    def weights(self, coordinates: Array) -> Array:
        """Weights of all columns, zero where they are not free."""
        out = np.zeros((self.free.size, coordinates.shape[1]))
        if self.back is None:
            out[self.free] = coordinates
        else:
            out[self.free] = self.operator.adjoint(self.back @ coordinates)[self.free]
        return out
