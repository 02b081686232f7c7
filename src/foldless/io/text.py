"""Tables of text: CSV and TSV, plain or compressed, read row by row so that an error can say where."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, NoReturn, TextIO

import numpy as np

from foldless.io.budget import check_size
from foldless.io.names import printable
from foldless.io.table import BadTable, Layout, Roles, Table, assembled, check_unique, class_labels, layout_of

DELIMITERS = {"csv": ",", "tsv": "\t", "tab": "\t", "txt": "\t"}
NAMES_OF_DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", " ": "spaces"}
MISSING = {"", "na", "n/a", "nan", "null", "none", "?", ".", "-", "#n/a", "inf", "-inf", "+inf"}
# What other kinds of files begin with, and what to do about them.
OTHER_KINDS = {
    b"PK\x03\x04": "It is a spreadsheet or a zip file: save it as CSV.",
    b"\xd0\xcf\x11\xe0": "It is an old spreadsheet: save it as CSV.",
    b"PAR1": "It is a Parquet file: give it the suffix .parquet.",
    b"\x89HDF": "It is an HDF5 file: give it the suffix .h5ad if it holds AnnData.",
    b"\x93NUMPY": "It is a NumPy array: save it with numpy.savez, as .npz.",
    b"\xff\xfe": "It is UTF-16 text: save it as UTF-8.",
    b"\xfe\xff": "It is UTF-16 text: save it as UTF-8.",
}


def read_text(path: Path, roles: Roles, *, budget: float, delimiter: str | None = None) -> Table:
    """Read a table with a header; columns that are not named for something else must hold numbers."""
    delimiter = delimiter or DELIMITERS[path.name.lower().removesuffix(".gz").rpartition(".")[2]]
    with _told(path), _opened(path) as stream:
        rows = csv.reader(stream, delimiter=delimiter, strict=True)
        header = _header(path, rows, delimiter)
        return _Body(path, header, roles, rows, budget, delimiter).table()


class _Body:
    """The rows below a header, and what has been read of them."""

    def __init__(
        self, path: Path, header: list[str], roles: Roles, rows: Any, budget: float, delimiter: str
    ) -> None:
        self.path, self.header, self.roles, self.rows = path, header, roles, rows
        self.budget, self.delimiter = budget, delimiter
        self.numbers = array("d")
        self.targets: list[str] = []
        self.groups: list[str] = []
        self.samples: list[str] = []
        self.lines: list[int] = []  # of each row

    def table(self) -> Table:
        first = next(self._rows(), None)
        if first is None:
            raise BadTable(self.path, "there is a header and nothing below it.", "Is the file complete?")
        names = 0 if self._first_column_names_samples(first) else None
        if self.roles.target is not None and self.roles.target not in self.header:
            self._check_not_turned(first)
        layout = layout_of(self.path, self.header, self.roles, samples=names)
        features_of = _picker(layout.features)
        self._take(first, layout, features_of)
        for fields in self._rows():
            self._take(fields, layout, features_of)
        if layout.samples is not None:
            self._check_sample_names(layout.samples)
        n_rows = len(self.lines)
        X = np.frombuffer(self.numbers, dtype=np.float64).reshape(n_rows, len(layout.features))
        return assembled(
            self.path,
            X,
            self.roles,
            [self.header[j] for j in layout.features],
            self.samples or None,
            class_labels(self.targets) if layout.target is not None else None,
            np.array(self.groups) if layout.groups is not None else None,
            named_by=None if layout.samples is None else self.header[layout.samples],
        )

    def _rows(self) -> Iterator[list[str]]:
        """Rows that are not empty, each of the header's width."""
        for fields in self.rows:
            if not fields:
                continue
            if len(fields) != len(self.header):
                what = "more" if len(fields) > len(self.header) else "fewer"
                raise BadTable(
                    self.path,
                    f"line {self.rows.line_num} has {len(fields)} fields, {what} than the "
                    f"{len(self.header)} of the header.",
                    "The file may be cut off there, or a name contains "
                    f"{NAMES_OF_DELIMITERS.get(self.delimiter, 'the delimiter')}: put it in quotes.",
                )
            yield fields

    def _take(self, fields: list[str], layout: Layout, features_of: Callable[[Any], Sequence[str]]) -> None:
        chosen = features_of(fields)
        try:
            row = np.fromiter(map(float, chosen), np.float64, len(chosen))
        except ValueError:
            self._complain(fields, layout)
        # float() reads 1_000 as a Python program would.
        if "_" in "".join(chosen) or not np.isfinite(row).all():
            self._complain(fields, layout)
        self.numbers.frombytes(row.tobytes())
        self.lines.append(self.rows.line_num)
        check_size(self.path, 8.0 * len(self.numbers), self.budget, f"the first {len(self.lines)} rows")
        for position, values, purpose in (
            (layout.target, self.targets, "label"),
            (layout.groups, self.groups, "group"),
            (layout.samples, self.samples, ""),
        ):
            if position is None:
                continue
            value = fields[position]
            if purpose and value.strip().lower() in MISSING:
                raise BadTable(
                    self.path,
                    f"line {self.rows.line_num} has no {purpose} in column "
                    f"{printable(self.header[position])!r} (it says {printable(value)!r}).",
                    "Fill it in, or remove the row.",
                )
            values.append(value)  # to the letter

    def _complain(self, fields: list[str], layout: Layout) -> NoReturn:
        """Say which field is no finite number."""
        for j in layout.features:
            text = fields[j].strip()
            where = f"line {self.rows.line_num}, column {printable(self.header[j])!r}"
            if text.lower() in MISSING:
                raise BadTable(
                    self.path,
                    f"{where}: the value is missing ({printable(fields[j])!r}).",
                    "Fill in missing values first, or leave the column out with --ignore.",
                )
            if not _is_number(text):
                raise BadTable(self.path, f"{where}: {printable(fields[j])!r} is not a number.", _cure(text))
        raise AssertionError("a field that is no number was promised")

    def _first_column_names_samples(self, first: list[str]) -> bool:
        """Columns without a header name rows, as R and pandas write them; so does a first column of text."""
        name, roles = self.header[0], self.roles
        if name in roles.named or roles.samples is not None:
            return False
        text = first[0].strip()
        return not name.strip() or not (_is_number(text) or text.lower() in MISSING)

    def _check_sample_names(self, position: int) -> None:
        seen: dict[str, int] = {}
        for name, line in zip(self.samples, self.lines, strict=True):
            if name in seen:
                column = printable(self.header[position])
                raise BadTable(
                    self.path,
                    f"lines {seen[name]} and {line} have the same name {printable(name)!r} in column "
                    f"{column!r}, which is taken for the names of samples.",
                    f"Make names unique, or, if they are none, leave the column out: --ignore {column}; or "
                    "write its text as numbers.",
                )
            seen[name] = line

    def _check_not_turned(self, first: list[str]) -> None:
        """Genes in rows and samples in columns is how much of biology keeps its tables."""
        names = {first[0]} | {fields[0] for fields in self._rows()}
        if self.roles.target in names:
            raise BadTable(
                self.path,
                f"{printable(self.roles.target)!r} is the name of a row, not of a column.",
                "The table is turned on its side: samples must be in rows. Transpose it.",
            )


def _header(path: Path, rows: Any, delimiter: str) -> list[str]:
    header: list[str] | None = next((fields for fields in rows if fields), None)
    if header is None:
        raise BadTable(path, "the file is empty.", "Is it the right one, and complete?")
    if len(header) == 1:
        others = [d for d in (",", "\t", ";", "|") if d != delimiter and d in header[0]]
        if others:
            shown = {"\t": r"$'\t'"}.get(others[0], f"'{others[0]}'")
            raise BadTable(
                path,
                f"there is one column only, if columns are separated by "
                f"{NAMES_OF_DELIMITERS.get(delimiter, repr(delimiter))}; the header seems to use "
                f"{NAMES_OF_DELIMITERS[others[0]]}.",
                f"Say so: --delimiter {shown}.",
            )
        raise BadTable(
            path, "there is one column only.", "A label and a feature at least are needed. See --delimiter."
        )
    check_unique(path, header, "column", "Rename one of them: names say which feature is meant.")
    if all(_is_number(name) for name in header):
        raise BadTable(
            path,
            "the first line holds numbers only, where the names of columns should be.",
            "Put a line with names above it.",
        )
    return header


def _picker(positions: list[int]) -> Callable[[Any], Sequence[str]]:
    """Fields at these positions, as a sequence."""
    if len(positions) == 1:
        only = positions[0]
        return lambda fields: (fields[only],)
    if positions == list(range(positions[0], positions[-1] + 1)):
        return itemgetter(slice(positions[0], positions[-1] + 1))
    return itemgetter(*positions)


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text))) and "_" not in text
    except ValueError:
        return False


def _cure(text: str) -> str:
    if _is_number(text.replace(",", ".")):
        return "Write decimals with a point, not a comma."
    if _is_number(text.rstrip("%")):
        return "Write numbers without units and signs."
    return "Features must be numbers: correct it, or leave the column out with --ignore."


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
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
        # newline="" leaves line ends inside quotes to the csv module.
        yield io.TextIOWrapper(binary, encoding="utf-8-sig", newline="")


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the libraries below complain of, in our words."""
    try:
        yield
    except UnicodeDecodeError:
        raise BadTable(
            path,
            f"line {_first_undecodable_line(path)} is not UTF-8 text.",
            "Save it as UTF-8; if it is Latin-1: iconv -f latin1 -t utf-8 FILE > NEW.",
        ) from None
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


def _first_undecodable_line(path: Path) -> int:
    with open(path, "rb") as raw:
        binary: Any = gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == b"\x1f\x8b" else raw
        for number, line in enumerate(binary, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return number
