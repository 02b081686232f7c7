"""NumPy's .npy, by plain reads at offsets.

Not by a memory map: a map takes address space of the size of the file, which limits on memory count, and a
page that cannot be read ends the process instead of raising an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldless.io.npz import array_header
from foldless.io.rows.base import NUMBERS, ReadRows, RowSource, file_identity
from foldless.io.table import BadTable


class NpyRows(RowSource):
    """A 2-d array in C order; in F order rows are strewn over the whole file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, "rb") as stream:
            shape, fortran, self.dtype = _header(path, stream)
            self._offset = stream.tell()
            size = stream.seek(0, 2)
        if len(shape) != 2:
            raise BadTable(
                path, f"the array has shape {shape}.", "A matrix of samples by features is needed."
            )
        self.shape = (int(shape[0]), int(shape[1]))
        if self.dtype.kind not in NUMBERS:
            raise BadTable(path, f"the array holds {self.dtype}, not numbers.", "Save it as numbers.")
        # A single row or column has both orders.
        if fortran and min(self.shape) > 1:
            raise BadTable(
                path,
                "the array is stored by columns (Fortran order): a block of rows is all over the file.",
                "Save it by rows: numpy.save(path, numpy.ascontiguousarray(X)).",
            )
        expected = self._offset + self.shape[0] * self.shape[1] * self.dtype.itemsize
        if size < expected:
            raise BadTable(
                path,
                f"{self.shape[0]} x {self.shape[1]} numbers take {expected} bytes, and the file has {size}.",
                "It is incomplete: copy it, or write it, again.",
            )

    @contextmanager
    def opened(self) -> Iterator[ReadRows]:
        n_columns, size = self.shape[1], self.dtype.itemsize
        with open(self.path, "rb", buffering=0) as stream:

            def read(rows: slice, space: NDArray[np.uint8]) -> NDArray[Any]:
                block = self.in_space(rows, space)
                self._fill(stream, self._offset + rows.start * n_columns * size, block)
                return block

            yield read

    def tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        """A stretch of each row, without what lies between."""
        n_columns, size = self.shape[1], self.dtype.itemsize
        tile = np.empty((rows.stop - rows.start, columns.stop - columns.start), dtype=self.dtype)
        with open(self.path, "rb", buffering=0) as stream:
            if tile.shape[1] == n_columns:
                self._fill(stream, self._offset + rows.start * n_columns * size, tile)
            else:
                for i, row in enumerate(tile, start=rows.start):
                    self._fill(stream, self._offset + (i * n_columns + columns.start) * size, row)
        return tile.astype(np.float64)

    def identity(self) -> str:
        return file_identity(self.path)

    def _fill(self, stream: Any, offset: int, block: NDArray[Any]) -> None:
        stream.seek(offset)
        rest = block.reshape(-1).view(np.uint8).data
        while rest:
            # One call may read less than it is asked for.
            n_read = stream.readinto(rest)
            if not n_read:
                raise BadTable(self.path, "the file ended early.", "Was it changed while it was being read?")
            rest = rest[n_read:]


def _header(path: Path, stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        return array_header(stream)
    except (ValueError, EOFError) as error:
        raise BadTable(path, f"this is no .npy file ({error}).", "Write it with numpy.save.") from None
