"""Fits that go on: after the end of their process from a journal, or from an earlier fit of the same data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
from foldless.tuning.path import Result
from foldless.tuning.record import REFINES, Recorder
from foldless.tuning.table import Table

# Where a fit is recorded, and what it prints, have no influence on it.
NO_INFLUENCE = {"checkpoint", "verbose"}
# Nor do these decide the answer: how long a fit may go on, and what is made of it.
NOT_DECISIVE = NO_INFLUENCE | {"max_iter", "n_jobs", "warm_start", "fdr"}


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


# ---------------------------------------------------------------- warm starts, which cannot change an answer


def warmly(estimator: BaseEstimator, table: Table, recorder: Recorder, fit: Callable[..., Result]) -> Result:
    """The result of `fit`, which is given where the last fit of the same data ended, if there was one."""
    known, earlier, warm = fingerprint(estimator, table), estimator._warm, None
    if earlier is not None and earlier[0] == known:
        # What was learnt then is behind this answer, too. What refines an answer is done anew.
        runs = (run for run in estimator.record_.of("sparse") if run.purpose not in REFINES)
        warm, recorder.earlier = earlier[1], tuple(runs)
    result = fit(warm=warm)
    # What max_iter has cut short may have decided too early, on weights of class means or on parameters.
    cut_short = any(run.n_iter >= estimator.max_iter for run in result.record.of("sparse"))
    # One that did not settle would only go on not settling.
    usable = result.unfinished.outcome.trustworthy and not cut_short
    estimator._warm = (known, result.unfinished.without_data()) if usable else None
    return result


def fingerprint(estimator: BaseEstimator, table: Table) -> str:
    """What other data, or other parameters, would not share.

    Every value of X enters the moments of its column, and a sum over its row that is weighted by column.
    """
    params = {k: v for k, v in estimator.get_params(deep=False).items() if k not in NOT_DECISIVE}
    x = table.standardized
    mixture = x.scores(np.cos(np.arange(x.shape[1])))
    arrays = [x.center, x.scale, mixture, table.labels, table.sample_weight, table.left_out.group]
    # An array among the parameters is shortened in print; which columns are kept is in the layout.
    return f"{checksum(arrays):08x} {table.shape} {table.layout} {params!r}"
