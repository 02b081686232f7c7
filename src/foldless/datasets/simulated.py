"""Simulated data with known truth: the features that matter, the labels that lie, the best error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr, ndtri

from foldless.beliefs import Array


@dataclass(frozen=True, eq=False)
class Simulated:
    """Data with their truth."""

    X: Array
    y: NDArray[np.int_]  # labels -1 and +1 as recorded
    weights: Array  # the weights of the best linear classifier
    active: NDArray[np.intp]  # features whose weight is not zero
    mislabelled: NDArray[np.intp]  # samples whose recorded label is wrong
    noise_var: float | None  # variance of a feature within a class, for class-means data

    def test_error(self, coef: Array, intercept: float = 0.0) -> float:
        """The exact error of a linear classifier on new, rightly labelled class-means data.

        A score x'c + b is N(y w'c + b, noise_var |c|²), and classes are equally frequent.
        """
        if self.noise_var is None:
            raise ValueError("The error has no closed form for logistic data; simulate test data instead.")
        coef = np.ravel(coef)
        norm = np.sqrt(self.noise_var) * np.linalg.norm(coef)
        if norm == 0:
            return 0.5
        signal = float(self.weights @ coef)
        return float(0.5 * (ndtr((-signal - intercept) / norm) + ndtr((-signal + intercept) / norm)))


def make_class_means(
    n_samples: int = 200,
    n_features: int = 10_000,
    n_active: int = 20,
    *,
    bayes_error: float = 0.05,
    mislabelled: float = 0.0,
    random_state: int | np.random.Generator | None = None,
) -> Simulated:
    """Two classes x | y ~ N(y w, v I) with w of `n_active` entries ±1 [Ziniel et al. 2015, section VI-A].

    v is such that the best classifier, sign(w'x), errs at `bayes_error`. Classes are of equal size. A
    share of the labels is flipped after the features are drawn.
    """
    rng = np.random.default_rng(random_state)
    weights = np.zeros(n_features)
    active = np.sort(rng.choice(n_features, n_active, replace=False))
    weights[active] = rng.choice([-1.0, 1.0], n_active)
    noise_var = n_active / float(ndtri(bayes_error)) ** 2
    y = rng.permutation(np.where(np.arange(n_samples) < n_samples // 2, -1, 1))
    X = rng.standard_normal((n_samples, n_features))
    X *= np.sqrt(noise_var)
    X[:, active] += y[:, np.newaxis] * weights[active]
    wrong = np.sort(rng.choice(n_samples, round(mislabelled * n_samples), replace=False))
    recorded = y.copy()
    recorded[wrong] *= -1
    return Simulated(X, recorded, weights, active, wrong, noise_var)


def make_logistic(
    n_samples: int = 300,
    n_features: int = 1000,
    n_active: int = 20,
    *,
    size: float = 1.0,
    correlation: float = 0.0,
    random_state: int | np.random.Generator | None = None,
) -> Simulated:
    """Labels from a logistic model with `n_active` weights ±`size`; columns of unit variance, AR(1)."""
    rng = np.random.default_rng(random_state)
    weights = np.zeros(n_features)
    active = np.sort(rng.choice(n_features, n_active, replace=False))
    weights[active] = size * rng.choice([-1.0, 1.0], n_active)
    X = rng.standard_normal((n_samples, n_features))
    for j in range(1, n_features if correlation else 0):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    y = np.where(rng.random(n_samples) < expit(X @ weights), 1, -1)
    return Simulated(X, y, weights, active, np.array([], dtype=np.intp), None)
