"""A tuned fit of one model: starting values, the blend with class means, EM or SURE, and the final run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from foldless.beliefs import Array
from foldless.channels import Channel, Hinge, Pinned
from foldless.channels.base import innermost
from foldless.priors import HyperPrior, Laplace, Prior, SupportsInclusion
from foldless.problem import Outcome, Problem, Solution
from foldless.solvers import Stopping
from foldless.solvers.base import Solver, Tuner
from foldless.solvers.screening import Screening, solve_screened
from foldless.tuning.class_means import (
    GRID,
    BlendTuner,
    Candidate,
    ClassMeans,
    blended,
    can_blend,
    class_means,
    descend,
    informed,
    starting_prior,
    unblended,
    without_own_means,
)
from foldless.tuning.em import EM, checked_names, tunable_names, without_base
from foldless.tuning.plan import CLASS_MEANS_PRIOR, learnt_by
from foldless.tuning.record import Recorder
from foldless.tuning.sure import SureRate
from foldless.tuning.table import Table, assembled, blocks_of, with_prior

# The tolerance of fits at which generative weights are compared: that does not need the last digits.
SCAN_TOLERANCE = 1e-2
# After so many sweeps a generative weight is given up that is clearly worse than another.
GLANCE = 6
# Max-sum runs so many iterations between EM steps, which are meant for its optimum.
MAX_SUM_EM_PERIOD = 20

SPARSE = "sparse"


@dataclass(frozen=True)
class Choices:
    """What is to be fitted, and how, as far as users of an estimator can choose it."""

    # A name stands for a prior whose starting values come from the data.
    prior: str | Prior
    channel: Channel
    solver: Solver[Any]
    stopping: Stopping
    tune: frozenset[str] | None = None  # None: everything that can be learnt; empty: nothing
    tuning: str = "em"  # or "sure": nothing but the rate of a Laplace prior under max-sum
    generative_weight: float | None = None  # None: the best by leave-one-out
    hyper: HyperPrior = field(default_factory=HyperPrior)
    screening: Screening | None = None  # None: all weights are visited in every iteration

    @property
    def learnt_by(self) -> str:
        return learnt_by(
            self.tuning,
            laplace=self.prior == "laplace" or isinstance(self.prior, Laplace),
            max_sum=self.solver.max_sum,
            rate_asked=self.tune is None or "prior__rate" in map(without_base, self.tune),
            kinked=isinstance(innermost(self.channel), Hinge),
        )

    @property
    def searched(self) -> bool:
        """Whether generative weights are compared."""
        return self.generative_weight is None and self.tuning == "em" and can_blend(self.channel)


@dataclass(frozen=True, eq=False)
class Fit:
    """A tuned solution, for standardised columns."""

    solution: Solution
    table: Table
    prior: Prior  # of the free weights, as tuned
    channel: Channel  # as tuned, without the blend
    generative_weight: float = 0.0
    candidates: tuple[Candidate, ...] = ()
    max_sum: bool = False
    # Inclusion probabilities of features, and means and variances of weights, where they are averages with
    # those of another solution; and the share of this one in these probabilities.
    inclusion: Array | None = None
    moments: tuple[Array, Array] | None = None
    share: float = 1.0
    # The same fit with more labels wrong, and its probability (`models.sparse.with_more_flips`).
    more_flips: tuple[Fit, float] | None = None

    @classmethod
    def of(cls, solution: Solution, table: Table, generative_weight: float = 0.0, **more: Any) -> Fit:
        """The fit of a solution as it is. Unless candidates are given, the solution is the only one."""
        plain = unblended(solution.problem) if generative_weight else solution.problem
        channel = plain.channel.base if isinstance(plain.channel, Pinned) else plain.channel
        own = (Candidate(0.0, solution.loo_log_loss(), solution.outcome),)
        prior = blocks_of(plain).base
        return cls(solution, table, prior, channel, generative_weight, **{"candidates": own, **more})

    @property
    def outcome(self) -> Outcome:
        return self.solution.outcome

    @property
    def selecting(self) -> Solution:
        """The solution, with the moments of weights that go with the inclusion probabilities."""
        if self.moments is None:
            return self.solution
        mean, var = self.moments
        return replace(self.solution, posterior=replace(self.solution.posterior, mean=mean, var=var))

    def inclusion_probability(self) -> Array:
        """The probability that a feature matters, for any class."""
        n, posterior = self.table.layout.n_features, self.solution.posterior
        prior = self.solution.problem.prior.constrained(posterior.cavity_mean, posterior.cavity_var)
        if self.inclusion is not None:
            inclusion = self.inclusion
        elif self.max_sum:
            inclusion = (posterior.mean[:n] != 0).astype(np.float64)
        elif isinstance(prior, SupportsInclusion):
            inclusion = prior.inclusion_probability(posterior.cavity_mean, posterior.cavity_var)[:n]
        else:
            inclusion = np.ones(n)
        # Row-sparse weights are in or out for all classes at once; of others the surest class counts.
        inclusion = inclusion if inclusion.ndim == 1 else inclusion.max(axis=1)
        # A column that never varies cannot tell classes apart, whatever the prior of its weight.
        inclusion = np.where(self.table.standardized.constant, 0.0, inclusion)
        inclusion[self.table.kept] = 1.0
        return inclusion


def fit_tuned(
    table: Table,
    choices: Choices,
    recorder: Recorder,
    *,
    purpose: str = "fit",
    warm: Fit | None = None,
    sample: Fit | None = None,
) -> Fit:
    """The fit of a table, tuned without folds. It starts from a fit of a `sample` of the rows, or from an
    earlier (`warm`) fit, if there is one.
    """
    if sample is not None:
        choices = replace(choices, prior=sample.prior, channel=sample.channel)
    problem, means = _starting_problem(table, choices)
    search = _Search(problem, means, table, choices, recorder, purpose, sample)
    if warm is not None:
        weight, candidates = warm.generative_weight, list(warm.candidates)
        tuned = warm.solution.problem
        ended = replace(warm.solution, problem=problem.but(channel=tuned.channel, prior=tuned.prior))
        solution = search.solve_at(weight, ended, choices.stopping, purpose)
    elif choices.searched:
        weight, solution, candidates = search.run()
    else:
        weight = choices.generative_weight or 0.0
        stopping = replace(choices.stopping, max_iter=1) if search.interrupted else choices.stopping
        solution = search.solve_at(weight, None, stopping, purpose)
        if search.interrupted:
            solution = replace(solution, outcome=Outcome.INTERRUPTED)
        candidates = [Candidate(weight, solution.loo_log_loss(), solution.outcome)]
    if choices.prior == CLASS_MEANS_PRIOR:
        solution = without_own_means(solution, table)
        candidates = [Candidate(weight, solution.loo_log_loss(), solution.outcome)]
    return Fit.of(solution, table, weight, candidates=tuple(candidates), max_sum=choices.solver.max_sum)


def fit_some_rows(rows: NDArray[np.intp], table: Table, choices: Choices, recorder: Recorder) -> Fit | None:
    """A rough fit of some rows, to start all of them from; None if it diverges."""
    stopping = replace(choices.stopping, tol=max(SCAN_TOLERANCE, choices.stopping.tol))
    found = fit_tuned(table.some_rows(rows), replace(choices, stopping=stopping), recorder, purpose="sample")
    return None if found.outcome is Outcome.DIVERGED else found


def _starting_problem(table: Table, choices: Choices) -> tuple[Problem, ClassMeans]:
    problem = assembled(table, choices.channel)
    means = class_means(table)
    prior, free = choices.prior, means.of_columns(np.flatnonzero(table.free))
    if isinstance(prior, Laplace) and choices.learnt_by == "sure":
        # From a smaller rate labels are followed until no slopes are left, and no noise to tell weights from.
        prior = max(prior, starting_prior("laplace", free), key=lambda each: each.rate)  # type: ignore[attr-defined]
    if isinstance(prior, str):
        if prior == CLASS_MEANS_PRIOR:
            start = starting_prior("spike-and-slab", free)
            prior = informed(start, means, problem.operator.shape[1], problem.channel)
        else:
            prior = starting_prior(prior, free)
    return with_prior(problem, prior), means.padded(problem.operator.shape[1], table.standardized.dtype)


@dataclass
class _Search:
    """Fits of one problem at several generative weights, each from the one before."""

    problem: Problem
    means: ClassMeans
    table: Table
    choices: Choices
    recorder: Recorder
    purpose: str
    sample: Fit | None

    @property
    def interrupted(self) -> bool:
        """Whether the fit of the sample was interrupted: all rows are then visited once, for an answer."""
        return self.sample is not None and self.sample.outcome is Outcome.INTERRUPTED

    def run(self) -> tuple[float, Solution, list[Candidate]]:
        """The weight with the smallest leave-one-out loss, and its fit to the last digit."""
        stopping = self.choices.stopping
        scan = replace(stopping, tol=max(SCAN_TOLERANCE, stopping.tol), min_iter=2)
        glance = replace(scan, max_iter=min(GLANCE, scan.max_iter))
        frequency = self.table.class_weight / self.table.class_weight.sum()
        ignorance = float(np.sum(entr(frequency)))
        grid: tuple[float, ...] = GRID
        if self.sample is not None:
            # With more samples class means get less weight, never more. Whether a fit without them is better
            # has been tried on the sample.
            grid, ignorance = tuple(w for w in GRID if w <= self.sample.generative_weight), np.inf
        if self.interrupted:
            scan = glance = replace(scan, max_iter=1)
            grid = grid[:1]
        search = "sample" if self.purpose == "sample" else "search"
        weight, rough, candidates = descend(
            lambda w, previous, glancing: self.solve_at(w, previous, glance if glancing else scan, search),
            ignorance,
            grid,
        )
        if self.interrupted:
            rough = replace(rough, outcome=Outcome.INTERRUPTED)
        if rough.outcome is Outcome.INTERRUPTED:
            return weight, rough, candidates
        final = self.solve_at(weight, rough, stopping, self.purpose)
        # A rough answer that settled is better than a fine one that ran away.
        ran_away = final.outcome is Outcome.DIVERGED and rough.outcome is not Outcome.DIVERGED
        return weight, rough if ran_away else final, candidates

    def solve_at(
        self, weight: float, previous: Solution | None, stopping: Stopping, purpose: str
    ) -> Solution:
        choices, solver = self.choices, self.choices.solver
        # Parameters and messages of the last weight are where this one starts.
        base = self.problem if previous is None else unblended(previous.problem)
        problem = blended(base, weight, self.means)
        state = None if previous is None else solver.as_start(previous.state)
        if state is None and self.sample is not None:
            state = solver.for_new_rows(problem, self.sample.solution.state)
        screening, screened = choices.screening, None
        if screening is not None and screening.applies(problem, solver):
            screened = partial(
                solve_screened,
                problem,
                solver,
                screening,
                stopping=stopping,
                small_stopping=choices.stopping,
                tuner_for=self.tuner_for,
                state=state,
                watch=self.recorder.watch,
            )
        return self.recorder.solve(
            problem,
            solver,
            model=SPARSE,
            purpose=purpose,
            stopping=stopping,
            tuner=self.tuner_for(problem, delay=1 if state is None else 0),
            state=state,
            detail=f"generative weight {weight:g}",
            screened=screened,
        )

    def tuner_for(
        self,
        problem: Problem,
        columns: NDArray[np.intp] | None = None,
        *,
        delay: int = 0,
        learn: bool = True,
    ) -> Tuner:
        """The tuner of the problem, or of one that has only some of its columns."""
        asked = self.choices.tune
        names = tunable_names(problem) if asked is None else checked_names(problem, asked)
        by_sure = self.choices.learnt_by == "sure" and learn
        if self.choices.tuning == "sure":
            names = frozenset()
        elif by_sure:
            names = frozenset(name for name in names if without_base(name) != "prior__rate")
        em = EM(
            names if learn else frozenset(),
            hyper=self.choices.hyper,
            delay=delay,
            every=MAX_SUM_EM_PERIOD if self.choices.solver.max_sum else 1,
        )
        means = self.means
        if columns is not None:
            means = replace(means, within_var=means.within_var[columns])
        tuner = BlendTuner(em, means)
        return SureRate(tuner) if by_sure else tuner
