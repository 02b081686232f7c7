"""Labels in a file of their own, for matrices that have nothing beside them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldless.io.matrix import as_labels
from foldless.io.table import BadTable, check_present

SIGNS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t"}


def read_labels(path: Path, column: str | None, n_rows: int) -> NDArray[Any]:
    """A column of a text table with a header, or a .npy with a label for each row, in the order of rows."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        values = np.load(path, allow_pickle=False)
        name = path.name
    elif suffix in SIGNS:
        values, name = _column(path, column, SIGNS[suffix])
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


def _column(path: Path, column: str | None, sign: str) -> tuple[NDArray[Any], str]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            rows = csv.reader(stream, delimiter=sign, strict=True)
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
