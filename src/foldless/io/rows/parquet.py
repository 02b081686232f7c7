"""Parquet, by batches of its row groups; the column of labels is read apart.

pyarrow has a row group in memory, compressed, while batches of it are unpacked: write files with row groups
of some 10 MB if memory is what matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldless.io.matrix import as_texts
from foldless.io.parquet import dtype_of, labels_of, numbers_of, opened_parquet, samples_position, told
from foldless.io.rows.base import ReadRows, RowSource, file_identity
from foldless.io.table import BadTable, Roles, layout_of


class ParquetRows(RowSource):
    """Columns of numbers; what names rows, the target, and what is to be ignored are no features."""

    def __init__(self, path: Path, roles: Roles) -> None:
        self.path = path
        with told(path), opened_parquet(path) as file:
            schema = file.schema_arrow
            header = list(schema.names)
            n_rows = int(file.metadata.num_rows)
            if not header or n_rows <= 0:
                raise BadTable(
                    path, f"the table is empty: {n_rows} x {len(header)}.", "Is the file complete?"
                )
            layout = layout_of(path, header, roles, samples=samples_position(schema, roles))
            self.dtype = np.result_type(*(dtype_of(path, schema.field(j)) for j in layout.features))
            self.shape = (n_rows, len(layout.features))
            self.column_names = [header[j] for j in layout.features]
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
            # Where each row group begins.
            self._starts = np.concatenate([[0], np.cumsum(sizes)])
            if roles.target is not None:
                self.labels = labels_of(path, _values(file, roles.target), roles.target)
            if roles.groups is not None:
                self.groups = as_texts(path, _values(file, roles.groups), roles.groups)
            if layout.samples is not None:
                self.row_names = [str(name) for name in _values(file, header[layout.samples])]

    @contextmanager
    def opened(self) -> Iterator[ReadRows]:
        with told(self.path):
            opening = opened_parquet(self.path)
        with opening as file:
            batches: Iterator[Any] = iter(())
            position, rest = -1, None

            def read(rows: slice, space: NDArray[np.uint8]) -> NDArray[Any]:
                nonlocal batches, position, rest
                n_rows = rows.stop - rows.start
                block = self.in_space(rows, space)
                # Only what reading says is translated, not what happens to a block later on.
                with told(self.path):
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

    def identity(self) -> str:
        return file_identity(self.path)

    def _batches_from(self, file: Any, rows: slice) -> tuple[Iterator[Any], int, Any]:
        """Batches from the row group on that these rows begin in, and what is left of the first."""
        group = int(np.searchsorted(self._starts, rows.start, side="right")) - 1
        batches = file.iter_batches(
            batch_size=rows.stop - rows.start,
            row_groups=list(range(group, self._starts.size - 1)),
            columns=list(self.column_names or ()),
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
        for place, name in enumerate(self.column_names or ()):
            block[:, place] = numbers_of(self.path, batch.column(name), name, start)


def _values(file: Any, name: str) -> NDArray[Any]:
    """A column that is no feature, whole; what is missing is empty."""
    values = file.read(columns=[name]).column(name).to_pylist()
    return np.array(["" if value is None else value for value in values], dtype=object)
