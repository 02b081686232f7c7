"""Expectation propagation over the few columns that can matter, where samples outnumber features by far.

With N features and more samples M, exact covariances cost M N² an iteration, and row-sparse weights of many
correlated columns may not settle at all. But few features are expected to matter. So columns are chosen that
explain labels best, each given those before (orthogonal forward selection, M N for each), with neighbours
that resemble it most: where it is not clear which of them matters, all must be there to show it. The model is
solved over these, and what labels say of every other weight, given them, is found in one pass:

    precision  x_jᵀ T x_j - x_jᵀ T X_F Σ_F X_Fᵀ T x_j,    slope  x_jᵀ (ν - T X_F μ_F).

Its prior answers to that as to any cavity, so every feature has its inclusion probability. Those that turn
out to matter join the others, and the model is solved again, if there is one score for each sample. Weights
outside have the mean zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.operators import Dense, Operator
from foldless.priors import Blocks
from foldless.problem import Problem, Solution
from foldless.solvers.ep import EPState
from foldless.solvers.gaussian_layer import Gaussian, Positions, Sites, Tiles, columns_of, side_by_side
from foldless.solvers.message_passing import Secants
from foldless.solvers.sites import Cavities, prior_sites

# Rounds of solving and looking at the others. Weights of several scores take long to settle, the longer the
# more columns there are, and do so once.
ROUNDS, ROUNDS_OF_SEVERAL = 2, 1
# A column of which the others explain all but this share is theirs.
LEAST_OWN = 0.05
# Less than this share of what labels say of a weight alone is rounding, when they say it given the others.
LEAST_SHARE = 1e-6

Solve = Callable[[Problem], Solution]


def forward_selected(
    operator: Operator,
    targets: Array,
    sample_weight: Array,
    allowed: NDArray[np.bool_],
    first: Positions,
    n_columns: int,
    n_neighbours: int = 0,
) -> Positions:
    """So many columns, in order of position, each with the largest part in targets that others leave.

    `targets` are (samples, classes), and `first` are columns that are taken before all others. With each come
    as many `n_neighbours`, the columns most correlated with it, which could stand in its place. Of the Gram
    matrix G = Xᵀ W X only rows of chosen columns are made: a partial Cholesky factor, whose rows take what is
    explained out of all columns and targets.
    """
    own = operator.squared_norms(sample_weight)[1]
    left, pull = own.copy(), operator.adjoint(sample_weight[:, np.newaxis] * targets)
    rows = np.zeros((first.size + n_columns, own.size))
    chosen, beside = np.zeros(own.size, dtype=bool), np.zeros(own.size, dtype=bool)
    for n in range(rows.shape[0]):
        open_to = allowed & ~chosen & (left > LEAST_OWN * own)
        if n >= first.size and not open_to.any():
            break
        gain = np.sum(pull**2, axis=1) / np.where(left > 0, left, 1.0)
        at = int(first[n]) if n < first.size else int(np.argmax(np.where(open_to, gain, -1.0)))
        chosen[at] = True
        if left[at] <= 0:
            continue
        column = operator.columns(np.array([at]))[:, 0]
        products = operator.adjoint(sample_weight * column)
        if n >= first.size and n_neighbours:
            near = np.where(allowed & (own > 0), products**2 / np.where(own > 0, own, 1.0), -1.0)
            beside[np.argsort(-near, kind="stable")[: n_neighbours + 1]] = True
        rows[n] = (products - rows[:n].T @ rows[:n, at]) / np.sqrt(left[at])
        pull = pull - np.outer(rows[n], pull[at] / np.sqrt(left[at]))
        left = left - rows[n] ** 2
    return np.setdiff1d(np.flatnonzero(chosen | (beside & allowed)), first)


def solve_few(problem: Problem, solve: Solve, n_columns: int, n_neighbours: int = 0) -> Solution:
    """The problem solved by `solve`, over few of the free columns and those that are always kept.

    `solve` runs `EP` on a problem. If it does not settle over columns that joined later, the answer without
    these stands.
    """
    prior, weight = problem.prior, problem.label_weight
    assert isinstance(prior, Blocks)
    allowed = prior.of_base(problem.operator.shape[1])
    kept = np.array([], dtype=np.intp) if problem.kept is None else problem.kept.positions
    targets = (problem.labels[:, np.newaxis] == np.unique(problem.labels[weight > 0])).astype(np.float64)
    targets -= weight @ targets / weight.sum()
    several = bool(problem.channel.score_shape)
    found = forward_selected(problem.operator, targets, weight, allowed, kept, n_columns, n_neighbours)
    columns = np.union1d(found, kept)
    answer: Solution | None = None
    for _ in range(ROUNDS_OF_SEVERAL if several else ROUNDS):
        small = solve(_restricted(problem, columns))
        if answer is not None and not small.outcome.trustworthy:
            break
        answer = _lifted(problem, small, columns)
        if not small.outcome.trustworthy:
            break
        at = answer.posterior
        inclusion = prior.inclusion_probability(at.cavity_mean, at.cavity_var)
        inclusion = inclusion if inclusion.ndim == 1 else inclusion.max(axis=1)
        outside = allowed & (inclusion > 0.5)
        outside[columns] = False
        if not outside.any():
            break
        surest = np.argsort(np.where(outside, -inclusion, 1.0), kind="stable")[:n_columns]
        columns = np.union1d(columns, surest[outside[surest]])
    assert answer is not None
    return answer


def _restricted(problem: Problem, columns: Positions) -> Problem:
    return problem.but(
        operator=Dense(problem.operator.columns(columns)),
        prior=problem.prior.of_columns(columns, problem.operator.shape[1]),
        kept=None if problem.kept is None else problem.kept.among(columns),
    )


def _lifted(problem: Problem, small: Solution, columns: Positions) -> Solution:
    """The solution of all weights: those of some columns as found, the others at what is said of them."""
    state: EPState = small.state
    data_precision, data_slope = _said_of_all(problem, small, columns)
    mean, inside = np.zeros_like(data_precision), state.weight_cavities
    at = Cavities.left(mean, 1.0 / data_precision, data_precision, data_slope)
    at.mean[columns], at.var[columns], at.proper[columns] = inside.mean, inside.var, inside.proper
    tilted = problem.prior.tilted(at.mean, at.var)
    of_prior = prior_sites(tilted.mean, tilted.var, at, (np.ones_like(mean), np.zeros_like(mean)))
    for site, own in zip(of_prior, state.sites[:2], strict=True):
        site[columns] = own
    var = np.array(tilted.var, dtype=np.float64)
    mean[columns], var[columns] = state.gaussian.mean, state.gaussian.var
    data_precision[columns] = state.gaussian.data_precision
    data_slope[columns] = state.gaussian.data_slope
    posterior = small.posterior
    # Weights outside are independent of the others, as far as the evidence goes.
    outside = np.ones(problem.operator.shape[1], dtype=bool)
    outside[columns] = False
    evidence = posterior.log_evidence + float(np.sum(tilted.log_z[outside]))
    whole = replace(
        state,
        tiles=Tiles(problem.operator),
        sites=Sites(*of_prior, *state.sites[2:]),
        gaussian=Gaussian(
            mean, var, data_precision, data_slope, state.gaussian.scores, state.gaussian.log_normaliser
        ),
        weight_cavities=at,
        log_evidence=evidence,
        proposed=None,
        secants=Secants(),
    )
    lifted = replace(
        posterior, mean=mean, var=var, cavity_mean=at.mean, cavity_var=at.var, log_evidence=evidence
    )
    return Solution(problem, lifted, small.outcome, small.history, whole)


def _said_of_all(problem: Problem, small: Solution, columns: Positions) -> tuple[Array, Array]:
    """Precision and slope of what labels say of every weight given those of some columns."""
    state: EPState = small.state
    operator, values = problem.operator, small.problem.operator.columns(np.arange(columns.size))
    precisions, slopes = [], []
    for sites, scores in zip(state.sites.of_scores(), columns_of(state.gaussian.scores.mean), strict=True):
        weight = problem.sample_weight * sites.label_precision
        scaled = weight[:, np.newaxis] * values
        across = operator.adjoint(scaled)  # (weights, columns)
        inner = values.T @ scaled
        inner.flat[:: columns.size + 1] += sites.prior_precision
        alone = operator.squared_norms(weight)[1]
        explained = np.einsum("ij,ij->i", across, np.linalg.solve(inner, across.T).T)
        precisions.append(np.maximum(alone - explained, LEAST_SHARE * alone + np.finfo(float).tiny))
        slope = sites.label_shift - sites.label_precision * scores
        slopes.append(operator.adjoint(problem.sample_weight * slope))
    return side_by_side(precisions), side_by_side(slopes)
