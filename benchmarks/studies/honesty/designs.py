"""Tables with a known truth: a few hundred samples to learn from, and thousands to judge by.

A design draws columns, and labels from them. `weights` are of the logistic model behind the labels, in the
units of X, where there is one; `right` is whether a fit of few features to independent columns is the right
model, so that its intervals have to cover.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.special import expit, ndtri

Array = NDArray[np.float64]
Rng = np.random.Generator

N_EFFECTS, EFFECT = 5, 1.5
GROUP_SIZE = 5


@dataclass(frozen=True, eq=False)
class Drawn:
    """Rows to learn from, then rows to judge by."""

    X: Array
    y: NDArray[np.int_]
    weights: Array | None = None
    groups: NDArray[np.int_] | None = None
    sample_weight: Array | None = None


@dataclass(frozen=True)
class Design:
    draw: Callable[[Rng, int, int], Drawn]  # rows in all, columns
    null: bool = False
    right: bool = False
    weights: str = ""  # of samples: "", "twos", "random" or "balanced"
    flipped: float = 0.0  # share of wrong labels, in both parts
    grouped: bool = False


# ---------------------------------------------------------------------------------------- columns


def independent(rng: Rng, n: int, p: int) -> Array:
    return rng.standard_normal((n, p))


def toeplitz(correlation: float) -> Callable[[Rng, int, int], Array]:
    def columns(rng: Rng, n: int, p: int) -> Array:
        noise = rng.standard_normal((n, p))
        noise[:, 1:] *= np.sqrt(1.0 - correlation**2)
        return np.asarray(lfilter([1.0], [1.0, -correlation], noise, axis=1))

    return columns


def equicorrelated(rng: Rng, n: int, p: int) -> Array:
    return np.sqrt(0.5) * (rng.standard_normal((n, 1)) + rng.standard_normal((n, p)))


def factors(rng: Rng, n: int, p: int) -> Array:
    """Ten factors with half of the variance of each column."""
    loadings = rng.standard_normal((10, p)) / np.sqrt(10)
    return np.sqrt(0.5) * (rng.standard_normal((n, 10)) @ loadings + rng.standard_normal((n, p)))


def student(rng: Rng, n: int, p: int) -> Array:
    return rng.standard_t(3, (n, p)) / np.sqrt(3)


def genotypes(rng: Rng, n: int, p: int) -> Array:
    """0 and 1, of frequencies .1 to .5, in blocks of linkage."""
    frequency = rng.uniform(0.1, 0.5, p)
    return (toeplitz(0.8)(rng, n, p) < ndtri(frequency)).astype(float)


def counts(rng: Rng, n: int, p: int) -> Array:
    """Overdispersed counts, with the depths of samples and programmes of genes in common."""
    mean = np.exp(rng.normal(1.5, 1.0, p) + 0.5 * factors(rng, n, p) + 0.3 * rng.standard_normal((n, 1)))
    return rng.poisson(mean * rng.gamma(3.0, 1.0 / 3.0, (n, p))).astype(float)


def log_counts(rng: Rng, n: int, p: int) -> Array:
    return np.log1p(counts(rng, n, p))


def words(rng: Rng, n: int, p: int) -> Array:
    """Few occurrences, of frequencies by Zipf's law."""
    return rng.poisson(np.minimum(30.0 / np.arange(1, p + 1), 3.0), (n, p)).astype(float)


def batches(rng: Rng, n: int, p: int) -> Array:
    return rng.standard_normal((n, p)) + 1.5 * rng.standard_normal((4, p))[rng.integers(0, 4, n)]


# ---------------------------------------------------------------------------------------- labels


def logistic(
    columns: Callable[[Rng, int, int], Array],
    *,
    n_effects: int | None = N_EFFECTS,
    effect: float = EFFECT,
    intercept: float = 0.0,
) -> Callable[[Rng, int, int], Drawn]:
    """Effects of one size per standard deviation, of random signs; of all columns if there is no number."""

    def draw(rng: Rng, n: int, p: int) -> Drawn:
        X = columns(rng, n, p)
        weights, k = np.zeros(p), n_effects or p
        varies = np.flatnonzero(X.std(axis=0) > 0.2)
        which = rng.choice(varies, min(k, varies.size), replace=False)
        size = effect if n_effects else effect * rng.standard_normal(which.size) / np.sqrt(which.size)
        weights[which] = size * rng.choice([-1.0, 1.0], which.size) / X[:, which].std(axis=0)
        score = (X - X.mean(axis=0)) @ weights + intercept
        return Drawn(X, (rng.random(n) < expit(score)).astype(int), weights)

    return draw


def class_means(n_effects: int = 10, shift: float = 1.0) -> Callable[[Rng, int, int], Drawn]:
    def draw(rng: Rng, n: int, p: int) -> Drawn:
        y = rng.integers(0, 2, n)
        X = rng.standard_normal((n, p))
        X[:, :n_effects] += shift * (y[:, np.newaxis] - 0.5)
        return Drawn(X, y, np.append(np.full(n_effects, shift), np.zeros(p - n_effects)))

    return draw


def of_a_factor(rng: Rng, n: int, p: int) -> Drawn:
    """Labels of what all columns have in common."""
    factor = rng.standard_normal((n, 3))
    X = factor @ rng.standard_normal((3, p)) / np.sqrt(3) + rng.standard_normal((n, p))
    return Drawn(X, (rng.random(n) < expit(2.0 * factor[:, 0])).astype(int))


def nonlinear(rng: Rng, n: int, p: int) -> Drawn:
    X = independent(rng, n, p)
    score = 2.0 * X[:, 0] * X[:, 1] + 1.5 * (X[:, 2] ** 2 - 1.0) + X[:, 3]
    return Drawn(X, (rng.random(n) < expit(score)).astype(int))


def unequal_spread(rng: Rng, n: int, p: int) -> Drawn:
    y = rng.integers(0, 2, n)
    X = rng.standard_normal((n, p)) * np.where(y[:, np.newaxis] == 1, 1.5, 1.0)
    X[:, :10] += y[:, np.newaxis]
    return Drawn(X, y)


def subtypes(rng: Rng, n: int, p: int) -> Drawn:
    """A class of two kinds, each with columns of its own."""
    kind = rng.integers(0, 4, n)
    X = rng.standard_normal((n, p))
    X[kind == 2, :10] += 1.5
    X[kind == 3, 10:20] += 1.5
    return Drawn(X, (kind >= 2).astype(int))


def classes(
    columns: Callable[[Rng, int, int], Array], share: tuple[float, ...] = (0.25,) * 4
) -> Callable[[Rng, int, int], Drawn]:
    """Each class with its share of the samples, and five columns of its own."""

    def draw(rng: Rng, n: int, p: int) -> Drawn:
        equal = len(set(share)) == 1
        y = rng.integers(0, len(share), n) if equal else rng.choice(len(share), n, p=share)
        X = columns(rng, n, p)
        for k in range(len(share)):
            X[y == k, 5 * k : 5 * k + 5] += 1.2
        return Drawn(X, y)

    return draw


def of_groups(effect: float) -> Callable[[Rng, int, int], Drawn]:
    """Five samples of a subject, alike in all columns and of one label."""

    def draw(rng: Rng, n: int, p: int) -> Drawn:
        group = np.arange(n) // GROUP_SIZE
        subject = rng.standard_normal((n // GROUP_SIZE + 1, p))
        weights = np.zeros(p)
        weights[:N_EFFECTS] = effect
        y = (rng.random(len(subject)) < expit(subject @ weights)).astype(int)[group]
        return Drawn(subject[group] + 0.7 * rng.standard_normal((n, p)), y, groups=group)

    return draw


def unrelated(columns: Callable[[Rng, int, int], Array]) -> Callable[[Rng, int, int], Drawn]:
    def draw(rng: Rng, n: int, p: int) -> Drawn:
        X = columns(rng, n, p)
        return Drawn(X, rng.integers(0, 2, n), np.zeros(p))

    return draw


def probit(rng: Rng, n: int, p: int) -> Drawn:
    """Two hundred effects through another link, of columns that are correlated in blocks of ten."""
    blocks = rng.standard_normal((n, p // 10 + 1)).repeat(10, axis=1)[:, :p]
    X = np.sqrt(0.6) * blocks + np.sqrt(0.4) * rng.standard_normal((n, p))
    which = rng.choice(p, 200, replace=p < 200)
    score = X[:, which] @ rng.standard_normal(200)
    return Drawn(X, (1.5 * score / score.std() + rng.standard_normal(n) > 0).astype(int))


def dosages(rng: Rng, n: int, p: int) -> Array:
    """0, 1 and 2, of two populations with frequencies of their own."""
    frequency = np.clip(rng.uniform(0.1, 0.5, p) + 0.1 * rng.standard_normal((2, p)), 0.02, 0.98)
    return rng.binomial(2, frequency[rng.integers(0, 2, n)]).astype(float)


def measured_twice(rng: Rng, n: int, p: int) -> Array:
    """Columns in pairs that are one measurement with different noise."""
    once = rng.standard_normal((n, p // 2 + 1))
    return np.hstack([once, once])[:, :p] + 0.5 * rng.standard_normal((n, p))


DESIGNS = {
    "independent, logistic": Design(logistic(independent), right=True),
    "independent, class means": Design(class_means()),
    "polygenic": Design(logistic(independent, n_effects=None, effect=2.0)),
    "Toeplitz .5": Design(logistic(toeplitz(0.5))),
    "Toeplitz .7": Design(logistic(toeplitz(0.7))),
    "Toeplitz .9": Design(logistic(toeplitz(0.9))),
    "equicorrelated .5": Design(logistic(equicorrelated)),
    "ten factors": Design(logistic(factors)),
    "labels of a factor": Design(of_a_factor),
    "t3 tails": Design(logistic(student), right=True),
    "genotypes with LD": Design(logistic(genotypes)),
    "raw counts": Design(logistic(counts)),
    "log counts": Design(logistic(log_counts)),
    "10:90": Design(logistic(independent, intercept=-3.7), right=True),
    "10 % wrong": Design(logistic(independent, effect=2.0), right=True, flipped=0.1),
    "30 % wrong": Design(logistic(independent, effect=3.0), right=True, flipped=0.3),
    "Toeplitz .7, 10 % wrong": Design(logistic(toeplitz(0.7), effect=2.0), flipped=0.1),
    "nonlinear": Design(nonlinear),
    "null, independent": Design(unrelated(independent), null=True),
    "null, factors": Design(unrelated(factors), null=True),
    "null, Toeplitz .9": Design(unrelated(toeplitz(0.9)), null=True),
    "null, counts": Design(unrelated(counts), null=True),
    "null, groups": Design(of_groups(0.0), null=True, grouped=True),
    "four classes": Design(classes(independent)),
    "four classes, factors": Design(classes(factors)),
    "groups": Design(of_groups(1.0), grouped=True),
    "weights, all 2": Design(logistic(toeplitz(0.5)), weights="twos"),
    "weights, random": Design(logistic(toeplitz(0.5)), weights="random"),
    "weights, balanced": Design(logistic(toeplitz(0.5), intercept=-2.0), weights="balanced"),
    "null, weights 2": Design(unrelated(factors), null=True, weights="twos"),
    "words": Design(logistic(words)),
    "batches": Design(logistic(batches)),
    "unequal spread": Design(unequal_spread),
    "subtypes": Design(subtypes),
    # Made last, and run once, when leave-one-out was as it is.
    "probit of 200 in blocks": Design(probit),
    "dosages of two populations": Design(logistic(dosages, n_effects=10, effect=1.0)),
    "columns measured twice": Design(logistic(measured_twice, n_effects=3)),
    "null, dosages": Design(unrelated(dosages), null=True),
    # Likewise, when leave-one-out of several classes was.
    "six classes, equicorrelated": Design(classes(equicorrelated, (1 / 6,) * 6)),
    "60:30:10, Toeplitz .8": Design(classes(toeplitz(0.8), (0.6, 0.3, 0.1))),
}
BLIND = (
    "probit of 200 in blocks",
    "dosages of two populations",
    "columns measured twice",
    "null, dosages",
    "six classes, equicorrelated",
    "60:30:10, Toeplitz .8",
)


def drawn(name: str, run: int, n_rows: int, n_columns: int) -> Drawn:
    """The rows of a design, the same every time; wrong labels are in all of them."""
    design = DESIGNS[name]
    rng = np.random.default_rng([run, *name.encode()])
    found = design.draw(rng, n_rows, n_columns)
    if design.flipped:
        found = replace(found, y=np.where(rng.random(n_rows) < design.flipped, 1 - found.y, found.y))
    if design.weights:
        weight = {
            "twos": np.full(n_rows, 2.0),
            "random": rng.uniform(0.2, 3.0, n_rows),
            "balanced": (n_rows / 2.0 / np.bincount(found.y, minlength=2))[found.y],
        }[design.weights]
        found = replace(found, sample_weight=weight)
    return found
