"""The container of model files: what is in it comes back, and what it should not be is refused by name."""

from __future__ import annotations

import hashlib
import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from foldless.io import archive
from foldless.io.archive import (
    CHECKSUM,
    DEEPEST,
    FORMAT,
    METADATA,
    NO_CHECKSUM,
    Archive,
    BadModelFile,
    read_archive,
    write_archive,
)

DOCUMENT = {"class": "a", "names": ["α", "b"], "rate": 0.1, "none": None}
ARRAYS = {"coef": np.arange(6.0).reshape(2, 3), "kept": np.array([True, False])}


def written(tmp_path, document=None, arrays=ARRAYS, **metadata):
    path = tmp_path / "m.safetensors"
    write_archive(
        path, Archive({"class": "a", **metadata}, DOCUMENT if document is None else document, arrays)
    )
    return path


def sealed(path, header, tensors):
    """A file that anybody could write, with the right checksum."""
    text = json.dumps({**header, CHECKSUM: NO_CHECKSUM}) if isinstance(header, dict) else header
    content = save(tensors, metadata={METADATA: text})
    path.write_bytes(content.replace(NO_CHECKSUM.encode(), hashlib.sha256(content).hexdigest().encode(), 1))
    return path


def as_tensor(text: str | bytes):
    return np.frombuffer(text if isinstance(text, bytes) else text.encode(), dtype=np.uint8)


def test_what_is_written_is_read_from_the_file_or_its_folder(tmp_path):
    path = written(tmp_path, foldless="1.0")
    (tmp_path / archive.MODEL).write_bytes(path.read_bytes())
    for where in (path, tmp_path):
        found = read_archive(where)
        assert found.metadata == {"format": FORMAT, "class": "a", "foldless": "1.0"}
        assert found.document == DOCUMENT
        assert {name: array.tolist() for name, array in found.arrays.items()} == {
            name: array.tolist() for name, array in ARRAYS.items()
        }
    assert read_archive(path, with_arrays=False).arrays == {}
    assert read_archive(path, with_arrays=False).document == DOCUMENT


def test_a_document_may_hold_what_stands_for_a_checksum(tmp_path):
    document = {"names": [NO_CHECKSUM, CHECKSUM, f'{CHECKSUM}": "{NO_CHECKSUM}']}
    assert read_archive(written(tmp_path, document)).document == document


def test_the_same_model_is_the_same_bytes(tmp_path):
    first = written(tmp_path).read_bytes()
    assert written(tmp_path).read_bytes() == first


@given(st.data())
def test_no_byte_can_be_changed(tmp_path_factory, data):
    path = written(tmp_path_factory.mktemp("changed"))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with pytest.raises(BadModelFile, match=r"m\.safetensors"):
        read_archive(path)


def test_models_larger_than_a_block_have_a_checksum_of_all_of_it(tmp_path):
    path = written(tmp_path, arrays={"coef": np.zeros(300_000)})
    assert read_archive(path).arrays["coef"].size == 300_000
    with open(path, "r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(b"\1")
    with pytest.raises(BadModelFile, match="has been changed"):
        read_archive(path)


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("null", "no model of foldless"),
        ("[]", "no model of foldless"),
        ("not json", "no model of foldless"),
        ("[" * 100_000, "no model of foldless"),
        ({}, "no model of foldless"),
        ({"format": 0}, "no model of foldless"),
        ({"format": True}, "no model of foldless"),
        ({"format": "1"}, "no model of foldless"),
        ({"format": FORMAT + 1, "foldless": "9.9"}, "format 2 was made by foldless 9.9"),
        ({"format": FORMAT + 1}, "of an unknown version"),
        ({"format": 1, "more": 1}, r"its header has \['more'\]"),
    ],
)
def test_headers_of_others_are_refused(header, problem, tmp_path):
    path = sealed(tmp_path / "m", header, {archive.DOCUMENT: as_tensor("{}")})
    with pytest.raises(BadModelFile, match=problem):
        read_archive(path)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    ("tensors", "problem"),
    [
        ({"coef": np.zeros(2)}, "document is missing"),
        ({archive.DOCUMENT: as_tensor("{")}, "cannot be read"),
        ({archive.DOCUMENT: as_tensor("NaN")}, "cannot be read"),
        ({archive.DOCUMENT: as_tensor(b"\xff")}, "cannot be read"),
        ({archive.DOCUMENT: as_tensor(nested(100_000))}, "cannot be read"),
        ({archive.DOCUMENT: as_tensor(nested(DEEPEST + 1))}, "nested beyond reason"),
        ({archive.DOCUMENT: np.zeros(2)}, "is not text"),
        ({archive.DOCUMENT: as_tensor("{}").reshape(1, 2)}, "is not text"),
    ],
)
def test_documents_that_are_none_are_refused(tensors, problem, tmp_path):
    path = sealed(tmp_path / "m", {"format": 1}, tensors)
    with pytest.raises(BadModelFile, match=problem):
        read_archive(path)


@pytest.mark.parametrize("document", [nested(DEEPEST), '{"a": {"b": [1, {"c": 2}]}, "d": 3}', "1"])
def test_documents_of_every_shape_are_read(document, tmp_path):
    path = sealed(tmp_path / "m", {"format": 1}, {archive.DOCUMENT: as_tensor(document)})
    assert read_archive(path).document == json.loads(document)


def test_other_files_and_missing_ones_are_told_apart(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadModelFile, match="no complete model file"):
        read_archive(tmp_path / "a.csv")
    for gone in (tmp_path / "gone", tmp_path):
        with pytest.raises(FileNotFoundError) as caught:
            read_archive(gone)
        assert str(caught.value.filename).startswith(str(gone))


def test_a_model_of_numbers_that_are_not_finite_is_not_written_half(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        written(tmp_path, document={"rate": float("nan")})
    assert list(tmp_path.iterdir()) == []
