"""The fit for correlated columns: a sparse model to select with, an average of models to predict with.

Under correlation no single prior is right. Features are selected by a spike-and-slab model, solved by EP
with exact covariances. Labels are predicted by an average of this model and of dense ones, each weighted by
how well it predicts left-out labels: with more features than samples the dense models are a `bank` in
kernels of samples, otherwise Gaussian priors of several widths, solved by EP.

Tables too large for exact covariances have `tuning.large`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit

from foldless.beliefs import Array
from foldless.channels import Logistic
from foldless.operators import Standardized
from foldless.priors import Blocks, Gaussian, HyperPrior, Prior, SpikeAndSlab
from foldless.problem import Problem
from foldless.solution import History, Outcome, Solution
from foldless.solvers import EP, Stopping, solve
from foldless.solvers.base import Solver
from foldless.solvers.gaussian_layer import Tiles
from foldless.solvers.groups import left_out_groups
from foldless.solvers.solve import Watch
from foldless.tuning.average import Average, Candidate, Linear, averaged, tempered_log_odds
from foldless.tuning.bank import (
    BankWeights,
    Base,
    Penalised,
    Recipe,
    bank_weights,
    fit_bank,
)
from foldless.tuning.em import EM, tunable_names
from foldless.tuning.fit import COVARIATE_VARIANCE, Choices, Columns, Fit, assemble
from foldless.tuning.generative import Candidate as Blend
from foldless.tuning.loo import loo_log_loss
from foldless.tuning.presence import in_units, word_units
from foldless.tuning.relevance import Contrasts

# The intercept of a bank, between the classes, strays from their log-odds by about this variance.
BANK_INTERCEPT_VARIANCE = 1.0
# An iteration of EP that has not found a smaller change for so long will not settle.
PATIENCE = 60
SPARSE_TOLERANCE = 1e-3
RIDGE_MAX_ITER = 200
# EM moves every so many iterations, for so many in all: near its start the evidence is flat.
EM_PERIOD = 2
EM_ITERATIONS = 40
# Dense models for at most as many features as samples. There a wide prior can call every sample that does not
# fit wrongly labelled, and leave-one-out does not notice: wrong labels go with narrow priors only.
RIDGES = (
    Recipe(0, 1.0, 0.0),
    Recipe(0, 10.0, 0.0),
    Recipe(0, 100.0, 0.0),
    Recipe(0, 1.0, 0.1),
    Recipe(0, 10.0, 0.1),
)
SPARSE = "sparse"
# Plain parameters: few features, of about two log-odds per standard deviation.
EXPECTED_ACTIVE = 10.0
PLAIN_SLAB_VARIANCE = 4.0


@dataclass(frozen=True, eq=False)
class CorrelatedFit:
    """A sparse model to select with and an average to predict with."""

    sparse: Fit
    average: Average
    # By how many standard errors the best dense model predicts left-out labels better than the sparse one.
    dense_lead: float


def fit_correlated(
    standardized: Standardized,
    labels: Array,
    sample_weight: Array,
    columns: Columns,
    choices: Choices,
    *,
    left_out: Array,
    group: NDArray[np.intp] | None = None,
    watch: Watch | None = None,
) -> CorrelatedFit:
    """Select and predict; `group` numbers samples to be left out together, from 0."""
    solver = EP()
    problem = assemble(standardized, labels, sample_weight, columns, choices.channel, left_out)
    free = columns.free(standardized.constant)
    plain, tuned = sparse_model(problem, solver, free, choices, watch)
    candidates = [class_frequencies(labels, sample_weight, left_out, group, columns.n_features)]
    if not free.any():
        pass
    elif (unit := word_units(standardized, sample_weight, free)) is not None:
        # A bank's priors follow class means, which of a rare word are those of a document or two.
        counted = in_units(standardized, unit)
        words = assemble(counted, labels, sample_weight, columns, choices.channel, left_out)
        candidates += _ridges(words, solver, columns, int(free.sum()), group, unit)
    elif standardized.shape[1] > sample_weight.sum():
        candidates += _bank(standardized, labels, sample_weight, columns, free, left_out, group)
    else:
        candidates += _ridges(problem, solver, columns, int(free.sum()), group)
    if plain.outcome.trustworthy:
        candidates.append(candidate_of(SPARSE, plain, columns, group))
    sparse = as_fit(tuned, standardized, columns)
    return averaged_fit(sparse, candidates, labels, sample_weight)


def averaged_fit(
    sparse: Fit, candidates: list[Candidate], labels: Array, sample_weight: Array
) -> CorrelatedFit:
    """The fit that selects by the sparse model and predicts by an average of all candidates."""
    standardized = sparse.standardized
    average = averaged(candidates, standardized, labels, sample_weight)
    nobody = sample_weight <= 0
    if nobody.any():
        # What was never in is predicted as any new sample.
        log_odds = np.where(nobody, average.log_odds(standardized), average.loo_log_odds)
        average = replace(average, loo_log_odds=log_odds)
    lead = _dense_lead(candidates, labels, sample_weight)
    return CorrelatedFit(sparse, average, lead)


def _dense_lead(candidates: list[Candidate], labels: Array, sample_weight: Array) -> float:
    densities = {
        c.name: log_expit(labels * tempered_log_odds(c.channel, c.loo_mean, c.loo_var, 1.0))
        for c in candidates
    }
    sparse = densities.pop(SPARSE, None)
    return 0.0 if sparse is None else lead_over(sparse, list(densities.values()), sample_weight)


def lead_over(log_density: Array, others: list[Array], sample_weight: Array) -> float:
    """By how many standard errors of their difference the best of others predicts left-out labels better."""
    share = sample_weight / sample_weight.sum()
    difference = max(others, key=lambda density: float(share @ density)) - log_density
    mean = float(share @ difference)
    standard_error = np.sqrt(float(share @ (difference - mean) ** 2) / sample_weight.sum())
    return mean / max(standard_error, np.finfo(float).tiny)


def as_fit(solution: Solution, standardized: Standardized, columns: Columns) -> Fit:
    problem = solution.problem
    assert isinstance(problem.prior, Blocks)
    candidate = Blend(0.0, loo_log_loss(solution), solution.outcome)
    return Fit(
        solution,
        standardized,
        columns,
        problem.prior.base,
        problem.channel,
        0.0,
        [candidate],
        len(solution.history),
        max_sum=False,
    )


def sparse_model(
    problem: Problem,
    solver: Solver[Any],
    free: NDArray[np.bool_],
    choices: Choices,
    watch: Watch | None,
    *,
    tune_unsettled: bool = True,
) -> tuple[Solution, Solution]:
    """The spike-and-slab model, plain, and with parameters tuned as far as that goes well."""
    assert isinstance(problem.prior, Blocks)
    start: Prior = SpikeAndSlab(Gaussian(PLAIN_SLAB_VARIANCE), min(EXPECTED_ACTIVE / max(free.sum(), 1), 0.5))
    if isinstance(choices.prior, Prior):
        start = choices.prior
    problem = problem.but(prior=replace(problem.prior, base=start))
    return settled_and_tuned(
        problem, solver, free, choices.stopping, choices.hyper, watch, tune_unsettled=tune_unsettled
    )


def settled_and_tuned(
    problem: Problem,
    solver: Solver[Any],
    free: NDArray[np.bool_],
    stopping: Stopping,
    hyper: HyperPrior,
    watch: Watch | None,
    *,
    em_iterations: int = EM_ITERATIONS,
    tune_unsettled: bool = True,
) -> tuple[Solution, Solution]:
    """The solution at these parameters, and at those that EM finds from there as far as that goes well.

    Where single weights are hardly informed, EM between iterations can run away or never settle. So these
    first settle at plain parameters; EM starts from there, for a while; they settle at what it found; and
    the evidence decides between the two. Tuned parameters have seen every label, and cavities do not know
    that: it is the plain model whose leave-one-out is honest. Where no feature is more in than out, there is
    nothing to tune by.
    """
    stopping = Stopping(
        tol=max(stopping.tol, SPARSE_TOLERANCE), max_iter=stopping.max_iter, patience=PATIENCE
    )
    plain = solve(problem, solver, stopping=stopping, watch=watch)
    if em_iterations == 0 or plain.outcome is Outcome.INTERRUPTED or not _something_found(plain, free):
        return plain, plain
    if not (tune_unsettled or plain.outcome.trustworthy):
        return plain, plain
    tuner = EM(tunable_names(problem), hyper=hyper, delay=0, every=EM_PERIOD)
    tuned = solve(
        problem,
        solver,
        stopping=replace(stopping, max_iter=min(em_iterations, stopping.max_iter)),
        tuner=tuner,
        state=solver.as_start(plain.state),
        watch=watch,
    )
    if tuned.outcome in (Outcome.BUDGET, Outcome.STALLED):
        state = solver.as_start(tuned.state)
        tuned = solve(tuned.problem, solver, stopping=stopping, state=state, watch=watch)
    better = not plain.outcome.trustworthy or tuned.posterior.log_evidence >= plain.posterior.log_evidence
    if tuned.outcome is Outcome.INTERRUPTED or (tuned.outcome.trustworthy and better):
        history = History(plain.history.iterations + tuned.history.iterations)
        return plain, replace(tuned, history=history)
    return plain, plain


def _something_found(solution: Solution, free: NDArray[np.bool_]) -> bool:
    posterior, prior = solution.posterior, solution.problem.prior
    assert isinstance(prior, Blocks)
    inclusion = prior.inclusion_probability(posterior.cavity_mean, posterior.cavity_var)
    return bool(np.any(inclusion[: free.size][free] > 0.5))


def class_frequencies(
    labels: Array,
    sample_weight: Array,
    left_out: Array,
    group: NDArray[np.intp] | None,
    n_features: int,
) -> Candidate:
    """The model without features, so that an average can say that there is nothing to see."""

    def log_odds(positive: Array, negative: Array) -> Array:
        # Laplace's rule of succession: a class without samples left is improbable, not impossible.
        return np.asarray(np.log(positive + 1.0) - np.log(negative + 1.0))

    gone = left_out if group is None else sample_weight
    sides = []
    for side in (labels > 0, labels < 0):
        out = gone * side
        left = out if group is None else np.bincount(group, weights=out)[group]
        sides.append(float(sample_weight @ side) - left)
    whole = log_odds(np.array(sample_weight @ (labels > 0)), np.array(sample_weight @ (labels < 0)))
    nothing = np.zeros(n_features)
    linear = Linear(nothing, nothing, float(whole), 0.0, nothing)
    return Candidate("class frequencies", Logistic(), log_odds(*sides), np.zeros(labels.size), lambda: linear)


def _bank(
    standardized: Standardized,
    labels: Array,
    sample_weight: Array,
    columns: Columns,
    free: NDArray[np.bool_],
    left_out: Array,
    group: NDArray[np.intp] | None,
) -> list[Candidate]:
    """Dense models for more features than samples."""
    n_samples = labels.size
    rows = sample_weight > 0
    log_odds = float(np.log(sample_weight @ (labels > 0)) - np.log(sample_weight @ (labels < 0)))
    kept = np.array(columns.always_kept, dtype=np.intp)
    base = Base(
        np.column_stack([standardized.columns(kept), np.ones(n_samples)])[rows],
        np.append(np.zeros(kept.size), log_odds),
        np.append(np.full(kept.size, COVARIATE_VARIANCE), BANK_INTERCEPT_VARIANCE),
    )
    in_use = np.arange(n_samples) if group is None else group
    numbered = np.unique(in_use[rows], return_inverse=True)[1]
    lost = left_out if group is None else sample_weight
    contrasts = Contrasts(labels[rows], sample_weight[rows], lost[rows], numbered)
    penalised = Penalised(Tiles(standardized), free, None if rows.all() else rows)
    bank = fit_bank(penalised, base, contrasts)

    @cache
    def weights() -> BankWeights:
        # One pass over X for all of them, and only if any is asked for.
        return bank_weights(penalised, base, contrasts, bank, np.arange(len(bank.recipes)))

    def linear(model: int) -> Linear:
        found = weights()
        mean, var, score_var = found.mean[model], found.var[model], found.prior_var[model]
        mean[kept], var[kept] = found.kept_mean[model, :-1], found.kept_var[model, :-1]
        score_var[kept] = var[kept]
        intercept, intercept_var = found.kept_mean[model, -1], found.kept_var[model, -1]
        return Linear(mean, var, float(intercept), float(intercept_var), score_var)

    def of_model(model: int, recipe: Recipe) -> Candidate:
        loo_mean, loo_var = np.zeros(n_samples), np.ones(n_samples)
        loo_mean[rows], loo_var[rows] = bank.loo_mean[model], bank.loo_var[model]
        return Candidate(recipe.name, recipe.channel, loo_mean, loo_var, partial(linear, model))

    return [of_model(model, recipe) for model, recipe in enumerate(bank.recipes)]


def _ridges(
    problem: Problem,
    solver: Solver[Any],
    columns: Columns,
    n_free: int,
    group: NDArray[np.intp] | None,
    unit: Array | None = None,
) -> list[Candidate]:
    """Gaussian priors of several widths, for at most as many features as samples, or for words."""
    found = []
    assert isinstance(problem.prior, Blocks)
    stopping = Stopping(tol=1e-3, max_iter=RIDGE_MAX_ITER, patience=PATIENCE)
    for recipe in RIDGES:
        prior: Prior = Gaussian(recipe.score_variance / n_free)
        here = problem.but(channel=recipe.channel, prior=replace(problem.prior, base=prior))
        solution = solve(here, solver, stopping=stopping)
        if solution.outcome.trustworthy:
            found.append(candidate_of(recipe.name, solution, columns, group, unit))
    return found


def candidate_of(
    name: str,
    solution: Solution,
    columns: Columns,
    group: NDArray[np.intp] | None,
    unit: Array | None = None,
) -> Candidate:
    """`unit` is what columns were multiplied by before the solver saw them, if anything."""
    posterior, n = solution.posterior, columns.n_features
    loo_mean, loo_var = posterior.loo_mean, posterior.loo_var
    if group is not None:
        loo_mean, loo_var = left_out_groups(solution.problem, solution.state, group)
    channel = solution.problem.channel.predictive()

    def linear() -> Linear:
        mean, var = posterior.mean[:n], posterior.var[:n]
        if unit is not None:
            mean, var = unit * mean, unit**2 * var
        return Linear(mean, var, float(posterior.mean[-1]), float(posterior.var[-1]), var)

    return Candidate(name, channel, loo_mean, loo_var, linear)


def exact_cost(n_samples: int, n_features: int) -> float:
    """Operations of one iteration with exact covariances."""
    small, large = sorted((n_samples, n_features))
    return float(small) ** 2 * (large + small)
