"""The elastic-net prior: between a Laplace and a Gaussian, with a rate and a ridge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, log, pi, sqrt
from typing import ClassVar, Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx

from foldless.beliefs import Array
from foldless.component import Names, require_positive, wants
from foldless.priors._common import total_weight, weighted_sum
from foldless.priors._two_sided import TwoSidedPrior, two_sided
from foldless.priors.base import HyperPrior, Weight
from foldless.registry import registered
from foldless.special import mills

# The shape x = rate/(2√ridge) runs from Gaussian (0) to Laplace (∞). EM keeps it between these ends, which
# differ from the limits by less than 1e-3 in every moment, because a parameter of exactly zero could never
# come back: moments beyond the Gaussian or the Laplace end have no other answer than the end itself.
LEAST_SHAPE = 1e-3
LARGEST_SHAPE = 1e3
# Relative accuracy of the shape found in one EM step; finer than any tolerance of an EM loop.
SHAPE_TOLERANCE = 1e-13


@registered("prior/elastic-net")
@dataclass(frozen=True)
class ElasticNet(TwoSidedPrior):
    """exp(-rate |w| - ridge w²) / C, with C = √(π/ridge) erfcx(rate/(2√ridge))."""

    rate: float = 1.0
    ridge: float = 0.5

    tunable: ClassVar[tuple[str, ...]] = ("rate", "ridge")

    def __post_init__(self) -> None:
        require_positive(self, "rate", self.rate, "Without the rate it is Gaussian(variance=1/(2 ridge)).")
        require_positive(self, "ridge", self.ridge, "Without the ridge it is Laplace(rate).")

    def moments(self) -> tuple[float, float]:
        _, second = _unit_moments(self._shape())
        return 0.0, second / float(self.ridge)

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draws by rejection: from the Laplace or the Gaussian factor, whichever is the narrower one."""
        n = int(np.prod(size))
        sizes = np.empty(n)
        missing = np.arange(n)
        while missing.size:
            if self._shape() > sqrt(0.5):
                proposal = rng.exponential(1.0 / self.rate, missing.size)
                log_acceptance = -self.ridge * proposal**2
            else:
                proposal = np.abs(rng.normal(0.0, sqrt(0.5 / self.ridge), missing.size))
                log_acceptance = -self.rate * proposal
            accepted = -rng.standard_exponential(missing.size) < log_acceptance
            sizes[missing[accepted]] = proposal[accepted]
            missing = missing[~accepted]
        return (sizes * rng.choice([-1.0, 1.0], n)).reshape(size)

    def _learned(self, r: Array, tau: Array, weight: Weight, names: Names, hyper: HyperPrior) -> Self:
        """Match the prior's E|w| and E w² to A and B, their posterior averages over the weights.

            A = [Σρ E|w| + c s] / [Σρ + c],    B = [Σρ E w² + c s²] / [Σρ + c],

        with c pseudo-observations |w| = s. With x = rate/(2√ridge) and v = √ridge w the prior's moments
        depend on x alone (`_unit_moments`: m₁ = E|v|, m₂ = E v²), so one root is searched for:

            both:         m₂/m₁² = B/A²,    then √ridge = 1/(x A + √(x² A² + 2 B)), the best scale for x
            rate alone:   m₁ = √ridge A          ridge alone:   4 x² m₂ = rate² B
        """
        n, count = total_weight(weight, r), hyper.scale_count
        learn_rate, learn_ridge = wants(names, "rate"), wants(names, "ridge")
        if n <= 0.0 or not (learn_rate or learn_ridge):
            return self
        parts = two_sided(r, tau, *self._rate_and_ridge())
        size = (weighted_sum(parts.mean_abs, weight) + count * hyper.scale) / (n + count)
        square = (weighted_sum(parts.mean**2 + parts.var, weight) + count * hyper.scale**2) / (n + count)
        shrunk = hyper.bounded_size(sqrt(square)) / sqrt(square)
        size, square = shrunk * size, shrunk**2 * square

        if learn_rate and learn_ridge:
            x = _solve_shape(_kurtosis_of_shape, square / size**2)
            root_ridge = 1.0 / (x * size + sqrt((x * size) ** 2 + 2.0 * square))
            return replace(self, rate=2.0 * x * root_ridge, ridge=root_ridge**2)
        if learn_rate:
            root_ridge = sqrt(self.ridge)
            x = _solve_shape(lambda x: -_unit_moments(x)[0], -root_ridge * size)
            return replace(self, rate=2.0 * x * root_ridge)
        x = _solve_shape(lambda x: 4.0 * x**2 * _unit_moments(x)[1], float(self.rate) ** 2 * square)
        return replace(self, ridge=(0.5 * float(self.rate) / x) ** 2)

    def _shape(self) -> float:
        return 0.5 * float(self.rate) / sqrt(self.ridge)

    def _rate_and_ridge(self) -> tuple[float, float]:
        return float(self.rate), float(self.ridge)

    def _log_normaliser(self) -> float:
        return 0.5 * log(pi / self.ridge) + log(float(erfcx(self._shape())))


def _unit_moments(x: float) -> tuple[float, float]:
    """E|v| and E v² under exp(-2x|v| - v²): |v| is N(-x, ½) cut to (0, ∞)."""
    cut = mills(-sqrt(2.0) * x)
    first, var = float(cut.mean), float(cut.var)
    return sqrt(0.5) * first, 0.5 * (var + first**2)


def _kurtosis_of_shape(x: float) -> float:
    """E v²/(E|v|)², rising from π/2 (Gaussian) to 2 (Laplace)."""
    first, second = _unit_moments(x)
    return second / first**2


def _solve_shape(rising: Callable[[float], float], target: float) -> float:
    """The shape x at which a rising function of it meets the target, or the nearer end of the range."""
    if rising(LEAST_SHAPE) >= target:
        return LEAST_SHAPE
    if rising(LARGEST_SHAPE) <= target:
        return LARGEST_SHAPE
    log_x = brentq(
        lambda log_x: rising(exp(log_x)) - target, log(LEAST_SHAPE), log(LARGEST_SHAPE), xtol=SHAPE_TOLERANCE
    )
    return exp(log_x)
