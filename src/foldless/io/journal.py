"""An append-only file of records, whose whole ones survive whatever ends the process.

    magic, a byte for how the last use ended, header (JSON), record, record, ...

The header and every record are framed: length, CRC-32, content. A record that is not whole was being written
when the process ended, or damaged since; it is cut off with everything behind it. The header tells what the
records are of. It is on disk before the file has its name, so that a file without one is somebody else's.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from foldless.io.files import named, write_whole
from foldless.io.names import printable

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

MAGIC = b"foldless journal 1\n"
GOING, INTERRUPTED = b"-", b"i"
FRAME = struct.Struct("<QI")
# Records are with the operating system at once, and so survive the process; for a power cut to take no more
# than a second of work, the disk is waited for once a second.
SECONDS_BETWEEN_SYNCS = 1.0
LONGEST_SHOWN = 300
LOCKED_BYTE = (1 << 31) - 2


class BadJournal(ValueError):
    """A file that cannot be resumed from: why, and what to do."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"{path}: {problem} Delete this file to begin anew, or give `checkpoint` another name."
        )


class Journal:
    """Records are read in order until there are no more, and appended from then on."""

    def __init__(self, path: Path, stream: BinaryIO, *, was_interrupted: bool) -> None:
        self.path = path
        # An interrupt lets a fit come to an end in good order: its last records are not of its course.
        self.was_interrupted = was_interrupted
        self.n_read = 0
        self._stream = stream
        self._start = stream.tell()  # of the record read last
        self._size = os.fstat(stream.fileno()).st_size
        self._synced = time.monotonic()

    def read(self) -> bytes | None:
        """The next record, or None if there is none that is whole."""
        self._start = self._stream.tell()
        record = _read_frame(self._stream, self._size)
        if record is None:
            self.cut()
            return None
        self.n_read += 1
        return record

    def cut(self) -> None:
        """Forget the record read last, and all behind it."""
        self._stream.seek(self._start)
        self._stream.truncate()
        self._size = self._start
        self.note(GOING)

    def append(self, parts: Sequence[bytes | memoryview]) -> None:
        """Write a record, given in parts; it is safe from the end of this process when this returns."""
        with named(self.path):
            self._stream.write(_frame(parts))
            for part in parts:
                self._stream.write(part)
            self._stream.flush()
            if time.monotonic() - self._synced >= SECONDS_BETWEEN_SYNCS:
                os.fsync(self._stream.fileno())
                self._synced = time.monotonic()

    def note(self, how: bytes) -> None:
        """That the fit goes on, or was interrupted."""
        self.was_interrupted = how == INTERRUPTED
        with named(self.path):
            place = self._stream.tell()
            self._stream.seek(len(MAGIC))
            self._stream.write(how)
            self._stream.flush()
            self._stream.seek(place)


@contextmanager
def journal(path: Path, header: Mapping[str, str]) -> Iterator[Journal]:
    """The journal at a path, made if there is none; an existing one must have the same header.

    It is removed when the block ends well, and stays when it does not.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(2, os.strerror(2), str(path.parent))
    if not path.exists():
        content = json.dumps(dict(header)).encode("utf-8")
        write_whole(path, b"".join([MAGIC, GOING, _frame([content]), content]))
    with open(path, "r+b") as stream:
        try:
            _lock(path, stream)
            how = _check_header(path, stream, header)
            records = Journal(path, stream, was_interrupted=how == INTERRUPTED)
            try:
                yield records
            except KeyboardInterrupt:
                records.note(INTERRUPTED)
                raise
        finally:
            with named(path):  # what could not be written is tried once more
                stream.close()
    path.unlink(missing_ok=True)


def _check_header(path: Path, stream: BinaryIO, header: Mapping[str, str]) -> bytes:
    if stream.read(len(MAGIC)) != MAGIC:
        raise BadJournal(path, "this is no checkpoint of foldless, or one of another version.")
    how = stream.read(1)
    content = _read_frame(stream, os.fstat(stream.fileno()).st_size)
    try:
        found = json.loads(content) if content is not None else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadJournal(path, "its header is damaged.")
    different = [name for name in {**header, **found} if header.get(name) != found.get(name)]
    if different:
        name = different[0]
        what, then, now = (
            printable(text, longest=LONGEST_SHOWN)
            for text in (name, found.get(name, "none"), header.get(name, "none"))
        )
        more = f" (also different: {', '.join(printable(n) for n in different[1:])})" if different[1:] else ""
        raise BadJournal(
            path, f"it is of another fit and cannot be resumed: {what} was {then} and is {now}{more}."
        )
    return how


def _frame(parts: Sequence[bytes | memoryview]) -> bytes:
    crc, length = 0, 0
    for part in parts:
        crc, length = zlib.crc32(part, crc), length + len(part)
    return FRAME.pack(length, crc)


def _read_frame(stream: BinaryIO, size: int) -> bytes | None:
    """The content of the frame that begins here, if it is whole."""
    head = stream.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    length, crc = FRAME.unpack(head)
    if length > size - stream.tell():
        return None
    content = stream.read(length)
    return content if len(content) == length and zlib.crc32(content) == crc else None


def _lock(path: Path, stream: BinaryIO) -> None:
    """Two fits must not write into one file."""
    try:
        if sys.platform == "win32":
            # One byte, so far out that nobody needs it; reading it would be refused.
            stream.seek(LOCKED_BYTE)
            msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
            stream.seek(0)
        else:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        raise BlockingIOError(
            11, f"{path} is in use by another fit. Wait for it, or give `checkpoint` another name."
        ) from None
    except OSError:
        return  # some network file systems have no locks
