"""A part of very many samples, to search with before all of them are looked at.

What a search decides is a handful of numbers: how many features matter, how much, how many labels are wrong,
how far class means are to be trusted. Some ten thousand samples determine them far better than needed, and
give weights to start all samples from. What the whole table answers is then found from there, by all samples.

Samples beyond that part are new to what was fitted to it: they say whether its leave-one-out is honest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array

# With so many, a proportion is known to a third of a per cent.
ROWS = 20_000
# Beside the table the copies of a part, and of as many others to check on, must be small.
LARGEST_SHARE = 0.1


class Parts(NamedTuple):
    """Positions of rows to search with, and of as many others to check on."""

    search: NDArray[np.intp]
    check: NDArray[np.intp]


def parts_of(labels: Array, sample_weight: Array) -> Parts | None:
    """Rows drawn within each class, the same every time; None if there are too few for it to be worth it."""
    in_use = np.flatnonzero(sample_weight > 0)
    if in_use.size * LARGEST_SHARE < ROWS:
        return None
    rng = np.random.default_rng(0)
    search, check = [], []
    for label in np.unique(labels[in_use]):
        of_class = rng.permutation(in_use[labels[in_use] == label])
        share = max(round(ROWS * of_class.size / in_use.size), 1)
        search.append(of_class[:share])
        check.append(of_class[share : 2 * share])
    return Parts(np.sort(np.concatenate(search)), np.sort(np.concatenate(check)))
