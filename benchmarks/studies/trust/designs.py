"""Simulated designs of the study of trust: weights from a spike-and-slab, labels from a logistic model.

The designs differ in the matrix. The model is right about weights and labels in all of them but "batch
effect", where labels also depend on the batch, which no column names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.special import expit, ndtri

Array = NDArray[np.float64]
SLAB_SD = 1.5
N_ACTIVE = 10.0  # on average


class Task(NamedTuple):
    """Samples to fit, fresh samples, and the truth, in the units of X."""

    X: Any
    y: NDArray[np.int_]  # -1 and +1
    X_test: Any
    y_test: NDArray[np.int_]
    weights: Array


class Matrix(NamedTuple):
    """Rows of a design, and what they say of labels beside their columns."""

    X: Any
    log_odds: Array | float = 0.0


def independent(rng: np.random.Generator, n_samples: int, n_features: int) -> Matrix:
    return Matrix(rng.standard_normal((n_samples, n_features)))


def blocks(rng: np.random.Generator, n_samples: int, n_features: int) -> Matrix:
    """Correlation 0.9 in blocks of 10."""
    common = rng.standard_normal((n_samples, -(-n_features // 10))).repeat(10, axis=1)[:, :n_features]
    return Matrix(np.sqrt(0.9) * common + np.sqrt(0.1) * rng.standard_normal((n_samples, n_features)))


def neighbours(rng: np.random.Generator, n_samples: int, n_features: int, correlation: float = 0.8) -> Matrix:
    """AR(1) columns."""
    X = rng.standard_normal((n_samples, n_features))
    for j in range(1, n_features):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    return Matrix(X)


def genotypes(rng: np.random.Generator, n_samples: int, n_features: int) -> Matrix:
    """Counts 0, 1, 2 of an allele: two haplotypes, each a latent AR(0.9) cut at the allele's frequency."""
    cut = ndtri(rng.uniform(0.1, 0.5, n_features))
    latent = (neighbours(rng, n_samples, n_features, 0.9).X for _ in range(2))
    mother, father = ((haplotype < cut).astype(float) for haplotype in latent)
    return Matrix(mother + father)


def smooth_field(rng: np.random.Generator, n_samples: int, n_features: int) -> Matrix:
    """Voxels of a square slice: white noise, smoothed over about two voxels, and a little not smoothed."""
    side = int(np.ceil(np.sqrt(n_features)))
    noise = rng.standard_normal((n_samples, side, side))
    smooth = gaussian_filter(noise, (0, 1.5, 1.5), mode="wrap").reshape(n_samples, -1)[:, :n_features]
    return Matrix(smooth / smooth.std() + 0.3 * rng.standard_normal((n_samples, n_features)))


def text(rng: np.random.Generator, n_samples: int, n_features: int) -> Matrix:
    """tf-idf of documents of about 60 words, from five topics over words with Zipf frequencies; sparse."""
    zipf = 1.0 / np.arange(3, n_features + 3)
    topics = zipf * rng.gamma(0.3, size=(5, n_features))
    topics /= topics.sum(axis=1, keepdims=True)
    mixture = rng.dirichlet(np.full(5, 0.3), n_samples)
    counts = rng.poisson(60 * (0.5 * mixture @ topics + 0.5 * zipf / zipf.sum()))
    seen = np.maximum((counts > 0).sum(axis=0), 1)
    weighted = np.log1p(counts) * np.log(n_samples / seen)
    length = np.linalg.norm(weighted, axis=1, keepdims=True)
    return Matrix(sp.csr_array(weighted / np.where(length > 0, length, 1.0)))


def batch_effect(rng: np.random.Generator, n_samples: int, n_features: int) -> Matrix:
    """Four batches, each with an offset of its own in every column and log-odds of its own."""
    batch = rng.integers(0, 4, n_samples)
    X = rng.standard_normal((n_samples, n_features)) + rng.standard_normal((4, n_features))[batch]
    return Matrix(X, np.array([-2.0, -1.0, 1.0, 2.0])[batch])


IN_DOMAIN = "in domain (independent)"
DESIGNS: dict[str, Callable[[np.random.Generator, int, int], Matrix]] = {
    IN_DOMAIN: independent,
    "block 0.9": blocks,
    "AR(0.8)": neighbours,
    "LD-like genotypes": genotypes,
    "smooth field": smooth_field,
    "tf-idf text": text,
    "batch effect": batch_effect,
}


def task(design: str, run: int, n_samples: int, n_features: int, n_test: int) -> Task:
    """One draw of a design; weights are per standard deviation of their column."""
    rng = np.random.default_rng([list(DESIGNS).index(design), run])
    X, log_odds = DESIGNS[design](rng, n_samples + n_test, n_features)
    dense = X.toarray() if sp.issparse(X) else X
    spread = dense.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    active = rng.random(n_features) < N_ACTIVE / n_features
    weights = np.where(active, SLAB_SD * rng.standard_normal(n_features), 0.0) / spread
    scores = (dense - dense.mean(axis=0)) @ weights + log_odds
    y = np.where(rng.random(scores.size) < expit(scores), 1, -1)
    return Task(X[:n_samples], y[:n_samples], X[n_samples:], y[n_samples:], weights)


def three_factors(rng: np.random.Generator, n_samples: int, n_features: int) -> tuple[Array, Any]:
    """Columns made of three factors, the first of which decides the label."""
    factors = rng.standard_normal((n_samples, 3))
    X = factors @ rng.standard_normal((3, n_features)) + rng.standard_normal((n_samples, n_features))
    return X, np.where(rng.random(n_samples) < expit(3 * factors[:, 0]), 1, -1)
