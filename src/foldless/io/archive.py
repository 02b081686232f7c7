"""The container of model files: a document of plain values and the arrays it refers to, nothing that runs.

The format is safetensors: a length, a JSON header with the place of each array, and the arrays' bytes.
There is nothing to decompress and nothing to execute, sizes cannot exceed the file's, and other languages
read it. (A zip of .npy would do without a dependency, but its checks against bombs and tampered headers would
be ours to write and to keep.) The document is one of the arrays, its UTF-8 bytes, because headers are limited
and names of features are not. The header has the checksum of all bytes of the file but its own.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldless.io.files import write_whole
from foldless.io.names import printable

# The format that is written. It is raised when the same document would mean something else; files of earlier
# formats are read by `estimators._saving.CHANGES`. The policy is docs/model-files.md.
FORMAT = 1
# As `foldless fit` calls it.
MODEL = "model.safetensors"
DOCUMENT = "document"
METADATA = "foldless"
CHECKSUM = "sha256"
NO_CHECKSUM = "0" * hashlib.sha256().digest_size * 2  # in its place while it is computed
# JSON nests as deep as components do, a handful of levels; hostile files nest to exhaust the stack.
DEEPEST = 60


class BadModelFile(ValueError):
    """A file that is no model of foldless, or not any more: what is wrong, and what to do."""

    def __init__(self, path: Path, problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {problem} {remedy}")


@dataclass(frozen=True, eq=False)
class Archive:
    """What a model file holds."""

    metadata: dict[str, Any]
    document: Any
    arrays: dict[str, NDArray[Any]]


def write_archive(path: Path, archive: Archive) -> None:
    from safetensors.numpy import save

    text = json.dumps(archive.document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    document = np.frombuffer(text.encode("ascii"), dtype=np.uint8)
    # In one text, since several would be stored in no order, and the same model would give other bytes.
    metadata = json.dumps({"format": FORMAT, **archive.metadata, CHECKSUM: NO_CHECKSUM})
    content = save({DOCUMENT: document, **archive.arrays}, metadata={METADATA: metadata})
    digest = hashlib.sha256(content).hexdigest()
    write_whole(path, content.replace(NO_CHECKSUM.encode(), digest.encode(), 1))


def read_archive(path: Path, *, with_arrays: bool = True) -> Archive:
    """Read and check everything that can be checked without knowing what the document means.

    Of a folder of results, its model.
    """
    from safetensors import SafetensorError, safe_open

    path = path / MODEL if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(2, os.strerror(2), str(path))
    damaged = "Copy it again, or fit and save the model again."
    try:
        with safe_open(path, framework="numpy") as stored:
            metadata = _checked_metadata(path, stored.metadata() or {})
            # A file without one is refused, too: a change of the header can move the checksum out of it.
            if metadata.pop(CHECKSUM, None) != _checksum(path):
                raise BadModelFile(path, "it has been changed since it was saved.", damaged)
            names = set(stored.keys())
            if DOCUMENT not in names:
                raise BadModelFile(path, "the model's document is missing.", damaged)
            text = np.asarray(stored.get_tensor(DOCUMENT))
            wanted = sorted(names - {DOCUMENT}) if with_arrays else []
            arrays = {name: np.asarray(stored.get_tensor(name)) for name in wanted}
    except SafetensorError as error:
        raise BadModelFile(path, f"this is no complete model file ({error}).", damaged) from None
    except (TypeError, KeyError, AttributeError, OverflowError) as error:  # types that NumPy does not have
        raise BadModelFile(path, f"an array cannot be read ({error}).", damaged) from None
    if text.dtype != np.uint8 or text.ndim != 1:
        raise BadModelFile(path, "the model's document is not text.", damaged)
    try:
        document = json.loads(text.tobytes(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadModelFile(path, f"the model's document cannot be read ({error}).", damaged) from None
    if _depth(document) > DEEPEST:
        raise BadModelFile(path, "the model's document is nested beyond reason.", damaged)
    return Archive(metadata, document, arrays)


def _checked_metadata(path: Path, stored: dict[str, str]) -> dict[str, Any]:
    try:
        metadata = json.loads(stored.get(METADATA, "null"))
    except (ValueError, RecursionError):
        metadata = None
    number = metadata.get("format") if isinstance(metadata, dict) else None
    if type(number) is not int or number < 1:
        remedy = "Such files are made by model.save or `foldless fit`."
        raise BadModelFile(path, "this is no model of foldless.", remedy)
    if number > FORMAT:
        version = printable(metadata.get("foldless", "of an unknown version"))
        raise BadModelFile(
            path,
            f"its format {number} was made by foldless {version}; this one reads formats up to {FORMAT}.",
            "Install that version, or a newer one.",
        )
    if unknown := sorted(metadata.keys() - {"format", "foldless", "class", CHECKSUM}):
        raise BadModelFile(
            path, f"its header has {printable(str(unknown))}.", "It is damaged: copy it again."
        )
    return metadata


def _checksum(path: Path) -> str:
    """Of all bytes, with zeros for the first checksum in the header."""
    with path.open("rb") as file:
        length = file.read(8)
        header = file.read(int.from_bytes(length, "little"))
        place = header.find(CHECKSUM.encode()) + len(f'{CHECKSUM}\\": \\"')
        zeros = NO_CHECKSUM.encode()
        digest = hashlib.sha256(length + header[:place] + zeros + header[place + len(zeros) :])
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _depth(document: Any) -> int:
    """Levels of nesting, without recursion."""
    depth, level = 0, [document]
    while level:
        depth += 1
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
    return depth


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
