"""What fits of many classes share: a sparse model to select with, and models that an average is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.channels import Multinomial
from foldless.operators import Standardized
from foldless.priors import Blocks, Gaussian, Prior, RowSparse
from foldless.solution import Solution
from foldless.solvers.base import Solver
from foldless.solvers.solve import Watch
from foldless.tuning.correlated import (
    EXPECTED_ACTIVE,
    PLAIN_SLAB_VARIANCE,
    SPARSE,
    lead_over,
    settled_and_tuned,
)
from foldless.tuning.generative import Candidate as Blend
from foldless.tuning.loo import loo_log_loss
from foldless.tuning.many_average import (
    ManyAverage,
    ManyCandidate,
    ManyLinear,
    ManyPart,
    average_of_many,
    tempered_log_proba,
)
from foldless.tuning.many_classes import Choices, Fit, assemble
from foldless.tuning.presence import mostly_zeros
from foldless.tuning.ridge_path import RidgeModel

# Relative change of scores at which the sparse model has settled. Sites of several classes circle about their
# fixed point for as long again before they come nearer (on visual objects from 3e-3 to 1e-3 in 30 of 69
# iterations), by a fraction of a nat of evidence. Of words, EM goes on for hundreds and predicts no better.
TOLERANCE = 5e-3


@dataclass(frozen=True, eq=False)
class ManyTable:
    """Rows, what is known of each, and which columns always stay."""

    standardized: Standardized
    labels: Array  # 1 to D
    sample_weight: Array
    left_out: Array
    always_kept: tuple[int, ...]
    channel: Multinomial

    @property
    def free(self) -> NDArray[np.bool_]:
        """The columns that vary and may be left out."""
        free = ~self.standardized.constant
        free[list(self.always_kept)] = False
        return free

    @property
    def mostly_zeros(self) -> bool:
        return mostly_zeros(self.standardized, self.sample_weight, self.free)

    @property
    def kept(self) -> NDArray[np.intp]:
        return np.array(self.always_kept, dtype=np.intp)

    @property
    def indicator(self) -> Array:
        """(samples, D)"""
        return np.eye(self.channel.n_classes)[self.channel.codes(self.labels)]


@dataclass(frozen=True, eq=False)
class ManyCorrelatedFit:
    """A sparse model to select with and an average to predict with."""

    sparse: Fit
    average: ManyAverage
    # By how many standard errors the best dense model predicts left-out labels better than the sparse one.
    dense_lead: float


def averaged_fit(table: ManyTable, sparse: Fit, candidates: Sequence[ManyCandidate]) -> ManyCorrelatedFit:
    """The average of these models, beside the sparse one that selects."""
    average = average_of_many(
        candidates, table.channel, table.standardized, table.labels, table.sample_weight
    )
    nobody = table.sample_weight <= 0
    if nobody.any():
        # What was never in is predicted as any new sample.
        as_new = average.log_proba(table.standardized)
        log_proba = np.where(nobody[:, np.newaxis], as_new, average.loo_log_proba)
        average = replace(average, loo_log_proba=log_proba)
    return ManyCorrelatedFit(sparse, average, _dense_lead(table, candidates))


def at_plain_parameters(
    table: ManyTable, choices: Choices, solver: Solver[Any], watch: Watch | None, *, em_iterations: int
) -> tuple[Fit, Fit]:
    """The row-sparse model with few features expected; and as EM, for so many iterations, tunes it then."""
    problem, _ = assemble(
        table.standardized, table.labels, table.sample_weight, table.always_kept, choices, table.left_out
    )
    assert isinstance(problem.prior, Blocks)
    inclusion = min(EXPECTED_ACTIVE / max(int(table.free.sum()), 1), 0.5)
    start: Prior = RowSparse(Gaussian(PLAIN_SLAB_VARIANCE), inclusion)
    plain, tuned = settled_and_tuned(
        problem.but(prior=replace(problem.prior, base=start)),
        solver,
        table.free,
        replace(choices.stopping, tol=max(choices.stopping.tol, TOLERANCE)),
        choices.hyper,
        watch,
        em_iterations=em_iterations,
    )
    return _as_fit(plain, table), _as_fit(tuned, table)


def _as_fit(solution: Solution, table: ManyTable) -> Fit:
    prior = solution.problem.prior
    assert isinstance(prior, Blocks)
    return Fit(
        solution,
        table.standardized,
        table.always_kept,
        prior.base,
        table.channel,
        0.0,
        [Blend(0.0, loo_log_loss(solution), solution.outcome)],
        len(solution.history),
        max_sum=False,
    )


def average_of_one(fit: Fit) -> ManyAverage:
    """A sparse model alone, with all of its variances, in the form of an average."""
    posterior = fit.solution.posterior
    alone = of_solution(SPARSE, fit.solution)
    part = ManyPart(SPARSE, 1.0, 1.0, alone.linear(), 1.0)
    log_proba = tempered_log_proba(fit.channel, posterior.loo_mean, posterior.loo_var, 1.0)
    return ManyAverage((part,), fit.channel, log_proba, ((SPARSE, 1.0),))


def of_solution(
    name: str,
    solution: Solution,
    left_out: tuple[Array, Array] | None = None,
    unit: Array | None = None,
) -> ManyCandidate:
    """A solution of features and intercepts as a model to be averaged.

    `left_out` is what it believes of the scores of samples, if not from all others; columns were counted in
    `unit`.
    """
    posterior = solution.posterior
    loo_mean, loo_var = left_out or (posterior.loo_mean, posterior.loo_var)

    def linear() -> ManyLinear:
        mean, var = posterior.mean, posterior.var
        of_columns = 1.0 if unit is None else unit[:, np.newaxis]
        return ManyLinear(of_columns * mean[:-1], of_columns**2 * var[:-1], mean[-1], var[-1])

    return ManyCandidate(name, loo_mean, loo_var, linear)


def of_ridge(model: RidgeModel, unit: Array | None) -> ManyCandidate:
    """A ridge as a model to be averaged; `unit` is what its columns were counted in, if anything."""

    def linear() -> ManyLinear:
        weights, intercept = model.linear()
        if unit is not None:
            weights = weights * unit[:, np.newaxis]
        return ManyLinear(weights, np.zeros_like(weights), intercept, np.zeros_like(intercept))

    return ManyCandidate(ridge_name(model.score_variance), model.loo_scores, None, linear)


def ridge_name(score_variance: float) -> str:
    return f"ridge, score variance {score_variance:g}"


def class_frequencies(table: ManyTable, group: NDArray[np.intp] | None = None) -> ManyCandidate:
    """The model without features, so that an average can say that there is nothing to see."""
    indicator, weight = table.indicator, table.sample_weight
    count = weight @ indicator
    gone = (table.left_out if group is None else weight)[:, np.newaxis] * indicator
    if group is not None:
        of_group = np.zeros((int(group.max()) + 1, indicator.shape[1]))
        np.add.at(of_group, group, gone)
        gone = of_group[group]
    nothing = np.zeros((table.standardized.shape[1], count.size))
    # Laplace's rule of succession: a class without samples left is improbable, not impossible.
    linear = ManyLinear(nothing, nothing, np.log(count + 1.0), np.zeros(count.size))
    return ManyCandidate("class frequencies", np.log(count - gone + 1.0), None, lambda: linear)


def _dense_lead(table: ManyTable, candidates: Sequence[ManyCandidate]) -> float:
    channel = table.channel
    own = np.arange(table.labels.size), channel.codes(table.labels)
    densities = {c.name: tempered_log_proba(channel, c.loo_mean, c.loo_var, 1.0)[own] for c in candidates}
    sparse = densities.pop(SPARSE, None)
    return 0.0 if sparse is None else lead_over(sparse, list(densities.values()), table.sample_weight)
