"""Thirty ways and more in which a file of each format can be wrong.

Each ends with exit code 3 and one line that names the file and says what to do; nothing is written.
"""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from foldless.cli import app
from reference.tables import NEEDS, WRITERS, Small, anndata_of, small, text_of

# What an error may advise; every message has one of these, or names an option.
REMEDIES = (
    "--", "give", "write", "copy", "download", "get it again", "rename", "is it", "is the", "fill", "save",
    "name", "remove", "make", "put", "transpose", "a line is", "compressed files", "one value", "are needed",
)  # fmt: skip

Case = tuple[str, bytes]


def tables_of_text(delimiter: str) -> Iterator[Case]:
    """A good table, with one thing wrong."""
    good = text_of(small(), delimiter)
    lines = good.splitlines()
    first = lines[1].split(delimiter)
    body = list(enumerate(lines[1:]))

    def with_field(row: int, column: int, value: str) -> str:
        changed = [line.split(delimiter) for line in lines]
        changed[row][column] = value
        return "\n".join(delimiter.join(fields) for fields in changed) + "\n"

    def without_column(column: int) -> str:
        kept = [line.split(delimiter) for line in lines]
        return "\n".join(delimiter.join(f[:column] + f[column + 1 :]) for f in kept) + "\n"

    texts = {
        "cut off in a row": good[: len(good) // 2].rstrip("\n") + delimiter * 0,
        "cut off in the header": lines[0][: len(lines[0]) // 2] + "\n",
        "header only": lines[0] + "\n",
        "blank": "\n\n\n",
        "no delimiter": "\n".join("x" for _ in range(5)),
        "duplicate target": good.replace("gene 3", "state", 1),
        "no header": "\n".join(delimiter.join(["1.5"] * 6) for _ in range(5)),
        "target missing": good.replace("state", "status", 1),
        "groups missing": without_column(2),
        "label empty": with_field(5, 1, ""),
        "label not available": with_field(5, 1, "NA"),
        "group empty": with_field(6, 2, " "),
        "one class": good.replace("well", "ill"),
        "labels all different": "\n".join(
            [lines[0], *(line.replace("ill", f"c{i}").replace("well", f"w{i}") for i, line in body)]
        ),
        "text among numbers": with_field(7, 8, "high"),
        "text in a covariate": with_field(7, 3, "old"),
        "missing value": with_field(8, 9, ""),
        "NA": with_field(8, 9, "NA"),
        "NaN": with_field(8, 9, "nan"),
        "infinite": with_field(8, 9, "inf"),
        "too large for a number": with_field(8, 9, "1e999"),
        "Python's underscore": with_field(8, 9, "1_000"),
        "hexadecimal": with_field(8, 9, "0x10"),
        "unit": with_field(8, 9, "3 mg"),
        "per cent": with_field(8, 9, "3%"),
        "row too long": good.replace(lines[4], lines[4] + delimiter + "1"),
        "row too short": good.replace(lines[4], delimiter.join(lines[4].split(delimiter)[:-1])),
        "quote not closed": good.replace(lines[4], '"' + lines[4]),
        "text after a quote": with_field(8, 9, '"4"5'),
        "text after a quote in a name": with_field(8, 0, '"pat"ient'),
        "NUL in a number": with_field(8, 9, "4\0"),
        "NUL in a name": with_field(8, 0, "pat\0ient"),
        "web page": "<!DOCTYPE html>\n<html><body>Sign in to download</body></html>\n",
        "field beyond all measure": "\n".join([lines[0], delimiter.join(["x" * 200_000, *first[1:]])]),
    }  # fmt: skip
    if delimiter != ",":
        texts["decimal comma"] = with_field(8, 9, "1,5")
    for name, text in texts.items():
        yield name, text.encode()
    yield "empty", b""
    yield "half a character", good.encode() + b"\xe2\x82"
    yield "spreadsheet", b"PK\x03\x04" + good.encode()
    yield "old spreadsheet", b"\xd0\xcf\x11\xe0" + good.encode()
    yield "Parquet by name of text", b"PAR1" + good.encode()
    yield "HDF5 by name of text", b"\x89HDF\r\n\x1a\n" + good.encode()
    yield "random bytes", np.random.default_rng(0).bytes(3000)


def csv_cases() -> Iterator[Case]:
    yield from tables_of_text(",")


def tsv_gz_cases() -> Iterator[Case]:
    for name, content in tables_of_text("\t"):
        yield name, gzip.compress(content)
    good = gzip.compress(text_of(small(), "\t").encode())
    yield "compressed file cut off", good[: len(good) // 2]
    yield "compressed file without its end", good[:-6]
    yield "wrong checksum", good[:-8] + b"\0\0\0\0" + good[-4:]
    yield "damaged inside", good[:60] + bytes(b ^ 0x55 for b in good[60:90]) + good[90:]
    yield "not compressed", text_of(small(), "\t").encode()
    yield "bomb", gzip.compress(b"id\tstate\tdonor\tage\tx\n" + b"0" * 50_000_000)


def arrow(**changes: Any) -> bytes:
    """A good Parquet file with columns changed, added or (None) removed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = small()
    columns: dict[str, Any] = {
        "id": table.samples,
        "state": table.labels,
        "donor": table.donors,
        "age": table.ages,
    }
    columns |= {name: table.X[:, j] for j, name in enumerate(table.features)}
    columns |= {name.replace("_", " "): values for name, values in changes.items()}
    made = pa.table({name: values for name, values in columns.items() if values is not None})
    stream = io.BytesIO()
    pq.write_table(made, stream)
    return stream.getvalue()


def parquet_cases() -> Iterator[Case]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = small()
    values = table.X[:, 3].tolist()
    n = len(values)
    good = arrow()

    def but(i: int, value: Any) -> list[Any]:
        return [*values[:i], value, *values[i + 1 :]]

    yield "target missing", arrow(state=None)
    yield "groups missing", arrow(donor=None)
    yield "covariate missing", arrow(age=None)
    yield "missing value", arrow(gene_3=but(5, None))
    yield "NaN", arrow(gene_3=but(5, float("nan")))
    yield "infinite", arrow(gene_3=but(5, float("inf")))
    yield "text", arrow(gene_3=[str(v) for v in values])
    yield "text for one value", arrow(gene_3=but(5, 0.0), gene_4=["high"] * n)
    yield "lists", arrow(gene_3=[[v] for v in values])
    yield "records", arrow(gene_3=[{"a": v} for v in values])
    yield "dates", arrow(gene_3=pa.array(range(n), pa.date32()))
    yield "bytes", arrow(gene_3=[b"x"] * n)
    yield "decimals", arrow(gene_3=pa.array(range(n), pa.decimal128(5, 2)))
    yield "nothing but nulls", arrow(gene_3=pa.nulls(n))
    yield "nulls of a number", arrow(gene_3=pa.nulls(n, pa.float64()))
    yield "label missing", arrow(state=[None, *table.labels[1:]])
    yield "label empty", arrow(state=["", *table.labels[1:]])
    yield "group missing", arrow(donor=[None, *table.donors[1:]])
    yield "covariate as text", arrow(age=["old"] * n)
    yield "one class", arrow(state=["ill"] * n)
    yield "labels all different", arrow(state=[f"c{i}" for i in range(n)])
    yield "labels measured", arrow(state=[float(i) + 0.5 for i in range(n)])
    yield "column without a name", arrow(**{"": values})
    no_rows, no_columns, twice = io.BytesIO(), io.BytesIO(), io.BytesIO()
    pq.write_table(pa.table({"state": pa.array([], pa.string()), "x": pa.array([], pa.float64())}), no_rows)
    yield "no rows", no_rows.getvalue()
    pq.write_table(pa.table({}), no_columns)
    yield "no columns", no_columns.getvalue()
    columns = [
        pa.array(table.labels),
        pa.array(table.donors),
        pa.array(table.ages),
        pa.array(values),
        pa.array(values),
    ]
    pq.write_table(pa.Table.from_arrays(columns, ["state", "donor", "age", "x", "x"]), twice)
    yield "duplicate column", twice.getvalue()
    yield "empty", b""
    yield "magic only", b"PAR1PAR1"
    yield "cut off", good[: len(good) // 2]
    yield "without its end", good[:-4]
    yield "without its beginning", good[100:]
    yield "footer of zeros", good[:-200] + bytes(192) + good[-8:]
    yield "footer beyond the file", good[:-8] + struct.pack("<I", 2**31) + b"PAR1"
    yield "text by name of Parquet", text_of(table).encode()
    yield "random bytes", np.random.default_rng(0).bytes(3000)
    yield "pages damaged", good[:4] + bytes(b ^ 0x55 for b in good[4:400]) + good[400:]
    huge = io.BytesIO()
    million = 2_000_000
    constant = {f"g{j}": np.zeros(million) for j in range(2)}
    same = {"state": pa.array(["a"] * million).dictionary_encode()}
    pq.write_table(pa.table(same | {"donor": same["state"], "age": constant["g0"]} | constant), huge)
    yield "huge for its size", huge.getvalue()


def h5ad(change: Callable[[Any], Any] = lambda adata: None) -> bytes:
    """A good .h5ad file whose AnnData, or whose HDF5 content, is changed."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.h5ad"
        adata = anndata_of(small())
        change(adata)
        adata.write_h5ad(path)
        return path.read_bytes()


def hdf5(change: Callable[[Any], Any]) -> bytes:
    import h5py

    stream = io.BytesIO(h5ad())
    with h5py.File(stream, "r+") as file:
        change(file)
    return stream.getvalue()


def h5ad_cases() -> Iterator[Case]:
    import h5py

    n = len(small().labels)
    good = h5ad()

    def set_obs(name: str, values: Any) -> Callable[[Any], None]:
        return lambda adata: adata.obs.__setitem__(name, values)

    def drop_obs(name: str) -> Callable[[Any], None]:
        return lambda adata: adata.obs.drop(columns=name, inplace=True)

    def set_value(value: float) -> Callable[[Any], None]:
        def change(adata: Any) -> None:
            adata.X.data[7] = value

        return change

    yield "target missing", h5ad(drop_obs("state"))
    yield "groups missing", h5ad(drop_obs("donor"))
    yield "covariate missing", h5ad(drop_obs("age"))
    yield "covariate as text", h5ad(set_obs("age", ["old"] * n))
    yield "covariate not available", h5ad(set_obs("age", [np.nan] * n))
    yield "label missing", h5ad(set_obs("state", [None, *small().labels[1:]]))
    yield "label empty", h5ad(set_obs("state", ["", *small().labels[1:]]))
    yield "group missing", h5ad(set_obs("donor", [None, *small().donors[1:]]))
    yield "one class", h5ad(set_obs("state", "ill"))
    yield "labels all different", h5ad(set_obs("state", [f"c{i}" for i in range(n)]))
    yield "labels measured", h5ad(set_obs("state", [i + 0.5 for i in range(n)]))
    yield "NaN", h5ad(set_value(np.nan))
    yield "infinite", h5ad(set_value(np.inf))
    yield "no X", hdf5(lambda file: file.__delitem__("X"))
    yield "no obs", hdf5(lambda file: file.__delitem__("obs"))
    yield "no var", hdf5(lambda file: file.__delitem__("var"))
    yield "no data in X", hdf5(lambda file: file["X"].__delitem__("data"))
    yield "no indices in X", hdf5(lambda file: file["X"].__delitem__("indices"))
    yield "no indptr in X", hdf5(lambda file: file["X"].__delitem__("indptr"))
    yield "no shape of X", hdf5(lambda file: file["X"].attrs.__delitem__("shape"))
    yield "shape of X too small", hdf5(lambda file: file["X"].attrs.__setitem__("shape", [3, 3]))
    yield "shape of X too large", hdf5(lambda file: file["X"].attrs.__setitem__("shape", [10**9, 10**9]))
    yield "unknown encoding", hdf5(lambda file: file["X"].attrs.__setitem__("encoding-type", "magic"))
    yield "index beyond X", hdf5(lambda file: file["X/indices"].__setitem__(0, 10**6))
    yield "indptr runs backwards", hdf5(lambda file: file["X/indptr"].__setitem__(3, 10**6))
    yield "no index of obs", hdf5(lambda file: file["obs"].attrs.__delitem__("_index"))
    yield "index of obs elsewhere", hdf5(lambda file: file["obs"].attrs.__setitem__("_index", "nowhere"))

    def text_matrix(file: Any) -> None:
        del file["X"]
        file["X"] = np.full((n, 12), b"x")

    def huge_matrix(file: Any) -> None:
        del file["X"]
        file.create_dataset("X", (n, 10**12), dtype="f4", chunks=(1, 1000))

    def empty_matrix(file: Any) -> None:
        del file["X"]
        file["X"] = np.zeros((n, 0))

    yield "text in X", hdf5(text_matrix)
    yield "huge for its size", hdf5(huge_matrix)
    yield "X of other width", hdf5(empty_matrix)
    plain = io.BytesIO()
    with h5py.File(plain, "w") as file:
        file["numbers"] = np.zeros(3)
    yield "HDF5 that is no AnnData", plain.getvalue()
    yield "empty", b""
    yield "signature only", b"\x89HDF\r\n\x1a\n"
    yield "cut off", good[: len(good) // 2]
    yield "first kilobyte", good[:1024]
    yield "text by name of HDF5", text_of(small()).encode()
    yield "random bytes", np.random.default_rng(0).bytes(3000)


def svmlight_cases() -> Iterator[Case]:
    good = "".join(f"{1 if i % 2 else -1} 1:{i % 7 + 0.5} 3:{0.25 * i} 4:1.5\n" for i in range(20))
    lines = good.splitlines(keepends=True)
    for name, line in {
        "no label": "1:0.5 3:1.0\n",
        "label as text": "ill 1:0.5\n",
        "label of two": "1,2 1:0.5\n",
        "label not a number": "nan 1:0.5\n",
        "label infinite": "inf 1:0.5\n",
        "value missing": "1 1: 3:1.0\n",
        "index missing": "1 :0.5 3:1.0\n",
        "value as text": "1 1:high 3:1.0\n",
        "value not a number": "1 1:nan\n",
        "value infinite": "1 1:inf\n",
        "value out of range": "1 1:1e999\n",
        "index as text": "1 one:0.5\n",
        "index negative": "1 -3:0.5\n",
        "index fractional": "1 1.5:0.5\n",
        "indices backwards": "1 3:0.5 1:1.0\n",
        "index twice": "1 3:0.5 3:1.0\n",
        "huge index": "1 1:0.5 2147483647:1.0\n",
        "huger index": "1 1:0.5 99999999999999999999999:1.0\n",
        "index that needs gigabytes": "1 1:0.5 2000000000:1.0\n",
        "equals instead of colon": "1 1=0.5\n",
        "colon twice": "1 1:0:5\n",
        "commas": "1,1:0.5,3:1.0\n",
        "JSON": '{"label": 1, "1": 0.5}\n',
        "CSV": "ill,0.5,1.0\n",
        "decimal comma": "1 1:0,5\n",
        "semicolons": "1;1:0.5;3:1.0\n",
        "NUL": "1 1:0.5\0 3:1\n",
        "qid as text": "1 qid:a 1:0.5\n",
        "hexadecimal": "1 1:0x10\n",
        "underscore": "1 1:1_000\n",
        "space before the colon": "1 1 :0.5\n",
        "cut off": "1 1:0.5 3",
    }.items():
        yield name, "".join([*lines[:7], line, *lines[7:]] if name != "cut off" else [*lines, line]).encode()
    yield "empty", b""
    yield "comments only", b"# nothing\n# here\n"
    yield "one class", good.replace("-1 ", "1 ").encode()
    yield "labels all different", "".join(f"{i} 1:0.5 2:{i}\n" for i in range(20)).encode()
    yield "labels measured", "".join(f"{i}.5 1:0.5 2:{i}\n" for i in range(20)).encode()
    yield "compressed by name of text", gzip.compress(good.encode())
    yield "random bytes", np.random.default_rng(0).bytes(3000)
    yield "no features", b"1\n-1\n1\n-1\n"


def npz(**changes: Any) -> bytes:
    table = small()
    arrays: dict[str, Any] = {
        "X": table.X,
        "state": np.array(table.labels),
        "donor": np.array(table.donors),
        "feature_names": np.array(table.features),
        "sample_names": np.array(table.samples),
    }
    arrays |= changes
    stream = io.BytesIO()
    np.savez(stream, **{name: value for name, value in arrays.items() if value is not None})
    return stream.getvalue()


def npz_member(name: str, content: bytes) -> bytes:
    """A good file in which one member has other bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(npz())) as old, zipfile.ZipFile(stream, "w") as new:
        for member in old.namelist():
            new.writestr(member, content if member == name else old.read(member))
    return stream.getvalue()


def npz_cases() -> Iterator[Case]:
    table, n = small(), len(small().labels)
    good = npz()
    X = table.X

    def but(i: int, j: int, value: float) -> Any:
        changed = X.copy()
        changed[i, j] = value
        return changed

    def header(shape: tuple[int, ...], dtype: str = "<f8", body: bytes = b"\0" * 64) -> bytes:
        stream = io.BytesIO()
        np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
        return stream.getvalue() + body

    sparse = {
        "X": None,
        "data": np.ones(3),
        "indptr": np.array([0, 3, *[3] * (n - 1)]),
        "feature_names": None,
    }
    yield "target missing", npz(state=None)
    yield "groups missing", npz(donor=None)
    yield "no matrix", npz(X=None)
    yield "X of one dimension", npz(X=X[:, 0])
    yield "X of three dimensions", npz(X=X[np.newaxis])
    yield "X as text", npz(X=X.astype(str))
    yield "X as objects", npz(X=X.astype(object))
    yield "complex X", npz(X=X.astype(complex))
    yield "NaN", npz(X=but(3, 4, np.nan))
    yield "infinite", npz(X=but(3, 4, np.inf))
    yield "no rows", npz(X=X[:0])
    yield "no columns", npz(X=X[:, :0], feature_names=None)
    yield "labels too few", npz(state=np.array(table.labels[:-1]))
    yield "labels of two dimensions", npz(state=np.array(table.labels)[:, np.newaxis])
    yield "labels as objects", npz(state=np.array(table.labels, dtype=object))
    yield "label empty", npz(state=np.array(["", *table.labels[1:]]))
    yield "label not a number", npz(state=np.array([np.nan, *range(n - 1)]))
    yield "one class", npz(state=np.array(["ill"] * n))
    yield "labels all different", npz(state=np.arange(n))
    yield "labels measured", npz(state=np.arange(n) + 0.5)
    yield "groups too many", npz(donor=np.array([*table.donors, "more"]))
    yield "names too few", npz(feature_names=np.array(table.features[:-1]))
    yield "names as objects", npz(feature_names=np.array(table.features, dtype=object))
    yield "samples too few", npz(sample_names=np.array(table.samples[:-1]))
    yield "sparse with an index beyond", npz(**sparse, indices=np.array([0, 1, 99]), shape=np.array([n, 5]))
    yield "sparse with a negative index", npz(**sparse, indices=np.array([0, -1, 2]), shape=np.array([n, 5]))
    yield "sparse of other height", npz(**sparse, indices=np.array([0, 1, 2]), shape=np.array([n + 5, 5]))
    yield (
        "sparse of unknown format",
        npz(**sparse, indices=np.array([0, 1, 2]), shape=np.array([n, 5]), format=np.array("coo")),
    )
    yield "sparse without shape", npz(**sparse, indices=np.array([0, 1, 2]))
    yield "huge claimed size", npz_member("X.npy", header((10**9, 10**9)))
    yield "negative claimed size", npz_member("X.npy", header((-1, 8)))
    yield "less than claimed", npz_member("X.npy", header((40, 12)))
    yield "more than claimed", npz_member("X.npy", header((2, 2), body=b"\0" * 99))
    yield "pickle as an array", npz_member("X.npy", header((1,), "|O", b"cos\nsystem\n(S'false'\ntR."))
    yield (
        "header that is code",
        npz_member("X.npy", b"\x93NUMPY\x01\x00\x20\x00" + b"__import__('os').abort()".ljust(32)),
    )
    yield "no header", npz_member("X.npy", b"hello")
    yield "empty member", npz_member("X.npy", b"")
    yield "empty", b""
    yield "cut off", good[: len(good) // 2]
    yield "without its directory", good[:-60]
    yield "damaged inside", good.replace(b"i\0\0\0l", b"i\0\0\0k")
    yield "text by name of .npz", text_of(table).encode()
    yield "random bytes", np.random.default_rng(0).bytes(3000)
    single = io.BytesIO()
    np.save(single, X)
    yield "one array by name of several", single.getvalue()


CASES = {
    "table.csv": csv_cases,
    "table.tsv.gz": tsv_gz_cases,
    "table.parquet": parquet_cases,
    "table.h5ad": h5ad_cases,
    "table.svmlight": svmlight_cases,
    "table.npz": npz_cases,
}
ASKED = {"table.svmlight": [], "table.npz": ["--target", "state", "--groups", "donor"]}
ALWAYS = ["--target", "state", "--groups", "donor", "--covariates", "age"]


@pytest.mark.parametrize("name", CASES)
def test_malformed_tables_are_refused_by_name_with_a_remedy(name, tmp_path, monkeypatch):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.chdir(tmp_path)
    cases = dict(CASES[name]())
    assert len(cases) >= 30
    path = tmp_path / name
    failures = []
    for case, content in cases.items():
        path.write_bytes(content)
        # Ten megabytes are enough for every table here but those that claim to be huge.
        result = CliRunner().invoke(app, ["fit", str(path), *ASKED.get(name, ALWAYS), "--max-memory", "0.01"])
        said = result.stderr
        if (
            result.exit_code != 3
            or not said.startswith(f"foldless: {path}: ")
            or said.count("\n") != 1
            or not any(remedy in said.lower().partition(": ")[2] for remedy in REMEDIES)
            or "Traceback" in result.output
            or (result.exception is not None and not isinstance(result.exception, SystemExit))
        ):
            failures.append((case, result.exit_code, said, repr(result.exception)))
        elif sorted(p.name for p in tmp_path.iterdir()) != [name]:
            failures.append((case, "something was written", list(tmp_path.iterdir()), ""))
    assert not failures, "\n".join(map(str, failures))


@pytest.mark.parametrize("name", WRITERS)
def test_the_tables_that_malformed_ones_are_made_of_are_good(name, tmp_path):
    """Else every one of them would be refused for the wrong reason."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    table: Small = small()
    WRITERS[name](tmp_path / name, table)
    result = CliRunner().invoke(app, ["check", str(tmp_path / name), *ASKED.get(name, ALWAYS)])
    assert result.exit_code == 0, result.output + result.stderr
