"""Max-sum with variances that stay: how GAMP goes on where its own never settle.

A maximum is where s are slopes of the labels at z = X w, and X's cancels a slope of the prior at w, whatever
the variances of the messages that look for it. GAMP learns these on the way. If labels and prior are
piecewise linear (hinge and L1: a linear programme), as many weights are active as labels are at their kinks,
any variance is as good as another, and GAMP's wander for ever. With variances 1/σ of scores and τ of weights
that stay, σ τ |X|² < 1, an iteration is a step T of the primal-dual method [Chambolle, Pock 2011], and
converges:

    w' = maximum of the prior about w + τ X's,     s' = slopes of the labels about X(2w' - w) - s/σ.

It does so quickly if it is reflected and drawn to an anchor z₀ that it left k steps ago [Halpern 1967],

    z ← (k + 1)/(k + 2) (2 T(z) - z) + 1/(k + 2) z₀,

and begins anew from T(z) whenever T(z) - z has become short enough [Lu, Yang 2024].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foldless.beliefs import Array
from foldless.operators import Operator
from foldless.problem import Problem
from foldless.solvers.message_passing import along_scores

# |X| is found by this many products with X'X, and then taken a little larger: they approach it from below.
NORM_STEPS, NORM_MARGIN = 30, 1.05
# The anchor moves when steps are this much shorter than the first one from it; or, once they are somewhat
# shorter, when they grow again; or when this share of all steps has been made from it.
SHORT, SHORTER, LONG = 0.2, 0.8, 0.36
LEAST = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class Frozen:
    """Where the iteration is; slopes are multiplied by the weights of samples."""

    weights: Array
    slopes: Array
    anchor: tuple[Array, Array]
    norm: float
    balance: float  # τ = balance / |X|, σ = 1 / (balance |X|)
    n_steps: int = 0
    n_from_anchor: int = 0
    first_length: float = np.inf
    length: float = np.inf

    @classmethod
    def begun(cls, problem: Problem, weights: Array, slopes: Array) -> Frozen:
        """From weights and slopes as GAMP has left them."""
        weights = weights.astype(np.float64)
        slopes = along_scores(problem.sample_weight, slopes) * slopes
        sizes = np.linalg.norm(weights), np.linalg.norm(slopes)
        balance = float(sizes[0] / sizes[1]) if min(sizes) > 0 else 1.0
        return cls(weights, slopes, (weights, slopes), spectral_norm(problem.operator), balance)

    def step(self, problem: Problem) -> tuple[Frozen, Array, Array, Array, float]:
        """The next point; weights, slopes and scores of T(z), and how far it is from being a maximum."""
        prior: Any = problem.prior
        channel: Any = problem.channel
        tau, inverse_sigma = self.balance / self.norm, self.balance * self.norm
        pull = problem.operator.adjoint(self.slopes)
        weights = prior.proximal(self.weights + tau * pull, np.full(self.weights.shape, tau)).mean
        moved = weights - self.weights
        scores, moved_scores = problem.operator.scores(weights), problem.operator.scores(moved)
        sample_weight = along_scores(problem.sample_weight, self.slopes)
        # Labels that count a times have slopes a times as large, about a cavity a times as wide.
        width = np.maximum(sample_weight * inverse_sigma, LEAST)
        at = scores + moved_scores - inverse_sigma * self.slopes
        slopes = sample_weight * channel.proximal(at, np.broadcast_to(width, at.shape), problem.labels).slope
        turned = slopes - self.slopes
        square = (
            np.sum(moved**2) / tau - 2.0 * np.sum(turned * moved_scores) + inverse_sigma * np.sum(turned**2)
        )
        length = float(np.sqrt(max(square, 0.0)))
        off = max(
            np.linalg.norm(moved) / (tau * np.linalg.norm(pull) + LEAST),
            np.linalg.norm(turned)
            / (np.linalg.norm(scores) / inverse_sigma + np.linalg.norm(slopes) + LEAST),
        )
        return self._after(weights, slopes, length), weights, slopes, scores, float(off)

    def _after(self, weights: Array, slopes: Array, length: float) -> Frozen:
        n_steps, k = self.n_steps + 1, self.n_from_anchor
        first = length if k == 0 else self.first_length
        enough = length < SHORT * first or (length < SHORTER * first and length > self.length)
        if k > 0 and (enough or k > LONG * n_steps):
            away = [np.linalg.norm(a - b) for a, b in zip((weights, slopes), self.anchor, strict=True)]
            balance = self.balance
            if min(away) > 0:
                balance = float(np.sqrt(balance * away[0] / away[1]))
            return Frozen(weights, slopes, (weights, slopes), self.norm, balance, n_steps)
        share = (k + 1) / (k + 2)
        return replace(
            self,
            weights=share * (2 * weights - self.weights) + (1 - share) * self.anchor[0],
            slopes=share * (2 * slopes - self.slopes) + (1 - share) * self.anchor[1],
            n_steps=n_steps,
            n_from_anchor=k + 1,
            first_length=first,
            length=length,
        )


def spectral_norm(operator: Operator) -> float:
    """|X|, or a little more."""
    direction: Array = np.random.default_rng(0).standard_normal(operator.shape[1])
    size = 1.0
    for _ in range(NORM_STEPS):
        size = float(np.linalg.norm(direction))
        if size == 0.0:
            return 1.0
        direction = operator.adjoint(operator.scores(direction / size))
    return NORM_MARGIN * float(np.sqrt(np.linalg.norm(direction))) or 1.0
