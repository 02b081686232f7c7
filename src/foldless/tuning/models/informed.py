"""Informed ridges, for more features than samples: prior variances that follow how far apart class means are.

The models are those of `solvers.informed_ridges`; here they are made of a plan's recipes and a table.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from foldless.problem import Outcome
from foldless.solvers.gaussian_layer import Tiles
from foldless.solvers.informed_ridges import (
    CENTRED_INTERCEPT_VARIANCE,
    Base,
    Contrasts,
    Penalised,
    Ridge,
    fit_informed,
    informed_weights,
)
from foldless.tuning.planned import DensePlan, Recipe
from foldless.tuning.portfolio import Model, Scores, Weights, channel_of
from foldless.tuning.record import Recorder, Run
from foldless.tuning.table import COVARIATE_VARIANCE, Table


def informed_ridges(table: Table, dense: DensePlan, recorder: Recorder, tiles: Tiles | None) -> list[Model]:
    """Models of two classes, those whose iteration settled; `tiles` are columns that are at hand already."""
    n_samples, weight = table.shape[0], table.sample_weight
    rows, kept = weight > 0, table.kept
    log_odds = float(np.diff(np.log(table.class_weight))[0])
    base = Base(
        np.column_stack([table.standardized.columns(kept), np.ones(n_samples)])[rows],
        np.append(np.zeros(kept.size), log_odds),
        np.append(np.full(kept.size, COVARIATE_VARIANCE), CENTRED_INTERCEPT_VARIANCE),
    )
    group = table.left_out.of_rows(rows).group
    group = np.arange(int(rows.sum())) if group is None else group
    contrasts = Contrasts(table.labels[rows], weight[rows], group)
    again = any(recipe.exponent for recipe in dense.recipes)
    if tiles is None or not tiles.kept:
        tiles = Tiles(table.standardized, np.float32 if dense.single else None, keeps=again)
    # An intercept beside the features is not penalised.
    free = np.append(table.free, np.zeros(tiles.shape[1] - table.free.size, dtype=bool))
    columns = Penalised(tiles, free, None if rows.all() else rows)
    as_ridge = {Ridge(r.score_variance, r.exponent, channel_of(r)): r for r in dense.recipes}
    fits = fit_informed(columns, base, contrasts, tuple(as_ridge))
    settled = [as_ridge[ridge] for ridge in fits.ridges]
    for recipe in dense.recipes:
        outcome = Outcome.CONVERGED if recipe in settled else Outcome.DIVERGED
        recorder.runs.append(Run(recipe.code, "fit", "kernel EP", outcome, 0, detail=recipe.name))

    # One pass over X for all of them, and only if any is asked for.
    all_weights = cache(partial(informed_weights, columns, base, fits))

    def weights(model: int) -> Weights:
        found, n = all_weights(), table.free.size
        mean, var, score_var = (each[model, :n] for each in (found.mean, found.var, found.prior_var))
        mean[kept], var[kept] = found.kept_mean[model, :-1], found.kept_var[model, :-1]
        score_var[kept] = var[kept]
        intercept, intercept_var = found.kept_mean[model, -1:], found.kept_var[model, -1:]
        return Weights(mean[:, None], var[:, None], intercept, intercept_var, score_var[:, None])

    def of_recipe(model: int, recipe: Recipe) -> Model:
        mean, var = np.zeros((n_samples, 1)), np.ones((n_samples, 1))
        mean[rows, 0], var[rows, 0] = fits.loo_mean[model], fits.loo_var[model]
        scores = Scores(mean, var)
        return Model(recipe.code, recipe.name, channel_of(recipe), scores, partial(weights, model))

    return [of_recipe(model, recipe) for model, recipe in enumerate(settled)]
