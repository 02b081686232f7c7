"""The L1 rate of max-sum message passing by Stein's unbiased risk estimate (SURE).

At a fixed point each weight is seen as r = w + N(0, q), and the prior answers by the soft threshold at
t = rate q. SURE estimates the squared error of that answer without knowing w:

    SURE(t) = Σ_i [ t² if |r_i| > t else r_i² - 2q ] + n q.

Between two neighbouring |r_i| it only grows with t, so its minimum is at one of them: `sure_threshold`
sorts. (The thesis bisects the derivative under a Gaussian mixture fitted to r, to the same end.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foldless.beliefs import Array
from foldless.priors import Blocks, Laplace, Ridged
from foldless.problem import Problem
from foldless.solvers.base import State

# The rate and r feed back on each other, so its logarithm goes this share of the way at a time.
STEP = 0.3
# The rate moves every so many iterations, until it moves by less than this, and then stays: the
# minimiser jumps from one |r| to another, and an iteration must be allowed to settle.
EVERY, SETTLED, MOST_UPDATES = 5, 0.02, 60


def sure_threshold(r: Array, var: float) -> float:
    """The threshold with the smallest SURE, at most the universal one, √(2 q log n) [Donoho, Johnstone 1995].

    Where there is hardly any signal beside the noise SURE is erratic, and the universal threshold is taken.
    """
    sizes = np.sort(np.abs(np.ravel(r)))
    n = sizes.size
    universal = np.sqrt(2.0 * var * np.log(max(n, 2)))
    if np.mean(sizes**2) / var - 1.0 <= np.log2(max(n, 2)) ** 1.5 / np.sqrt(n):
        return float(universal)
    below = np.arange(n + 1)
    thresholds = np.append(0.0, sizes)
    cost = np.append(0.0, np.cumsum(sizes**2)) + (n - below) * thresholds**2 - 2.0 * var * below
    cost[thresholds > universal] = np.inf
    return float(thresholds[np.argmin(cost)])


@dataclass
class SureRate:
    """Tunes the rate of a Laplace prior: rate = threshold / q with the mean q of the penalised weights."""

    _last: int = -1
    _moved: float = np.inf
    _updates: int = 0

    def update(self, problem: Problem, state: State, iteration: int) -> Problem:
        if self.done or iteration - self._last < EVERY:
            return problem
        prior = problem.prior
        assert isinstance(prior, Blocks)
        laplace = prior.base.base if isinstance(prior.base, Ridged) else prior.base
        if not isinstance(laplace, Laplace):
            raise ValueError(
                f"SURE tunes the rate of a Laplace prior under max-sum; got {laplace!r}. Use "
                "prior='laplace', or rule='sum-product', where EM tunes every prior."
            )
        free = np.ones(state.cavity_mean.shape[0], dtype=bool)
        for columns, _ in prior.others:
            free[columns] = False
        var = state.cavity_var[free]
        # In units of each weight's own noise; with one variance for all, these are r and q.
        size = float(np.mean(var))
        r = state.cavity_mean[free] * np.sqrt(size / var)
        rate = max(sure_threshold(r, size), 1e-3 * np.sqrt(size)) / size
        move = STEP * (np.log(rate) - np.log(laplace.rate))
        self._last, self._moved, self._updates = iteration, abs(move), self._updates + 1
        tuned = replace(laplace, rate=float(laplace.rate * np.exp(move)))
        base = replace(prior.base, base=tuned) if isinstance(prior.base, Ridged) else tuned
        return problem.but(prior=replace(prior, base=base))

    @property
    def done(self) -> bool:
        return self._moved < SETTLED or self._updates >= MOST_UPDATES

    def settled(self, iteration: int) -> bool:
        return self.done and iteration > self._last

    def tuned(self, problem: Problem) -> dict[str, Any]:
        prior: Any = problem.prior
        while not isinstance(prior, Laplace):
            prior = prior.base
        return {"prior__rate": prior.rate}
