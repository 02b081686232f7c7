"""Some of very many samples, to search with before all of them are fitted.

What a search decides is a handful of numbers: how many features matter, how much, how many labels are wrong,
how far class means are to be trusted. Some ten thousand samples determine them far better than needed, and
give weights to start all samples from. The answer for the whole table is then found from there, by all.

Samples beyond that part are new to what was fitted to it: they show whether its leave-one-out is honest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.tuning.table import Table


class Parts(NamedTuple):
    """Positions of rows to search with, and of as many others to check on."""

    search: NDArray[np.intp]
    check: NDArray[np.intp]


def parts_of(table: Table, n_rows: int) -> Parts:
    """About `n_rows` rows drawn within each class, the same every time, and as many others."""
    in_use = np.flatnonzero(table.sample_weight > 0)
    rng = np.random.default_rng(0)
    search, check = [], []
    for code in range(table.n_classes):
        of_class = rng.permutation(in_use[table.codes[in_use] == code])
        share = max(round(n_rows * of_class.size / in_use.size), 1)
        search.append(of_class[:share])
        check.append(of_class[share : 2 * share])
    return Parts(np.sort(np.concatenate(search)), np.sort(np.concatenate(check)))
