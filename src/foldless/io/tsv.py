r"""Tables of results: tab-separated text that spreadsheets open without running what a name contains.

A spreadsheet takes a cell that begins with = + - or @ for a formula, quoted or not. Names that begin so, or
with an apostrophe, get one apostrophe in front; `read_tsv` takes it away again, so that names come back as
they were. Numbers are numbers, with their minus signs. Fields that contain tabs, quotes or line ends are
quoted as in CSV.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foldless.io.files import write_whole

GUARD = "'"
FORMULA_STARTS = "=+-@"
# Names of others may hold half a character (a lone surrogate); it is written, and read again, as it is.
ENCODING, ERRORS = "utf-8", "surrogatepass"


def guarded(name: str) -> str:
    """A name as a cell that no spreadsheet takes for a formula."""
    # Spreadsheets look past spaces, and some read full-width signs like ordinary ones.
    start = unicodedata.normalize("NFKC", name.lstrip()[:1])
    risky = start[:1] in (*FORMULA_STARTS, GUARD) if start else False
    return GUARD + name if risky or name[:1] in ("\t", "\r", "\n", "\0") else name


def unguarded(cell: str) -> str:
    return cell[1:] if cell.startswith(GUARD) else cell


def write_tsv(path: Path, columns: Sequence[tuple[str, Iterable[Any]]], *, delimiter: str = "\t") -> None:
    """Write columns (name, values): texts are guarded, numbers are written with all their digits."""
    lines = [delimiter.join(_cell(name, delimiter) for name, _ in columns)]
    rows = zip(*(values for _, values in columns), strict=True)
    lines += [delimiter.join(_cell(value, delimiter) for value in row) for row in rows]
    write_whole(path, ("\n".join(lines) + "\n").encode(ENCODING, ERRORS))


def read_tsv(path: Path, *, delimiter: str = "\t") -> tuple[list[str], list[list[str]]]:
    """Header and rows as they were given to `write_tsv`, numbers as text."""
    text = path.read_bytes().decode(ENCODING, ERRORS)
    # A name may be longer than the csv module expects of a field.
    limit = csv.field_size_limit(max(len(text), 1))
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    finally:
        csv.field_size_limit(limit)
    header, *body = [[unguarded(cell) for cell in row] for row in rows]
    return header, body


def _cell(value: Any, delimiter: str) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if value is None:
        return ""
    if not isinstance(value, str):
        return str(value)  # of NumPy's numbers, the shortest text that is read as the same number
    cell = guarded(value)
    # An empty line is no row to a reader, so the empty name is quoted as well.
    if not cell or any(sign in cell for sign in ("\r", "\n", '"', delimiter)):
        return '"' + cell.replace('"', '""') + '"'
    return cell
