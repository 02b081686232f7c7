"""A matrix that does not fit into memory, in blocks of rows that are loaded when needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldless.io.rows import BLOCK_BYTES, RowSource, row_source
from foldless.io.table import Roles
from foldless.operators.blocked import Answers, Blocked, Own, Question, in_memory
from foldless.operators.dense import Dense
from foldless.operators.reading_ahead import blocks_in_order
from foldless.operators.sparse import Sparse
from foldless.operators.tiled import product_dtype

# A matrix of up to so many blocks is held in memory once somebody asks for dense tiles of it: solvers with
# exact covariances go through all tiles in every iteration, and take far more memory than that themselves.
BLOCKS_HELD = 4


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
        # Single rows are for those who want to know the data, not to go through them.
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
