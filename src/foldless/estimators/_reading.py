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
# Of one number made of a row, relative to the largest: closer ones are compared column by column.
NEARLY_EQUAL = 1e-6
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
    first: NDArray[np.intp] | None = None  # of samples equal to each, if any are: that one counts for all

    def for_equals(self, of_samples: Array) -> Array:
        """What was found for samples that count, for those they stand for, too."""
        return of_samples if self.first is None else of_samples[self.first]


def sample_weights(
    y: NDArray[Any],
    sample_weight: ArrayLike | None,
    class_weight: Any,
    classes: NDArray[Any],
    rows: Storage | None = None,
) -> SampleWeights:
    """Checked: every class has a sample that counts, and a class weight above zero.

    Equal ones of the `rows`, if given, count as one row with the weight of all: so a row twice is a row of
    weight 2 when samples are left out as well, and no copy of a row predicts the label of another.
    """
    weight = None if sample_weight is None else np.asarray(sample_weight)
    given = np.asarray(_check_sample_weight(weight, y, dtype=np.float64, ensure_non_negative=True))
    for label in classes:
        if not np.any(given[y == label] > 0):
            raise ValueError(
                f"After removing samples of weight zero, class {label!r} has no samples left, and one "
                "class cannot be told from nothing. Give a sample of each class a positive weight."
            )
    if class_weight is None:
        return _gathered(SampleWeights(given, given), y, rows)
    of_class = compute_sample_weight(class_weight, y)
    if not (np.all(np.isfinite(of_class)) and np.all(of_class > 0)):
        raise ValueError(
            f"class_weight={class_weight!r} gives a class a weight that is not positive and finite. "
            "Every class needs one above 0."
        )
    # A class weight is no number of samples: errors are those of the samples that were given.
    return _gathered(SampleWeights(given * of_class, given), y, rows)


def _gathered(weights: SampleWeights, y: NDArray[Any], rows: Storage | None) -> SampleWeights:
    first = None if rows is None else first_of_equals(rows, y, weights.counted)
    if first is None:
        return weights
    counted = np.bincount(first, weights.counted, minlength=first.size).astype(np.float64)
    return SampleWeights(counted, weights.given, first)


def first_of_equals(rows: Storage, y: NDArray[Any], weight: Array) -> NDArray[np.intp] | None:
    """Of every row the position of the first one equal to it, label included; None where there are no copies.

    Where equal rows have different labels, rows are patterns that samples share, as in a table of a few
    answers of yes and no: then equal rows are samples of their own.
    """
    # Equal rows are neighbours in the order of any one number made of all columns, but for rounding.
    mixture = np.asarray(rows.scores(np.cos(np.arange(rows.shape[1]))), dtype=np.float64)
    order = np.argsort(mixture, kind="stable")
    step = np.diff(mixture[order])
    near = np.flatnonzero(step <= NEARLY_EQUAL * max(float(np.abs(mixture).max()), 1.0))
    equal = np.zeros(near.size, dtype=bool)
    left, right = rows.some_rows(order[near]), rows.some_rows(order[near + 1])
    if near.size:
        for (at, tile), (_, other) in zip(left.dense_rows(), right.dense_rows(), strict=True):
            equal[at] = np.all(tile == other, axis=1)
    starts = np.ones(order.size, dtype=bool)
    starts[near[equal] + 1] = False
    pattern = np.empty(order.size, dtype=np.intp)
    pattern[order] = np.cumsum(starts) - 1
    counted = weight > 0
    labels_of = np.unique(np.column_stack([pattern, np.unique(y, return_inverse=True)[1]])[counted], axis=0)
    n_patterns = np.unique(pattern[counted]).size
    if n_patterns == np.count_nonzero(counted) or labels_of.shape[0] > n_patterns:
        return None
    first = np.arange(order.size)
    _, position, of = np.unique(pattern[counted], return_index=True, return_inverse=True)
    first[counted] = np.flatnonzero(counted)[position][of]
    return first
