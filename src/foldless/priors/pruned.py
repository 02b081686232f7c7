"""Pruning: the share of active weights is fixed, and so is the sum of squares, over all weights at once.

Uda and Kabashima (2005) switch features on and off by c ∈ {0, 1} and allow only configurations with
Σ c = N C and Σ c w² = N C v. For large N that is a Bernoulli-Gaussian prior on x = c w,

    δ(x) + exp(λ - G x²/2)/√2π,

whose two multipliers λ and G depend on the data: they are what makes the two averages over the posterior come
out right. `Pruned` states the constraints; `Pruned.constrained` finds the multipliers at given cavities;
`Multipliers` is the element-wise prior that they make. GAMP asks for the latter at every iteration, and with
this prior and the channel `Step` *is* the O(NM) algorithm of the paper, equations (35) and (36).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, isfinite, log, log1p, sqrt
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from foldless.beliefs import Array, Tilted
from foldless.component import require_positive
from foldless.priors.base import Prior, as_cavity
from foldless.registry import registered
from foldless.special import LOG_SQRT_2PI

# Constraints are met to this relative accuracy: far below what an iteration notices, far above rounding.
CONSTRAINT_TOLERANCE = 1e-10
# Cavity precisions that differ by less than this are one, with one logarithm.
EQUAL_PRECISIONS = 1e-12
# Newton on the logarithms of both constraints needs a handful of steps, or goes astray and is not needed.
NEWTON_STEPS = 25
# No step changes the odds of all features, or the precision of their slab, by more than these factors.
LARGEST_LOG_ODDS_STEP, LARGEST_LOG_PRECISION_STEP = 8.0, 2.0
# Roots are bracketed to the last digits of float64.
BRACKET_TOLERANCE = 4 * np.finfo(float).eps


@registered("prior/multipliers")
@dataclass(frozen=True)
class Multipliers(Prior):
    """δ(x) + exp(λ - G x²/2)/√2π, with G possibly negative: only G + 1/τ of each cavity must be positive.

    excess, reference
        G = excess - reference. Kept apart because of G + 1/τ = excess + (1/τ - reference): where cavities are
        narrow, 1/τ and G are large, of opposite sign, and their sum is what counts.
    log_odds
        λ.
    log_volume
        Log of what the prior integrates to, per weight; subtracted from log_z. `Pruned` puts its own here,
        with which log_z adds up to the log evidence under the constraints.
    """

    excess: float = 1.0
    reference: float = 0.0
    log_odds: float = 0.0
    log_volume: float = 0.0

    @property
    def slab_precision(self) -> float:
        """G."""
        return self.excess - self.reference

    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """With h = r/τ, A = G + 1/τ and ρ the posterior inclusion:

        log odds = λ - ½ log A + h²/2A,    mean = ρ h/A,    var = ρ/A + ρ (1 - ρ) (h/A)²,
        log_z = log N(0; r, τ) + log(1 + odds) - log volume.

        For a weight that is active, r²/2τ and h²/2A nearly cancel; their difference is r² G/2Aτ.
        """
        r, tau = as_cavity(cavity_mean, cavity_var)
        dtype = r.dtype
        r, tau = r.astype(np.float64, copy=False), tau.astype(np.float64, copy=False)
        slab_mean, slab_var, log_odds = self._slab(r, tau)
        half_square = 0.5 * r * r / tau
        active = self.log_odds + 0.5 * np.log(slab_var) - half_square * (self.slab_precision * slab_var)
        inclusion = expit(log_odds)
        mean = inclusion * slab_mean
        var = inclusion * slab_var + inclusion * expit(-log_odds) * slab_mean**2
        log_z = np.where(log_odds > 0.0, active, -half_square) + np.log1p(np.exp(-np.abs(log_odds)))
        log_z -= 0.5 * np.log(tau) + (LOG_SQRT_2PI + self.log_volume)
        # Where the inclusion underflows the weight is zero for certain; its variance must remain positive.
        var = np.maximum(var, np.finfo(dtype).tiny)
        return Tilted(*(np.asarray(a, dtype=dtype) for a in (mean, var, log_z)))

    def inclusion_probability(self, cavity_mean: Array, cavity_var: Array) -> Array:
        r, tau = as_cavity(cavity_mean, cavity_var)
        log_odds = self._slab(r.astype(np.float64, copy=False), tau.astype(np.float64, copy=False))[2]
        return np.asarray(expit(log_odds), dtype=r.dtype)

    def moments(self) -> tuple[float, float]:
        inclusion = float(expit(self.log_odds - 0.5 * log(self._proper_precision())))
        return 0.0, inclusion / self.slab_precision

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> Array:
        inclusion = expit(self.log_odds - 0.5 * log(self._proper_precision()))
        return np.where(rng.random(size) < inclusion, rng.standard_normal(size), 0.0) / sqrt(
            self.slab_precision
        )

    def _slab(self, r: Array, tau: Array) -> tuple[Array, Array, Array]:
        """Mean and variance of an active weight, and the log odds of its being active."""
        cavity_precision = 1.0 / tau
        precision = self.excess + (cavity_precision - self.reference)
        field = r * cavity_precision
        slab_mean = field / precision
        return slab_mean, 1.0 / precision, _log_odds(self.log_odds, field * slab_mean, precision)

    def _proper_precision(self) -> float:
        if self.slab_precision <= 0.0:
            raise ValueError(
                f"{self!r} has no moments of its own: its slab has precision {self.slab_precision:g} and is "
                "a distribution only beside data. Ask the Pruned prior it was made of."
            )
        return self.slab_precision


@registered("prior/pruned")
@dataclass(frozen=True)
class Pruned(Prior):
    """A share `density` of all weights is active; their squares add up to that of `variance` each.

    The two constraints hold for the weights given in one call, on average over their posterior. Unlike other
    priors this one is not element-wise: its answer for one weight depends on the cavities of all.
    """

    density: float = 0.1
    variance: float = 1.0

    # Neither follows from the likelihood of a fit by EM: that the constraints hold is what the fit assumes.
    tunable: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if not (np.ndim(self.density) == 0 and 0.0 < self.density < 1.0):
            raise ValueError(
                "Pruned(density=...) is the share of weights that are not zero, strictly between 0 and 1; "
                f"got {self.density!r}. For no pruning use a Gaussian prior."
            )
        require_positive(self, "variance", self.variance, "Weights fixed at zero are columns left out.")

    @property
    def joint(self) -> bool:
        return True

    @property
    def power(self) -> float:
        """Mean square of a weight, active or not."""
        return float(self.density) * float(self.variance)

    @property
    def entropy(self) -> float:
        """Log volume of what the constraints allow, per weight: choices of c, and squares that add up."""
        c = float(self.density)
        return -c * log(c) - (1.0 - c) * log1p(-c) + 0.5 * c * (1.0 + log(self.variance))

    def constrained(self, cavity_mean: Array, cavity_var: Array, weight: Array | float = 1.0) -> Multipliers:
        """The element-wise prior that meets both constraints here, weights counted by `weight`."""
        r, tau = as_cavity(cavity_mean, cavity_var)
        precision = 1.0 / tau.astype(np.float64, copy=False)
        counted = np.broadcast_to(np.asarray(weight, dtype=np.float64), r.shape)
        field = (r * precision).ravel()
        precision = np.broadcast_to(precision, r.shape).ravel() if precision.size > 1 else precision.ravel()
        share = counted.ravel()
        inside = share > 0.0
        if not inside.all():
            field, share = field[inside], share[inside]
            precision = precision[inside] if precision.size > 1 else precision
        if field.size == 0 or not isfinite(float(field @ field)):
            # Nothing to constrain, or an iteration that ran away, which its solver will see from the answers:
            # the prior before any data.
            field, share, precision = np.zeros(1), np.ones(1), np.zeros(1)
        reference = float(precision.min())
        offset = precision - reference
        balance = _Balance(
            square=field**2,
            offset=offset if offset.max() > EQUAL_PRECISIONS * reference else np.zeros(1),
            share=share / share.sum(),
            density=float(self.density),
            variance=float(self.variance),
        )
        log_odds, excess = balance.multipliers()
        return Multipliers(excess, reference, log_odds, self._log_volume(log_odds, excess - reference))

    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """Moments under the constraints. Derivatives of log_z add up over all weights that were given."""
        return self.constrained(cavity_mean, cavity_var).tilted(cavity_mean, cavity_var)

    def inclusion_probability(self, cavity_mean: Array, cavity_var: Array) -> Array:
        return self.constrained(cavity_mean, cavity_var).inclusion_probability(cavity_mean, cavity_var)

    def moments(self) -> tuple[float, float]:
        return 0.0, self.power

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> Array:
        """Weights that meet the constraints together, up to rounding to whole weights."""
        draws = np.zeros(size)
        n_active = max(round(self.density * draws.size), 1)
        active = rng.standard_normal(n_active)
        active *= sqrt(draws.size * self.power / float(active @ active))
        draws.ravel()[rng.choice(draws.size, n_active, replace=False)] = active
        return draws

    def _log_volume(self, log_odds: float, slab_precision: float) -> float:
        """Per weight: the log volume of what the constraints allow, less what the multipliers contribute.

        log Z = extremum over λ, G of Σ log z + N (G C v/2 - λ C), divided by its value without data, at which
        G = 1/v and the odds e^λ √v are C/(1 - C).
        """
        return self.entropy + float(self.density) * log_odds - 0.5 * slab_precision * self.power


class _Residuals(NamedTuple):
    """How far both constraints are off, in logarithms, and their derivatives in λ and log excess."""

    active: float  # log of Σ ρ / N C
    power: float  # log of Σ ρ t / N C v, t = 1/A + h²/A²
    jacobian: tuple[float, float, float, float]

    @property
    def met(self) -> bool:
        return abs(self.active) <= CONSTRAINT_TOLERANCE and abs(self.power) <= CONSTRAINT_TOLERANCE


@dataclass(frozen=True, eq=False)
class _Balance:
    """The two constraints as functions of λ and the excess E, with A = E + offset:

        Σ share ρ = C,    Σ share ρ (1/A + h²/A²) = C v,    ρ = expit(λ - ½ log A + h²/2A).

    They are the derivatives of Σ share log(1 + odds) - λ C + E C v/2, which is convex in (λ, E): there is one
    solution. Given E, the first is monotone in λ; with λ(E) put in, the second is monotone in E.
    """

    square: Array  # h²
    offset: Array  # one, or one per weight; the smallest is zero
    share: Array
    density: float
    variance: float

    def multipliers(self) -> tuple[float, float]:
        """λ and E: by Newton on the logarithms of both constraints, or nested brackets if it goes astray."""
        log_odds, log_excess = self._start()
        for _ in range(NEWTON_STEPS):
            now = self._residuals(log_odds, exp(log_excess))
            if now.met:
                return log_odds, exp(log_excess)
            a, b, c, d = now.jacobian
            determinant = a * d - b * c
            if not (isfinite(determinant) and abs(determinant) > np.finfo(float).tiny):
                break
            step_odds = -(d * now.active - b * now.power) / determinant
            step_excess = -(a * now.power - c * now.active) / determinant
            if not (isfinite(step_odds) and isfinite(step_excess)):
                break
            log_odds += float(np.clip(step_odds, -LARGEST_LOG_ODDS_STEP, LARGEST_LOG_ODDS_STEP))
            log_excess += float(np.clip(step_excess, -LARGEST_LOG_PRECISION_STEP, LARGEST_LOG_PRECISION_STEP))
        return self._bracketed()

    def _start(self) -> tuple[float, float]:
        """As though the largest fields were the active ones, up to the density, and no others."""
        n_weights = self.square.size
        last = min(int(self.density * n_weights), n_weights - 1)
        if self.share.min() == self.share.max():
            margin = -float(np.partition(-self.square, last)[last])
        else:
            order = np.argsort(-self.square)
            taken = np.cumsum(self.share[order])
            last = min(int(np.searchsorted(taken, self.density)), n_weights - 1)
            margin = float(self.square[order[last]])
        active = self.share * (self.square >= margin)
        excess = self._self_consistent(_dot(active, self.square) / float(active.sum()))
        return 0.5 * (log(excess) - margin / excess), log(excess)

    def _self_consistent(self, mean_square: float) -> float:
        """A with 1/A + mean_square/A² = v."""
        return (1.0 + sqrt(1.0 + 4.0 * mean_square * self.variance)) / (2.0 * self.variance)

    def _residuals(self, log_odds: float, excess: float) -> _Residuals:
        precision = excess + self.offset
        ratio = self.square / precision
        probability = expit(_log_odds(log_odds, ratio, precision))
        inclusion = self.share * probability
        # The variance of c. It cancels for certain inclusions, but only directs the next step.
        spread = inclusion - inclusion * probability
        # With t = 1/A + h²/A², and minus its derivative in A, 1/A² + 2 h²/A³.
        slab_power = (1.0 + ratio) / precision
        active, power = float(inclusion.sum()), _dot(inclusion, slab_power)
        stretch = _dot(inclusion, (1.0 + 2.0 * ratio) / precision**2)
        some, bend = float(spread.sum()), _dot(spread, slab_power)
        bend_twice = _dot(spread, slab_power**2)
        with np.errstate(divide="ignore", invalid="ignore"):
            return _Residuals(
                float(np.log(active / self.density)),
                float(np.log(power / (self.density * self.variance))),
                (
                    float(np.divide(some, active)),
                    float(np.divide(-0.5 * excess * bend, active)),
                    float(np.divide(bend, power)),
                    float(np.divide(-excess * (0.5 * bend_twice + stretch), power)),
                ),
            )

    def _bracketed(self) -> tuple[float, float]:
        """Nested root finding; slow, and sure."""

        def missing_power(log_excess: float) -> float:
            excess = exp(log_excess)
            return -self._residuals(self._odds_at(excess), excess).power

        log_excess = _root(missing_power, self._start()[1])
        return self._odds_at(exp(log_excess)), exp(log_excess)

    def _odds_at(self, excess: float) -> float:
        """λ that meets the first constraint, given the excess."""
        precision = excess + self.offset
        base = _log_odds(0.0, self.square / precision, precision)
        return _root(
            lambda log_odds: _dot(self.share, expit(log_odds + base)) - self.density, -float(base.max())
        )


def _root(rising: Callable[[float], float], guess: float) -> float:
    """Where a rising function is zero, between ends that move away from a guess."""
    low = high = guess
    width = 1.0
    while rising(low) > 0.0:
        low, width = low - width, 2.0 * width
    while rising(high) < 0.0:
        high, width = high + width, 2.0 * width
    if low == high:
        return guess
    return float(brentq(rising, low, high, xtol=BRACKET_TOLERANCE, rtol=BRACKET_TOLERANCE))


def _dot(a: Array, b: Array) -> float:
    """Inner product without BLAS, whose last digit depends on where in memory a vector lies."""
    return float(np.einsum("i,i->", a, b))


def _log_odds(log_odds: float, ratio: Array, precision: Array) -> Array:
    """λ - ½ log A + h²/2A, with ratio = h²/A; in one place, so that constraints hold as they are used."""
    return np.asarray(log_odds + 0.5 * (ratio - np.log(precision)))
