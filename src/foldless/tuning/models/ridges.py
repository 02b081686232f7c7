"""Ridges: Gaussian priors of several widths, by expectation propagation or by message passing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from foldless.beliefs import Array
from foldless.channels import Channel, Multinomial
from foldless.priors import Gaussian
from foldless.problem import Outcome, Solution
from foldless.solvers import EP, GAMP, Stopping
from foldless.solvers.base import Solver
from foldless.tuning.plan import (
    PATIENCE,
    RIDGE_MAX_ITER,
    RIDGE_TOLERANCE,
    TOLERANCE,
    DensePlan,
    Recipe,
)
from foldless.tuning.portfolio import Model, channel_of, of_solution
from foldless.tuning.record import Recorder
from foldless.tuning.table import Table, assembled, with_prior

# Where ridges have ended, by their recipes.
States = Mapping[Recipe, Any]

# How a search over recipes, from narrow to wide, finds its way: from here to the better neighbour.
FIRST = 2

M = TypeVar("M")


def ridges(
    table: Table,
    dense: DensePlan,
    unit: Array | None,
    recorder: Recorder,
    *,
    recipes: Sequence[Recipe] | None = None,
    known: States | None = None,
) -> tuple[list[Model], States]:
    """The ridges that settle, and where they end; columns are counted in `unit`, if any.

    If some are `known` from a fit of other rows, only these, from where they ended there.
    """
    counted = table.in_units(unit)
    two = table.n_classes == 2
    plain: Channel = channel_of(Recipe(1.0)) if two else Multinomial(table.n_classes)
    problem = assembled(counted, plain)
    by_messages = dense.solver == "GAMP"
    solver: Solver[Any] = GAMP(variances="per-coordinate") if by_messages else EP()
    tol = RIDGE_TOLERANCE if by_messages else TOLERANCE
    stopping = Stopping(tol=tol, max_iter=RIDGE_MAX_ITER, patience=PATIENCE)
    last: Solution | None = None

    def settled(recipe: Recipe) -> Solution | None:
        nonlocal last
        here = with_prior(problem, Gaussian(recipe.score_variance / table.n_free))
        here = here.but(channel=channel_of(recipe)) if two else here
        state = None
        if known is not None:
            state = solver.for_new_rows(here, known[recipe])
        elif last is not None and by_messages:
            state = solver.as_start(last.state)
        solution = recorder.solve(
            here,
            solver,
            model="ridge",
            purpose="fit",
            stopping=stopping,
            state=state,
            detail=recipe.name,
        )
        if solution.outcome is Outcome.INTERRUPTED:
            # Without this ridge the average would be another, so the fit ends, as in other dense models.
            raise KeyboardInterrupt
        if not solution.outcome.trustworthy:
            return None
        last = solution
        return solution

    wanted = dense.recipes if recipes is None else recipes
    if known is not None:
        wanted = [recipe for recipe in wanted if recipe in known]
    if dense.searched:
        found = searched(wanted, settled, Solution.loo_log_loss)
    else:
        found = [(r, solution) for r in wanted if (solution := settled(r)) is not None]
    models = [of_solution(r.code, r.name, solution, table, unit=unit) for r, solution in found]
    return models, {recipe: solution.state for recipe, solution in found}


def searched(
    recipes: Sequence[Recipe], fitted: Callable[[Recipe], M | None], loss_of: Callable[[M], float]
) -> list[tuple[Recipe, M]]:
    """The best strength and its neighbours, found by going from neighbour to neighbour.

    Strengths further off add little to these, with the wrong certainty.
    """
    found = {FIRST: fitted(recipes[FIRST])}

    def loss(n: int) -> float:
        model = found[n]
        return np.inf if model is None else loss_of(model)

    while True:
        best = min(found, key=loss)
        around = [n for n in (best + 1, best - 1) if 0 <= n < len(recipes)]
        unknown = [n for n in around if n not in found]
        if not unknown:
            break
        found[unknown[0]] = fitted(recipes[unknown[0]])
    return [
        (recipes[n], model) for n, model in sorted(found.items()) if model is not None and abs(n - best) <= 1
    ]
