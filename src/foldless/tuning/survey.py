"""One look at a table before anything is fitted: what a plan is made from.

Numbers that decide (`Facts`) are apart from arrays over columns, which models use. All are sums over rows and
columns, so that they depend neither on the order of these nor on where the table is kept. Besides the pass
that standardised the columns, a survey takes two passes over the data, and `SWEEPS` for their correlations.

Are columns correlated, other than by class? For independent columns of unit variance, the eigenvalues of
X Xᵀ / N end at (1 + √(M/N))² for M samples of N columns [Marchenko and Pastur 1967]. Common factors,
neighbours and batches push the largest beyond that edge, and it is there that message passing with diagonal
covariances fails. A difference between classes would do so, too; so columns are taken about the means of
their classes and brought to unit variance there. With K classes that leaves M - K directions to M samples:

    edge = M / (M - K) (1 + √((M - K) / N))².

The largest eigenvalue is found by the method of Lanczos [Golub and Van Loan 2013, section 10.1], without
X Xᵀ. It comes from below: what is reported can be too small, never too large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal

from foldless.beliefs import Array
from foldless.operators import Standardized

# Independent columns are then at .95 to .98 of the edge; what lies clearly beyond it has converged.
SWEEPS = 6
# Of its variance, what a column must keep within classes. Less may be rounding, and would be blown up.
LEAST_WITHIN = 1e-4


@dataclass(frozen=True)
class Facts:
    """What a plan depends on. Samples without weight do not count."""

    n_samples: int
    n_features: int
    n_classes: int
    total_weight: float  # of samples
    n_free: int  # columns that vary and may be left out of a model
    nnz: int  # entries that are not zero; an estimate where weights of samples differ
    median_nonzero_fraction: float  # of free columns; 1 if there are none
    spectral_excess: float  # largest eigenvalue within classes over the edge for independent columns


@dataclass(frozen=True, eq=False)
class Survey:
    """Facts, and what is known of every column, in units of its standard deviation."""

    facts: Facts
    free: NDArray[np.bool_]  # (features,)
    nonzero_fraction: Array  # (features,): share of the weight on rows in which the column is not zero
    class_weight: Array  # (classes,): weight of their samples
    class_means: Array  # (features, classes), about the mean of all; zero where a class has no weight
    within_var: Array  # (features,): variance about the means of classes, at most 1


def survey(
    standardized: Standardized,
    labels: Array,
    sample_weight: Array,
    n_classes: int,
    always_kept: Sequence[int] = (),
) -> Survey:
    """Look at columns that were standardised under these weights.

    Labels are -1 and 1, or 0 and 1, for two classes, and 0 to n_classes - 1 for more.
    """
    weight = np.asarray(sample_weight, dtype=np.float64)
    free = ~standardized.constant
    free[list(always_kept)] = False
    n_samples, total = int(np.count_nonzero(weight)), float(weight.sum())
    nonzero_weight = standardized.nonzero_weight(weight)
    nonzero_fraction = nonzero_weight / total
    classes = _Classes(labels, weight, n_classes)
    found = _class_moments(standardized, classes, free)
    facts = Facts(
        n_samples=n_samples,
        n_features=standardized.shape[1],
        n_classes=n_classes,
        total_weight=total,
        n_free=int(free.sum()),
        nnz=round(float(nonzero_weight.sum()) * n_samples / total),
        median_nonzero_fraction=float(np.median(nonzero_fraction[free])) if free.any() else 1.0,
        spectral_excess=_spectral_excess(standardized, classes, found, free),
    )
    class_means = found.means - (found.means @ classes.weight / total)[:, np.newaxis]
    return Survey(facts, free, nonzero_fraction, classes.weight, class_means, found.within_var)


class _Classes:
    """Which samples belong to which class, with what weight."""

    def __init__(self, labels: Array, sample_weight: Array, n_classes: int) -> None:
        labels = np.asarray(labels)
        self.of_sample: NDArray[np.intp] = (labels > 0 if n_classes == 2 else labels).astype(np.intp)
        self.sample_weight = sample_weight
        self.weight: Array = np.zeros(n_classes)
        np.add.at(self.weight, self.of_sample, sample_weight)

    def means(self, row_values: Array) -> Array:
        """Weighted means within classes of a number for each sample."""
        sums = np.zeros(self.weight.size)
        np.add.at(sums, self.of_sample, self.sample_weight * row_values)
        return self.over_weight(sums)

    def over_weight(self, sums: Array) -> Array:
        """Sums over the samples of each class (last axis) as means; zero where a class has no weight."""
        return np.divide(sums, self.weight, out=np.zeros(sums.shape), where=self.weight > 0)


class _ClassMoments(NamedTuple):
    """Moments of columns by class, and a vector over samples to look for correlations from."""

    means: Array  # (features, classes)
    within_var: Array  # (features,)
    start: Array  # (samples,), with mean zero in every class
    start_back: Array  # (features,): Xᵀ of `start`, counted by weight


def _class_moments(standardized: Standardized, classes: _Classes, free: NDArray[np.bool_]) -> _ClassMoments:
    """In one sweep: its slopes are the indicators of classes, and the start.

    The start is Σ x + x² - 1 over the free columns of a sample. Like a vector at random, it has its share of
    every direction; unlike that it moves with samples, and does not mind the order of columns.
    """
    weight, n_classes = classes.sample_weight, classes.weight.size
    n_free = int(free.sum())
    slopes = np.zeros((weight.size, 1 + n_classes))
    slopes[np.arange(weight.size), 1 + classes.of_sample] = weight
    start = np.zeros(weight.size)

    def row_step(rows: slice, scores: Array, score_var: Array | None) -> tuple[Array, Array | None]:
        assert score_var is not None
        start[rows] = scores[:, 0] + (score_var - n_free)
        slopes[rows, 0] = weight[rows] * start[rows]
        return slopes[rows], weight[rows]

    directions = np.zeros((free.size, 1 + n_classes))
    directions[free, 0] = 1.0
    sums = standardized.sweep(directions, free.astype(np.float64), row_step)
    assert sums.curvatures is not None
    share = classes.weight / classes.weight.sum()
    class_sums = sums.slopes[:, 1:]
    means = classes.over_weight(class_sums)
    within_var = sums.curvatures / classes.weight.sum() - np.square(means) @ share
    within_var[standardized.constant] = 0.0
    start_means = classes.means(start)
    return _ClassMoments(
        means,
        np.maximum(within_var, 0.0),
        start - start_means[classes.of_sample],
        sums.slopes[:, 0] - class_sums @ start_means,
    )


def _spectral_excess(
    standardized: Standardized, classes: _Classes, found: _ClassMoments, free: NDArray[np.bool_]
) -> float:
    """The largest eigenvalue found within classes, over the edge for independent columns.

    With W the weights of samples, P what takes class means away, and V the variances within classes, it is
    that of K = √W P X V⁻¹ Xᵀ Pᵀ √W / N. One sweep takes v and Xᵀ√W v to K v and Xᵀ√W K v, because the class
    means of scores are known before: they are the scores of class means.
    """
    used = free & (found.within_var > LEAST_WITHIN)
    n_used, total = int(used.sum()), float(classes.weight.sum())
    freedom = total - np.count_nonzero(classes.weight)
    if n_used == 0 or freedom <= 0:
        return 0.0
    precision = np.zeros(free.size)
    precision[used] = 1.0 / (n_used * found.within_var[used])
    root = np.sqrt(classes.sample_weight)
    rounding = float(np.sqrt(np.finfo(standardized.dtype).eps))

    vector, back = root * found.start, found.start_back
    if np.linalg.norm(vector) <= rounding * np.sqrt(total * n_used):
        # Rows of one length and one sum. They differ still along the mean that is farthest from the others.
        farthest = int(np.argmax(np.square(found.means).sum(axis=0)))
        along = standardized.scores(found.means[:, farthest])
        vector = root * (along - classes.means(along)[classes.of_sample])
        back = standardized.adjoint(root * vector)

    def image(back: Array) -> tuple[Array, Array]:
        """K v and Xᵀ√W K v from Xᵀ√W v."""
        weights = precision * back
        class_scores = weights @ found.means
        out = np.empty_like(root)

        def row_step(rows: slice, scores: Array, score_var: Array | None) -> tuple[Array, Array | None]:
            within = scores - class_scores[classes.of_sample[rows]]
            out[rows] = root[rows] * within
            return classes.sample_weight[rows] * within, None

        return out, standardized.sweep(weights, None, row_step).slopes

    edge = total / freedom * (1.0 + np.sqrt(freedom / n_used)) ** 2
    return _largest_eigenvalue(image, vector, back, rounding) / float(edge)


def _largest_eigenvalue(
    image: Callable[[Array], tuple[Array, Array]], vector: Array, back: Array, rounding: float
) -> float:
    """That of a tridiagonal matrix, K in an orthonormal basis of v, K v, K² v, ... (Lanczos)."""
    diagonal: list[float] = []
    beside: list[float] = []
    vector_before, back_before = np.zeros_like(vector), np.zeros_like(back)
    length = float(np.linalg.norm(vector))
    # What is left of an image where nothing new is to be found is rounding.
    while len(diagonal) < SWEEPS and length > rounding * max(diagonal, default=0.0):
        if diagonal:
            beside.append(length)
        vector, back = vector / length, back / length
        next_vector, next_back = image(back)
        diagonal.append(float(vector @ next_vector))
        overlap = beside[-1] if beside else 0.0
        next_vector -= diagonal[-1] * vector + overlap * vector_before
        next_back -= diagonal[-1] * back + overlap * back_before
        vector_before, back_before, vector, back = vector, back, next_vector, next_back
        length = float(np.linalg.norm(vector))
    return float(eigvalsh_tridiagonal(diagonal, beside)[-1]) if diagonal else 0.0
