"""Columns that are nearly always zero, such as words, and units for them.

Per standard deviation, a word in one document of ten thousand is a hundred times as large there as a word in
all. With one size of weights per standard deviation, dense models would describe documents by words that
hardly any other has; diagonal covariances cannot leave such words out with their document, so that
leave-one-out promises what new documents do not keep. So dense models have one size of weights per
occurrence: prior variances in proportion to how often a column is not zero.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.operators import Standardized

# Most words are in fewer rows than this share; most genotypes, and counts of what is common, in more.
RARE = 0.1


def mostly_zeros(standardized: Standardized, sample_weight: Array, free: NDArray[np.bool_]) -> bool:
    """Whether most of the free columns are as rare as words."""
    return _are_rare(standardized.nonzero_fraction(sample_weight)[free])


def _are_rare(presence: Array) -> bool:
    return bool(presence.size and np.median(presence) < RARE)


def word_units(standardized: Standardized, sample_weight: Array, free: NDArray[np.bool_]) -> Array | None:
    """Units of columns in which all weights of a dense model have one prior; None unless they are words."""
    presence = standardized.nonzero_fraction(sample_weight)[free]
    if not _are_rare(presence):
        return None
    unit = np.ones(free.size)
    unit[free] = np.sqrt(np.maximum(presence, 1.0 / standardized.shape[0]))
    unit[free] /= np.sqrt(np.mean(unit[free] ** 2))
    return unit


def in_units(standardized: Standardized, unit: Array | None) -> Standardized:
    """The same columns counted in units, if any: each value is so many times as large."""
    if unit is None:
        return standardized
    return Standardized(
        standardized.operator, standardized.center, standardized.scale / unit, standardized.constant
    )
