"""How much samples count: weights as given, times those of their classes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import compute_sample_weight
from sklearn.utils.validation import _check_sample_weight

from foldless.beliefs import Array


class SampleWeights(NamedTuple):
    """How much each sample counts, how much of that leave-one-out takes out, and as how many samples."""

    counted: Array
    left_out: Array
    given: Array


def sample_weights(
    y: NDArray[Any], sample_weight: ArrayLike | None, class_weight: Any, classes: NDArray[Any]
) -> SampleWeights:
    """Checked: every class has a sample that counts, and a class weight above zero."""
    weight = None if sample_weight is None else np.asarray(sample_weight)
    given = np.asarray(_check_sample_weight(weight, y, dtype=np.float64, ensure_non_negative=True))
    for label in classes:
        if not np.any(given[y == label] > 0):
            raise ValueError(
                f"After removing samples of weight zero, class {label!r} has no samples left, and one "
                "class cannot be told from nothing. Give a sample of each class a positive weight."
            )
    if class_weight is None:
        return SampleWeights(given, np.minimum(given, 1.0), given)
    of_class = compute_sample_weight(class_weight, y)
    if not (np.all(np.isfinite(of_class)) and np.all(of_class > 0)):
        raise ValueError(
            f"class_weight={class_weight!r} gives a class a weight that is not positive and finite. "
            "Every class needs one above 0."
        )
    # Equal rows are left out one at a time, but a class weight is no row and goes with its sample.
    return SampleWeights(given * of_class, np.minimum(given, 1.0) * of_class, given)
