"""Which source a path, or an array, is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foldless.io.rows.arrays import ArrayRows
from foldless.io.rows.base import RowSource
from foldless.io.rows.npy import NpyRows
from foldless.io.table import BadTable

SUFFIXES = (".npy",)


def row_source(where: Any, *, target: str | None = None, ignore: Sequence[str] = ()) -> RowSource:
    """The source of rows at a path, or of an array that is sliced when needed."""
    if not isinstance(where, str | os.PathLike):
        if not all(hasattr(where, name) for name in ("shape", "dtype", "__getitem__")):
            raise TypeError(f"A path or an array is needed; got a {type(where).__name__}.")
        return ArrayRows(where)
    path = Path(where)
    if not path.exists():
        raise FileNotFoundError(2, os.strerror(2), str(path))
    suffix = path.suffix.lower()
    if suffix == ".npy":
        if target is not None or ignore:
            raise BadTable(
                path,
                "a .npy file has no names of columns, so target and ignore cannot be found in it.",
                "Keep labels in a file of their own and pass them as y.",
            )
        return NpyRows(path)
    raise BadTable(
        path,
        "rows of this kind of file cannot be read one block at a time.",
        f"Known are {', '.join(SUFFIXES)}. Convert it, or read it whole.",
    )
