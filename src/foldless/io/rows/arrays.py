"""Arrays that are sliced when needed: memory maps, open zarr and HDF5 arrays, X of a backed AnnData."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from foldless.io.rows.base import NUMBERS, ReadRows, RowSource


class ArrayRows(RowSource):
    """Rows of whatever has a shape, a dtype and slices, dense or sparse."""

    def __init__(self, array: Any) -> None:
        if len(array.shape) != 2 or np.dtype(array.dtype).kind not in NUMBERS:
            raise ValueError(
                f"The array has shape {tuple(array.shape)} and holds {array.dtype}; a matrix of numbers, "
                "samples by features, is needed."
            )
        self.array = array
        self.shape = (int(array.shape[0]), int(array.shape[1]))
        self.dtype = np.dtype(array.dtype)

    @contextmanager
    def opened(self) -> Iterator[ReadRows]:
        def read(rows: slice, space: NDArray[np.uint8]) -> Any:
            found = self.array[rows]
            if issparse(found):
                return found.tocsr()
            block = self.in_space(rows, space)
            block[:] = found
            return block

        yield read

    def tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        # Rows first: not every array can be sliced along both axes at once.
        found = self.array[rows][:, columns]
        return np.asarray(found.toarray() if issparse(found) else found).astype(np.float64)

    def identity(self) -> str:
        return "an array"
