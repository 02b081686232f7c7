"""AnnData's .h5ad: cells or samples in obs, genes in var; a sparse X stays sparse.

X is read whole, or left on disk: dense, or CSR, whose rows are stretches of its entries. HDF5 is a library of
much C and some known holes: read files of people you trust.
"""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from foldless.io.budget import NAME_BYTES, check_size
from foldless.io.extras import needs
from foldless.io.matrix import table_of
from foldless.io.names import printable
from foldless.io.rows import ReadRows, RowSource
from foldless.io.table import BadTable, Reading, Roles, Table, check_present, readable_as, texts_of

HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
# Texts are in collections that begin so; they and each of their objects have a header of 16 bytes.
TEXTS, HEADER = b"GCOL\x01", 16
REMEDY = "Write it again with adata.write_h5ad."
BY_COLUMNS = "csc_matrix"
# What is read: layers, embeddings and notes can be larger than all of it.
PARTS = ("X", "obs", "var")
RAW = "raw"


def read_h5ad(path: Path, roles: Roles, reading: Reading, *, budget: float) -> Table:
    """Read X or another layer; --target, --groups and --covariates name columns of obs, --ignore genes."""
    with needs("anndata", "anndata", "to read .h5ad files"):
        import anndata
    _check_claims(path, budget, reading.layer)
    with readable_as(path, "AnnData", REMEDY), opened_hdf5(path) as file:
        matrix, var = _places(path, file, reading.layer)
        parts = {"X": _element(file[matrix]), "obs": _element(file["obs"]), "var": _element(file[var])}
        table = table_of_anndata(path, anndata.AnnData(**parts), roles, replace(reading, layer=None))
    steps = () if reading.layer is None else (f"Values are those of {printable(matrix)!r}.",)
    return replace(table, steps=(*table.steps, *steps))


def _places(path: Path, file: Any, layer: str | None) -> tuple[str, str]:
    """Where the matrix is, and what belongs to its columns; "raw" is a layer, or what AnnData calls so."""
    if layer is None:
        return "X", "var"
    layers = list(file.get("layers", ()))
    check_present(path, [layer], [*layers, *([RAW] if RAW in file else [])], "layer", "--layer")
    if layer in layers:
        return f"layers/{layer}", "var"
    return f"{RAW}/X", f"{RAW}/var"


def table_of_anndata(path: Path, adata: Any, roles: Roles, reading: Reading) -> Table:
    """The table in an AnnData object: its X, `reading.layer`, or, if that is "raw" and no layer, its .raw."""
    layer, var_names = reading.layer, adata.var_names
    if layer is None:
        X = adata.X
    elif layer == RAW and layer not in adata.layers and adata.raw is not None:
        X, var_names = adata.raw.X, adata.raw.var_names
    else:
        # From anndata 0.13 on X is a layer as well, called None.
        there = [name for name in adata.layers if name is not None] + ([RAW] if adata.raw is not None else [])
        check_present(path, [layer], there, "layer", "--layer")
        X = adata.layers[layer]
    if X is None:
        raise BadTable(path, "there is no matrix X.", "Name another: --layer NAME, or --layer raw.")
    obs = adata.obs
    of_obs = [n for n in (roles.target, roles.groups, roles.samples) if n is not None]
    check_present(path, of_obs, obs.columns, "column of obs", "--target, --groups or --samples")
    # A model's covariates may stand in obs as well; a gene of the same name goes first.
    wanted = dict.fromkeys((*roles.covariates, *roles.categories, *(roles.features or ())))
    genes = set(var_names)
    beside = [name for name in wanted if name in obs.columns and name not in genes]
    words = {n: texts_of(obs[n]) for n in beside if n in roles.categories or obs[n].dtype.kind not in "fiub"}
    samples = adata.obs_names if roles.samples is None else obs[roles.samples]
    return table_of(
        path,
        X if hasattr(X, "indptr") else np.asarray(X),
        roles,
        feature_names=[str(name) for name in var_names],
        sample_names=[str(name) for name in samples],
        target=None if roles.target is None else obs[roles.target].to_numpy(),
        target_name=roles.target,
        groups=None if roles.groups is None else obs[roles.groups].to_numpy(),
        covariates=[
            (n, obs[n].to_numpy(dtype=np.float64, na_value=np.nan)) for n in beside if n not in words
        ],
        words=words,
        average=reading.average,
    )


def _check_claims(path: Path, budget: float, layer: str | None) -> None:
    """The size that X claims, before anything is read: a small file can claim to unpack into anything."""
    _check_texts_end(path)
    with readable_as(path, "HDF5", REMEDY), opened_hdf5(path) as file:
        check_is_anndata(path, file)
        matrix, var = _places(path, file, layer)
        _check_within(path, file, matrix.partition("/")[0])
        parts = ("obs", matrix, var)
        sizes = [_size(file[name]) for name in parts]
        for name in parts:
            if hasattr(file[name], "visititems"):
                file[name].visititems(lambda _, item: sizes.append(_size(item)))
    check_size(path, sum(sizes), budget, "arrays")


def _check_texts_end(path: Path) -> None:
    """Refuse texts in which libhdf5 would step forward by nothing, without end and deaf to Ctrl-C."""
    damaged = BadTable(path, "this is no HDF5 file, or a damaged one.", REMEDY)
    with open(path, "rb") as stream:
        if stream.read(len(HDF5_SIGNATURE)) != HDF5_SIGNATURE:
            raise damaged
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            # How many bytes a length has: its place depends on the version of the first block.
            width = max(content[14:15] if content[8:9] < b"\2" else content[10:11], default=0)

            def length(at: int) -> int:
                return int.from_bytes(content[at + 8 : at + 8 + width], "little")

            start = content.find(TEXTS)
            while start >= 0:
                at, end = start + HEADER, start + length(start)
                while at + HEADER <= end <= len(content):
                    # Object 0 is what is free, its header included; others are filled up to multiples of 8.
                    free = content[at : at + 2] == b"\0\0"
                    step = length(at) if free else HEADER + (length(at) + 7) // 8 * 8
                    if not 0 < step <= end - at:
                        raise damaged
                    at += step
                start = content.find(TEXTS, start + 1)


def opened_hdf5(path: Path) -> Any:
    import h5py

    return h5py.File(path, "r")


def check_is_anndata(path: Path, file: Any) -> None:
    for name in PARTS:
        if file.get(name, getlink=True, default=None) is None:
            raise BadTable(path, "there is no X, obs and var: this is no AnnData.", REMEDY)
        _check_within(path, file, name)


def _check_within(path: Path, group: Any, name: str) -> None:
    """Refuse what lies in another file: its sender may not be allowed to read what the reader is."""
    import h5py

    leaves = isinstance(group.get(name, getlink=True), h5py.ExternalLink)
    item = None if leaves else group[name]
    if isinstance(item, h5py.Dataset):
        leaves = bool(item.external) or (
            item.is_virtual and any(part.file_name != "." for part in item.virtual_sources())
        )
    if leaves:
        remedy = "Write it again with adata.write_h5ad, which puts everything into one file."
        raise BadTable(path, f"{printable(name)!r} lies in another file.", remedy)
    if isinstance(item, h5py.Group):
        for below in item:
            _check_within(path, item, below)


def _size(item: Any) -> float:
    shape, dtype = getattr(item, "shape", None), getattr(item, "dtype", None)
    if shape is None or dtype is None:
        return 0.0
    # Texts are pointers in the file and objects in memory.
    width = NAME_BYTES if dtype.hasobject else dtype.itemsize
    return float(np.prod([float(n) for n in shape])) * width


class H5adRows(RowSource):
    """X of an AnnData file, with names from var; roles are columns of obs."""

    def __init__(self, path: Path, roles: Roles) -> None:
        self.path = path
        with needs("anndata", "anndata", "to read .h5ad files"):
            import anndata  # noqa: F401
        _check_texts_end(path)
        with readable_as(path, "AnnData", REMEDY), opened_hdf5(path) as file:
            check_is_anndata(path, file)
            X = file["X"]
            # Where the entries of each row begin, if X is sparse.
            self._starts: NDArray[np.int64] | None = None
            if hasattr(X, "keys"):
                self._note_sparse(X)
            else:
                self.note_matrix(X.shape, X.dtype)
            names = _element(file["var"][file["var"].attrs["_index"]])
            self.column_names = [str(name) for name in names]
            if len(self.column_names) != self.shape[1]:
                found = f"var has {len(self.column_names)} names and X {self.shape[1]} columns."
                raise BadTable(path, found, REMEDY)
            obs = _element(file["obs"])
            wanted = [name for name in (roles.target, roles.groups, roles.samples) if name is not None]
            check_present(path, wanted, obs.columns, "column of obs", "target, groups or samples")
            self.row_names = [str(name) for name in obs.index]
            self.note_samples(roles, lambda name: obs[name].to_numpy())

    def cuts(self, block_bytes: int) -> list[slice]:
        if self._starts is None:
            return super().cuts(block_bytes)
        entries = max(block_bytes // (self.dtype.itemsize + 8), 1)
        targets = np.arange(0, int(self._starts[-1]), entries)[1:]
        ends = np.searchsorted(self._starts, targets, side="right") - 1
        cuts = np.unique(np.concatenate([[0], ends, [self.shape[0]]]))
        return [slice(int(a), int(b)) for a, b in pairwise(cuts)]

    def space_needed(self, pieces: Any) -> int:
        return super().space_needed(pieces) if self._starts is None else 0

    @contextmanager
    def opened(self) -> Iterator[ReadRows]:
        with readable_as(self.path, "AnnData", REMEDY):
            opening = opened_hdf5(self.path)
        with opening as file:
            X = file["X"]

            def read(rows: slice, space: NDArray[np.uint8]) -> Any:
                # Errors of reading are translated, not those of what happens to a block later on.
                with readable_as(self.path, "AnnData", REMEDY):
                    if self._starts is not None:
                        return self._sparse_rows(X, self._starts, rows)
                    block = self.in_space(rows, space)
                    X.read_direct(block, np.s_[rows])
                    return block

            yield read

    def tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        if self._starts is not None:
            return super().tile(rows, columns)
        with readable_as(self.path, "AnnData", REMEDY), opened_hdf5(self.path) as file:
            return np.asarray(file["X"][rows, columns]).astype(np.float64)

    def _note_sparse(self, X: Any) -> None:
        if X.attrs.get("encoding-type") == BY_COLUMNS:
            raise BadTable(
                self.path,
                "X is stored by columns (CSC): a block of rows is all over it.",
                "Store it by rows: adata.X = adata.X.tocsr(), and write it again.",
            )
        self.note_matrix(X.attrs["shape"], X["data"].dtype)
        self._starts = np.asarray(X["indptr"][:], dtype=np.int64)
        n_stored = int(X["data"].shape[0])
        if self._starts.shape != (self.shape[0] + 1,) or self._starts[0] != 0 or self._starts[-1] > n_stored:
            raise BadTable(self.path, "the sparse matrix is damaged: its rows are not its entries.", REMEDY)
        if np.any(np.diff(self._starts) < 0):
            raise BadTable(self.path, "the sparse matrix is damaged: rows end before they begin.", REMEDY)

    def _sparse_rows(self, X: Any, starts: NDArray[np.int64], rows: slice) -> Any:
        stored = slice(int(starts[rows.start]), int(starts[rows.stop]))
        parts = (X["data"][stored], X["indices"][stored], starts[rows.start : rows.stop + 1] - stored.start)
        block = sp.csr_array(parts, shape=(rows.stop - rows.start, self.shape[1]))
        try:
            # Indices beyond the matrix would be read from memory that is not ours.
            block.check_format(full_check=True)
        except ValueError as error:
            raise BadTable(self.path, f"the sparse matrix is damaged ({error}).", REMEDY) from None
        return block


def _element(item: Any) -> Any:
    """A column, an index or a table as AnnData stores it."""
    from anndata.io import read_elem

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a reader's advice to its users is not for ours
        return read_elem(item)
