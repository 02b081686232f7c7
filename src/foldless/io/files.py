"""Files that are replaced whole or not at all, and checksums of files and arrays."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# Scanners of new files let go of them soon; editors and spreadsheets do not.
ATTEMPTS, SECONDS_BETWEEN_ATTEMPTS = 4, 0.05
# Files being written: a process that ends at once, without unwinding, can still clear them away.
_unfinished: set[Path] = set()


@contextmanager
def named(path: Path, written: Path | None = None) -> Iterator[None]:
    """Errors of writing, as of a full disk, have the name of the file: the system gives them none."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(written)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write under; it becomes `path` when the block ends well, and is removed when it does not.

    Open it with mode "x", which refuses to follow a link laid there.
    """
    # Beside the target, so that renaming stays on one disk.
    unfinished = path.with_name(f".{path.stem}-{secrets.token_hex(4)}{path.suffix}")
    _unfinished.add(unfinished)
    try:
        with named(path, unfinished):
            yield unfinished
        _renamed(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
        _unfinished.discard(unfinished)


def _renamed(unfinished: Path, path: Path) -> None:
    """In place of an old file. Windows refuses while another program has that open, if only to scan it."""
    for attempt in range(ATTEMPTS):
        try:
            os.replace(unfinished, path)
            return
        except PermissionError as error:
            if path.is_dir() or not path.exists():
                raise
            if attempt == ATTEMPTS - 1:
                advice = "It may be open in another program: close it there, or name another file"
                raise PermissionError(error.errno, f"cannot be replaced. {advice}", str(path)) from None
        time.sleep(SECONDS_BETWEEN_ATTEMPTS)


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


def sha256_of(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def checksum(arrays: Iterable[NDArray[np.generic] | None], start: int = 0) -> int:
    """Of contents, shapes and types, in this order; None is something else than nothing.

    Against accidents, not against malice.
    """
    total = start
    for array in arrays:
        if array is None:
            total = zlib.crc32(b"none", total)
            continue
        total = zlib.crc32(f"{array.dtype.str} {array.shape}".encode("ascii"), total)
        total = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, total)
    return total
