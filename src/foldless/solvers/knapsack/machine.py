"""Convergent max-product for Bayes points: max-sum diffusion between weights and samples.

Of log P(w) = Σ_f log φ_f(w) + Σ_i log p_i(w_i) every sample's factor gets a share of the priors,
U_{f,i} with Σ_f U_{f,i} = log p_i, which makes an upper bound of the largest log posterior,

    Σ_f max_w [ log φ_f(w) + Σ_i U_{f,i}(w_i) ]  ≥  max_w log P(w).

A visit to weight i averages what the factors say of it [Heskes et al. 2003, the inner loop; Werner 2007]:

    m_{f,i} = message of factor f,   log b_i = u_i + mean_f m_{f,i},   U_{f,i} = log b_i - m_{f,i},

with u_i = log p_i / S. With w_i at its points a visit never raises the bound, since a mean of maxima is no
less than the maximum of the mean; so nothing oscillates and nothing needs damping. Over a whole sweep, other
weights between their points and hulls anew, the bound falls as long as there is much to gain, and close to
a fixed point may rise again a little. The max-marginals are  ν_i = log p_i + Σ_f m_{f,i}.

The paper has an outer loop that moves u_i towards log b_i (`outer_every`), which makes ν the max-marginals of
ordinary belief propagation: close to exact ones for two weights, where the inner loop alone is far off. On
real data messages then swing about and do not settle, on any grid, so it is one of the settings that are
averaged over (`settings`). Without it the messages start as soft margins, a parabola each, and sharpen
towards the 0-1 loss sweep by sweep: the number of sweeps smooths, and is chosen like a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from foldless.beliefs import Array
from foldless.component import Component
from foldless.kernels import compiled
from foldless.solvers.knapsack.factors import CompiledFactors, ExactFactors, Factors, LinearFactors
from foldless.solvers.knapsack.histograms import PRIORS, LogPrior, Marginals, grid

ENGINES = ("auto", "numba", "numpy")


@dataclass(frozen=True, eq=False)
class Sweep:
    """The state after a sweep over all weights."""

    number: int
    change: float  # the largest change of a message, as a share of the cost of a violation
    lowest: float  # the smallest message so far: above -cost, the cost has not mattered yet
    marginals: Marginals
    bound: Callable[[], float]  # of the log posterior; costs a little, so it is asked for


class Diffusion:
    """Messages between weights and samples; `sweep` visits every weight once.

    Messages are of shape (samples, weights, bins) and changed in place: they are the memory of the method.
    """

    def __init__(
        self,
        factors: Factors,
        points: Array,
        log_prior: Array,
        sample_weight: Array,
        cost: float,
        outer_every: int | None = None,
    ) -> None:
        self._factors, self._points, self._log_prior, self._cost = factors, points, log_prior, cost
        self._weight, self._total = sample_weight, float(sample_weight.sum())
        self._outer_every = outer_every
        n_weights, n_bins = points.shape
        self._messages = np.zeros((n_weights, sample_weight.size, n_bins))
        # What each factor holds of a weight besides its message: its share of the prior, to begin with.
        self._share = log_prior / self._total
        self._belief = self._share.copy()
        self._sweeps, self._lowest = 0, 0.0
        for i in range(n_weights):
            self._factors.receive(i, np.tile(self._belief[i], (sample_weight.size, 1)))

    def sweep(self) -> Sweep:
        if self._outer_every and self._sweeps and self._sweeps % self._outer_every == 0:
            self._share = self._log_prior / self._total + (1.0 - 1.0 / self._total) * self._belief
        change = max(self.visit(i) for i in range(len(self._points)))
        self._sweeps += 1
        # What all samples say of each weight, (weights, bins).
        said = np.einsum("f,ifk->ik", self._weight, self._messages)
        marginals = Marginals(self._points, self._log_prior + said)
        return Sweep(self._sweeps, change / self._cost, self._lowest, marginals, self.bound)

    def visit(self, i: int) -> float:
        """Average what the factors say of weight i; the largest change of a message."""
        messages = self._factors.send(i)
        change = float(np.abs(messages - self._messages[i]).max())
        self._lowest = min(self._lowest, float(messages.min()))
        self._messages[i] = messages
        self._belief[i] = self._share[i] + self._weight @ messages / self._total
        self._factors.receive(i, self._belief[i] - messages)
        return change

    def bound(self) -> float:
        """An upper bound of the largest log posterior, if there were no outer updates."""
        return float(self._weight @ self._factors.best())


@dataclass(frozen=True)
class Machine(Component):
    """What does not depend on the data.

    prior
        A name of `PRIORS`, or a function from weights to log densities; any shape will do.
    n_bins, reach
        Weights of standardised columns are looked for on n_bins (made odd) points from -reach to reach.
    exact
        Messages that are not concave are combined without the hull: for few weights.
    outer_every
        After so many sweeps the outer loop of the paper moves its potentials; None: never.
    """

    prior: str | LogPrior = "l2"
    n_bins: int = 128
    reach: float = 4.0
    exact: bool = False
    outer_every: int | None = None
    engine: str = "auto"

    def sweeps(self, rows: Array, sample_weight: Array, cost: float) -> Iterator[Sweep]:
        """Sweeps without end, over samples with signed features y x and a cost of violating a margin."""
        points = grid(rows.shape[1], self.n_bins, self.reach)
        factors = self._factors_of(rows, points, cost)
        diffusion = Diffusion(factors, points, self.log_prior(points), sample_weight, cost, self.outer_every)
        while True:
            yield diffusion.sweep()

    def log_prior(self, points: Array) -> Array:
        """The log prior at every point, 0 at its largest."""
        density = PRIORS[self.prior] if isinstance(self.prior, str) else self.prior
        values = np.asarray(density(points), dtype=np.float64)
        if values.shape != points.shape or not np.all(np.isfinite(values)):
            came = values.shape if values.shape != points.shape else "values that are not finite"
            raise ValueError(
                f"prior must give a finite log density for every weight; for an array of shape "
                f"{points.shape} it gave {came}. Give impossible weights a very small log density instead."
            )
        return values - values.max(axis=1, keepdims=True)

    def _factors_of(self, rows: Array, points: Array, cost: float) -> Factors:
        kind: Any = LinearFactors
        if self.exact:
            kind = ExactFactors
        elif self.compiled:
            kind = CompiledFactors
        return kind(np.ascontiguousarray(rows, dtype=np.float64), points, float(cost))

    @property
    def compiled(self) -> bool:
        """Whether messages are computed by numba; raises if it was asked for and is not there."""
        if self.exact or self.engine == "numpy":
            return False
        there = compiled("knapsack") is not None
        if not there and self.engine == "numba":
            raise ImportError(
                "engine='numba' needs the package numba, which is missing, broken, or unwanted "
                "(FOLDLESS_COMPILED=0). Install foldless[fast], or use engine='numpy', which gives the same "
                "answer more slowly."
            )
        return there
