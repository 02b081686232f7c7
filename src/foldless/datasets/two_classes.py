"""Studies as they are planned: two classes, few markers of a stated effect, and features of any spectrum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct, idct
from scipy.special import expit

from foldless.beliefs import Array


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
