"""Arrays that are sliced when needed: memory maps, and whatever else has a shape, a dtype and rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldless.io.rows.base import NUMBERS, ReadRows, RowSource, in_space


class ArrayRows(RowSource):
    """Rows of an array, copied a block at a time."""

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
        def read(rows: slice, space: NDArray[np.uint8]) -> NDArray[Any]:
            block = in_space(space, rows.stop - rows.start, self.shape[1], self.dtype)
            block[:] = self.array[rows]
            return block

        yield read

    def tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        return np.asarray(self.array[rows, columns]).astype(np.float64)

    def identity(self) -> str:
        return "an array"
