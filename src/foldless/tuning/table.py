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
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.channels import Channel, Pinned
from foldless.evaluation import log_frequencies
from foldless.operators import MeanRemoved, Operator, Standardized, Storage, WithIntercept
from foldless.operators.dense import in_memory
from foldless.priors import Blocks, Gaussian, Prior
from foldless.problem import KeptColumns, Problem
from foldless.registry import registered
from foldless.solvers.message_passing import along_scores
from foldless.solvers.solve import largest_eigenvalue

# Wide beside any log-odds of class sizes, and narrow enough to be proper.
INTERCEPT_VARIANCE = 100.0
# Always-kept covariates: log-odds of three per standard deviation are common, of ten are not.
COVARIATE_VARIANCE = 10.0
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
    def frequency_shift(self) -> Array:
        """(samples, scores): what scores from other groups lack for the class frequencies of the whole table.

        Without a group its own class is rarer: of ten subjects of either class who differ in nothing, each is
        predicted to be of the other. New subjects come at frequencies of their own, not at these, so that
        predictions without a group are brought to those of all [Parker et al. 2007], as an intercept is
        [King and Zeng 2001]. A single sample hardly moves frequencies, and needs no such step.
        """
        if self.left_out.group is None:
            return np.zeros((1, self.n_scores))
        left = self.class_weight - self.left_out.taken(self.indicator)
        return log_frequencies(self.class_weight[np.newaxis]) - log_frequencies(left)

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

    def parts(self, n_rows: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """About `n_rows` rows to search with before all are fitted, and as many others to check on.

        What a search decides is a handful of numbers: how many features matter, how much, how many labels are
        wrong, how far class means are to be trusted. Some ten thousand samples determine them far better than
        needed, and give weights to start all samples from. The others, new to what was fitted to these, show
        whether its leave-one-out is honest. They are drawn within each class, the same every time.
        """
        in_use = np.flatnonzero(self.sample_weight > 0)
        rng = np.random.default_rng(0)
        search, check = [], []
        for code in range(self.n_classes):
            of_class = rng.permutation(in_use[self.codes[in_use] == code])
            share = max(round(n_rows * of_class.size / in_use.size), 1)
            search.append(of_class[:share])
            check.append(of_class[share : 2 * share])
        return np.sort(np.concatenate(search)), np.sort(np.concatenate(check))

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
    in_memory: bool = True  # or read where it is in every pass
    heavy: bool = False  # a sample counts for more than one
    # Where that is beyond the edge, along what columns have in common with differences of class means: the
    # tails of samples, below zero where these form clusters, and how far apart classes are, both in standard
    # errors; and where there are clusters, the excess beside that. Of two classes, or where the weights of
    # samples sum to at least the number of features.
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
    if excess > 1.0 and (table.n_classes == 2 or total >= x.shape[1]):
        directions = spectrum.directions()
        tails, gap = spectrum.along(directions)
        beside = spectrum.excess(directions) if tails < 0 else excess
    return Facts(
        n_samples=n_samples,
        n_features=x.shape[1],
        n_classes=table.n_classes,
        total_weight=total,
        n_free=table.n_free,
        nnz=round(float(fractions.sum()) * n_samples),
        median_nonzero_fraction=float(np.median(fractions[table.free])) if table.n_free else 1.0,
        spectral_excess=excess,
        in_memory=in_memory(x),
        heavy=bool(weight.max() > 1.0),
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
        """The largest eigenvalue found over the edge, `beside` some directions."""
        if self.n_used == 0 or self.freedom <= 0:
            return 0.0
        # The sum of a sample's columns: like a vector at random, it has its share of every direction; unlike
        # that it moves with the samples, and does not mind the order of columns.
        start = self._image(self.used.astype(np.float64))
        if self._length(start) <= self.rounding * np.sqrt(self.total * self.n_used):
            # Samples of one sum. They differ still along the mean that is farthest from that of all.
            farthest = int(np.argmax(np.square(self.means).sum(axis=0)))
            start = self._image(self.means[:, farthest] * self.used)

        def image(back: Array) -> Array:
            weights = self.precision * back
            if beside is not None:
                weights -= beside @ (back @ beside)
            return self._image(weights / self.n_used)

        edge = self.total / self.freedom * (1.0 + np.sqrt(self.freedom / self.n_used)) ** 2
        found = largest_eigenvalue(image, start, self.root.size, self.rounding)
        return found / float(edge)

    def _image(self, weights: Array) -> Array:
        """v = √W P X weights, over samples, and then Xᵀ √W v, over columns.

        Class means of scores are known before: scores of class means.
        """
        class_scores = self.means.T @ weights
        vector = np.empty((self.root.size, *weights.shape[1:]))

        def row_step(rows: slice, scores: Array, score_var: Array | None) -> tuple[Array, Array | None]:
            within = scores - class_scores[self.table.codes[rows]]
            vector[rows] = along_scores(self.root[rows], within) * within
            return along_scores(self.weight[rows], within) * within, None

        return np.concatenate([vector, self.x.sweep(weights, None, row_step).slopes])

    def _length(self, image: Array) -> float:
        return float(np.linalg.norm(image[: self.root.size]))

    def directions(self) -> Array:
        """Differences of class means, sharpened, orthonormal in the metric V: (features, directions)."""
        weights = self.precision[:, np.newaxis] * (self.means[:, 1:] - self.means[:, :1])
        for _ in range(SHARPENED):
            weights = self.precision[:, np.newaxis] * self._image(weights)[self.root.size :]
            weights /= np.maximum(np.max(np.abs(weights), axis=0, initial=0.0), np.finfo(float).tiny)
        root = np.sqrt(self.precision)[:, np.newaxis]
        scaled = np.divide(weights, root, out=np.zeros_like(weights), where=root > 0)
        basis, size, _ = np.linalg.svd(scaled, full_matrices=False)
        return np.asarray(root * basis[:, size > self.rounding * size.max(initial=self.rounding)])

    def along(self, directions: Array) -> tuple[float, float]:
        """The tails of samples, by their kurtosis [Mardia 1970], and how far apart classes are.

        Both are in standard errors. Equally frequent classes are all equally far from the mean: the lightest
        of tails, in any number of dimensions d, in which a Gaussian has E|z|⁴ = d (d + 2).
        """
        scores, share = np.asarray(self.x.scores(directions), dtype=np.float64), self.weight / self.total
        d, cov = directions.shape[1], (scores.T * share) @ scores
        if d == 0 or np.linalg.eigvalsh(cov)[0] <= 0:
            return 0.0, 0.0
        squares = np.einsum("ms,sm->m", scores, np.linalg.solve(cov, scores.T))
        tails = (share @ squares**2 - d * (d + 2.0)) / np.sqrt(8.0 * d * (d + 2.0) / self.total)
        centres = directions.T @ self.means
        gap = self.table.class_weight @ np.einsum("sk,sk->k", centres, np.linalg.solve(cov, centres))
        return float(tails), float(np.sqrt(gap / (d * (self.table.n_classes - 1))))
