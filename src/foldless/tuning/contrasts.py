"""What class means say of each feature, with all samples and without some of them.

t² of a feature is the squared difference of its class means over the variance of that difference; without
any difference between the classes its mean is 1. max(t² - 1, 0) is therefore the part that noise does not
explain, and what a weight's prior variance may be made of. The middle between the class means is where
a linear classifier that knows nothing else has its boundary.

Whatever is made of labels has seen the label it is to predict: leave-one-out needs all of this without the
left-out samples as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array


class ClassContrast(NamedTuple):
    """Of some columns, (columns,) with all samples or (groups, columns) without each group."""

    relevance: Array  # max(t² - 1, 0)
    middle: Array  # between the class means


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Class contrasts of columns of unit variance, for labels, weights, and groups to be left out."""

    labels: Array
    sample_weight: Array
    lost: Array  # the weight that leaving a sample out takes from it
    group: NDArray[np.intp]  # of every sample, 0 to n_groups - 1: samples left out together

    @cached_property
    def n_groups(self) -> int:
        return int(self.group.max()) + 1

    @cached_property
    def one_by_one(self) -> bool:
        """Whether group n is sample n alone."""
        return self.n_groups == self.labels.size and bool(np.all(np.diff(self.group) == 1))

    def of(self, tile: Array) -> ClassContrast:
        """With all samples."""
        squares = tile * tile
        sides = [(float(w.sum()), w @ tile, w @ squares) for w in self._sides(self.sample_weight)]
        return _contrast(*sides, fallback=np.zeros(tile.shape[1]))

    def without_groups(self, tile: Array) -> ClassContrast:
        """Without each group in turn."""
        squares = tile * tile
        sides = []
        for weight, lost in zip(self._sides(self.sample_weight), self._sides(self.lost), strict=True):
            count, total, square = float(weight.sum()), weight @ tile, weight @ squares
            if self.one_by_one:
                gone = lost[:, np.newaxis]
                sides.append((count - gone, total - gone * tile, square - gone * squares))
            else:
                taken = np.zeros((self.n_groups, self.labels.size))
                taken[self.group, np.arange(self.labels.size)] = lost
                gone = taken.sum(axis=1, keepdims=True)
                sides.append((count - gone, total - taken @ tile, square - taken @ squares))
        return _contrast(*sides, fallback=self.of(tile).middle)

    def _sides(self, weight: Array) -> tuple[Array, Array]:
        return weight * (self.labels > 0), weight * (self.labels < 0)


_Side = tuple[Array | float, Array, Array]  # count, sum and sum of squares of a class


def _contrast(first: _Side, second: _Side, *, fallback: Array) -> ClassContrast:
    """From counts, sums and sums of squares of the two classes; nothing is known without one of them."""
    (n_first, sum_first, square_first), (n_second, sum_second, square_second) = first, second
    # What rounding leaves of a class that was taken out is no sample.
    known = (np.asarray(n_first) > 1e-6) & (np.asarray(n_second) > 1e-6)
    n_first, n_second = np.where(known, n_first, 1.0), np.where(known, n_second, 1.0)
    mean_first, mean_second = sum_first / n_first, sum_second / n_second
    total = n_first + n_second
    within = square_first - sum_first * mean_first + square_second - sum_second * mean_second
    # n samples cannot show that less than 1/n of a column's unit variance is within the classes.
    variance = np.maximum(within / np.maximum(total - 2.0, 1.0), 1.0 / total)
    t_squared = (mean_first - mean_second) ** 2 / (variance * (1.0 / n_first + 1.0 / n_second))
    return ClassContrast(
        np.where(known, np.maximum(t_squared - 1.0, 0.0), 0.0),
        np.where(known, (mean_first + mean_second) / 2, fallback),
    )
