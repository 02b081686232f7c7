"""How a table of text is written: encoding, delimiter, decimal sign, and what stands above its header.

All is recognised from the first lines, told in notes, and can be overruled.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, TextIO

from foldless.io.names import printable
from foldless.io.table import BadTable, Reading

DELIMITERS = {"csv": ",", "tsv": "\t", "tab": "\t", "txt": "\t"}
NAMES_OF_DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", " ": "spaces"}
# Looked at: enough to see what is usual in a table and what is not.
N_LINES, MOST_CHARACTERS = 60, 8_000_000
# Of lines that a delimiter cuts into the same number of fields, if it is one.
SHARE_OF_LINES = 0.5
# Of zeros among characters, which text has none or hardly any of.
SHARE_OF_ZEROS = 0.05
GEO_TABLE = "!series_matrix_table_begin"
BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
LATIN = "cp1252"  # Latin-1 as Windows has it
DIGITS = re.compile(r"\s*[+-]?\d+(?P<sign>[.,])\d+(?:[eE][+-]?\d+)?\s*")
THOUSANDS = re.compile(r"\s*[+-]?\d{1,3}(,\d{3})+\s*")
# Where commas are decimal signs, a point is none: 1.250 may be a thousand or one.
EXCHANGED = str.maketrans(",.", ".,")

Opened = Callable[[], AbstractContextManager[TextIO]]


@dataclass(frozen=True)
class Dialect:
    """How to cut a text into fields, and fields into names and numbers."""

    delimiter: str
    decimal: str = "."
    thousands: str | None = None  # what stands between them
    skipped: int = 0  # lines above the header
    names_rows: bool = False  # the header is one field shorter than rows: R's write.table
    trailing: bool = False  # rows end with a delimiter that the header does not have
    notes: tuple[str, ...] = ()

    def rows(self, stream: TextIO, *, strict: bool = True) -> Any:
        """Fields of each line."""
        spaces = self.delimiter == " "
        return csv.reader(stream, delimiter=self.delimiter, strict=strict, skipinitialspace=spaces)

    @property
    def plain(self) -> Callable[[str], str] | None:
        """From how numbers are written here to how Python writes them, if that is not the same."""
        if self.decimal == ",":
            return lambda text: text.translate(EXCHANGED)
        return (lambda text: text.replace(",", "")) if self.thousands else None


def encoding_of(start: bytes) -> str:
    """From the first bytes of a text; one that is none of these is left to fail in UTF-8."""
    for mark, name in BOMS.items():
        if start.startswith(mark):
            return name
    # Without a mark, every other byte of Latin letters in UTF-16 is zero.
    for name, zeros in (("utf-16-le", start[1:200:2]), ("utf-16-be", start[:200:2])):
        if len(zeros) > 3 and not any(zeros):
            return name
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return LATIN
    return "utf-8"


def dialect_of(path: Path, opened: Opened, reading: Reading, usual: str) -> Dialect:
    """What the first lines show; `usual` is the delimiter that goes with the suffix."""
    with opened() as stream:
        lines = _first_lines(stream)
    if sum(line.count("\0") for line in lines) > SHARE_OF_ZEROS * sum(map(len, lines)):
        raise BadTable(path, "this is no table of text: it holds NUL.", "Is it the right file, and complete?")
    notes = []
    if (start := next((i for i, line in enumerate(lines) if line.startswith(GEO_TABLE)), None)) is not None:
        notes.append("It is a GEO series matrix: genes in rows, samples described above the table.")
        above, usual = start + 1, "\t"
    else:
        above = 0
    delimiter = reading.delimiter or _delimiter(lines[above:], usual)
    if delimiter != usual:
        notes.append(f"Columns are separated by {NAMES_OF_DELIMITERS.get(delimiter, repr(delimiter))}.")
    rows = list(Dialect(delimiter).rows(iter(lines[above:]), strict=False))  # type: ignore[arg-type]
    titles = _titles(rows)
    if titles and not above:
        shown = printable(next((c for c in rows[0] if c.strip()), ""), longest=40)
        notes.append(f"{titles} line{'s' * (titles > 1)} above the header skipped ({shown!r}).")
    filled = [fields for fields in rows[titles:] if any(cell.strip() for cell in fields)]
    header, body = (filled[0], filled[1:]) if filled else ([], [])
    longer = bool(body) and sum(len(f) == len(header) + 1 for f in body) > len(body) / 2
    trailing = longer and not any(fields[-1].strip() for fields in body if len(fields) > len(header))
    if longer and not trailing:
        notes.append("The header is one field shorter than rows, as R writes it: the first names rows.")
    decimal = _decimal(path, body, delimiter, reading.decimal)
    if decimal == ",":
        notes.append("Decimals are written with commas.")
    thousands = "," if reading.decimal == decimal == "." and delimiter != "," else None
    names_rows = longer and not trailing
    return Dialect(delimiter, decimal, thousands, above + titles, names_rows, trailing, tuple(notes))


def _first_lines(stream: TextIO) -> list[str]:
    """Some lines; of a GEO series matrix those above its table as well."""
    lines: list[str] = []
    left, wanted = MOST_CHARACTERS, N_LINES
    while len(lines) < wanted and left > 0 and (line := stream.readline(left)):
        left -= len(line)
        lines.append(line)
        # Lines about samples come first, as many as there are.
        wanted += line.startswith("!") and len(lines) + N_LINES > wanted
    return lines


def _delimiter(lines: Sequence[str], usual: str) -> str:
    """What cuts lines into equally many fields: the usual sign if it does so as well as any other."""
    best, highest = usual, 0.0
    for sign in dict.fromkeys((usual, ",", "\t", ";", "|", " ")):
        rows = [fields for fields in Dialect(sign).rows(iter(lines), strict=False) if fields]  # type: ignore[arg-type]
        width, count = Counter(map(len, rows)).most_common(1)[0] if rows else (0, 0)
        share = count / max(len(rows), 1)
        # Spaces are in names as well: they separate columns only if nothing else does.
        if width > 1 and share > highest and not (sign == " " and highest >= SHARE_OF_LINES):
            best, highest = sign, share
    return best


def _titles(rows: Sequence[Sequence[str]]) -> int:
    """How many lines stand above the header: those with hardly a field, where others have many."""
    width = max(Counter(len(fields) for fields in rows if fields).most_common(1), default=(0, 0))[0]
    if width < 2:
        return 0
    for i, fields in enumerate(rows):
        if len(fields) >= width - 1 and sum(bool(cell.strip()) for cell in fields) > 1:
            return i
    return 0


def _decimal(path: Path, body: Sequence[Sequence[str]], delimiter: str, said: str | None) -> str:
    """As numbers show it; what is `said` counts where they show nothing, or can be read in two ways.

    A table and its sample sheet may be written in two ways, and one option is for both.
    """
    if delimiter == "," and said is None:
        return "."
    cells = [cell for fields in islice(body, N_LINES) for cell in fields[:2000]]
    found = [match["sign"] for cell in cells if (match := DIGITS.fullmatch(cell))]
    many = [cell for cell in cells if cell.count(",") > 1 and THOUSANDS.fullmatch(cell)]
    with_commas = [cell for cell in cells if "," in cell and DIGITS.fullmatch(cell)]
    if many or (with_commas and ("." in found or all(map(THOUSANDS.fullmatch, with_commas)))):
        return said or _refuse(path, (many or with_commas)[0])
    return "," if with_commas else "." if found else said or "."


def _refuse(path: Path, cell: str) -> NoReturn:
    raise BadTable(
        path,
        f"{printable(cell.strip())!r} may have a decimal comma, or commas between thousands.",
        "Say which: --decimal , or --decimal . (commas are then between thousands).",
    )
