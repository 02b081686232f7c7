"""Columns that are mostly zeros, such as words, and units for them.

Per standard deviation, a word in one document of ten thousand is a hundred times as large there as a word in
all. With one size of weights per standard deviation, dense models would describe documents by words that
hardly any other has; diagonal covariances cannot leave such words out with their document, so that
leave-one-out promises what new documents do not keep. So dense models have one size of weights per
occurrence: prior variances in proportion to how often a column is not zero. Columns without zeros are alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.operators import Standardized


def mostly_zeros(standardized: Standardized, sample_weight: Array, free: NDArray[np.bool_]) -> bool:
    """Whether a free column is zero in more than half of the rows, on average."""
    return bool(free.any() and np.mean(standardized.presence(sample_weight)[free]) < 0.5)


def presence_units(standardized: Standardized, sample_weight: Array, free: NDArray[np.bool_]) -> Array:
    """A unit for each column, in which all weights of a dense model have one prior; 1 where not `free`."""
    presence = np.maximum(standardized.presence(sample_weight), 1.0 / standardized.shape[0])
    unit = np.where(free, np.sqrt(presence), 1.0)
    if free.any():
        unit[free] /= np.sqrt(np.mean(unit[free] ** 2))
    return unit


def in_units(standardized: Standardized, unit: Array) -> Standardized:
    """The same columns counted in units: each value is so many times as large."""
    return Standardized(
        standardized.operator, standardized.center, standardized.scale / unit, standardized.constant
    )
