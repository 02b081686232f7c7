"""AnnData's .h5ad, X left on disk: dense, or CSR, whose rows are stretches of its entries."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from foldless.io.extras import needs
from foldless.io.h5ad import REMEDY, check_is_anndata
from foldless.io.rows.base import NUMBERS, ReadRows, RowSource, file_identity
from foldless.io.table import BadTable, Roles, check_present, readable_as

BY_COLUMNS = "csc_matrix"


class H5adRows(RowSource):
    """X of an AnnData file, with names from var; roles are columns of obs."""

    def __init__(self, path: Path, roles: Roles) -> None:
        self.path = path
        with needs("anndata", "anndata", "to read .h5ad files"):
            import anndata  # noqa: F401
        with readable_as(path, "AnnData", REMEDY), _opened(path) as file:
            check_is_anndata(path, file)
            X = file["X"]
            # Where the entries of each row begin, if X is sparse.
            self._starts: NDArray[np.int64] | None = None
            if hasattr(X, "keys"):
                self._note_sparse(X)
            else:
                self.shape, self.dtype = (int(X.shape[0]), int(X.shape[1])), np.dtype(X.dtype)
            if self.dtype.kind not in NUMBERS:
                raise BadTable(path, f"the matrix holds {self.dtype}, not numbers.", "Save it as numbers.")
            names = _element(file["var"][file["var"].attrs["_index"]])
            self.column_names = [str(name) for name in names]
            if len(self.column_names) != self.shape[1]:
                found = f"var has {len(self.column_names)} names and X {self.shape[1]} columns."
                raise BadTable(path, found, REMEDY)
            obs = _element(file["obs"])
            wanted = [name for name in (roles.target, roles.groups, roles.samples) if name is not None]
            check_present(path, wanted, obs.columns, "column of obs", "target, groups or samples")
            self.row_names = [str(name) for name in obs.index]
            self.note_samples(path, roles, lambda name: obs[name].to_numpy())

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
            opening = _opened(self.path)
        with opening as file:
            X = file["X"]

            def read(rows: slice, space: NDArray[np.uint8]) -> Any:
                # Only what reading says is translated, not what happens to a block later on.
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
        with readable_as(self.path, "AnnData", REMEDY), _opened(self.path) as file:
            return np.asarray(file["X"][rows, columns]).astype(np.float64)

    def identity(self) -> str:
        return file_identity(self.path)

    def _note_sparse(self, X: Any) -> None:
        if X.attrs.get("encoding-type") == BY_COLUMNS:
            raise BadTable(
                self.path,
                "X is stored by columns (CSC): a block of rows is all over it.",
                "Store it by rows: adata.X = adata.X.tocsr(), and write it again.",
            )
        n_rows, n_columns = (int(n) for n in X.attrs["shape"])
        self.shape, self.dtype = (n_rows, n_columns), np.dtype(X["data"].dtype)
        self._starts = np.asarray(X["indptr"][:], dtype=np.int64)
        n_stored = int(X["data"].shape[0])
        if self._starts.shape != (n_rows + 1,) or self._starts[0] != 0 or self._starts[-1] > n_stored:
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
    try:
        from anndata.io import read_elem
    except ImportError:  # its place before anndata 0.11
        from anndata.experimental import read_elem

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a reader's advice to its users is not for ours
        return read_elem(item)


def _opened(path: Path) -> Any:
    import h5py

    return h5py.File(path, "r")
