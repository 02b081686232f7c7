"""Which features differ between the classes: each column by itself, whatever the others do.

With class means m_c of a column, about its mean, n_c samples in class c and n in all, the ratio of variances

    F = Σ n_c m_c² / (D - 1)  /  Σ_c Σ_i (x_i - m_c)² / (n - D)

is t² for two classes; p is its upper tail, q the false discovery rate at which a column would be reported
[Benjamini and Hochberg 1995]. Beside covariates, squares are those that regressions leave: between classes,
what covariates alone leave less what covariates and classes leave (the analysis of covariance).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import fdtrc
from scipy.stats import rankdata

from foldless.beliefs import Array
from foldless.operators import Operator
from foldless.registry import registered


@registered("selection/class-sums")
@dataclass(frozen=True, eq=False)
class ClassSums:
    """Means of columns of unit variance in every class; all that tests of single columns need."""

    means: Array  # (features, classes), about the mean of all; with covariates, at equal values of these
    class_weight: Array  # (classes,)
    left: Array | None = None  # (features, 2): squares that covariates leave, and they and classes together
    n_covariates: int = 0

    @property
    def _between(self) -> Array:
        if self.left is None:
            return np.asarray(np.square(self.means) @ self.class_weight)
        return np.asarray(np.maximum(self.left[:, 0] - self.left[:, 1], 0.0))

    @property
    def _freedom(self) -> float:
        return max(float(self.class_weight.sum()) - self.class_weight.size - self.n_covariates, 1.0)

    @property
    def _within(self) -> Array:
        """Mean squares within classes. What n samples cannot show to be less than 1/n is taken for that."""
        total = float(self.class_weight.sum())
        within = total - self._between if self.left is None else self.left[:, 1]
        return np.maximum(within / self._freedom, 1.0 / total)

    @property
    def ratio(self) -> Array:
        """F; zero where all means are equal, as those of constant columns are."""
        return np.asarray(self._between / (self.class_weight.size - 1) / self._within)

    @property
    def change(self) -> Array:
        """Between class means, in standard deviations of the column; of several classes the largest."""
        two = self.class_weight.size == 2
        return np.asarray(self.means[:, 1] - self.means[:, 0] if two else np.ptp(self.means, axis=1))

    @property
    def difference(self) -> Array:
        """The change, in standard deviations within classes."""
        return np.asarray(self.change / np.sqrt(self._within))

    @property
    def t(self) -> Array:
        """Of each class against all others, with the spread within all classes; (features, classes).

        Positive where the class is higher. Of two classes, t² is F.
        """
        if self.class_weight.size == 2:
            own = np.copysign(np.sqrt(self.ratio), self.change)
            return np.column_stack([-own, own])
        total = self.class_weight.sum()
        others = np.maximum(total - self.class_weight, np.finfo(float).tiny)
        scale = np.sqrt(total * self.class_weight / others)
        return np.asarray(self.means * scale / np.sqrt(self._within)[:, np.newaxis])

    @property
    def p_value(self) -> Array:
        return np.asarray(fdtrc(self.class_weight.size - 1, self._freedom, self.ratio))


def class_sums(
    standardized: Operator,
    codes: NDArray[np.intp],
    sample_weight: Array,
    n_classes: int,
    covariates: ArrayLike = (),
) -> ClassSums:
    """In one pass, and one more beside the columns that are `covariates`."""
    indicator = np.zeros((codes.size, n_classes))
    indicator[np.arange(codes.size), codes] = 1.0
    class_weight = sample_weight @ indicator
    weighted = sample_weight[:, np.newaxis]
    sums = standardized.adjoint(weighted * indicator)
    columns = np.asarray(covariates, dtype=np.intp)
    if not columns.size:
        return ClassSums(sums / np.maximum(class_weight, np.finfo(float).tiny), class_weight)
    values = standardized.columns(columns).astype(np.float64)
    beside = standardized.adjoint(weighted * values)
    both, basis = np.column_stack([indicator, values]), np.column_stack([sums, beside])
    fitted = basis @ np.linalg.pinv((weighted * both).T @ both, hermitian=True)
    total = class_weight.sum()
    left = total - np.column_stack(
        [
            np.sum(beside @ np.linalg.pinv((weighted * values).T @ values, hermitian=True) * beside, axis=1),
            np.sum(fitted * basis, axis=1),
        ]
    )
    means = fitted[:, :n_classes]
    means = means - (means @ class_weight / total)[:, np.newaxis]
    return ClassSums(means, class_weight, np.maximum(left, 0.0), columns.size)


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
