"""Tables whose features come as one matrix, with what belongs to samples beside it or in another file."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from foldless.io.names import printable
from foldless.io.table import (
    BadTable,
    Roles,
    Table,
    assembled,
    check_present,
    class_labels,
    numbered,
    readable_as,
)

MISSING_TEXTS = ("", "nan", "NaN", "None", "<NA>")
# What separates columns of a file of labels.
DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t"}


def table_of(
    path: Path,
    X: Any,
    roles: Roles,
    *,
    feature_names: Sequence[str] | None = None,
    sample_names: Sequence[str] | None = None,
    target: NDArray[Any] | None = None,
    target_name: str | None = None,
    groups: NDArray[Any] | None = None,
    covariates: Sequence[tuple[str, NDArray[Any]]] = (),
    words: dict[str, NDArray[Any]] | None = None,
    average: bool = False,
) -> Table:
    """Check and assemble; `covariates` are columns that the file keeps beside its matrix."""
    n_samples, n_features = X.shape
    if n_samples == 0 or n_features == 0:
        raise BadTable(path, f"the matrix is empty: {n_samples} x {n_features}.", "Is the file complete?")
    if X.dtype.kind not in "biuf":
        raise BadTable(
            path, f"the matrix holds {X.dtype}, not numbers.", "Save it as floating-point numbers."
        )
    if sp.issparse(X):
        X = X.tocsr() if X.format not in ("csr", "csc") else X
        try:
            # Indices beyond the matrix would be read from memory that is not ours.
            X.check_format(full_check=True)
        except ValueError as error:
            raise BadTable(
                path, f"the sparse matrix is damaged ({error}).", "Write the file again."
            ) from None
    names = numbered(n_features) if feature_names is None else list(feature_names)
    if covariates:
        X, names = _with_columns(X, names, covariates)
    check_present(path, roles.ignore, names, "feature", "--ignore")
    if roles.ignore:
        kept = [j for j, name in enumerate(names) if name not in set(roles.ignore)]
        X, names = X[:, kept], [names[j] for j in kept]
    if X.dtype.kind in "biu" or X.dtype.itemsize > 8 or X.dtype == np.float16:
        X = X.astype(np.float32 if X.dtype.itemsize <= 2 else np.float64)
    if sp.issparse(X):
        X = X.tocsr()
        X.sum_duplicates()
    target = None if target is None else as_labels(path, target, str(target_name))
    groups = None if groups is None else as_texts(path, groups, str(roles.groups))
    table = assembled(
        path,
        X,
        roles,
        names,
        sample_names,
        target,
        groups,
        target_name=target_name,
        words=words,
        average=average,
    )
    return table if roles.features is None else table.aligned(roles.features)


def as_labels(path: Path, values: NDArray[Any], name: str) -> NDArray[Any]:
    """Labels of classes: whole numbers stay numbers, all else is text."""
    if values.dtype.kind == "f" and np.all(values == np.round(values)) and np.all(np.abs(values) < 2**53):
        return values.astype(np.int64)
    if values.dtype.kind in "iu":
        return values.astype(np.int64)
    return class_labels(as_texts(path, values, name))


def as_texts(path: Path, values: NDArray[Any], name: str) -> NDArray[Any]:
    """Labels or groups, of which none may be missing."""
    texts = [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values]
    missing = [i for i, text in enumerate(texts) if text.strip() in MISSING_TEXTS]
    if missing:
        problem = (
            f"sample {missing[0] + 1} has no value in {printable(name)!r} ({len(missing)} such samples)."
        )
        raise BadTable(path, problem, "Fill it in, or remove the sample.")
    return np.array(texts, dtype=object).astype(str)


def _with_columns(
    X: Any, names: list[str], columns: Sequence[tuple[str, NDArray[Any]]]
) -> tuple[Any, list[str]]:
    """Columns put in front of the matrix, in its own precision and storage."""
    front = np.column_stack([values for _, values in columns]).astype(X.dtype, copy=False)
    both = sp.hstack([sp.csr_matrix(front), X], format="csr") if sp.issparse(X) else np.hstack([front, X])
    return both, [name for name, _ in columns] + names


def read_labels(path: Path, column: str | None, n_rows: int) -> NDArray[Any]:
    """A column of a text table with a header, or a .npy with a label for each row, in the order of rows."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        values, name = _vector(path), path.name
    elif suffix in DELIMITERS:
        values, name = _column(path, column, DELIMITERS[suffix])
    else:
        raise BadTable(
            path, "the suffix does not say how labels are written.", "Use .csv, .tsv, .txt or .npy."
        )
    if values.shape != (n_rows,):
        raise BadTable(
            path,
            f"there are labels of shape {values.shape}, and {n_rows} rows.",
            "One label for each row is needed, in the same order.",
        )
    return as_labels(path, values, name)


def _vector(path: Path) -> NDArray[Any]:
    with readable_as(path, ".npy", "Write it again with numpy.save."):
        try:
            stored = np.load(path, allow_pickle=False, mmap_mode="r")
        except ValueError:
            # NumPy's own message recommends what must not be done with files of others.
            raise BadTable(
                path,
                "it holds Python objects, which are not read: they could run code. Or it is damaged.",
                "Save labels as text or numbers: numpy.save(path, numpy.array(labels, dtype=str)).",
            ) from None
        return np.array(stored)


def _column(path: Path, column: str | None, delimiter: str) -> tuple[NDArray[Any], str]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            rows = csv.reader(stream, delimiter=delimiter, strict=True)
            header = next(rows, [])
            if column is None and len(header) == 1:
                column = header[0]
            if column is None:
                raise BadTable(
                    path, f"there are {len(header)} columns.", "Name the one with labels: --target."
                )
            check_present(path, [column], header, "column", "--target")
            place = header.index(column)
            values = [row[place] for row in rows if row]
    except (csv.Error, UnicodeDecodeError, IndexError) as error:
        raise BadTable(path, f"this is no table of text ({error}).", "Each line needs a value.") from None
    return np.array(values, dtype=object), column
