"""AnnData's .h5ad: cells or samples in obs, genes in var; a sparse X stays sparse.

HDF5 is a library of much C and some known holes: read files of people you trust.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldless.io.budget import check_size
from foldless.io.extras import needs
from foldless.io.matrix import table_of
from foldless.io.names import printable
from foldless.io.table import BadTable, Roles, Table, check_present, readable_as

HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
REMEDY = "Write it again with adata.write_h5ad."


def read_h5ad(path: Path, roles: Roles, *, budget: float) -> Table:
    """Read X; --target, --groups and --covariates name columns of obs, --ignore names genes."""
    with needs("anndata", "anndata", "to read .h5ad files"):
        import anndata
    _check_claims(path, budget)
    # A reader's advice to its users is not for ours.
    with readable_as(path, "AnnData", REMEDY), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return table_of_anndata(path, anndata.read_h5ad(path), roles)


def table_of_anndata(path: Path, adata: Any, roles: Roles, X: Any = None) -> Table:
    """The table in an AnnData object, with another matrix than its X if one is given."""
    if X is None:
        X = adata.X
    if X is None:
        raise BadTable(path, "there is no matrix X.", "Put one there: adata.X = adata.layers[NAME].")
    obs = adata.obs
    of_obs = [n for n in (roles.target, roles.groups, roles.samples) if n is not None]
    check_present(path, of_obs, obs.columns, "column of obs", "--target, --groups or --samples")
    # A model's covariates may stand in obs as well; a gene of the same name goes first.
    wanted = dict.fromkeys((*roles.covariates, *(roles.features or ())))
    genes = set(adata.var_names)
    beside = [name for name in wanted if name in obs.columns and name not in genes]
    covariates = [(name, _numbers(path, obs[name], name)) for name in beside]
    samples = adata.obs_names if roles.samples is None else obs[roles.samples]
    return table_of(
        path,
        X if hasattr(X, "indptr") else np.asarray(X),
        roles,
        feature_names=[str(name) for name in adata.var_names],
        sample_names=[str(name) for name in samples],
        target=None if roles.target is None else obs[roles.target].to_numpy(),
        target_name=roles.target,
        groups=None if roles.groups is None else obs[roles.groups].to_numpy(),
        covariates=covariates,
    )


def _numbers(path: Path, column: Any, name: str) -> NDArray[Any]:
    try:
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadTable(
            path,
            f"the covariate {printable(name)!r} is not made of numbers.",
            "Write its values as numbers, 0 and 1 for instance.",
        ) from None


def _check_claims(path: Path, budget: float) -> None:
    """What X says of its size, before anything is read: a small file can claim to unpack into anything."""
    import h5py

    with open(path, "rb") as stream:
        if stream.read(len(HDF5_SIGNATURE)) != HDF5_SIGNATURE:
            raise BadTable(path, "this is no HDF5 file, or a damaged one.", REMEDY)
    with readable_as(path, "HDF5", REMEDY), h5py.File(path, "r") as file:
        check_is_anndata(path, file)
        sizes: list[float] = []
        file.visititems(lambda _, item: sizes.append(_size(item)))
    check_size(path, sum(sizes), budget, "arrays")


def check_is_anndata(path: Path, file: Any) -> None:
    if not all(name in file for name in ("X", "obs", "var")):
        raise BadTable(path, "there is no X, obs and var: this is no AnnData.", REMEDY)


def _size(item: Any) -> float:
    shape, dtype = getattr(item, "shape", None), getattr(item, "dtype", None)
    if shape is None or dtype is None:
        return 0.0
    return float(np.prod([float(n) for n in shape])) * float(dtype.itemsize)
