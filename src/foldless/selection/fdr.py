"""Selection at a stated false discovery rate, from inclusion probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array


def select(inclusion_probability: Array, fdr: float) -> NDArray[np.bool_]:
    """The largest set of features whose expected share of false ones is at most `fdr`.

    1 - inclusion probability is the chance that keeping a feature is a mistake. Features are taken from
    the surest down for as long as the mean of these chances stays within `fdr`. The statement is as
    good as the probabilities: it holds under the fitted model.
    """
    if not 0 <= fdr <= 1:
        raise ValueError(
            f"fdr must be between 0 and 1, for instance 0.1 for one false feature in ten; got {fdr!r}."
        )
    mistake = 1.0 - np.asarray(inclusion_probability, dtype=np.float64)
    # A stable sort: equal probabilities are taken in the order of columns, the same every time.
    order = np.argsort(mistake, kind="stable")
    expected_share = np.cumsum(mistake[order]) / np.arange(1, mistake.size + 1)
    within = np.flatnonzero(expected_share <= fdr)
    keep = np.zeros(mistake.size, dtype=bool)
    if within.size:
        # Equal probabilities stand or fall together: a set cut between twins would depend on their order.
        last = mistake[order[within[-1]]]
        tied_beyond = within[-1] + 1 < mistake.size and mistake[order[within[-1] + 1]] == last
        keep[mistake < last if tied_beyond else mistake <= last] = True
    return keep
