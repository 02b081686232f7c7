"""A sample sheet: what belongs to samples, in a table of its own, found by their names."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from foldless.io.names import printable
from foldless.io.table import BadTable, check_present, listed

GEO_SAMPLE = "!Sample_"


@dataclass(frozen=True, eq=False)
class SampleSheet:
    """Columns of texts, a row for each sample."""

    path: Path
    columns: dict[str, list[str]]
    plain: Callable[[str], str] | None = None  # from how it writes numbers to how Python does

    def known(self, names: Iterable[str], id: str | None) -> set[str]:
        """Those of these that are names of samples, in the column that has most of them."""
        wanted = {name.strip() for name in names}
        columns = [self.columns.get(id, [])] if id else self.columns.values()
        return max((wanted & {name.strip() for name in column} for column in columns), key=len)

    def rows_of(self, names: Sequence[str], id: str | None) -> tuple[str, list[int | None]]:
        """The column with the names of samples, and where each of them is."""
        if id is not None:
            check_present(self.path, [id], self.columns, "column", "--id")
        column = id or max(self.columns, key=lambda each: len(self.known(names, each)))
        where = {name.strip(): i for i, name in reversed(list(enumerate(self.columns[column])))}
        found = [where.get(name.strip()) for name in names]
        if all(place is None for place in found):
            raise BadTable(
                self.path,
                f"no sample of the table is in column {printable(column)!r}: the table has "
                f"{listed(names[:3])}, the sheet {listed(self.columns[column][:3])}.",
                "Name the column with the names of samples: --id COLUMN. They must be spelt alike.",
            )
        return column, found


def sheet_of_series_matrix(path: Path, stream: TextIO) -> SampleSheet | None:
    """What a GEO series matrix has above its table: a column for each line, and for each characteristic."""
    columns: dict[str, list[str]] = {}
    for fields in csv.reader(stream, delimiter="\t"):
        if fields and not fields[0].startswith("!"):
            break
        if not fields or not fields[0].startswith(GEO_SAMPLE):
            continue
        name, values = fields[0].removeprefix(GEO_SAMPLE), fields[1:]
        keys = {value.partition(": ")[0] for value in values if value}
        if name.startswith("characteristics") and len(keys) == 1 and all(": " in v for v in values if v):
            # "tissue: tumor" for each sample
            name, values = keys.pop(), [value.partition(": ")[2] for value in values]
        while name in columns:
            name += "'"
        columns[name] = values
    return SampleSheet(path, columns) if columns else None
