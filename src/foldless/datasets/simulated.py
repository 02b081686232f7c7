"""Simulated data with known truth: the features that matter, the labels that lie, the best error.

`TwoClasses` are studies as they are planned: few markers of a stated effect, and features of any spectrum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct, idct
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


@dataclass(frozen=True, eq=False)
class TwoClasses:
    """A population of which samples can be drawn.

    With ``class_means`` a class comes first, and x | y ~ N(y Σw/2, Σ); else features do, x ~ N(0, Σ), and
    log-odds are w'x + intercept. Σ has the eigenvalues given, in directions as good as random.
    """

    weights: Array
    balance: float
    intercept: float
    mislabelled: float
    class_means: bool
    roots: Array | None  # square roots of the eigenvalues; None for independent features
    signs: Array

    def draw(
        self, n_samples: int, rng: np.random.Generator
    ) -> tuple[Array, NDArray[np.int_], NDArray[np.int_]]:
        """Features, recorded labels and true labels; class means in the stated proportion."""
        X = self._noise(n_samples, rng)
        if self.class_means:
            n_second = round(self.balance * n_samples)
            y = rng.permutation(np.where(np.arange(n_samples) < n_second, 1, -1))
            leaning = self.weights / 2 if self.roots is None else self._covariance_times(self.weights / 2)
            moved = np.flatnonzero(leaning)
            X[:, moved] += y[:, np.newaxis] * leaning[moved]
        else:
            y = np.where(rng.random(n_samples) < expit(X @ self.weights + self.intercept), 1, -1)
        recorded = y.copy()
        wrong = rng.choice(n_samples, round(self.mislabelled * n_samples), replace=False)
        recorded[wrong] *= -1
        return X, recorded, y

    # Σ = D Cᵀ Λ C D with C the cosine transform and D random signs: no matrix of features x features.

    def _noise(self, n_samples: int, rng: np.random.Generator) -> Array:
        X = rng.standard_normal((n_samples, self.weights.size))
        if self.roots is None:
            return X
        X *= self.roots
        return np.asarray(idct(X, axis=1, norm="ortho") * self.signs)

    def _covariance_times(self, vector: Array) -> Array:
        assert self.roots is not None
        turned = dct(vector * self.signs, norm="ortho") * self.roots**2
        return np.asarray(idct(turned, norm="ortho") * self.signs)


def make_two_classes(
    n_features: int,
    n_markers: int,
    effect: float,
    *,
    normal_sizes: bool = False,
    balance: float = 0.5,
    intercept: float = 0.0,
    mislabelled: float = 0.0,
    class_means: bool = True,
    eigenvalues: Array | None = None,
    random_state: int | np.random.Generator | None = None,
) -> TwoClasses:
    """A population with `n_markers` weights of ±`effect`, or normal ones of that root mean square.

    `eigenvalues`, one for each feature, are those of the features' covariance, in any order.
    """
    rng = np.random.default_rng(random_state)
    weights = np.zeros(n_features)
    active = rng.choice(n_features, n_markers, replace=False)
    sizes = rng.standard_normal(n_markers) if normal_sizes else rng.choice([-1.0, 1.0], n_markers)
    weights[active] = effect * sizes
    roots = None
    if eigenvalues is not None:
        if np.shape(eigenvalues) != (n_features,):
            raise ValueError(
                f"eigenvalues must be one for each of the {n_features} features; got shape "
                f"{np.shape(eigenvalues)}."
            )
        # In random order: neighbours in the cosine transform would be smooth in the features.
        roots = np.sqrt(rng.permutation(np.asarray(eigenvalues, dtype=float)))
    signs = rng.choice([-1.0, 1.0], n_features)
    return TwoClasses(weights, balance, intercept, mislabelled, class_means, roots, signs)
