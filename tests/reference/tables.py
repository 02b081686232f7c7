"""Small tables that tell two classes apart, written in every format that is read."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

N_SAMPLES, N_FEATURES = 40, 12


@dataclass(frozen=True, eq=False)
class Small:
    """Samples of classes "well" and "ill"; the first two features matter, many values are zero."""

    X: Any
    labels: list[str]
    features: list[str]
    samples: list[str]
    donors: list[str]
    ages: list[float]


def small(seed: int = 0) -> Small:
    rng = np.random.default_rng(seed)
    labels = ["ill" if i % 2 else "well" for i in range(N_SAMPLES)]
    X = np.round(rng.standard_normal((N_SAMPLES, N_FEATURES)), 3)
    X[rng.random(X.shape) < 0.3] = 0.0
    X[1::2, :2] += 2.5
    return Small(
        X,
        labels,
        [f"gene {j}" for j in range(N_FEATURES)],
        [f"sample {i}" for i in range(N_SAMPLES)],
        [f"donor {i // 4}" for i in range(N_SAMPLES)],
        [float(20 + i) for i in range(N_SAMPLES)],
    )


def text_of(table: Small, delimiter: str = ",") -> str:
    stream = io.StringIO()
    rows = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    rows.writerow(["id", "state", "donor", "age", *table.features])
    for i, row in enumerate(table.X):
        rows.writerow(
            [
                table.samples[i],
                table.labels[i],
                table.donors[i],
                table.ages[i],
                *(repr(float(v)) for v in row),
            ]
        )
    return stream.getvalue()


def write_csv(path: Path, table: Small) -> None:
    path.write_text(text_of(table), encoding="utf-8")


def write_tsv_gz(path: Path, table: Small) -> None:
    path.write_bytes(gzip.compress(text_of(table, "\t").encode()))


def write_parquet(path: Path, table: Small) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"id": table.samples, "state": table.labels, "donor": table.donors, "age": table.ages}
    columns |= {name: table.X[:, j] for j, name in enumerate(table.features)}
    pq.write_table(pa.table(columns), path)


def anndata_of(table: Small) -> Any:
    import anndata
    import pandas as pd

    obs = pd.DataFrame({"state": table.labels, "donor": table.donors, "age": table.ages}, index=table.samples)
    return anndata.AnnData(sp.csr_matrix(table.X), obs=obs, var=pd.DataFrame(index=table.features))


def write_h5ad(path: Path, table: Small) -> None:
    anndata_of(table).write_h5ad(path)


def write_svmlight(path: Path, table: Small) -> None:
    lines = []
    for label, row in zip(table.labels, table.X, strict=True):
        values = " ".join(f"{j + 1}:{float(v)!r}" for j, v in enumerate(row) if v)
        lines.append(f"{1 if label == 'ill' else -1} {values}\n")
    path.write_text("".join(lines), encoding="ascii")


def write_npz(path: Path, table: Small) -> None:
    np.savez(
        path,
        X=table.X,
        state=np.array(table.labels),
        donor=np.array(table.donors),
        feature_names=np.array(table.features),
        sample_names=np.array(table.samples),
    )


WRITERS: dict[str, Callable[[Path, Small], None]] = {
    "table.csv": write_csv,
    "table.tsv.gz": write_tsv_gz,
    "table.parquet": write_parquet,
    "table.h5ad": write_h5ad,
    "table.svmlight": write_svmlight,
    "table.npz": write_npz,
}
NEEDS = {"table.parquet": "pyarrow", "table.h5ad": "anndata"}
# Options under which each is fitted: svmlight has no names, .npz no columns beside its matrix.
OPTIONS: dict[str, list[str]] = {
    "table.csv": ["--target", "state", "--groups", "donor", "--covariates", "age"],
    "table.tsv.gz": ["--target", "state", "--ignore", "donor", "--covariates", "age"],
    "table.parquet": ["--target", "state", "--ignore", "donor", "--covariates", "age"],
    "table.h5ad": ["--target", "state", "--groups", "donor", "--covariates", "age"],
    "table.svmlight": [],
    "table.npz": ["--target", "state", "--groups", "donor"],
}
