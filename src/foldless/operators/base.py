"""The contract of an operator: how a data matrix is visited, one sweep per iteration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

from foldless.beliefs import Array


class RowStep(Protocol):
    """What happens to a block of rows in mid-sweep: scores come in, slopes and curvatures go out.

    `rows` says which rows these are, so that per-sample state can stay with its block. `score_var` and
    the returned curvature are None where the sweep was asked for no variances.
    """

    def __call__(self, rows: slice, scores: Array, score_var: Array | None) -> tuple[Array, Array | None]: ...


class Sweep(NamedTuple):
    """Sums over all rows: Xᵀ slopes and (X∘X)ᵀ curvatures (None if not asked for)."""

    slopes: Array
    curvatures: Array | None


class Operator(ABC):
    """A matrix of samples (rows) by features (columns) that can be swept.

    Weights are (features,) for one score per sample or (features, d) for d scores. Vectors come and go
    in float64 whatever the storage of X; products run in X's own dtype. X is never copied, nor is X∘X
    ever stored.
    """

    shape: tuple[int, int]

    @abstractmethod
    def sweep(
        self,
        weights: Array,
        weight_var: Array | None,
        row_step: RowStep,
        *,
        center: Array | None = None,
    ) -> Sweep:
        """Visit every row once: scores = X weights and score_var = (X - center)² weight_var for a block of rows,
        then `row_step`, then the block's share of Xᵀ slopes and ((X - center)²)ᵀ curvatures.

        Only squares are taken about `center`; `Standardized` needs them without cancellation.
        """

    @abstractmethod
    def scores(self, weights: Array) -> Array:
        """X weights."""

    @abstractmethod
    def score_variances(self, weight_var: Array, *, center: Array | None = None) -> Array:
        """(X - center)² weight_var."""

    @abstractmethod
    def column_moments(self, sample_weight: Array) -> tuple[Array, Array]:
        """Weighted mean and variance of each column; exact under large offsets (two passes or shifted)."""

    @abstractmethod
    def row_norms(self, *, center: Array | None = None, scale: Array | None = None) -> Array:
        """Squared length of every row of (X - center) / scale."""
