"""Parquet, by pyarrow: sizes are known before anything is read.

pyarrow has a row group in memory, compressed, while batches of it are unpacked: write files with row groups
of some 10 MB if memory is what matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldless.io.budget import check_size
from foldless.io.extras import needs
from foldless.io.names import printable
from foldless.io.rows import ReadRows, RowSource
from foldless.io.table import BadTable, Reading, Roles, Table, assembled, layout_of, readable_as, texts_of

# What pandas calls a row index without a name.
INDEX = "__index_level_0__"
REMEDY = "Copy it again, or write it again."
ROWS_AT_ONCE = 4096
# Names of columns can be long, but not that long; without limits a damaged file asks for gigabytes.
LARGEST_TEXT, LARGEST_LIST = 100_000_000, 10_000_000
# Of a label, a group or a sample. Stored once and repeated, a long text takes memory in every row.
LONGEST_VALUE = 10_000


def read_parquet(path: Path, roles: Roles, reading: Reading, *, budget: float) -> Table:
    source = ParquetRows(path, roles, budget, in_memory=True)
    n_rows, features = source.shape[0], source.column_names
    X = np.empty(source.shape, dtype=source.dtype)
    with source.opened() as read:
        for start in range(0, n_rows, ROWS_AT_ONCE):
            rows = slice(start, min(start + ROWS_AT_ONCE, n_rows))
            read(rows, X[rows].reshape(-1).view(np.uint8))
    return assembled(
        path,
        X,
        roles,
        features,
        source.row_names,
        source.labels,
        source.groups,
        named_by=source.names_column,
        words=source.words,
    )


class ParquetRows(RowSource):
    """Columns of numbers; what names rows, the target, and what is to be ignored are no features."""

    column_names: list[str]
    row_names: list[str] | None = None

    def __init__(self, path: Path, roles: Roles, budget: float = np.inf, *, in_memory: bool = False) -> None:
        """In memory values may be missing, and covariates may be words."""
        self.path, self._missing = path, in_memory
        self.words: dict[str, NDArray[Any]] = {}
        with readable_as(path, "Parquet", REMEDY), opened_parquet(path) as file:
            schema, n_rows = file.schema_arrow, int(file.metadata.num_rows)
            header = list(schema.names)
            if not header or n_rows <= 0:
                raise BadTable(
                    path, f"the table is empty: {n_rows} x {len(header)}.", "Is the file complete?"
                )
            samples = samples_position(header, roles, _is_text(schema.field(0).type))
            layout = layout_of(path, header, roles, samples=samples)
            if in_memory:
                beside = [*roles.categories, *roles.covariates]
                words = [
                    name for name in beside if name in roles.categories or _is_text(schema.field(name).type)
                ]
                self.words = {name: texts_of(_values(path, name)) for name in words}
                layout = replace(layout, features=[j for j in layout.features if header[j] not in self.words])
            self.note_matrix(
                (n_rows, len(layout.features)),
                np.result_type(*(_dtype_of(path, schema.field(j)) for j in layout.features)),
            )
            n_bytes = float(n_rows) * self._row_bytes
            check_size(path, n_bytes, budget, f"{n_rows} rows of {len(layout.features)} numbers")
            self.column_names = [header[j] for j in layout.features]
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
            # Where each row group begins.
            self._starts = np.concatenate([[0], np.cumsum(sizes)])
            # The column that names samples, be it that of the roles or one that the file has for it.
            self.names_column = None if layout.samples is None else header[layout.samples]
            self.note_samples(replace(roles, samples=self.names_column), lambda name: _values(path, name))

    @contextmanager
    def opened(self) -> Iterator[ReadRows]:
        with readable_as(self.path, "Parquet", REMEDY):
            opening = opened_parquet(self.path)
        with opening as file:
            batches: Iterator[Any] = iter(())
            position, rest = -1, None

            def read(rows: slice, space: NDArray[np.uint8]) -> NDArray[Any]:
                nonlocal batches, position, rest
                n_rows = rows.stop - rows.start
                block = self.in_space(rows, space)
                # Errors of reading are translated, not those of what happens to a block later on.
                with readable_as(self.path, "Parquet", REMEDY):
                    if rows.start != position:
                        batches, position, rest = self._batches_from(file, rows)
                    filled = 0
                    while filled < n_rows:
                        batch = self._next(batches) if rest is None else rest
                        taken = min(batch.num_rows, n_rows - filled)
                        self._unpack(batch.slice(0, taken), block[filled : filled + taken], position)
                        rest = batch.slice(taken) if taken < batch.num_rows else None
                        filled, position = filled + taken, position + taken
                return block

            yield read

    def _batches_from(self, file: Any, rows: slice) -> tuple[Iterator[Any], int, Any]:
        """Batches from the row group on that these rows begin in, and what is left of the first."""
        group = int(np.searchsorted(self._starts, rows.start, side="right")) - 1
        batches = file.iter_batches(
            batch_size=rows.stop - rows.start,
            row_groups=list(range(group, self._starts.size - 1)),
            columns=self.column_names,
            use_threads=False,
        )
        before = rows.start - int(self._starts[group])
        while before:
            batch = self._next(batches)
            if batch.num_rows > before:
                return batches, rows.start, batch.slice(before)
            before -= batch.num_rows
        return batches, rows.start, None

    def _next(self, batches: Iterator[Any]) -> Any:
        batch = next(batches, None)
        if batch is None:
            raise BadTable(self.path, "there are fewer rows than it promises.", "Copy the file again.")
        batch.validate(full=True)
        return batch

    def _unpack(self, batch: Any, block: NDArray[Any], start: int) -> None:
        for place, name in enumerate(self.column_names):
            block[:, place] = _numbers_of(self.path, batch.column(name), name, start, missing=self._missing)


def opened_parquet(path: Path, repeated: Sequence[str] = ()) -> Any:
    """The file, to be used in a `with`; texts of the columns `repeated` are in memory once each."""
    with needs("pyarrow", "parquet", "to read Parquet files"):
        import pyarrow.parquet as pq

    return pq.ParquetFile(
        path,
        thrift_string_size_limit=LARGEST_TEXT,
        thrift_container_size_limit=LARGEST_LIST,
        page_checksum_verification=True,
        read_dictionary=list(repeated),
    )


def _values(path: Path, name: str) -> NDArray[Any]:
    """A column that is no feature, whole; what is missing is empty."""
    with opened_parquet(path, [name]) as file:
        column = file.read(columns=[name]).column(name)
    for chunk in column.chunks:
        texts = chunk.dictionary if hasattr(chunk, "dictionary") else []
        longest = max((len(text.as_buffer() or b"") for text in texts if text.is_valid), default=0)
        if longest > LONGEST_VALUE:
            raise BadTable(
                path,
                f"column {printable(name)!r} has a text of {longest} bytes.",
                f"Labels, groups and names of samples may have {LONGEST_VALUE}: is it the right column?",
            )
    values = ["" if value is None else value for value in column.to_pylist()]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return np.array(values)
    return np.array(values, dtype=object)


def samples_position(header: list[str], roles: Roles, first_is_text: bool) -> int | None:
    """The column that names rows: pandas' index, or a first column of text that is for nothing else."""
    if INDEX in header:
        return header.index(INDEX)
    return 0 if first_is_text and header[0] not in roles.named else None


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _dtype_of(path: Path, field: Any) -> np.dtype[Any]:
    """float32 where that holds every value exactly, else float64."""
    import pyarrow as pa

    kind = field.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise BadTable(
            path,
            f"column {printable(field.name)!r} holds {printable(kind)}, not numbers.",
            "Say what it is for: --covariates (words are coded by themselves), --groups or --samples, or "
            "--ignore it.",
        )
    small = pa.types.is_boolean(kind) or kind.bit_width <= (32 if pa.types.is_floating(kind) else 16)
    return np.dtype(np.float32 if small else np.float64)


def _numbers_of(path: Path, column: Any, name: str, start: int, *, missing: bool) -> NDArray[Any]:
    if column.null_count and not missing:
        first = next(i for i in range(len(column)) if not column[i].is_valid)
        raise BadTable(
            path,
            f"row {start + first + 1}, column {printable(name)!r}: the value is missing "
            f"({column.null_count} such values nearby).",
            "Fill in missing values first, or leave the column out with --ignore.",
        )
    return np.asarray(column.to_numpy(zero_copy_only=False))
