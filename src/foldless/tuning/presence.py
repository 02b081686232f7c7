"""Units for columns that are mostly zeros, such as words.

Per standard deviation, a word in one document of ten thousand is a hundred times as large there as a word in
all. With one size of weights per standard deviation, dense models would describe documents by words that
hardly any other has; diagonal covariances cannot leave such words out with their document, so that
leave-one-out promises what new documents do not keep. So prior variances of dense models follow how often a
column is not zero: power 0 is one size of weights per standard deviation, power 1 is one per occurrence.
Columns without zeros are all alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.operators import Standardized


def presence_units(
    standardized: Standardized, sample_weight: Array, free: NDArray[np.bool_], power: float
) -> Array:
    """A unit for each column, in which all weights of a dense model have one prior; 1 where not `free`."""
    presence = np.maximum(standardized.presence(sample_weight), 1.0 / standardized.shape[0])
    unit = np.where(free, presence ** (power / 2), 1.0)
    if free.any():
        unit[free] /= np.sqrt(np.mean(unit[free] ** 2))
    return unit


def in_units(standardized: Standardized, unit: Array) -> Standardized:
    """The same columns counted in units: each value is so many times as large."""
    return Standardized(
        standardized.operator, standardized.center, standardized.scale / unit, standardized.constant
    )
