"""A problem: a data operator, labels, a channel (labels given scores) and a prior (weights)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.channels.base import Channel
from foldless.operators.base import Operator
from foldless.priors.base import Prior


@dataclass(frozen=True, eq=False)
class KeptColumns:
    """The columns that are always kept, the intercept and covariates: where they are, and their values."""

    positions: NDArray[np.intp]
    values: Array  # (rows, kept columns)

    def among(self, columns: NDArray[np.intp]) -> KeptColumns:
        """Where they are among some columns, in order, that have all of them."""
        return KeptColumns(np.searchsorted(columns, self.positions), self.values)

    @cached_property
    def squares(self) -> Array:
        return self.values**2


@dataclass(frozen=True, eq=False)
class ScreenedOut:
    """What weights that a problem leaves out say of it: their part of scores' cavities, and of the evidence.

    A part of a cavity does not hold what the sample's own label said, so it stays what it is while labels and
    the other weights come to terms.
    """

    cavity_mean: Array
    cavity_var: Array
    log_evidence: float
    # Of these weights, since they were last looked at.
    scale: float = 1.0

    def scaled(self, scale: float) -> ScreenedOut:
        """As it is where these weights and their variances are so many times as large."""
        return replace(
            self, cavity_mean=scale * self.cavity_mean, cavity_var=scale * self.cavity_var, scale=scale
        )


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything a solver is told. Tuning makes a new problem, it never changes one.

    Labels are -1 and +1. A label of 0 marks a row that is no sample but a constraint on the weights.
    """

    operator: Operator
    labels: Array
    # A sample of weight 2 counts as two equal rows, one of weight 0 as no row.
    sample_weight: Array
    channel: Channel
    prior: Prior
    kept: KeptColumns | None = None
    # How much of a sample's weight leave-one-out takes out; one row by default: weight 2 is two rows.
    left_out: Array | None = None
    # Weights whose columns the operator has not (`solvers/screening.py`).
    screened_out: ScreenedOut | None = None

    def but(self, **changes: Any) -> Problem:
        """The same problem with some parts replaced."""
        return replace(self, **changes)

    @property
    def label_weight(self) -> Array:
        """The weight of each row as a labelled sample: 0 for constraints."""
        return self.sample_weight * (self.labels != 0)

    @property
    def loo_weight(self) -> Array:
        """The weight that leave-one-out takes out of each row."""
        return np.minimum(self.sample_weight, 1.0) if self.left_out is None else self.left_out

    @property
    def n_samples(self) -> float:
        """The number of samples as the likelihood counts them."""
        return float(self.label_weight.sum())
