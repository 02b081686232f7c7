"""The Laplace prior, the L1 penalty as a belief, and the elastic net, between a Laplace and a Gaussian.

Both are exp(-rate|w| - ridge w²) up to a constant, and beside a cavity two Gaussians cut at zero.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, log, pi, sqrt
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, expit, ndtr

from foldless.beliefs import Array, Tilted
from foldless.component import Names, require_positive, wants
from foldless.priors.base import (
    Continuous,
    HyperPrior,
    SlabEvidence,
    TiltedRows,
    Weight,
    as_cavity,
    in_pieces,
    total_weight,
    weighted_sum,
)
from foldless.registry import registered
from foldless.special import LOG_SQRT_2PI, SQRT_HALF, mills

# The shape x = rate/(2√ridge) runs from Gaussian (0) to Laplace (∞). EM keeps it between these ends, which
# differ from the limits by less than 1e-3 in every moment, because a parameter of exactly zero could never
# come back: moments beyond the Gaussian or the Laplace end have no other answer than the end itself.
LEAST_SHAPE = 1e-3
LARGEST_SHAPE = 1e3
# Relative accuracy of the shape found in one EM step; finer than any tolerance of an EM loop.
SHAPE_TOLERANCE = 1e-13
# Sweeps of coordinate descent between looks whether it has found the signs, and how often it may be looked.
L1_SWEEPS, L1_ROUNDS = 5, 200
L1_TOLERANCE = 1e-9
# Of the mean diagonal of Λ: where all weights of a row are in, labels alone do not hold their common shift.
L1_RIDGE = 1e-8
# The mixture that SURE is averaged over: how many components, steps of EM, bins that stand for single r,
# thresholds compared; and the share of weights that the widest component starts with.
COMPONENTS, EM_STEPS, BINS, THRESHOLDS, FEW = 3, 50, 400, 3000, 0.05


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


def sure_threshold(r: Array, var: float, noise: float | None = None, weight: Array | None = None) -> float:
    """The threshold with the smallest expected SURE (`tuning.sure`) under a Gaussian mixture fitted to r.

    At most the universal threshold √(2 q log n) [Donoho, Johnstone 1995], above which noise alone hardly ever
    is. No component is narrower than the `noise` of r, which is `var` unless told otherwise. `weight` is how
    much each r counts.
    """
    weight = np.ones(np.size(r)) if weight is None else np.ravel(weight)
    share, spread = _fitted_mixture(np.ravel(r), weight, var if noise is None else noise)
    thresholds = np.linspace(0.0, np.sqrt(2.0 * var * np.log(max(np.size(r), 2))), THRESHOLDS)[:, np.newaxis]
    scaled = thresholds / np.sqrt(spread)
    above = 2.0 * ndtr(-scaled)
    square_below = spread * (1.0 - above - 2.0 * scaled * np.exp(-0.5 * scaled**2) / np.sqrt(2.0 * np.pi))
    cost = (thresholds**2 * above + square_below - 2.0 * var * (1.0 - above)) @ share
    return float(thresholds[np.argmin(cost), 0])


def _fitted_mixture(r: Array, weight: Array, noise: float) -> tuple[Array, Array]:
    """Shares and variances of Gaussians of mean zero, by EM from one as wide as the noise to a wide one."""
    size = np.abs(r) / np.sqrt(noise)
    largest = max(float(size.max(initial=0.0)), 1.0)
    bins = np.minimum(BINS * np.arcsinh(size) / np.arcsinh(largest), BINS - 1).astype(np.intp)
    count = np.bincount(bins, weights=weight, minlength=BINS)
    square = np.bincount(bins, weights=weight * size**2, minlength=BINS)[count > 0]
    count = count[count > 0]
    mean_square = (square / count)[:, np.newaxis]
    spread = np.geomspace(1.0, max(largest**2 / 4.0, 2.0), COMPONENTS)
    share = np.append(np.full(COMPONENTS - 1, (1.0 - FEW) / (COMPONENTS - 1)), FEW)
    for _ in range(EM_STEPS):
        log_density = np.log(share) - 0.5 * np.log(spread) - 0.5 * mean_square / spread
        member = np.exp(log_density - log_density.max(axis=1, keepdims=True))
        member /= member.sum(axis=1, keepdims=True)
        total = np.maximum(count @ member, np.finfo(float).tiny)
        share, spread = total / count.sum(), np.maximum((square @ member) / total, 1.0)
    return share, noise * spread


def l1_rows(shift: Array, precision: Array, rate: float) -> TiltedRows:
    """The maximum of η'w - ½ w'Λw - rate |w|₁, and the inverse of Λ over the weights that are not zero.

    Coordinate descent finds which they are and their signs; given these, the maximum is linear. (The thesis
    zeroes rows and columns of the inverse instead, which is another matrix unless Λ is diagonal.)
    """
    n_scores = shift.shape[1]
    where = np.arange(n_scores)
    precision = precision.copy()
    diagonal = np.einsum("nii->ni", precision)
    precision[:, where, where] += L1_RIDGE * diagonal.mean(axis=1)[:, np.newaxis] + np.finfo(float).tiny
    curvature = precision[:, where, where]
    weights = np.zeros_like(shift)
    for _ in range(L1_ROUNDS):
        for _ in range(L1_SWEEPS):
            for k in range(n_scores):
                pull = shift[:, k] - np.einsum("nj,nj->n", precision[:, k], weights)
                pull += curvature[:, k] * weights[:, k]
                weights[:, k] = np.sign(pull) * np.maximum(np.abs(pull) - rate, 0.0) / curvature[:, k]
        signs = np.sign(weights)
        active = signs != 0
        both = active[:, :, np.newaxis] & active[:, np.newaxis, :]
        # One on the diagonal of what is zero: it does not mix with the others, and is taken out again.
        inside = np.where(both, precision, 0.0)
        inside[:, where, where] = np.where(active, curvature, 1.0)
        cov = np.where(both, np.linalg.inv(inside), 0.0)
        exact = np.einsum("nij,nj->ni", cov, shift - rate * signs)
        signs_stay = np.all(np.sign(exact) == signs, axis=1)
        weights[signs_stay] = exact[signs_stay]
        left = np.abs(shift - np.einsum("nij,nj->ni", precision, weights))
        if signs_stay.all() and np.all(left[~active] <= rate * (1 + L1_TOLERANCE)):
            break
    value = np.einsum("ni,ni->n", shift, weights)
    value -= 0.5 * np.einsum("ni,nij,nj->n", weights, precision, weights)
    return TiltedRows(weights, cov, value - rate * np.abs(weights).sum(axis=1))
