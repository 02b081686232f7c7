"""The fit for correlated columns: a sparse model to select with, an average of models to predict with.

Under correlation no single prior is right. Features are selected by a spike-and-slab model, solved by EP
with exact covariances. Labels are predicted by an average of this model and of dense ones, each weighted by
how well it predicts left-out labels: with more features than samples the dense models are a `bank` in
kernels of samples, otherwise Gaussian priors of several widths, solved by EP.

A table too large for exact covariances, text for the most part, has the same models solved by GAMP with a
variance for each column and sample: sweeps over the data, and nothing of the size of samples squared. Where
there are very many samples, some of them say first which models are worth fitting to all, and whether the
sparse one needs this care. Correlations do harm by making cavities wrong. Where leave-one-out of these
samples foretells the loss on others they have not, and the sparse model is fitted as for independent columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit

from foldless.beliefs import Array
from foldless.channels import Logistic
from foldless.operators import Operator, Standardized
from foldless.priors import Blocks, Gaussian, HyperPrior, Prior, SpikeAndSlab
from foldless.problem import Problem
from foldless.solution import History, Outcome, Solution
from foldless.solvers import EP, GAMP, Stopping, solve
from foldless.solvers.base import Solver, State
from foldless.solvers.gamp import GAMPState
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
from foldless.tuning.fit import COVARIATE_VARIANCE, Choices, Columns, Fit, assemble, fit, fit_of_rows
from foldless.tuning.generative import Candidate as Blend
from foldless.tuning.loo import loo_log_densities, loo_log_loss
from foldless.tuning.relevance import Contrasts
from foldless.tuning.sample import parts_of

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
# For tables too large for exact covariances, where a sweep for each must do.
LARGE_RIDGES = tuple(Recipe(0, score_variance, 0.0) for score_variance in (1.0, 10.0, 100.0, 1000.0))
# Prior variances of these follow how often a column is not zero, half-way between one size of weights per
# standard deviation and one per occurrence. With the former alone, documents would be described by words that
# hardly any other has; diagonal covariances cannot leave such words out with their document, so that
# leave-one-out promises what new documents do not keep. Columns without zeros are all alike.
PRESENCE_POWER = 0.5
SPARSE = "sparse"
# An average in which a model has a smaller weight than this is hardly another without it.
WORTH_ALL_SAMPLES = 0.1
# A loss on other samples beyond what leave-one-out promised by more than this was not foretold.
HONEST_STANDARD_ERRORS = 3.0
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
    # Where dense models that have a say in the average have ended, as far as solvers found them.
    states: Mapping[str, State] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Sample:
    """What some of very many rows have said about all of them."""

    sparse: Fit  # as for independent columns
    averaged: CorrelatedFit


def fit_correlated(
    standardized: Standardized,
    labels: Array,
    sample_weight: Array,
    columns: Columns,
    choices: Choices,
    *,
    left_out: Array,
    exact: bool = True,
    group: NDArray[np.intp] | None = None,
    watch: Watch | None = None,
) -> CorrelatedFit:
    """Select and predict; `group` numbers samples to be left out together, from 0.

    Groups need exact covariances (`exact`): a group's leave-one-out asks how its samples go together.
    """
    if not exact:
        sample = _of_a_sample(standardized, labels, sample_weight, columns, choices, left_out, watch)
        if sample is not None:
            sparse = fit(
                standardized,
                labels,
                sample_weight,
                columns,
                _patient(choices),
                left_out=left_out,
                sample=sample.sparse,
                watch=watch,
            )
            outcome = sparse.solution.outcome
            if outcome.trustworthy or outcome is Outcome.INTERRUPTED:
                return _with_ridges(sparse, labels, sample_weight, left_out, sample.averaged.states)
    solver: Solver[Any] = EP() if exact else GAMP(variances="per-coordinate")
    problem = assemble(standardized, labels, sample_weight, columns, choices.channel, left_out)
    free = ~standardized.constant
    free[list(columns.always_kept)] = False
    plain, tuned = _sparse(problem, solver, free, choices, watch, exact=exact)
    states: dict[str, State] = {}
    candidates = [_class_frequencies(labels, sample_weight, left_out, group, columns.n_features)]
    if not free.any():
        pass
    elif not exact:
        candidates += _large_ridges(standardized, labels, sample_weight, columns, free, left_out, states)
    elif standardized.shape[1] > sample_weight.sum():
        candidates += _bank(standardized, labels, sample_weight, columns, free, left_out, group)
    else:
        candidates += _ridges(problem, solver, columns, int(free.sum()), group)
    if plain.outcome.trustworthy:
        candidates.append(_of_solution(SPARSE, plain, columns, group))
    sparse = _as_fit(tuned, standardized, columns)
    return _averaged(sparse, candidates, states, labels, sample_weight)


def _averaged(
    sparse: Fit,
    candidates: list[Candidate],
    states: Mapping[str, State],
    labels: Array,
    sample_weight: Array,
) -> CorrelatedFit:
    standardized = sparse.standardized
    average = averaged(candidates, standardized, labels, sample_weight)
    nobody = sample_weight <= 0
    if nobody.any():
        # What was never in is predicted as any new sample.
        log_odds = np.where(nobody, average.log_odds(standardized), average.loo_log_odds)
        average = replace(average, loo_log_odds=log_odds)
    lead = _dense_lead(candidates, labels, sample_weight)
    worth = {name for name, _, weight in average.tried if weight >= WORTH_ALL_SAMPLES}
    return CorrelatedFit(sparse, average, lead, {n: state for n, state in states.items() if n in worth})


def _of_a_sample(
    standardized: Standardized,
    labels: Array,
    sample_weight: Array,
    columns: Columns,
    choices: Choices,
    left_out: Array,
    watch: Watch | None,
) -> _Sample | None:
    """A fit of some rows as though columns were independent, if others say that it may be trusted."""
    parts = parts_of(labels, sample_weight)
    if parts is None:
        return None
    rows = parts.search
    sparse = fit_of_rows(
        rows, standardized, labels, sample_weight, columns, _patient(choices), left_out=left_out, watch=watch
    )
    if sparse is None:
        return None
    others = standardized.some_rows(parts.check)
    assert others is not None
    interrupted = sparse.solution.outcome is Outcome.INTERRUPTED
    if not interrupted and not (
        sparse.solution.outcome.trustworthy
        and foretells(sparse, others, labels[parts.check], sample_weight[parts.check])
    ):
        return None
    ridges: Mapping[str, State] | None = {} if interrupted else None
    averaged = _with_ridges(sparse, labels[rows], sample_weight[rows], left_out[rows], ridges)
    return _Sample(sparse, averaged)


def _patient(choices: Choices) -> Choices:
    """No longer than is worth it before other solvers are asked."""
    return replace(choices, stopping=replace(choices.stopping, patience=PATIENCE))


def foretells(found: Fit, others: Operator, labels: Array, sample_weight: Array) -> bool:
    """Whether leave-one-out promised no more than other samples keep, standard errors of both allowed for."""
    posterior, n = found.solution.posterior, found.columns.n_features
    mean = others.scores(posterior.mean[:n]) + posterior.mean[-1]
    var = others.score_variances(posterior.var[:n]) + posterior.var[-1]
    channel = found.solution.problem.channel.predictive()
    kept = log_expit(labels * tempered_log_odds(channel, mean, var, 1.0))
    (promised, promised_error), (loss, error) = (
        _mean_loss(density, weight)
        for density, weight in (
            (loo_log_densities(found.solution), found.solution.problem.label_weight),
            (kept, sample_weight),
        )
    )
    return bool(loss - promised <= HONEST_STANDARD_ERRORS * np.hypot(error, promised_error))


def _mean_loss(log_density: Array, weight: Array) -> tuple[float, float]:
    """And its standard error; a sample of weight 2 counts as two."""
    share = weight / weight.sum()
    mean = float(share @ log_density)
    return -mean, float(np.sqrt(share @ (log_density - mean) ** 2 / weight.sum()))


def _with_ridges(
    sparse: Fit,
    labels: Array,
    sample_weight: Array,
    left_out: Array,
    known: Mapping[str, State] | None,
) -> CorrelatedFit:
    """The average of a sparse fit and ridges; only those that are `known`, from where these are, if any."""
    standardized, columns = sparse.standardized, sparse.columns
    free = ~standardized.constant
    free[list(columns.always_kept)] = False
    states: dict[str, State] = {}
    candidates = [_class_frequencies(labels, sample_weight, left_out, None, columns.n_features)]
    if free.any():
        candidates += _large_ridges(
            standardized, labels, sample_weight, columns, free, left_out, states, known
        )
    if sparse.solution.outcome.trustworthy:
        candidates.append(_of_solution(SPARSE, sparse.solution, columns, None))
    return _averaged(sparse, candidates, states, labels, sample_weight)


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


def _as_fit(solution: Solution, standardized: Standardized, columns: Columns) -> Fit:
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


def _sparse(
    problem: Problem,
    solver: Solver[Any],
    free: NDArray[np.bool_],
    choices: Choices,
    watch: Watch | None,
    *,
    exact: bool,
) -> tuple[Solution, Solution]:
    """The spike-and-slab model, plain, and with parameters tuned as far as that goes well."""
    assert isinstance(problem.prior, Blocks)
    start: Prior = SpikeAndSlab(Gaussian(PLAIN_SLAB_VARIANCE), min(EXPECTED_ACTIVE / max(free.sum(), 1), 0.5))
    if isinstance(choices.prior, Prior):
        start = choices.prior
    problem = problem.but(prior=replace(problem.prior, base=start))
    # With exact covariances other parameters may settle what these do not. Without, it is correlations that
    # keep it moving, whatever the parameters, and EM would follow cavities that mean nothing.
    return settled_and_tuned(
        problem, solver, free, choices.stopping, choices.hyper, watch, tune_unsettled=exact
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
        state=solver.resumed(plain.state),
        watch=watch,
    )
    if tuned.outcome in (Outcome.BUDGET, Outcome.STALLED):
        state = solver.resumed(tuned.state)
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


def _class_frequencies(
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
) -> list[Candidate]:
    """Gaussian priors of several widths, for at most as many features as samples."""
    found = []
    assert isinstance(problem.prior, Blocks)
    stopping = Stopping(tol=1e-3, max_iter=RIDGE_MAX_ITER, patience=PATIENCE)
    for recipe in RIDGES:
        prior: Prior = Gaussian(recipe.score_variance / n_free)
        here = problem.but(channel=recipe.channel, prior=replace(problem.prior, base=prior))
        solution = solve(here, solver, stopping=stopping)
        if solution.outcome.trustworthy:
            found.append(_of_solution(recipe.name, solution, columns, group))
    return found


def _large_ridges(
    standardized: Standardized,
    labels: Array,
    sample_weight: Array,
    columns: Columns,
    free: NDArray[np.bool_],
    left_out: Array,
    states: dict[str, State],
    known: Mapping[str, State] | None = None,
) -> list[Candidate]:
    """Gaussian priors of several widths for tables too large for exact covariances.

    Variances follow how often a column is not zero (`PRESENCE_POWER`). That is another unit for each column,
    in which all weights have one prior. `states` is told where they end. If some are `known` to matter, only
    these, from where other rows have taken them.
    """
    presence = np.maximum(standardized.presence(sample_weight), 1.0 / labels.size)
    unit = np.where(free, presence ** (PRESENCE_POWER / 2), 1.0)
    unit[free] /= np.sqrt(np.mean(unit[free] ** 2))
    tempered = Standardized(
        standardized.operator, standardized.center, standardized.scale / unit, standardized.constant
    )
    problem = assemble(tempered, labels, sample_weight, columns, Logistic(), left_out)
    assert isinstance(problem.prior, Blocks)
    solver, found = GAMP(variances="per-coordinate"), []
    stopping = Stopping(tol=1e-3, max_iter=RIDGE_MAX_ITER, patience=PATIENCE)
    for recipe in LARGE_RIDGES:
        if known is not None and recipe.name not in known:
            continue
        prior: Prior = Gaussian(recipe.score_variance / int(free.sum()))
        here = problem.but(channel=recipe.channel, prior=replace(problem.prior, base=prior))
        state = None if known is None else solver.grown(here, cast(GAMPState, known[recipe.name]))
        solution = solve(here, solver, stopping=stopping, state=state)
        if solution.outcome.trustworthy:
            found.append(_of_solution(recipe.name, solution, columns, None, unit))
            states[recipe.name] = solution.state
    return found


def _of_solution(
    name: str,
    solution: Solution,
    columns: Columns,
    group: NDArray[np.intp] | None,
    unit: Array | float = 1.0,
) -> Candidate:
    """`unit` is what columns were multiplied by before the solver saw them."""
    posterior, n = solution.posterior, columns.n_features
    loo_mean, loo_var = posterior.loo_mean, posterior.loo_var
    if group is not None:
        loo_mean, loo_var = left_out_groups(solution.problem, solution.state, group)
    channel = solution.problem.channel.predictive()

    def linear() -> Linear:
        mean, var = unit * posterior.mean[:n], unit**2 * posterior.var[:n]
        return Linear(mean, var, float(posterior.mean[-1]), float(posterior.var[-1]), var)

    return Candidate(name, channel, loo_mean, loo_var, linear)


def exact_cost(n_samples: int, n_features: int) -> float:
    """Operations of one iteration with exact covariances."""
    small, large = sorted((n_samples, n_features))
    return float(small) ** 2 * (large + small)
