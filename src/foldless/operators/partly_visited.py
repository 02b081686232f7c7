"""A matrix of which a few columns, gathered once, make the scores, while its transpose is whole."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.beliefs import Array
from foldless.operators.base import Operator, RowStep, Sweep


class PartlyVisited(Operator):
    """`operator`, whose other columns are known to add `rest` to the scores.

    A sweep is then half of one: scores need the gathered columns only, sums over rows need all.
    """

    def __init__(
        self, operator: Operator, columns: NDArray[np.intp], gathered: Operator, rest: Array
    ) -> None:
        self.operator, self.gathered = operator, gathered
        self.positions, self.rest = columns, rest
        self.shape, self.dtype = operator.shape, operator.dtype

    def sweep(self, weights: Array, weight_var: Array | None, row_step: RowStep) -> Sweep:
        if weight_var is not None:
            raise NotImplementedError("variances of scores need all columns: sweep the operator itself")
        slopes, _ = row_step(slice(0, self.shape[0]), self.scores(weights), None)
        return Sweep(self.operator.adjoint(slopes), None)

    def scores(self, weights: Array) -> Array:
        return self.gathered.scores(weights[self.positions]) + self.rest

    def score_variances(self, weight_var: Array) -> Array:
        return self.operator.score_variances(weight_var)

    def columns(self, indices: ArrayLike) -> NDArray[np.float64]:
        return self.operator.columns(indices)
