"""Density and noise of the pruned classifier, and the units of its columns, by leave-one-out.

All weights have one prior, so the scale of a column is how much it is trusted beforehand. Where columns are
measured alike, as intensities of genes are, the larger ones vary for a reason and their own scale is the
better one (colon: 16 % of errors instead of 24 %); in arbitrary units it is not. Leave-one-out decides that
as well, and whether there is an intercept.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from foldless.beliefs import Array
from foldless.channels import Channel, FlippedLabels, Step
from foldless.operators import Operator, Standardized, WithIntercept
from foldless.operators.whitened import Whiten, Whitening
from foldless.priors import Blocks, Gaussian, Prior, Pruned
from foldless.problem import Outcome, Problem, Solution
from foldless.solvers import Stopping
from foldless.tuning.fit import Choices
from foldless.tuning.record import Recorder
from foldless.tuning.table import Table

# Comparing candidates by leave-one-out does not need the last digits of each fit, and a fit that has not
# settled after this many sweeps is compared as it is.
SCAN_TOLERANCE = 1e-2
SCAN_SWEEPS = 50
# The continuous search ends when log-odds of density and noise move less than this; no label is worth more.
SEARCH_TOLERANCE = 0.05
MOST_SEARCH_FITS = 40
FIRST_SEARCH_STEP = 0.5
# Densities and noises that the search may not leave: all features, and labels that are noise.
SMALLEST_NOISE, LARGEST_NOISE, LARGEST_DENSITY = 1e-3, 0.49, 0.95


class Tried(NamedTuple):
    """One candidate and how well it predicts left-out labels."""

    density: float
    noise: float
    loo_error: float
    loo_log_loss: float
    outcome: Outcome
    standardized: bool
    has_intercept: bool


@dataclass(frozen=True)
class Search:
    """What density and noise are chosen from, and which of them to search further from the best pair.

    And whether columns are of unit variance, and there is an intercept: one of both, or the better one.
    """

    densities: tuple[float, ...]
    noises: tuple[float, ...]
    scaled: tuple[bool, ...]
    intercepts: tuple[bool, ...]
    search_density: bool = False
    search_noise: bool = False

    @property
    def continuous(self) -> bool:
        return self.search_density or self.search_noise

    @property
    def no_choice(self) -> bool:
        chosen = (self.densities, self.noises, self.scaled, self.intercepts)
        return all(len(values) == 1 for values in chosen) and not self.continuous


@dataclass(frozen=True, eq=False)
class PrunedFit:
    """A fit, and what it was chosen from; weights are those of whitened columns if there is a whitening."""

    solution: Solution
    table: Table  # in the paper's units
    chosen: Tried
    tried: list[Tried]
    whitening: Whitening | None


def noisy(channel: Channel, noise: float) -> Channel:
    """noise + (1 - 2 noise) p(y | z): the paper's activation where the channel is a step."""
    if isinstance(channel, Step):
        return Step(noise)
    return FlippedLabels(channel, noise) if noise > 0.0 else channel


def in_paper_units(table: Table, equal_scales: bool) -> Table:
    """Centred columns, each of unit variance or all divided by one number; rows of mean square length one."""
    standardized = table.standardized
    varying = ~standardized.constant
    n_varying = max(int(varying.sum()), 1)
    scale = standardized.scale
    if not equal_scales:
        largest = scale[varying].max() if varying.any() else 1.0
        common = largest * np.sqrt(np.mean(np.square(scale[varying] / largest))) if varying.any() else 1.0
        scale = np.full_like(scale, common)
    scaled = Standardized(
        standardized.operator, standardized.center, scale * np.sqrt(n_varying), standardized.constant
    )
    return replace(table, standardized=scaled)


def fit_pruned(
    table: Table,
    choices: Choices,
    search: Search,
    recorder: Recorder,
    whiten: Whiten | None = None,
) -> PrunedFit:
    """Fit every candidate, keep what predicts left-out labels best, and finish it."""
    tol, most = choices.stopping.tol, choices.stopping.max_iter
    scan = Stopping(tol=max(tol, SCAN_TOLERANCE), max_iter=min(most, SCAN_SWEEPS))
    one = search.no_choice
    best: tuple[_Prepared, _Contest] | None = None
    tried: list[Tried] = []
    whitened: dict[bool, _Prepared] = {}
    for scaled, intercept in product(search.scaled, search.intercepts):
        if scaled not in whitened:
            whitened[scaled] = _Prepared.of(in_paper_units(table, scaled), whiten, choices, recorder)
        prepared = whitened[scaled].with_intercept(intercept)
        stopping, purpose = (choices.stopping, "fit") if one else (scan, "search")
        fit = partial(prepared.solve, stopping=stopping, purpose=purpose)
        contest = _Contest(fit, (scaled, intercept), by_loss=search.continuous)
        _try_grid(search, contest)
        if search.continuous and not contest.interrupted:
            _try_between(search, contest)
        tried += contest.tried
        if best is None or contest.rank(contest.best) < contest.rank(best[1].best):
            best = prepared, contest
        if contest.interrupted:
            break
    assert best is not None
    prepared, contest = best
    solution = contest.solution
    if not one and tried[-1].outcome is Outcome.INTERRUPTED:
        solution = replace(solution, outcome=Outcome.INTERRUPTED)
    elif not one:
        finished = prepared.solve(contest.best.density, contest.best.noise, solution, choices.stopping, "fit")
        # A rough answer that settled is better than a fine one that ran away.
        if finished.outcome is not Outcome.DIVERGED or solution.outcome is Outcome.DIVERGED:
            solution = finished
    return PrunedFit(solution, prepared.table, contest.best, tried, prepared.whitening)


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A table's columns, whitened if asked for, ready for fits with any density and noise."""

    table: Table
    whitening: Whitening | None
    operator: Operator
    # Columns that never vary are no features, and not counted among those of which a share is active.
    constant: NDArray[np.intp]
    choices: Choices
    recorder: Recorder

    @classmethod
    def of(cls, table: Table, whiten: Whiten | None, choices: Choices, recorder: Recorder) -> _Prepared:
        standardized = table.standardized
        whitening = None if whiten is None else Whitening.fit(standardized, table.sample_weight, whiten)
        columns: Operator = standardized if whitening is None else whitening.operator(standardized)
        constant = np.flatnonzero(standardized.constant) if whitening is None else np.empty(0, dtype=np.intp)
        return cls(table, whitening, columns, constant, choices, recorder)

    def with_intercept(self, intercept: bool) -> _Prepared:
        """The same columns, and an intercept beside them if there is one."""
        table = replace(self.table, layout=replace(self.table.layout, intercept=intercept))
        operator = WithIntercept(self.operator) if intercept else self.operator
        return replace(self, table=table, operator=operator)

    def problem(self, density: float, noise: float) -> Problem:
        table, channel = self.table, noisy(self.choices.channel, noise)
        others: list[tuple[slice | NDArray[np.intp], Prior]] = []
        if self.constant.size:
            others.append((self.constant, Gaussian()))
        if table.layout.intercept:
            # As much as all features together can do, and no more: labels of a step do not depend on scale.
            others.append((slice(-1, None), Gaussian(density)))
        prior = Blocks(Pruned(density), tuple(others))
        return Problem(self.operator, table.labels, table.sample_weight, channel, prior)

    def solve(
        self, density: float, noise: float, previous: Solution | None, stopping: Stopping, purpose: str
    ) -> Solution:
        # A neighbour's messages are a good start, but not those of a run that went astray.
        usable = previous is not None and previous.outcome is not Outcome.DIVERGED
        state = self.choices.solver.as_start(previous.state) if previous is not None and usable else None
        return self.recorder.solve(
            self.problem(density, noise),
            self.choices.solver,
            model="sparse",
            purpose=purpose,
            stopping=stopping,
            state=state,
            detail=f"density {density:g}, noise {noise:g}",
        )


class _Contest:
    """Candidates are fitted one by one, and only the best fit so far is kept."""

    best: Tried
    solution: Solution

    def __init__(
        self,
        fit: Callable[[float, float, Solution | None], Solution],
        kind: tuple[bool, bool],  # standardised, with intercept
        *,
        by_loss: bool,
    ) -> None:
        self._fit, self._kind, self._by_loss = fit, kind, by_loss
        self.tried: list[Tried] = []
        self.interrupted = False

    def enter(self, density: float, noise: float, previous: Solution | None) -> Solution:
        solution = self._fit(density, noise, previous)
        weight = solution.problem.label_weight
        wrong = solution.problem.labels * solution.loo_log_odds() <= 0
        error, loss = float(weight @ wrong) / float(weight.sum()), solution.loo_log_loss()
        candidate = Tried(density, noise, error, loss, solution.outcome, *self._kind)
        self.interrupted |= solution.outcome is Outcome.INTERRUPTED
        if not self.tried or self.rank(candidate) < self.rank(self.best):
            self.best, self.solution = candidate, solution
        self.tried.append(candidate)
        return solution

    def rank(self, tried: Tried) -> tuple[int, float, float]:
        """The lower the better. Ties of the error, which is a count, go to the better log loss."""
        usable = tried.outcome is not Outcome.DIVERGED and np.isfinite(tried.loo_log_loss)
        criteria = (tried.loo_error, tried.loo_log_loss)
        return (0 if usable else 1, *(criteria[::-1] if self._by_loss else criteria))


def _try_grid(search: Search, contest: _Contest) -> None:
    """Every candidate; for each density from the noisiest labels on, each fit from the last."""
    for density in search.densities:
        solution: Solution | None = None
        for noise in sorted(search.noises, reverse=True):
            solution = contest.enter(density, noise, solution)
            if contest.interrupted:
                return


def _try_between(search: Search, contest: _Contest) -> None:
    """Candidates between those of the grid, by simplex search from the best.

    By the leave-one-out log loss: the error is a count, which no search can descend.
    """
    fixed = (contest.best.density, contest.best.noise)
    smallest_density = 1.0 / contest.solution.posterior.mean.size
    start = np.array([logit(fixed[0]), logit(np.clip(2.0 * fixed[1], 2e-3, 1.0 - 2e-3))])
    free = np.array([search.search_density, search.search_noise])

    def values(x: Array) -> tuple[float, float]:
        log_odds = start.copy()
        log_odds[free] = x
        density = float(np.clip(expit(log_odds[0]), smallest_density, LARGEST_DENSITY))
        noise = float(np.clip(0.5 * expit(log_odds[1]), SMALLEST_NOISE, LARGEST_NOISE))
        return (density if free[0] else fixed[0]), (noise if free[1] else fixed[1])

    def loss(x: Array) -> float:
        contest.enter(*values(x), contest.solution)
        if contest.interrupted:
            raise StopIteration
        latest = contest.tried[-1]
        return latest.loo_log_loss if contest.rank(latest)[0] == 0 else np.inf

    corners = np.vstack([np.zeros((1, free.sum())), np.eye(free.sum())])
    with suppress(StopIteration):  # from the keyboard
        minimize(
            loss,
            start[free],
            method="Nelder-Mead",
            options={
                "initial_simplex": start[free] + FIRST_SEARCH_STEP * corners,
                "maxfev": MOST_SEARCH_FITS,
                "xatol": SEARCH_TOLERANCE,
                "fatol": np.inf,
            },
        )
