"""A matrix that does not fit into memory, in blocks of rows that are not all at hand.

`Blocked` puts together what blocks answer where they are, in the order of rows; `RowBlocks` has them on disk.
`operator_from` takes X from anywhere.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse, vstack

from foldless.beliefs import Array
from foldless.io.rows import BLOCK_BYTES, RowSource, row_source
from foldless.io.table import Roles
from foldless.operators.base import About, RowStep, Storage, Sweep, column_positions, normalized_sample_weight
from foldless.operators.dense import Dense, Tiled, product_dtype
from foldless.operators.sparse import Sparse

THREAD_NAME = "foldless-reading-ahead"
# A matrix of up to so many blocks is held in memory once somebody asks for dense tiles of it: solvers with
# exact covariances go through all tiles in every iteration, and take far more memory than that themselves.
BLOCKS_HELD = 4

# Called with the operator of a block, then with what all blocks are told, then with what is the block's own.
Question = Callable[..., Any]
# What is told to single blocks, and to no others, by their number.
Own = Mapping[int, tuple[Any, ...]]
# Numbers of blocks, and what they answered.
Answers = Iterator[tuple[int, Any]]


class Blocked(Storage):
    """Answers of blocks put together.

    Sums are added in the order of blocks, so that they do not depend on timing.
    """

    _rows: list[slice]  # of each block
    _stored: np.dtype[Any]  # of entries, as they are kept

    @abstractmethod
    def _asked(
        self, question: Question, told: tuple[Any, ...], own: Own | None
    ) -> AbstractContextManager[Answers]:
        """`question(operator, *told, *own[i])` of every block i in `own`, or of all blocks, in order."""

    def sweep(
        self, weights: Array, weight_var: Array | None, row_step: RowStep, **about: Unpack[About]
    ) -> Sweep:
        """A sweep of every block in turn, for blocks that are here when they are asked."""
        weights = self._over_columns(weights)
        slopes = np.zeros(weights.shape)
        curvatures = None if weight_var is None else np.zeros(np.shape(weight_var))
        steps = {i: (_beginning_at(rows.start, row_step),) for i, rows in enumerate(self._rows)}
        with self._ask("sweep", weights, weight_var, own=steps, **about) as parts:
            for _, part in parts:
                slopes += part.slopes
                if curvatures is not None:
                    curvatures += part.curvatures
        return Sweep(slopes, curvatures)

    def scores(self, weights: Array) -> Array:
        weights = self._over_columns(weights)
        # Values that are not finite have an error of their own, below, and need no warning on some machines.
        with np.errstate(over="ignore", invalid="ignore"):
            found = self._stacked(weights.shape[1:], "scores", self._sent(weights))
        self._check_finite(found, weights)
        return found

    def score_variances(self, weight_var: Array, **about: Unpack[About]) -> Array:
        weight_var = self._over_columns(weight_var)
        about["center"] = self._sent(about.get("center"))
        return self._stacked(weight_var.shape[1:], "score_variances", weight_var, **about)

    def adjoint(self, row_values: Array) -> Array:
        return self._summed("adjoint", row_values)

    def nonzero_weight(self, sample_weight: Array) -> Array:
        return self._summed("nonzero_weight", sample_weight)

    def squared_norms(self, sample_weight: Array) -> tuple[Array, Array]:
        row, column = np.empty(self.shape[0]), np.zeros(self.shape[1])
        with self._ask("squared_norms", own=self._cut(sample_weight)) as parts:
            for i, (row_part, column_part) in parts:
                row[self._rows[i]] = row_part
                column += column_part
        return row, column

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
        weights = {i: float(share[rows].sum()) for i, rows in enumerate(self._rows)}
        own = {i: (share[self._rows[i]] / weight,) for i, weight in weights.items() if weight > 0}
        so_far, drift, variance = 0.0, np.zeros(self.shape[1]), np.zeros(self.shape[1])
        # Values that are not finite, or whose squares are not, show in the answer.
        with (
            self._ask("moments_about", shift, own=own) as parts,
            np.errstate(over="ignore", invalid="ignore"),
        ):
            for i, (block_drift, block_variance) in parts:
                part = weights[i] / (so_far + weights[i])
                between = block_drift - drift
                drift += part * between
                variance += part * (block_variance - variance + (1.0 - part) * between * between)
                so_far += weights[i]
        return shift + drift, np.maximum(variance, 0.0)

    def columns(self, indices: ArrayLike) -> NDArray[np.float64]:
        positions = column_positions(indices, self.shape[1])
        if positions.size == 0:
            return np.empty((self.shape[0], 0))
        return self._stacked((positions.size,), "columns", positions)

    def some_rows(self, rows: NDArray[np.intp]) -> Dense | Sparse:
        cuts = np.searchsorted(rows, [0, *(block.stop for block in self._rows)])
        places = {i: slice(cuts[i], cuts[i + 1]) for i in range(len(self._rows)) if cuts[i] < cuts[i + 1]}
        own = {i: (rows[place] - self._rows[i].start,) for i, place in places.items()}
        sparse_parts: list[Any] = []
        dense: NDArray[Any] | None = None
        with self._ask("some_rows", own=own) as parts:
            for i, part in parts:
                if sparse_parts or (dense is None and issparse(part.X)):
                    sparse_parts.append(csr_array(part.X))
                    continue
                dense = np.empty((rows.size, self.shape[1]), dtype=self._stored) if dense is None else dense
                dense[places[i]] = part.X.toarray() if issparse(part.X) else part.X
        if sparse_parts:
            return in_memory(vstack(sparse_parts, format="csr"))
        return in_memory(np.empty((0, self.shape[1]), dtype=self._stored) if dense is None else dense)

    def dense_tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        own = {
            i: (slice(max(rows.start, b.start) - b.start, min(rows.stop, b.stop) - b.start),)
            for i, b in enumerate(self._rows)
            if b.start < rows.stop and rows.start < b.stop
        }
        with self._ask("dense_tile", own=own, columns=columns) as parts:
            tiles = [tile for _, tile in parts]
        return np.concatenate(tiles) if tiles else np.empty((0, columns.stop - columns.start))

    def _ask(
        self, method: str, *told: Any, own: Own | None = None, **options: Any
    ) -> AbstractContextManager[Answers]:
        """What a method of blocks answers."""
        return self._asked(partial(_answer, method=method, options=options), told, own)

    def _stacked(
        self, width: tuple[int, ...], method: str, *told: Any, **options: Any
    ) -> NDArray[np.float64]:
        """Answers with one entry for each row, put together."""
        out = np.empty((self.shape[0], *width))
        with self._ask(method, *told, **options) as parts:
            for i, part in parts:
                out[self._rows[i]] = part
        return out

    def _summed(self, method: str, row_values: Array) -> NDArray[np.float64]:
        """Answers with one entry for each column, added up."""
        values = np.asarray(row_values, dtype=np.float64)
        total = np.zeros((self.shape[1], *values.shape[1:]))
        with self._ask(method, own=self._cut(values)) as parts:
            for _, part in parts:
                total += part
        return total

    def _cut(self, row_values: Array) -> Own:
        """The part of a vector over rows that belongs to each block."""
        values = np.asarray(row_values, dtype=np.float64)
        return {i: (values[rows],) for i, rows in enumerate(self._rows)}

    def _over_columns(self, vector: Array) -> Array:
        vector = np.asarray(vector, dtype=np.float64)
        if vector.shape[0] != self.shape[1]:
            raise ValueError(f"X has {self.shape[1]} columns, but weights have shape {vector.shape}")
        return vector

    def _sent(self, vector: Array | None) -> Array | None:
        """Weights and centres in the precision in which blocks use them: half the bytes for float32."""
        return None if vector is None else vector.astype(self.dtype, copy=False)

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


def in_memory(block: Any) -> Dense | Sparse:
    """The operator of an array or a sparse matrix."""
    return Sparse(block) if issparse(block) else Dense(block)


def _answer(block: Tiled, *arguments: Any, method: str, options: dict[str, Any]) -> Any:
    return getattr(block, method)(*arguments, **options)


def _beginning_at(start: int, row_step: RowStep) -> RowStep:
    """The row step of a block that begins in mid-matrix."""

    def shifted(rows: slice, scores: Array, score_var: Array | None) -> tuple[Array, Array | None]:
        return row_step(slice(start + rows.start, start + rows.stop), scores, score_var)

    return shifted


class RowBlocks(Blocked):
    """Rows from a source on disk; a pass reads every block once, in order, the next one ahead.

    In memory are two blocks of `block_bytes`, what `Dense` or `Sparse` needs beside a block of that size, and
    vectors. A matrix that is hardly larger than these blocks is held in memory where that saves reading it
    again and again.
    """

    def __init__(self, source: RowSource, *, block_bytes: int = BLOCK_BYTES) -> None:
        if block_bytes < 1:
            raise ValueError(f"block_bytes must be positive; got {block_bytes}")
        self.source = source
        self.block_bytes = block_bytes
        self.shape = source.shape
        self.dtype = product_dtype(source.dtype)
        self.column_names = source.column_names
        self._stored = source.dtype
        self._rows = source.cuts(block_bytes)
        self._held: Dense | Sparse | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), block_bytes=self.block_bytes), (self.source,)

    @property
    def labels(self) -> NDArray[Any] | None:
        """Of samples, if the source keeps them and was told where."""
        return self.source.labels

    def dense_tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        # Single rows are asked for to look at the data, not to go through them.
        if self._held is None and rows.stop - rows.start > 1 and len(self._rows) <= BLOCKS_HELD:
            self._held = self.some_rows(np.arange(self.shape[0]))
        if self._held is not None:
            return self._held.dense_tile(rows, columns)
        return self.source.tile(rows, columns)

    def identity(self) -> str:
        # Other blocks are other sums, in their last bits.
        return f"{self.source.identity()}, {super().identity()}, in blocks of {self.block_bytes} bytes"

    @contextmanager
    def _asked(self, question: Question, told: tuple[Any, ...], own: Own | None) -> Iterator[Answers]:
        own = dict.fromkeys(range(len(self._rows)), ()) if own is None else own
        with self._blocks([self._rows[i] for i in own]) as blocks:
            numbered = zip(own.items(), blocks, strict=True)
            yield ((i, question(in_memory(block), *told, *args)) for (i, args), block in numbered)

    @contextmanager
    def _blocks(self, cuts: Sequence[slice]) -> Iterator[Iterator[Any]]:
        """Some blocks, one after the other."""
        if self._held is not None:
            # The same blocks as from disk, so that sums are the same to the last bit.
            matrix = self._held.X
            yield (matrix[rows] for rows in cuts)
            return
        with blocks_in_order(self.source, cuts) as read:
            yield read


@contextmanager
def blocks_in_order(source: RowSource, cuts: Sequence[slice]) -> Iterator[Iterator[Any]]:
    """A pass over a source, block by block: a thread reads the next while the present one is computed on.

    Two blocks are in memory at a time, each in a buffer that is used again. They come in the order of rows,
    whatever the timing. The thread lives as long as the pass: when that ends, be it by an error or an
    interrupt, the thread is gone and its file closed. An error in it is raised where its block is asked for.
    """
    if len(cuts) == 0:
        yield iter(())
        return
    n_bytes = source.space_needed(cuts)
    spaces = [np.empty(n_bytes, dtype=np.uint8) for _ in range(min(len(cuts), 2))]
    with source.opened() as read, ThreadPoolExecutor(1, thread_name_prefix=THREAD_NAME) as thread:

        def blocks() -> Iterator[Any]:
            coming = thread.submit(read, cuts[0], spaces[0])
            for i in range(1, len(cuts)):
                block = coming.result()
                # The block before this one has been used, so its space is free.
                coming = thread.submit(read, cuts[i], spaces[i % 2])
                yield block
            yield coming.result()

        try:
            yield blocks()
        finally:
            thread.shutdown(wait=True, cancel_futures=True)


def open_rows(
    where: Any, *, target: str | None = None, ignore: Sequence[str] = (), block_bytes: int = BLOCK_BYTES
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


def operator_from(X: Any) -> Storage:
    """The operator for an array, a SciPy sparse matrix (formats but CSR and CSC become CSR), or Dask's."""
    if isinstance(X, Storage):
        return X
    if _is_dask(X):
        from foldless.operators.dask_rows import dask_rows

        return dask_rows(X)
    if issparse(X):
        return Sparse(X if X.format in ("csr", "csc") else X.tocsr())
    if isinstance(X, np.ndarray):
        return Dense(X)
    raise TypeError(
        f"X is a {type(X).__name__}; operator_from needs a NumPy array or a scipy.sparse matrix. "
        "Convert it first, for example with numpy.asarray"
    )


def stays_elsewhere(X: Any) -> bool:
    """Whether X is data that are not in memory, and so cannot be looked at before the first sweep."""
    return isinstance(X, Storage) or _is_dask(X)


def _is_dask(X: Any) -> bool:
    """Whether X is a Dask collection; by the name of its module, so that nobody imports Dask in vain."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr")
