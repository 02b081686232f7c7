"""Small files that claim much, or that show another file's bytes, are refused before anything is read."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from foldless.io.h5ad import HDF5_SIGNATURE, HEADER, TEXTS, _check_texts_end
from foldless.io.matrix import read_labels
from foldless.io.npz import read_npz
from foldless.io.table import BadTable, OverBudget, Reading, Roles

BUDGET = 20e9  # more than any of these would need


def test_columns_of_a_sparse_matrix_are_no_more_than_its_file_can_mean(tmp_path: Path):
    path = tmp_path / "wide.npz"
    sp.save_npz(path, sp.csr_matrix(([1.0], ([0], [5])), shape=(3, 10**8)))
    with pytest.raises(BadTable, match=r"100000000 columns, 6\.0 GB, in a file of"):
        read_npz(path, Roles(), Reading(), budget=BUDGET)
    sp.save_npz(path, sp.csr_matrix(([1.0], ([0], [5])), shape=(3, 10**6)))
    assert read_npz(path, Roles(), Reading(), budget=BUDGET).X.shape == (3, 10**6)


def test_labels_of_objects_are_refused_without_advice_to_unpickle(tmp_path: Path):
    path = tmp_path / "labels.npy"
    np.save(path, np.array(["a", "b"], dtype=object), allow_pickle=True)
    with pytest.raises(BadTable, match="holds Python objects, which are not read") as raised:
        read_labels(path, None, 2)
    assert "allow_pickle" not in str(raised.value)
    np.save(path, np.array(["a", "b"]))
    assert read_labels(path, None, 2).tolist() == ["a", "b"]


def test_a_long_label_is_not_unpacked_in_every_row(tmp_path: Path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    from foldless.io.parquet import read_parquet

    path = tmp_path / "t.parquet"
    labels = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 200, pa.int32()), ["a" * 10**6, "b"])
    pq.write_table(pa.table({"class": labels, "x": np.arange(400.0)}), path)
    with pytest.raises(BadTable, match="'class' has a text of 1000000 bytes"):
        read_parquet(path, Roles(target="class"), Reading(), budget=BUDGET)
    for values in (["ill", "well"], [1, 0], ["é" * 3000, "b"]):
        pq.write_table(pa.table({"class": values * 200, "x": np.arange(400.0)}), path)
        table = read_parquet(path, Roles(target="class"), Reading(), budget=BUDGET)
        assert table.target.tolist() == values * 200


def test_a_chunk_of_zarr_must_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    zarr = pytest.importorskip("zarr")
    from foldless.io.zarr import ZarrRows

    path = tmp_path / "x.zarr"
    zarr.open(str(path), mode="w", shape=(20, 10**10), chunks=(20, 10**10), dtype="f8")
    with pytest.raises((BadTable, OverBudget), match="chunks of 20 x 10000000000 numbers"):
        ZarrRows(path, Roles())
    zarr.open(str(path), mode="w", shape=(20, 4), chunks=(10, 4), dtype="f8")
    for budget, fits in ((320.0, True), (319.0, False)):
        monkeypatch.setattr("foldless.io.zarr.default_budget", lambda budget=budget: budget)
        with (
            nullcontext() if fits else pytest.raises((BadTable, OverBudget), match="chunks of 10 x 4 numbers")
        ):
            ZarrRows(path, Roles())


@pytest.fixture
def annotated(tmp_path: Path) -> Path:
    anndata = pytest.importorskip("anndata")
    import pandas as pd

    path = tmp_path / "t.h5ad"
    obs = pd.DataFrame({"state": ["a", "b"] * 4}, index=[f"s{i}" for i in range(8)])
    anndata.AnnData(np.arange(24.0).reshape(8, 3), obs, uns={"note": ["x"] * 9}).write_h5ad(path)
    return path


def external_link(file, secret):
    import h5py

    file["X"] = h5py.ExternalLink(str(secret), "/data")


def external_storage(file, secret):
    file.create_dataset("X", (8, 3), dtype="f8", external=[(str(secret), 0, 192)])


def virtual(file, secret):
    import h5py

    layout = h5py.VirtualLayout((8, 3), "f8")
    layout[:] = h5py.VirtualSource(str(secret), "/data", (8, 3))
    file.create_virtual_dataset("X", layout)


@pytest.mark.parametrize("leave", [external_link, external_storage, virtual])
@pytest.mark.parametrize("whole", [True, False])
def test_an_h5ad_shows_no_other_file(annotated, tmp_path, leave, whole):
    h5py = pytest.importorskip("h5py")
    from foldless.io.h5ad import H5adRows, read_h5ad

    read = partial(read_h5ad, reading=Reading(), budget=BUDGET) if whole else H5adRows
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["data"] = np.ones((8, 3))
    with h5py.File(annotated, "a") as file:
        del file["X"]
        leave(file, secret)
    with pytest.raises(BadTable, match="'X' lies in another file"):
        read(annotated, Roles(target="state"))


def test_notes_of_an_h5ad_are_not_read(annotated):
    h5py = pytest.importorskip("h5py")
    from foldless.io.h5ad import read_h5ad

    with h5py.File(annotated, "a") as file:
        # Of 1e8 empty texts, a few kilobytes here, and three gigabytes if they were read.
        file["uns"].create_dataset(
            "many", (10**8,), dtype=h5py.string_dtype(), chunks=(10**6,), compression="gzip"
        )
    table = read_h5ad(annotated, Roles(target="state"), Reading(), budget=1e6)
    assert table.X.shape == (8, 3)
    assert table.target.tolist() == ["a", "b"] * 4


@pytest.mark.parametrize("read", ["read_h5ad(path, roles, Reading(), budget=1e9)", "H5adRows(path, roles)"])
# Free space of length 0, and a length with which 64 bits overflow to a step of 0.
@pytest.mark.parametrize(("number", "length"), [(0, 0), (1, 2**64 - 16)])
def test_texts_without_end_are_refused(annotated, read, number, length):
    """In a child: libhdf5 would never come back from them."""
    content = bytearray(annotated.read_bytes())
    first = content.index(b"GCOL") + 16
    content[first : first + 2] = number.to_bytes(2, "little")
    content[first + 8 : first + 16] = length.to_bytes(8, "little")
    annotated.write_bytes(content)
    code = (
        "from pathlib import Path; from foldless.io.h5ad import *; from foldless.io.table import *;"
        f"path, roles = Path({str(annotated)!r}), Roles(target='state'); {read}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert f"BadTable: {annotated}: this is no HDF5 file, or a damaged one." in done.stderr


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_texts_of_every_version_are_read(annotated, libver):
    """Their lengths stand elsewhere in older and newer files; removed texts leave free space behind."""
    import anndata
    import h5py

    from foldless.io.h5ad import H5adRows, read_h5ad

    adata = anndata.read_h5ad(annotated)
    with h5py.File(annotated, "w", libver=libver) as file:
        anndata.io.write_elem(file, "/", adata)
        for k in range(300):
            file.attrs[f"note {k}"] = "x" * (7 * k)
        for k in range(0, 300, 2):
            del file.attrs[f"note {k}"]
    table = read_h5ad(annotated, Roles(target="state"), Reading(), budget=1e9)
    rows = H5adRows(annotated, Roles(target="state"))
    assert rows.column_names == list(table.feature_names) == list(adata.var_names)
    assert table.target.tolist() == adata.obs["state"].tolist()


def test_an_hdf5_file_that_ends_after_its_signature_is_refused(annotated):
    from foldless.io.h5ad import read_h5ad

    for n in (0, 7, 8, 9, 14, 15, 100):
        part = annotated.with_name(f"first {n}.h5ad")
        part.write_bytes(annotated.read_bytes()[:n])
        with pytest.raises(BadTable, match=f"first {n}"):
            read_h5ad(part, Roles(), Reading(), budget=1e9)


def hdf5_with(objects, *, width=8, newer=False, before=b"", cut=0):
    """As much of a file as is looked at: where lengths are told, and a collection of texts."""
    start = bytearray(48)
    start[:8] = HDF5_SIGNATURE
    start[8] = 2 if newer else 0
    start[10 if newer else 14] = width
    body = b""
    for number, length, content in objects:
        body += number.to_bytes(2, "little") + bytes(6) + length.to_bytes(8, "little") + content
    size = HEADER + len(body)
    collection = TEXTS + bytes(3) + size.to_bytes(8, "little") + body
    return bytes(start) + before + collection[: len(collection) - cut]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=5), st.data())
def test_a_walk_over_texts_ends_or_is_refused(tmp_path_factory, lengths, data):
    path = tmp_path_factory.mktemp("texts") / "t.h5ad"
    options = {"width": data.draw(st.sampled_from([2, 4, 8])), "newer": data.draw(st.booleans())}
    options["before"] = data.draw(st.sampled_from([b"", b"GCOL", TEXTS + bytes(2)]))
    objects = [(k, n, bytes((n + 7) // 8 * 8)) for k, n in enumerate(lengths, start=1)]
    free = (0, HEADER + 24, bytes(24))  # what is free counts its header
    path.write_bytes(hdf5_with([*objects, free], **options))
    _check_texts_end(path)
    # One that goes nowhere, or beyond what there is.
    k = data.draw(st.integers(0, len(objects)))
    wrong = [*objects, free]
    number, _, content = wrong[k]
    wrong[k] = (number, 0 if number == 0 else data.draw(st.integers(1000, 2**15)), content)
    path.write_bytes(hdf5_with(wrong, **options))
    with pytest.raises(BadTable, match="no HDF5 file, or a damaged one"):
        _check_texts_end(path)


def test_what_only_looks_like_texts_is_no_reason_to_refuse(tmp_path):
    """Such bytes may be among numbers; a collection that ends beyond the file is not walked."""
    path = tmp_path / "t.h5ad"
    path.write_bytes(hdf5_with([(0, 0, bytes(8))], cut=1))
    _check_texts_end(path)
    path.write_bytes(hdf5_with([])[:-3] + b"\xff" * 8)
    _check_texts_end(path)
    path.write_bytes(b"PAR1" + hdf5_with([]))
    with pytest.raises(BadTable, match="no HDF5 file"):
        _check_texts_end(path)
