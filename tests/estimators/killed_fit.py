"""A fit to rows on disk that can end its own process in the middle of a pass: for tests of checkpoints."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from foldless import SparseClassifier
from foldless.io.rows import ReadRows, RowSource, row_source
from foldless.operators import RowBlocks

BLOCK_BYTES = 40_000


class Deadly(RowSource):
    """Rows of a file; reading block number `deadly_read`, counted from the beginning of the fit, kills."""

    def __init__(self, path: Path, deadly_read: int | None) -> None:
        self._inner = row_source(path)
        self.shape, self.dtype = self._inner.shape, self._inner.dtype
        self._deadly_read = deadly_read
        self.n_reads = 0

    @contextmanager
    def opened(self) -> Iterator[ReadRows]:
        with self._inner.opened() as inner:

            def read(rows: slice, space: Any) -> Any:
                self.n_reads += 1
                if self.n_reads == self._deadly_read:
                    os.kill(os.getpid(), signal.SIGKILL)
                return inner(rows, space)

            yield read

    def tile(self, rows: slice, columns: slice) -> Any:
        return self._inner.tile(rows, columns)

    def identity(self) -> str:
        return self._inner.identity()


def fit_from_disk(folder: Path, deadly_read: int | None = None) -> int:
    """Fit X.npy with a checkpoint and save the model; returns how many blocks were read."""
    source = Deadly(folder / "X.npy", deadly_read)
    model = SparseClassifier(checkpoint=folder / "fit.journal")
    model.fit(RowBlocks(source, block_bytes=BLOCK_BYTES), np.load(folder / "y.npy"))
    model.save(folder / "model.safetensors")
    return source.n_reads


if __name__ == "__main__":
    fit_from_disk(Path(sys.argv[1]), int(sys.argv[2]))
