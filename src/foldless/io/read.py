"""Reading a table, whatever the format: the suffix of the file says which."""

from __future__ import annotations

import os
from pathlib import Path

from foldless.io.budget import default_budget
from foldless.io.table import BadTable, Roles, Table

TEXT = ("csv", "tsv", "tab", "txt")
SUFFIXES = (*TEXT, *(f"{suffix}.gz" for suffix in TEXT), "parquet", "h5ad", "svmlight", "libsvm", "npz")


def read_table(
    path: Path,
    roles: Roles | None = None,
    *,
    delimiter: str | None = None,
    budget: float | None = None,
) -> Table:
    """Read a table of samples in rows.

    Parameters
    ----------
    path : the file; .csv, .tsv, .txt (also .gz), .parquet, .h5ad, .svmlight or .libsvm (also .gz), .npz
    roles : which column is the target, which are covariates, and so on
    delimiter : of text, if the suffix does not say it
    budget : bytes that the table may take; most of the free memory by default
    """
    roles = Roles() if roles is None else roles
    budget = default_budget() if budget is None else budget
    if not path.exists():
        raise FileNotFoundError(2, os.strerror(2), str(path))
    if path.is_dir():
        raise BadTable(path, "this is a folder.", "Name a file in it.")
    name = path.name.lower()
    stem = name.removesuffix(".gz").rpartition(".")[2]
    compressed = name.endswith(".gz")
    if delimiter is not None and stem not in TEXT:
        stem = "txt" if stem not in ("parquet", "h5ad", "svmlight", "libsvm", "npz") else stem
    if stem in TEXT:
        from foldless.io.text import read_text

        return read_text(path, roles, budget=budget, delimiter=delimiter)
    if stem in ("svmlight", "libsvm"):
        from foldless.io.svmlight import read_svmlight

        return read_svmlight(path, roles, budget=budget)
    if not compressed:
        if stem == "parquet":
            from foldless.io.parquet import read_parquet

            return read_parquet(path, roles, budget=budget)
        if stem == "h5ad":
            from foldless.io.h5ad import read_h5ad

            return read_h5ad(path, roles, budget=budget)
        if stem == "npz":
            from foldless.io.npz import read_npz

            return read_npz(path, roles, budget=budget)
    raise BadTable(
        path,
        "the suffix does not say what kind of table this is.",
        f"Known are .{', .'.join(SUFFIXES)}. For text of another suffix, give --delimiter.",
    )
