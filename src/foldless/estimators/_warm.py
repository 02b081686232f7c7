"""Warm starts that cannot change an answer: a fit goes on from one of the same data, or of none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from foldless.estimators._base import MessagePassingClassifier
from foldless.io.files import checksum
from foldless.tuning.path import Result
from foldless.tuning.record import REFINES, Recorder
from foldless.tuning.table import Table

# What does not decide the answer: how long a fit may go on, and what it shows.
NO_INFLUENCE = {"max_iter", "verbose", "n_jobs", "checkpoint", "warm_start", "fdr"}


def warmly(
    estimator: MessagePassingClassifier, table: Table, recorder: Recorder, fit: Callable[..., Result]
) -> Result:
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


def fingerprint(estimator: MessagePassingClassifier, table: Table) -> str:
    """What other data, or other parameters, would not share.

    Every value of X enters the moments of its column, and a sum over its row that is weighted by column.
    """
    params = {k: v for k, v in estimator.get_params(deep=False).items() if k not in NO_INFLUENCE}
    x = table.standardized
    mixture = x.scores(np.cos(np.arange(x.shape[1])))
    arrays = [x.center, x.scale, mixture, table.labels, table.sample_weight, table.left_out.group]
    # An array among the parameters is shortened in print; which columns are kept is in the layout.
    return f"{checksum(arrays):08x} {table.shape} {table.layout} {params!r}"
