"""The Laplace prior: the L1 penalty as a belief."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import ClassVar, Self

import numpy as np

from foldless.beliefs import Array
from foldless.component import Names, require_positive, wants
from foldless.priors._common import total_weight, weighted_sum
from foldless.priors._rows import TiltedRows, l1_rows
from foldless.priors._two_sided import TwoSidedPrior, two_sided
from foldless.priors.base import HyperPrior, Weight
from foldless.registry import registered


@registered("prior/laplace")
@dataclass(frozen=True)
class Laplace(TwoSidedPrior):
    """rate/2 exp(-rate |w|): under max-sum the lasso, under sum-product a spread of small weights."""

    rate: float = 1.0

    tunable: ClassVar[tuple[str, ...]] = ("rate",)

    def __post_init__(self) -> None:
        require_positive(self, "rate", self.rate, "For no penalty at all use Gaussian(variance=100.0).")

    def moments(self) -> tuple[float, float]:
        return 0.0, 2.0 / float(self.rate) ** 2

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> Array:
        return rng.laplace(0.0, 1.0 / self.rate, size)

    def proximal_rows(self, shift: Array, precision: Array) -> TiltedRows:
        """The lasso for rows of weights under full covariances."""
        mean, cov, maximum = l1_rows(shift, precision, float(self.rate))
        return TiltedRows(mean, cov, maximum - shift.shape[1] * self._log_normaliser())

    def _learned(self, r: Array, tau: Array, weight: Weight, names: Names, hyper: HyperPrior) -> Self:
        """rate = [Σρ + c] / [Σρ E|w| + c s], with c pseudo-observations |w| = s."""
        n = total_weight(weight, r)
        if n <= 0.0 or not wants(names, "rate"):
            return self
        sizes = weighted_sum(two_sided(r, tau, *self._rate_and_ridge()).mean_abs, weight)
        count = hyper.scale_count
        return replace(self, rate=1.0 / hyper.bounded_size((sizes + count * hyper.scale) / (n + count)))

    def _rate_and_ridge(self) -> tuple[float, float]:
        return float(self.rate), 0.0

    def _log_normaliser(self) -> float:
        return log(2.0 / float(self.rate))
