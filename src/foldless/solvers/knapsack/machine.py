"""The knapsack Bayes point machine put together: a grid, a prior, factors of some kind, and sweeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from foldless.beliefs import Array
from foldless.component import Component
from foldless.kernels import compiled
from foldless.solvers.knapsack.diffusion import Diffusion, Sweep
from foldless.solvers.knapsack.factors import CompiledFactors, ExactFactors, Factors, LinearFactors
from foldless.solvers.knapsack.histograms import PRIORS, LogPrior, grid

ENGINES = ("auto", "numba", "numpy")


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
