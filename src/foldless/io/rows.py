"""Tables that stay where they are: rows are read when they are needed, a block at a time.

Here are what every source of rows has to offer, arrays that are sliced, and NumPy's .npy; `parquet`, `h5ad`
and `zarr` have theirs.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from foldless.io.matrix import as_labels, as_texts
from foldless.io.npz import array_header
from foldless.io.table import BadTable, Roles

SUFFIXES = (".npy", ".parquet", ".zarr", ".h5ad")
# Large enough that a disk, or a network, is asked for a stretch and not for rows; two of them are in memory.
BLOCK_BYTES = 32 << 20
# Kinds of NumPy's types that are numbers: booleans, whole numbers, floating-point numbers.
NUMBERS = "biuf"


class ReadRows(Protocol):
    """Reads a block: an array or a CSR matrix, in `space` if it can, which is then the block's memory."""

    def __call__(self, rows: slice, space: NDArray[np.uint8]) -> Any: ...


class RowSource(ABC):
    """A matrix of samples (rows) by features (columns) somewhere else than in memory.

    It holds no open file, so that it can be kept, copied and sent to other processes.
    """

    path = Path("X")  # or what errors call it
    shape: tuple[int, int]
    dtype: np.dtype[Any]  # as stored
    column_names: Sequence[str] | None = None
    # Of samples, where the source keeps them beside the matrix and was told where.
    labels: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    row_names: Sequence[str] | None = None

    @abstractmethod
    def opened(self) -> AbstractContextManager[ReadRows]:
        """Open for one pass over blocks in order; several passes may be under way at once."""

    def identity(self) -> str:
        """What changes when the data do, as far as that is known without reading them.

        This form is number, size and last change of all files at the path.
        """
        found = [os.stat(Path(folder) / name) for folder, _, names in os.walk(self.path) for name in names]
        found = found or [os.stat(self.path)]
        size, changed = sum(each.st_size for each in found), max(each.st_mtime_ns for each in found)
        return f"{len(found)} files, {size} bytes of {changed}"

    def cuts(self, block_bytes: int) -> list[slice]:
        """Blocks of rows of about this size, in order."""
        n_rows, step = self.shape[0], max(block_bytes // max(self._row_bytes, 1), 1)
        return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]

    def tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        """A dense float64 copy of some rows of some columns. This form reads whole rows."""
        out = np.empty((rows.stop - rows.start, columns.stop - columns.start))
        pieces = [
            slice(max(rows.start, piece.start), min(rows.stop, piece.stop))
            for piece in self.cuts(BLOCK_BYTES)
            if piece.start < rows.stop and rows.start < piece.stop
        ]
        space = np.empty(self.space_needed(pieces), dtype=np.uint8)
        with self.opened() as read:
            for piece in pieces:
                part = read(piece, space)[:, columns]
                part = part.toarray() if hasattr(part, "toarray") else part
                out[piece.start - rows.start : piece.stop - rows.start] = part
        return out

    def space_needed(self, pieces: Sequence[slice]) -> int:
        """Bytes that the largest of these blocks takes, for sources that read into a given space."""
        return max((piece.stop - piece.start for piece in pieces), default=0) * self._row_bytes

    def in_space(self, rows: slice, space: NDArray[np.uint8]) -> NDArray[Any]:
        """The first bytes of a space as an array of these rows, to be filled."""
        n_rows = rows.stop - rows.start
        return space[: n_rows * self._row_bytes].view(self.dtype).reshape(n_rows, self.shape[1])

    def note_matrix(self, shape: Sequence[int], dtype: Any) -> None:
        """Shape and type, if they are those of a matrix of numbers."""
        if len(shape) != 2:
            found = f"the array has shape {tuple(shape)}."
            raise BadTable(self.path, found, "A matrix of samples by features is needed.")
        self.shape, self.dtype = (int(shape[0]), int(shape[1])), np.dtype(dtype)
        if self.dtype.kind not in NUMBERS:
            raise BadTable(self.path, f"the array holds {self.dtype}, not numbers.", "Save it as numbers.")

    def note_samples(self, roles: Roles, values_of: Callable[[str], NDArray[Any]]) -> None:
        """Labels, groups and names of samples, by the names under which they are beside the matrix."""
        if roles.target is not None:
            self.labels = as_labels(self.path, values_of(roles.target), roles.target)
        if roles.groups is not None:
            self.groups = as_texts(self.path, values_of(roles.groups), roles.groups)
        if roles.samples is not None:
            self.row_names = [str(name) for name in values_of(roles.samples)]

    @property
    def _row_bytes(self) -> int:
        return self.shape[1] * self.dtype.itemsize


class ArrayRows(RowSource):
    """Rows of whatever has a shape, a dtype and slices, dense or sparse.

    Such are memory maps, open zarr and HDF5 arrays, and X of a backed AnnData.
    """

    def __init__(self, array: Any) -> None:
        self.array = array
        self.note_matrix(array.shape, array.dtype)

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


class NpyRows(RowSource):
    """A 2-d array in a .npy file, in C order; in F order rows are strewn over the whole file.

    It is read at offsets and not through a memory map: a map takes address space of the size of the file,
    which limits on memory count, and a page that cannot be read ends the process instead of raising an error.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, "rb") as stream:
            try:
                shape, fortran, dtype = array_header(stream)
            except (ValueError, EOFError) as error:
                raise BadTable(
                    path, f"this is no .npy file ({error}).", "Write it with numpy.save."
                ) from None
            self._offset = stream.tell()
            size = stream.seek(0, 2)
        self.note_matrix(shape, dtype)
        # A single row or column has both orders.
        if fortran and min(self.shape) > 1:
            raise BadTable(
                path,
                "the array is stored by columns (Fortran order): a block of rows is all over the file.",
                "Save it by rows: numpy.save(path, numpy.ascontiguousarray(X)).",
            )
        expected = self._offset + self.shape[0] * self._row_bytes
        if size < expected:
            raise BadTable(
                path,
                f"{self.shape[0]} x {self.shape[1]} numbers take {expected} bytes, and the file has {size}.",
                "It is incomplete: copy it, or write it, again.",
            )

    @contextmanager
    def opened(self) -> Iterator[ReadRows]:
        with open(self.path, "rb", buffering=0) as stream:

            def read(rows: slice, space: NDArray[np.uint8]) -> NDArray[Any]:
                block = self.in_space(rows, space)
                self._fill(stream, rows.start, 0, block)
                return block

            yield read

    def tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        """A stretch of each row, without what lies between."""
        tile = np.empty((rows.stop - rows.start, columns.stop - columns.start), dtype=self.dtype)
        with open(self.path, "rb", buffering=0) as stream:
            if tile.shape[1] == self.shape[1]:
                self._fill(stream, rows.start, 0, tile)
            else:
                for i, row in enumerate(tile, start=rows.start):
                    self._fill(stream, i, columns.start, row)
        return tile.astype(np.float64)

    def _fill(self, stream: Any, row: int, column: int, block: NDArray[Any]) -> None:
        """Read what lies from this entry on."""
        stream.seek(self._offset + row * self._row_bytes + column * self.dtype.itemsize)
        rest = block.reshape(-1).view(np.uint8).data
        while rest:
            # One call may read less than it is asked for.
            n_read = stream.readinto(rest)
            if not n_read:
                raise BadTable(self.path, "the file ended early.", "Was it changed while it was being read?")
            rest = rest[n_read:]


def row_source(where: Any, roles: Roles | None = None) -> RowSource:
    """The source of rows at a path, or of an array that is sliced when needed.

    Of the roles, target, groups and samples are looked for beside the matrix.
    """
    roles = Roles() if roles is None else roles
    if not isinstance(where, str | os.PathLike):
        if not all(hasattr(where, name) for name in ("shape", "dtype", "__getitem__")):
            raise TypeError(f"A path or an array is needed; got a {type(where).__name__}.")
        return ArrayRows(where)
    path = Path(where)
    path.stat()  # an error that names the file if there is none
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        from foldless.io.parquet import ParquetRows

        return ParquetRows(path, roles)
    if roles.ignore:
        raise BadTable(
            path,
            "columns can be ignored in Parquet files only, where a column can be left unread.",
            "Write the matrix again without them.",
        )
    if suffix == ".npy":
        if (roles.target, roles.groups, roles.samples) != (None, None, None):
            raise BadTable(
                path,
                "a .npy file holds a matrix and nothing beside it, so no target can be found in it.",
                "Keep labels in a file of their own: pass them as y, or see --labels.",
            )
        return NpyRows(path)
    if suffix == ".h5ad":
        from foldless.io.h5ad import H5adRows

        return H5adRows(path, roles)
    # An array in a group is a folder in a folder.
    if suffix == ".zarr" or any(parent.suffix.lower() == ".zarr" for parent in path.parents):
        from foldless.io.zarr import ZarrRows

        return ZarrRows(path, roles)
    raise BadTable(
        path,
        "rows of this kind of file cannot be read one block at a time.",
        f"Known are {', '.join(SUFFIXES)}. Convert it, or read it whole.",
    )
