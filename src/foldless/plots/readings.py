"""What pictures and reports read off a fitted model: comparable weights, and an order of features."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array

# Half the width of an interval that holds 90 % of a normal distribution, in standard deviations.
NORMAL_90 = 1.645


class Weights(NamedTuple):
    """Weights of every feature, one row for each score: one of two classes, one per class of more."""

    mean: Array
    std: Array | None  # of the posterior, if the model has one
    per: str  # "standard deviation" or "unit of the feature"

    @property
    def largest(self) -> NDArray[np.intp]:
        """For each feature the row in which its weight is largest in size."""
        return np.asarray(np.argmax(np.abs(self.mean), axis=0))

    @property
    def at_largest(self) -> Array:
        """The largest weight of each feature, with its sign."""
        return np.asarray(np.take_along_axis(self.mean, self.largest[np.newaxis], axis=0)[0])


def read(model: Any, name: str, otherwise: str) -> Any:
    """A fitted attribute, or an error that says what to do about a model without it."""
    if not hasattr(model, "coef_"):
        raise ValueError(f"This {type(model).__name__} is not fitted. Call fit first.")
    if not hasattr(model, name):
        raise ValueError(f"{type(model).__name__} has no {name}. {otherwise}")
    return getattr(model, name)


def weights_of(model: Any) -> Weights:
    """The weights of a fitted model, per standard deviation of a feature where the model knows that.

    `coef_` is in the units of the table, in which a gene measured in thousands has a small weight however
    much it matters. A picture compares features, so it needs them on one scale.
    """
    coef = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    std = getattr(model, "coef_std_", None)
    std = None if std is None else np.atleast_2d(np.asarray(std, dtype=np.float64))
    scale = getattr(model, "_scale", None)
    if scale is None or len(scale) != coef.shape[1] or not getattr(model, "standardize", True):
        return Weights(coef, std, "unit of the feature")
    return Weights(coef * scale, None if std is None else std * scale, "standard deviation")


def tolerance_of(model: Any) -> float | None:
    """The change of the weights at which the iteration of a model ends, as far as it is known.

    Exact covariances are iterated less far than message passing: their steps are dear, and their last digits
    change nothing.
    """
    tol = getattr(model, "tol", None)
    if tol is None or getattr(model, "solver_", None) != "EP":
        return None if tol is None else float(tol)
    from foldless.tuning.correlated import SPARSE_TOLERANCE

    return max(float(tol), SPARSE_TOLERANCE)


def ranking(model: Any) -> NDArray[np.intp]:
    """Features from the surest to the least sure; by the size of their weights where that is equal."""
    size = np.abs(weights_of(model).at_largest)
    inclusion = getattr(model, "inclusion_probability_", None)
    if inclusion is None:
        return np.argsort(-size, kind="stable")
    return np.lexsort((-size, -np.asarray(inclusion, dtype=np.float64)))
