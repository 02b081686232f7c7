"""Rows that live on a Dask cluster, or that Dask computes one block after another.

A sweep on a cluster has three steps: every block's scores from the weights, on its worker; `row_step` on the
driver, block by block in order; every block's share of Xᵀ slopes, on its worker, added up on the driver in
the order of blocks. So what travels is vectors over features and a few numbers for each sample, never X, and
sums have the same bits wherever blocks are and however often they were computed again.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

from foldless.beliefs import Array
from foldless.operators.base import RowStep, Sweep
from foldless.operators.blocked import Answers, Blocked, Own, Question
from foldless.operators.dask_blocks import Parts, parts_of
from foldless.operators.dask_cluster import OnWorkers
from foldless.operators.tiled import Tiled


def dask_rows(X: Any) -> DaskBlocks:
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


class DaskBlocks(Blocked):
    """Blocks of rows whose number and size Dask finds out by computing them."""

    def __init__(self, n_columns: int, column_names: Sequence[str] | None) -> None:
        self.column_names = column_names
        # Block by block: rows, columns, the type of entries and that of products.
        with self._asked(_described, (), None) as answers:
            found = {i: described for i, described in answers if described[0]}
        self._keep(list(found))
        widths = {columns for _, columns, _, _ in found.values()} or {n_columns}
        if widths != {n_columns}:
            raise ValueError(f"Blocks of X have {sorted(widths)} columns; all need {n_columns}.")
        ends = np.cumsum([0, *(n_rows for n_rows, _, _, _ in found.values())])
        self._rows = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        self.shape = (int(ends[-1]), n_columns)
        self._stored = np.result_type(*(stored for _, _, stored, _ in found.values()), np.bool_)
        self.dtype = np.result_type(*(products for _, _, _, products in found.values()), np.float32)

    @abstractmethod
    def _keep(self, chosen: Sequence[int]) -> None:
        """Forget all other blocks."""


class DaskRows(DaskBlocks):
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
        answers: dict[int, tuple[Any, ...]] = {}
        with self._asked(_forth, (self._sent(weights), weight_var, center, scale), None) as parts:
            for i, (scores, score_var) in parts:
                slopes, curvatures = row_step(self._rows[i], scores, score_var)
                if weight_var is not None and curvatures is None:
                    raise TypeError(
                        "row_step returned no curvatures although the sweep has variances; "
                        "return them, or call sweep with weight_var=None"
                    )
                answers[i] = (slopes, None if weight_var is None else curvatures)
        sums = Sweep(np.zeros(weights.shape), None if weight_var is None else np.zeros(weight_var.shape))
        with self._ask("transposed", own=answers, center=center, scale=scale) as parts:
            for _, part in parts:
                for total, term in zip(sums, part, strict=True):
                    if total is not None:
                        total += term
        return sums

    @contextmanager
    def _asked(self, question: Question, told: tuple[Any, ...], own: Own | None) -> Iterator[Answers]:
        own = dict.fromkeys(range(len(self._blocks)), ()) if own is None else own
        yield zip(own, self._blocks.ask(question, told, own), strict=True)

    def _keep(self, chosen: Sequence[int]) -> None:
        self._blocks.keep(chosen)


class DaskRowsInTurn(DaskBlocks):
    """Blocks of rows without a cluster: computed when they are needed, one at a time, and let go again.

    Whoever has the memory for all of them calls `X.persist()` before; then nothing is computed twice.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts.blocks
        super().__init__(parts.n_columns, parts.column_names)

    @contextmanager
    def _asked(self, question: Question, told: tuple[Any, ...], own: Own | None) -> Iterator[Answers]:
        own = dict.fromkeys(range(len(self._parts)), ()) if own is None else own
        yield ((i, question(self._parts[i].compute().operator, *told, *own[i])) for i in own)

    def _keep(self, chosen: Sequence[int]) -> None:
        self._parts = [self._parts[i] for i in chosen]


# Questions: called with the operator of a block where the block is.


def _described(operator: Tiled) -> tuple[int, int, np.dtype[Any], np.dtype[Any]]:
    X: Any = operator.X  # type: ignore[attr-defined]
    return (*operator.shape, X.dtype, operator.dtype)


def _forth(
    operator: Tiled, weights: Array, weight_var: Array | None, center: Array | None, scale: Array | None
) -> tuple[Array, Array | None]:
    scores = operator.scores(weights)
    if weight_var is None:
        return scores, None
    return scores, operator.score_variances(weight_var, center=center, scale=scale)
