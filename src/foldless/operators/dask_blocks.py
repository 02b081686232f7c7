"""From a Dask array or data frame to blocks of rows, each an operator where it is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from foldless.operators.dense import Dense
from foldless.operators.sparse import Sparse
from foldless.operators.tiled import product_dtype


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection; by the name of its module, so that nobody imports Dask in vain."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr")


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows as an operator, whose size is known to those who watch over a worker's memory."""

    operator: Dense | Sparse

    def __reduce__(self) -> tuple[Any, ...]:
        # Through `block_of`, since a block may be moved to another worker.
        return block_of, (self.operator.X,)

    def __sizeof__(self) -> int:
        X: Any = self.operator.X
        return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes) if issparse(X) else int(X.nbytes)


class Parts(NamedTuple):
    """Blocks that are still to be computed, in the order of their rows, and the names of columns if known."""

    blocks: list[Any]
    n_columns: int
    column_names: Sequence[str] | None


def parts_of(X: Any) -> Parts:
    """Every chunk of rows as a block; errors that need no look at the data are raised here."""
    if hasattr(X, "npartitions") and hasattr(X, "columns"):
        return _parts_of_frame(X)
    if hasattr(X, "chunks") and hasattr(X, "rechunk"):
        return _parts_of_array(X)
    raise TypeError(
        f"X is a Dask {type(X).__name__}; a Dask array or data frame of samples by features is needed. "
        "Convert it first, for example with dask.array.from_delayed."
    )


def _parts_of_array(X: Any) -> Parts:
    from dask.delayed import delayed

    if X.ndim != 2:
        raise ValueError(f"X has shape {X.shape}; a matrix of samples by features is needed.")
    if X.dtype.kind not in "fiub":
        raise TypeError(f"X has dtype {X.dtype}; real numbers are needed.")
    n_columns = X.shape[1]
    if np.isnan(n_columns):
        raise ValueError("X does not know how many columns it has. Call X.compute_chunk_sizes() first.")
    if X.numblocks[1] > 1:
        # A score needs all columns of its row.
        X = X.rechunk({1: -1})
    make = delayed(block_of, pure=True)
    return Parts([make(part) for part in X.to_delayed().ravel()], int(n_columns), None)


def _parts_of_frame(X: Any) -> Parts:
    from dask.delayed import delayed

    names = list(X.columns)
    dtypes = dict(zip(names, X.dtypes, strict=True))
    unfit = [name for name, dtype in dtypes.items() if getattr(dtype, "kind", "O") not in "fiub"]
    if unfit:
        more = f" (and {len(unfit) - 1} more columns)" if len(unfit) > 1 else ""
        raise ValueError(
            f"The column {unfit[0]!r}{more} of X holds {dtypes[unfit[0]]}, not numbers. "
            f"Leave it out: X.drop(columns=[{unfit[0]!r}])."
        )
    if len(dtypes) < len(names):
        raise ValueError("Two columns of X have one name. Rename one of them.")
    dtype = product_dtype(
        np.result_type(*(getattr(dtype, "numpy_dtype", dtype) for dtype in dtypes.values()))
    )
    make = delayed(block_of, pure=True)
    blocks = [make(part, dtype) for part in X.to_delayed()]
    return Parts(blocks, len(names), names if all(isinstance(name, str) for name in names) else None)


def block_of(part: Any, dtype: np.dtype[Any] | None = None) -> Block:
    """A chunk in memory as a block; frames become arrays of `dtype`."""
    if hasattr(part, "columns"):
        part = part.to_numpy(dtype=dtype, na_value=np.nan)
    if issparse(part) or hasattr(part, "tocsr"):
        matrix: Any = part if getattr(part, "format", "") in ("csr", "csc") else part.tocsr()
        if not all(piece.flags.aligned for piece in (matrix.data, matrix.indices, matrix.indptr)):
            pieces = (_aligned(piece) for piece in (matrix.data, matrix.indices, matrix.indptr))
            matrix = type(matrix)(tuple(pieces), shape=matrix.shape)
        return Block(Sparse(matrix))
    return Block(Dense(_aligned(np.asarray(part))))


def _aligned(array: NDArray[Any]) -> NDArray[Any]:
    """What came in a message begins at any byte, and sums of a misaligned array are not the same to the bit.

    BLAS could not read it either, so that the one copy made here saves one in every sweep.
    """
    return array if array.flags.aligned else array.copy(order="K")
