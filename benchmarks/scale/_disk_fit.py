"""One fit to rows on disk, in a process whose memory is limited; says what it took as a line of JSON.

    python -m benchmarks.scale._disk_fit FOLDER [--limit-gigabytes 1.5] [--checkpoint FILE] [--cold]

The limit is on address space (RLIMIT_AS): what is beyond it cannot be had, whether it would be used or not.
With --cold, what was read is dropped from the system's cache at once, as if the file were larger than memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from foldless import SparseClassifier
from foldless.io.rows import BLOCK_BYTES, NpyRows, ReadRows, RowSource
from foldless.operators import RowBlocks
from foldless.operators.row_blocks import blocks_in_order

GIGA = 1e9


class Counted(RowSource):
    """A file of rows that counts its passes, and can do without the system's cache."""

    def __init__(self, path: Path, *, cold: bool) -> None:
        self._inner = NpyRows(path)
        self.shape, self.dtype = self._inner.shape, self._inner.dtype
        self.cold, self.n_passes = cold, 0

    @contextmanager
    def opened(self) -> Iterator[ReadRows]:
        self.n_passes += 1
        with self._inner.opened() as inner:
            if not self.cold:
                yield inner
                return
            file = os.open(self._inner.path, os.O_RDONLY)

            def read(rows: slice, space: Any) -> Any:
                block = inner(rows, space)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                return block

            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                yield read
            finally:
                os.close(file)

    def tile(self, rows: slice, columns: slice) -> Any:
        return self._inner.tile(rows, columns)

    def identity(self) -> str:
        return self._inner.identity()


def seconds_to_read(source: Counted) -> float:
    """A pass in which nothing is computed."""
    start = time.perf_counter()
    with blocks_in_order(source, source.cuts(BLOCK_BYTES)) as blocks:
        for _ in blocks:
            pass
    return time.perf_counter() - start


def from_status(name: str) -> float:
    """What the kernel says of this process, in bytes: VmHWM is memory at its peak, VmPeak address space."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024.0 * float(line.split()[1])
    raise LookupError(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit-gigabytes", type=float)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--cold", action="store_true")
    asked = parser.parse_args()
    if asked.limit_gigabytes is not None:
        limit = int(GIGA * asked.limit_gigabytes)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    before = from_status("VmHWM")
    source = Counted(asked.folder / "X.npy", cold=asked.cold)
    reading = seconds_to_read(source)
    y = np.load(asked.folder / "y.npy")
    source.n_passes = 0
    start, cpu = time.perf_counter(), time.process_time()
    model = SparseClassifier(checkpoint=asked.checkpoint).fit(RowBlocks(source), y)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    passes = source.n_passes
    reading = 0.5 * (reading + seconds_to_read(source))  # before and after, since others use the machine
    model.save(asked.folder / "model.safetensors")
    active = np.load(asked.folder / "active.npy")
    found = model.get_support(indices=True)
    print(
        json.dumps(
            {
                "rows": source.shape[0],
                "columns": source.shape[1],
                "gigabytes": source.shape[0] * source.shape[1] * source.dtype.itemsize / GIGA,
                "cold": asked.cold,
                "passes": passes,
                "iterations": model.n_iter_,
                "outcome": str(model.outcome_),
                "solver": model.solver_,
                "seconds": seconds,
                "cpu_seconds": cpu_seconds,
                "read_seconds": reading,
                "over_reading": seconds / (passes * reading),
                "imports_mb": before / 1e6,
                "peak_mb": from_status("VmHWM") / 1e6,
                "peak_address_mb": from_status("VmPeak") / 1e6,
                "found": int(np.isin(active, found).sum()),
                "false": int((~np.isin(found, active)).sum()),
                "active": active.size,
                "loo_error": model.loo_error_,
            }
        )
    )


if __name__ == "__main__":
    main()
