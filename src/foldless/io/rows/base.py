"""The contract of a source of rows: what is known before anything is read, and how blocks are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from foldless.io.matrix import as_labels, as_texts
from foldless.io.table import Roles

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

    @abstractmethod
    def identity(self) -> str:
        """What changes when the data do, as far as that is known without reading them."""

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

    def note_samples(self, path: Path, roles: Roles, values_of: Callable[[str], NDArray[Any]]) -> None:
        """Labels, groups and names of samples, by the names under which they are beside the matrix."""
        if roles.target is not None:
            self.labels = as_labels(path, values_of(roles.target), roles.target)
        if roles.groups is not None:
            self.groups = as_texts(path, values_of(roles.groups), roles.groups)
        if roles.samples is not None:
            self.row_names = [str(name) for name in values_of(roles.samples)]

    @property
    def _row_bytes(self) -> int:
        return self.shape[1] * self.dtype.itemsize


def file_identity(path: Path) -> str:
    """Size and time of the last change."""
    found = path.stat()
    return f"{found.st_size} bytes of {found.st_mtime_ns}"
