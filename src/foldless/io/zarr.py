"""zarr: a matrix in chunks, in an array of its own or as "X" of a group, with labels beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldless.io.budget import check_size, default_budget
from foldless.io.extras import needs
from foldless.io.names import printable
from foldless.io.rows import ReadRows, RowSource
from foldless.io.table import BadTable, Roles, check_present, readable_as

MATRIX = "X"
REMEDY = "Write it again with zarr.save."


class ZarrRows(RowSource):
    """Blocks of whole rows; chunks of whole rows are read fastest."""

    def __init__(self, path: Path, roles: Roles) -> None:
        self.path = path
        with opened_zarr(path) as store:
            X = _matrix(path, store)
            self.note_matrix(X.shape, X.dtype)
            self._rows_of_a_chunk = int(X.chunks[0])
            # The least that is ever in memory at once.
            least = max(prod(map(int, X.chunks)) * self.dtype.itemsize, self._row_bytes)
            what = f"chunks of {' x '.join(map(str, X.chunks))} numbers and rows of {self.shape[1]}"
            check_size(path, float(least), default_budget(), what)
            self.note_samples(roles, lambda name: self._vector(store, name))

    def cuts(self, block_bytes: int) -> list[slice]:
        """Whole chunks where they fit, since a chunk that two blocks share is unpacked twice."""
        even = super().cuts(block_bytes)
        chunk = self._rows_of_a_chunk
        if len(even) <= 1 or even[0].stop < chunk:
            return even
        return super().cuts((even[0].stop - even[0].stop % chunk) * self._row_bytes)

    @contextmanager
    def opened(self) -> Iterator[ReadRows]:
        with opened_zarr(self.path) as store:
            X = _matrix(self.path, store)

            def read(rows: slice, space: NDArray[np.uint8]) -> NDArray[Any]:
                block = self.in_space(rows, space)
                with readable_as(self.path, "zarr", REMEDY):
                    block[:] = X[rows]
                return block

            yield read

    def tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        with opened_zarr(self.path) as store, readable_as(self.path, "zarr", REMEDY):
            return np.asarray(_matrix(self.path, store)[rows, columns]).astype(np.float64)

    def _vector(self, store: Any, name: str) -> NDArray[Any]:
        """Another array of the group, with a value for each row."""
        arrays = list(store.array_keys()) if hasattr(store, "array_keys") else []
        check_present(self.path, [name], arrays, "array", "target, groups or samples")
        values = np.asarray(store[name][:])
        if values.shape != (self.shape[0],):
            raise BadTable(
                self.path,
                f"the array {printable(name)!r} has shape {values.shape}; there are {self.shape[0]} rows.",
                "One value for each sample is needed.",
            )
        return values


@contextmanager
def opened_zarr(path: Path) -> Iterator[Any]:
    """The array or group at a path."""
    with needs("zarr", "zarr", "to read zarr arrays"):
        import zarr
    with readable_as(path, "zarr", REMEDY):
        store: Any = zarr.open(str(path), mode="r")
    yield store


def _matrix(path: Path, store: Any) -> Any:
    if hasattr(store, "chunks"):
        return store
    if MATRIX in store and hasattr(store[MATRIX], "chunks"):
        return store[MATRIX]
    raise BadTable(path, f"this is a group without an array {MATRIX!r}.", "Name the array: GROUP.zarr/ARRAY.")
