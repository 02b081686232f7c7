"""A fit that survives the end of its process: what it is known by, and the journal it is resumed from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

import foldless
from foldless.io.files import checksum
from foldless.io.journal import journal
from foldless.operators import Journaled, Storage

# Where a fit is recorded, and what it prints, have no influence on it.
NO_INFLUENCE = {"checkpoint", "verbose"}


@contextmanager
def checkpointed(
    estimator: BaseEstimator, operator: Storage, given: Mapping[str, NDArray[Any] | None]
) -> Iterator[Storage]:
    """The operator with a journal at the estimator's checkpoint; `given` is what belongs to the rows."""
    with journal(Path(estimator.checkpoint), _header(estimator, operator, given)) as records:
        yield Journaled(operator, records)


def _header(
    estimator: BaseEstimator, operator: Storage, given: Mapping[str, NDArray[Any] | None]
) -> dict[str, str]:
    params = {k: v for k, v in estimator.get_params(deep=False).items() if k not in NO_INFLUENCE}
    return {
        "the version of foldless": foldless.__version__,
        "the estimator": type(estimator).__name__,
        **{f"the parameter {name}": repr(value) for name, value in params.items()},
        "the shape of X": str(operator.shape),
        "the type of X": operator.dtype.name,
        "X": operator.identity(),
        **{
            f"the checksum of {name}": f"{checksum([_as_numbers(values)]):08x}"
            for name, values in given.items()
        },
    }


def _as_numbers(values: NDArray[Any] | None) -> NDArray[Any] | None:
    """Labels may be texts or objects, whose bytes say where they are and not what."""
    if values is None or values.dtype.kind in "biuf":
        return values
    return np.frombuffer("\0".join(map(str, values)).encode("utf-8"), dtype=np.uint8)
