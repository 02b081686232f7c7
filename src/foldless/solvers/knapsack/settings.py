"""The knapsack Bayes point machine tuned: an average over costs, sweeps, β and loops, by left-out errors.

By folds, in a library that does without: what other samples say has diffused into a sample's own messages, so
taking these out is no leave-one-out (liver: 49 % estimated, 29 % true), and the evidence of EP is that of
another likelihood (docs/decisions/0015-knapsack.md).

What makes folds cheap here: every β comes free from one run, as max-marginals only scale; so does every
number of sweeps, on the way; and a cost whose floor no message has touched gives the answer of all larger
ones. A fold costs one run per cost that matters, on a coarse grid.

Which of a hundred settings makes the fewest errors is mostly chance, so they are averaged. The machine gives
a classifier the weight e^(-errors) among all classifiers; settings get the same among settings, for errors
on samples left out. The average of their histograms is the histogram of the weight under all of them.

Both loops take part, the inner one alone and with the outer one after every sweep. The outer loop is right
where few weights meet few samples, and on real data swings about: there some sweeps of it are better than
anything the inner loop has, and others are worthless, which the folds find out. Where nothing else is left to
choose, both loops are weighted by the posterior of their points, which takes no folds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, softmax

from foldless.beliefs import Array
from foldless.problem import Outcome
from foldless.registry import registered
from foldless.solvers.knapsack import Histograms, Machine, Sweep, grid

COSTS = (0.3, 1.0, 3.0, 10.0)
SWEEPS = (1, 2, 5, 10, 20, 50)
LOOPS: tuple[int | None, ...] = (None, 1)
# With the outer loop, later sweeps only go round and round.
MOST_OUTER_SWEEPS = 10
BETAS = (0.1, 0.3, 1.0, 3.0, 10.0)
# Comparing costs needs no fine histograms: messages are linear between points, not constant in bins.
FOLD_BINS = 16
# Where folds cannot tell (a class of one sample), the middle of the road.
PLAIN_COST, PLAIN_SWEEPS, PLAIN_BETA = 1.0, 10, 1.0
# Sweeps over all folds, in samples x weights x (weights + moves of one message): some ten seconds, compiled.
# For larger tables fewer sweeps, then fewer loops, then fewer costs are compared.
WORK = 1.6e9
MOVES = 50
# Log-odds per unit of margin: scores that separate the classes would ask for infinity. Platt's targets.
LARGEST_SCALE = 1e3
# A setting with a smaller share of the average than this is not worth its run.
SMALLEST_SHARE = 1e-3

# A setting that has made so many more errors than another in some folds is not run in the next.
OUT_OF_REACH = 10.0

SweepWatch = Callable[[int, Sweep], None]


@registered("bayes-point/setting")
@dataclass(frozen=True)
class Setting:
    """One setting, how it predicted samples that it had not seen, and its share in the average."""

    cost: float
    n_sweeps: int
    beta: float
    error: float = np.nan
    share: float = 1.0
    outer_every: int | None = None


@dataclass(frozen=True)
class Choices:
    """What is averaged over; one value each is no choice, and takes no folds."""

    costs: tuple[float, ...] = COSTS
    sweeps: tuple[int, ...] = SWEEPS
    betas: tuple[float, ...] = BETAS
    n_folds: int = 5
    tol: float = 1e-4
    loops: tuple[int | None, ...] = LOOPS

    @property
    def settings(self) -> list[Setting]:
        """All of them; sweeps with the outer loop end early if there are several numbers to choose from."""
        return [
            Setting(cost, n_sweeps, beta, outer_every=outer)
            for outer, cost, n_sweeps, beta in product(self.loops, self.costs, self.sweeps, self.betas)
            if outer is None or n_sweeps <= MOST_OUTER_SWEEPS or len(self.sweeps) == 1
        ]

    @property
    def only_loops(self) -> bool:
        return len(self.costs) == len(self.sweeps) == len(self.betas) == 1

    def within(self, work: float, shape: tuple[int, int]) -> Choices:
        """As many of these as the folds can compare with so much work, for a table of samples x weights."""
        per_sweep = shape[0] * shape[1] * (shape[1] + MOVES) * self.n_folds
        coarser: tuple[dict[str, Any], ...] = (
            {},
            {"sweeps": _up_to(20, self.sweeps)},
            {"loops": self.loops[:1]},
            {"sweeps": _up_to(10, self.sweeps)},
            {"costs": self.costs[::2]},
        )
        choices = self
        for fewer in coarser:
            choices = replace(choices, **fewer)
            runs = {(s.outer_every, s.cost): s.n_sweeps for s in choices.settings}
            if per_sweep * sum(runs.values()) <= work:
                break
        return choices


def _up_to(most: int, sweeps: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in sweeps if n <= most) or sweeps[:1]


@dataclass(frozen=True, eq=False)
class KnapsackFit:
    """Histograms of the weights, and how they came about."""

    histograms: Histograms
    settings: list[Setting]  # the weightiest first
    cv_error: float  # of the average, on samples left out; NaN without folds
    cv_log_loss: float
    log_odds_scale: float  # log-odds per unit of margin
    bound: float  # of the log posterior, under the weightiest setting of the inner loop alone
    outcome: Outcome
    n_sweeps: int


def fit_knapsack(
    design: Array,
    labels: Array,
    sample_weight: Array,
    machine: Machine,
    choices: Choices,
    watch: SweepWatch | None = None,
    work: float = WORK,
) -> KnapsackFit:
    """Weigh the settings by folds if there are several, then run them on all samples, of positive weight."""
    rows = labels[:, np.newaxis] * design
    fold = folds(design, labels, choices.n_folds)
    if fold is None:
        choices = _plainest(choices)
    if choices.only_loops:
        return averaged(
            rows, sample_weight, machine, choices.settings, None, choices.tol, watch, by_posterior=True
        )
    assert fold is not None
    choices = choices.within(work, (rows.shape[0], rows.shape[1]))
    coarse = replace(machine, n_bins=min(machine.n_bins, FOLD_BINS))
    left_out = left_out_margins(rows, sample_weight, fold, coarse, choices, watch)
    settings = weighed(choices.settings, left_out, sample_weight)
    margins = np.array([s.share for s in settings]) @ left_out
    return averaged(rows, sample_weight, machine, settings, margins, choices.tol, watch)


def averaged(
    rows: Array,
    sample_weight: Array,
    machine: Machine,
    settings: list[Setting],
    margins: Array | None = None,
    tol: float = 0.0,
    watch: SweepWatch | None = None,
    *,
    by_posterior: bool = False,
) -> KnapsackFit:
    """The average over settings, fitted to all samples; `margins` are those of samples left out.

    Shares are those of the settings, or go by the posterior of their points.
    """
    settings = [s for s in settings if s.share > 0.0]
    # One after the other: histograms of all settings at once would take more memory than the messages.
    runs: Iterable[tuple[Setting, Sweep]] = sweeps_of(rows, sample_weight, machine, settings, tol, watch)
    if by_posterior:
        of_loops = list(runs)
        shares = softmax([_log_posterior(*run, rows, sample_weight, machine) for run in of_loops])
        settings = [replace(s, share=float(w)) for (s, _), w in zip(of_loops, shares, strict=True)]
        runs = zip(settings, (sweep for _, sweep in of_loops), strict=True)
    points = grid(rows.shape[1], machine.n_bins, machine.reach)
    probability: Array = np.zeros_like(points)
    n_sweeps: dict[tuple[int | None, float], int] = {}
    converged, bound, largest = True, np.nan, 0.0
    for setting, sweep in runs:
        probability += setting.share * sweep.marginals.at(setting.beta).probability
        run = setting.outer_every, setting.cost
        n_sweeps[run] = max(sweep.number, n_sweeps.get(run, 0))
        converged &= sweep.change <= tol
        # With the outer loop messages prove nothing.
        if not setting.outer_every and setting.share > largest:
            bound, largest = sweep.bound(), setting.share
    settings.sort(key=lambda s: -s.share)
    total = Histograms(points, probability / probability.sum(axis=-1, keepdims=True))
    error = log_loss = np.nan
    if margins is None:
        # Without folds: of the training samples, which is optimistic.
        scale = log_odds_scale(rows @ total.mean, sample_weight)
    else:
        scale = log_odds_scale(margins, sample_weight)
        share = sample_weight / sample_weight.sum()
        error = float(share @ (margins <= 0))
        log_loss = float(share @ np.logaddexp(0.0, -scale * margins))
    outcome = Outcome.CONVERGED if converged else Outcome.EARLY
    return KnapsackFit(total, settings, error, log_loss, scale, bound, outcome, sum(n_sweeps.values()))


def sweeps_of(
    rows: Array,
    sample_weight: Array,
    machine: Machine,
    settings: Sequence[Setting],
    tol: float,
    watch: SweepWatch | None = None,
) -> Iterator[tuple[Setting, Sweep]]:
    """Every setting with the sweep that it asks for, or with the last if messages have settled before.

    Settings of one loop and cost share a run, and so do larger costs if no message came down to the cost of
    the run: a floor that nothing touches changes nothing.
    """
    for outer in dict.fromkeys(s.outer_every for s in settings):
        seen: dict[int, Sweep] = {}
        floor = 0.0
        own = [s for s in settings if s.outer_every == outer]
        loop = replace(machine, outer_every=outer)
        for cost in sorted({s.cost for s in own}):
            waiting = [s for s in own if s.cost == cost]
            asked = {s.n_sweeps for s in waiting}
            if not (seen and seen[max(seen)].lowest > -floor and asked <= seen.keys()):
                seen, floor = {}, cost
                for sweep in loop.sweeps(rows, sample_weight, cost):
                    if watch is not None:
                        watch(sweep.number, sweep)
                    ready = {n for n in asked if sweep.change <= tol or n <= sweep.number}
                    if new := ready - seen.keys():
                        # The bound is that of the moment, whenever it is asked for.
                        seen |= dict.fromkeys(new, replace(sweep, bound=partial(float, sweep.bound())))
                    if len(seen) == len(asked):
                        break
            for setting in waiting:
                yield setting, seen[setting.n_sweeps]


def _log_posterior(
    setting: Setting, sweep: Sweep, rows: Array, sample_weight: Array, machine: Machine
) -> float:
    """Of the mean weights, with the prior averaged over the histograms, for which it need not be smooth."""
    weights = sweep.marginals.at(setting.beta)
    violated = float(sample_weight @ (rows @ weights.mean < 1.0))
    return float(np.sum(weights.probability * machine.log_prior(weights.points))) - setting.cost * violated


def weighed(settings: list[Setting], left_out: Array, sample_weight: Array) -> list[Setting]:
    """Every setting with its errors and its share, e^(-errors) of all; shares that do not matter are 0."""
    errors = (left_out <= 0) @ sample_weight
    share = np.exp(errors.min() - errors)
    share[share < SMALLEST_SHARE * share.sum()] = 0.0
    rate = errors / sample_weight.sum()
    return [
        replace(s, error=float(e), share=float(w))
        for s, e, w in zip(settings, rate, share / share.sum(), strict=True)
    ]


def left_out_margins(
    rows: Array,
    sample_weight: Array,
    fold: NDArray[np.intp],
    machine: Machine,
    choices: Choices,
    watch: SweepWatch | None = None,
) -> Array:
    """Margins y w·x of every sample by the folds without it, for every setting in order.

    They are 0, which counts as an error, for a setting that is out of reach after some folds.
    """
    settings = choices.settings
    place = {setting: n for n, setting in enumerate(settings)}
    margins, errors = np.zeros((len(settings), len(rows))), np.zeros(len(settings))
    for k in range(int(fold.max()) + 1):
        inside, outside = fold == k, fold != k
        within_reach = list(compress(settings, errors <= errors.min() + OUT_OF_REACH))
        runs = sweeps_of(rows[outside], sample_weight[outside], machine, within_reach, choices.tol, watch)
        for setting, sweep in runs:
            margins[place[setting], inside] = rows[inside] @ sweep.marginals.at(setting.beta).mean
        errors += (margins[:, inside] <= 0) @ sample_weight[inside]
    return margins


def folds(design: Array, labels: Array, n_folds: int) -> NDArray[np.intp] | None:
    """The fold of each sample, or None if a class has a single sample.

    Equal samples share a fold, and samples are dealt out in an order of their own, class by class: so neither
    the order of rows nor writing a sample of weight two as two rows changes anything.
    """
    samples = np.column_stack([labels, design])
    _, first, group = np.unique(samples, axis=0, return_index=True, return_inverse=True)
    of_class = labels[first]
    fewest = min(int(np.sum(of_class < 0)), int(np.sum(of_class > 0)))
    n_folds = min(n_folds, fewest)
    if n_folds < 2:
        return None
    # Unique rows are sorted, by label first. Neighbours resemble each other and go to different folds.
    return (np.arange(first.size) % n_folds)[group.reshape(-1)]


def log_odds_scale(margins: Array, weight: Array) -> float:
    """The factor that makes margins log-odds: maximum likelihood of Platt's softened labels, one parameter.

    No sample counts as certain, (n + 1)/(n + 2) instead of 1, so the factor is finite for separated classes.
    """
    size = float(np.sqrt(weight @ np.square(margins) / weight.sum()))
    if size == 0.0:
        return 1.0
    target = (weight.sum() + 1.0) / (weight.sum() + 2.0)
    pull = weight * margins / size

    def slope(scale: float) -> float:
        """Of the log-likelihood, which is concave."""
        return float(pull @ (target - expit(scale * margins / size)))

    # Margins that are wrong more often than not are worthless, but a larger one still means its class.
    if slope(1.0 / LARGEST_SCALE) <= 0.0:
        return 1.0 / LARGEST_SCALE / size
    if slope(LARGEST_SCALE) >= 0.0:
        return LARGEST_SCALE / size
    return float(brentq(slope, 1.0 / LARGEST_SCALE, LARGEST_SCALE)) / size


def _plainest(choices: Choices) -> Choices:
    """One cost, number of sweeps and β of these."""

    def nearest(values: tuple[Any, ...], wanted: float) -> tuple[Any, ...]:
        return (min(values, key=lambda value: abs(np.log(value / wanted))),)  # 0 < value <= infinity

    return replace(
        choices,
        costs=nearest(choices.costs, PLAIN_COST),
        sweeps=nearest(choices.sweeps, PLAIN_SWEEPS),
        betas=nearest(choices.betas, PLAIN_BETA),
    )
