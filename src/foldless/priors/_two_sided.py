"""Integrals of exp(-rate|w| - ridge w²) N(w; r, τ): the two half lines that Laplace and elastic net share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, expit

from foldless.beliefs import Array, Tilted
from foldless.priors._common import Continuous, as_cavity, in_pieces
from foldless.priors._slab import SlabEvidence
from foldless.special import LOG_SQRT_2PI, SQRT_HALF, mills


class TwoSided(NamedTuple):
    """Moments of the tilted density and the log of ∫ exp(-rate|w| - ridge w²) N(w; r, τ) dw."""

    mean: NDArray[np.float64]
    var: NDArray[np.float64]
    log_integral: NDArray[np.float64]
    log_integral_over_spike: NDArray[np.float64]  # less log N(0; r, τ)
    mean_abs: NDArray[np.float64]


def two_sided(r: Array, tau: Array, rate: float, ridge: float) -> TwoSided:
    """Each half line is a Gaussian cut at zero. With D = 1 + 2 ridge τ and σ² = τ/D, standardised means

        a = (|r| - rate τ)/√(τ D)     on the side of r,
        b = -(|r| + rate τ)/√(τ D)    on the other side (always negative),

    log masses L(a), L(b), and d, k the mean and variance of N(·, 1) cut to (0, ∞) (`special.mills`):

        mean  = ±σ (p_a d_a - p_b d_b),    E|w| = σ (p_a d_a + p_b d_b),
        var   = σ² [p_a k_a + p_b k_b + p_a p_b (d_a + d_b)²],

    with p_a = 1 - p_b = exp(L(a)) / (exp(L(a)) + exp(L(b))).

    The masses are exp(large) Φ(very negative), so their logs are put together from the parts that remain:

        L(a) = -r²/2τ + log ½erfcx(-a/√2)                           for a < 0, and always for b,
        L(a) = rate (rate τ/2 - |r|)/D - ridge r²/D + log Φ(a)      for a >= 0,

    both less ½ log D. Against N(0; r, τ) the squares are gone: L(a) + r²/2τ = log[Φ(a) exp(a²/2)].
    All in double precision: the logs are differences of squares.
    """
    r, tau = r.astype(np.float64, copy=False), tau.astype(np.float64, copy=False)
    size = np.abs(r)
    widening = 1.0 + 2.0 * ridge * tau
    sigma = np.sqrt(tau / widening)
    root = np.sqrt(tau * widening)
    a = (size - rate * tau) / root
    b = -(size + rate * tau) / root
    toward, away = mills(a), mills(b)

    positive = a >= 0.0
    # log of Φ(c) exp(c²/2) at both; the branch not taken is evaluated at zero, where it is harmless.
    log_scaled_away = np.log(0.5 * erfcx(-SQRT_HALF * b))
    log_scaled_toward = np.where(
        positive, 0.5 * a * a + toward.log_cdf, np.log(0.5 * erfcx(SQRT_HALF * np.where(positive, 0.0, -a)))
    )
    log_odds_away = log_scaled_away - log_scaled_toward
    log_mass_toward = np.where(
        positive,
        (rate * (0.5 * rate * tau - size) - ridge * r * r) / widening + toward.log_cdf,
        log_scaled_toward - 0.5 * r * r / tau,
    )
    # The far side never has more mass than the near one, so this exponential cannot overflow.
    both_sides = np.log1p(np.exp(log_odds_away)) - 0.5 * np.log(widening)

    p_away, p_toward = expit(log_odds_away), expit(-log_odds_away)
    near, far = p_toward * toward.mean, p_away * away.mean
    spread = p_toward * p_away * (toward.mean + away.mean) ** 2
    return TwoSided(
        mean=np.copysign(sigma * (near - far), r),
        var=sigma**2 * (p_toward * toward.var + p_away * away.var + spread),
        log_integral=log_mass_toward + both_sides,
        log_integral_over_spike=log_scaled_toward + both_sides + 0.5 * np.log(tau) + LOG_SQRT_2PI,
        mean_abs=sigma * (near + far),
    )


def soft_threshold(r: Array, tau: Array, rate: float, ridge: float) -> Tilted:
    """Max-sum: the maximiser of -rate|w| - ridge w² - (w - r)²/2τ, τ times its derivative, the maximum.

    w = sign(r) max(|r| - rate τ, 0)/D,    D = 1 + 2 ridge τ,
    var = τ/D where w ≠ 0, otherwise 0,
    maximum = -r²/2τ where w = 0, otherwise [rate (rate τ/2 - |r|) - ridge r²]/D.
    """
    widening = 1.0 + 2.0 * ridge * tau
    size = np.abs(r)
    excess = size - rate * tau
    active = excess > 0.0
    return Tilted(
        mean=np.copysign(np.where(active, excess, 0.0) / widening, r),
        var=np.where(active, tau / widening, 0.0).astype(r.dtype, copy=False),
        log_z=np.where(
            active, (rate * (0.5 * rate * tau - size) - ridge * r * r) / widening, -0.5 * r * r / tau
        ),
    )


@dataclass(frozen=True)
class TwoSidedPrior(Continuous):
    """exp(-rate|w| - ridge w²) / C, however a subclass calls its parameters."""

    @abstractmethod
    def _rate_and_ridge(self) -> tuple[float, float]: ...

    @abstractmethod
    def _log_normaliser(self) -> float:
        """log C."""

    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """Two Gaussians cut at zero: `two_sided` has the formulas."""
        return in_pieces(self._tilted, *as_cavity(cavity_mean, cavity_var))

    def _tilted(self, r: Array, tau: Array) -> Tilted:
        parts = two_sided(r, tau, *self._rate_and_ridge())
        log_z = parts.log_integral - self._log_normaliser()
        return Tilted(*(np.asarray(a, dtype=r.dtype) for a in (parts.mean, parts.var, log_z)))

    def slab_evidence(self, cavity_mean: Array, cavity_var: Array) -> SlabEvidence:
        """`tilted` in double precision, with the log Bayes factor against w = 0."""
        parts = two_sided(*as_cavity(cavity_mean, cavity_var), *self._rate_and_ridge())
        log_c = self._log_normaliser()
        return SlabEvidence(
            parts.mean, parts.var, parts.log_integral - log_c, parts.log_integral_over_spike - log_c
        )

    def proximal(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """Soft thresholding at rate·τ, then shrinkage by 1 + 2 ridge τ."""
        found = soft_threshold(*as_cavity(cavity_mean, cavity_var), *self._rate_and_ridge())
        return found._replace(log_z=found.log_z - self._log_normaliser())
