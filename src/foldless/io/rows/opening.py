"""Which source a path, or an array, is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from foldless.io.rows.arrays import ArrayRows
from foldless.io.rows.base import RowSource
from foldless.io.table import BadTable, Roles

SUFFIXES = (".npy", ".parquet", ".zarr", ".h5ad")


def row_source(where: Any, roles: Roles | None = None) -> RowSource:
    """The source of rows at a path, or of an array that is sliced when needed.

    Of the roles, target, groups and samples are looked for beside the matrix.
    """
    roles = Roles() if roles is None else roles
    if not isinstance(where, str | os.PathLike):
        if not all(hasattr(where, name) for name in ("shape", "dtype", "__getitem__")):
            raise TypeError(f"A path or an array is needed; got a {type(where).__name__}.")
        return ArrayRows(where)
    path = Path(where)
    if not path.exists():
        raise FileNotFoundError(2, os.strerror(2), str(path))
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        from foldless.io.rows.parquet import ParquetRows

        return ParquetRows(path, roles)
    if roles.ignore:
        raise BadTable(
            path,
            "columns can be ignored in Parquet files only, where a column can be left unread.",
            "Write the matrix again without them.",
        )
    if suffix == ".npy":
        if (roles.target, roles.groups, roles.samples) != (None, None, None):
            raise BadTable(
                path,
                "a .npy file holds a matrix and nothing beside it, so no target can be found in it.",
                "Keep labels in a file of their own: pass them as y, or see --labels.",
            )
        from foldless.io.rows.npy import NpyRows

        return NpyRows(path)
    if suffix == ".h5ad":
        from foldless.io.rows.h5ad import H5adRows

        return H5adRows(path, roles)
    # An array in a group is a folder in a folder.
    if suffix == ".zarr" or any(parent.suffix.lower() == ".zarr" for parent in path.parents):
        from foldless.io.rows.zarr import ZarrRows

        return ZarrRows(path, roles)
    raise BadTable(
        path,
        "rows of this kind of file cannot be read one block at a time.",
        f"Known are {', '.join(SUFFIXES)}. Convert it, or read it whole.",
    )
