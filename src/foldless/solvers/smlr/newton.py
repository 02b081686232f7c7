"""Proximal Newton: what makes a fit fast today.

The loss is replaced by its second-order expansion, the penalty kept as it is, and the sum minimised
exactly; a step towards that minimum is shortened until the objective falls as it should. For an L1 penalty
the minimum is found by following signs (`kernels.smlr`); smooth penalties need one linear system. Row
groups are smooth wherever a row is not zero, so Newton steps over those rows alternate with component-wise
sweeps, which let rows in and out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.kernels import fastest
from foldless.kernels.smlr import FIRST_RIDGE, LARGEST_RIDGE, MORE_RIDGE, follow_signs, solve_definite
from foldless.solvers.smlr.component_wise import component_wise
from foldless.solvers.smlr.design import Design, Watch
from foldless.solvers.smlr.objective import L1, AtScores, RowGroups
from foldless.solvers.solve import backtracked

# With more columns than this the blocked factorisations of LAPACK are faster than compiled loops.
WIDEST_IN_LOOPS = 2000


def newton(
    design: Design, weights: Array, gap_target: float, max_iter: int, watch: Watch
) -> tuple[Array, int]:
    """Weights whose duality gap over the design's columns is below the target, and the steps taken."""
    labels, columns = design.labels, design.columns
    if not isinstance(design.penalty, L1) or labels.n_scores > 1:
        return newton_steps(design, weights, gap_target, max_iter, watch)
    found, steps, objectives = fastest("smlr", columns.shape[1] <= WIDEST_IN_LOOPS).newton(
        columns,
        design.n_plain,
        labels.sign,
        labels.sample_weight,
        weights[:, 0],
        design.penalty.rate,
        gap_target,
        max_iter,
    )
    for objective in objectives:
        watch(float(objective))
    return found[:, np.newaxis], int(steps)


def newton_steps(
    design: Design, weights: Array, gap_target: float, max_iter: int, watch: Watch
) -> tuple[Array, int]:
    """The steps in NumPy, for every penalty and number of scores."""
    at = design.labels.at(design.scores(weights))
    for iteration in range(max_iter):
        gradient = design.gradient(at)
        if design.settled(at, weights, gradient, gap_target):
            return weights, iteration
        if isinstance(design.penalty, RowGroups):
            weights, _ = component_wise(design, weights, gap_target, 1, watch)
            at = design.labels.at(design.scores(weights))
            gradient = design.gradient(at)
        step = _step(design, at, weights, gradient)
        promised = _promised(design, weights, gradient, step)
        moved = _line_search(design, at, weights, step, promised)
        if moved is not None:
            weights, at = moved
            watch(design.objective(at, weights))
        elif not isinstance(design.penalty, RowGroups):
            return weights, iteration + 1  # what is left to gain drowns in rounding
        if not design.penalty.has_dual and -promised <= gap_target:
            return weights, iteration + 1
    return weights, max_iter


def _step(design: Design, at: AtScores, weights: Array, gradient: Array) -> Array:
    """To the minimum of the expansion."""
    pairs = _moving(design, weights, gradient)
    hessian = design.hessian(at, pairs)
    flat, slope = weights.ravel()[pairs], gradient.ravel()[pairs]
    penalised = np.repeat(design.penalised(), weights.shape[1])[pairs]
    penalty = design.penalty
    add_penalty_curvature(design, hessian, weights, pairs)
    if isinstance(penalty, RowGroups):
        norm = np.linalg.norm(weights, axis=1, keepdims=True)
        direction = np.divide(weights, norm, out=np.zeros_like(weights), where=norm > 0)
        slope = slope - penalty.rate * np.where(penalised, direction.ravel()[pairs], 0.0)
    elif not isinstance(penalty, L1):
        slope = slope - penalty.rate * penalised * flat

    size = max(float(np.mean(np.diag(hessian))), np.finfo(float).tiny)
    step = np.zeros(weights.size)
    ridge = FIRST_RIDGE
    while ridge <= LARGEST_RIDGE:
        damped = hessian + ridge * size * np.eye(pairs.size)
        if isinstance(penalty, L1):
            # By LAPACK, not in loops: with more than two classes curvatures are nearly singular (labels say
            # nothing of a shift of all classes), and plain loops round worse.
            found, definite = follow_signs(damped, damped @ flat + slope, penalty.rate * penalised, flat)
            found = found - flat
        else:
            found, definite = solve_definite(damped, slope)
        if definite:
            step[pairs] = found
            break
        ridge *= MORE_RIDGE
    return step.reshape(weights.shape)


def _moving(design: Design, weights: Array, gradient: Array) -> NDArray[np.intp]:
    """The pairs that a step may change: those without a penalty, non-zero ones, and those that want to be."""
    moving = design.identified.copy()
    if design.penalty.sparse:
        penalised = slice(design.n_plain, None)
        if isinstance(design.penalty, L1):
            wanted = np.abs(gradient[penalised]) > design.penalty.rate
            moving[penalised] &= (weights[penalised] != 0) | wanted
        else:
            moving[penalised] &= np.any(weights[penalised] != 0, axis=1, keepdims=True)
    return np.flatnonzero(moving)


def add_penalty_curvature(design: Design, hessian: Array, weights: Array, pairs: NDArray[np.intp]) -> None:
    """The curvature of the penalty by some pairs: λ for a ridge, λ (I - d d')/‖w‖ for a row, d = w/‖w‖."""
    penalty, n_scores = design.penalty, weights.shape[1]
    if isinstance(penalty, L1):
        return
    rows = pairs // n_scores
    if not isinstance(penalty, RowGroups):
        hessian[np.diag_indices_from(hessian)] += penalty.rate * (rows >= design.n_plain)
        return
    for row in np.unique(rows[rows >= design.n_plain]):
        own = np.flatnonzero(rows == row)
        norm = float(np.linalg.norm(weights[row]))
        direction = weights[row] / norm
        bend = penalty.rate / norm * (np.eye(n_scores) - np.outer(direction, direction))
        hessian[np.ix_(own, own)] += bend[np.ix_(pairs[own] % n_scores, pairs[own] % n_scores)]


def _line_search(
    design: Design, at: AtScores, weights: Array, step: Array, promised: float
) -> tuple[Array, AtScores] | None:
    """The first of the halved steps that brings its share of the promised fall; None if none does."""
    scores, stretched = design.scores(weights), design.scores(step)

    def walked(length: float) -> tuple[tuple[Array, AtScores], float]:
        trial = weights + length * step
        trial_scores = scores + length * stretched
        if isinstance(design.penalty, RowGroups):
            # The expansion of a norm has no kink: rows that would pass zero stop there.
            passed = design.penalised() & (np.sum(weights * trial, axis=1) < 0)
            trial[passed] = 0.0
            trial_scores = design.scores(trial)
        trial_at = design.labels.at(trial_scores)
        return (trial, trial_at), design.objective(trial_at, trial)

    found = backtracked(walked, design.objective(at, weights), promised)
    return None if found is None else found[0]


def _promised(design: Design, weights: Array, gradient: Array, step: Array) -> float:
    """The change of the objective along the step, to first order; of an L1 penalty, with its kinks, in full.

    Slope and penalty nearly balance at the optimum, in every weight. They are subtracted there, because the
    difference of their sums is mere rounding, of either sign, once steps are below 1e-8.
    """
    plain, penalty = design.n_plain, design.penalty
    before, by = weights[plain:], step[plain:]
    if isinstance(penalty, L1):
        after = before + by
        growth = np.where(before * after > 0, np.sign(before) * by, np.abs(after) - np.abs(before))
    elif isinstance(penalty, RowGroups):
        norm = np.linalg.norm(before, axis=1, keepdims=True)
        growth = np.divide(before, norm, out=np.zeros_like(before), where=norm > 0) * by
    else:
        growth = before * by
    change = -gradient * step
    change[plain:] += penalty.rate * growth
    return float(np.sum(change))
