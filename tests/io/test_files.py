"""Files that are replaced whole or not at all, and checksums of arrays."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from foldless.io import files
from foldless.io.files import checksum, remove_unfinished, replacing, write_whole

ARRAYS = arrays_of.arrays(
    st.sampled_from([np.float32, np.float64, np.int8]), arrays_of.array_shapes(max_dims=2, max_side=4)
)


@given(ARRAYS, st.data())
def test_a_checksum_changes_with_content_shape_type_and_order(array, data):
    before = checksum([array, None])
    assert before == checksum([np.asfortranarray(array), None])  # the same numbers, laid out differently
    assert before == checksum([None], checksum([array]))
    flat = array.copy().reshape(-1)
    flat.view(np.uint8)[data.draw(st.integers(0, flat.nbytes - 1))] ^= 1
    other_type = array.view({1: np.uint8, 4: np.int32, 8: np.int64}[array.itemsize])
    others = [
        [flat.reshape(array.shape), None],
        [array[None], None],
        [other_type, None],
        [None, array],
        [array],
        [array, None, None],
        [array, array[:0]],
    ]
    assert before not in [checksum(each) for each in others]


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "model.safetensors"
    write_whole(path, b"old")

    def write() -> None:
        with replacing(path) as unfinished:
            unfinished.write_bytes(b"half")
            assert unfinished.parent == path.parent
            assert unfinished.suffix == path.suffix  # some writers choose a format by it
            assert path.read_bytes() == b"old"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"old"


def test_an_error_of_the_disk_names_the_file_and_other_errors_stay_as_they_are(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"

    def fails(_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "fsync", fails)
        with pytest.raises(OSError, match="Input/output error") as caught:
            write_whole(path, b"new")
    assert caught.value.filename == str(path)
    with pytest.raises(FileNotFoundError) as caught:
        write_whole(tmp_path / "gone" / "model", b"new")
    assert caught.value.filename == str(tmp_path / "gone" / "model")

    def write(error: OSError) -> None:
        with replacing(path):
            raise error

    for error in (OSError("of no system"), OSError(2, "No such file of others", "another")):
        with pytest.raises(OSError, match=r"of no system|of others") as caught:
            write(error)
        assert caught.value is error


def test_what_is_being_written_can_be_cleared_away_from_elsewhere(tmp_path):
    names = []

    def write() -> None:
        with replacing(tmp_path / "report.html") as unfinished:
            names.append(unfinished)
            unfinished.write_bytes(b"half")
            remove_unfinished()
            assert not unfinished.exists()

    with pytest.raises(FileNotFoundError):
        write()
    (unfinished,) = names
    # What is done with is left alone.
    unfinished.write_bytes(b"of somebody else")
    remove_unfinished()
    assert unfinished.exists()


def test_a_link_laid_in_place_of_an_unfinished_file_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(files.secrets, "token_hex", lambda n: "0" * 2 * n)
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / ".a-00000000.tsv").symlink_to(tmp_path / "precious")
    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "a.tsv", b"new")
    assert (tmp_path / "precious").read_bytes() == b"precious"


@pytest.mark.parametrize("n_refusals", [1, files.ATTEMPTS - 1])
def test_a_file_that_is_scanned_is_replaced_as_soon_as_it_is_let_go(tmp_path, monkeypatch, n_refusals):
    path, left, waits = tmp_path / "a.tsv", [n_refusals], []
    path.write_bytes(b"old")
    replace = os.replace

    def refuse(*names):
        left[0] -= 1
        if left[0] >= 0:
            raise PermissionError(13, "in use")
        replace(*names)

    monkeypatch.setattr(files.os, "replace", refuse)
    monkeypatch.setattr(files.time, "sleep", waits.append)
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert len(waits) == n_refusals


def test_a_folder_that_nobody_may_write_to_is_not_waited_for(tmp_path, monkeypatch):
    def refuse(*names):
        raise PermissionError(13, "not yours")

    monkeypatch.setattr(files.os, "replace", refuse)
    monkeypatch.setattr(files.time, "sleep", lambda _: pytest.fail("waits"))
    (tmp_path / "folder").mkdir()
    for name in ("new", "folder"):
        with pytest.raises(PermissionError, match="not yours"):
            write_whole(tmp_path / name, b"")
