"""Many classes with correlated columns: a row-sparse model to select with, an average to predict with.

As `correlated` for two classes: the sparse model is solved by EP with exact covariances of features, and
predictions are averaged over it, multinomial ridge regressions of several strengths, and class frequencies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.channels import Multinomial
from foldless.operators import Standardized
from foldless.priors import Blocks, Gaussian, Prior, RowSparse
from foldless.solution import Solution
from foldless.solvers.layered_ep import LayeredEP, left_out_groups
from foldless.solvers.solve import Watch
from foldless.tuning.correlated import (
    EXPECTED_ACTIVE,
    PLAIN_SLAB_VARIANCE,
    SPARSE,
    exact_cost,
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
from foldless.tuning.ridge_path import RidgeModel, ridge_path

# EM takes about as many iterations again; up to this cost of one, in operations, about a second in all.
EM_ITERATIONS = 20
LARGEST_TUNED_COST = 2e8
# Relative change of scores at which the sparse model has settled. Sites of several classes circle about their
# fixed point for as long again before they come nearer (on visual objects from 3e-3 to 1e-3 in 30 of 69
# iterations), by a fraction of a nat of evidence.
TOLERANCE = 5e-3


@dataclass(frozen=True, eq=False)
class ManyCorrelatedFit:
    """A sparse model to select with and an average to predict with."""

    sparse: Fit
    average: ManyAverage
    # By how many standard errors the best dense model predicts left-out labels better than the sparse one.
    dense_lead: float


def fit_many_correlated(
    standardized: Standardized,
    labels: Array,
    sample_weight: Array,
    always_kept: tuple[int, ...],
    choices: Choices,
    *,
    left_out: Array,
    group: NDArray[np.intp] | None = None,
    watch: Watch | None = None,
) -> ManyCorrelatedFit:
    """Select and predict; `group` numbers samples to be left out together, from 0."""
    free = ~standardized.constant
    free[list(always_kept)] = False
    problem, _ = assemble(standardized, labels, sample_weight, always_kept, choices, left_out)
    assert isinstance(problem.prior, Blocks)
    inclusion = min(EXPECTED_ACTIVE / max(int(free.sum()), 1), 0.5)
    start: Prior = RowSparse(Gaussian(PLAIN_SLAB_VARIANCE), inclusion)
    problem = problem.but(prior=replace(problem.prior, base=start))
    cost = exact_cost(*standardized.shape) * choices.channel.n_classes
    em_iterations = EM_ITERATIONS if choices.tune and cost <= LARGEST_TUNED_COST else 0
    plain, sparse = settled_and_tuned(
        problem,
        LayeredEP(),
        free,
        replace(choices.stopping, tol=max(choices.stopping.tol, TOLERANCE)),
        choices.hyper,
        watch,
        em_iterations=em_iterations,
    )

    channel = choices.channel
    indicator = np.eye(channel.n_classes)[channel.codes(labels)]
    candidates = [_class_frequencies(indicator, sample_weight, left_out, group, standardized.shape[1])]
    kept = np.array(always_kept, dtype=np.intp)
    for model in ridge_path(standardized, indicator, sample_weight, left_out, kept, group):
        candidates.append(_of_ridge(model))
    if plain.outcome.trustworthy:
        candidates.append(_of_sparse(plain, group))
    average = average_of_many(candidates, channel, standardized, labels, sample_weight)
    nobody = sample_weight <= 0
    if nobody.any():
        # What was never in is predicted as any new sample.
        log_proba = np.where(nobody[:, np.newaxis], average.log_proba(standardized), average.loo_log_proba)
        average = replace(average, loo_log_proba=log_proba)
    lead = _dense_lead(candidates, channel, labels, sample_weight)
    return ManyCorrelatedFit(_as_fit(sparse, standardized, always_kept, channel), average, lead)


def average_of_one(fit: Fit) -> ManyAverage:
    """A sparse model alone, with all of its variances, in the form of an average."""
    posterior = fit.solution.posterior
    alone = _of_solution(SPARSE, fit.solution, posterior.loo_mean, posterior.loo_var)
    part = ManyPart(SPARSE, 1.0, 1.0, alone.linear(), 1.0)
    log_proba = tempered_log_proba(fit.channel, posterior.loo_mean, posterior.loo_var, 1.0)
    return ManyAverage((part,), fit.channel, log_proba, ((SPARSE, 1.0),))


def _of_solution(name: str, solution: Solution, loo_mean: Array, loo_var: Array) -> ManyCandidate:
    """A solution of features and intercepts as a model to be averaged."""
    posterior = solution.posterior

    def linear() -> ManyLinear:
        mean, var = posterior.mean, posterior.var
        return ManyLinear(mean[:-1], var[:-1], mean[-1], var[-1])

    return ManyCandidate(name, loo_mean, loo_var, linear)


def _of_sparse(solution: Solution, group: NDArray[np.intp] | None) -> ManyCandidate:
    posterior = solution.posterior
    if group is None:
        return _of_solution(SPARSE, solution, posterior.loo_mean, posterior.loo_var)
    return _of_solution(SPARSE, solution, *left_out_groups(solution.problem, solution.state, group))


def _of_ridge(model: RidgeModel) -> ManyCandidate:
    def linear() -> ManyLinear:
        weights, intercept = model.linear()
        return ManyLinear(weights, np.zeros_like(weights), intercept, np.zeros_like(intercept))

    name = f"ridge, score variance {model.score_variance:g}"
    return ManyCandidate(name, model.loo_scores, None, linear)


def _class_frequencies(
    indicator: Array,
    sample_weight: Array,
    left_out: Array,
    group: NDArray[np.intp] | None,
    n_features: int,
) -> ManyCandidate:
    """The model without features, so that an average can say that there is nothing to see."""
    count = sample_weight @ indicator
    gone = (left_out if group is None else sample_weight)[:, np.newaxis] * indicator
    if group is not None:
        of_group = np.zeros((int(group.max()) + 1, indicator.shape[1]))
        np.add.at(of_group, group, gone)
        gone = of_group[group]
    nothing = np.zeros((n_features, count.size))
    # Laplace's rule of succession: a class without samples left is improbable, not impossible.
    linear = ManyLinear(nothing, nothing, np.log(count + 1.0), np.zeros(count.size))
    return ManyCandidate("class frequencies", np.log(count - gone + 1.0), None, lambda: linear)


def _dense_lead(
    candidates: list[ManyCandidate], channel: Multinomial, labels: Array, sample_weight: Array
) -> float:
    own = np.arange(labels.size), channel.codes(labels)
    densities = {c.name: tempered_log_proba(channel, c.loo_mean, c.loo_var, 1.0)[own] for c in candidates}
    sparse = densities.pop(SPARSE, None)
    return 0.0 if sparse is None else lead_over(sparse, list(densities.values()), sample_weight)


def _as_fit(
    solution: Solution, standardized: Standardized, always_kept: tuple[int, ...], channel: Multinomial
) -> Fit:
    prior = solution.problem.prior
    assert isinstance(prior, Blocks)
    candidate = Blend(0.0, loo_log_loss(solution), solution.outcome)
    return Fit(
        solution,
        standardized,
        always_kept,
        prior.base,
        channel,
        0.0,
        [candidate],
        len(solution.history),
        max_sum=False,
    )
