"""Which features differ between the classes: each column by itself, whatever the others do.

With class means m_c of a column, about its mean, n_c samples in class c and n in all, the ratio of variances

    F = Σ n_c m_c² / (D - 1)  /  Σ_c Σ_i (x_i - m_c)² / (n - D)

is t² for two classes; p is its upper tail, q the false discovery rate at which a column would be reported
[Benjamini and Hochberg 1995].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc
from scipy.stats import rankdata

from foldless.beliefs import Array
from foldless.operators import Operator
from foldless.registry import registered


@registered("selection/class-sums")
@dataclass(frozen=True, eq=False)
class ClassSums:
    """Means of columns of unit variance in every class; all that tests of single columns need."""

    means: Array  # (features, classes), about the mean of all
    class_weight: Array  # (classes,)

    @property
    def _within(self) -> Array:
        """Mean squares within classes. What n samples cannot show to be less than 1/n is taken for that."""
        total, n_classes = float(self.class_weight.sum()), self.class_weight.size
        between = np.square(self.means) @ self.class_weight
        freedom = max(total - n_classes, 1.0)
        return np.maximum((total - between) / freedom, 1.0 / total)

    @property
    def ratio(self) -> Array:
        """F; zero where all means are equal, as those of constant columns are."""
        between = np.square(self.means) @ self.class_weight / (self.class_weight.size - 1)
        return np.asarray(between / self._within)

    @property
    def difference(self) -> Array:
        """Between class means, in standard deviations within classes; of several classes the largest."""
        if self.class_weight.size == 2:
            return np.asarray((self.means[:, 1] - self.means[:, 0]) / np.sqrt(self._within))
        return np.asarray(np.ptp(self.means, axis=1) / np.sqrt(self._within))

    @property
    def p_value(self) -> Array:
        n_classes, total = self.class_weight.size, float(self.class_weight.sum())
        return np.asarray(fdtrc(n_classes - 1, max(total - n_classes, 1.0), self.ratio))


def class_sums(
    standardized: Operator, codes: NDArray[np.intp], sample_weight: Array, n_classes: int
) -> ClassSums:
    """In one pass."""
    indicator = np.zeros((codes.size, n_classes))
    indicator[np.arange(codes.size), codes] = sample_weight
    class_weight = indicator.sum(axis=0)
    sums = standardized.adjoint(indicator)
    return ClassSums(sums / np.maximum(class_weight, np.finfo(float).tiny), class_weight)


def q_values(p_values: Array) -> Array:
    """The smallest false discovery rate at which each would be among those reported."""
    n = p_values.size
    order = np.argsort(p_values, kind="stable")[::-1]
    rate = np.minimum.accumulate(p_values[order] * n / np.arange(n, 0, -1))
    found = np.empty(n)
    found[order] = np.minimum(rate, 1.0)
    return found


def areas(operator: Operator, codes: NDArray[np.intp], n_classes: int, sample_weight: Array) -> Array:
    """The area under the curve of every column: P(a value of the second class is the larger one).

    Of several classes, that of the class which is told best from all others. Weights are taken for present
    or not: ranks have none.
    """
    used = sample_weight > 0
    codes = codes[used]
    sides: Sequence[int] = (1,) if n_classes == 2 else range(n_classes)
    found = np.empty(operator.shape[1])
    for columns, tile in operator.dense_columns():
        ranks = rankdata(tile[used], axis=0)
        each = []
        for side in sides:
            inside = codes == side
            n_in, n_out = int(inside.sum()), int((~inside).sum())
            each.append((ranks[inside].sum(axis=0) - n_in * (n_in + 1) / 2) / max(n_in * n_out, 1))
        area = np.array(each)
        best = np.argmax(np.abs(area - 0.5), axis=0)
        found[columns] = area[best, np.arange(area.shape[1])]
    return found
