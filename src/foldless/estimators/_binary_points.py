"""One class against the rest: a Bayes point as a distribution of scores, however it was found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_softmax

from foldless.beliefs import Array
from foldless.channels import Channel
from foldless.operators import Operator
from foldless.problem import Outcome
from foldless.registry import registered
from foldless.solvers.knapsack import Histograms


@dataclass(frozen=True, eq=False)
class BinaryPoint(ABC):
    """Independent weights, by means and variances, and what makes log-odds of their scores."""

    mean: Array
    var: Array
    intercept: float
    intercept_var: float

    def scores(self, columns: Operator) -> tuple[Array, Array]:
        """Means and variances of the scores."""
        mean = columns.scores(self.mean) + self.intercept
        return mean, columns.score_variances(self.var) + self.intercept_var

    @abstractmethod
    def log_odds(self, columns: Operator) -> Array: ...


@registered("bayes-point/knapsack")
@dataclass(frozen=True, eq=False)
class KnapsackPoint(BinaryPoint):
    """Means of max-marginals; log-odds are proportional to scores."""

    log_odds_scale: float

    def log_odds(self, columns: Operator) -> Array:
        return self.log_odds_scale * (columns.scores(self.mean) + self.intercept)


@registered("bayes-point/ep")
@dataclass(frozen=True, eq=False)
class EPPoint(BinaryPoint):
    """A Gaussian posterior; log-odds are integrated over the scores' distribution."""

    variance_scale: float  # covariances are left out; this makes up for them on average
    channel: Channel

    def scores(self, columns: Operator) -> tuple[Array, Array]:
        mean, var = super().scores(columns)
        return mean, self.variance_scale * var

    def log_odds(self, columns: Operator) -> Array:
        return self.channel.predictive().log_odds(*self.scores(columns))


class OneAgainstRest(NamedTuple):
    """The fit of one class against all others."""

    point: BinaryPoint
    marginals: Histograms
    outcome: Outcome
    n_iter: int
    attributes: dict[str, Any]  # of the estimator, by name
    loo_log_odds: Array | None = None  # of the training samples, without themselves


def coupled(log_odds: Array) -> Array:
    """Log probabilities of the classes from log-odds of each against the rest, one column if there are two.

    If every class votes for itself independently with probability p_k, the probability that k alone does is
    p_k Π_{j≠k} (1 - p_j); given that one alone does, that is a softmax of the log-odds.
    """
    if log_odds.shape[1] == 1:
        log_odds = np.column_stack([-log_odds / 2, log_odds / 2])
    return np.asarray(log_softmax(log_odds, axis=1))
