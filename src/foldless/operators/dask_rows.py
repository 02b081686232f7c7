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
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from foldless.beliefs import Array
from foldless.operators.base import About, RowStep, Sweep, needed
from foldless.operators.dask_cluster import OnWorkers
from foldless.operators.dense import Dense, Tiled, product_dtype
from foldless.operators.row_blocks import Answers, Blocked, Own, Question
from foldless.operators.sparse import Sparse


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
        self, weights: Array, weight_var: Array | None, row_step: RowStep, **about: Unpack[About]
    ) -> Sweep:
        weights = self._over_columns(weights)
        if weight_var is None:
            about = {}
        else:
            weight_var, about["center"] = self._over_columns(weight_var), self._sent(about.get("center"))
        answers: dict[int, tuple[Any, ...]] = {}
        with self._asked(_forth, (self._sent(weights), weight_var, about), None) as parts:
            for i, (scores, score_var) in parts:
                slopes, curvatures = row_step(self._rows[i], scores, score_var)
                answers[i] = (slopes, None if weight_var is None else needed(curvatures))
        sums = Sweep(np.zeros(weights.shape), None if weight_var is None else np.zeros(weight_var.shape))
        with self._ask("transposed", own=answers, **about) as parts:
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
    return (*operator.shape, operator.X.dtype, operator.dtype)


def _forth(
    operator: Tiled, weights: Array, weight_var: Array | None, about: About
) -> tuple[Array, Array | None]:
    scores = operator.scores(weights)
    return scores, None if weight_var is None else operator.score_variances(weight_var, **about)


# From a Dask array or data frame to blocks of rows, each an operator where it is computed.


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows as an operator, whose size is known to those who watch over a worker's memory."""

    operator: Dense | Sparse

    def __reduce__(self) -> tuple[Any, ...]:
        # Through `block_of`, since a block may be moved to another worker.
        return block_of, (self.operator.X,)

    def __sizeof__(self) -> int:
        X: Any = self.operator.X
        return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes) if issparse(X) else int(X.nbytes)


class Parts(NamedTuple):
    """Blocks that are still to be computed, in the order of their rows, and the names of columns if known."""

    blocks: list[Any]
    n_columns: int
    column_names: Sequence[str] | None


def parts_of(X: Any) -> Parts:
    """Every chunk of rows as a block; errors that need no look at the data are raised here."""
    if hasattr(X, "npartitions") and hasattr(X, "columns"):
        return _parts_of_frame(X)
    if hasattr(X, "chunks") and hasattr(X, "rechunk"):
        return _parts_of_array(X)
    raise TypeError(
        f"X is a Dask {type(X).__name__}; a Dask array or data frame of samples by features is needed. "
        "Convert it first, for example with dask.array.from_delayed."
    )


def _parts_of_array(X: Any) -> Parts:
    from dask.delayed import delayed

    if X.ndim != 2:
        raise ValueError(f"X has shape {X.shape}; a matrix of samples by features is needed.")
    if X.dtype.kind not in "fiub":
        raise TypeError(f"X has dtype {X.dtype}; real numbers are needed.")
    n_columns = X.shape[1]
    if np.isnan(n_columns):
        raise ValueError("X does not know how many columns it has. Call X.compute_chunk_sizes() first.")
    if X.numblocks[1] > 1:
        # A score needs all columns of its row.
        X = X.rechunk({1: -1})
    make = delayed(block_of, pure=True)
    return Parts([make(part) for part in X.to_delayed().ravel()], int(n_columns), None)


def _parts_of_frame(X: Any) -> Parts:
    from dask.delayed import delayed

    names = list(X.columns)
    dtypes = dict(zip(names, X.dtypes, strict=True))
    unfit = [name for name, dtype in dtypes.items() if getattr(dtype, "kind", "O") not in "fiub"]
    if unfit:
        more = f" (and {len(unfit) - 1} more columns)" if len(unfit) > 1 else ""
        raise ValueError(
            f"The column {unfit[0]!r}{more} of X holds {dtypes[unfit[0]]}, not numbers. "
            f"Leave it out: X.drop(columns=[{unfit[0]!r}])."
        )
    if len(dtypes) < len(names):
        raise ValueError("Two columns of X have one name. Rename one of them.")
    dtype = product_dtype(
        np.result_type(*(getattr(dtype, "numpy_dtype", dtype) for dtype in dtypes.values()))
    )
    make = delayed(block_of, pure=True)
    blocks = [make(part, dtype) for part in X.to_delayed()]
    return Parts(blocks, len(names), names if all(isinstance(name, str) for name in names) else None)


def block_of(part: Any, dtype: np.dtype[Any] | None = None) -> Block:
    """A chunk in memory as a block; frames become arrays of `dtype`."""
    if hasattr(part, "columns"):
        part = part.to_numpy(dtype=dtype, na_value=np.nan)
    if issparse(part) or hasattr(part, "tocsr"):
        matrix: Any = part if getattr(part, "format", "") in ("csr", "csc") else part.tocsr()
        if not all(piece.flags.aligned for piece in (matrix.data, matrix.indices, matrix.indptr)):
            pieces = (_aligned(piece) for piece in (matrix.data, matrix.indices, matrix.indptr))
            matrix = type(matrix)(tuple(pieces), shape=matrix.shape)
        return Block(Sparse(matrix))
    return Block(Dense(_aligned(np.asarray(part))))


def _aligned(array: NDArray[Any]) -> NDArray[Any]:
    """What came in a message begins at any byte, and sums of a misaligned array are not the same to the bit.

    BLAS could not read it either, so that the one copy made here saves one in every sweep.
    """
    return array if array.flags.aligned else array.copy(order="K")
