"""A matrix that does not fit into memory, in blocks of rows that are loaded when needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse, vstack

from foldless.beliefs import Array
from foldless.io.rows import BLOCK_BYTES, RowSource, row_source
from foldless.io.table import Roles
from foldless.operators.base import (
    Operator,
    RowStep,
    Sweep,
    column_positions,
    normalized_sample_weight,
)
from foldless.operators.dense import Dense
from foldless.operators.reading_ahead import blocks_in_order
from foldless.operators.sparse import Sparse
from foldless.operators.tiled import Tiled, product_dtype

# A matrix of up to so many blocks is held in memory once somebody asks for dense tiles of it: solvers with
# exact covariances go through all tiles in every iteration, and take far more memory than that themselves.
BLOCKS_HELD = 4

Blocks = Iterator[tuple[slice, Tiled]]


class RowBlocks(Operator):
    """Rows from a source on disk; a pass reads every block once, in order, the next one ahead.

    In memory are two blocks of `block_bytes`, what `Dense` or `Sparse` needs beside a block of that size, and
    vectors. Sums are added in the order of blocks, so that answers do not depend on timing. A matrix that is
    hardly larger than these blocks is held in memory where that saves reading it again and again.
    """

    def __init__(self, source: RowSource, *, block_bytes: int = BLOCK_BYTES) -> None:
        if block_bytes < 1:
            raise ValueError(f"block_bytes must be positive; got {block_bytes}")
        self.source = source
        self.block_bytes = block_bytes
        self.shape = source.shape
        self.dtype = product_dtype(source.dtype)
        self.column_names = source.column_names
        self._cuts = source.cuts(block_bytes)
        self._held: Dense | Sparse | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.source, self.block_bytes)

    @property
    def labels(self) -> NDArray[Any] | None:
        """Of samples, if the source keeps them and was told where."""
        return self.source.labels

    def sweep(
        self,
        weights: Array,
        weight_var: Array | None,
        row_step: RowStep,
        *,
        center: Array | None = None,
        scale: Array | None = None,
    ) -> Sweep:
        slopes = np.zeros(np.shape(weights))
        curvatures = None if weight_var is None else np.zeros(np.shape(weight_var))
        with self._blocks() as blocks:
            for rows, block in blocks:
                part = block.sweep(
                    weights, weight_var, _beginning_at(rows.start, row_step), center=center, scale=scale
                )
                slopes += part.slopes
                if curvatures is not None and part.curvatures is not None:
                    curvatures += part.curvatures
        return Sweep(slopes, curvatures)

    def scores(self, weights: Array) -> Array:
        out = np.empty((self.shape[0], *np.shape(weights)[1:]))
        # Values that are not finite show in the scores. Whether a product also warns of them depends on the
        # BLAS kernel, hence on the processor.
        with self._blocks() as blocks, np.errstate(over="ignore", invalid="ignore"):
            for rows, block in blocks:
                out[rows] = block.scores(weights)
        self._check_finite(out, weights)
        return out

    def adjoint(self, row_values: Array) -> Array:
        values = np.asarray(row_values, dtype=np.float64)
        total = np.zeros((self.shape[1], *values.shape[1:]))
        with self._blocks() as blocks:
            for rows, block in blocks:
                total += block.adjoint(values[rows])
        return total

    def score_variances(
        self, weight_var: Array, *, center: Array | None = None, scale: Array | None = None
    ) -> Array:
        out = np.empty((self.shape[0], *np.shape(weight_var)[1:]))
        with self._blocks() as blocks:
            for rows, block in blocks:
                out[rows] = block.score_variances(weight_var, center=center, scale=scale)
        return out

    def column_moments(self, sample_weight: Array) -> tuple[Array, Array]:
        """Weighted mean and variance of each column, pooled over blocks.

        Moments of a block are about the row of largest weight, the same for all blocks, so that no offset is
        left when two means are subtracted. With blocks of weights V (all so far) and p, means m and n,
        and their variances v and u, those of both together are [Chan, Golub, LeVeque 1983]
            m + (n - m) p / (V + p),    [V v + p u + (n - m)² V p / (V + p)] / (V + p).
        """
        share = normalized_sample_weight(sample_weight, self.shape[0])
        heaviest = int(np.argmax(share))
        shift = self.dense_tile(slice(heaviest, heaviest + 1), slice(0, self.shape[1]))[0]
        so_far, drift, variance = 0.0, np.zeros(self.shape[1]), np.zeros(self.shape[1])
        # Values that are not finite, or whose squares are not, show in the answer.
        with self._blocks() as blocks, np.errstate(over="ignore", invalid="ignore"):
            for rows, block in blocks:
                weight = float(share[rows].sum())
                if weight == 0:
                    continue
                block_drift, block_variance = block.moments_about(shift, share[rows] / weight)
                part = weight / (so_far + weight)
                between = block_drift - drift
                drift += part * between
                variance += part * (block_variance - variance + (1.0 - part) * between * between)
                so_far += weight
        return shift + drift, np.maximum(variance, 0.0)

    def columns(self, indices: ArrayLike) -> NDArray[np.float64]:
        positions = column_positions(indices, self.shape[1])
        out = np.empty((self.shape[0], positions.size))
        if positions.size == 0:
            return out
        with self._blocks() as blocks:
            for rows, block in blocks:
                out[rows] = block.columns(positions)
        return out

    def dense_tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        # Single rows are for those who want to know the data, not to go through them.
        if self._held is None and rows.stop - rows.start > 1 and len(self._cuts) <= BLOCKS_HELD:
            self._held = self._whole()
        if self._held is not None:
            return self._held.dense_tile(rows, columns)
        return self.source.tile(rows, columns)

    def identity(self) -> str:
        # Other blocks are other sums, in their last bits.
        return f"{self.source.identity()}, {super().identity()}, in blocks of {self.block_bytes} bytes"

    def _check_finite(self, scores: Array, weights: Array) -> None:
        """Nobody has looked at these rows before, and a score that is no number would pass for a class."""
        if np.all(np.isfinite(scores)) or not np.all(np.isfinite(weights)):
            return
        finite = np.isfinite(scores) if scores.ndim == 1 else np.isfinite(scores).all(axis=1)
        bad = np.flatnonzero(~finite)
        raise ValueError(
            f"row {bad[0]} of X, counted from 0, holds values that are missing, infinite or too large "
            f"({bad.size} such rows). Fill them in, or remove the rows"
        )

    @contextmanager
    def _blocks(self) -> Iterator[Blocks]:
        """One pass: every block in memory as an operator."""
        if self._held is not None:
            # The same blocks as from disk, so that sums are the same to the last bit.
            matrix = self._held.X
            yield ((rows, _in_memory(matrix[rows])) for rows in self._cuts)
            return
        with blocks_in_order(self.source, self._cuts) as read:
            yield ((rows, _in_memory(block)) for rows, block in read)

    def _whole(self) -> Dense | Sparse:
        """All blocks put together."""
        sparse_parts = []
        dense: NDArray[Any] | None = None
        with blocks_in_order(self.source, self._cuts) as read:
            for rows, block in read:
                if issparse(block):
                    sparse_parts.append(block)
                    continue
                dense = np.empty(self.shape, dtype=block.dtype) if dense is None else dense
                dense[rows] = block
        return _in_memory(vstack(sparse_parts, format="csr") if dense is None else dense)


def open_rows(
    where: Any,
    *,
    target: str | None = None,
    ignore: Sequence[str] = (),
    block_bytes: int = BLOCK_BYTES,
) -> RowBlocks:
    """Open a table that does not fit into memory, to be passed as X to `fit` and `predict`.

    Rows are read a block at a time, once in every pass over the data, while the block before is computed on.

    Parameters
    ----------
    where : path, or an array that is sliced when needed
        A .npy file in C order; a .parquet file of columns of numbers; a .zarr array, or a group with an array
        "X"; an .h5ad file, whose X is dense or CSR; or a ``numpy.memmap``, an open zarr or HDF5 array, or X
        of a backed AnnData.
    target : str, optional
        Where the class of each sample is: a column of Parquet, an array of a zarr group, a column of obs. It
        is no feature, and ``labels`` of the answer.
    ignore : list of str
        Columns of Parquet that are no features either.
    block_bytes : int, default=32 MB
        How much is read at once. Two blocks are in memory.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from foldless import SparseClassifier, open_rows
    >>> from foldless.datasets import make_class_means
    >>> data = make_class_means(n_samples=100, n_features=2000, n_active=5, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/X.npy", data.X)
    ...     model = SparseClassifier().fit(open_rows(f"{folder}/X.npy"), data.y)
    >>> sorted(model.get_support(fdr=0.1, indices=True)) == sorted(data.active)
    True
    """
    roles = Roles(target=target, ignore=tuple(ignore))
    return RowBlocks(row_source(where, roles), block_bytes=block_bytes)


def _restored(kind: type[RowBlocks], source: RowSource, block_bytes: int) -> RowBlocks:
    return kind(source, block_bytes=block_bytes)


def _in_memory(block: Any) -> Dense | Sparse:
    return Sparse(block) if issparse(block) else Dense(block)


def _beginning_at(start: int, row_step: RowStep) -> RowStep:
    """The row step of a block that begins in mid-matrix."""

    def shifted(rows: slice, scores: Array, score_var: Array | None) -> tuple[Array, Array | None]:
        return row_step(slice(start + rows.start, start + rows.stop), scores, score_var)

    return shifted
