"""From a matrix and labels to a tuned solution: assembly, starting values, blending, EM, the final run."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
from foldless.solvers.gamp import GAMPState
from foldless.solvers.solve import Watch
from foldless.tuning.em import EM, checked_names, tunable_names
from foldless.tuning.generative import BlendTuner, Candidate, blended, can_blend, descend, unblended
from foldless.tuning.loo import loo_log_loss
from foldless.tuning.start import class_means, starting_prior

# Wide beside any log-odds of class sizes, and narrow enough to be proper.
INTERCEPT_VARIANCE = 100.0
# Always-kept covariates: log-odds of three per standard deviation are common, of ten are not.
COVARIATE_VARIANCE = 10.0
# Comparing generative weights by leave-one-out does not need the last digits of each fit.
SCAN_TOLERANCE = 1e-2
# Max-sum runs this many iterations between EM steps, which belong at its optimum.
MAX_SUM_EM_PERIOD = 20


@dataclass(frozen=True)
class Columns:
    """Where things are among the columns of the assembled operator."""

    n_features: int
    always_kept: tuple[int, ...]
    intercept: bool
    means_removed: bool

    @property
    def n_penalised(self) -> int:
        return max(self.n_features - len(self.always_kept), 1)


@dataclass(frozen=True)
class Choices:
    """What is to be fitted, and how. Names for priors become objects with starting values from the data."""

    prior: str | Prior
    channel: Channel
    solver: GAMP
    tune: frozenset[str] | None  # None: everything that can be learnt; empty: nothing
    generative_weight: float | None  # None: by leave-one-out
    stopping: Stopping
    hyper: HyperPrior


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

    @property
    def n_rows(self) -> int:
        return self.standardized.shape[0]


def assemble(
    standardized: Standardized, labels: Array, sample_weight: Array, columns: Columns, channel: Channel
) -> Problem:
    """The problem with a vague prior on the penalised weights, to be replaced by the one asked for."""
    operator: Operator = standardized
    others: list[tuple[slice | NDArray[np.intp], Prior]] = []
    positions = np.array(columns.always_kept, dtype=np.intp)
    if positions.size:
        others.append((positions, Gaussian(COVARIATE_VARIANCE)))
    if columns.means_removed:
        operator = MeanRemoved(operator)
        labels, sample_weight = np.append(labels, [0.0, 0.0]), np.append(sample_weight, [1.0, 1.0])
        channel = Pinned(channel)
        first = columns.n_features
        others.append((slice(first, first + 2), Gaussian(INTERCEPT_VARIANCE)))
    if columns.intercept:
        operator = WithIntercept(operator)
        # Centred, and so started, where it belongs if no feature matters.
        positive = float(sample_weight @ (labels > 0))
        negative = float(sample_weight @ (labels < 0))
        log_odds = float(np.log(positive) - np.log(negative))
        others.append((slice(-1, None), Gaussian(INTERCEPT_VARIANCE, mean=log_odds)))
    if columns.intercept:
        positions = np.append(positions, operator.shape[1] - 1)
    kept = KeptColumns(positions, operator.columns(positions)) if positions.size else None
    return Problem(operator, labels, sample_weight, channel, Blocks(Gaussian(), tuple(others)), kept)


def fit(
    standardized: Standardized,
    labels: Array,
    sample_weight: Array,
    columns: Columns,
    choices: Choices,
    *,
    warm: GAMPState | None = None,
    watch: Watch | None = None,
) -> Fit:
    """Fit, tuned: one fit without folds."""
    problem = assemble(standardized, labels, sample_weight, columns, choices.channel)
    means = class_means(problem)
    prior = choices.prior
    if isinstance(prior, str):
        prior = starting_prior(prior, means, columns.n_penalised, problem.n_samples)
    assert isinstance(problem.prior, Blocks)
    problem = problem.but(prior=replace(problem.prior, base=prior))
    solver, n_iter = choices.solver, 0

    def solve_at(weight: float, previous: Solution | None, stopping: Stopping) -> Solution:
        nonlocal n_iter
        # Parameters tuned at the last weight are where tuning goes on; its messages are where solving does.
        base = problem if previous is None else unblended(previous.problem)
        at_weight = blended(base, weight, means)
        state = None if previous is None else solver.resumed(previous.state)
        if state is None and warm is not None:
            state = solver.resumed(warm)
        tuner = EM(
            _names(choices.tune, at_weight),
            hyper=choices.hyper,
            delay=1 if state is None else 0,
            every=1 if solver.rule == "sum-product" else MAX_SUM_EM_PERIOD,
        )
        solution = solve(
            at_weight, solver, stopping=stopping, tuner=BlendTuner(tuner, means), state=state, watch=watch
        )
        n_iter += len(solution.history)
        return solution

    weight = choices.generative_weight
    if weight is None and not can_blend(choices.channel):
        weight = 0.0
    if weight is None:
        scan = replace(choices.stopping, tol=max(SCAN_TOLERANCE, choices.stopping.tol), min_iter=2)
        frequency = (1 + means.label_mean) / 2
        ignorance = float(entr(frequency) + entr(1 - frequency))
        weight, rough, candidates = descend(lambda w, previous: solve_at(w, previous, scan), ignorance)
        solution = rough
        if rough.outcome is not Outcome.INTERRUPTED:
            solution = solve_at(weight, rough, choices.stopping)
    else:
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
        solver.rule == "max-sum",
    )


def _names(tune: frozenset[str] | None, problem: Problem) -> frozenset[str]:
    """Names as a user gives them, ``prior__inclusion``, in the nesting of the assembled problem."""
    known = tunable_names(problem)
    if tune is None:
        return known
    everything = {f"prior__{n}" for n in problem.prior.tunable_params()}
    everything |= {f"channel__{n}" for n in problem.channel.tunable_params()}
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
