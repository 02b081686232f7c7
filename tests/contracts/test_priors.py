"""What every prior owes the rest: moments that are derivatives, exact tails, EM that climbs, honest errors.

Two references that share no code with the library stand behind this file: Gauss-Legendre panels over the
density as it is written in a textbook, and the closed forms of half-line integrals in 150 digits.
"""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.special import logsumexp
from sklearn.base import clone

from foldless.priors import (
    NO_HYPER_PRIOR,
    PRIORS,
    Blocks,
    ElasticNet,
    Gaussian,
    GaussianMixture,
    HyperPrior,
    Laplace,
    Observed,
    OverBackground,
    Prior,
    Ridged,
    SpikeAndSlab,
    SupportsEM,
    SupportsInclusion,
    prior_from,
)
from foldless.priors.base import PIECE
from foldless.priors.wrappers import WithScreenedOut
from foldless.testing.components import (
    check_prior_moments,
    check_prior_own_moments,
    check_prior_samples,
    check_prior_scalars,
    check_prior_variances,
    derivative,
)

ONE_SIDED = GaussianMixture(weights=(0.6, 0.3, 0.1), variances=(0.05, 1.0, 9.0), means=(-1.0, 0.5, 2.0))
INTERCEPT = (slice(-1, None), Gaussian(variance=100.0))

# Screened-out weights are EM's business alone: tests/tuning/test_screening.py.
NOBODY = np.zeros(0)

# Adding a prior: one line here, and its density in `log_density` and `raw_moments` below.
ELEMENTARY: dict[str, Prior] = {
    "gaussian": Gaussian(),
    "gaussian-narrow": Gaussian(variance=0.01),
    "gaussian-mean": Gaussian(variance=2.0, mean=-1.5),
    "laplace": Laplace(),
    "laplace-flat": Laplace(rate=0.1),
    "laplace-sharp": Laplace(rate=30.0),
    "elastic-net": ElasticNet(),
    "elastic-net-gaussian": ElasticNet(rate=0.1, ridge=3.0),
    "elastic-net-laplace": ElasticNet(rate=20.0, ridge=0.01),
    "mixture": GaussianMixture(),
    "mixture-means": ONE_SIDED,
    "spike-gaussian": SpikeAndSlab(),
    "spike-gaussian-rare": SpikeAndSlab(Gaussian(variance=4.0), inclusion=1e-4),
    "spike-gaussian-mean": SpikeAndSlab(Gaussian(variance=0.5, mean=2.0), inclusion=0.3),
    "spike-laplace": SpikeAndSlab(Laplace(rate=2.0), inclusion=0.05),
    "spike-elastic-net": SpikeAndSlab(ElasticNet(), inclusion=0.5),
    "spike-mixture": SpikeAndSlab(ONE_SIDED, inclusion=0.02),
    "ridged-gaussian": Ridged(Gaussian(mean=1.0), precision=3.0),
    "ridged-spike": Ridged(SpikeAndSlab(), precision=10.0),
    "ridged-spike-laplace": Ridged(SpikeAndSlab(Laplace(), inclusion=0.2), precision=0.5),
    "ridged-elastic-net": Ridged(ElasticNet(), precision=2.0),
    "ridged-mixture": Ridged(GaussianMixture(), precision=7.0),
    "observed-spike": Observed(SpikeAndSlab(), precision=10.0, centre=0.7),
    "observed-spike-laplace": Observed(SpikeAndSlab(Laplace(), inclusion=0.2), precision=0.5, centre=-2.0),
    "ridged-ridged": Ridged(Ridged(SpikeAndSlab(), precision=1.0), precision=2.0),
    "with-screened-out": WithScreenedOut(SpikeAndSlab(Gaussian(2.0), 0.2), NOBODY, NOBODY, NOBODY),
    "gaussian-over-background": OverBackground(Gaussian(mean=1.0), variance=0.5),
    "spike-over-background": OverBackground(SpikeAndSlab(Gaussian(4.0), 0.01), variance=0.002),
    "spike-over-wide-background": OverBackground(SpikeAndSlab(Gaussian(0.5, mean=2.0), 0.3), variance=3.0),
    "spike-ridged": SpikeAndSlab(Ridged(Laplace(), precision=2.0), inclusion=0.3),
}
BLOCKED: dict[str, Prior] = {
    "blocks-intercept": Blocks(SpikeAndSlab(), others=(INTERCEPT,)),
    "blocks-three": Blocks(
        Laplace(), others=((np.array([0, 2]), Gaussian(variance=100.0)), (slice(-2, None), ElasticNet()))
    ),
    "blocks-over-background": Blocks(OverBackground(SpikeAndSlab(), variance=0.1), others=(INTERCEPT,)),
    "ridged-blocks": Ridged(Blocks(SpikeAndSlab(Laplace()), others=(INTERCEPT,)), precision=2.0),
}
EVERY_PRIOR = ELEMENTARY | BLOCKED
WITH_PROXIMAL = {name: prior for name, prior in EVERY_PRIOR.items() if hasattr(prior, "proximal")}


def every(priors: dict[str, Prior]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("prior", priors.values(), ids=priors.keys())


# ---------------------------------------------------------------- references


def prior_of_column(prior: Prior, column: int, n_columns: int) -> Prior:
    """The prior of one column, with all Blocks resolved."""
    if isinstance(prior, Blocks):
        for columns, other in prior.others:
            if column in np.arange(n_columns)[columns]:
                return prior_of_column(other, column, n_columns)
        return prior_of_column(prior.base, column, n_columns)
    if isinstance(prior, Ridged):
        return Ridged(prior_of_column(prior.base, column, n_columns), prior.precision)
    return prior


def convolved(prior: OverBackground) -> Prior:
    """A Gaussian, or a spike with a Gaussian slab, over a background, as the mixture it is."""
    match prior.base:
        case Gaussian(variance, mean):
            return Gaussian(variance + prior.variance, mean)
        case SpikeAndSlab(Gaussian(variance, mean), inclusion):
            return GaussianMixture(
                (1 - inclusion, inclusion), (prior.variance, variance + prior.variance), (0.0, mean)
            )
    raise NotImplementedError(prior)


@cache
def elastic_net_constant(rate: float, ridge: float) -> float:
    width = min(40.0 / rate, 7.0 / np.sqrt(ridge))
    return 2.0 * quad(lambda w: np.exp(-rate * w - ridge * w * w), 0.0, width, epsabs=0, epsrel=1e-13)[0]


def log_density(prior: Any, w: np.ndarray) -> tuple[float, np.ndarray]:
    """Mass of the spike at zero and log density of the rest, as textbooks write them."""
    match prior:
        case Gaussian():
            return 0.0, -0.5 * np.log(2 * np.pi * prior.variance) - (w - prior.mean) ** 2 / (
                2 * prior.variance
            )
        case Laplace():
            return 0.0, np.log(prior.rate / 2) - prior.rate * np.abs(w)
        case ElasticNet():
            constant = elastic_net_constant(prior.rate, prior.ridge)
            return 0.0, -prior.rate * np.abs(w) - prior.ridge * w**2 - np.log(constant)
        case GaussianMixture():
            means = prior.means or (0.0,) * len(prior.weights)
            terms = [
                np.log(p) + log_density(Gaussian(v, m), w)[1]
                for p, v, m in zip(prior.weights, prior.variances, means, strict=True)
            ]
            return 0.0, logsumexp(terms, axis=0)
        case SpikeAndSlab():
            spike, slab = log_density(prior.slab, w)
            return (1 - prior.inclusion) + prior.inclusion * spike, slab + np.log(prior.inclusion)
        case WithScreenedOut():
            return log_density(prior.base, w)
        case OverBackground():
            return log_density(convolved(prior), w)
        case Ridged():
            spike, rest = log_density(prior.base, w)
            return spike, rest - 0.5 * prior.precision * w**2
        case Observed():
            spike, rest = log_density(prior.base, w)
            at_zero = np.exp(-0.5 * prior.precision * prior.centre**2)
            return spike * at_zero, rest - 0.5 * prior.precision * (w - prior.centre) ** 2
    raise NotImplementedError(prior)


def by_quadrature(prior: Prior, r: float, tau: float) -> tuple[float, float, float]:
    """Mean, variance and log_z by Gauss-Legendre panels, narrow where any factor is."""
    sd = np.sqrt(tau)
    scales = np.concatenate([[0.0], np.geomspace(1e-6, 60.0, 120)])
    breaks = np.unique(
        np.concatenate([-scales, scales, np.linspace(-8, 8, 321), r + sd * np.linspace(-14, 14, 113)])
    )
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(breaks)[:, None]
    w = (0.5 * (breaks[1:] + breaks[:-1])[:, None] + half * nodes).ravel()
    step = (half * weights).ravel()
    spike, log_rest = log_density(prior, w)
    log_mass = log_rest - 0.5 * (w - r) ** 2 / tau - 0.5 * np.log(2 * np.pi * tau) + np.log(step)
    log_spike = (np.log(spike) if spike > 0 else -np.inf) - 0.5 * r**2 / tau - 0.5 * np.log(2 * np.pi * tau)
    log_z = logsumexp(np.append(log_mass, log_spike))
    p, p_spike = np.exp(log_mass - log_z), np.exp(log_spike - log_z)
    mean = np.sum(p * w)
    return mean, np.sum(p * (w - mean) ** 2) + p_spike * mean**2, log_z


def half_line(a: Any, b: Any) -> list[Any]:
    """∫_0^∞ w^k exp(-a w² + b w) dw for k = 0, 1, 2."""
    i0 = mp.sqrt(mp.pi / a) / 2 * mp.exp(b * b / (4 * a)) * mp.erfc(-b / (2 * mp.sqrt(a)))
    i1 = (1 + b * i0) / (2 * a)
    return [i0, i1, (i0 + b * i1) / (2 * a)]


def raw_moments(prior: Any, r: Any, tau: Any, precision: Any = 0) -> list[Any]:
    """∫ w^k prior(w) exp(-precision w²/2) N(w; r, tau) dw for k = 0, 1, 2 in mpmath."""
    cavity = mp.exp(-r * r / (2 * tau)) / mp.sqrt(2 * mp.pi * tau)
    match prior:
        case Gaussian():
            s, mu = mp.mpf(prior.variance), mp.mpf(prior.mean)
            a, b = 1 / (2 * s) + mp.mpf(precision) / 2 + 1 / (2 * tau), mu / s + r / tau
            scale = cavity * mp.exp(-mu * mu / (2 * s)) / mp.sqrt(2 * mp.pi * s)
            i0 = scale * mp.sqrt(mp.pi / a) * mp.exp(b * b / (4 * a))
            centre = b / (2 * a)
            return [i0, i0 * centre, i0 * (centre**2 + 1 / (2 * a))]
        case Laplace() | ElasticNet():
            rate, ridge = mp.mpf(prior.rate), mp.mpf(getattr(prior, "ridge", 0.0))
            constant = 2 * half_line(ridge, -rate)[0] if ridge else 2 / rate
            a = ridge + mp.mpf(precision) / 2 + 1 / (2 * tau)
            right, left = half_line(a, r / tau - rate), half_line(a, -r / tau - rate)
            signs = (1, -1, 1)
            return [cavity / constant * (p + s * n) for p, n, s in zip(right, left, signs, strict=True)]
        case GaussianMixture():
            means = prior.means or (0.0,) * len(prior.weights)
            parts = [
                [mp.mpf(p) * x for x in raw_moments(Gaussian(v, m), r, tau, precision)]
                for p, v, m in zip(prior.weights, prior.variances, means, strict=True)
            ]
            return [sum(column) for column in zip(*parts, strict=True)]
        case SpikeAndSlab():
            p = mp.mpf(prior.inclusion)
            i0, i1, i2 = (p * x for x in raw_moments(prior.slab, r, tau, precision))
            return [i0 + (1 - p) * cavity, i1, i2]
        case WithScreenedOut():
            return raw_moments(prior.base, r, tau, precision)
        case OverBackground():
            return raw_moments(convolved(prior), r, tau, precision)
        case Ridged():
            return raw_moments(prior.base, r, tau, mp.mpf(precision) + mp.mpf(prior.precision))
        case Observed():
            kappa, centre = mp.mpf(prior.precision), mp.mpf(prior.centre)
            widening = 1 + kappa * tau
            factor = mp.exp(-kappa * (r - centre) ** 2 / (2 * widening)) / mp.sqrt(widening)
            inner = raw_moments(prior.base, (r + kappa * tau * centre) / widening, tau / widening, precision)
            return [factor * x for x in inner]
    raise NotImplementedError(prior)


def in_150_digits(prior: Prior, r: float, tau: float) -> tuple[float, float, float]:
    with mp.workdps(150):
        i0, i1, i2 = raw_moments(prior, mp.mpf(r), mp.mpf(tau))
        mean = i1 / i0
        return float(mean), float(i2 / i0 - mean**2), float(mp.log(i0))


# ---------------------------------------------------------------- moments


@every(EVERY_PRIOR)
def test_moments_are_derivatives_of_log_z(prior: Prior) -> None:
    check_prior_moments(prior)


@every(WITH_PROXIMAL)
@pytest.mark.parametrize("tau", [0.05, 0.7, 20.0])
def test_proximal_moments_are_derivatives_of_the_envelope(prior: Any, tau: float) -> None:
    # An irregular grid, so that no point sits within a step of a kink.
    r = np.linspace(-4.0, 4.1, 41) * max(1.0, np.sqrt(tau)) + 0.00317
    step = 1e-4 * np.sqrt(tau)
    proximal = prior.proximal(r, tau)
    slope = derivative(lambda r: prior.proximal(r, tau).log_z, r, step)
    gain = derivative(lambda r: prior.proximal(r, tau).mean, r, step)
    assert_allclose(proximal.mean, r + tau * slope, atol=1e-7 * max(1.0, tau))
    assert_allclose(proximal.var, tau * gain, atol=1e-9 * tau)


@every(EVERY_PRIOR)
@pytest.mark.parametrize("tau", [1e-3, 0.3, 10.0])
def test_moments_and_log_z_agree_with_quadrature(prior: Prior, tau: float) -> None:
    r = np.array([-5.0, -1.3, -0.2, 0.0, 0.4, 2.1, 6.0])
    tilted = prior.tilted(r, tau)
    expected = [by_quadrature(prior_of_column(prior, k, r.size), x, tau) for k, x in enumerate(r)]
    mean, var, log_z = np.array(expected).T
    assert_allclose(tilted.mean, mean, rtol=1e-9, atol=1e-10)
    assert_allclose(tilted.var, var, rtol=1e-8)
    assert_allclose(tilted.log_z, log_z, rtol=1e-10, atol=1e-10)


@every(ELEMENTARY)
def test_far_tails_are_exact(prior: Prior) -> None:
    points = [(r, tau) for r in (-1e8, -300.0, 0.0, 7.0, 1e5, 1e8) for tau in (1e-12, 1e-4, 1.0, 1e4, 1e8)]
    # A cavity that is 1e13 times wider than a ridge: what a nearly generative blend produces.
    points += [(3e12, 1e13), (-2e13, 1e13), (10.0, 1e13)]
    r, tau = np.array(points).T
    tilted = prior.tilted(r, tau)
    mean, var, log_z = np.array([in_150_digits(prior, *point) for point in points]).T
    assert_allclose((tilted.mean - mean) / np.maximum(np.sqrt(var), np.abs(mean)), 0.0, atol=2e-13)
    assert_allclose(tilted.var, var, rtol=1e-11)
    assert_allclose(tilted.log_z, log_z, rtol=1e-13, atol=1e-12)


@every(EVERY_PRIOR)
def test_variances_are_positive_everywhere(prior: Prior) -> None:
    check_prior_variances(prior)


@every(EVERY_PRIOR)
def test_float32_stays_float32_and_agrees_with_float64(prior: Any) -> None:
    r = np.linspace(-6.0, 6.0, 61, dtype=np.float32)
    tau = np.linspace(0.1, 3.0, 61, dtype=np.float32)
    single, double = prior.tilted(r, tau), prior.tilted(r.astype(float), tau.astype(float))
    for part32, part64, tolerance in zip(single, double, (1e-5, 2e-5, 1e-5), strict=True):
        assert part32.dtype == np.float32
        assert part64.dtype == np.float64
        assert_allclose(part32, part64, rtol=tolerance, atol=1e-6)
    assert prior.tilted(r, 0.5).mean.dtype == np.float32
    assert prior.inclusion_probability(r, tau).dtype == np.float32
    if hasattr(prior, "proximal"):
        assert all(part.dtype == np.float32 for part in prior.proximal(r, tau))
    assert isinstance(prior.em_update(r, tau), type(prior))


@every(EVERY_PRIOR)
def test_inputs_broadcast_and_are_left_alone(prior: Any) -> None:
    r, tau = np.linspace(-2.0, 3.0, 6)[:, None], np.array([0.1, 1.0, 5.0])
    r_before, tau_before = r.copy(), tau.copy()
    rules = [prior.tilted] + ([prior.proximal] if hasattr(prior, "proximal") else [])
    for rule in rules:
        together = rule(r, tau)
        for k, one_tau in enumerate(tau):
            for part, column in zip(together, rule(r[:, 0], one_tau), strict=True):
                assert part.shape == (6, 3)
                assert part.flags.writeable
                assert_allclose(part[:, k], column, rtol=1e-14, atol=1e-14)
    assert prior.inclusion_probability(r, tau).shape == (6, 3)
    prior.em_update(r, tau)
    assert_array_equal(r, r_before)
    assert_array_equal(tau, tau_before)


@every(ELEMENTARY)
def test_scalars_are_answered(prior: Prior) -> None:
    check_prior_scalars(prior)


@every(ELEMENTARY)
def test_long_vectors_are_answered_like_short_ones(prior: Prior) -> None:
    rng = np.random.default_rng(0)
    r, tau = rng.normal(0, 3, 2 * PIECE + 5), rng.uniform(0.1, 2.0, 2 * PIECE + 5)
    some = rng.choice(r.size, 50, replace=False)
    for long, short in zip(prior.tilted(r, tau), prior.tilted(r[some], tau[some]), strict=True):
        assert_allclose(long[some], short, rtol=1e-13, atol=1e-14)
    for long, short in zip(prior.tilted(r, 0.7), prior.tilted(r[some], 0.7), strict=True):
        assert_allclose(long[some], short, rtol=1e-13, atol=1e-14)


# A ridge is evidence, and so is an observation: it remains when the cavity says nothing.
@every({k: prior for k, prior in EVERY_PRIOR.items() if "ridged" not in k and "observed" not in k})
def test_a_cavity_that_says_nothing_returns_the_moments_of_the_prior(prior: Prior) -> None:
    check_prior_own_moments(prior)


@every(EVERY_PRIOR)
def test_samples_have_the_stated_moments(prior: Prior) -> None:
    check_prior_samples(prior)


@pytest.mark.parametrize(("rate", "ridge"), [(1.0, 0.5), (0.1, 3.0), (20.0, 0.01), (1.0, 0.49)])
def test_elastic_net_samples_have_the_right_distribution(rate: float, ridge: float) -> None:
    prior = ElasticNet(rate, ridge)
    draws = prior.sample(100_000, np.random.default_rng(5))
    for point in np.quantile(draws, [0.05, 0.3, 0.8, 0.99]):
        below = quad(lambda w: np.exp(log_density(prior, np.array(w))[1]), point, 0.0)[0]
        share = np.mean(draws < point)
        assert abs(share - (0.5 - below)) < 5 * np.sqrt(share * (1 - share) / draws.size)


# ---------------------------------------------------------------- inclusion, max-sum


@every(EVERY_PRIOR)
def test_inclusion_is_the_mass_outside_the_spike(prior: Any) -> None:
    assert isinstance(prior, SupportsInclusion)
    r, tau = np.array([-4.0, -0.5, 0.0, 0.3, 1.0, 2.5, 5.0]), 0.4
    inclusion = prior.inclusion_probability(r, tau)
    log_z = prior.tilted(r, tau).log_z
    for k, (x, evidence) in enumerate(zip(r, log_z, strict=True)):
        own, width = prior_of_column(prior, k, r.size), tau
        if isinstance(own, OverBackground):
            # The spike is that of the part beyond the background, which is seen through it.
            own, width = own.base, tau + own.variance
        spike = log_density(own, np.array([1.0]))[0]
        at_zero = spike * np.exp(-0.5 * x**2 / width - evidence) / np.sqrt(2 * np.pi * width)
        assert_allclose(inclusion[k], 1.0 - at_zero, rtol=1e-12, atol=1e-14)


@every(WITH_PROXIMAL)
@pytest.mark.parametrize("tau", [0.02, 0.7, 15.0])
def test_proximal_agrees_with_brute_force(prior: Any, tau: float) -> None:
    r = np.array([-7.0, -1.1, -0.1, 0.0, 0.6, 2.2, 9.0])
    proximal = prior.proximal(r, tau)
    for k, x in enumerate(r):
        column = prior_of_column(prior, k, r.size)

        def objective(w: np.ndarray, column: Prior = column, x: float = x) -> np.ndarray:
            return log_density(column, w)[1] - (w - x) ** 2 / (2 * tau)

        low, high = -10.0, 10.0
        for _ in range(12):
            # Zero is always among the candidates: a maximum at a kink is found exactly.
            grid = np.union1d(np.linspace(low, high, 201), [0.0] if low <= 0.0 <= high else [])
            best = grid[np.argmax(objective(grid))]
            low, high = best - 0.02 * (high - low), best + 0.02 * (high - low)
        assert_allclose(proximal.mean[k], best, atol=1e-6)
        assert_allclose(proximal.log_z[k], objective(np.array([best]))[0], rtol=1e-10, atol=1e-10)


def test_max_sum_is_offered_only_where_the_prior_has_it() -> None:
    have = {"gaussian", "laplace", "elastic-net"}
    assert {name for name, prior in PRIORS.items() if hasattr(prior(), "proximal")} == have
    for wrapped in (Ridged(SpikeAndSlab(), 1.0), Blocks(SpikeAndSlab())):
        assert not hasattr(wrapped, "proximal")
    with pytest.raises(AttributeError, match=r"SpikeAndSlab has only `tilted`.*sum-product"):
        Blocks(Laplace(), others=((slice(1), SpikeAndSlab()),)).proximal  # noqa: B018
    assert hasattr(Blocks(Laplace(), others=((slice(1), Gaussian()),)), "proximal")


# ---------------------------------------------------------------- EM

LEARNABLE: dict[str, tuple[Prior, Prior]] = {  # the truth, and where EM starts
    "gaussian": (Gaussian(2.0), Gaussian(1.0)),
    "laplace": (Laplace(0.7), Laplace(1.0)),
    "elastic-net": (ElasticNet(1.5, 0.8), ElasticNet(1.0, 0.5)),
    "mixture": (GaussianMixture((0.7, 0.3), (0.05, 4.0)), GaussianMixture((0.5, 0.5), (0.1, 1.0))),
    "spike-gaussian": (SpikeAndSlab(Gaussian(2.0), 0.2), SpikeAndSlab()),
    "spike-laplace": (SpikeAndSlab(Laplace(0.7), 0.2), SpikeAndSlab(Laplace())),
    "ridged-spike": (Ridged(SpikeAndSlab(Gaussian(2.0), 0.2), 3.0), Ridged(SpikeAndSlab(), 3.0)),
    "blocks": (
        Blocks(SpikeAndSlab(Gaussian(2.0), 0.2), others=((slice(200), Gaussian(0.3)),), tune_others=True),
        Blocks(SpikeAndSlab(), others=((slice(200), Gaussian()),), tune_others=True),
    ),
}
learnable = pytest.mark.parametrize(("truth", "start"), LEARNABLE.values(), ids=LEARNABLE.keys())


def observed(truth: Any, n: int, tau: float, seed: int) -> np.ndarray:
    """Pseudo-observations r = w + noise; under a ridge, those at which the inner cavity is r."""
    rng = np.random.default_rng(seed)
    if isinstance(truth, Ridged):
        inner_tau = 1.0 / (1.0 / tau + truth.precision)
        return observed(truth.base, n, inner_tau, seed) * tau / inner_tau
    return truth.sample(n, rng) + np.sqrt(tau) * rng.standard_normal(n)


def em(prior: Any, r: np.ndarray, tau: float, steps: int, **options: Any) -> Any:
    for _ in range(steps):
        prior = prior.em_update(r, tau, **options)
    return prior


def coordinates(prior: Any) -> np.ndarray:
    """The tunable parameters, unconstrained: logs, logits, logs against the last weight of a mixture."""
    found: list[float] = []
    for name in prior.tunable_params():
        value = prior.get_params()[name]
        if name.endswith("inclusion"):
            found.append(np.log(value / (1 - value)))
        elif name.endswith("weights"):
            found += list(np.log(np.array(value)[:-1] / value[-1]))
        elif name == "others":
            found += [x for _, other in value for x in coordinates(other)]
        else:
            found += list(np.log(np.atleast_1d(value)))
    return np.array(found)


def with_coordinates(prior: Any, x: np.ndarray) -> Any:
    rest = list(x)
    changes: dict[str, Any] = {}
    for name in prior.tunable_params():
        value = prior.get_params()[name]
        if name.endswith("inclusion"):
            changes[name] = 1 / (1 + np.exp(-rest.pop(0)))
        elif name.endswith("weights"):
            odds = np.exp([rest.pop(0) for _ in value[:-1]] + [0.0])
            changes[name] = tuple(odds / odds.sum())
        elif name == "others":
            changes[name] = tuple(
                (c, with_coordinates(other, np.array([rest.pop(0) for _ in coordinates(other)])))
                for c, other in value
            )
        elif isinstance(value, tuple):
            changes[name] = tuple(np.exp([rest.pop(0) for _ in value]))
        else:
            changes[name] = float(np.exp(rest.pop(0)))
    return prior.with_params(**changes)


def gradient_and_hessian(prior: Any, r: np.ndarray, tau: float) -> tuple[np.ndarray, np.ndarray]:
    """Of Σ log_z in the unconstrained parameters, by central differences."""
    x0 = coordinates(prior)
    units = np.eye(x0.size)

    def evidence(x: np.ndarray) -> float:
        return float(np.sum(with_coordinates(prior, x).tilted(r, tau).log_z))

    h = 1e-3
    gradient = np.array(
        [
            (
                8 * (evidence(x0 + h * e) - evidence(x0 - h * e))
                - evidence(x0 + 2 * h * e)
                + evidence(x0 - 2 * h * e)
            )
            / (12 * h)
            for e in units
        ]
    )
    hessian = np.array(
        [
            [
                (
                    evidence(x0 + h * (e + f))
                    - evidence(x0 + h * (e - f))
                    - evidence(x0 - h * (e - f))
                    + evidence(x0 - h * (e + f))
                )
                / (4 * h * h)
                for e in units
            ]
            for f in units
        ]
    )
    return gradient, hessian


@learnable
def test_em_climbs_to_a_stationary_point_of_the_evidence(truth: Any, start: Any) -> None:
    assert isinstance(start, SupportsEM)
    tau = 0.01
    r = observed(truth, 1000, tau, seed=1)
    prior, evidence = start, float(np.sum(start.tilted(r, tau).log_z))
    for _ in range(400):
        following = prior.em_update(r, tau)
        climbed = float(np.sum(following.tilted(r, tau).log_z))
        assert climbed >= evidence - 1e-9 * abs(climbed)
        moved = np.max(np.abs(coordinates(following) - coordinates(prior)))
        prior, evidence = following, climbed
        if moved < 1e-10:
            break
    assert moved < 1e-8
    gradient, _ = gradient_and_hessian(prior, r, tau)
    assert_allclose(gradient / r.size, 0.0, atol=1e-7)
    # The same number at the start, to show that the test can fail.
    assert np.max(np.abs(gradient_and_hessian(start, r, tau)[0])) / r.size > 1e-3


@learnable
def test_em_recovers_the_prior_within_five_standard_errors(truth: Any, start: Any) -> None:
    tau = 0.05
    r = observed(truth, 6000, tau, seed=2)
    found = em(start, r, tau, steps=120)
    _, hessian = gradient_and_hessian(found, r, tau)
    standard_errors = np.sqrt(np.diag(np.linalg.inv(-hessian)))
    assert np.all(standard_errors < 0.5)
    assert_array_equal(np.abs(coordinates(found) - coordinates(truth)) < 5 * standard_errors, True)


def test_em_formulas_of_the_sheet() -> None:
    r, tau = np.random.default_rng(0).normal(0, 2, 300), np.full(300, 0.5)
    prior = SpikeAndSlab(Gaussian(1.5), 0.1)
    slab = prior.slab.tilted(r, tau)
    p = prior.inclusion_probability(r, tau)
    plain = prior.em_update(r, tau)
    assert_allclose(plain.inclusion, p.mean(), rtol=1e-13)
    assert_allclose(plain.slab.variance, np.sum(p * (slab.mean**2 + slab.var)) / p.sum(), rtol=1e-13)
    hyper = HyperPrior(scale_count=3.0, scale=2.0, active_count=1.5, sparsity=0.4)
    weak = prior.em_update(r, tau, hyper=hyper)
    assert_allclose(weak.inclusion, (p.sum() + 1.5) / (300 + 0.4 * 300 + 1.5), rtol=1e-13)
    expected = (np.sum(p * (slab.mean**2 + slab.var)) + 3.0 * 4.0) / (p.sum() + 3.0)
    assert_allclose(weak.slab.variance, expected, rtol=1e-13)
    named = prior.em_update(r, tau, names=frozenset({"slab__mean", "slab__variance"}))
    mu = np.sum(p * slab.mean) / p.sum()
    assert_allclose(named.slab.mean, mu, rtol=1e-12)
    assert_allclose(named.slab.variance, np.sum(p * ((slab.mean - mu) ** 2 + slab.var)) / p.sum(), rtol=1e-12)
    assert named.inclusion == prior.inclusion
    assert plain.slab.mean == 0.0


def test_em_of_the_mixture_means_only_if_named() -> None:
    r = observed(ONE_SIDED, 3000, 0.01, seed=4)
    start = GaussianMixture(ONE_SIDED.weights, ONE_SIDED.variances, means=(-0.5, 0.0, 1.0))
    assert em(start, r, 0.01, 5).means == (-0.5, 0.0, 1.0)
    every_name = frozenset({"weights", "variances", "means"})
    found = em(start, r, 0.01, 300, names=every_name)
    assert_allclose(found.means[0], -1.0, atol=0.05)
    assert np.sum(found.tilted(r, 0.01).log_z) > np.sum(ONE_SIDED.tilted(r, 0.01).log_z)


@pytest.mark.parametrize("name", ["rate", "ridge"])
def test_elastic_net_learns_one_parameter_with_the_other_fixed(name: str) -> None:
    tau, truth = 0.01, ElasticNet(1.5, 0.8)
    r = observed(truth, 2000, tau, seed=5)
    found = em(truth.with_params(**{name: 2.0}), r, tau, 200, names=frozenset({name}))
    other = {"rate": "ridge", "ridge": "rate"}[name]
    assert getattr(found, other) == getattr(truth, other)
    gradient, _ = gradient_and_hessian(found, r, tau)
    assert abs(gradient[("rate", "ridge").index(name)]) / r.size < 1e-7


def test_elastic_net_ends_at_the_laplace_or_the_gaussian_that_data_ask_for() -> None:
    rng = np.random.default_rng(0)
    heavy, flat = rng.standard_t(2.5, 2000), rng.uniform(-2, 2, 2000)
    laplace_like, gaussian_like = em(ElasticNet(), heavy, 1e-4, 30), em(ElasticNet(), flat, 1e-4, 30)
    assert_allclose(laplace_like.rate, em(Laplace(), heavy, 1e-4, 30).rate, rtol=1e-5)
    assert_allclose(0.5 / gaussian_like.ridge, em(Gaussian(), flat, 1e-4, 30).variance, rtol=5e-3)


@pytest.mark.parametrize("start", [start for _, start in LEARNABLE.values()], ids=LEARNABLE.keys())
@pytest.mark.parametrize("extreme", ["all-zero", "huge", "uninformative"])
def test_with_a_hyper_prior_em_never_runs_to_the_extremes(start: Any, extreme: str) -> None:
    n = 400
    r, tau = {
        "all-zero": (np.zeros(n), 1.0),
        "huge": (np.full(n, 1e4), 1.0),
        "uninformative": (np.zeros(n), 1e8),
    }[extreme]
    prior = em(start, r, tau, steps=150, hyper=HyperPrior())
    assert np.all(np.isfinite(coordinates(prior)))
    base = getattr(prior, "base", prior)
    slab = getattr(base, "slab", base)
    if hasattr(base, "inclusion"):
        assert 0.5 / n <= base.inclusion <= 0.5
    spread = np.sqrt(slab.moments()[1])
    # Two pseudo-observations of size one among n weights, in the worst case.
    assert 1e-3 < spread < (3e4 if extreme == "huge" else 3.0)
    if isinstance(slab, GaussianMixture):
        assert min(slab.variances) > 1e-7
        assert min(slab.weights) > 1e-4


def test_without_information_em_goes_to_the_hyper_prior() -> None:
    r, n = np.zeros(50), 50
    learned = em(Gaussian(30.0), r, 1e12, 600, hyper=HyperPrior(scale=0.5))
    assert_allclose(learned.variance, 0.25, rtol=1e-6)
    assert_allclose(em(Laplace(30.0), r, 1e12, 600, hyper=HyperPrior(scale=0.5)).rate, 2.0, rtol=1e-6)
    empty = em(SpikeAndSlab(), np.zeros(n), 1e-4, 50, hyper=HyperPrior())
    assert empty.inclusion < 3.0 / n


@pytest.mark.parametrize("start", [start for _, start in LEARNABLE.values()], ids=LEARNABLE.keys())
@pytest.mark.parametrize("hyper", [NO_HYPER_PRIOR, HyperPrior()], ids=["plain", "hyper"])
def test_weights_count_like_repetitions(start: Any, hyper: HyperPrior) -> None:
    if isinstance(start, Blocks):
        start = start.with_params(others=((slice(0, 0), Gaussian()),))
    rng = np.random.default_rng(6)
    r, tau, counts = rng.normal(0, 2, 80), rng.uniform(0.1, 1.0, 80), rng.integers(0, 4, 80)
    weighted = start.em_update(r, tau, weight=counts.astype(float), hyper=hyper)
    repeated = start.em_update(np.repeat(r, counts), np.repeat(tau, counts), hyper=hyper)
    assert_allclose(coordinates(weighted), coordinates(repeated), rtol=1e-10, atol=1e-12)
    twice = start.em_update(r, tau, weight=2.0, hyper=hyper)
    assert_allclose(
        coordinates(twice),
        coordinates(start.em_update(np.tile(r, 2), np.tile(tau, 2), hyper=hyper)),
        rtol=1e-10,
        atol=1e-12,
    )
    assert start.em_update(r, tau, weight=0.0) == start


@pytest.mark.parametrize("start", [start for _, start in LEARNABLE.values()], ids=LEARNABLE.keys())
def test_only_named_parameters_move(start: Any) -> None:
    r, tau = np.linspace(-5, 6, 400), 0.3
    before = start.get_params()
    for name in start.tunable_params():
        after = start.em_update(r, tau, names=frozenset({name})).get_params()
        for other in start.tunable_params():
            assert (after[other] == before[other]) == (other != name), other
    assert start.em_update(r, tau, names=frozenset()) == start


# ---------------------------------------------------------------- wrappers


def test_a_ridge_per_feature_is_a_ridge_for_each() -> None:
    r, tau, precision = np.array([-2.0, 0.3, 1.0]), np.array([0.5, 1.0, 2.0]), np.array([0.0, 4.0, 1e6])
    together = Ridged(SpikeAndSlab(), precision)
    for k in range(3):
        alone = Ridged(SpikeAndSlab(), float(precision[k])).tilted(r[k : k + 1], tau[k : k + 1])
        for whole, part in zip(together.tilted(r, tau), alone, strict=True):
            assert_allclose(whole[k], part[0], rtol=1e-13)
    for whole, part in zip(Ridged(Laplace(), 0.0).tilted(r, tau), Laplace().tilted(r, tau), strict=True):
        assert_allclose(whole, part, rtol=1e-13, atol=1e-14)
    assert together.tilted(r.astype(np.float32), tau.astype(np.float32)).mean.dtype == np.float32


A_RIDGE_EACH = Ridged(SpikeAndSlab(), np.arange(8.0))
DIFFERING: dict[str, Prior] = {
    "a ridge each": A_RIDGE_EACH,
    "a ridge each, and blocks": Blocks(A_RIDGE_EACH, others=((np.array([5, -3]), Laplace()), INTERCEPT)),
    "a ridge each in a block": Blocks(
        Gaussian(), others=((np.array([6, 1, 3]), Ridged(Laplace(), np.array([1.0, 2.0, 3.0]))),)
    ),
    "a ridge for each slab": SpikeAndSlab(A_RIDGE_EACH.with_params(base=Gaussian())),
}


@every(EVERY_PRIOR | DIFFERING)
@pytest.mark.parametrize("columns", [[0, 3, 6, 7], [2], [5, 3, 1], np.arange(8)], ids=repr)
def test_the_prior_of_some_columns_answers_as_it_does_among_all(prior: Prior, columns: Any) -> None:
    r, tau = np.linspace(-2.0, 3.0, 8), np.linspace(0.5, 1.5, 8)
    columns = np.asarray(columns)
    some = prior.of_columns(columns, 8).tilted(r[columns], tau[columns])
    for part, whole in zip(some, prior.tilted(r, tau), strict=True):
        assert_allclose(part, whole[columns], rtol=1e-13)


def test_blocks_give_each_column_its_own_prior_and_tune_it_apart() -> None:
    n = 500
    r, tau = np.random.default_rng(8).normal(0, 2, n), 0.5
    columns = np.array([3, 7, 100])
    prior = Blocks(SpikeAndSlab(), others=((columns, Laplace()), INTERCEPT))
    own = np.setdiff1d(np.arange(n), [*columns, n - 1])
    tilted = prior.tilted(r, tau)
    assert_array_equal(tilted.mean[columns], Laplace().tilted(r[columns], tau).mean)
    assert_array_equal(tilted.var[-1:], Gaussian(100.0).tilted(r[-1:], tau).var)
    assert_array_equal(tilted.log_z[own], SpikeAndSlab().tilted(r[own], tau).log_z)
    inclusion = prior.inclusion_probability(r, tau)
    assert_array_equal(inclusion[[3, 7, 100, -1]], 1.0)
    assert np.all(inclusion[own] < 1.0)

    learned = prior.em_update(r, tau)
    expected = SpikeAndSlab().em_update(r[own], tau)
    assert_allclose(coordinates(learned.base), coordinates(expected), rtol=1e-12)
    assert learned.others == prior.others
    assert prior.tunable_params() == ("base__inclusion", "base__slab__variance")

    tuned = prior.with_params(tune_others=True)
    assert tuned.tunable_params() == ("base__inclusion", "base__slab__variance", "others")
    others = tuned.em_update(r, tau).others
    assert_allclose(others[0][1].rate, Laplace().em_update(r[columns], tau).rate, rtol=1e-12)
    assert_allclose(others[1][1].variance, Gaussian(100.0).em_update(r[-1:], tau).variance, rtol=1e-12)

    start_mean, start_var = Ridged(prior, 2.0).start(n)
    assert_array_equal(start_mean, 0.0)
    assert_array_equal(start_var[[3, -1]], [2.0, 100.0])
    assert_allclose(start_var[own], 0.1, rtol=1e-14)

    draws = prior.sample(n, np.random.default_rng(0))
    assert np.all(draws[[3, 7, 100, -1]] != 0.0)
    assert np.mean(draws[own] == 0.0) > 0.8


# ---------------------------------------------------------------- parameters


@every(EVERY_PRIOR)
def test_clones_and_pickles_are_equal_but_not_the_same(prior: Any) -> None:
    r = np.linspace(-2, 2, 9)
    for copy in (
        clone(prior),
        pickle.loads(pickle.dumps(prior)),
        prior.with_params(**prior.get_params(deep=False)),
    ):
        assert copy is not prior
        assert copy == prior
        assert hash(copy) == hash(prior)
        assert_array_equal(copy.tilted(r, 0.5).mean, prior.tilted(r, 0.5).mean)


@every(EVERY_PRIOR)
def test_every_tunable_parameter_can_be_read_and_set_by_its_nested_name(prior: Any) -> None:
    params = prior.get_params()
    for name in prior.tunable_params():
        value = params[name]
        new = tuple(reversed(value)) if isinstance(value, tuple) else 0.5 * value
        changed = prior.with_params(**{name: new})
        assert changed.get_params()[name] == new
        assert changed != prior
        assert prior.get_params()[name] == value
        copy = clone(prior)
        assert copy.set_params(**{name: new}) is copy
        assert copy == changed
        assert prior.get_params()[name] == value


def test_arrays_in_priors_are_compared_by_value() -> None:
    assert Ridged(Gaussian(), np.ones(3)) == Ridged(Gaussian(), np.ones(3))
    assert Ridged(Gaussian(), np.ones(3)) != Ridged(Gaussian(), np.zeros(3))
    assert Ridged(Gaussian(), 1.0) != Blocks(Gaussian())
    first, second = ((np.array([1, 2]), Gaussian()),), ((np.array([1, 3]), Gaussian()),)
    assert Blocks(Laplace(), first) == Blocks(Laplace(), ((np.array([1, 2]), Gaussian()),))
    assert Blocks(Laplace(), first) != Blocks(Laplace(), second)


def test_priors_by_name() -> None:
    for name, prior in PRIORS.items():
        assert prior_from(name) == prior()
    lasso = Laplace(3.0)
    assert prior_from(lasso) is lasso
    with pytest.raises(ValueError, match=r"horseshoe.*elastic-net, gaussian.*pass an object"):
        prior_from("horseshoe")
    with pytest.raises(ValueError, match="pass an object"):
        prior_from(Laplace)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gaussian(variance=0.0), r"Gaussian\(variance=...\) must be a finite number > 0; got 0.0"),
        (lambda: Gaussian(variance=np.nan), "finite number > 0; got nan"),
        (lambda: Gaussian(mean=np.inf), r"Gaussian\(mean=...\).*got inf.*Blocks"),
        (lambda: Laplace(rate=-1.0), r"Laplace\(rate=...\).*got -1.0"),
        (lambda: ElasticNet(rate=0.0), "Gaussian"),
        (lambda: ElasticNet(ridge=0.0), r"Laplace\(rate\)"),
        (lambda: GaussianMixture(weights=(0.5, 0.6)), "sum to 1.*sums to 1.1.*Divide"),
        (lambda: GaussianMixture(weights=(1.0, 0.0)), "positive numbers"),
        (lambda: GaussianMixture(weights=(1.0,)), "1 finite numbers > 0, one per weight"),
        (lambda: GaussianMixture(variances=(1.0, 0.0)), "SpikeAndSlab"),
        (lambda: GaussianMixture(means=(1.0,)), "None or 2 finite numbers"),
        (lambda: SpikeAndSlab(inclusion=1.0), "strictly between 0 and 1; got 1.0.*slab itself"),
        (lambda: SpikeAndSlab(inclusion=0.0), "strictly between 0 and 1; got 0.0"),
        (lambda: SpikeAndSlab(SpikeAndSlab()), "must not have a spike.*multiply the inclusions"),
        (lambda: SpikeAndSlab(Gaussian), r"must be a prior.*Gaussian\(variance=1.0\)"),
        (lambda: Ridged("laplace", 1.0), "must be a prior; got 'laplace'"),
        (lambda: Ridged(Laplace(), -1.0), "finite and >= 0.*got -1.0"),
        (lambda: Ridged(Laplace(), np.array([1.0, np.inf])), "finite and >= 0"),
        (lambda: Blocks(Laplace(), others=(slice(1), Gaussian())), r"pairs \(columns, prior\)"),
        (lambda: Blocks(Laplace(), others=((["age"], Gaussian()),)), "slice or as integers.*flatnonzero"),
        (lambda: Blocks(Laplace(), others=((slice(1), "gaussian"),)), "must be a prior; got 'gaussian'"),
        (lambda: Laplace().with_params(scale=1.0), "no parameter 'scale'"),
    ],
)
def test_errors_say_what_came_and_what_to_do(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        make()
