"""A table to learn from: standardised columns, labels, weights, and what leaving a sample out means.

Two classes have labels -1 and +1 and one score for each sample; D > 2 classes have labels 1 to D and D
scores. Above the solvers scores are (samples, scores) in both cases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.channels import Channel, Pinned
from foldless.operators import MeanRemoved, Operator, Standardized, WithIntercept
from foldless.priors import Blocks, Gaussian, Prior
from foldless.problem import KeptColumns, Problem

# Wide beside any log-odds of class sizes, and narrow enough to be proper.
INTERCEPT_VARIANCE = 100.0
# Always-kept covariates: log-odds of three per standard deviation are common, of ten are not.
COVARIATE_VARIANCE = 10.0


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

    def singly(self) -> LeftOut:
        return LeftOut(self.weight)

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
