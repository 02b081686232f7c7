"""NumPy's .npz: a matrix X (or a sparse one in SciPy's four arrays), labels y, names.

Pickles inside are refused unread: they could run anything.
"""

from __future__ import annotations

import zipfile
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from foldless.io.budget import check_size, check_width
from foldless.io.matrix import table_of
from foldless.io.table import BadTable, Reading, Roles, Table, check_present, listed, readable_as

SPARSE = {"data", "indices", "indptr", "shape"}
DEFAULT_TARGET = "y"
FEATURE_NAMES, SAMPLE_NAMES = "feature_names", "sample_names"
REMEDY = "Write it again with numpy.savez."


def read_npz(path: Path, roles: Roles, reading: Reading, *, budget: float) -> Table:
    """Read X, or data, indices, indptr and shape; --target, --groups and --samples name other arrays."""
    shapes = _checked_shapes(path, budget)
    wanted = [name for name in (roles.target, roles.groups, roles.samples) if name is not None]
    check_present(path, wanted, shapes, "array", "--target, --groups or --samples")
    # Arrays of these names are taken for what they are called, unless others are named.
    target = roles.target or (DEFAULT_TARGET if DEFAULT_TARGET in shapes else None)
    samples = roles.samples or (SAMPLE_NAMES if SAMPLE_NAMES in shapes else None)
    purposes = {"target": target, "groups": roles.groups, "samples": samples}
    with readable_as(path, ".npz", REMEDY), np.load(path, allow_pickle=False) as stored:
        X = _matrix(path, stored, shapes, {*wanted, target})
        n_samples, n_features = X.shape
        check_width(path, n_features, budget)
        one = {
            purpose: _vector(
                path, stored[name], n_samples, f"the array {name!r}, named as {purpose},", "rows"
            )
            for purpose, name in purposes.items()
            if name is not None
        }
        if FEATURE_NAMES in shapes:
            names = stored[FEATURE_NAMES]
            one["features"] = _vector(path, names, n_features, repr(FEATURE_NAMES), "columns")
    return table_of(
        path,
        X,
        roles,
        feature_names=[str(name) for name in one["features"]] if "features" in one else None,
        sample_names=[str(name) for name in one["samples"]] if "samples" in one else None,
        target=one.get("target"),
        target_name=target,
        groups=one.get("groups"),
        average=reading.average,
    )


def _checked_shapes(path: Path, budget: float) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shapes and types of all arrays from their headers, none larger than it can be."""
    found = {}
    total = 0
    with readable_as(path, ".npz", REMEDY), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as stream:
                shape, _, dtype = array_header(stream)
                size = member.file_size - stream.tell()
            claimed = prod(int(n) for n in shape) * dtype.itemsize
            if dtype.hasobject:
                raise BadTable(
                    path,
                    f"the array {name!r} holds Python objects, which are not read: they could run code.",
                    "Save names as text: numpy.array(names, dtype=str).",
                )
            if claimed != size or min(shape, default=0) < 0:
                raise BadTable(path, f"the array {name!r} claims {claimed} bytes and has {size}.", REMEDY)
            total += claimed
            found[name] = (tuple(shape), dtype)
    check_size(path, total, budget, f"{len(found)} arrays")
    return found


def array_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether it is stored by columns, and dtype of an array in NumPy's format."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(stream)


def _matrix(path: Path, stored: Any, shapes: dict[str, Any], taken: set[str | None]) -> Any:
    if shapes.keys() >= SPARSE:
        parts = [np.asarray(stored[name]) for name in ("data", "indices", "indptr")]
        kind = stored["format"].item() if "format" in shapes else b"csr"
        build = {b"csr": sp.csr_matrix, b"csc": sp.csc_matrix}.get(
            kind.encode() if isinstance(kind, str) else kind
        )
        if build is None:
            raise BadTable(
                path, f"the sparse format is {kind!r}.", "Save a CSR matrix: scipy.sparse.save_npz."
            )
        # Its indices are checked before anything follows them (`table_of`).
        return build(tuple(parts), shape=tuple(int(n) for n in stored["shape"]))
    tables = [name for name, (shape, dtype) in shapes.items() if len(shape) == 2 and dtype.kind in "biuf"]
    name = "X" if "X" in tables else tables[0] if len(tables) == 1 else None
    if name is None or name in taken:
        raise BadTable(
            path,
            f"there is no matrix of numbers called 'X'; there are {listed(sorted(shapes))}.",
            "Save the features as X, samples in rows, or a sparse matrix by scipy.sparse.save_npz.",
        )
    return stored[name]


def _vector(path: Path, vector: NDArray[Any], length: int, what: str, lines: str) -> NDArray[Any]:
    if vector.shape != (length,):
        needed = "value for each sample" if lines == "rows" else "name for each column"
        problem = f"{what} has shape {vector.shape}; X has {length} {lines}."
        raise BadTable(path, problem, f"One {needed} is needed.")
    return vector
