"""Many classes in a table too large for exact covariances: of correlated columns, or of mostly zeros.

The models are those of `many_correlated`. The sparse one is solved by SHyGAMP, where columns are correlated
from two sides: tuned and blended with class means, which is quick, and at plain parameters from labels alone,
which class means that correlations have bent cannot mislead; left-out labels decide between the two.
Multinomial ridges are exact as long as one side of the table is short, and found by message passing beyond.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.operators import Standardized
from foldless.priors import Blocks, Gaussian, HyperPrior
from foldless.solution import Outcome, Solution
from foldless.solvers import GAMP, Stopping, solve
from foldless.solvers.solve import Watch
from foldless.tuning.correlated import (
    PATIENCE,
    RIDGE_MAX_ITER,
    SPARSE,
)
from foldless.tuning.loo import loo_log_loss
from foldless.tuning.many_average import ManyCandidate
from foldless.tuning.many_classes import Choices, Fit, assemble
from foldless.tuning.many_classes import fit as fit_blended
from foldless.tuning.many_models import (
    TOLERANCE,
    ManyCorrelatedFit,
    ManyTable,
    at_plain_parameters,
    averaged_fit,
    class_frequencies,
    of_ridge,
    of_solution,
    ridge_name,
)
from foldless.tuning.presence import in_units, word_units
from foldless.tuning.ridge_path import loo_cost, ridge_path, searched

# Relative change at which ridges of message passing have settled. An average needs no more, and to TOLERANCE
# it would be twice as many iterations.
RIDGE_TOLERANCE = 2e-2
# Operations of a ridge's exact leave-one-out; up to here, about ten seconds.
LARGEST_LOO_COST = 2e11
# And of one of its Newton steps, about two: what is too costly to leave out one by one is left out in parts.
LARGEST_STEP_COST = 4e10
N_PARTS = 5


def fit_many_large(
    table: ManyTable, choices: Choices, *, correlated: bool, watch: Watch | None = None
) -> ManyCorrelatedFit:
    """Select and predict; columns that are not `correlated` are fitted as though they were independent."""
    sparse = by_messages(table, choices, watch) if correlated else _blended(table, choices, watch)
    ridges = [] if sparse.solution.outcome is Outcome.INTERRUPTED else _ridges(table)
    candidates = [class_frequencies(table), *ridges]
    if sparse.solution.outcome.may_be_judged or not ridges:
        candidates.append(of_solution(SPARSE, sparse.solution))
    return averaged_fit(table, sparse, candidates)


def by_messages(table: ManyTable, choices: Choices, watch: Watch | None) -> Fit:
    """The sparse model by SHyGAMP, from the side that predicts left-out labels better."""
    blended = _blended(table, choices, watch)
    if blended.solution.outcome is Outcome.INTERRUPTED:
        return blended
    plain, _ = at_plain_parameters(table, choices, GAMP(), watch, em_iterations=0)
    found = [fit for fit in (blended, plain) if fit.solution.outcome.trustworthy]
    n_iter = blended.n_iter + plain.n_iter
    return replace(min(found or [blended], key=lambda fit: loo_log_loss(fit.solution)), n_iter=n_iter)


def _blended(table: ManyTable, choices: Choices, watch: Watch | None) -> Fit:
    """Tuned, and blended with class means as far as left-out labels like it."""
    tol = max(choices.stopping.tol, TOLERANCE)
    choices = replace(choices, stopping=replace(choices.stopping, tol=tol, patience=PATIENCE))
    return fit_blended(
        table.standardized,
        table.labels,
        table.sample_weight,
        table.always_kept,
        choices,
        left_out=table.left_out,
        watch=watch,
    )


def _ridges(table: ManyTable) -> list[ManyCandidate]:
    """Ridges of several strengths, in units that follow how often a column is not zero."""
    free = table.free
    if not free.any():
        return []
    unit = word_units(table.standardized, table.sample_weight, free)
    counted = in_units(table.standardized, unit)
    n_samples, n_free = table.labels.size, int(free.sum())
    short = min(n_samples, n_free)
    step_cost = float(short) ** 2 * max(n_samples, n_free)
    if step_cost > LARGEST_STEP_COST:
        return _ridges_by_messages(table, counted, unit)
    exact = loo_cost(n_samples, short, table.channel.n_classes) <= LARGEST_LOO_COST
    parts = None if exact else parts_of(table)
    path = ridge_path(counted, table.indicator, table.sample_weight, table.left_out, table.kept, parts)
    return [of_ridge(model, unit) for model in path]


def parts_of(table: ManyTable) -> NDArray[np.intp]:
    """Parts to be left out in turn: alike in classes and sizes of rows, and the same in any order of rows."""
    size = table.standardized.squared_norms(table.sample_weight)[0]
    part = np.empty(table.labels.size, dtype=np.intp)
    part[np.lexsort((size, table.labels))] = np.arange(part.size) % N_PARTS
    return part


@dataclass(frozen=True, eq=False)
class _Settled:
    """A ridge of message passing, as a search over strengths sees it."""

    score_variance: float
    solution: Solution
    loo_loss: float


def _ridges_by_messages(table: ManyTable, counted: Standardized, unit: Array | None) -> list[ManyCandidate]:
    n_free = int(table.free.sum())
    choices = Choices(
        Gaussian(1.0 / n_free), table.channel, GAMP(), 0.0, Stopping(), HyperPrior(), tune=False
    )
    problem, _ = assemble(
        counted, table.labels, table.sample_weight, table.always_kept, choices, table.left_out
    )
    assert isinstance(problem.prior, Blocks)
    blocks, solver = problem.prior, GAMP(variances="per-coordinate")
    stopping = Stopping(tol=RIDGE_TOLERANCE, max_iter=RIDGE_MAX_ITER, patience=PATIENCE)

    last: Solution | None = None

    def settled_at(score_variance: float) -> _Settled | None:
        nonlocal last
        here = problem.but(prior=replace(blocks, base=Gaussian(score_variance / n_free)))
        state = None if last is None else solver.as_start(last.state)
        solution = solve(here, solver, stopping=stopping, state=state)
        if not solution.outcome.trustworthy:
            return None
        last = solution
        return _Settled(score_variance, solution, loo_log_loss(solution))

    return [
        of_solution(ridge_name(found.score_variance), found.solution, unit=unit)
        for found in searched(settled_at)
    ]
