"""Spreadsheets, as the text that they would be saved as; numbers keep all their digits."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from foldless.io.extras import needs
from foldless.io.table import check_present, readable_as

SPREADSHEETS = ("xlsx", "xls", "ods")


def text_of_spreadsheet(path: Path, sheet: str | None) -> str:
    """The sheet of that name, or the first, separated by tabs."""
    with needs("python_calamine", "excel", "to read spreadsheets"):
        from python_calamine import CalamineWorkbook
    with readable_as(path, "a spreadsheet", "Save it again, or save it as CSV."):
        book = CalamineWorkbook.from_path(str(path))
        if sheet is not None:
            check_present(path, [sheet], book.sheet_names, "sheet", "--sheet")
        rows = book.get_sheet_by_name(sheet or book.sheet_names[0]).to_python()
    text = io.StringIO()
    csv.writer(text, delimiter="\t", lineterminator="\n").writerows(
        [_cell(value) for value in row] for row in rows
    )
    return text.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))  # a spreadsheet has no other whole numbers
    return str(value)
