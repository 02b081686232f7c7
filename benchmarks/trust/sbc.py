"""Simulation-based calibration: where do true values rank among what the posterior says of them?

    python -m benchmarks.trust.sbc --simulations 1000

Weights are drawn from the prior, labels from the channel, and GAMP with that prior and channel is asked for
its posterior. If it is right, the posterior's distribution function at the true value is uniform; where
that has a jump, at the point mass at zero, a place within the jump is drawn (randomised ranks, Talts et al.
2018). Three ranks in each of six settings: of a weight drawn at random, of the score of a new sample (among
scores of weights drawn from their posterior, which is far from Gaussian where two of 2000 are active), and of
its label. Uniformity is judged by Kolmogorov and Smirnov's distance at 5 %, divided by the 18
comparisons.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from scipy.special import ndtr
from scipy.stats import kstest

from foldless.channels import Logistic, Probit
from foldless.operators import Dense
from foldless.priors import Gaussian, SpikeAndSlab
from foldless.problem import Problem
from foldless.solvers import GAMP, solve
from foldless.solvers.solve import Stopping

# Samples, columns, share of weights that are not zero, channel.
SETTINGS: list[tuple[int, int, float, Any]] = [
    (40, 2000, 0.001, Logistic()),
    (40, 400, 0.01, Probit()),
    (80, 400, 0.02, Logistic()),
    (100, 200, 0.05, Probit()),
    (150, 150, 0.1, Logistic()),
    (100, 1000, 0.01, Logistic()),
]
COMPARISONS = 3 * len(SETTINGS)


def ranks(
    n: int, p: int, inclusion: float, channel: Any, rng: np.random.Generator
) -> tuple[list[float], bool]:
    """Of a weight, a score and a label, each in [0, 1]; and whether the fit came to an end."""
    # Scores of unit order whatever the number of effects.
    prior = SpikeAndSlab(Gaussian(4.0 / max(inclusion * p, 1.0)), inclusion)
    X = rng.standard_normal((n, p))
    weights = prior.sample(p, rng)
    y = _labels(channel, X @ weights, rng)
    problem = Problem(Dense(X), y.astype(float), np.ones(n), channel, prior)
    solution = solve(problem, GAMP(variances="per-coordinate"), stopping=Stopping(tol=1e-6, max_iter=1000))
    posterior = solution.posterior
    mean, var = posterior.mean, posterior.var
    inclusion_probability = prior.inclusion_probability(posterior.cavity_mean, posterior.cavity_var)
    j = rng.integers(p)
    new = rng.standard_normal(p)
    score_var = float(np.sum(new**2 * var))
    score = float(new @ weights)
    label = int(_labels(channel, np.array([score]), rng)[0] > 0)
    positive = float(np.exp(channel.respond(float(new @ mean), score_var, 1.0).log_z))
    uniform = rng.random()
    of_label = uniform * (1 - positive) if label == 0 else 1 - positive * uniform
    found = [
        _rank(weights[j], mean[j], var[j], inclusion_probability[j], rng),
        _rank_of_score(score, new, mean, var, inclusion_probability, rng),
        of_label,
    ]
    return found, solution.outcome.trustworthy


def _labels(channel: Any, scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    positive = np.exp(channel.log_likelihood(scores, 1.0))
    return np.where(rng.random(scores.size) < positive, 1, -1)


def _slab(mean: Any, var: Any, inclusion: Any) -> tuple[Any, Any, Any]:
    """Inclusion, mean and variance of the Gaussian that with zero makes a mixture with these moments."""
    inclusion = np.clip(inclusion, 1e-12, 1.0)
    slab_mean = mean / inclusion
    return inclusion, slab_mean, np.maximum((var + mean**2) / inclusion - slab_mean**2, 1e-30)


def _rank_of_score(
    true: float, new: np.ndarray, mean: np.ndarray, var: np.ndarray, inclusion: np.ndarray,
    rng: np.random.Generator, draws: int = 500,
) -> float:  # fmt: skip
    inclusion, slab_mean, slab_var = _slab(mean, var, inclusion)
    # Those that are never drawn are left alone: most of them.
    draw, at = np.nonzero(rng.random((draws, mean.size)) < inclusion)
    weights = slab_mean[at] + np.sqrt(slab_var[at]) * rng.standard_normal(at.size)
    scores = np.bincount(draw, new[at] * weights, draws)
    return float((np.sum(scores < true) + rng.random() * (1 + np.sum(scores == true))) / (draws + 1))


def _rank(true: float, mean: float, var: float, inclusion: float, rng: np.random.Generator) -> float:
    """Of a mixture of zero and a Gaussian with these moments."""
    inclusion, slab_mean, slab_var = map(float, _slab(mean, var, inclusion))
    below = inclusion * float(ndtr((true - slab_mean) / np.sqrt(slab_var)))
    if true != 0:
        return below + (1 - inclusion if true > 0 else 0.0)
    return below + (1 - inclusion) * rng.random()


def named(setting: tuple[int, int, float, Any]) -> str:
    n, p, inclusion, channel = setting
    return f"{n} x {p}, {inclusion:g} active, {type(channel).__name__}"


def run(k: int, simulations: int = 1000, seed: int = 0) -> dict[str, Any]:
    """Of the k-th setting."""
    rng = np.random.default_rng([seed, k])
    drawn = [ranks(*SETTINGS[k], rng) for _ in range(simulations)]
    p_values = [float(kstest(column, "uniform").pvalue) for column in np.array([u for u, _ in drawn]).T]
    return {
        "simulations": simulations,
        "p values": dict(zip(("weight", "score", "label"), (round(q, 4) for q in p_values), strict=True)),
        "inside": sum(q > 0.05 / COMPARISONS for q in p_values),
        "settled": float(np.mean([ended for _, ended in drawn])),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulations", type=int, default=1000)
    options = parser.parse_args()
    for k, setting in enumerate(SETTINGS):
        print(named(setting), run(k, options.simulations))
