"""Weights that are not sparse, fitted in the space of the samples when features are many."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from foldless.beliefs import Array
from foldless.operators.base import Operator
from foldless.operators.dense import Dense

# Directions whose variance is below this share of the largest are rounding of the products X X'.
SMALLEST_VARIANCE = 1e-13


class RowSpace(NamedTuple):
    """X = B V' with orthonormal V: a ridge penalty on w is one on v = V'w, and X w = B v.

    X X' is samples by samples; V is never formed, since w = V v = X'(back v).
    """

    basis: Dense  # B, (samples, rank)
    back: Array  # (samples, rank)


def row_space(operator: Operator) -> RowSpace:
    """The rows of X in coordinates of their own span."""
    n_rows = operator.shape[0]
    gram = np.zeros((n_rows, n_rows))
    for _, tile in operator.dense_columns():
        gram += tile @ tile.T
    variance, vectors = eigh(gram)
    kept = variance > SMALLEST_VARIANCE * max(float(variance[-1]), np.finfo(float).tiny)
    length = np.sqrt(variance[kept])
    return RowSpace(Dense(vectors[:, kept] * length), vectors[:, kept] / length)
