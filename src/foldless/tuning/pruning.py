"""The pruned Bayes classifier: its density and its label noise, chosen by leave-one-out from the cavities.

Uda and Kabashima (2005): GAMP with the prior `Pruned(density)` and a channel with label noise, both chosen by
the leave-one-out error that every fit has for nothing. Units are the paper's: samples are centred and of unit
length on average, so that scores have the prior's power, the density itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
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

# What the paper chooses from.
DENSITIES = (0.0025, 0.005, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
NOISES = (0.1, 0.2, 0.3, 0.4)
# Where a search between values may start.
COARSE_DENSITIES, COARSE_NOISES = (0.01, 0.1, 0.4), (0.1, 0.3)
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


@dataclass(frozen=True)
class Search:
    """What density and noise are chosen from, and which of them to search further from the best pair."""

    densities: tuple[float, ...]
    noises: tuple[float, ...]
    search_density: bool = False
    search_noise: bool = False

    @property
    def continuous(self) -> bool:
        return self.search_density or self.search_noise

    @property
    def nothing_to_choose(self) -> bool:
        return len(self.densities) == len(self.noises) == 1 and not self.continuous


@dataclass(frozen=True, eq=False)
class PrunedFit:
    """A fit, and what it was chosen from; weights are those of whitened columns if there is a whitening."""

    solution: Solution
    table: Table  # in the paper's units
    density: float
    noise: float
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
        common = np.sqrt(np.mean(np.square(scale[varying]))) if varying.any() else 1.0
        scale = np.full_like(scale, common)
    scaled = Standardized(
        standardized.operator, standardized.center, scale * np.sqrt(n_varying), standardized.constant
    )
    return replace(table, standardized=scaled)


def fit_pruned(
    table: Table, choices: Choices, search: Search, recorder: Recorder, whiten: Whiten | None = None
) -> PrunedFit:
    """Fit every candidate, keep the one that predicts left-out labels best, and finish it.

    The table is in the paper's units (`in_paper_units`).
    """
    standardized = table.standardized
    whitening = None if whiten is None else Whitening.fit(standardized, table.sample_weight, whiten)
    data = _Data(
        operator=standardized if whitening is None else whitening.operator(standardized),
        labels=table.labels,
        sample_weight=table.sample_weight,
        constant=standardized.constant if whitening is None else np.zeros(whitening.n_columns, dtype=bool),
        intercept=table.layout.intercept,
    )

    def solve_at(
        density: float, noise: float, previous: Solution | None, stopping: Stopping, purpose: str = "fit"
    ) -> Solution:
        problem = data.problem(density, noisy(choices.channel, noise))
        # A neighbour's messages are a good start, but not those of a run that went astray.
        usable = previous is not None and previous.outcome is not Outcome.DIVERGED
        state = choices.solver.as_start(previous.state) if previous is not None and usable else None
        return recorder.solve(
            problem,
            choices.solver,
            model="sparse",
            purpose=purpose,
            stopping=stopping,
            state=state,
            detail=f"density {density:g}, noise {noise:g}",
        )

    if search.nothing_to_choose:
        density, noise = search.densities[0], search.noises[0]
        solution = solve_at(density, noise, None, choices.stopping)
        tried = [_tried(density, noise, solution)]
    else:
        stopping = choices.stopping
        scan = replace(
            stopping,
            tol=max(stopping.tol, SCAN_TOLERANCE),
            max_iter=min(stopping.max_iter, SCAN_SWEEPS),
        )

        def rough(density: float, noise: float, previous: Solution | None) -> Solution:
            return solve_at(density, noise, previous, scan, "search")

        contest = _Contest(rough, by_loss=search.continuous)
        _try_grid(search, contest)
        if search.continuous and not contest.interrupted:
            _try_between(search, contest)
        solution, tried = contest.solution, contest.tried
        density, noise = contest.best.density, contest.best.noise
        if contest.interrupted:
            solution = replace(solution, outcome=Outcome.INTERRUPTED)
        else:
            finished = solve_at(density, noise, solution, choices.stopping)
            # A rough answer that settled is better than a fine one that ran away.
            if finished.outcome is not Outcome.DIVERGED or solution.outcome is Outcome.DIVERGED:
                solution = finished

    return PrunedFit(solution, table, density, noise, tried, whitening)


@dataclass(frozen=True, eq=False)
class _Data:
    """What all candidates share."""

    operator: Operator
    labels: Array
    sample_weight: Array
    constant: NDArray[np.bool_]
    intercept: bool

    def problem(self, density: float, channel: Channel) -> Problem:
        others: list[tuple[slice | NDArray[np.intp], Prior]] = []
        constant = np.flatnonzero(self.constant)
        # Columns that never vary are no features, and not counted among those of which a share is active.
        if constant.size:
            others.append((constant, Gaussian()))
        operator = self.operator
        if self.intercept:
            operator = WithIntercept(operator)
            # As much as all features together can do, and no more: labels of a step do not depend on scale.
            others.append((slice(-1, None), Gaussian(density)))
        prior = Blocks(Pruned(density), tuple(others))
        return Problem(operator, self.labels, self.sample_weight, channel, prior)


class _Contest:
    """Candidates are fitted one by one, and only the best fit so far is kept."""

    best: Tried
    solution: Solution

    def __init__(self, fit: Callable[[float, float, Solution | None], Solution], *, by_loss: bool) -> None:
        self._fit, self._by_loss = fit, by_loss
        self.tried: list[Tried] = []
        self.interrupted = False

    def enter(self, density: float, noise: float, previous: Solution | None) -> Solution:
        solution = self._fit(density, noise, previous)
        candidate = _tried(density, noise, solution)
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


def _tried(density: float, noise: float, solution: Solution) -> Tried:
    weight = solution.problem.label_weight
    wrong = solution.problem.labels * solution.loo_log_odds() <= 0
    error = float(weight @ wrong) / float(weight.sum())
    return Tried(density, noise, error, solution.loo_log_loss(), solution.outcome)
