"""Classes with sparse orthogonal means [Byrne's thesis, sections 1.3 and 4.1], their best error known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import qmc

Array = NDArray[np.float64]
N_CLASSES, BAYES_ERROR = 4, 0.1
# Test rows are drawn and judged a few megabytes at a time.
BATCH_ELEMENTS = 10_000_000
# Points of a low-discrepancy sequence in the space of scores, as a power of two.
SCORE_POINTS = 18


@dataclass(frozen=True, eq=False)
class OrthogonalMeans:
    """Samples x | y ~ N(mean_y, I) of classes of equal size, numbered from 0."""

    X: Array
    y: NDArray[np.int_]
    active: NDArray[np.intp]  # features in which the means differ
    active_means: Array  # (D, K): what the means are there
    seed: int

    def linear_error(self, coef: Array, intercept: Array) -> float:
        """The error of the largest of the scores x'c_k + b_k on new samples, exact to about 1e-4.

        Scores of a class are Gaussian in D dimensions, however many features there are: their means are
        coef mean_y + intercept, and their covariance is coef coef'.
        """
        values, vectors = np.linalg.eigh(coef @ coef.T)
        n_classes = len(coef)
        points = qmc.MultivariateNormalQMC(np.zeros(n_classes), rng=0).random(2**SCORE_POINTS)
        noise = points @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
        centres = self.active_means @ coef[:, self.active].T + intercept
        wrong = [np.mean(np.argmax(centre + noise, axis=1) != k) for k, centre in enumerate(centres)]
        return float(np.mean(wrong))

    def test_error(self, model: Any, n_test: int) -> float:
        """The error of ``model.predict``, which may average models and so be no linear rule.

        It differs from the linear rule of ``coef_`` on few new samples, so few tell by how much.
        """
        difference, count = 0, 0
        for X, y in self._new(n_test):
            linear = np.argmax(X @ model.coef_.T + model.intercept_, axis=1)
            difference += int(np.sum(model.predict(X) != y)) - int(np.sum(linear != y))
            count += y.size
        return self.linear_error(model.coef_, model.intercept_) + difference / count

    def _new(self, n_test: int) -> Iterator[tuple[Array, NDArray[np.int_]]]:
        rng = np.random.default_rng([self.seed, 1])
        n_features = self.X.shape[1]
        rows = max(BATCH_ELEMENTS // n_features, 1)
        for start in range(0, n_test, rows):
            y = rng.integers(len(self.active_means), size=min(rows, n_test - start))
            # Half the time to draw; the classifiers see the same precision as in training.
            X = rng.standard_normal((y.size, n_features), dtype=np.float32).astype(np.float64)
            X[:, self.active] += self.active_means[y]
            yield X, y


def make_orthogonal_means(
    n_samples: int,
    n_features: int,
    n_active: int,
    seed: int,
    n_classes: int = N_CLASSES,
    bayes_error: float = BAYES_ERROR,
) -> OrthogonalMeans:
    """Means of equal length with a common support of `n_active` features, as far apart as the error asks."""
    rng = np.random.default_rng([seed, 0])
    # Rows of a random rotation, as the thesis has it: from the singular value decomposition of noise.
    rotation = np.linalg.svd(rng.standard_normal((n_active, n_active)))[0]
    length = brentq(lambda c: bayes_error_of(c, n_classes) - bayes_error, 0.0, 20.0)
    active = np.sort(rng.choice(n_features, n_active, replace=False))
    means = length * rotation[:n_classes]
    y = rng.permutation(np.arange(n_samples) % n_classes)
    X = rng.standard_normal((n_samples, n_features))
    X[:, active] += means[y]
    return OrthogonalMeans(X, y, active, means, seed)


def bayes_error_of(length: float, n_classes: int) -> float:
    """The least error of means of this length in units of the noise [thesis, eq. 1.27].

    1 - E Φ(z)^(D-1) for z ~ N(length, 1): the own score must beat D - 1 independent ones.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    return float(1.0 - weights @ ndtr(nodes + length) ** (n_classes - 1) / weights.sum())
