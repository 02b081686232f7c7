"""From a matrix and labels to a tuned solution: assembly, starting values, blending, EM, the final run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from foldless.beliefs import Array
from foldless.channels import Channel, Pinned
from foldless.operators import MeanRemoved, Operator, Standardized, WithIntercept
from foldless.priors import Blocks, Gaussian, HyperPrior, Prior
from foldless.problem import KeptColumns, Problem
from foldless.solution import Outcome, Solution
from foldless.solvers import GAMP, Stopping, solve
from foldless.solvers.base import Solver
from foldless.solvers.solve import Watch
from foldless.tuning.em import EM, checked_names, tunable_names
from foldless.tuning.generative import (
    GRID,
    BlendTuner,
    Candidate,
    blended,
    can_blend,
    descend,
    unblended,
)
from foldless.tuning.loo import loo_log_loss
from foldless.tuning.sample import parts_of
from foldless.tuning.screening import Screening, solve_screened
from foldless.tuning.start import class_means, starting_prior

# Wide beside any log-odds of class sizes, and narrow enough to be proper.
INTERCEPT_VARIANCE = 100.0
# Always-kept covariates: log-odds of three per standard deviation are common, of ten are not.
COVARIATE_VARIANCE = 10.0
# Comparing generative weights by leave-one-out does not need the last digits of each fit.
SCAN_TOLERANCE = 1e-2
# Sweeps after which a generative weight that is clearly worse than another is given up.
GLANCE = 6
# Max-sum runs this many iterations between EM steps, which belong at its optimum.
MAX_SUM_EM_PERIOD = 20


@dataclass(frozen=True)
class Columns:
    """Where things are among the columns of the assembled operator: features, mean removal's, intercept."""

    n_features: int
    always_kept: tuple[int, ...]
    intercept: bool
    means_removed: bool

    def free(self, constant: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The features that vary and may be left out."""
        free = ~constant
        free[list(self.always_kept)] = False
        return free


@dataclass(frozen=True)
class Choices:
    """What is to be fitted, and how. Names for priors become objects with starting values from the data."""

    prior: str | Prior
    channel: Channel
    solver: Solver[Any]
    tune: frozenset[str] | None  # None: everything that can be learnt; empty: nothing
    generative_weight: float | None  # None: by leave-one-out
    stopping: Stopping
    hyper: HyperPrior
    screening: Screening = field(default_factory=Screening)


@dataclass(frozen=True, eq=False)
class Fit:
    """The tuned solution, in the standardised units it was found in."""

    solution: Solution
    standardized: Standardized
    columns: Columns
    prior: Prior  # of the penalised weights, as tuned
    channel: Channel  # as tuned, without the blend
    generative_weight: float
    candidates: list[Candidate]
    n_iter: int
    max_sum: bool
    # Of all columns, where it is not that of the solution alone.
    inclusion: Array | None = field(default=None, kw_only=True)

    @property
    def n_rows(self) -> int:
        return self.standardized.shape[0]


def assemble(
    standardized: Standardized,
    labels: Array,
    sample_weight: Array,
    columns: Columns,
    channel: Channel,
    left_out: Array | None = None,
) -> Problem:
    """The problem with a vague prior on the penalised weights, to be replaced by the one asked for."""
    operator: Operator = standardized
    n_samples = standardized.shape[0]
    left_out = np.minimum(sample_weight, 1.0) if left_out is None else left_out
    kept = np.array(columns.always_kept, dtype=np.intp)
    others: list[tuple[slice | NDArray[np.intp], Prior]] = []
    if kept.size:
        others.append((kept, Gaussian(COVARIATE_VARIANCE)))
    # Columns that never vary say nothing and are not counted among features that could have mattered.
    constant = np.setdiff1d(np.flatnonzero(standardized.constant), kept)
    if constant.size:
        others.append((constant, Gaussian()))
    log_odds = float(np.log(sample_weight @ (labels > 0)) - np.log(sample_weight @ (labels < 0)))
    if columns.means_removed:
        operator = MeanRemoved(operator, sample_weight)
        labels, sample_weight = np.append(labels, [0.0, 0.0]), np.append(sample_weight, [1.0, 1.0])
        left_out = np.append(left_out, [1.0, 1.0])
        channel = Pinned(channel)
        others.append((slice(columns.n_features, columns.n_features + 2), Gaussian(INTERCEPT_VARIANCE)))
    if columns.intercept:
        operator = WithIntercept(operator, n_samples)
        # Centred, and so started, where it belongs if no feature matters.
        others.append((slice(-1, None), Gaussian(INTERCEPT_VARIANCE, mean=log_odds)))
        kept = np.append(kept, operator.shape[1] - 1)
    return Problem(
        operator,
        labels,
        sample_weight,
        channel,
        Blocks(Gaussian(), tuple(others)),
        KeptColumns(kept, operator.columns(kept)) if kept.size else None,
        left_out,
    )


def fit(
    standardized: Standardized,
    labels: Array,
    sample_weight: Array,
    columns: Columns,
    choices: Choices,
    *,
    left_out: Array | None = None,
    warm: Any = None,
    sample: Fit | None = None,
    watch: Watch | None = None,
) -> Fit:
    """Fit, tuned, without folds. `left_out` is the weight that leave-one-out takes out of each sample.

    Of very many rows some are fitted first, unless a fit of a `sample` of them is there.
    """
    search = choices.generative_weight is None and can_blend(choices.channel)
    parts = parts_of(labels, sample_weight) if search and warm is None and sample is None else None
    if parts is not None:
        sample = fit_of_rows(
            parts.search,
            standardized,
            labels,
            sample_weight,
            columns,
            choices,
            left_out=left_out,
            watch=watch,
        )
    if sample is not None:
        choices = replace(choices, prior=sample.prior, channel=sample.channel)
    problem = assemble(standardized, labels, sample_weight, columns, choices.channel, left_out)
    means = class_means(standardized, labels, sample_weight)
    prior = choices.prior
    if isinstance(prior, str):
        free = columns.free(standardized.constant)
        prior = starting_prior(prior, means.of_columns(np.flatnonzero(free)), problem.n_samples)
    # Differences are only for starting values; the rest is held all the while.
    means = replace(means.padded(problem.operator.shape[1], standardized.dtype), difference=np.zeros(0))
    assert isinstance(problem.prior, Blocks)
    problem = problem.but(prior=replace(problem.prior, base=prior))
    solver, n_iter = choices.solver, 0 if sample is None else sample.n_iter
    max_sum = isinstance(solver, GAMP) and solver.rule == "max-sum"

    def solve_at(weight: float, previous: Solution | None, stopping: Stopping) -> Solution:
        nonlocal n_iter
        # Parameters tuned at the last weight are where tuning goes on; its messages are where solving does.
        base = problem if previous is None else unblended(previous.problem)
        at_weight = blended(base, weight, means)
        state = None if previous is None else solver.as_start(previous.state)
        if state is None and warm is not None:
            state = solver.for_new_data(problem, warm)
        if state is None and sample is not None:
            state = solver.for_new_rows(at_weight, sample.solution.state)

        def tuner_for(
            problem: Problem,
            columns: NDArray[np.intp] | None = None,
            *,
            delay: int = 0,
            learn: bool = True,
        ) -> BlendTuner:
            em = EM(
                _names(choices.tune, problem) if learn else frozenset(),
                hyper=choices.hyper,
                delay=delay,
                every=MAX_SUM_EM_PERIOD if max_sum else 1,
            )
            own = means if columns is None else replace(means, within_var=means.within_var[columns])
            return BlendTuner(em, own)

        if choices.screening.applies(at_weight, solver):
            solution = solve_screened(
                at_weight,
                solver,
                choices.screening,
                stopping=stopping,
                small_stopping=choices.stopping,
                tuner_for=tuner_for,
                state=state,
                watch=watch,
            )
        else:
            tuner = tuner_for(at_weight, delay=1 if state is None else 0)
            solution = solve(at_weight, solver, stopping=stopping, tuner=tuner, state=state, watch=watch)
        n_iter += len(solution.history)
        return solution

    if search:
        scan = replace(choices.stopping, tol=max(SCAN_TOLERANCE, choices.stopping.tol), min_iter=2)
        frequency = (1 + means.label_mean) / 2
        ignorance = float(entr(frequency) + entr(1 - frequency))
        glance = replace(scan, max_iter=min(GLANCE, scan.max_iter))
        grid: tuple[float, ...] = GRID
        if sample is not None:
            # More samples trust class means less, never more. The sample has had its second opinion.
            grid, ignorance = tuple(w for w in GRID if w <= sample.generative_weight), np.inf
        if sample is not None and sample.solution.outcome is Outcome.INTERRUPTED:
            scan = glance = replace(scan, max_iter=1)
            grid = grid[:1]
        weight, rough, candidates = descend(
            lambda w, previous, glancing: solve_at(w, previous, glance if glancing else scan), ignorance, grid
        )
        if sample is not None and sample.solution.outcome is Outcome.INTERRUPTED:
            rough = replace(rough, outcome=Outcome.INTERRUPTED)
        solution = rough
        if rough.outcome is not Outcome.INTERRUPTED:
            polished = solve_at(weight, rough, choices.stopping)
            # A rough answer that settled is better than a fine one that ran away.
            if polished.outcome is not Outcome.DIVERGED or rough.outcome is Outcome.DIVERGED:
                solution = polished
    else:
        weight = choices.generative_weight or 0.0
        solution = solve_at(weight, None, choices.stopping)
        candidates = [Candidate(weight, loo_log_loss(solution), solution.outcome)]

    plain = unblended(solution.problem)
    assert isinstance(plain.prior, Blocks)
    channel = plain.channel.base if isinstance(plain.channel, Pinned) else plain.channel
    return Fit(
        solution,
        standardized,
        columns,
        plain.prior.base,
        channel,
        weight,
        candidates,
        n_iter,
        max_sum,
    )


def fit_of_rows(
    rows: NDArray[np.intp],
    standardized: Standardized,
    labels: Array,
    sample_weight: Array,
    columns: Columns,
    choices: Choices,
    *,
    left_out: Array | None = None,
    watch: Watch | None = None,
) -> Fit | None:
    """A rough fit of some rows, to start all of them from; None if they cannot be had, or it diverges."""
    part = standardized.some_rows(rows)
    if part is None:
        return None
    stopping = replace(choices.stopping, tol=max(SCAN_TOLERANCE, choices.stopping.tol))
    found = fit(
        part,
        labels[rows],
        sample_weight[rows],
        columns,
        replace(choices, stopping=stopping),
        left_out=None if left_out is None else left_out[rows],
        watch=watch,
    )
    return found if found.solution.outcome is not Outcome.DIVERGED else None


def _names(tune: frozenset[str] | None, problem: Problem) -> frozenset[str]:
    """Names as a user gives them, ``prior__inclusion``, in the nesting of the assembled problem."""
    known = tunable_names(problem)
    if tune is None:
        return known
    everything = {f"prior__{n}" for n in problem.prior.tunable_params(on_request=True)}
    everything |= {f"channel__{n}" for n in problem.channel.tunable_params(on_request=True)}
    # Wrappers put there by the assembly are all called `base`, so names are compared without it.
    found = set()
    for name in tune:
        part = name.partition("__")[0]
        matches = [
            n for n in everything if n.startswith(part + "__") and _without_base(n) == _without_base(name)
        ]
        if not matches:
            raise ValueError(
                f"tune names {name!r}, which cannot be learnt here. What can be: "
                f"{sorted(map(_without_base, everything))}."
            )
        found.update(matches)
    return checked_names(problem, frozenset(found))


def _without_base(name: str) -> str:
    return "__".join(part for part in name.split("__") if part != "base")
