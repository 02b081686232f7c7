"""Parquet, by pyarrow: sizes are known before anything is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldless.io.budget import check_size
from foldless.io.extras import needs
from foldless.io.matrix import as_labels, as_texts
from foldless.io.names import printable
from foldless.io.table import (
    BadTable,
    Roles,
    Table,
    check_finite,
    check_unique,
    layout_of,
    numbered,
    steps_of,
)

# What pandas calls a row index without a name.
INDEX = "__index_level_0__"
ROWS_AT_ONCE = 4096
# Names of columns can be long, but not that long; without limits a damaged file asks for gigabytes.
LARGEST_TEXT, LARGEST_LIST = 100_000_000, 10_000_000


def read_parquet(path: Path, roles: Roles, *, budget: float) -> Table:
    with told(path), opened_parquet(path) as file:
        return _read(path, file, roles, budget)


def opened_parquet(path: Path) -> Any:
    """The file, to be used in a `with`."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(
        path,
        thrift_string_size_limit=LARGEST_TEXT,
        thrift_container_size_limit=LARGEST_LIST,
        page_checksum_verification=True,
    )


def _read(path: Path, file: Any, roles: Roles, budget: float) -> Table:
    schema, n_rows = file.schema_arrow, int(file.metadata.num_rows)
    header = list(schema.names)
    if not header or n_rows <= 0:
        raise BadTable(path, f"the table is empty: {n_rows} x {len(header)}.", "Is the file complete?")
    layout = layout_of(path, header, roles, samples=samples_position(schema, roles))
    dtype = np.result_type(*(dtype_of(path, schema.field(j)) for j in layout.features))
    n_bytes = float(n_rows) * len(layout.features) * dtype.itemsize
    check_size(path, n_bytes, budget, f"{n_rows} rows of {len(layout.features)} numbers")
    X = np.empty((n_rows, len(layout.features)), dtype=dtype)
    texts: dict[int, list[Any]] = {
        j: [] for j in (layout.target, layout.groups, layout.samples) if j is not None
    }
    wanted = [header[j] for j in [*layout.features, *texts]]
    start = 0
    for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=list(dict.fromkeys(wanted))):
        batch.validate(full=True)
        stop = start + batch.num_rows
        for place, j in enumerate(layout.features):
            X[start:stop, place] = numbers_of(path, batch.column(header[j]), header[j], start)
        for j, values in texts.items():
            values.extend(batch.column(header[j]).to_pylist())
        start = stop
    if start != n_rows:
        raise BadTable(path, f"{n_rows} rows are promised and {start} are there.", "Copy the file again.")
    features = [header[j] for j in layout.features]
    check_finite(path, X, features)
    found = {
        j: np.array(["" if v is None else v for v in values], dtype=object) for j, values in texts.items()
    }
    samples = numbered(n_rows)
    if layout.samples is not None:
        samples = [str(name) for name in found[layout.samples]]
        check_unique(path, samples, "row", "Make names of samples unique, or name another column: --samples.")
    return Table(
        path,
        X,
        features,
        samples,
        target=None
        if layout.target is None
        else labels_of(path, found[layout.target], header[layout.target]),
        target_name=roles.target,
        groups=None if layout.groups is None else as_texts(path, found[layout.groups], header[layout.groups]),
        covariates=roles.covariates,
        steps=tuple(steps_of(roles, None if layout.samples is None else header[layout.samples])),
    )


def labels_of(path: Path, values: NDArray[Any], name: str) -> NDArray[Any]:
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return as_labels(path, np.array(values.tolist()), name)
    return as_labels(path, values, name)


def samples_position(schema: Any, roles: Roles) -> int | None:
    """The column that names rows: pandas' index, or a first column of text that is for nothing else."""
    if INDEX in schema.names:
        return int(schema.names.index(INDEX))
    first = schema.names[0]
    named = (roles.target, roles.groups, *roles.covariates, *roles.ignore, *(roles.features or ()))
    return 0 if first not in named and _is_text(schema.field(0).type) else None


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def dtype_of(path: Path, field: Any) -> np.dtype[Any]:
    """float32 where that holds every value exactly, else float64."""
    import pyarrow as pa

    kind = field.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise BadTable(
            path,
            f"column {printable(field.name)!r} holds {printable(kind)}, not numbers.",
            "Features must be numbers: write classes as 0 and 1, or leave the column out with --ignore.",
        )
    small = pa.types.is_boolean(kind) or kind.bit_width <= (32 if pa.types.is_floating(kind) else 16)
    return np.dtype(np.float32 if small else np.float64)


def numbers_of(path: Path, column: Any, name: str, start: int) -> NDArray[Any]:
    if column.null_count:
        first = next(i for i in range(len(column)) if not column[i].is_valid)
        raise BadTable(
            path,
            f"row {start + first + 1}, column {printable(name)!r}: the value is missing "
            f"({column.null_count} such values nearby).",
            "Fill in missing values first, or leave the column out with --ignore.",
        )
    return np.asarray(column.to_numpy(zero_copy_only=False))


@contextmanager
def told(path: Path) -> Iterator[None]:
    """What pyarrow says of a damaged file, in our words, with its name."""
    with needs("pyarrow", "parquet", "to read Parquet files"):
        import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        # pyarrow says OSError for a damaged page; a file that cannot be opened has an errno.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = printable(str(error).splitlines()[0] if str(error) else type(error).__name__, longest=200)
        raise BadTable(
            path,
            f"this is no Parquet file, or a damaged one ({reason}).",
            "Copy it again, or write it again.",
        ) from None
