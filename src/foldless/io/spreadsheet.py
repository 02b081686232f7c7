"""Spreadsheets: read as the text that they would be saved as, and results written as a workbook.

What is read keeps all digits of numbers. In what is written no text is a formula, a link or a number, and the
same results have the same bytes: no dates, and parts in a fixed order.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from foldless.io.extras import needs
from foldless.io.files import write_whole
from foldless.io.table import BadTable, check_present, readable_as

SPREADSHEETS = ("xlsx", "xls", "ods")
# What a sheet can hold.
MOST_ROWS, MOST_COLUMNS, MOST_CHARACTERS = 1_048_576, 16_384, 32_767
WIDEST = 60
# Text is written as it is: nothing in it is looked at.
AS_TEXT = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
UNDATED = datetime(1980, 1, 1)

Column = tuple[str, Iterable[Any]]


def text_of_spreadsheet(path: Path, sheet: str | None) -> str:
    """The sheet of that name, or the first, separated by tabs."""
    with _opened(path) as book:
        if sheet is not None:
            check_present(path, [sheet], book.sheet_names, "sheet", "--sheet")
        rows = book.get_sheet_by_name(sheet or book.sheet_names[0]).to_python()
    text = io.StringIO()
    csv.writer(text, delimiter="\t", lineterminator="\n").writerows(
        [_cell(value) for value in row] for row in rows
    )
    return text.getvalue()


def other_sheet(path: Path, sheet: str | None) -> str:
    """The first sheet of a workbook beside that of this name, or beside the first."""
    with _opened(path) as book:
        names: list[str] = book.sheet_names
    others = [name for name in names if name != (sheet or names[0])]
    if not others:
        raise BadTable(
            path, f"it has one sheet only, {names[0]!r}.", "Where is the sample sheet? --sample-sheet FILE."
        )
    return others[0]


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    with needs("python_calamine", "excel", "to read spreadsheets"):
        from python_calamine import CalamineWorkbook
    with readable_as(path, "a spreadsheet", "Save it again, or save it as CSV."):
        yield CalamineWorkbook.from_path(str(path))


def _cell(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))  # a spreadsheet has no other whole numbers
    return str(value)


def can_write_workbooks() -> None:
    """Raise, with what to install, if they cannot be written: to be asked before a long fit."""
    with needs("xlsxwriter", "excel", "to write workbooks (--xlsx)"):
        import xlsxwriter  # noqa: F401


def write_workbook(path: Path, sheets: Mapping[str, Sequence[Column]]) -> None:
    """Write sheets of columns (name, values); what has more rows than a sheet goes on in the next."""
    can_write_workbooks()
    import xlsxwriter

    content = io.BytesIO()
    book = xlsxwriter.Workbook(content, AS_TEXT | {"in_memory": True})
    book.set_properties({"created": UNDATED})
    heading = book.add_format({"bold": True, "bottom": 1, "text_wrap": True, "valign": "top"})
    wrapped = book.add_format({"text_wrap": True, "valign": "top"})
    for title, columns in _of_some_rows(sheets):
        sheet = book.add_worksheet(title)
        sheet.freeze_panes(1, 1)
        n_rows = 0
        for j, (name, values) in enumerate(columns[:MOST_COLUMNS]):
            n_rows = max(n_rows, len(values))
            sheet.write_string(0, j, _text(name), heading)
            widest = max([len(name), *(len(value) for value in values if isinstance(value, str))])
            # Long sentences are broken into lines; names and numbers stand on one.
            look = wrapped if widest > WIDEST else None
            sheet.set_column(j, j, min(max(widest, 10), WIDEST) + 2, look)
            for i, value in enumerate(values, start=1):
                _write(sheet, i, j, value)
        sheet.autofilter(0, 0, n_rows, max(len(columns[:MOST_COLUMNS]) - 1, 0))
    book.close()
    write_whole(path, content.getvalue())


def _of_some_rows(
    sheets: Mapping[str, Sequence[Column]],
) -> Iterator[tuple[str, list[tuple[str, list[Any]]]]]:
    """Sheets of no more rows than one can hold below its heading: Features, Features 2, and so on."""
    for title, columns in sheets.items():
        listed = [(name, list(values)) for name, values in columns]
        n_rows = max((len(values) for _, values in listed), default=0)
        for number, first in enumerate(range(0, max(n_rows, 1), MOST_ROWS - 1), start=1):
            part = [(name, values[first : first + MOST_ROWS - 1]) for name, values in listed]
            yield title if number == 1 else f"{title} {number}", part


def _write(sheet: Any, i: int, j: int, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool | np.bool_):
        sheet.write_string(i, j, "yes" if value else "no")
    elif isinstance(value, int | float | np.number) and np.isfinite(value):
        sheet.write_number(i, j, value)
    else:
        sheet.write_string(i, j, _text(value))


def _text(value: Any) -> str:
    """As a cell can hold it; half a character (a lone surrogate) has no place in XML."""
    return str(value).encode("utf-8", "replace").decode("utf-8")[:MOST_CHARACTERS]
