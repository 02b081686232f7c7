"""One look at a table before anything is fitted: what a plan is made from.

Numbers that decide (`Facts`) are apart from arrays over columns, which models use. All are sums over rows and
columns, so that they depend neither on the order of these nor on where the table is kept. Besides the pass
that standardised the columns, a survey takes two passes over the data, and up to seven for correlations.

Are columns correlated, other than by class? For independent columns of unit variance, the eigenvalues of
X Xᵀ / N end at (1 + √(M/N))² for M samples of N columns [Marchenko and Pastur 1967]. Common factors,
neighbours and batches push the largest beyond that edge, and it is there that message passing with diagonal
covariances fails. A difference between classes would do so, too; so columns are taken about the means of
their classes and brought to unit variance there. With K classes that leaves M - K directions to M samples:

    edge = M / (M - K) (1 + √((M - K) / N))².

Wrong labels leave a part of the difference between classes within them: one direction (of K classes, K - 1)
in which columns go together, and which is no reason against diagonal covariances. Beyond the edge, therefore,
the direction is sought that such a part would have: the difference of class means, sharpened by two products
with the covariance within classes. What is left beside it? Do classes differ along it? And does it have
clusters of samples at its ends, or is it a factor, which is no matter of labels? Samples that form clusters
have short tails: in Q directions, by the kurtosis of squared distances d² from their centre in units of the
covariance [Mardia 1970],

    z = (mean d⁴ - Q (Q + 2)) / √(8 Q (Q + 2) / M),

which of Gaussian columns is as good as standard normal.

A sample of weight 2 is two equal rows, and equal rows go together: unequal weights raise what is reported. An
edge for weights would lower it, but then weights and repeated rows could be fitted by different solvers.

The largest eigenvalue is found by the method of Lanczos [Golub and Van Loan 2013, section 10.1], without
X Xᵀ. It comes from below: what is reported can be too small, never too large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal

from foldless.beliefs import Array
from foldless.operators import Standardized
from foldless.registry import registered

# At most so many sweeps for the largest eigenvalue; the last is one that raises it by no more than a share.
# Independent columns are then at .93 to .98 of the edge; what is far beyond it has converged.
SWEEPS = 6
STABLE = 0.01
# Products with the covariance within classes that a difference of class means is sharpened by. Each makes the
# noise in it smaller, by the ratio of the eigenvalue of wrong labels to that of independent columns.
SHARPENED = 2
# Of its variance, what a column must keep within classes. Less may be rounding, and would be blown up.
LEAST_WITHIN = 1e-4


@registered("plan/facts")
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
    # Where that is beyond the edge, of what columns have in common along the differences of class means: the
    # tails of samples, below zero where these form clusters, and how far apart classes are, both in standard
    # errors; and where there are clusters, the excess beside that.
    class_tails: float = 0.0
    class_gap: float = 0.0
    excess_beside: float = 0.0


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
    labels: NDArray[Any],
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
    share = classes.weight / total
    means = _class_means(standardized, classes)
    # Of all there is 1, in units of the standard deviation.
    within_var = np.where(standardized.constant, 0.0, np.maximum(1.0 - np.square(means) @ share, 0.0))
    spectrum = _Spectrum(standardized, classes, means, within_var, free)
    excess, tails, gap, beside = spectrum.excess(), 0.0, 0.0, 0.0
    if excess > 1.0:
        directions = spectrum.directions()
        tails, gap = spectrum.along(directions)
        beside = spectrum.excess(directions) if tails < 0 else excess
    facts = Facts(
        n_samples=n_samples,
        n_features=standardized.shape[1],
        n_classes=n_classes,
        total_weight=total,
        n_free=int(free.sum()),
        nnz=round(float(nonzero_weight.sum()) * n_samples / total),
        median_nonzero_fraction=float(np.median(nonzero_fraction[free])) if free.any() else 1.0,
        spectral_excess=excess,
        class_tails=tails,
        class_gap=gap,
        excess_beside=beside,
    )
    return Survey(facts, free, nonzero_fraction, classes.weight, means, within_var)


class _Classes:
    """Which samples belong to which class, with what weight."""

    def __init__(self, labels: NDArray[Any], sample_weight: Array, n_classes: int) -> None:
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


def _class_means(standardized: Standardized, classes: _Classes) -> Array:
    """(features, classes), in one pass."""
    indicators = np.zeros((classes.sample_weight.size, classes.weight.size))
    indicators[np.arange(indicators.shape[0]), classes.of_sample] = classes.sample_weight
    return classes.over_weight(standardized.adjoint(indicators))


class _Spectrum:
    """What columns have in common within classes.

    With W the weights of samples, P what takes class means away, and V the variances within classes, the
    eigenvalues are those of K = √W P X V⁻¹ Xᵀ Pᵀ √W / N.
    """

    def __init__(
        self,
        standardized: Standardized,
        classes: _Classes,
        means: Array,
        within_var: Array,
        free: NDArray[np.bool_],
    ) -> None:
        self.standardized, self.classes, self.means = standardized, classes, means
        self.used = free & (within_var > LEAST_WITHIN)
        self.n_used, self.total = int(self.used.sum()), float(classes.weight.sum())
        self.freedom = self.total - np.count_nonzero(classes.weight)
        self.root = np.sqrt(classes.sample_weight)
        self.precision = np.divide(1.0, within_var, out=np.zeros(self.used.size), where=self.used)
        # Parts of a vector that are smaller than this are rounding.
        self.rounding = float(np.sqrt(np.finfo(standardized.dtype).eps))

    def excess(self, beside: Array | None = None) -> float:
        """The largest eigenvalue found over the edge, `beside` some directions."""
        if self.n_used == 0 or self.freedom <= 0:
            return 0.0
        # The sum of a sample's columns: like a vector at random, it has its share of every direction; unlike
        # that it moves with the samples, and does not mind the order of columns.
        start = self._image(self.used.astype(np.float64))
        if start.length <= self.rounding * np.sqrt(self.total * self.n_used):
            # Samples of one sum. They differ still along the mean that is farthest from that of all.
            farthest = int(np.argmax(np.square(self.means).sum(axis=0)))
            start = self._image(self.means[:, farthest] * self.used)

        def image(back: Array) -> _Pair:
            weights = self.precision * back
            if beside is not None:
                weights -= beside @ (beside.T @ back)
            return self._image(weights / self.n_used)

        edge = self.total / self.freedom * (1.0 + np.sqrt(self.freedom / self.n_used)) ** 2
        return _largest_eigenvalue(image, start, self.rounding) / float(edge)

    def _image(self, weights: Array) -> _Pair:
        """v = √W P X weights, and Xᵀ √W v. Class means of scores are known before: scores of class means."""
        class_scores, classes = weights @ self.means, self.classes
        vector = np.empty_like(self.root)

        def row_step(rows: slice, scores: Array, score_var: Array | None) -> tuple[Array, Array | None]:
            within = scores - class_scores[classes.of_sample[rows]]
            vector[rows] = self.root[rows] * within
            return classes.sample_weight[rows] * within, None

        return _Pair(vector, self.standardized.sweep(weights, None, row_step).slopes)

    def directions(self) -> Array:
        """(features, Q): differences of class means, sharpened, of unit length in the covariance V⁻¹."""
        weights = self.precision[:, np.newaxis] * self.means
        for _ in range(SHARPENED):
            scores = self.standardized.scores(weights) - (self.means.T @ weights)[self.classes.of_sample]
            back = self.standardized.adjoint(self.classes.sample_weight[:, np.newaxis] * scores)
            weights = self.precision[:, np.newaxis] * back
            weights /= np.max(np.abs(weights), initial=np.finfo(float).tiny)
        length = np.divide(1.0, self.precision, out=np.zeros(self.used.size), where=self.used)
        value, vector = np.linalg.eigh((length * weights.T) @ weights)
        kept = value > self.rounding * value[-1]
        return np.asarray(weights @ (vector[:, kept] / np.sqrt(value[kept])))

    def along(self, directions: Array) -> tuple[float, float]:
        """Of samples: tails, by Mardia's kurtosis, and how far apart classes are, in standard errors."""
        n_directions, share = directions.shape[1], self.classes.sample_weight / self.total
        scores = np.asarray(self.standardized.scores(directions), dtype=np.float64)
        covariance = (share * scores.T) @ scores
        square = np.sum(scores * np.linalg.solve(covariance, scores.T).T, axis=1)
        expected = float(n_directions * (n_directions + 2))
        tails = (share @ square**2 - expected) / np.sqrt(8.0 * expected / self.total)
        gaps = self.means.T @ directions
        apart = float(
            np.sum(self.classes.weight * np.sum(gaps * np.linalg.solve(covariance, gaps.T).T, axis=1))
        )
        n_free = n_directions * (np.count_nonzero(self.classes.weight) - 1)
        return float(tails), float(np.sqrt(apart / max(n_free, 1)))


class _Pair(NamedTuple):
    """A vector over samples, and Xᵀ√W of it."""

    vector: Array
    back: Array

    @property
    def length(self) -> float:
        return float(np.linalg.norm(self.vector))

    def minus(self, other: _Pair, factor: float) -> _Pair:
        return _Pair(self.vector - factor * other.vector, self.back - factor * other.back)

    def over(self, number: float) -> _Pair:
        return _Pair(self.vector / number, self.back / number)


def _largest_eigenvalue(image: Callable[[Array], _Pair], start: _Pair, rounding: float) -> float:
    """That of a tridiagonal matrix, K in an orthonormal basis of v, K v, K² v, ... (Lanczos)."""
    diagonal: list[float] = []
    beside: list[float] = []
    largest, before, after, length = 0.0, start.minus(start, 1.0), start, start.length
    while len(diagonal) < SWEEPS and length > rounding * largest:
        here = after.over(length)
        after = image(here.back)
        diagonal.append(float(here.vector @ after.vector))
        found = float(eigvalsh_tridiagonal(diagonal, beside)[-1])
        if found <= (1.0 + STABLE) * largest:
            return found
        after = after.minus(here, diagonal[-1]).minus(before, length)
        largest, before, length = found, here, after.length
        beside.append(length)
    return largest
