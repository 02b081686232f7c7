"""Ridges: Gaussian priors of several widths, with scores of left-out samples.

They are fitted by expectation propagation or by message passing (`ridges`); or over samples or features,
whichever are fewer (`newton_ridges`): several classes by Newton's method, two by expectation propagation over
their labels. The strength of a ridge is a prior variance of scores. Where strengths are searched, three are
kept: the decade at which left-out labels are predicted best, and those on either side of it, so that an
average can lie between them.

Priors do not depend on class means, and intercepts have wide priors. So labels enter by the fit alone, and
leave-one-out counts none of them twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from foldless.beliefs import Array
from foldless.channels import Channel, Logistic, Multinomial
from foldless.priors import Gaussian
from foldless.problem import Outcome, Solution
from foldless.solvers import EP, GAMP, Stopping
from foldless.solvers.base import Solver
from foldless.solvers.coordinates import Coordinates
from foldless.solvers.label_ep import ridge_ep
from foldless.solvers.multinomial_ridge import (
    ROUGH_TOLERANCE,
    leave_groups_out,
    leave_one_out,
    leave_one_out_along_own,
    leave_one_out_in_sets,
    multinomial_ridge,
)
from foldless.tuning.plan import PATIENCE, RIDGE_MAX_ITER, RIDGE_TOLERANCE, TOLERANCE
from foldless.tuning.planned import ALONG_OWN, IN_SETS, DensePlan, Recipe
from foldless.tuning.portfolio import Model, Scores, Weights, as_columns, channel_of, of_solution
from foldless.tuning.record import Recorder, Run
from foldless.tuning.table import COVARIATE_VARIANCE, INTERCEPT_VARIANCE, Table, assembled, with_prior

# Where ridges have ended, by their recipes.
States = Mapping[Recipe, Any]


class RidgeEnd(NamedTuple):
    """Where Newton's method ended, for the sparse model to start from."""

    precision: Array  # of the priors of free weights
    scores: Array  # (samples, D), with all labels


# A search over recipes, from narrow to wide ones, begins with this one and goes on to its better neighbour.
FIRST = 2

M = TypeVar("M")


def ridges(
    table: Table,
    dense: DensePlan,
    unit: Array | None,
    recorder: Recorder,
    known: States | None = None,
) -> tuple[list[Model], States]:
    """The ridges that settle, and where they ended; columns are counted in `unit`, if any.

    If some are `known` from a fit of other rows, only these are fitted, from where they ended there.
    """
    if not table.n_free:
        return [], {}
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
            # Without this ridge it would be another average. So the fit ends here, as it does in other dense
            # models.
            raise KeyboardInterrupt
        if not solution.outcome.trustworthy:
            return None
        last = solution
        return solution

    wanted = [recipe for recipe in dense.recipes if known is None or recipe in known]
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

    Strengths further off would add little to an average, and their certainty is wrong.
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


# ---------------------------------------------------------------------- in the smaller dimension


def newton_ridges(
    table: Table, dense: DensePlan, unit: Array | None, recorder: Recorder, end_of: float = 0.0
) -> tuple[list[Model], RidgeEnd | None]:
    """Ridges of the best strengths; and where one of the score variance `end_of` ends, if that is not 0.

    Samples of weight 0 are predicted, but nothing is learnt from them.
    """
    counted, rows = table.in_units(unit).standardized, table.sample_weight > 0
    space = Coordinates.of(counted, table.free)
    weight = table.sample_weight[rows]
    size = float(weight @ np.sum(space.basis[rows] ** 2, axis=1)) / float(weight.sum())
    if size == 0:
        return [], None
    kept = np.column_stack([counted.columns(table.kept), np.ones(rows.size)])
    kept_spread = np.sqrt(np.append(np.full(table.kept.size, COVARIATE_VARIANCE), INTERCEPT_VARIANCE))
    two, n_free = table.n_classes == 2, space.basis.shape[1]
    channel: Channel = Logistic() if two else Multinomial(table.n_classes)
    start: Any = None

    def scaled(score_variance: float) -> tuple[Array, Array]:
        scale = np.append(np.full(n_free, np.sqrt(score_variance / size)), kept_spread)
        return np.hstack([space.basis, kept]) * scale, scale

    def fitted(recipe: Recipe) -> _Ridge | None:
        nonlocal start
        basis, scale = scaled(recipe.score_variance)
        solve = _two_classes if two else _several_classes
        ridge, start = solve(table, dense, basis, scale, start)
        fine = ridge.converged and bool(np.isfinite(ridge.left_out.mean).all())
        outcome = Outcome.CONVERGED if fine else Outcome.DIVERGED
        recorder.runs.append(Run("ridge", "fit", dense.solver, outcome, ridge.n_iter, detail=recipe.name))
        return ridge if fine else None

    def loss(ridge: _Ridge) -> float:
        return -float(table.sample_weight @ table.log_density(channel.log_proba(*ridge.left_out)))

    def model(recipe: Recipe, ridge: _Ridge) -> Model:
        def weights() -> Weights:
            mean, var = space.weights(ridge.mean[:n_free]), np.zeros((table.free.size, table.n_scores))
            if two:
                var[table.free] = ridge.var[:n_free]
            mean[table.kept], var[table.kept] = ridge.mean[n_free:-1], ridge.var[n_free:-1]
            if unit is not None:
                mean, var = unit[:, np.newaxis] * mean, unit[:, np.newaxis] ** 2 * var
            return Weights(mean, var, ridge.mean[-1], ridge.var[-1])

        return Model(recipe.code, recipe.name, channel, ridge.left_out, weights)

    found = searched(dense.recipes, fitted, loss)
    models = [model(recipe, ridge) for recipe, ridge in found]
    if not end_of or not models:
        return models, None
    basis, scale = scaled(end_of)
    mode = multinomial_ridge(
        basis[rows], table.indicator[rows], weight, start / scale[:, np.newaxis], ROUGH_TOLERANCE
    )
    own = np.ones(table.n_free) if unit is None else unit[table.free] ** 2
    return models, RidgeEnd(size / (end_of * own), basis @ mode.weights)


@dataclass(frozen=True, eq=False)
class _Ridge:
    """One strength: moments of the weights of coordinates, then of the columns that are always kept."""

    mean: Array  # (coordinates, scores)
    var: Array
    left_out: Scores
    converged: bool
    n_iter: int = 0


def _several_classes(
    table: Table, dense: DensePlan, basis: Array, scale: Array, start: Array | None
) -> tuple[_Ridge, Array]:
    """By Newton's method. The start, and what is returned beside the ridge for the next one, are weights."""
    rows = table.sample_weight > 0
    inside = basis[rows], table.indicator[rows], table.sample_weight[rows]
    begin = None if start is None else start / scale[:, np.newaxis]
    found = multinomial_ridge(*inside, begin, ROUGH_TOLERANCE)
    scores, group, lost = basis @ found.weights, table.left_out.group, table.left_out.weight[rows]
    if group is not None:
        scores[rows] = leave_groups_out(*inside, group[rows], found)
        scores[rows] += table.frequency_shift[rows]
    elif dense.left_out == IN_SETS:
        scores[rows] = leave_one_out_in_sets(*inside, lost, found)
    elif dense.left_out == ALONG_OWN:
        scores[rows] = leave_one_out_along_own(*inside, lost, found)
    else:
        scores[rows] = leave_one_out(*inside, lost, found)
    weights = scale[:, np.newaxis] * found.weights
    return _Ridge(weights, np.zeros_like(weights), Scores(scores, None), found.converged), weights


def _two_classes(
    table: Table, dense: DensePlan, basis: Array, scale: Array, start: tuple[Array, Array] | None
) -> tuple[_Ridge, tuple[Array, Array]]:
    """By expectation propagation. The start, and what is returned for the next ridge, are sites of labels."""
    rows = table.sample_weight > 0
    weight, lost = table.sample_weight[rows], table.left_out.weight[rows]
    found = ridge_ep(basis[rows], table.labels[rows], weight, lost, Logistic(), start)
    mean, var = basis @ found.weights, np.square(basis) @ found.weight_var
    mean[rows], var[rows] = found.left_out_mean, found.left_out_var
    ridge = _Ridge(
        as_columns(scale * found.weights),
        as_columns(scale**2 * found.weight_var),
        Scores(as_columns(mean), as_columns(var)),
        found.converged,
        found.n_iter,
    )
    return ridge, found.sites
