"""Generalisation bounds for sparse logistic classifiers: what the error can be at most, from training data.

Three classifiers share a posterior q of independent Laplacians around the fitted weights ŵ [Krishnapuram et
al. 2005, section 4]: the point classifier sign(ŵ·x); Bayes voting, sign E_q sign(w·x), which is the same
because q is symmetric; and Gibbs, which draws w from q for every question. Whoever votes wrongly has at least
half of the draws wrong, so the error of the first two is at most twice that of Gibbs.

Both bounds hold with probability 1 - δ over training samples, for every q at once, if the prior (a Laplacian
of rate λ around zero) and the basis were fixed before the data. So λ must not be tuned on them, except by a
union bound: δ / number of rates. Standardising columns by the same data is a small cheat that the paper makes
too.

The paper's (25) has the arguments of the binary divergence the wrong way round; as printed, the bound
is violated in far more than a share δ of samples. Here they are as in Seeger (2002).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, rel_entr

from foldless.beliefs import Array

# Newton steps for the best width of a Laplacian; quadratic convergence from a start within a factor of two.
WIDTH_STEPS = 30
# The parameters of the Rademacher bound, fixed before any data: the smallest divergence that is told apart,
# the ratio of the grid of divergences, and the margin below which a vote counts as half a mistake.
SMALLEST_DIVERGENCE, GRID_RATIO, MARGIN = 1.0, 2.0, 1.0


class Bounds(NamedTuple):
    """Upper bounds on error rates, each with probability 1 - delta. Only `gibbs` is always below 1."""

    gibbs: float
    voting: float  # min of twice Gibbs and Rademacher, both at delta/2
    point: float  # the same: the posterior is symmetric
    rademacher: float
    gibbs_risk: float  # on the training sample
    divergence: float  # of the posterior from the prior


class Vote(NamedTuple):
    """The score of every sample under the posterior."""

    mean: Array  # of w·x
    std: Array


def best_widths(weights: Array, rate: float) -> Array:
    """The rates ηᵢ of the posterior Laplacians that have the smallest divergence from the prior.

    ηᵢ = λ where ŵᵢ = 0. Elsewhere t = η|ŵ| is the root of t = a (1 + t) e⁻ᵗ with a = λ|ŵ|, found by Newton on
    ln t + t - ln(1 + t) - ln a in ln t.
    """
    size = np.abs(np.asarray(weights, dtype=np.float64))
    out = np.full(size.shape, float(rate))
    on = size > 0
    a = rate * size[on]
    t = np.where(a <= 1.0, a, np.log1p(a))
    for _ in range(WIDTH_STEPS):
        # ln t - ln a first: for small a both are large and nearly equal.
        value = np.log(t / a) + t - np.log1p(t)
        t = t * np.exp(-value / (1.0 + t - t / (1.0 + t)))
    out[on] = t / size[on]
    return out


def laplace_divergence(weights: Array, widths: Array, rate: float) -> float:
    """KL(q ‖ p) of Laplacians around `weights` from Laplacians around zero, the paper's (23).

    Σ [ln(η/λ) - 1 + (λ/η) e^(-η|w|) + λ|w|]. Near w = 0, where η = λ, the four terms cancel; with
    ε = λ/η - 1 and t = η|w| they are (ε - log(1 + ε)) + (1 + ε)(e⁻ᵗ - 1 + t), both without cancellation.
    """
    size = np.abs(np.asarray(weights, dtype=np.float64))
    ratio = rate / widths - 1.0
    t = widths * size
    return float(np.sum((ratio - np.log1p(ratio)) + (1.0 + ratio) * _exp_rest(t)))


def _exp_rest(t: Array) -> Array:
    """e⁻ᵗ - 1 + t."""
    small = t < 1e-4
    return np.where(
        small, t * t * (0.5 - t / 6.0), np.expm1(-np.where(small, 1.0, t)) + np.where(small, 1.0, t)
    )


def gibbs_risk(vote: Vote, labels: Array) -> float:
    """The expected share of mistakes of random classifiers on a sample; w·x is taken as normal.

    All features add to the variance, those with weight zero too: with thousands the risk is near ½.
    """
    return float(np.mean(ndtr(-labels * _ratio(vote))))


def _ratio(vote: Vote) -> Array:
    """Mean over standard deviation; a vote without doubt is infinitely sure."""
    sure = np.where(vote.mean == 0, 0.0, np.copysign(np.inf, vote.mean))
    return np.divide(vote.mean, vote.std, out=sure, where=vote.std > 0)


def binary_divergence(a: float, b: float) -> float:
    """kl(a ‖ b) of two coins."""
    return float(rel_entr(a, b) + rel_entr(1.0 - a, 1.0 - b))


def pac_bayes(risk: float, divergence: float, n_samples: float, delta: float) -> float:
    """The largest true Gibbs risk with kl(sample risk ‖ true risk) ≤ [KL + ln((n + 1)/δ)]/n (Theorem 2)."""
    budget = (divergence + np.log((n_samples + 1.0) / delta)) / n_samples
    return upper_inverse(risk, budget)


def upper_inverse(risk: float, budget: float) -> float:
    """The largest b with kl(risk ‖ b) ≤ budget; below 1, if only by rounding."""
    top = float(np.nextafter(1.0, 0.0))
    if risk >= top or binary_divergence(risk, top) <= budget:
        return top
    return float(brentq(lambda b: binary_divergence(risk, b) - budget, risk, top, xtol=1e-14))


def rademacher(vote: Vote, labels: Array, divergence: float, n_samples: float, delta: float) -> float:
    """Theorem 1: sample margin loss of the vote + its complexity + a deviation. May exceed 1."""
    value = 2.0 * ndtr(_ratio(vote)) - 1.0
    loss = float(np.mean(np.clip(1.0 - labels * value / MARGIN, 0.0, 1.0)))
    grid = GRID_RATIO * max(divergence, SMALLEST_DIVERGENCE)
    step = np.log(GRID_RATIO * grid / SMALLEST_DIVERGENCE) / np.log(GRID_RATIO)
    deviation = np.sqrt((np.log(step) + 0.5 * np.log(1.0 / delta)) / n_samples)
    return loss + 2.0 / MARGIN * float(np.sqrt(2.0 * grid / n_samples)) + float(deviation)


def bounds(
    weights: Array, rate: float, vote: Callable[[Array], Vote], labels: Array, delta: float = 0.05
) -> Bounds:
    """All bounds of one classifier.

    `vote` turns the variances of the weights into mean and standard deviation of every training score, so
    that whoever holds the data may hold them as they are.
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta must be a probability between 0 and 1, for instance 0.05; got {delta!r}.")
    if not rate > 0:
        raise ValueError(f"the bounds compare with a Laplacian prior of positive rate; got rate={rate!r}.")
    widths = best_widths(weights, rate)
    divergence = laplace_divergence(weights, widths, rate)
    said = vote(2.0 / np.square(widths))
    n_samples = float(labels.size)
    risk = gibbs_risk(said, labels)
    gibbs = pac_bayes(risk, divergence, n_samples, delta)
    both = min(
        2.0 * pac_bayes(risk, divergence, n_samples, delta / 2),
        rademacher(said, labels, divergence, n_samples, delta / 2),
    )
    return Bounds(gibbs, both, both, rademacher(said, labels, divergence, n_samples, delta), risk, divergence)


def bound(model: Any, X: Any, y: Any, delta: float = 0.05) -> Bounds:
    """Bounds on the error of a fitted two-class `SMLRClassifier`, from the samples it was fitted to.

    The intercept counts as one more weight under the same prior. A model whose rate was tuned on these
    samples needs a `delta` divided by the number of rates on the path (`model.n_rates`).
    """
    classes = np.asarray(model.classes_)
    if classes.size != 2:
        raise ValueError(f"the bounds are for two classes; this model has {classes.size}.")
    labels = np.where(np.asarray(y) == classes[1], 1.0, -1.0)
    basis, weights, intercept = model.penalised_basis(X)
    return bounds(
        np.append(weights, intercept) if model.fit_intercept else weights,
        float(model.rate_),
        lambda variances: operator_vote(basis, weights, intercept, variances),
        labels,
        delta,
    )


def operator_vote(basis: Any, weights: Array, intercept: float, variances: Array) -> Vote:
    """Mean and standard deviation of scores over an operator; a last variance belongs to the intercept."""
    n_columns = basis.shape[1]
    var = basis.score_variances(variances[:n_columns]) + variances[n_columns:].sum()
    return Vote(basis.scores(weights) + intercept, np.sqrt(var))
