"""A Parquet table read by a Dask cluster: features stay on its workers, what belongs to samples comes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldless.io.extras import needs
from foldless.io.matrix import as_labels, as_texts
from foldless.io.names import printable
from foldless.io.parquet import samples_position
from foldless.io.table import BadTable, Roles, Table, assembled, layout_of, readable_as
from foldless.operators import ClusterLost, operator_from

# A scheduler that is there answers within a second, over slow networks too.
CONNECT_SECONDS = 15.0


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """The client of a cluster, current while inside."""
    with needs("distributed", "dask", "to fit on a Dask cluster"):
        import distributed
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterLost(
            f"no Dask scheduler answers at {address} ({printable(error, longest=200)}). Start one with "
            "`dask scheduler` and workers with `dask worker`; --dask takes the address that it prints, "
            "tcp://host:port."
        ) from error
    try:
        yield client
    finally:
        client.close(timeout=CONNECT_SECONDS)


def read_on_workers(path: Path, roles: Roles) -> Table:
    """Labels, groups and names of samples, and an operator over the rest, on the current cluster.

    Workers read the file themselves, so that it must be where they can see it under the same path.
    """
    if not path.name.lower().endswith(".parquet"):
        raise BadTable(path, "a Dask cluster reads Parquet.", "Convert the table, or do without --dask.")
    with (
        needs("dask", "dask", "to fit on a Dask cluster"),
        needs("pyarrow", "parquet", "to read Parquet files"),
    ):
        import dask.dataframe as dd
    path.stat()  # an error that names the file if there is none
    with readable_as(path, "Parquet", "Write it again."):
        frame = dd.read_parquet(str(path.resolve()), index=False)
        header, dtypes = [str(name) for name in frame.columns], list(frame.dtypes)
    is_text = bool(header) and getattr(dtypes[0], "kind", "O") == "O"
    layout = layout_of(path, header, roles, samples=samples_position(header, roles, is_text))
    for j in layout.features:
        if getattr(dtypes[j], "kind", "O") not in "fiub":
            raise BadTable(
                path,
                f"column {printable(header[j])!r} holds {printable(dtypes[j])}, not numbers.",
                "Features must be numbers: write classes as 0 and 1, or leave the column out with --ignore.",
            )
    features = [header[j] for j in layout.features]
    beside = [header[j] for j in (layout.target, layout.groups, layout.samples) if j is not None]
    values = {name: _values(column) for name, column in frame[beside].compute().items()}
    operator = operator_from(frame[features])
    named_by = None if layout.samples is None else header[layout.samples]
    names = None if named_by is None else [str(name) for name in values[named_by]]
    target = None if roles.target is None else as_labels(path, values[roles.target], roles.target)
    groups = None if roles.groups is None else as_texts(path, values[roles.groups], roles.groups)
    steps = ["Rows were read by the workers of a Dask cluster."]
    table = assembled(path, operator, roles, features, names, target, groups, named_by=named_by, steps=steps)
    table.labels()  # what is wrong with them is said before the fit
    return table


def _values(column: Any) -> NDArray[Any]:
    """A column of a frame as it would be read from the file: numbers, or texts, "" where missing."""
    if getattr(column.dtype, "kind", "O") in "fiu" and isinstance(column.dtype, np.dtype):
        return np.asarray(column.to_numpy())
    values = column.to_numpy(dtype=object)
    return np.where(column.isna(), "", values)
