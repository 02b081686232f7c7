"""What happens to penalised multinomial regression when a sample leaves: to second order, for every sample.

Without sample m the objective is, to second order about the weights ŵ of all samples,

    ½ (w - ŵ)' A₋ₘ (w - ŵ) - g₋ₘ' (w - ŵ) + penalty(w),

with the curvature A₋ₘ and the gradient g₋ₘ of all samples but m. If the same weights stay zero its minimum is
known in closed form, and the sample's scores move to [Beirami et al. 2017; Rad and Maleki 2020]

    η_loo = η + T (I - H T)⁻¹ (p - y),    T = J A⁻¹ J',    H = diag p - p p',

J being the derivative of the sample's scores by the weights. With many more features than samples the same
weights do not stay zero: on 62 samples of 2000 genes the formula is wrong by a factor of three where it
matters, because a few samples seem to hold their scores up alone. So an L1 penalty is kept as it is, and
the minimum, signs and zeros included, found by `l1_quadratic`: within one per cent of refits there. With
thousands of samples one of them changes few zeros, and the formula is good and fast.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from foldless.beliefs import Array
from foldless.solvers.smlr import L1, Columns, Regression, RegressionFit
from foldless.solvers.smlr.compiled import compiled
from foldless.solvers.smlr.design import Design
from foldless.solvers.smlr.likelihood import AtScores
from foldless.solvers.smlr.newton import add_penalty_curvature
from foldless.solvers.smlr.penalties import Penalty
from foldless.solvers.smlr.quadratic import ROUNDS_PER_UNKNOWN, SLACK, WIDEST_IN_LOOPS, l1_quadratic

# Where a sample holds its own score up by itself (leverage near 1) the formula says nothing about what
# happens without it.
LEAST_SLACK = 0.05
# Of the mean diagonal of A: columns that repeat others leave directions without curvature.
RIDGE = 1e-8
# Columns whose gradient is above this share of the rate may get a weight when a sample leaves...
WITHIN_REACH = 0.6
# ... of which those above this share without the sample, other things equal, are tried at once.
LIKELY = 0.9
# With fewer operations than this, to solve for every sample costs less than to ask which ones need it.
FEW_OPERATIONS = 3e6
# How often columns that turn out to be wanted are added.
MOST_ROUNDS = 10


class Steps(NamedTuple):
    """An L1 Newton step without each sample, from the weights of all."""

    fitted: RegressionFit
    rows: NDArray[np.intp]  # columns within reach
    weights: Array
    near: _Expansion
    changes: Array  # (samples, pairs)
    moved: Array  # (samples, scores): of each sample's own scores

    @classmethod
    def of(
        cls,
        problem: Regression,
        penalty: Penalty,
        fitted: RegressionFit,
        left_out: Array,
        columns: Columns,
    ) -> Steps:
        labels, n_plain = problem.labels, problem.n_plain
        size = penalty.row_size(fitted.gradient)
        rows = np.union1d(fitted.rows, np.flatnonzero(size > WITHIN_REACH * penalty.rate))
        design = _design(problem, penalty, rows, columns)
        weights = np.zeros((n_plain + rows.size, labels.n_scores))
        weights[n_plain + np.searchsorted(rows, fitted.rows)] = fitted.weights
        if n_plain:
            weights[0] = fitted.intercept - (fitted.intercept[-1] if labels.symmetric else 0.0)
        share = _share(problem, left_out)
        bends = _sample_curvatures(problem, fitted.at)
        near = _Expansion.about(design, weights, fitted.at, bends)
        if compiled() is not None and share.size * np.count_nonzero(weights) ** 3 <= FEW_OPERATIONS:
            changes = near.without_each(np.arange(share.size), share)
        else:
            same = _change_of_same_weights(design, weights, fitted, bends, share)
            changes = same.reshape(share.size, -1)[:, near.pairs]
            leaves = np.flatnonzero(~near.same_weights_stay(changes, share))
            changes[leaves] = near.without_each(leaves, share)
        return cls(fitted, rows, weights, near, changes, near.moved_scores(changes))

    def led(self, m: np.intp) -> RegressionFit:
        """The fit with the weights that the step of sample m leads to, if it leads anywhere."""
        weights = self.weights + self.near.scattered(np.nan_to_num(self.changes[m]))
        n_plain = self.near.design.n_plain
        on = np.flatnonzero(np.any(weights[n_plain:] != 0, axis=1))
        intercept = weights[0] if n_plain else self.fitted.intercept
        return replace(self.fitted, rows=self.rows[on], weights=weights[n_plain:][on], intercept=intercept)


class _Expansion(NamedTuple):
    """Loss to second order about some weights, over the pairs that can have one, plus an L1 penalty."""

    design: Design
    pairs: NDArray[np.intp]
    column: NDArray[np.intp]  # of each pair
    score: NDArray[np.intp]
    start: Array  # the weights of the pairs
    rates: Array
    slope: Array  # of the log likelihood, by pairs
    curvature: Array  # (pairs, pairs), all samples
    bends: Array  # of each sample, (samples, scores, scores)
    residual: Array

    @classmethod
    def about(cls, design: Design, weights: Array, at: AtScores, bends: Array) -> _Expansion:
        slope = design.gradient(at)
        pairs = np.flatnonzero(design.identified)
        column, score = np.divmod(pairs, weights.shape[1])
        curvature = _pair_curvature(design.columns, bends, column, score)
        if pairs.size:
            curvature.ravel()[:: pairs.size + 1] += RIDGE * float(np.mean(np.diag(curvature)))
        return cls(
            design,
            pairs,
            column,
            score,
            weights.ravel()[pairs],
            design.penalty.rate * (column >= design.n_plain),
            slope.ravel()[pairs],
            curvature,
            bends,
            at.residual,
        )

    def scattered(self, change: Array) -> Array:
        """A change of the pairs, in the shape of the weights."""
        out = np.zeros(self.design.identified.shape)
        out.ravel()[self.pairs] = change
        return out

    def moved_scores(self, changes: Array) -> Array:
        """How the own change of every sample moves its scores."""
        x = self.design.columns[:, self.column]
        out: Array = (x * changes) @ np.eye(self.bends.shape[1])[self.score]
        return out

    def same_weights_stay(self, changes: Array, share: Array) -> NDArray[np.bool_]:
        """For which samples their change is the minimum without them: signs stay, no zero wants to move.

        All samples at once: what their change leaves of the gradient is one product of matrices.
        """
        inside = self.rates > 0
        signs_stay = np.all((np.sign(self.start + changes) == np.sign(self.start)) | ~inside, axis=1)
        at_zero = np.flatnonzero(inside & (self.start == 0))
        used = np.flatnonzero(np.any(changes != 0, axis=0))
        left = self.slope[at_zero] - changes[:, used] @ self.curvature[used[:, np.newaxis], at_zero]
        own_pull = self.residual - np.einsum("mkj,mj->mk", self.bends, self.moved_scores(changes))
        left -= (
            self.design.columns[:, self.column[at_zero]]
            * (share[:, np.newaxis] * own_pull)[:, self.score[at_zero]]
        )
        with np.errstate(invalid="ignore"):  # NaN, where a sample stands alone, is no answer
            quiet = np.all(np.abs(left) <= self.rates[at_zero], axis=1)
        return signs_stay & quiet

    def without_each(self, which: NDArray[np.intp], share: Array) -> Array:
        """How the weights of the pairs change without each of these samples, a row each."""
        loops = compiled() if self.pairs.size <= WIDEST_IN_LOOPS else None
        if loops is None:
            return np.array([self.without(m, share[m]) for m in which]).reshape(which.size, self.pairs.size)
        x = np.ascontiguousarray(self.design.columns[:, self.column])
        return loops.without_each(
            which,
            share,
            x,
            self.score,
            self.start,
            self.rates,
            self.slope,
            self.curvature,
            self.bends,
            np.ascontiguousarray(self.residual),
            LIKELY,
            MOST_ROUNDS,
            SLACK,
            ROUNDS_PER_UNKNOWN,
        )

    def without(self, m: np.intp, share: float) -> Array:
        """How the weights of the pairs change without a share of sample m."""
        x, bend = self.design.columns[m, self.column], share * self.bends[m]
        push = self.slope - share * x * self.residual[m, self.score]
        tried = (self.start != 0) | (self.rates == 0) | (np.abs(push) > LIKELY * self.rates)
        change = np.zeros(push.size)
        for _ in range(MOST_ROUNDS):
            some = np.flatnonzero(tried)
            score, own = self.score[some], x[some]
            less = own[:, np.newaxis] * own * bend[score[:, np.newaxis], score]
            curvature = self.curvature[some[:, np.newaxis], some] - less
            linear = curvature @ self.start[some] + push[some]
            try:
                found = l1_quadratic(curvature, linear, self.rates[some], self.start[some])
            except LinAlgError:
                return np.full(push.size, np.nan)
            change[some] = found - self.start[some]
            # What the step leaves of the gradient of every pair within reach, tried or not.
            went = np.flatnonzero(change)
            own_turn = np.bincount(self.score[went], x[went] * change[went], bend.shape[0])
            left = push - change[went] @ self.curvature[went] + x * (bend @ own_turn)[self.score]
            wanted = ~tried & (np.abs(left) > self.rates)
            if not wanted.any():
                break
            tried |= wanted
        return change


def _change_of_same_weights(
    design: Design, weights: Array, fitted: RegressionFit, bends: Array, share: Array
) -> Array:
    """How the weights move without each sample if zeros stay zero, (samples, columns, scores).

    NaN where a sample holds its score up alone.
    """
    used = design.identified.copy()
    if isinstance(design.penalty, L1):
        used[design.n_plain :] &= weights[design.n_plain :] != 0
    pairs = np.flatnonzero(used)
    n_samples, n_scores = fitted.scores.shape
    change = np.zeros((n_samples, *weights.shape))
    if pairs.size == 0:
        return change
    curvature = design.hessian(fitted.at, pairs)
    add_penalty_curvature(design, curvature, weights, pairs)
    curvature[np.diag_indices_from(curvature)] += RIDGE * float(np.mean(np.diag(curvature)))
    spread = cho_solve(cho_factor(curvature), np.eye(pairs.size))

    # J of all samples: the derivative of score k by pair a is the entry of its column, if k is its score.
    column, score = np.divmod(pairs, n_scores)
    derivative = design.columns[:, column, np.newaxis] * np.eye(n_scores)[score]
    by_spread = np.einsum("mak,ab->mbk", derivative, spread, optimize=True)
    leverage = np.einsum("mak,maj->mkj", derivative, by_spread, optimize=True)
    slack = np.eye(n_scores) - share[:, np.newaxis, np.newaxis] * (bends @ leverage)
    # The eigenvalues of H T are real, those of the symmetric T^½ H T^½.
    alone = np.min(np.real(np.linalg.eigvals(slack)), axis=1) < LEAST_SLACK
    slack[alone] = np.eye(n_scores)
    push = -(share[:, np.newaxis] * fitted.at.residual)[..., np.newaxis]
    push = np.linalg.solve(slack, push)
    change.reshape(n_samples, -1)[:, pairs] = (by_spread @ push)[..., 0]
    change[alone] = np.nan
    return change


def moved_by_formula(
    problem: Regression, penalty: Penalty, fitted: RegressionFit, left_out: Array, columns: Columns
) -> Array:
    """η_loo - η of every sample if the same weights stay zero; NaN where a sample stands alone."""
    design = _design(problem, penalty, fitted.rows, columns)
    weights = np.vstack([np.zeros((problem.n_plain, problem.labels.n_scores)), fitted.weights])
    bends, share = _sample_curvatures(problem, fitted.at), _share(problem, left_out)
    change = _change_of_same_weights(design, weights, fitted, bends, share)
    return np.einsum("mc,mck->mk", design.columns, change)


def _share(problem: Regression, left_out: Array) -> Array:
    """Which part of each sample goes."""
    weight = problem.labels.sample_weight
    return left_out / np.where(weight > 0, weight, 1.0)


def _design(problem: Regression, penalty: Penalty, rows: NDArray[np.intp], columns: Columns) -> Design:
    matrix = np.ones((problem.operator.shape[0], problem.n_plain + rows.size))
    matrix[:, problem.n_plain :] = columns(rows)
    return Design(matrix, problem.n_plain, problem.labels, penalty)


def _sample_curvatures(problem: Regression, at: AtScores) -> Array:
    """Weight times diag p - p p' of every sample, (samples, scores, scores)."""
    labels = problem.labels
    out = np.empty((labels.code.size, labels.n_scores, labels.n_scores))
    for k in range(labels.n_scores):
        for j in range(labels.n_scores):
            out[:, k, j] = labels.curvature(at, k, j)
    return out


def _pair_curvature(matrix: Array, bend: Array, column: NDArray[np.intp], score: NDArray[np.intp]) -> Array:
    """Σ over samples of J' bend J over some pairs."""
    used = matrix[:, column]
    if bend.shape[1] == 1:
        return (used * bend[:, 0]).T @ used
    out = np.empty((column.size, column.size))
    for k in np.unique(score):
        own = score == k
        # Row a, column b: Σ x_a x_b bend[k, score of b].
        out[own] = used[:, own].T @ (used * bend[:, k, score])
    return out
