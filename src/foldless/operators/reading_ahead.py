"""Blocks of rows in order, the next being read by a thread while the present one is computed on.

Two blocks are in memory at a time, each in a buffer that is used again. They come in the order of rows,
whatever the timing. The thread lives as long as the pass: when that ends, be it by an error or an interrupt,
the thread is gone and its file closed. An error in it is raised where its block is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from foldless.io.rows import RowSource

THREAD_NAME = "foldless-reading-ahead"


@contextmanager
def blocks_in_order(source: RowSource, cuts: Sequence[slice]) -> Iterator[Iterator[Any]]:
    """A pass over a source, block by block; the memory of a block is used again for the next but one."""
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
