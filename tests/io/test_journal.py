"""Journals: whole records survive, torn and damaged ones are cut off, others' files are left alone."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from foldless.io.files import write_whole
from foldless.io.journal import FRAME, GOING, MAGIC, BadJournal, Journal, journal

HEADER = {"X": "of size 3", "the parameter tol": "0.1"}
RECORDS = [b"first", b"", bytes(range(256)) * 40]


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def left_behind(path: Path, by: type[BaseException] = Killed) -> Iterator[Journal]:
    """A journal whose process ends with the block."""
    with suppress(by), journal(path, HEADER) as found:
        yield found
        raise by


def written(path: Path, records: list[bytes]) -> Path:
    with left_behind(path) as found:
        assert found.read() is None
        for record in records:
            found.append([record[:2], memoryview(record)[2:]])
    return path


def content(found: Journal) -> list[bytes]:
    return list(iter(found.read, None))


def test_records_come_back_in_order_and_the_file_goes_when_all_is_done(tmp_path: Path) -> None:
    path = written(tmp_path / "journal", RECORDS)
    with left_behind(path) as found:
        assert content(found) == RECORDS
        found.append([b"fourth"])
    with journal(path, HEADER) as found:
        assert content(found) == [*RECORDS, b"fourth"]
        assert path.exists()
    assert not path.exists()


def test_whatever_is_torn_off_the_end_whole_records_remain(tmp_path: Path) -> None:
    path = written(tmp_path / "journal", RECORDS)
    whole = path.read_bytes()
    ends = [len(written(tmp_path / f"{n}", RECORDS[:n]).read_bytes()) for n in range(len(RECORDS) + 1)]
    assert ends[-1] == len(whole)
    for length in [*range(ends[0], ends[2] + 40), len(whole) - 1, len(whole)]:
        path.write_bytes(whole[:length])
        n_whole = max(n for n, end in enumerate(ends) if end <= length)
        with left_behind(path) as found:
            assert content(found) == RECORDS[:n_whole]
            found.append([b"next"])
        with journal(path, HEADER) as found:
            assert content(found) == [*RECORDS[:n_whole], b"next"]


def test_a_flipped_bit_anywhere_is_never_read_as_a_record(tmp_path: Path) -> None:
    path = written(tmp_path / "journal", RECORDS[:2])
    whole = path.read_bytes()
    start = len(written(tmp_path / "empty", []).read_bytes())
    for place in range(start, len(whole)):
        for bit in (0, 7):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            with journal(path, HEADER) as found:
                kept = content(found)
                assert kept == RECORDS[: len(kept)]
                assert len(kept) < 2


def test_a_record_can_be_taken_back_with_all_behind_it(tmp_path: Path) -> None:
    path = written(tmp_path / "journal", RECORDS)
    with left_behind(path) as found:
        found.read()
        found.read()
        found.cut()
        found.append([b"instead"])
    with journal(path, HEADER) as found:
        assert content(found) == [RECORDS[0], b"instead"]


def test_an_interrupt_is_remembered_until_the_journal_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with left_behind(path, by=KeyboardInterrupt) as found:
        found.read()
        found.append([b"one"])
    for _ in range(2):  # looking at a record changes nothing
        with left_behind(path) as found:
            assert found.was_interrupted
            assert found.read() == b"one"
    with left_behind(path) as found:
        assert content(found) == [b"one"]
        assert not found.was_interrupted
    with journal(path, HEADER) as found:
        assert not found.was_interrupted


def test_another_header_is_refused_and_the_file_stays_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path / "journal", RECORDS)
    before = path.read_bytes()
    for header, difference in (
        ({**HEADER, "X": "of size 4"}, "X was of size 3 and is of size 4"),
        ({**HEADER, "the seed": "1"}, "the seed was none and is 1"),
        ({"X": "of size 3"}, "the parameter tol was 0.1 and is none"),
        ({"X": "of size 4", "the parameter tol": "0.2"}, r"size 4 \(also different: the parameter tol\)"),
    ):
        with pytest.raises(BadJournal, match=difference) as caught, journal(path, header):
            pass
        assert "Delete this file to begin anew, or give `checkpoint` another name" in str(caught.value)
        assert path.read_bytes() == before


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    for others in (b"", b"my only copy", b"foldless journal 2\n-"):
        path.write_bytes(others)
        with pytest.raises(BadJournal, match="no checkpoint of foldless"), journal(path, HEADER):
            pass
        assert path.read_bytes() == others
    written(tmp_path / "journal", RECORDS)
    damaged = bytearray((tmp_path / "journal").read_bytes())
    damaged[40] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(BadJournal, match="header is damaged"), journal(path, HEADER):
        pass
    assert path.read_bytes() == damaged


def test_two_fits_cannot_share_a_journal(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    path = tmp_path / "journal"
    with (
        journal(path, HEADER),
        pytest.raises(BlockingIOError, match="in use by another fit"),
        journal(path, HEADER),
    ):
        pass
    assert not path.exists()


def test_a_file_that_another_program_holds_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, where an open file cannot be replaced; one that is let go soon is."""
    path, refusals = tmp_path / "features.tsv", [2]
    path.write_bytes(b"old")
    real = os.replace

    def replace(old: Path, new: Path) -> None:
        if refusals[0]:
            refusals[0] -= 1
            raise PermissionError(13, "Access is denied", str(old))
        real(old, new)

    monkeypatch.setattr(os, "replace", replace)
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    refusals[0] = 99
    with pytest.raises(PermissionError, match="open in another program"):
        write_whole(path, b"newer")
    assert [each.name for each in tmp_path.iterdir()] == ["features.tsv"]


def test_a_header_of_others_in_our_frame_is_refused(tmp_path: Path) -> None:
    for content in (b"[1]", b"not json", b"\xff", b'"text"'):
        frame = FRAME.pack(len(content), zlib.crc32(content))
        path = tmp_path / "journal"
        path.write_bytes(MAGIC + GOING + frame + content)
        with pytest.raises(BadJournal, match="header is damaged"), journal(path, HEADER):
            pass


def test_a_journal_in_a_folder_that_is_not_there_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, journal(tmp_path / "gone" / "journal", HEADER):
        pass
    assert caught.value.filename == str(tmp_path / "gone")


def test_a_full_disk_names_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "journal", [])

    class Full(io.FileIO):
        def write(self, _: object) -> int:
            raise OSError(28, "No space left on device")

    def opened(path: Path, _: str) -> io.BufferedRandom:
        return io.BufferedRandom(Full(path, "r+"))

    # What a buffer holds is written again when the file is closed, and fails again.
    monkeypatch.setattr("foldless.io.journal.open", opened, raising=False)
    first: list[OSError] = []

    def write(act: Callable[[Journal], None]) -> None:
        with journal(path, HEADER) as found:
            try:
                act(found)
            except OSError as error:
                first.append(error)

    for act in (lambda found: found.append([b"record"]), lambda found: found.note(GOING)):
        with pytest.raises(OSError, match="No space left") as caught:
            write(act)
        assert caught.value.filename == str(path)
        assert first.pop().filename == str(path)


def test_the_disk_is_waited_for_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, synced = [0.0], []
    monkeypatch.setattr("foldless.io.journal.time.monotonic", lambda: now[0])
    with left_behind(tmp_path / "journal") as found:
        monkeypatch.setattr("foldless.io.journal.os.fsync", synced.append)
        for now[0], n in ((0.5, 0), (0.9, 0), (1.0, 1), (1.9, 1), (2.5, 2), (3.4, 2), (3.5, 3)):
            found.append([b"record"])
            assert len(synced) == n


def test_where_there_are_no_locks_journals_work_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def none(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", none)
    assert written(tmp_path / "journal", RECORDS).exists()
