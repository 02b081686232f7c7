"""Reading a table, whatever the format: the suffix of the file decides which."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from foldless.io.budget import default_budget
from foldless.io.spreadsheet import SPREADSHEETS
from foldless.io.table import BadTable, Reading, Roles, Table

TEXT = ("csv", "tsv", "tab", "txt")
# Modules by the suffixes that they read.
READERS = dict.fromkeys((*TEXT, *SPREADSHEETS), "text") | {
    "parquet": "parquet",
    "h5ad": "h5ad",
    "svmlight": "svmlight",
    "libsvm": "svmlight",
    "npz": "npz",
}
FORMATS = tuple(READERS)
SUFFIXES = (*TEXT, *(f"{suffix}.gz" for suffix in TEXT), *FORMATS[len(TEXT) :])
COMPRESSED_IN_THEMSELVES = ("parquet", "h5ad", "npz")


def read_table(
    path: Path, roles: Roles | None = None, reading: Reading | None = None, *, budget: float | None = None
) -> Table:
    """Read a table, samples in rows or, in text and spreadsheets, in columns.

    Parameters
    ----------
    path : the file; .csv, .tsv, .txt, .svmlight or .libsvm (also .gz), .xlsx, .parquet, .h5ad, .npz
    roles : which column is the target, which are covariates, and so on
    reading : delimiter, encoding, sample sheet, and so on, where they are not recognised
    budget : bytes that the table may take; most of the free memory by default
    """
    reading = Reading() if reading is None else reading
    path.stat()  # an error that names the file if there is none
    if path.is_dir():
        raise BadTable(path, "this is a folder.", "Name a file in it.")
    name = path.name.lower()
    kind = name.removesuffix(".gz").rpartition(".")[2]
    if reading.delimiter is not None and kind not in FORMATS:
        kind = "txt"
    reader = READERS.get(kind)
    if reader is None or (kind in COMPRESSED_IN_THEMSELVES and name.endswith(".gz")):
        raise BadTable(
            path,
            "the suffix does not say what kind of table this is.",
            f"Known are .{', .'.join(SUFFIXES)}. For text of another suffix, give --delimiter.",
        )
    if reading.sample_sheet is not None and reader != "text":
        raise BadTable(path, "a sample sheet is for text and spreadsheets.", "Do without --sample-sheet.")
    if reading.id is not None and reading.sample_sheet is None:
        raise BadTable(
            path,
            "--id names a column of a sample sheet, and there is none.",
            "Give --sample-sheet, or --samples for the column of this table that names its samples.",
        )
    read = getattr(import_module(f"foldless.io.{reader}"), f"read_{reader}")
    budget = default_budget() if budget is None else budget
    table: Table = read(path, Roles() if roles is None else roles, reading, budget=budget)
    return table.tidied() if reading.tidy_labels else table
