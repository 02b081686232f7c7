"""Many classes with correlated columns: a row-sparse model to select with, an average to predict with.

As `correlated` for two classes: the sparse model is solved by EP with exact covariances of features, and
predictions are averaged over it, multinomial ridge regressions of several strengths, and class frequencies.
Where EP does not settle, the sparse model is that of message passing (`many_large`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foldless.solution import Outcome
from foldless.solvers import EP
from foldless.solvers.groups import left_out_groups
from foldless.solvers.solve import Watch
from foldless.tuning.correlated import SPARSE, exact_cost
from foldless.tuning.many_classes import Choices
from foldless.tuning.many_large import by_messages
from foldless.tuning.many_models import (
    ManyCorrelatedFit,
    ManyTable,
    at_plain_parameters,
    averaged_fit,
    class_frequencies,
    of_ridge,
    of_solution,
)
from foldless.tuning.presence import in_units, word_units
from foldless.tuning.ridge_path import ridge_path

# EM takes about as many iterations again; up to this cost of one, in operations, about a second in all.
EM_ITERATIONS = 20
LARGEST_TUNED_COST = 2e8


def fit_many_correlated(
    table: ManyTable,
    choices: Choices,
    *,
    group: NDArray[np.intp] | None = None,
    watch: Watch | None = None,
) -> ManyCorrelatedFit:
    """Select and predict; `group` numbers samples to be left out together, from 0."""
    cost = exact_cost(*table.standardized.shape) * table.channel.n_classes
    em_iterations = EM_ITERATIONS if choices.tune and cost <= LARGEST_TUNED_COST else 0
    plain, sparse = at_plain_parameters(table, choices, EP(), watch, em_iterations=em_iterations)
    candidates = [class_frequencies(table, group)]
    unit = word_units(table.standardized, table.sample_weight, table.free)
    counted = in_units(table.standardized, unit)
    path = ridge_path(counted, table.indicator, table.sample_weight, table.left_out, table.kept, group)
    candidates += [of_ridge(model, unit) for model in path]
    if plain.solution.outcome.trustworthy:
        left_out = None
        if group is not None:
            left_out = left_out_groups(plain.solution.problem, plain.solution.state, group)
        candidates.append(of_solution(SPARSE, plain.solution, left_out))
    elif group is None and plain.solution.outcome is not Outcome.INTERRUPTED:
        settled = by_messages(table, choices, watch)
        if settled.solution.outcome.trustworthy:
            sparse = replace(settled, n_iter=plain.n_iter + settled.n_iter)
            candidates.append(of_solution(SPARSE, sparse.solution))
    return averaged_fit(table, sparse, candidates)
