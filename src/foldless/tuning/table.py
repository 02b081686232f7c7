"""A table to learn from: columns, labels, weights, what leaving a sample out means; and one look at it.

Two classes have labels -1 and +1 and one score for each sample; D > 2 classes have labels 1 to D and D
scores. Above the solvers scores are (samples, scores) in both cases.

**The survey** is what a plan is made from, before anything is fitted. Numbers that decide (`Facts`) are apart
from arrays over columns, which models use. All are sums over rows and columns, so that they depend neither on
the order of these nor on where the table is kept. Besides the pass that standardised the columns, a survey
takes two passes over the data, and up to seven for correlations, of two classes with as many clusters
seventeen.

Are columns correlated, other than by class? For independent columns of unit variance, the eigenvalues of
X Xᵀ / N end at (1 + √(M/N))² for M samples of N columns [Marchenko and Pastur 1967]. Common factors,
neighbours and batches push the largest beyond that edge, and it is there that message passing with diagonal
covariances fails. A difference between classes would do so, too; so columns are taken about the means of
their classes and brought to unit variance there. With K classes that leaves M - K directions to M samples:

    edge = M / (M - K) (1 + √((M - K) / N))².

Wrong labels leave a part of the difference between two classes within them: a direction in which columns go
together, and which is no reason against diagonal covariances. Beyond the edge, therefore, the direction is
sought that such a part would have: the difference of class means, sharpened by two products with the
covariance within classes. What is left beside it? Do classes differ along it? And does it have clusters of
samples at its ends, or is it a factor, which is no matter of labels? Clusters have short tails: of Gaussian
samples the mean fourth power of standardised scores is 3, with a standard error of √(24 / M).

A sample of weight 2 is two equal rows, and equal rows go together: unequal weights raise what is reported. An
edge for weights would lower it, but then weights and repeated rows could be fitted by different solvers.

The largest eigenvalue is found by the method of Lanczos [Golub and Van Loan 2013, section 10.1], without
X Xᵀ. It comes from below: what is reported can be too small, never too large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal

from foldless.beliefs import Array
from foldless.channels import Channel, Pinned
from foldless.operators import MeanRemoved, Operator, Standardized, Storage, WithIntercept
from foldless.priors import Blocks, Gaussian, Prior
from foldless.problem import KeptColumns, Problem
from foldless.registry import registered

# Wide beside any log-odds of class sizes, and narrow enough to be proper.
INTERCEPT_VARIANCE = 100.0
# Always-kept covariates: log-odds of three per standard deviation are common, of ten are not.
COVARIATE_VARIANCE = 10.0
# At most so many sweeps for the largest eigenvalue; the last is one that raises it by no more than a share.
# Independent columns are then at .93 to .98 of the edge; what is far beyond it has converged.
SWEEPS = 6
STABLE = 0.01
# Products with the covariance within classes that a difference of class means is sharpened by. Each makes the
# noise in it smaller, by the ratio of the eigenvalue of wrong labels to that of independent columns.
SHARPENED = 2
# Of its variance, what a column must keep within classes. Less may be rounding, and would be blown up.
LEAST_WITHIN = 1e-4


@dataclass(frozen=True)
class Layout:
    """The columns of an assembled problem: features, two for mean removal, the intercept."""

    n_features: int
    always_kept: tuple[int, ...] = ()
    intercept: bool = True
    mean_removal: bool = False


@dataclass(frozen=True, eq=False)
class LeftOut:
    """What leaving out means: a row, or a group of rows, goes with all of its weight.

    A row of weight 2 makes the same weights of features as the row twice. But it is one sample: a prediction
    that has seen one half of it has seen its label. So leave-one-out of the row of weight 2 is that of a fit
    without it, while of two equal rows either is predicted from the other.
    """

    weight: Array  # of the samples: what goes when their turn comes
    # Of every row, from 0; None where each is left out alone.
    group: NDArray[np.intp] | None = None

    def of_rows(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> LeftOut:
        """For some rows only; groups that have none of them are not counted."""
        if self.group is None:
            return LeftOut(self.weight[rows])
        group = np.unique(self.group[rows], return_inverse=True)[1]
        return LeftOut(self.weight[rows], group)

    def taken(self, values: Array) -> Array:
        """Of every row, the weighted sum of values that are taken out with it; (rows, ...) like `values`."""
        own = (self.weight * values.T).T
        if self.group is None:
            return own
        sums = np.zeros((int(self.group.max()) + 1, *values.shape[1:]))
        np.add.at(sums, self.group, own)
        return sums[self.group]


class Parts(NamedTuple):
    """Some of very many rows to search with before all are fitted, and as many others to check on.

    What a search decides is a handful of numbers: how many features matter, how much, how many labels are
    wrong, how far class means are to be trusted. Some ten thousand samples determine them far better than
    needed, and give weights to start all samples from. The others, new to what was fitted to these, show
    whether its leave-one-out is honest.
    """

    search: NDArray[np.intp]
    check: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows, what is known of each, and which columns there are."""

    standardized: Standardized
    labels: Array  # -1 and +1, or 1 to D
    sample_weight: Array
    left_out: LeftOut
    layout: Layout
    n_classes: int = 2

    @classmethod
    def of(
        cls,
        operator: Storage,
        codes: NDArray[np.intp],
        sample_weight: Array,
        layout: Layout,
        n_classes: int = 2,
        group: NDArray[np.intp] | None = None,
    ) -> Table:
        """Of labels as positions among the classes; columns are standardised under the weights."""
        labels = 2.0 * codes - 1.0 if n_classes == 2 else codes + 1.0
        standardized, left_out = Standardized.fit(operator, sample_weight), LeftOut(sample_weight, group)
        return cls(standardized, labels, sample_weight, left_out, layout, n_classes)

    @property
    def shape(self) -> tuple[int, int]:
        return self.standardized.shape

    @property
    def n_scores(self) -> int:
        return 1 if self.n_classes == 2 else self.n_classes

    @cached_property
    def free(self) -> NDArray[np.bool_]:
        """The features that vary and may be left out of the model."""
        free = ~self.standardized.constant
        free[self.kept] = False
        return free

    @cached_property
    def n_free(self) -> int:
        return int(np.count_nonzero(self.free))

    @property
    def kept(self) -> NDArray[np.intp]:
        return np.array(self.layout.always_kept, dtype=np.intp)

    @cached_property
    def codes(self) -> NDArray[np.intp]:
        """Positions of the labels among the classes."""
        return (self.labels > 0 if self.n_classes == 2 else self.labels - 1).astype(np.intp)

    @cached_property
    def indicator(self) -> Array:
        """(samples, classes)"""
        return np.eye(self.n_classes)[self.codes]

    @cached_property
    def class_weight(self) -> Array:
        """The weight of the samples of each class."""
        return np.asarray(self.sample_weight @ self.indicator)

    @cached_property
    def class_means(self) -> Array:
        """(features, classes), about the mean of all, by one pass; zero where a class has no weight."""
        sums = self.standardized.adjoint(self.sample_weight[:, np.newaxis] * self.indicator)
        return np.divide(sums, self.class_weight, out=np.zeros(sums.shape), where=self.class_weight > 0)

    @cached_property
    def within_var(self) -> Array:
        """(features,): variances about the means of classes, where that of all is 1."""
        between = np.square(self.class_means) @ (self.class_weight / self.class_weight.sum())
        return np.where(self.standardized.constant, 0.0, np.maximum(1.0 - between, 0.0))

    @cached_property
    def nonzero_fraction(self) -> Array:
        """(features,): the share of the weight on rows in which a column is not zero, by one pass."""
        return self.standardized.nonzero_weight(self.sample_weight) / self.sample_weight.sum()

    @cached_property
    def share(self) -> Array:
        """The share of each sample in all."""
        return self.sample_weight / self.sample_weight.sum()

    def log_density(self, log_proba: Array) -> Array:
        """Of every sample's own label, from (..., samples, classes)."""
        return np.asarray(log_proba[..., np.arange(self.codes.size), self.codes])

    def some_rows(self, rows: NDArray[np.intp]) -> Table:
        """A table of some rows, in memory."""
        return replace(
            self,
            standardized=self.standardized.some_rows(rows),
            labels=self.labels[rows],
            sample_weight=self.sample_weight[rows],
            left_out=self.left_out.of_rows(rows),
        )

    def parts(self, n_rows: int) -> Parts:
        """About `n_rows` rows drawn within each class, the same every time, and as many others."""
        in_use = np.flatnonzero(self.sample_weight > 0)
        rng = np.random.default_rng(0)
        search, check = [], []
        for code in range(self.n_classes):
            of_class = rng.permutation(in_use[self.codes[in_use] == code])
            share = max(round(n_rows * of_class.size / in_use.size), 1)
            search.append(of_class[:share])
            check.append(of_class[share : 2 * share])
        return Parts(np.sort(np.concatenate(search)), np.sort(np.concatenate(check)))

    def in_units(self, unit: Array | None) -> Table:
        """The same columns counted in units, if any: each value is so many times as large."""
        if unit is None:
            return self
        x = self.standardized
        counted = Standardized(x.operator, x.center, x.scale / unit, x.constant)
        return replace(self, standardized=counted)


def assembled(table: Table, channel: Channel, prior: Prior | None = None) -> Problem:
    """The problem of a table: `prior` for the free features, wide ones for what is always kept.

    Without a prior it has a vague one, to be replaced.
    """
    operator: Operator = table.standardized
    labels, weight = table.labels, table.sample_weight
    layout, kept = table.layout, table.kept
    others: list[tuple[slice | NDArray[np.intp], Prior]] = []
    if kept.size:
        others.append((kept, Gaussian(COVARIATE_VARIANCE)))
    # Columns that never vary are not counted among features that could have mattered.
    constant = np.setdiff1d(np.flatnonzero(table.standardized.constant), kept)
    if constant.size:
        others.append((constant, Gaussian()))
    if layout.mean_removal:
        operator = MeanRemoved(table.standardized, weight)
        labels, weight = np.append(labels, [0.0, 0.0]), np.append(weight, [1.0, 1.0])
        channel = Pinned(channel)
        added = slice(layout.n_features, layout.n_features + 2)
        others.append((added, Gaussian(INTERCEPT_VARIANCE)))
    if layout.intercept:
        operator = WithIntercept(operator, table.shape[0])
        # One score is centred, and so started, where it belongs if no feature matters.
        middle = float(np.diff(np.log(table.class_weight))[0]) if table.n_classes == 2 else 0.0
        others.append((slice(-1, None), Gaussian(INTERCEPT_VARIANCE, mean=middle)))
        kept = np.append(kept, operator.shape[1] - 1)
    return Problem(
        operator,
        labels,
        weight,
        channel,
        Blocks(Gaussian() if prior is None else prior, tuple(others)),
        KeptColumns(kept, operator.columns(kept)) if kept.size else None,
    )


def mean_and_error(values: Array, weight: Array) -> tuple[float, float]:
    """The weighted mean and its standard error; a sample of weight 2 counts as two."""
    total = weight.sum()
    share = weight / total
    mean = float(share @ values)
    return mean, float(np.sqrt(share @ (values - mean) ** 2 / total))


def with_prior(problem: Problem, prior: Prior) -> Problem:
    """An assembled problem with another prior for the free features."""
    return problem.but(prior=replace(blocks_of(problem), base=prior))


def blocks_of(problem: Problem) -> Blocks:
    """The prior of an assembled problem."""
    assert isinstance(problem.prior, Blocks)
    return problem.prior


# ---------------------------------------------------------------------- one look


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
    # Of two classes, where that is beyond the edge, along what columns have in common with the difference of
    # class means: the tails of samples, below zero where these form clusters, and how far apart classes are,
    # both in standard errors; and where there are clusters, the excess beside that.
    class_tails: float = 0.0
    class_gap: float = 0.0
    excess_beside: float = 0.0


def survey(table: Table) -> Facts:
    """Look at columns that were standardised under the weights of the samples."""
    x, weight = table.standardized, table.sample_weight
    n_samples, total = int(np.count_nonzero(weight)), float(weight.sum())
    fractions = table.nonzero_fraction
    spectrum = _Spectrum(table)
    excess, tails, gap, beside = spectrum.excess(), 0.0, 0.0, 0.0
    if excess > 1.0 and table.n_classes == 2:
        direction = spectrum.direction()
        tails, gap = spectrum.along(direction)
        beside = spectrum.excess(direction) if tails < 0 else excess
    return Facts(
        n_samples=n_samples,
        n_features=x.shape[1],
        n_classes=table.n_classes,
        total_weight=total,
        n_free=table.n_free,
        nnz=round(float(fractions.sum()) * n_samples),
        median_nonzero_fraction=float(np.median(fractions[table.free])) if table.n_free else 1.0,
        spectral_excess=excess,
        class_tails=tails,
        class_gap=gap,
        excess_beside=beside,
    )


class _Spectrum:
    """What columns have in common within classes.

    With W the weights of samples, P what takes class means away, and V the variances within classes, the
    eigenvalues are those of K = √W P X V⁻¹ Xᵀ Pᵀ √W / N.
    """

    def __init__(self, table: Table) -> None:
        self.x, self.table, self.weight = table.standardized, table, table.sample_weight
        self.means, within = table.class_means, table.within_var
        self.used = table.free & (within > LEAST_WITHIN)
        self.n_used, self.total = int(self.used.sum()), float(self.weight.sum())
        self.freedom = self.total - np.count_nonzero(table.class_weight)
        self.root = np.sqrt(self.weight)
        self.precision = np.divide(1.0, within, out=np.zeros(self.used.size), where=self.used)
        # Parts of a vector that are smaller than this are rounding.
        self.rounding = float(np.sqrt(np.finfo(self.x.dtype).eps))

    def excess(self, beside: Array | None = None) -> float:
        """The largest eigenvalue found over the edge, `beside` a direction."""
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
                weights -= beside * (beside @ back)
            return self._image(weights / self.n_used)

        edge = self.total / self.freedom * (1.0 + np.sqrt(self.freedom / self.n_used)) ** 2
        return _largest_eigenvalue(image, start, self.rounding) / float(edge)

    def _image(self, weights: Array) -> _Pair:
        """v = √W P X weights, and Xᵀ √W v. Class means of scores are known before: scores of class means."""
        class_scores = weights @ self.means
        vector = np.empty_like(self.root)

        def row_step(rows: slice, scores: Array, score_var: Array | None) -> tuple[Array, Array | None]:
            within = scores - class_scores[self.table.codes[rows]]
            vector[rows] = self.root[rows] * within
            return self.weight[rows] * within, None

        return _Pair(vector, self.x.sweep(weights, None, row_step).slopes)

    def direction(self) -> Array:
        """The difference of two class means, sharpened, of unit length in the metric V; or zero."""
        weights = self.precision * (self.means[:, 1] - self.means[:, 0])
        for _ in range(SHARPENED):
            weights = self.precision * self._image(weights).back
            weights /= np.max(np.abs(weights), initial=np.finfo(float).tiny)
        length = np.sqrt(np.sum(weights[self.used] ** 2 / self.precision[self.used]))
        return np.asarray(weights / max(float(length), np.finfo(float).tiny))

    def along(self, direction: Array) -> tuple[float, float]:
        """The tails of samples, by their kurtosis, and how far apart classes are, both in standard errors."""
        scores, share = np.asarray(self.x.scores(direction), dtype=np.float64), self.weight / self.total
        variance = float(share @ scores**2)
        if variance <= 0:
            return 0.0, 0.0
        tails = (share @ scores**4 / variance**2 - 3.0) / np.sqrt(24.0 / self.total)
        gap = self.table.class_weight @ np.square(direction @ self.means) / variance
        return float(tails), float(np.sqrt(gap))


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
