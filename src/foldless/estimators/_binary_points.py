"""One class against the rest: a Bayes point as a distribution of scores, however it was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from foldless.beliefs import Array
from foldless.channels import Channel
from foldless.operators import Operator
from foldless.registry import registered
from foldless.solution import Outcome
from foldless.solvers.knapsack import Histograms
from foldless.solvers.knapsack.histograms import gaussian_histograms
from foldless.tuning.bayes_point import KnapsackFit
from foldless.tuning.fit import Fit


@registered("bayes-point/knapsack")
@dataclass(frozen=True, eq=False)
class KnapsackPoint:
    """Means of max-marginals; log-odds are proportional to scores."""

    mean: Array
    var: Array
    intercept: float
    intercept_var: float
    log_odds_scale: float
    outcome: Outcome
    n_iter: int
    marginals: Histograms
    own: dict[str, Any]  # attributes that only this kind has

    @classmethod
    def of(cls, result: KnapsackFit, constant: NDArray[np.bool_]) -> KnapsackPoint:
        marginals, weightiest = result.histograms, result.settings[0]
        mean, var = marginals.mean, np.square(marginals.std)
        # A column that never varies leaves the prior as it was, which is even about zero but for rounding.
        own = {
            "settings_": result.settings,
            "violation_cost_": weightiest.cost,
            "beta_": weightiest.beta,
            "n_sweeps_": weightiest.n_sweeps,
            "cv_error_": result.cv_error,
            "cv_log_loss_": result.cv_log_loss,
            "dual_bound_": result.bound,
        }
        return cls(
            np.where(constant, 0.0, mean[:-1]),
            np.where(constant, 0.0, var[:-1]),
            float(mean[-1]),
            float(var[-1]),
            result.log_odds_scale,
            result.outcome,
            result.n_sweeps,
            Histograms(marginals.points[:-1], marginals.probability[:-1]),
            own,
        )

    def scores(self, columns: Operator) -> tuple[Array, Array]:
        mean = columns.scores(self.mean) + self.intercept
        return mean, columns.score_variances(self.var) + self.intercept_var

    def log_odds(self, columns: Operator) -> Array:
        return self.log_odds_scale * (columns.scores(self.mean) + self.intercept)

    def histograms(self, n_bins: int) -> Histograms:
        return self.marginals


@registered("bayes-point/ep")
@dataclass(frozen=True, eq=False)
class EPPoint:
    """A Gaussian posterior; log-odds are integrated over the scores' distribution."""

    mean: Array
    var: Array
    intercept: float
    intercept_var: float
    variance_scale: float
    channel: Channel
    outcome: Outcome
    n_iter: int
    loo_log_odds: Array  # of the training samples, without themselves
    own: dict[str, Any]  # attributes that only this kind has

    @classmethod
    def of(cls, result: Fit, tried: list[tuple[Channel, float]]) -> EPPoint:
        posterior = result.solution.posterior
        constant = result.table.standardized.constant
        mean, var = np.where(constant, 0.0, posterior.mean[:-1]), np.where(constant, 0.0, posterior.var[:-1])
        # Variances of new scores leave covariances out, and are scaled so that on average they are what
        # the cavities of the training scores, covariances included, are.
        weight = result.solution.problem.label_weight
        diagonal = result.table.standardized.score_variances(var) + posterior.var[-1]
        own = {
            "channel_": result.channel,
            "prior_": result.prior,
            "log_evidence_": posterior.log_evidence,
            "evidence_path_": tried,
        }
        return cls(
            mean,
            var,
            float(posterior.mean[-1]),
            float(posterior.var[-1]),
            float(weight @ posterior.loo_var) / float(weight @ diagonal),
            result.channel,
            result.solution.outcome,
            len(result.solution.history),
            result.solution.loo_log_odds(),
            own,
        )

    def scores(self, columns: Operator) -> tuple[Array, Array]:
        mean = columns.scores(self.mean) + self.intercept
        var = columns.score_variances(self.var) + self.intercept_var
        return mean, self.variance_scale * var

    def log_odds(self, columns: Operator) -> Array:
        return self.channel.predictive().log_odds(*self.scores(columns))

    def histograms(self, n_bins: int) -> Histograms:
        return gaussian_histograms(self.mean, np.sqrt(self.var), n_bins)


BinaryPoint = KnapsackPoint | EPPoint


def coupled(log_odds: Array) -> Array:
    """Log probabilities of the classes from log-odds of each against the rest, one column if there are two.

    If every class votes for itself independently with probability p_k, the probability that k alone does is
    p_k Π_{j≠k} (1 - p_j); given that one alone does, that is a softmax of the log-odds.
    """
    if log_odds.shape[1] == 1:
        log_odds = np.column_stack([-log_odds / 2, log_odds / 2])
    return np.asarray(log_softmax(log_odds, axis=1))
