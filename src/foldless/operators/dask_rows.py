"""Rows that live on a Dask cluster, or that Dask computes one block after another.

A sweep on a cluster has three steps: every block's scores from the weights, on its worker; `row_step` on the
driver, block by block in order; every block's share of Xᵀ slopes, on its worker, added up on the driver in
the order of blocks. So what travels is vectors over features and a few numbers for each sample, never X, and
sums have the same bits wherever blocks are and however often they were computed again.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.beliefs import Array
from foldless.operators.base import (
    Operator,
    RowStep,
    Sweep,
    column_positions,
    normalized_sample_weight,
)
from foldless.operators.dask_blocks import Parts, parts_of
from foldless.operators.dask_cluster import OnWorkers, Question
from foldless.operators.tiled import Tiled


def dask_rows(X: Any) -> AskedBlocks:
    """The operator of a Dask array or data frame: on the current cluster, if there is a client of one."""
    parts = parts_of(X)
    client = current_client()
    return DaskRowsInTurn(parts) if client is None else DaskRows(parts, client)


def current_client() -> Any:
    """The client that Dask itself would use, or None; whoever has one has imported `distributed`."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


class AskedBlocks(Operator):
    """Blocks of rows that answer questions, put together."""

    def __init__(self, n_columns: int, column_names: Sequence[str] | None) -> None:
        self.column_names = column_names
        # Block by block: rows, columns and whether products are float32.
        found = self._ask(_described, (), None)
        self._keep([i for i, (n_rows, _, _) in enumerate(found) if n_rows])
        found = [entry for entry in found if entry[0]]
        widths = {columns for _, columns, _ in found} or {n_columns}
        if widths != {n_columns}:
            raise ValueError(f"Blocks of X have {sorted(widths)} columns; all need {n_columns}.")
        ends = np.cumsum([0, *(n_rows for n_rows, _, _ in found)])
        self._rows = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        self.shape = (int(ends[-1]), n_columns)
        self.dtype = np.dtype(np.float32 if found and all(small for _, _, small in found) else np.float64)

    @abstractmethod
    def _ask(
        self, question: Question, told: tuple[Any, ...], own: Mapping[int, tuple[Any, ...]] | None
    ) -> list[Any]:
        """`question(operator, *told, *own[i])` of every block i in `own`, or of all blocks."""

    @abstractmethod
    def _keep(self, chosen: Sequence[int]) -> None:
        """Forget all other blocks."""

    def scores(self, weights: Array) -> Array:
        weights = self._over_columns(weights)
        return self._stacked(self._ask(_scores, (self._sent(weights),), None), weights.shape[1:])

    def score_variances(
        self, weight_var: Array, *, center: Array | None = None, scale: Array | None = None
    ) -> Array:
        weight_var = self._over_columns(weight_var)
        return self._stacked(
            self._ask(_score_variances, (weight_var, self._sent(center), scale), None), weight_var.shape[1:]
        )

    def adjoint(self, row_values: Array) -> Array:
        values = np.asarray(row_values, dtype=np.float64)
        return self._summed(self._ask(_adjoint, (), self._cut(values)), values.shape[1:])

    def squared_norms(self, sample_weight: Array) -> tuple[Array, Array]:
        found = self._ask(_squared_norms, (), self._cut(np.asarray(sample_weight, dtype=np.float64)))
        return self._stacked([row for row, _ in found], ()), self._summed([column for _, column in found], ())

    def column_moments(self, sample_weight: Array) -> tuple[Array, Array]:
        """Moments within blocks, pooled with those between them.

        All are about one row, the heaviest, so that an offset is gone before anything is rounded. With shares
        q of blocks, means d and variances v of x - shift, and D = Σ q d,
            mean = shift + D,   variance = Σ q [v + (d - D)²].
        """
        share = normalized_sample_weight(sample_weight, self.shape[0])
        heaviest = int(np.argmax(share))
        shift = self.dense_tile(slice(heaviest, heaviest + 1), slice(0, self.shape[1]))[0]
        shares = [float(share[rows].sum()) for rows in self._rows]
        own = {i: (share[self._rows[i]] / q,) for i, q in enumerate(shares) if q > 0}
        found = list(zip(own, self._ask(_moments_about, (shift,), own), strict=True))
        drift, variance = np.zeros(self.shape[1]), np.zeros(self.shape[1])
        # Values that are not finite, or whose squares are not, show in the answer.
        with np.errstate(over="ignore", invalid="ignore"):
            for i, (inside, _) in found:
                drift += shares[i] * inside
            for i, (inside, within) in found:
                variance += shares[i] * (within + (inside - drift) ** 2)
        return shift + drift, variance

    def columns(self, indices: ArrayLike) -> NDArray[np.float64]:
        positions = column_positions(indices, self.shape[1])
        return self._stacked(self._ask(_columns, (positions,), None), (positions.size,))

    def dense_tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        own = {
            i: (slice(max(rows.start, b.start) - b.start, min(rows.stop, b.stop) - b.start),)
            for i, b in enumerate(self._rows)
            if b.start < rows.stop and rows.start < b.stop
        }
        if not own:
            return np.empty((0, columns.stop - columns.start))
        tile: NDArray[np.float64] = np.concatenate(self._ask(_dense_tile, (columns,), own))
        return tile

    def _over_columns(self, vector: Array) -> Array:
        vector = np.asarray(vector, dtype=np.float64)
        if vector.shape[0] != self.shape[1]:
            raise ValueError(f"X has {self.shape[1]} columns, but weights have shape {vector.shape}")
        return vector

    def _sent(self, vector: Array | None) -> Array | None:
        """Weights and centres in the precision in which blocks use them: half the bytes for float32."""
        return None if vector is None else vector.astype(self.dtype, copy=False)

    def _cut(self, *row_vectors: Array | None) -> dict[int, tuple[Any, ...]]:
        """The part of each vector over rows that belongs to each block."""
        return {
            i: tuple(None if vector is None else vector[rows] for vector in row_vectors)
            for i, rows in enumerate(self._rows)
        }

    def _stacked(self, parts: list[Array], width: tuple[int, ...]) -> NDArray[np.float64]:
        out = np.empty((self.shape[0], *width))
        for rows, part in zip(self._rows, parts, strict=True):
            out[rows] = part
        return out

    def _summed(self, parts: Sequence[Array], width: tuple[int, ...]) -> Array:
        """In the order of blocks, so that the sum does not depend on who was first."""
        total = np.zeros((self.shape[1], *width))
        for part in parts:
            total += part
        return total


class DaskRows(AskedBlocks):
    """Blocks of rows on the workers of a cluster."""

    def __init__(self, parts: Parts, client: Any) -> None:
        self._blocks = OnWorkers(client, parts.blocks)
        super().__init__(parts.n_columns, parts.column_names)

    def sweep(
        self,
        weights: Array,
        weight_var: Array | None,
        row_step: RowStep,
        *,
        center: Array | None = None,
        scale: Array | None = None,
    ) -> Sweep:
        weights = self._over_columns(weights)
        if weight_var is None:
            center = scale = None
        else:
            weight_var, center = self._over_columns(weight_var), self._sent(center)
        parts = self._ask(_forth, (self._sent(weights), weight_var, center, scale), None)
        answers: dict[int, tuple[Any, ...]] = {}
        for i, (rows, (scores, score_var)) in enumerate(zip(self._rows, parts, strict=True)):
            answers[i] = row_step(rows, scores, score_var)
            if weight_var is not None and answers[i][1] is None:
                raise TypeError(
                    "row_step returned no curvatures although the sweep has variances; "
                    "return them, or call sweep with weight_var=None"
                )
            if weight_var is None:
                answers[i] = (answers[i][0], None)
        found = self._ask(_back, (center, scale), answers)
        slopes = self._summed([part.slopes for part in found], weights.shape[1:])
        if weight_var is None:
            return Sweep(slopes, None)
        return Sweep(slopes, self._summed([part.curvatures for part in found], weight_var.shape[1:]))

    def _ask(
        self, question: Question, told: tuple[Any, ...], own: Mapping[int, tuple[Any, ...]] | None
    ) -> list[Any]:
        return self._blocks.ask(
            question, told, dict.fromkeys(range(len(self._blocks)), ()) if own is None else own
        )

    def _keep(self, chosen: Sequence[int]) -> None:
        self._blocks.keep(chosen)


class DaskRowsInTurn(AskedBlocks):
    """Blocks of rows without a cluster: computed when they are needed, one at a time, and let go again.

    Whoever has the memory for all of them calls `X.persist()` before; then nothing is computed twice.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts.blocks
        super().__init__(parts.n_columns, parts.column_names)

    def sweep(
        self,
        weights: Array,
        weight_var: Array | None,
        row_step: RowStep,
        *,
        center: Array | None = None,
        scale: Array | None = None,
    ) -> Sweep:
        """A sweep of every block in turn: a block is computed once."""
        weights = self._over_columns(weights)
        slopes = np.zeros(weights.shape)
        curvatures = None if weight_var is None else np.zeros(np.shape(weight_var))
        for part, rows in zip(self._parts, self._rows, strict=True):
            found = part.compute().operator.sweep(
                weights, weight_var, _after(rows.start, row_step), center=center, scale=scale
            )
            slopes += found.slopes
            if curvatures is not None:
                curvatures += found.curvatures
        return Sweep(slopes, curvatures)

    def _ask(
        self, question: Question, told: tuple[Any, ...], own: Mapping[int, tuple[Any, ...]] | None
    ) -> list[Any]:
        asked = dict.fromkeys(range(len(self._parts)), ()) if own is None else own
        return [question(self._parts[i].compute().operator, *told, *asked[i]) for i in asked]

    def _keep(self, chosen: Sequence[int]) -> None:
        self._parts = [self._parts[i] for i in chosen]


def _after(
    start: int, row_step: RowStep
) -> Callable[[slice, Array, Array | None], tuple[Array, Array | None]]:
    """The step of a block's own rows, which begin at `start` among all."""

    def step(rows: slice, scores: Array, score_var: Array | None) -> tuple[Array, Array | None]:
        return row_step(slice(start + rows.start, start + rows.stop), scores, score_var)

    return step


# Questions: called with the operator of a block where the block is.


def _described(operator: Tiled) -> tuple[int, int, bool]:
    return (*operator.shape, operator.dtype == np.float32)


def _forth(
    operator: Tiled, weights: Array, weight_var: Array | None, center: Array | None, scale: Array | None
) -> tuple[Array, Array | None]:
    scores = operator.scores(weights)
    if weight_var is None:
        return scores, None
    return scores, operator.score_variances(weight_var, center=center, scale=scale)


def _back(
    operator: Tiled, center: Array | None, scale: Array | None, slopes: Array, curvatures: Array | None
) -> Sweep:
    if curvatures is None:
        return Sweep(operator.adjoint(slopes), None)
    return operator.transposed(slopes, curvatures, center=center, scale=scale)


def _scores(operator: Tiled, weights: Array) -> Array:
    return operator.scores(weights)


def _adjoint(operator: Tiled, row_values: Array) -> Array:
    return operator.adjoint(row_values)


def _squared_norms(operator: Tiled, sample_weight: Array) -> tuple[Array, Array]:
    return operator.squared_norms(sample_weight)


def _score_variances(operator: Tiled, weight_var: Array, center: Array | None, scale: Array | None) -> Array:
    return operator.score_variances(weight_var, center=center, scale=scale)


def _moments_about(operator: Tiled, shift: Array, share: Array) -> tuple[Array, Array]:
    return operator.moments_about(shift, share)


def _columns(operator: Tiled, positions: NDArray[np.intp]) -> NDArray[np.float64]:
    return operator.columns(positions)


def _dense_tile(operator: Tiled, columns: slice, rows: slice) -> NDArray[np.float64]:
    return operator.dense_tile(rows, columns)
