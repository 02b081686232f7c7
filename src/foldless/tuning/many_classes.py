"""From a matrix and labels of D classes to a tuned solution: SHyGAMP with starting values, blending and EM.

Beside `fit.py`, which does the same for two classes: a score and a column of weights for each class,
row-sparse weights, and class means of D classes. In the blended likelihood  log p(y | x) + ω log p(x)  with
x | y = k ~ N(mean_k, v), the weights of class k are mean_k / v and

    log p(x, y) = z_y - Σ_k n_k v w_k²/2 + const   per feature, summed over samples,

so that ω turns the softmax into `BlendedMultinomial` and adds a ridge ω n_k v to the weights of class k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from foldless.beliefs import Array
from foldless.channels import BlendedMultinomial, Multinomial
from foldless.operators import Operator, Standardized, WithIntercept
from foldless.priors import Blocks, Gaussian, HyperPrior, Laplace, Prior, Ridged, RowSparse, SpikeAndSlab
from foldless.problem import KeptColumns, Problem
from foldless.solution import Outcome, Solution
from foldless.solvers import GAMP, Stopping, solve
from foldless.solvers.solve import Watch
from foldless.tuning.em import EM, tunable_names
from foldless.tuning.fit import COVARIATE_VARIANCE, GLANCE, INTERCEPT_VARIANCE, SCAN_TOLERANCE
from foldless.tuning.generative import Candidate, descend
from foldless.tuning.loo import loo_log_loss
from foldless.tuning.start import LEAST_SIGNAL_SHARE, SLAB_VARIANCE_RANGE
from foldless.tuning.sure import SureRate

PRIORS = ("row-sparse", "spike-and-slab", "gaussian", "laplace")


@dataclass(frozen=True)
class Choices:
    """What is to be fitted, and how."""

    prior: str | Prior
    channel: Multinomial
    solver: GAMP
    generative_weight: float | None  # None: by leave-one-out
    stopping: Stopping
    hyper: HyperPrior
    tune: bool = True


@dataclass(frozen=True, eq=False)
class Fit:
    """The tuned solution, in the standardised units it was found in."""

    solution: Solution
    standardized: Standardized
    always_kept: tuple[int, ...]
    prior: Prior
    channel: Multinomial
    generative_weight: float
    candidates: list[Candidate]
    n_iter: int
    max_sum: bool


@dataclass(frozen=True, eq=False)
class ManyMeans:
    """What D class means say about each column of a standardised operator."""

    mean: Array  # (columns, D), about the mean of all samples
    within_var: Array  # (columns,)
    count: Array  # (D,): weight of the samples of each class

    def starting_slab_variance(self, columns: NDArray[np.intp], n_active: int) -> float:
        """The variance of weights mean/v of `n_active` features; noise adds v/n_k to each squared mean."""
        mean, var = self.mean[columns], self.within_var[columns]
        noise = float(np.mean(var.sum() * (1.0 / self.count - 1.0 / self.count.sum())))
        signal = max(float(np.mean(np.sum(mean**2, axis=0))) - noise, LEAST_SIGNAL_SHARE * noise)
        size = float(np.mean(var)) if var.size else 1.0
        return float(np.clip(signal / (size**2 * n_active), *SLAB_VARIANCE_RANGE))

    def ridge(self, weight: float, n_columns: int) -> Array:
        """ω n_k v for every weight of an operator with further columns."""
        var = np.append(self.within_var, np.ones(n_columns - self.within_var.size))
        return weight * np.multiply.outer(var, self.count)


def many_means(operator: Operator, labels: Array, sample_weight: Array, n_classes: int) -> ManyMeans:
    """Class means from one sweep over columns of mean zero and unit variance."""
    indicator = (labels[:, np.newaxis] == np.arange(1, n_classes + 1)) * sample_weight[:, np.newaxis]
    count = indicator.sum(axis=0)
    zeros = np.zeros((operator.shape[1], n_classes))
    sums = operator.sweep(zeros, None, lambda rows, scores, var: (indicator[rows], None)).slopes
    mean = sums / count
    total = float(count.sum())
    # The total variance is one: within the classes plus between them.
    return ManyMeans(mean, np.clip(1.0 - mean**2 @ (count / total), 1.0 / total, 1.0), count)


def starting_count(n_features: int, n_samples: float, n_classes: int) -> int:
    """The most features K whose weights M labels of D classes could encode: K D log2(N/K) <= M log2 D."""
    counts = np.arange(1, n_features + 1)
    bits = counts * n_classes * np.log2(n_features / counts)
    too_many = np.flatnonzero(bits > n_samples * np.log2(n_classes))
    return n_features if too_many.size == 0 else max(int(too_many[0]), 1)


def starting_prior(name: str, means: ManyMeans, columns: NDArray[np.intp]) -> Prior:
    """The prior of this name with values for tuning to start at."""
    n_classes, n_samples = means.count.size, float(means.count.sum())
    n_penalised = max(columns.size, 1)
    inclusion = min(starting_count(n_penalised, n_samples, n_classes) / n_penalised, 0.5)
    slab = means.starting_slab_variance(columns, max(round(inclusion * n_penalised), 1))
    if name == "row-sparse":
        return RowSparse(Gaussian(slab), inclusion)
    if name == "spike-and-slab":
        return SpikeAndSlab(Gaussian(slab), inclusion)
    if name == "gaussian":
        return Gaussian(inclusion * slab)
    if name == "laplace":
        return Laplace(float(np.sqrt(2.0 / (inclusion * slab))))
    raise ValueError(f"Unknown prior {name!r} for many classes. Known names: {', '.join(PRIORS)}.")


def assemble(
    standardized: Standardized,
    labels: Array,
    sample_weight: Array,
    always_kept: tuple[int, ...],
    choices: Choices,
    left_out: Array | None,
) -> tuple[Problem, ManyMeans]:
    """The problem: features, then an intercept for each class that is penalised hardly at all."""
    kept = np.array(always_kept, dtype=np.intp)
    constant = np.setdiff1d(np.flatnonzero(standardized.constant), kept)
    others: list[tuple[slice | NDArray[np.intp], Prior]] = []
    if kept.size:
        others.append((kept, Gaussian(COVARIATE_VARIANCE)))
    if constant.size:
        others.append((constant, Gaussian()))
    others.append((slice(-1, None), Gaussian(INTERCEPT_VARIANCE)))
    means = many_means(standardized, labels, sample_weight, choices.channel.n_classes)
    prior = choices.prior
    if isinstance(prior, str):
        free = ~standardized.constant
        free[kept] = False
        prior = starting_prior(prior, means, np.flatnonzero(free))
    operator = WithIntercept(standardized)
    positions = np.append(kept, operator.shape[1] - 1)
    problem = Problem(
        operator,
        labels,
        sample_weight,
        choices.channel,
        Blocks(prior, tuple(others)),
        KeptColumns(positions, operator.columns(positions)),
        left_out,
    )
    return problem, means


def fit(
    standardized: Standardized,
    labels: Array,
    sample_weight: Array,
    always_kept: tuple[int, ...],
    choices: Choices,
    *,
    left_out: Array | None = None,
    watch: Watch | None = None,
) -> Fit:
    """Fit labels 1..D, tuned, without folds."""
    problem, means = assemble(standardized, labels, sample_weight, always_kept, choices, left_out)
    solver, n_iter = choices.solver, 0
    max_sum = solver.rule == "max-sum"

    def solve_at(weight: float, previous: Solution | None, stopping: Stopping) -> Solution:
        nonlocal n_iter
        base = problem if previous is None else unblended(previous.problem)
        at_weight = blended(base, weight, means)
        state = None if previous is None else solver.as_start(previous.state)
        tuner: EM | SureRate = EM(
            tunable_names(at_weight) if choices.tune else frozenset(),
            hyper=choices.hyper,
            delay=1 if state is None else 0,
        )
        if max_sum and choices.tune:
            tuner = SureRate()
        solution = solve(at_weight, solver, stopping=stopping, tuner=tuner, state=state, watch=watch)
        n_iter += len(solution.history)
        return solution

    weight = 0.0 if max_sum and choices.generative_weight is None else choices.generative_weight
    if weight is None:
        weight, solution, candidates = _searched(solve_at, choices.stopping, means)
    else:
        solution = solve_at(weight, None, choices.stopping)
        candidates = [Candidate(weight, loo_log_loss(solution), solution.outcome)]
    plain = unblended(solution.problem)
    assert isinstance(plain.prior, Blocks)
    return Fit(
        solution,
        standardized,
        always_kept,
        plain.prior.base,
        choices.channel,
        weight,
        candidates,
        n_iter,
        max_sum,
    )


def _searched(
    solve_at: Callable[[float, Solution | None, Stopping], Solution], stopping: Stopping, means: ManyMeans
) -> tuple[float, Solution, list[Candidate]]:
    """The generative weight with the smallest leave-one-out loss, solved to the last digit."""
    scan = replace(stopping, tol=max(SCAN_TOLERANCE, stopping.tol), min_iter=2)
    glance = replace(scan, max_iter=min(GLANCE, scan.max_iter))
    ignorance = float(np.sum(entr(means.count / means.count.sum())))
    weight, rough, candidates = descend(
        lambda w, previous, glancing: solve_at(w, previous, glance if glancing else scan), ignorance
    )
    if rough.outcome is Outcome.INTERRUPTED:
        return weight, rough, candidates
    polished = solve_at(weight, rough, stopping)
    # A rough answer that settled is better than a fine one that ran away.
    ran_away = polished.outcome is Outcome.DIVERGED and rough.outcome is not Outcome.DIVERGED
    return weight, rough if ran_away else polished, candidates


def blended(problem: Problem, weight: float, means: ManyMeans) -> Problem:
    """The problem with generative weight ω."""
    if weight == 0:
        return problem
    prior, channel = problem.prior, problem.channel
    assert isinstance(prior, Blocks)
    assert isinstance(channel, Multinomial)
    ridged = Ridged(prior.base, means.ridge(weight, problem.operator.shape[1]))
    return problem.but(channel=BlendedMultinomial(channel, weight), prior=replace(prior, base=ridged))


def unblended(problem: Problem) -> Problem:
    """The problem a blend was made from, with whatever was tuned since."""
    prior = problem.prior
    assert isinstance(prior, Blocks)
    if isinstance(prior.base, Ridged):
        prior = replace(prior, base=prior.base.base)
    return problem.but(channel=problem.channel.untempered(), prior=prior)
