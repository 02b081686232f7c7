"""Tables of text, plain or compressed: read by pandas, and row by row where an error has to say where."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from foldless.io.budget import check_size
from foldless.io.dialect import DELIMITERS, LATIN, Dialect, Opened, dialect_of, encoding_of
from foldless.io.layout import Columns, table_of_columns, turned
from foldless.io.names import printable
from foldless.io.sheet import SampleSheet, sheet_of_series_matrix
from foldless.io.spreadsheet import SPREADSHEETS, other_sheet, text_of_spreadsheet
from foldless.io.table import BadTable, Reading, Roles, Table, texts_of

# Spellings of what is not there.
MISSING = {"", "na", "n/a", "nan", "null", "none", "?", ".", "-", "#n/a"}
NA_VALUES = sorted({spelt for text in MISSING for spelt in (text, text.upper(), text.title(), "NaN")})
# Numbers that are read at a time.
CHUNK = 4_000_000
# What other kinds of files begin with, and what to do about them.
OTHER_KINDS = {
    b"PK\x03\x04": "It is a spreadsheet or a zip file: give it the suffix .xlsx, or save it as CSV.",
    b"\xd0\xcf\x11\xe0": "It is an old spreadsheet: give it the suffix .xls, or save it as CSV.",
    b"PAR1": "It is a Parquet file: give it the suffix .parquet.",
    b"\x89HDF": "It is an HDF5 file: give it the suffix .h5ad if it holds AnnData.",
    b"\x93NUMPY": "It is a NumPy array: save it with numpy.savez, as .npz.",
}


def read_text(path: Path, roles: Roles, reading: Reading, *, budget: float) -> Table:
    """Read a table with a header; columns that are not named for something else must hold numbers."""
    with _told(path):
        text = _text_of(path, reading, budget)
        sheet = None if reading.sample_sheet is None else read_sheet(reading.sample_sheet, path, reading)
        if sheet is None and text.dialect.skipped:
            with text.opened() as stream:
                sheet = sheet_of_series_matrix(path, stream)
        columns = text.columns(roles, reading, sheet)
        return table_of_columns(path, columns, roles, reading, sheet, text.dialect.notes)


def read_sheet(path: Path, table: Path, reading: Reading) -> SampleSheet:
    """A sample sheet, all of it as texts; of the table's own workbook, a sheet beside that of the table.

    It is written in its own way, which need not be the table's.
    """
    with _told(path):
        other = None
        if _kind(path) in SPREADSHEETS and path.resolve() == table.resolve():
            other = other_sheet(path, reading.sheet)
        text = _text_of(path, Reading(sheet=other, decimal=reading.decimal), np.inf)
        frame = text.frame(range(len(text.header)))
        columns = {name: texts_of(frame[j]).tolist() for j, name in enumerate(text.header)}
        return SampleSheet(path, columns, text.dialect.plain)


def _kind(path: Path) -> str:
    return path.name.lower().removesuffix(".gz").rpartition(".")[2]


def _text_of(path: Path, reading: Reading, budget: float) -> _Text:
    kind = _kind(path)
    opened: Opened
    notes: tuple[str, ...] = ()
    if kind in SPREADSHEETS:
        content = text_of_spreadsheet(path, reading.sheet)
        opened = partial(io.StringIO, content)
    else:
        encoding = reading.encoding or _encoding(path)
        opened = partial(_opened, path, encoding)
        notes = () if encoding.startswith("utf-8") else (f"The text is in {_spoken(encoding)}.",)
    dialect = dialect_of(path, opened, reading, DELIMITERS.get(kind, "\t"))
    return _Text(path, opened, replace(dialect, notes=(*notes, *dialect.notes)), budget)


class _Text:
    """The rows below a header."""

    def __init__(self, path: Path, opened: Opened, dialect: Dialect, budget: float) -> None:
        self.path, self.opened, self.dialect, self.budget = path, opened, dialect, budget
        with opened() as stream:
            self.header = _header(path, dialect, stream)

    def columns(self, roles: Roles, reading: Reading, sheet: SampleSheet | None) -> Columns:
        """All columns, samples in rows."""
        if self._is_turned(roles, reading, sheet):
            known = None if sheet is None else sheet.known(self.header, reading.id)
            as_text = partial(self.frame, range(len(self.header)))
            return turned(Columns(self.header, self.frame([0]), self.dialect.plain), as_text, known)
        # Texts stay as they are written, also those that look like numbers.
        named = {roles.target, roles.groups, roles.samples, *roles.categories}
        texts = [j for j, name in enumerate(self.header) if name in named]
        if sheet is not None or not self.header[0].strip():
            texts.append(0)
        return Columns(self.header, self.frame(texts), self.dialect.plain, self.find_fault)

    def _is_turned(self, roles: Roles, reading: Reading, sheet: SampleSheet | None) -> bool:
        """Genes in rows and samples in columns is how much of biology keeps its tables."""
        if reading.transpose is not None:
            return reading.transpose
        if sheet is not None:
            across, down = (sheet.known(names, reading.id) for names in (self.header, self._first_column()))
            return len(across) > len(down)
        known = {roles.target, *(roles.features or ())} - {None}
        return bool(known) and known.isdisjoint(self.header) and not known.isdisjoint(self._first_column())

    def _first_column(self) -> list[str]:
        return [str(name) for name in self.frame([0], only=[0])[0]]

    def frame(self, texts: Sequence[int] | range, only: list[int] | None = None) -> Any:
        """A data frame by positions; columns in `texts` as texts, others as numbers if all are."""
        import pandas as pd

        width = len(self.header) + self.dialect.trailing
        found, n_rows = [], 0
        if only is None and self._is_suspicious():
            self.find_fault([])
        with self.opened() as stream:
            self._skip_header(stream)
            try:
                chunks = pd.read_csv(
                    stream,
                    sep=self.dialect.delimiter,
                    skipinitialspace=self.dialect.delimiter == " ",
                    header=None,
                    usecols=only,
                    index_col=False,
                    dtype=dict.fromkeys(texts, str),
                    keep_default_na=False,
                    na_values=NA_VALUES,
                    decimal=self.dialect.decimal,
                    thousands=self.dialect.thousands,
                    float_precision="round_trip",
                    low_memory=False,
                    chunksize=max(CHUNK // width, 1),
                )
                for chunk in chunks:
                    n_rows += len(chunk)
                    check_size(self.path, 8.0 * n_rows * width, self.budget, f"the first {n_rows} rows")
                    found.append(chunk)
            except pd.errors.EmptyDataError:
                pass
            except (pd.errors.ParserError, OverflowError) as error:
                self.find_fault([], str(error))
        if not n_rows:
            raise BadTable(self.path, "there is a header and nothing below it.", "Is the file complete?")
        frame = pd.concat(found, ignore_index=True) if len(found) > 1 else found[0]
        if only is None:
            frame = self._checked(frame, width)
        return frame

    def _is_suspicious(self) -> bool:
        """Whether there is NUL, or a quote within a field: pandas would read "4"5 as 45."""
        sign = re.escape(self.dialect.delimiter)
        within = re.compile(rf'[^{sign}\r\n"]"[^{sign}\r\n"]')
        before = ""
        with self.opened() as stream:
            while piece := stream.read(CHUNK):
                if "\0" in piece or ('"' in piece and within.search(before + piece)):
                    return True
                before = piece[-2:]
        return False

    def _checked(self, frame: Any, width: int) -> Any:
        """Without what a table ends in, and with no row cut short."""
        if str(frame.iloc[-1, 0]).startswith("!series_matrix_table_end"):
            frame = frame.iloc[:-1].infer_objects()
        if frame.shape[1] != width or (frame[width - 1].isna().any() and not self.dialect.trailing):
            self.find_fault([])
        return frame.iloc[:, : len(self.header)]

    def _skip_header(self, stream: TextIO) -> Any:
        for _ in range(self.dialect.skipped):
            stream.readline()
        rows = self.dialect.rows(stream)
        next((fields for fields in rows if any(fields)), None)
        return rows

    def find_fault(self, numbers: Sequence[int], otherwise: str = "") -> None:
        """Raise an error that names the first line that is no row, or lacks a number in these columns."""
        with self.opened() as stream:
            rows = self._skip_header(stream)
            width = len(self.header)
            while True:
                try:
                    fields = next(rows, None)
                except csv.Error as error:
                    if "expected after" not in str(error):
                        raise
                    raise BadTable(
                        self.path,
                        f"line {self.dialect.skipped + rows.line_num}: there is text after a closing quote.",
                        'Put the whole field in quotes, and double the quotes inside: "a ""b"" c".',
                    ) from None
                if fields is None:
                    break
                line = self.dialect.skipped + rows.line_num
                if any("\0" in field for field in fields):
                    problem = f"line {line} holds NUL, which is no text."
                    raise BadTable(self.path, problem, "Is the file complete? Write it again.")
                if not fields or fields[0].startswith("!series_matrix_table_end"):
                    continue
                if len(fields) not in (width, width + self.dialect.trailing):
                    what = "more" if len(fields) > width else "fewer"
                    raise BadTable(
                        self.path,
                        f"line {line} has {len(fields)} fields, {what} than the {width} of the header.",
                        "The file may be cut off there, or a name contains the delimiter: put it in quotes.",
                    )
                for j in numbers:
                    self._check_number(fields[j], line, j)
        if otherwise:
            raise BadTable(
                self.path,
                f"not a table that can be read: {printable(otherwise, longest=200)}.",
                "Is the file complete, and quoted as it should be?",
            )

    def _check_number(self, field: str, line: int, j: int) -> None:
        text = field.strip()
        text = self.dialect.plain(text) if self.dialect.plain else text
        if text.lower() not in MISSING and not _is_number(text):
            where = f"line {line}, column {printable(self.header[j])!r}"
            raise BadTable(self.path, f"{where}: {printable(field)!r} is not a number.", _cure(text))


def _header(path: Path, dialect: Dialect, stream: TextIO) -> list[str]:
    for _ in range(dialect.skipped):
        stream.readline()
    header: list[str] | None = next((f for f in dialect.rows(stream) if any(f)), None)
    if header is None:
        raise BadTable(path, "the file is empty.", "Is it the right one, and complete?")
    header = ["", *header] if dialect.names_rows else header
    if len(header) == 1:
        raise BadTable(
            path, "there is one column only.", "A label and a feature at least are needed. See --delimiter."
        )
    if all(_is_number(name) for name in header):
        raise BadTable(
            path,
            "the first line holds numbers only, where the names of columns should be.",
            "Put a line with names above it.",
        )
    return header


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text))) and "_" not in text
    except ValueError:
        return False


def _cure(text: str) -> str:
    if _is_number(text.replace(",", ".")):
        return "Write decimals alike: with a point everywhere, or with a comma everywhere."
    if _is_number(text.rstrip("%")):
        return "Write numbers without units and signs."
    return "Features must be numbers: correct it, or leave the column out with --ignore."


def _encoding(path: Path) -> str:
    """From the first bytes; those of a whole file if they tell nothing (all are ASCII)."""
    with _bytes(path) as binary:
        found = encoding_of(binary.peek(1 << 16)[: 1 << 16] if hasattr(binary, "peek") else b"")
    if found != "utf-8":
        return found
    try:
        with _opened(path, found) as stream:
            while stream.read(1 << 22):
                pass
    except UnicodeDecodeError:
        return LATIN
    return found


def _spoken(encoding: str) -> str:
    return {LATIN: "Latin-1 (Windows)"}.get(encoding, encoding.upper())


@contextmanager
def _bytes(path: Path) -> Iterator[Any]:
    """The content of a file, unpacked if it is compressed, and text as far as can be seen."""
    with open(path, "rb") as raw:
        start = raw.peek(8)[:8]
        compressed = start.startswith(b"\x1f\x8b")
        if path.suffix.lower() == ".gz" and start and not compressed:
            raise BadTable(
                path,
                "the name says compressed, the content is not.",
                "Remove .gz from the name, or compress it.",
            )
        binary: Any = gzip.GzipFile(fileobj=raw) if compressed else raw
        start = binary.peek(8)
        for magic, advice in OTHER_KINDS.items():
            if start.startswith(magic):
                raise BadTable(path, "this is no table of text.", advice)
        yield binary


@contextmanager
def _opened(path: Path, encoding: str) -> Iterator[TextIO]:
    with _bytes(path) as binary:
        # newline="" leaves line ends inside quotes to the csv module.
        known = "utf-8-sig" if encoding == "utf-8" else encoding
        yield io.TextIOWrapper(binary, encoding=known, newline="")


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the libraries below complain of, in our words."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise BadTable(
            path,
            f"this is not {_spoken(error.encoding)} text ({error.reason}).",
            "Name its encoding: --encoding latin-1, for instance; or save it as UTF-8.",
        ) from None
    except LookupError as error:
        if isinstance(error, KeyError | IndexError):
            raise
        raise BadTable(path, f"{error}.", "Known are utf-8, utf-16, latin-1 and Python's others.") from None
    except csv.Error as error:
        problem = "a quote is opened and not closed" if "unexpected end" in str(error) else str(error)
        raise BadTable(
            path,
            f"not a table that can be read: {problem}.",
            "Is the file complete, and quoted as it should be?",
        ) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadTable(
            path, f"the compressed file is damaged or cut off ({error}).", "Copy or download it again."
        ) from None
