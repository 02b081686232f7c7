"""Tables on disk, read by blocks of rows: every format gives the same matrix, and damage is told."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from foldless import SparseClassifier, open_rows
from foldless.datasets import make_class_means
from foldless.io.rows import RowSource, row_source
from foldless.io.table import BadTable, Roles
from foldless.operators import RowBlocks

N_ROWS, N_COLUMNS = 57, 6
NAMES = [f"gene {j}" for j in range(N_COLUMNS)]
CLASSES = np.where(np.arange(N_ROWS) % 3 == 0, "ill", "well")


def matrix(dtype: type = np.float32) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(N_ROWS, N_COLUMNS)) * (rng.random((N_ROWS, N_COLUMNS)) < 0.6)).astype(dtype)


def as_npy(A: np.ndarray, folder: Path) -> Path:
    np.save(folder / "X.npy", A)
    return folder / "X.npy"


def as_parquet(A: np.ndarray, folder: Path, row_group_size: int = 10) -> Path:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {"name": [f"patient {i}" for i in range(len(A))]}
    columns |= {name: A[:, j] for j, name in enumerate(NAMES)} | {
        "state": list(CLASSES),
        "batch": [1] * len(A),
    }
    pq.write_table(pa.table(columns), folder / "X.parquet", row_group_size=row_group_size)
    return folder / "X.parquet"


def as_zarr(A: np.ndarray, folder: Path, zarr_format: int = 2) -> Path:
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(folder / "X.zarr"), mode="w", zarr_format=zarr_format)
    X = group.create_array("X", shape=A.shape, chunks=(10, 4), dtype=A.dtype)
    X[:] = A
    group.create_array("state", data=(CLASSES == "ill").astype(np.int8))
    group.create_array("short", data=np.zeros(3))
    return folder / "X.zarr"


def as_h5ad(A: Any, folder: Path) -> Path:
    anndata = pytest.importorskip("anndata")
    import pandas as pd

    obs = pd.DataFrame({"state": pd.Categorical(CLASSES)}, index=[f"cell {i}" for i in range(N_ROWS)])
    adata = anndata.AnnData(A, obs=obs, var=pd.DataFrame(index=NAMES))
    adata.write_h5ad(folder / "X.h5ad")
    return folder / "X.h5ad"


FORMATS: dict[str, Callable[[np.ndarray, Path], Path]] = {
    "npy": as_npy,
    "parquet": as_parquet,
    "parquet of one group": lambda A, folder: as_parquet(A, folder, row_group_size=1000),
    "zarr 2": as_zarr,
    "zarr 3": lambda A, folder: as_zarr(A, folder, zarr_format=3),
    "zarr array": lambda A, folder: as_zarr(A, folder) / "X",
    "h5ad": as_h5ad,
    "h5ad csr": lambda A, folder: as_h5ad(sparse.csr_matrix(A), folder),
}
FEATURES_ONLY = {"ignore": ("state", "batch")}


def source_of(kind: str, A: np.ndarray, folder: Path) -> RowSource:
    options = FEATURES_ONLY if "parquet" in kind else {}
    return row_source(FORMATS[kind](A, folder), Roles(**options))


def blocks_of(source: RowSource, block_bytes: int) -> list[np.ndarray]:
    cuts = source.cuts(block_bytes)
    space = np.empty(source.space_needed(cuts), dtype=np.uint8)
    with source.opened() as read:
        found: list[np.ndarray] = []
        for rows in cuts:
            block = read(rows, space)
            found.append(block.toarray() if sparse.issparse(block) else block.copy())
            assert len(found[-1]) == rows.stop - rows.start
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", FORMATS)
def test_blocks_put_together_are_the_matrix(kind: str, dtype: type, tmp_path: Path) -> None:
    A = matrix(dtype)
    source = source_of(kind, A, tmp_path)
    assert source.shape == A.shape
    assert source.dtype == dtype
    for block_bytes in (1, 7 * N_COLUMNS * A.itemsize, 23 * N_COLUMNS * A.itemsize, 1 << 20):
        found = blocks_of(source, block_bytes)
        assert_array_equal(np.concatenate(found), A)
        assert (len(found) == 1) == (block_bytes == 1 << 20)


@pytest.mark.parametrize("kind", FORMATS)
def test_some_rows_and_counts_of_what_is_not_zero_come_from_every_format(kind: str, tmp_path: Path) -> None:
    A = matrix()
    weight = np.arange(N_ROWS) % 3.0
    for block_bytes in (1, 7 * N_COLUMNS * A.itemsize, 1 << 20):
        operator = RowBlocks(source_of(kind, A, tmp_path), block_bytes=block_bytes)
        assert_array_equal(operator.nonzero_weight(weight), weight @ (A != 0))
        # Rows of one block only, of blocks far apart, and all.
        for rows in (np.array([30, 31]), np.array([0, 2, 25, 55, 56]), np.arange(N_ROWS)):
            part = operator.some_rows(rows)
            assert part.X.dtype == A.dtype
            assert_array_equal(part.columns(np.arange(N_COLUMNS)), A[rows])


@pytest.mark.parametrize("kind", FORMATS)
def test_tiles_are_parts_of_the_matrix(kind: str, tmp_path: Path) -> None:
    A = matrix()
    source = source_of(kind, A, tmp_path)
    for rows in (slice(0, N_ROWS), slice(13, 14), slice(9, 41), slice(50, N_ROWS)):
        for columns in (slice(0, N_COLUMNS), slice(2, 5)):
            tile = source.tile(rows, columns)
            assert tile.dtype == np.float64
            assert_array_equal(tile, A[rows, columns])


@pytest.mark.parametrize("kind", FORMATS)
def test_two_passes_at_once_do_not_disturb_each_other(kind: str, tmp_path: Path) -> None:
    A = matrix()
    source = source_of(kind, A, tmp_path)
    spaces = [np.empty(A.nbytes, dtype=np.uint8) for _ in range(2)]
    with source.opened() as one, source.opened() as other:
        for i in range(N_ROWS - 1):
            for read, space, rows in ((one, spaces[0], slice(i, i + 1)), (other, spaces[1], slice(i, i + 2))):
                block = read(rows, space)
                assert_array_equal(block.toarray() if sparse.issparse(block) else block, A[rows])


@pytest.mark.parametrize("kind", FORMATS)
def test_what_happens_to_a_block_is_not_blamed_on_the_file(kind: str, tmp_path: Path) -> None:
    operator = open_rows(FORMATS[kind](matrix(), tmp_path), **FEATURES_ONLY if "parquet" in kind else {})

    def step(rows: slice, scores: Any, score_var: Any) -> Any:
        raise OSError("of the caller's own making")

    with pytest.raises(OSError, match="of the caller's own making"):
        operator.sweep(np.ones(N_COLUMNS), None, step)


@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_matrix], ids=["dense", "csr"])
def test_backed_anndata_is_sliced_where_it_is(stored: Any, tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    A = matrix()
    backed = anndata.read_h5ad(as_h5ad(stored(A), tmp_path), backed="r")
    rows = open_rows(backed.X, block_bytes=7 * N_COLUMNS * 4)
    w = np.linspace(-1, 1, N_COLUMNS)
    np.testing.assert_allclose(rows.scores(w), A @ w, atol=1e-5)
    assert_array_equal(rows.dense_tile(slice(3, 20), slice(1, 4)), A[3:20, 1:4])
    backed.file.close()


def test_open_zarr_arrays_are_sliced_where_they_are(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    A = matrix()
    rows = open_rows(zarr.open(str(as_zarr(A, tmp_path)), mode="r")["X"], block_bytes=7 * N_COLUMNS * 4)
    assert_array_equal(rows.columns(range(N_COLUMNS)), A)


@pytest.mark.parametrize("kind", FORMATS)
def test_identity_changes_when_the_file_does(kind: str, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first = source_of(kind, matrix(), tmp_path / "one")
    assert first.identity() == first.identity()
    assert source_of(kind, matrix(), tmp_path / "two").identity() != first.identity()


@pytest.mark.parametrize(("kind", "target"), [("parquet", "state"), ("zarr 2", "state"), ("h5ad", "state")])
def test_labels_and_names_come_with_the_file(kind: str, target: str, tmp_path: Path) -> None:
    path = FORMATS[kind](matrix(), tmp_path)
    rows = open_rows(path, target=target, **({"ignore": ["batch"]} if kind == "parquet" else {}))
    assert rows.labels is not None
    assert_array_equal(rows.labels == rows.labels[0], CLASSES == "ill")
    assert rows.column_names == (None if kind == "zarr 2" else NAMES)
    assert rows.shape == (N_ROWS, N_COLUMNS)
    with pytest.raises(BadTable, match=r"there is no .* 'status'"):
        open_rows(path, target="status")


def test_a_fit_from_parquet_keeps_its_names(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    data = make_class_means(n_samples=60, n_features=40, n_active=3, random_state=0)
    columns: dict[str, Any] = {f"g{j}": data.X[:, j] for j in range(40)}
    pq.write_table(pa.table({**columns, "class": data.y}), tmp_path / "X.parquet", row_group_size=16)
    rows = open_rows(tmp_path / "X.parquet", target="class", block_bytes=10 * 40 * 8)
    model = SparseClassifier().fit(rows, rows.labels)
    here = SparseClassifier().fit(data.X, data.y)
    assert list(model.feature_names_in_) == list(columns)
    np.testing.assert_allclose(model.coef_, here.coef_, rtol=0, atol=1e-9 * np.abs(here.coef_).max())
    assert_array_equal(model.predict(rows), here.predict(data.X))


def test_missing_values_are_told_with_their_place(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    holes = pa.table({"a": [1.0] * 30, "b": [None if i == 17 else 0.5 for i in range(30)]})
    pq.write_table(holes, tmp_path / "X.parquet", row_group_size=8)
    with pytest.raises(BadTable, match="row 18, column 'b': the value is missing"):
        open_rows(tmp_path / "X.parquet", block_bytes=5 * 2 * 8).scores(np.ones(2))


def test_files_that_cannot_be_used_are_refused_at_once(tmp_path: Path) -> None:
    path = as_h5ad(sparse.csc_matrix(matrix()), tmp_path)
    with pytest.raises(BadTable, match=r"by columns \(CSC\).*tocsr"):
        open_rows(path)
    with pytest.raises(BadTable, match="ignored in Parquet files only"):
        open_rows(as_npy(matrix(), tmp_path), ignore=["a"])
    with pytest.raises(BadTable, match=r"shape \(3,\); there are 57 rows"):
        open_rows(as_zarr(matrix(), tmp_path), target="short")
    with pytest.raises(BadTable, match="not numbers"):
        open_rows(as_parquet(matrix(), tmp_path))
    for name in ("bad.parquet", "bad.h5ad", "bad.zarr"):
        (tmp_path / name).write_bytes(b"PAR1 is not enough, nor is \x89HDF")
        with pytest.raises(BadTable, match=name):
            open_rows(tmp_path / name)
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(BadTable, match="zarr"):
        open_rows(tmp_path / "empty.zarr")


def test_a_zarr_group_needs_an_array_of_the_name(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(tmp_path / "X.zarr"), mode="w")
    for name in ("other", "X"):  # a sparse matrix of anndata is a group, too
        group.create_group(name)
        with pytest.raises(BadTable, match="a group without an array 'X'"):
            open_rows(tmp_path / "X.zarr")


def test_a_sparse_matrix_with_indices_beyond_its_columns_is_refused(tmp_path: Path) -> None:
    path = as_h5ad(sparse.csr_matrix(matrix()), tmp_path)
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "r+") as file:
        file["X"]["indices"][5] = N_COLUMNS + 1000
    with pytest.raises(BadTable, match="the sparse matrix is damaged"):
        open_rows(path).scores(np.ones(N_COLUMNS))
    with h5py.File(path, "r+") as file:
        file["X"]["indptr"][7] = 10_000
    with pytest.raises(BadTable, match="the sparse matrix is damaged"):
        open_rows(path)


@pytest.mark.parametrize(
    ("package", "name", "extra"),
    [("pyarrow", "X.parquet", "parquet"), ("zarr", "X.zarr", "zarr"), ("anndata", "X.h5ad", "anndata")],
)
def test_a_missing_package_is_named_with_its_extra(
    package: str, name: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_bytes(b"")
    original = builtins.__import__

    def without(module: str, *args: Any, **options: Any) -> Any:
        if module.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return original(module, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'foldless\[{extra}\]'"):
        open_rows(tmp_path / name)


@pytest.mark.parametrize("n_rows", [10, 19, 20, 29, 30, 56])
def test_blocks_of_zarr_are_whole_chunks_where_they_fit(tmp_path: Path, n_rows: int) -> None:
    """A chunk has ten rows: one that two blocks shared would be unpacked twice."""
    from foldless.io.zarr import ZarrRows

    row = N_COLUMNS * 4
    source = ZarrRows(as_zarr(matrix(), tmp_path), Roles())
    cuts = source.cuts(n_rows * row)
    assert [cut.start for cut in cuts] == list(range(0, N_ROWS, n_rows // 10 * 10))
    assert cuts[-1].stop == N_ROWS
    assert [cut.start for cut in source.cuts(7 * row)] == list(range(0, N_ROWS, 7))  # no chunk fits
    assert source.cuts(100 * row) == [slice(0, N_ROWS)]


def test_arrays_that_are_no_matrices_of_numbers_are_refused(tmp_path: Path) -> None:
    whole = as_npy(matrix(), tmp_path).read_bytes()
    (tmp_path / "short.npy").write_bytes(whole[:-1])
    with pytest.raises(BadTable, match=rf"take {len(whole)} bytes, and the file has {len(whole) - 1}"):
        open_rows(tmp_path / "short.npy")
    for name, array, problem in (
        ("flat.npy", np.zeros(3), r"shape \(3,\)"),
        ("words.npy", np.array([["a"]]), "not numbers"),
        ("columns.npy", np.asfortranarray(matrix()), "stored by columns"),
    ):
        np.save(tmp_path / name, array)
        with pytest.raises(BadTable, match=problem):
            open_rows(tmp_path / name)
    for name, content, problem in (
        ("none.npy", b"", "this is no .npy file"),
        ("other.npy", b"PAR1", "this is no .npy file"),
        ("table.csv", b"a,b\n1,2\n", "cannot be read one block at a time"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadTable, match=problem):
            open_rows(tmp_path / name)
    with pytest.raises(BadTable, match="nothing beside it"):
        open_rows(tmp_path / "X.npy", target="y")
    with pytest.raises(TypeError, match="A path or an array is needed; got a list"):
        row_source([[1.0]])


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (1, 1)])
def test_a_single_row_or_column_has_both_orders(shape: tuple[int, int], tmp_path: Path) -> None:
    A = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    # NumPy calls such an array both, and others write either.
    content = as_npy(A, tmp_path).read_bytes().replace(b"'fortran_order': False", b"'fortran_order': True ")
    (tmp_path / "F.npy").write_bytes(content)
    assert_array_equal(np.concatenate(blocks_of(row_source(tmp_path / "F.npy"), 1)), A)


def test_a_file_that_becomes_shorter_while_it_is_read_is_named(tmp_path: Path) -> None:
    path = as_npy(matrix(), tmp_path)
    source = row_source(path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(BadTable, match="the file ended early"):
        blocks_of(source, 1 << 20)


@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_arrays_in_memory_are_rows_as_well(stored: Any) -> None:
    A = matrix()
    source = row_source(stored(A))
    assert_array_equal(np.concatenate(blocks_of(source, 7 * N_COLUMNS * 4)), A)
    assert_array_equal(source.tile(slice(3, 20), slice(1, 4)), A[3:20, 1:4])
    assert source.labels is None


def test_an_h5ad_whose_parts_disagree_is_refused(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")

    def damaged(change: Callable[[Any], None], A: Any) -> Path:
        path = as_h5ad(A, tmp_path)
        with h5py.File(path, "r+") as file:
            change(file)
        return path

    def fewer_columns(file: Any) -> None:
        values, attributes = file["X"][:, :-1], dict(file["X"].attrs)
        del file["X"]
        file.create_dataset("X", data=values).attrs.update(attributes)

    def fewer_rows(file: Any) -> None:
        starts = file["X"]["indptr"][:-1]
        del file["X"]["indptr"]
        file["X"].create_dataset("indptr", data=starts)

    def later_start(file: Any) -> None:
        file["X"]["indptr"][0] = 1

    def beyond_the_end(file: Any) -> None:
        file["X"]["indptr"][-1] = 10_000

    with pytest.raises(BadTable, match=f"var has {N_COLUMNS} names and X {N_COLUMNS - 1} columns"):
        open_rows(damaged(fewer_columns, matrix()))
    for change in (fewer_rows, later_start, beyond_the_end):
        with pytest.raises(BadTable, match="its rows are not its entries"):
            open_rows(damaged(change, sparse.csr_matrix(matrix())))


def test_groups_and_names_of_samples_come_with_the_file(tmp_path: Path) -> None:
    path = as_parquet(matrix(), tmp_path)
    found = row_source(path, Roles(target="state", groups="batch", samples="name"))
    assert_array_equal(found.labels, CLASSES)
    assert_array_equal(found.groups, ["1"] * N_ROWS)
    assert list(found.row_names or ())[:2] == ["patient 0", "patient 1"]
    assert list(found.column_names or ()) == NAMES
