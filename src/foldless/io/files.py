"""Files that are replaced whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Files being written: a process that ends at once, without unwinding, can still clear them away.
_unfinished: set[Path] = set()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write under; it becomes `path` when the block ends well, and is removed when it does not.

    Open it with mode "x", which refuses to follow a link laid there.
    """
    # Beside the target, so that renaming stays on one disk.
    unfinished = path.with_name(f".{path.stem}-{secrets.token_hex(4)}{path.suffix}")
    _unfinished.add(unfinished)
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
        _unfinished.discard(unfinished)


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file, on disk before it has its name: after a power cut it is the old one or the new one."""
    with replacing(path) as unfinished, open(unfinished, "xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def remove_unfinished() -> None:
    """What is being written goes."""
    for path in list(_unfinished):
        path.unlink(missing_ok=True)
