"""What pictures and reports read off a fitted model and its table: comparable weights, an order, values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.estimators._summary import Summary

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
    """A fitted attribute, or an error with what to do about a model without it."""
    if not hasattr(model, "coef_"):
        raise ValueError(f"This {type(model).__name__} is not fitted. Call fit first.")
    if not hasattr(model, name):
        raise ValueError(f"{type(model).__name__} has no {name}. {otherwise}")
    return getattr(model, name)


def weights_of(summary: Summary) -> Weights:
    """The weights of a fitted model, per standard deviation of a feature where that is known.

    `coef_` is in the units of the table, in which a gene measured in thousands has a small weight however
    much it matters. A picture compares features, so it needs them on one scale.
    """
    mean, std, scale = summary.weights, summary.weight_std, summary.scale
    if scale is None:
        return Weights(mean, std, "unit of the feature")
    return Weights(mean * scale, None if std is None else std * scale, "standard deviation")


def ranking(summary: Summary) -> NDArray[np.intp]:
    """Features from the surest to the least sure; by the size of their weights where that is equal."""
    size = np.abs(weights_of(summary).at_largest)
    if summary.inclusion is None:
        return np.argsort(-size, kind="stable")
    return np.lexsort((-size, -summary.inclusion))


def shown_features(summary: Summary, fdr: float | None = None) -> NDArray[np.intp]:
    """Of which values are shown: those selected, else those that differ most, else the surest."""
    order = ranking(summary)
    selected = order[np.isin(order, summary.selected(fdr))]
    free = order[~np.isin(order, summary.kept)]
    return next((each for each in (selected, summary.differing(fdr), free) if each.size), order)


def standard_values(X: Any, columns: NDArray[np.intp]) -> NDArray[np.float64]:
    """Of some columns of a table, in standard deviations about the mean; what is missing is in the middle."""
    chosen = X.iloc[:, columns] if hasattr(X, "iloc") else X[:, columns]
    values = np.asarray(chosen.toarray() if hasattr(chosen, "toarray") else chosen, dtype=np.float64)
    values = values - np.nanmean(values, axis=0)
    spread = np.nanstd(values, axis=0)
    return np.asarray(np.nan_to_num(values / np.where(spread > 0, spread, 1.0)), dtype=np.float64)


def class_codes(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Positions of labels among the classes of a model."""
    found = labels.ravel()[:, np.newaxis] == classes
    known = np.any(found, axis=1)
    if not known.all():
        stranger = labels.ravel()[~known].tolist()[0]
        raise ValueError(
            f"y has the label {stranger!r}, which is not among the classes of the model, "
            f"{classes[:10].tolist()}. Pass the labels that the model was fitted to."
        )
    return np.argmax(found, axis=1)
