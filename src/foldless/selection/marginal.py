"""Which features differ between the classes: each column by itself, whatever the others do.

With class means m_c of a column, about its mean, n_c samples in class c and n in all, the ratio of variances

    F = Σ n_c m_c² / (D - 1)  /  Σ_c Σ_i (x_i - m_c)² / (n - D)

is t² for two classes; p is its upper tail, q the false discovery rate at which a column would be reported
[Benjamini and Hochberg 1995]. Beside covariates, squares are those that regressions leave: between classes,
what covariates alone leave less what covariates and classes leave (the analysis of covariance).

That takes rows for independent, each with the weight one. Where rows come in groups or have weights, a group
(of one row, where there are none) is one piece of evidence, however many rows and whatever weights it has.
Each class is compared with all others, and the variance of the difference is taken from what groups
contribute to it [Bell and McCaffrey 2002]: with the design Q of orthonormal columns (classes, covariates;
rows times the root of their weight), the difference v' Q' x, and the residuals r = x - Q Q' x,

    variance = Σ_g (b_g' r_g)²,    b_g = Q_g (1 - Q_g' Q_g)^(-1/2) v,

and t has as many degrees of freedom as that variance would have if rows were independent. Of pairs this is
the paired t test, of groups that have one class and equal sizes the t test of their means, and of rows with
class weights Welch's. Of several classes, p is that of the clearest one times their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import fdtrc, stdtr
from scipy.stats import rankdata

from foldless.beliefs import Array
from foldless.operators import Operator
from foldless.registry import registered

# Groups whose contributions are summed in one pass.
GROUPS_AT_ONCE = 256
# A group holds all there is of a class, but for rounding: nothing shows how far groups of it differ.
WHOLE = 1.0 - 1e-9
# Of a length that is none but for rounding.
TOLERANCE = 1e-7


@registered("selection/class-sums")
@dataclass(frozen=True, eq=False)
class ClassSums:
    """Means of columns of unit variance in every class; all that tests of single columns need."""

    means: Array  # (features, classes), about the mean of all; with covariates, at equal values of these
    class_weight: Array  # (classes,)
    left: Array | None = None  # (features, 2): squares that covariates leave, and they and classes together
    n_covariates: int = 0
    # Where rows come in groups or have weights: of each class against all others.
    of_groups: Array | None = None  # (features, classes): t
    freedom_of_groups: Array | None = None  # (classes,); zero where nothing can be tested

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
        if self.of_groups is not None:
            return self.of_groups
        if self.class_weight.size == 2:
            own = np.copysign(np.sqrt(self.ratio), self.change)
            return np.column_stack([-own, own])
        total = self.class_weight.sum()
        others = np.maximum(total - self.class_weight, np.finfo(float).tiny)
        scale = np.sqrt(total * self.class_weight / others)
        return np.asarray(self.means * scale / np.sqrt(self._within)[:, np.newaxis])

    @property
    def p_value(self) -> Array:
        if self.of_groups is not None:
            assert self.freedom_of_groups is not None
            tail = stdtr(np.maximum(self.freedom_of_groups, 1.0), -np.abs(self.of_groups))
            compared = 1 if self.class_weight.size == 2 else self.class_weight.size
            return np.asarray(np.minimum(2.0 * compared * tail.min(axis=1), 1.0))
        return np.asarray(fdtrc(self.class_weight.size - 1, self._freedom, self.ratio))


def class_sums(
    standardized: Operator,
    codes: NDArray[np.intp],
    sample_weight: Array,
    n_classes: int,
    covariates: ArrayLike = (),
    group: NDArray[np.intp] | None = None,
) -> ClassSums:
    """In one pass, one more beside the columns that are `covariates`, and some more of groups and weights."""
    columns = np.asarray(covariates, dtype=np.intp)
    found = _class_sums(standardized, codes, sample_weight, n_classes, columns)
    if group is None and np.all((sample_weight == 0.0) | (sample_weight == 1.0)):
        return found
    design = np.column_stack([np.eye(n_classes)[codes], standardized.columns(columns)])
    t, freedom = _t_of_groups(standardized, design, sample_weight, n_classes, group)
    return replace(found, of_groups=t, freedom_of_groups=freedom)


def _class_sums(
    standardized: Operator,
    codes: NDArray[np.intp],
    sample_weight: Array,
    n_classes: int,
    columns: NDArray[np.intp],
) -> ClassSums:
    indicator = np.zeros((codes.size, n_classes))
    indicator[np.arange(codes.size), codes] = 1.0
    class_weight = sample_weight @ indicator
    weighted = sample_weight[:, np.newaxis]
    sums = standardized.adjoint(weighted * indicator)
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


def _t_of_groups(
    standardized: Operator,
    design: Array,
    sample_weight: Array,
    n_classes: int,
    group: NDArray[np.intp] | None,
) -> tuple[Array, Array]:
    """Of each class against all others, by the variance between groups, and its degrees of freedom."""
    root = np.sqrt(sample_weight)
    basis, lengths, turned = np.linalg.svd(root[:, np.newaxis] * design, full_matrices=False)
    full = lengths > lengths[0] * max(design.shape) * np.finfo(float).eps
    basis, lengths, turned = basis[:, full], lengths[full], turned[full]
    contrasts = _contrasts(sample_weight @ design[:, :n_classes], design.shape[1])
    along = (turned @ contrasts) / lengths[:, np.newaxis]
    # Covariates may tell a class from all others: then nothing is left of it.
    lost = np.linalg.norm(turned.T @ (turned @ contrasts) - contrasts, axis=0)
    testable = lost <= TOLERANCE * np.linalg.norm(contrasts, axis=0)
    rows = _row_values(basis, along, testable, group)
    fitted = standardized.adjoint(root[:, np.newaxis] * basis)
    own = np.arange(root.size) if group is None else np.unique(group, return_inverse=True)[1]
    if group is None and design.shape[1] == n_classes:
        means = fitted @ (turned / lengths[:, np.newaxis])
        within = _within_classes(standardized, basis, sample_weight, design > 0, means)
    one = np.eye(basis.shape[1])
    core = np.block([[0.0 * one, one], [one, -(basis.T * sample_weight) @ basis]])
    t, freedom = np.zeros((len(fitted), n_classes)), np.zeros(n_classes)
    for k in range(1 if n_classes == 2 else 0, n_classes):
        if not testable[k]:
            continue
        # With C' x what every group adds, were rows independent: trace and square of C' C = D - P K P'.
        weighing, across = root * rows[:, k], np.zeros((int(own.max()) + 1, 2 * basis.shape[1]))
        sides = np.hstack([sample_weight[:, np.newaxis] * basis, basis])
        np.add.at(across, own, rows[:, k, np.newaxis] * sides)
        squares = np.bincount(own, weighing**2)
        product = core @ (across.T @ across)
        of_each = np.einsum("gi,gi->g", across @ core, across)
        trace = float(squares.sum() - np.trace(product))
        squared = float(squares @ squares - 2.0 * (squares @ of_each) + np.sum(product * product.T))
        if trace <= 0.0 or squared <= 0.0:
            continue
        freedom[k] = trace**2 / squared
        if group is None and design.shape[1] == n_classes:
            var = within @ np.square(contrasts[:, k] / (sample_weight @ design))
        elif group is None:
            var = _of_single_rows(standardized, root, rows[:, k], basis, fitted)
        else:
            var = _of_groups(standardized, weighing, own, across[:, basis.shape[1] :], fitted)
        # What n samples cannot show to be less than 1/n is taken for that.
        t[:, k] = fitted @ along[:, k] / np.sqrt(np.maximum(var, trace / np.count_nonzero(sample_weight)))
    if n_classes == 2:
        t[:, 0], freedom[0] = -t[:, 1], freedom[1]
    return t, freedom


def _contrasts(class_weight: Array, n_columns: int) -> Array:
    """(columns of the design, classes): each class less all others."""
    others = np.maximum(class_weight.sum() - class_weight, np.finfo(float).tiny)
    contrasts = np.zeros((n_columns, class_weight.size))
    contrasts[: class_weight.size] = -class_weight[:, np.newaxis] / others
    np.fill_diagonal(contrasts, 1.0)
    return contrasts


def _row_values(
    basis: Array, along: Array, testable: NDArray[np.bool_], group: NDArray[np.intp] | None
) -> Array:
    """(rows, classes): b, which makes up for what a group takes of its own residuals.

    What cannot be told, since a group holds a whole class, becomes untestable in place.
    """
    tiny = TOLERANCE * np.linalg.norm(along, axis=0)
    if group is None:
        share, seen = np.einsum("ij,ij->i", basis, basis), basis @ along
        whole = share > WHOLE
        testable &= ~np.any(np.abs(seen[whole]) > tiny, axis=0)
        return np.where(whole, 0.0, 1.0 / np.sqrt(np.where(whole, 1.0, 1.0 - share)))[:, np.newaxis] * seen
    order = np.argsort(group, kind="stable")
    found = np.empty((len(basis), along.shape[1]))
    for of_group in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        left, share, right = np.linalg.svd(basis[of_group], full_matrices=False)
        whole, seen = share**2 > WHOLE, right @ along
        testable &= ~np.any(np.abs(seen[whole]) > tiny, axis=0)
        lifted = np.where(whole, 0.0, share / np.sqrt(np.where(whole, 1.0, 1.0 - share**2)))
        found[of_group] = (left * lifted) @ seen
    return found


def _of_groups(
    standardized: Operator, weighing: Array, group: NDArray[np.intp], across: Array, fitted: Array
) -> Array:
    """(features,): squares of what every group adds, summed over groups."""
    var = np.zeros(len(fitted))
    for start in range(0, len(across), GROUPS_AT_ONCE):
        stop = min(start + GROUPS_AT_ONCE, len(across))
        values = np.zeros((group.size, stop - start))
        here = np.flatnonzero((group >= start) & (group < stop))
        values[here, group[here] - start] = weighing[here]
        added = standardized.adjoint(values) - fitted @ across[start:stop].T
        var += np.einsum("ij,ij->i", added, added)
    return var


def _within_classes(
    standardized: Operator, basis: Array, sample_weight: Array, of_class: NDArray[np.bool_], means: Array
) -> Array:
    """(features, classes): of every class Σ (b w)² (x - mean)², which all contrasts share."""
    left = np.maximum(1.0 - np.einsum("ij,ij->i", basis, basis), 1.0 - WHOLE)
    found = np.zeros(means.shape)
    for k, inside in enumerate(of_class.T):
        weight = np.where(inside, sample_weight**2 / left, 0.0)
        mean, var = standardized.column_moments(weight)
        found[:, k] = weight.sum() * (var + np.square(mean - means[:, k]))
    return found


def _of_single_rows(standardized: Operator, root: Array, rows: Array, basis: Array, fitted: Array) -> Array:
    """The same where every row is a group, beside covariates: Σ b² (x - q' f)², squares multiplied out."""
    square, weight = rows**2, (root * rows) ** 2
    mean, var = standardized.column_moments(weight)
    of_x = (var + mean**2) * float(weight.sum())
    cross = standardized.adjoint((root * square)[:, np.newaxis] * basis)
    between = np.einsum("ij,ij->i", fitted, fitted @ ((square[:, np.newaxis] * basis).T @ basis))
    return np.asarray(np.maximum(of_x - 2.0 * np.sum(cross * fitted, axis=1) + between, 0.0))


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
