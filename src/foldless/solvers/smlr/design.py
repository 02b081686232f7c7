"""A small dense regression: the columns in use, their labels, and what every algorithm asks of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.solvers.smlr.objective import AtScores, Labels, Penalty

# Called with the objective after every step.
Watch = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class Design:
    """Columns in use. The first `n_plain` of them carry no penalty: the column of ones of the intercept.

    Weights are (columns, scores). A pair is one weight, number column · n_scores + score.
    """

    columns: Array
    n_plain: int
    labels: Labels
    penalty: Penalty

    @cached_property
    def squares(self) -> Array:
        """Weighted squared length of every column."""
        return np.einsum("ij,ij,i->j", self.columns, self.columns, self.labels.sample_weight)

    def scores(self, weights: Array) -> Array:
        return self.columns @ weights

    def objective(self, at: AtScores, weights: Array) -> float:
        """Loss plus penalty: what is minimised."""
        return at.loss + self.penalty.value(weights[self.n_plain :])

    def gradient(self, at: AtScores) -> Array:
        """Of the log likelihood."""
        return self.columns.T @ at.residual

    def settled(self, at: AtScores, weights: Array, gradient: Array, gap_target: float) -> bool:
        """Whether the gap over these columns is within the target, and the intercept as good as solved."""
        if not self.penalty.has_dual:
            return False
        if self.n_plain:
            # Intercepts are not part of the gap; one off by g from its optimum costs about g²/2h.
            bend = np.array([self.labels.curvature(at, k, k).sum() for k in range(self.labels.n_scores)])
            cost = np.square(gradient[: self.n_plain]) / (2.0 * np.maximum(bend, np.finfo(float).tiny))
            if cost.sum() > gap_target:
                return False
        own = slice(self.n_plain, None)
        return duality_gap(self.labels, self.penalty, at, weights[own], gradient[own]) <= gap_target

    @cached_property
    def identified(self) -> NDArray[np.bool_]:
        """Which pairs have a value of their own.

        In the symmetric form a constant added to the scores of all classes changes nothing. Penalised
        weights settle the constant themselves; of those without a penalty the last class stays at zero.
        """
        identified = np.ones((self.columns.shape[1], self.labels.n_scores), dtype=bool)
        if self.labels.symmetric:
            unpenalised = self.columns.shape[1] if self.penalty.rate == 0 else self.n_plain
            identified[:unpenalised, -1] = False
        return identified

    def penalised(self) -> NDArray[np.bool_]:
        """Which columns carry a penalty."""
        return np.arange(self.columns.shape[1]) >= self.n_plain

    def hessian(self, at: AtScores, pairs: NDArray[np.intp]) -> Array:
        """Second derivatives of the loss by some pairs."""
        n_scores = self.labels.n_scores
        rows, score = np.divmod(pairs, n_scores)
        out = np.empty((pairs.size, pairs.size))
        used = [np.flatnonzero(score == k) for k in range(n_scores)]
        parts = [self.columns[:, rows[own]] for own in used]
        for k in range(n_scores):
            for j in range(k + 1):
                if used[k].size == 0 or used[j].size == 0:
                    continue
                weighted = parts[k] * self.labels.curvature(at, k, j)[:, np.newaxis]
                block = weighted.T @ parts[j]
                out[np.ix_(used[k], used[j])] = block
                if k != j:
                    out[np.ix_(used[j], used[k])] = block.T
        return out


def duality_gap(labels: Labels, penalty: Penalty, at: AtScores, weights: Array, gradient: Array) -> float:
    """Primal minus dual objective, infinite where there is no dual (no penalty).

    The dual of Σ loss + penalty is Σ H(q), the entropy of probabilities q whose residuals, label - q, the
    penalty can balance. Residuals of the fit, shrunk towards zero until it can, are such a point. With an
    unpenalised intercept they must also sum to zero, which is up to the caller.
    """
    if not penalty.has_dual:
        return np.inf
    shrink = penalty.shrink(gradient)
    dual = labels.entropy(at, shrink) - penalty.conjugate(gradient)
    return max(at.loss + penalty.value(weights) - dual, 0.0)
