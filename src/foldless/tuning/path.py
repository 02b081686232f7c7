"""The one path from a table to a fit: the models that a plan names, and their average.

Table ─▶ Survey ─▶ plan ─▶ sparse model (selects) ─┐
                       └─▶ dense models ───────────┴▶ Portfolio (predicts)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.channels import FlippedLabels
from foldless.operators import Standardized
from foldless.problem import Outcome
from foldless.solvers.ep import EPState
from foldless.solvers.gaussian_layer import Tiles
from foldless.solvers.screening import Screening
from foldless.tuning.fit import SPARSE, Choices, Fit, fit_tuned
from foldless.tuning.models.informed import informed_ridges
from foldless.tuning.models.ridges import States, newton_ridges, ridges
from foldless.tuning.models.sparse import (
    SparseFits,
    finished,
    fit_sample,
    fit_sparse,
    fit_words,
    patient,
)
from foldless.tuning.plan import (
    CLEAR_STANDARD_ERRORS,
    FIRST_RIDGE,
    GROUP_SETS,
    NEARLY_ALL,
    WORTH_IT,
    flags_of,
)
from foldless.tuning.planned import CLASS_MEANS, DensePlan, Plan, Recipe
from foldless.tuning.portfolio import (
    Average,
    Model,
    Portfolio,
    alone,
    class_frequencies,
    lead,
    of_solution,
    stacked,
)
from foldless.tuning.record import FLAGS, Flag, Record, Recorder
from foldless.tuning.table import LeftOut, Table

# The tolerance of fits to a part of the rows that only predict: predictions settle long before weights do.
PART_TOLERANCE = 1e-2


@dataclass(frozen=True, eq=False)
class Result:
    """The outcome of a plan: a sparse model to select with, an average to predict with, and what happened."""

    sparse: Fit
    portfolio: Portfolio
    plan: Plan
    record: Record
    flags: tuple[Flag, ...]
    # The sparse model before it was refined: a later fit of the same data may start from it.
    unfinished: SparseFits


def fit_table(
    table: Table,
    plan: Plan,
    choices: Choices,
    recorder: Recorder,
    *,
    warm: SparseFits | None = None,
) -> Result:
    """Fit the models of the plan; `warm` is an earlier fit of the same data, to start from."""
    if plan.path != "requested":
        choices = replace(choices, prior=plan.sparse.prior)
    if plan.sparse.flips:
        choices = replace(choices, channel=FlippedLabels(choices.channel))
    if plan.sparse.screened and choices.screening is None:
        choices = replace(choices, screening=Screening(least_weights=0))
    path = _Path(table, plan, choices, recorder, warm)
    fits, dense = path.run()
    sparse, portfolio = path.concluded(fits, dense)
    record = recorder.record()
    behind = record.used(SPARSE)
    codes = flags_of(
        plan,
        settled=sparse.outcome not in (Outcome.STALLED, Outcome.DIVERGED),
        fell_back=any(run.purpose == "fallback" for run in behind),
        exactly=any(run.solver in ("EP", "BackgroundEP") for run in behind),
        dense_lead=portfolio.dense_lead,
        sparse_share=portfolio.share_of(SPARSE),
    )
    return Result(sparse, portfolio, plan, record, tuple(FLAGS[code] for code in codes), fits)


def fit_part(table: Table, plan: Plan, choices: Choices, *, sparse: bool) -> Average:
    """The average that a plan predicts with, of the rows with a weight, for less than the whole plan costs.

    The sparse model is not refined, and may be left out where it has no share in predictions. Raises
    KeyboardInterrupt after an interrupt, which leaves no model of this part of the rows.
    """
    if plan.dense is not None and not sparse:
        models = _Path(table, plan, choices, Recorder())._dense(table)[0]
        # `stacked` predicts rows without weight; the caller is about to predict all rows anyway.
        counted = replace(table, sample_weight=np.maximum(table.sample_weight, np.finfo(float).tiny))
        return stacked([class_frequencies(table), *models], counted).average
    found = _fit_quickly(table, plan, choices)
    if found.sparse.outcome is Outcome.INTERRUPTED:
        raise KeyboardInterrupt
    return found.portfolio.average


def _fit_quickly(table: Table, plan: Plan, choices: Choices) -> Result:
    """All models of a plan, not refined, to a larger tolerance and off the record."""
    plain = replace(plan.sparse, polish=False, integrate=False, relearnt_parts=0, groups=False)
    quick = replace(
        choices, stopping=replace(choices.stopping, tol=max(choices.stopping.tol, PART_TOLERANCE))
    )
    planned = replace(plan, sparse=plain)
    return fit_table(table, planned, quick, Recorder())


def with_groups_left_out(result: Result, group: NDArray[np.intp], choices: Choices) -> Result:
    """The result, with every sample predicted by a fit without its group; each fit leaves out several groups.

    After an interrupt it is the result as it was, but for its outcome, which is that.
    """
    table = result.sparse.table
    choices = replace(choices, generative_weight=result.sparse.generative_weight)
    nearly_all = result.portfolio.share_of(SPARSE) > NEARLY_ALL
    plan = replace(result.plan, dense=None) if nearly_all else result.plan
    log_proba = result.portfolio.loo_log_proba.copy()
    for rows in sets_of_groups(group, table.indicator * table.sample_weight[:, np.newaxis], GROUP_SETS):
        weight = np.where(rows, 0.0, table.sample_weight)
        count = weight @ table.indicator
        if not np.all(count > 0):
            # A class without samples cannot be learnt: its frequency is that of Laplace's rule of succession.
            log_proba[rows] = np.log((count + 1.0) / (count.sum() + count.size))
            continue
        standardized = Standardized.fit(table.standardized.operator, weight)
        rest = replace(table, standardized=standardized, sample_weight=weight, left_out=LeftOut(weight))
        found = _fit_quickly(rest, plan, choices)
        if found.sparse.outcome is Outcome.INTERRUPTED:
            solution = replace(result.sparse.solution, outcome=Outcome.INTERRUPTED)
            return replace(result, sparse=replace(result.sparse, solution=solution))
        log_proba[rows] = found.portfolio.average.log_proba(standardized)[rows]
    together = replace(table, left_out=LeftOut(table.left_out.weight, group))
    portfolio = replace(result.portfolio, loo_log_proba=log_proba)
    return replace(result, sparse=replace(result.sparse, table=together), portfolio=portfolio)


def sets_of_groups(group: NDArray[np.intp], indicator: Array, most: int) -> list[NDArray[np.bool_]]:
    """Rows of groups in at most `most` sets, each with about as much of every class.

    Groups are placed one after the other, the largest first, each where its classes are rarest so far.
    `indicator` is (rows, classes), with the weight of each row.
    """
    n_groups = int(group.max()) + 1
    counts = np.zeros((n_groups, indicator.shape[1]))
    np.add.at(counts, group, indicator)
    share = counts / np.maximum(counts.sum(axis=0), np.finfo(float).tiny)
    held, place = np.zeros((min(most, n_groups), share.shape[1])), np.zeros(n_groups, dtype=np.intp)
    for g in np.argsort(-share.max(axis=1), kind="stable"):
        # There the squares of shares grow least.
        place[g] = np.lexsort((held.sum(axis=1), held @ share[g]))[0]
        held[place[g]] += share[g]
    return [place[group] == n for n in range(len(held))]


@dataclass
class _Path:
    table: Table
    plan: Plan
    choices: Choices
    recorder: Recorder
    warm: SparseFits | None = None
    tiles: Tiles | None = None  # all columns, standardised, if the sparse model has made them

    @cached_property
    def unit(self) -> Array | None:
        """The unit that each column is counted in, where weights have one size per occurrence.

        Counted in standard deviations, a word in one document of ten thousand has a hundred times the value
        there that a word in all documents has. If weights per standard deviation had one size, dense models
        would describe documents by words that hardly any other document has. In these units prior variances
        are in proportion to how often a column is not zero.
        """
        table, dense = self.table, self.plan.dense
        if dense is None or not dense.per_occurrence:
            return None
        unit = np.ones(table.free.size)
        unit[table.free] = np.sqrt(np.maximum(table.nonzero_fraction[table.free], 1.0 / table.shape[0]))
        unit[table.free] /= np.sqrt(np.mean(unit[table.free] ** 2))
        return unit

    def run(self) -> tuple[SparseFits, list[Model]]:
        """The sparse model, and dense ones beside it."""
        sparse, dense = self.plan.sparse, self.plan.dense
        if sparse.solver == "BackgroundEP" and dense is not None and self.unit is not None:
            return fit_words(self.table, sparse, dense, self.unit, self.choices, self.recorder, self.warm)
        # A warm start of the sparse model needs no search, but some rows decide which dense ones are fitted.
        if sparse.search_rows and (self.warm is None or self.plan.dense is not None):
            found = self._from_some_rows()
            if found is not None:
                self.recorder.earlier = ()  # this fit did not start from the earlier one
                return found
            self.recorder.reject(slice(None))
        if sparse.from_ridge and dense is not None and self.warm is None:
            models, end = newton_ridges(self.table, dense, self.unit, self.recorder, sparse.from_ridge)
            return fit_sparse(self.table, sparse, self.choices, self.recorder, ridge=end), models
        fits = fit_sparse(self.table, sparse, self.choices, self.recorder, warm=self.warm)
        return fits, self._worthwhile(fits)

    def _from_some_rows(self) -> tuple[SparseFits, list[Model]] | None:
        """The fit of very many rows, started from a fit of some of them; None if that may not be trusted."""
        table, sparse = self.table, self.plan.sparse
        sample = fit_sample(table, sparse, self.choices, self.recorder)
        if sample is None:
            return None
        known: States = {}
        if self.plan.dense is not None and sample.outcome is not Outcome.INTERRUPTED:
            known = self._states_worthwhile(sample)
        fit = fit_tuned(table, patient(self.choices, sparse, CLASS_MEANS), self.recorder, sample=sample)
        if sparse.sample_checked and not (fit.outcome.trustworthy or fit.outcome is Outcome.INTERRUPTED):
            return None
        dense: list[Model] = []
        if self.plan.dense is not None and known:
            dense = self._dense(table, known=known)[0]
        return SparseFits.one(fit, self.choices.solver), dense

    def _states_worthwhile(self, sample: Fit) -> States:
        """Where those ridges of some rows ended that have a share in the average with the sparse model."""
        models, states = self._dense(sample.table)
        fits = SparseFits.one(sample, self.choices.solver)
        shares = {share.name: share.weight for share in _averaged(fits, models, sample.table).models}
        return {recipe: state for recipe, state in states.items() if shares[recipe.name] >= WORTH_IT}

    def _worthwhile(self, fits: SparseFits) -> list[Model]:
        """The dense models, as far as they are planned and add something to predictions."""
        dense = self.plan.dense
        if dense is None or not dense.recipes or fits.outcome is Outcome.INTERRUPTED:
            return []
        if isinstance(state := fits.judged.state, EPState):
            self.tiles = state.all_tiles(fits.judged.problem)
        if not dense.if_worthwhile:
            return self._dense(self.table)[0]
        first = self._dense(self.table, recipes=(FIRST_RIDGE,))[0]
        glance = _averaged(fits, first, self.table)
        if sum(share.weight for share in glance.models if share.name == FIRST_RIDGE.name) < WORTH_IT:
            return first
        return self._dense(self.table)[0]

    def _dense(
        self, table: Table, *, recipes: tuple[Recipe, ...] | None = None, known: States | None = None
    ) -> tuple[list[Model], States]:
        """The planned models of some rows or all, and where they ended.

        Then wider ridges, one after the other, as long as the widest predicts clearly better than all others.
        """
        dense = self.plan.dense
        assert dense is not None
        planned = dense if recipes is None else replace(dense, recipes=recipes)
        models, states = self._fitted(planned, table, known)
        if not dense.wider:
            return models, states
        widest = dense.widest
        for recipe in dense.wider:
            if lead(models, widest.name, table) <= CLEAR_STANDARD_ERRORS:
                break
            models = models + self._fitted(replace(dense, recipes=(recipe,)), table)[0]
            widest = recipe
        return models, states

    def _fitted(
        self, dense: DensePlan, table: Table, known: States | None = None
    ) -> tuple[list[Model], States]:
        """The models of some recipes, and where they ended if others can start from there."""
        if dense.solver == "kernel EP":
            return informed_ridges(table, dense, self.recorder, self.tiles), {}
        if dense.solver in ("Newton", "primal EP"):
            return newton_ridges(table, dense, self.unit, self.recorder)[0], {}
        return ridges(table, dense, self.unit, self.recorder, known)

    def concluded(self, fits: SparseFits, dense: list[Model]) -> tuple[Fit, Portfolio]:
        """The fit that selects, finished, and the average that predicts."""
        selects = finished(fits.selects, self.plan.sparse, self.choices, self.recorder)
        if self.plan.dense is None:
            model = of_solution(SPARSE, SPARSE, selects.solution, self.table)
            # A user who has chosen prior and likelihood wants their posterior: weights stay as they are.
            return selects, alone(model, self.table, as_log_odds=self.plan.path != "requested")
        edges = self.plan.sparse.left_out_edges
        if selects.solution.state is fits.judged.state:
            # `finished` has gone no further, but samples are left out of its answer already.
            fits, edges = replace(fits, judged=selects.solution), 0
        return selects, _averaged(fits, dense, self.table, edges)


def _averaged(fits: SparseFits, dense: list[Model], table: Table, left_out_edges: int = 0) -> Portfolio:
    models = [class_frequencies(table), *dense]
    if fits.judged.outcome.may_be_judged or not dense:
        models.append(fits.model(table, left_out_edges))
    return stacked(models, table)
