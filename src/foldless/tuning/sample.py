"""A part of very many samples, to search with before all of them are looked at.

What a search decides is a handful of numbers: how many features matter, how much, how many labels are wrong,
how far class means are to be trusted. Some ten thousand samples determine them far better than needed, and
give weights to start all samples from. What the whole table answers is then found from there, by all samples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array

# With so many, a proportion is known to a third of a per cent.
ROWS = 20_000
# A part as large as a quarter would save little, and its copy be large beside the table.
LARGEST_SHARE = 0.25


def rows_to_search_with(labels: Array, sample_weight: Array) -> NDArray[np.intp] | None:
    """Positions of rows, drawn within each class and the same every time; None if there are too few."""
    in_use = np.flatnonzero(sample_weight > 0)
    if in_use.size * LARGEST_SHARE < ROWS:
        return None
    rng = np.random.default_rng(0)
    chosen = []
    for label in np.unique(labels[in_use]):
        of_class = in_use[labels[in_use] == label]
        share = max(round(ROWS * of_class.size / in_use.size), 1)
        chosen.append(rng.choice(of_class, share, replace=False))
    return np.sort(np.concatenate(chosen))
