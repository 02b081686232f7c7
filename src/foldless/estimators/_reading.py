"""From what a user passes to what is fitted: X to an operator, weights of samples and classes to numbers.

Arrays, frames and sparse matrices in memory are checked by scikit-learn. Data that live elsewhere (a
`Storage` over files or a cluster) cannot be looked at before the first sweep; shapes, names and labels are
checked here, and values that are not finite show in the moments of their columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import column_or_1d, compute_sample_weight
from sklearn.utils.validation import _check_sample_weight, validate_data

from foldless.beliefs import Array
from foldless.operators import Storage, operator_from, stays_elsewhere

# These are used as they are: any layout, both precisions, both sparse formats, both index widths. What else
# scikit-learn accepts (frames, other sparse formats, other numbers) it converts first.
STORAGE = {"accept_sparse": ("csr", "csc"), "accept_large_sparse": True, "dtype": (np.float64, np.float32)}
# Operators bring small integers (genotypes, counts) to floating point a tile at a time.
INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32)
TILED_STORAGE = STORAGE | {"dtype": (np.float64, np.float32, *INTEGERS)}


def training_data(estimator: BaseEstimator, X: Any, y: ArrayLike) -> tuple[Storage, NDArray[Any]]:
    """The operator of a table to learn from, and its labels; the estimator takes note of the columns."""
    if not stays_elsewhere(X):
        X, targets = validate_data(estimator, X, y, ensure_min_samples=2, **TILED_STORAGE)
        return operator_from(X), targets
    operator = operator_from(X)
    # Labels may live elsewhere, too (a column of a Dask frame), but they are few.
    targets = column_or_1d(np.asarray(y), warn=True)
    n_rows, n_columns = operator.shape
    if targets.size != n_rows:
        raise ValueError(f"X has {n_rows} rows, but y has {targets.size} labels. Each row needs one.")
    if n_rows < 2 or n_columns < 1:
        raise ValueError(f"X has shape {operator.shape}; at least 2 samples and 1 feature are needed.")
    estimator.n_features_in_ = n_columns
    if operator.column_names is not None:
        estimator.feature_names_in_ = np.asarray(operator.column_names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_  # of an earlier fit
    return operator, targets


def new_data(estimator: BaseEstimator, X: Any) -> Storage:
    """The operator of new samples, with the columns of the fit."""
    if not stays_elsewhere(X):
        return operator_from(validate_data(estimator, X, reset=False, **TILED_STORAGE))
    operator = operator_from(X)
    expected = int(estimator.n_features_in_)
    if operator.shape[1] != expected:
        raise ValueError(
            f"X has {operator.shape[1]} features, but {type(estimator).__name__} is expecting {expected} "
            "features as input."
        )
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None and operator.column_names is not None:
        differs = np.flatnonzero(np.asarray(operator.column_names, dtype=object) != names)
        if differs.size:
            first = int(differs[0])
            raise ValueError(
                f"The columns of X are not those of the fit, in their order: column {first} is "
                f"{operator.column_names[first]!r} instead of {names[first]!r}."
            )
    return operator


class SampleWeights(NamedTuple):
    """How much each sample counts in the fit, and as how many samples in averages over left-out ones."""

    counted: Array
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
        return SampleWeights(given, given)
    of_class = compute_sample_weight(class_weight, y)
    if not (np.all(np.isfinite(of_class)) and np.all(of_class > 0)):
        raise ValueError(
            f"class_weight={class_weight!r} gives a class a weight that is not positive and finite. "
            "Every class needs one above 0."
        )
    # A class weight is no number of samples: errors are those of the samples that were given.
    return SampleWeights(given * of_class, given)
