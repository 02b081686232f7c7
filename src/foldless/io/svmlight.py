"""The text format of SVMlight and LIBSVM: a label, then index:value for what is not zero."""

from __future__ import annotations

import gzip
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from foldless.io.budget import check_size
from foldless.io.matrix import table_of
from foldless.io.names import printable
from foldless.io.table import BadTable, Reading, Roles, Table, readable_as

TARGET = "label"
GROUPS = "qid"
# Vectors of the length of a sample that a fit keeps at least.
VECTORS = 20
_NUMBER = rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_LINE = re.compile(rb"\s*" + _NUMBER + rb"(?:\s+qid:\d+)?(?:\s+\d+:" + _NUMBER + rb")*\s*(?:#.*)?")
_INDEX = re.compile(rb"(\d+):")
_ADVICE = "A line is: label index:value index:value ..., with indices that grow."


def read_svmlight(path: Path, roles: Roles, reading: Reading, *, budget: float) -> Table:
    """Read labels and a sparse matrix; features are named by their indices in the file."""
    from sklearn.datasets import load_svmlight_file

    for purpose, name, known in (("--target", roles.target, TARGET), ("--groups", roles.groups, GROUPS)):
        if name not in (None, known):
            raise BadTable(
                path,
                f"{purpose} {printable(name)}: columns of this format have no names.",
                f"The class is what every line begins with: leave --target out. Groups can be {GROUPS!r}.",
            )
    _check_compression(path)
    highest = _checked_lines(path)
    check_size(path, 8.0 * VECTORS * highest, budget, f"features up to number {highest}")
    with readable_as(path, "svmlight", _ADVICE):
        # Indices as they are in the file, be they counted from 0 or from 1: names say which is which.
        loaded = load_svmlight_file(str(path), zero_based=True, query_id=roles.groups is not None)
    X: Any = sp.csr_matrix(loaded[0])
    names = [str(j) for j in range(X.shape[1])]
    if roles.features is not None:
        X, names = _padded(path, X, roles.features)
    elif X.shape[1] > 1 and X[:, 0].nnz == 0:
        X, names = X[:, 1:], names[1:]  # counted from 1
    return table_of(
        path,
        X,
        roles,
        feature_names=names,
        target=loaded[1],
        target_name=TARGET,
        groups=loaded[2] if roles.groups is not None else None,
    )


def _padded(path: Path, X: Any, features: tuple[str, ...]) -> tuple[Any, list[str]]:
    """All columns that a model knows: what does not occur in this file is zero, not missing."""
    if not all(name.isdecimal() for name in features):
        raise BadTable(
            path,
            f"the model's features have names like {printable(features[0])!r}, and this file has numbers.",
            "Predict from a table with the names that the model was fitted to.",
        )
    highest = max(int(name) for name in features)
    if highest >= X.shape[1]:
        X = sp.csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], highest + 1))
    return X, [str(j) for j in range(X.shape[1])]


def _check_compression(path: Path) -> None:
    with open(path, "rb") as raw:
        compressed = raw.read(2) == b"\x1f\x8b"
    if compressed != (path.suffix.lower() == ".gz"):
        raise BadTable(path, "name and content disagree about compression.", "Compressed files end in .gz.")


def _checked_lines(path: Path) -> int:
    """Look at every line, so that an error can say which one, and return the highest index."""
    highest, n_samples, has_values = 0, 0, False
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with readable_as(path, "svmlight", "Copy or download it again."), opened(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip() or line.lstrip().startswith(b"#"):
                continue
            if not _LINE.fullmatch(line):
                shown = printable(line.decode("utf-8", "replace").strip(), longest=60)
                raise BadTable(path, f"line {number} is not in the format: {shown!r}.", _ADVICE)
            n_samples += 1
            # The pattern above leaves digits before a colon in indices only.
            indices = [int(index) for index in _INDEX.findall(line.partition(b"#")[0])]
            if any(after <= before for before, after in pairwise(indices)):
                raise BadTable(path, f"line {number} has indices that do not grow.", _ADVICE)
            has_values = has_values or bool(indices)
            highest = max([highest, *indices])
    if n_samples == 0 or not has_values:
        missing = "values" if n_samples else "samples"
        raise BadTable(path, f"the file holds no {missing}.", "Is it the right one, and complete?")
    if highest >= np.iinfo(np.int32).max:
        raise BadTable(path, f"an index is {highest}, beyond any table.", _ADVICE)
    return highest
