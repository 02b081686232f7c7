"""The fit for a table too large for exact covariances whose columns are correlated or mostly zeros: text.

The models are those of `tuning.correlated`, solved by GAMP with a variance for each column and sample: sweeps
over the data, and nothing of the size of samples squared. Columns that are mostly zeros, but not correlated,
have the sparse model of independent ones, and ridges beside it if these have anything to add.

Where there are very many samples, some of them say first which models are worth fitting to all, and whether
the sparse one needs this care. Correlations do harm by making cavities wrong. Where leave-one-out of these
samples foretells the loss on others they have not, and the sparse model is fitted as for independent columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit

from foldless.beliefs import Array
from foldless.channels import Logistic
from foldless.operators import Operator, Standardized
from foldless.priors import Blocks, Gaussian, Prior
from foldless.solution import Outcome
from foldless.solvers import GAMP, Stopping, solve
from foldless.solvers.gamp import GAMPState
from foldless.solvers.solve import Watch
from foldless.tuning.average import Candidate, tempered_log_odds
from foldless.tuning.bank import Recipe
from foldless.tuning.correlated import (
    PATIENCE,
    RIDGE_MAX_ITER,
    SPARSE,
    CorrelatedFit,
    as_fit,
    averaged_fit,
    candidate_of,
    class_frequencies,
    sparse_model,
)
from foldless.tuning.fit import Choices, Columns, Fit, assemble, fit, fit_of_rows
from foldless.tuning.loo import loo_log_densities
from foldless.tuning.presence import in_units, word_units
from foldless.tuning.sample import parts_of

RIDGES = tuple(Recipe(0, score_variance, 0.0) for score_variance in (1.0, 10.0, 100.0, 1000.0))
# Relative change of weights at which they have settled: an average needs no more.
RIDGE_TOLERANCE = 1e-2
# The one that says whether others are worth it.
FIRST_RIDGE = RIDGES[1]
# An average in which a model has a smaller weight than this is hardly another without it.
WORTH_IT = 0.1
# A loss on other samples beyond what leave-one-out promised by more than this was not foretold.
HONEST_STANDARD_ERRORS = 3.0

# Where ridges have ended, by their names.
States = Mapping[str, GAMPState]


@dataclass(frozen=True, eq=False)
class _Table:
    """Rows, what is known of each, and what their columns are."""

    standardized: Standardized
    labels: Array
    sample_weight: Array
    left_out: Array
    columns: Columns

    @property
    def free(self) -> NDArray[np.bool_]:
        return self.columns.free(self.standardized.constant)

    def class_frequencies(self) -> Candidate:
        return class_frequencies(
            self.labels, self.sample_weight, self.left_out, None, self.columns.n_features
        )

    def averaged(self, sparse: Fit, candidates: list[Candidate]) -> CorrelatedFit:
        return averaged_fit(sparse, candidates, self.labels, self.sample_weight)


@dataclass(frozen=True, eq=False)
class _Sample:
    """What some of very many rows have said about all of them."""

    sparse: Fit  # as for independent columns
    worthwhile: States  # ridges that have a say beside it


def fit_large(
    standardized: Standardized,
    labels: Array,
    sample_weight: Array,
    columns: Columns,
    choices: Choices,
    *,
    left_out: Array,
    correlated: bool = True,
    watch: Watch | None = None,
) -> CorrelatedFit:
    """Select and predict."""
    table = _Table(standardized, labels, sample_weight, left_out, columns)
    sample = _of_a_sample(table, choices, watch)
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
            return _with_ridges(table, sparse, sample.worthwhile)[0]
    if not correlated:
        sparse = fit(standardized, labels, sample_weight, columns, choices, left_out=left_out, watch=watch)
        if sparse.solution.outcome is Outcome.INTERRUPTED:
            return _with_ridges(table, sparse, {})[0]
        glance = _with_ridges(table, sparse, recipes=(FIRST_RIDGE,))[0]
        share = sum(weight for name, _, weight in glance.average.tried if name == FIRST_RIDGE.name)
        return glance if share < WORTH_IT else _with_ridges(table, sparse)[0]
    problem = assemble(standardized, labels, sample_weight, columns, choices.channel, left_out)
    # With exact covariances other parameters may settle what plain ones do not. Here it is correlations that
    # keep it moving, whatever the parameters, and EM would follow cavities that mean nothing.
    plain, tuned = sparse_model(
        problem, GAMP(variances="per-coordinate"), table.free, choices, watch, tune_unsettled=False
    )
    if not plain.outcome.trustworthy and plain.outcome is not Outcome.INTERRUPTED:
        # Class means may settle what labels alone do not; left-out labels judge it.
        sparse = fit(
            standardized, labels, sample_weight, columns, _patient(choices), left_out=left_out, watch=watch
        )
        if sparse.solution.outcome.trustworthy:
            return _with_ridges(table, sparse)[0]
    candidates = [table.class_frequencies(), *_ridges(table)[0]]
    if plain.outcome.trustworthy:
        candidates.append(candidate_of(SPARSE, plain, columns, None))
    return table.averaged(as_fit(tuned, standardized, columns), candidates)


def _of_a_sample(table: _Table, choices: Choices, watch: Watch | None) -> _Sample | None:
    """A fit of some rows as though columns were independent, if others say that it may be trusted."""
    standardized, labels, weight = table.standardized, table.labels, table.sample_weight
    parts = parts_of(labels, weight)
    if parts is None:
        return None
    rows = parts.search
    sparse = fit_of_rows(
        rows,
        standardized,
        labels,
        weight,
        table.columns,
        _patient(choices),
        left_out=table.left_out,
        watch=watch,
    )
    if sparse is None:
        return None
    if sparse.solution.outcome is Outcome.INTERRUPTED:
        return _Sample(sparse, {})
    others = standardized.some_rows(parts.check)
    assert others is not None
    if not sparse.solution.outcome.trustworthy or not foretells(
        sparse, others, labels[parts.check], weight[parts.check]
    ):
        return None
    del others  # before the ridges have their own
    part = _Table(sparse.standardized, labels[rows], weight[rows], table.left_out[rows], table.columns)
    found, states = _with_ridges(part, sparse)
    worth = {name for name, _, share in found.average.tried if share >= WORTH_IT}
    return _Sample(sparse, {name: state for name, state in states.items() if name in worth})


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
    promised, promised_error = _mean_loss(
        loo_log_densities(found.solution), found.solution.problem.label_weight
    )
    loss, error = _mean_loss(kept, sample_weight)
    return bool(loss - promised <= HONEST_STANDARD_ERRORS * np.hypot(error, promised_error))


def _mean_loss(log_density: Array, weight: Array) -> tuple[float, float]:
    """And its standard error; a sample of weight 2 counts as two."""
    share = weight / weight.sum()
    mean = float(share @ log_density)
    return -mean, float(np.sqrt(share @ (log_density - mean) ** 2 / weight.sum()))


def _with_ridges(
    table: _Table, sparse: Fit, known: States | None = None, recipes: Sequence[Recipe] = RIDGES
) -> tuple[CorrelatedFit, States]:
    """The average of a sparse fit and ridges, and where these have ended."""
    ridges, states = _ridges(table, known, recipes)
    candidates = [table.class_frequencies(), *ridges]
    if sparse.solution.outcome.may_be_judged or not ridges:
        candidates.append(candidate_of(SPARSE, sparse.solution, table.columns, None))
    return table.averaged(sparse, candidates), states


def _ridges(
    table: _Table, known: States | None = None, recipes: Sequence[Recipe] = RIDGES
) -> tuple[list[Candidate], States]:
    """Gaussian priors of several widths, and where they end.

    Variances follow how often a column is not zero (`presence`). If some are `known` to matter, only these,
    from where other rows have taken them.
    """
    free, standardized = table.free, table.standardized
    if not free.any() or known == {}:
        return [], {}
    unit = word_units(standardized, table.sample_weight, free)
    problem = assemble(
        in_units(standardized, unit),
        table.labels,
        table.sample_weight,
        table.columns,
        Logistic(),
        table.left_out,
    )
    assert isinstance(problem.prior, Blocks)
    solver = GAMP(variances="per-coordinate")
    stopping = Stopping(tol=RIDGE_TOLERANCE, max_iter=RIDGE_MAX_ITER, patience=PATIENCE)
    found, states, last = [], {}, None
    for recipe in recipes:
        if known is not None and recipe.name not in known:
            continue
        prior: Prior = Gaussian(recipe.score_variance / int(free.sum()))
        here = problem.but(channel=recipe.channel, prior=replace(problem.prior, base=prior))
        state = None if last is None else solver.as_start(last)
        if known is not None:
            state = solver.for_new_rows(here, known[recipe.name])
        solution = solve(here, solver, stopping=stopping, state=state)
        if solution.outcome.trustworthy:
            last = solution.state
            found.append(candidate_of(recipe.name, solution, table.columns, None, unit))
            states[recipe.name] = solution.state
    return found, states
