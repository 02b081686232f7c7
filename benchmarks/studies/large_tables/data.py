"""Tables too large for exact covariances: pixels, correlated genes, and words that matter in several ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.ndimage import zoom
from sklearn.datasets import load_digits


class Table(NamedTuple):
    """Rows to train with and rows to test with; classes are numbered from 0."""

    X: Any
    y: NDArray[np.int_]
    X_test: Any
    y_test: NDArray[np.int_]


def digits(rng: np.random.Generator, share: float) -> Table:
    """Handwritten digits, enlarged to 28 x 28 pixels with a little noise; 30 % of them to test."""
    bunch = load_digits()
    order = rng.permutation(bunch.target.size)[: int(share * bunch.target.size)]
    images = np.array([zoom(image, 3.5, order=1).ravel() for image in bunch.images[order]])
    images += rng.normal(0, 0.5, images.shape)
    return _split(images, bunch.target[order], int(0.7 * order.size))


def genes(rng: np.random.Generator, share: float) -> Table:
    """Five classes that differ in the means of 60 of 20 000 genes, which 30 programmes correlate."""
    n_samples, n_genes, n_classes = int(800 * share), int(20_000 * share), 5
    y = rng.integers(n_classes, size=n_samples)
    loadings = rng.standard_normal((30, n_genes)) * (rng.random((30, n_genes)) < 0.2)
    means = np.zeros((n_classes, n_genes))
    means[:, rng.choice(n_genes, 60, replace=False)] = rng.normal(0, 0.5, (n_classes, 60))
    X = 0.6 * rng.standard_normal((n_samples, 30)) @ loadings + means[y]
    return _split(X + rng.standard_normal(X.shape), y, int(0.7 * n_samples))


def independent_words(rng: np.random.Generator, share: float, boost: float, n_own: int) -> Table:
    """Two classes, each of which uses words of its own more often; words are drawn independently."""
    n_documents, n_words = int(6000 * share), int(10_000 * share)
    frequency = np.tile(1.0 / np.arange(1, n_words + 1), (2, 1))
    for of_class in frequency:
        of_class[rng.choice(n_words, int(n_own * share), replace=False)] *= boost
    y = rng.integers(2, size=n_documents)
    return _split(_documents(rng, frequency, y, 80), y, n_documents // 2)


def topics(rng: np.random.Generator, share: float, active: float, n_classes: int) -> Table:
    """Documents of eight topics, which correlate words; a share of them has weights, per occurrence."""
    n_documents, n_words = int(6000 * share), int(8000 * share)
    frequency = np.exp(0.8 * rng.standard_normal((8, n_words))) / np.arange(1, n_words + 1)
    X = _documents(rng, frequency, rng.integers(8, size=n_documents), 60)
    weights = rng.standard_normal((n_words, n_classes)) * (rng.random((n_words, 1)) < active)
    scores = X @ weights
    scores = 6 * (scores - scores.mean(axis=0)) / scores.std()
    return _split(X, np.argmax(scores + rng.gumbel(size=scores.shape), axis=1), n_documents // 2)


TABLES: dict[str, Callable[[np.random.Generator, float], Table]] = {
    "digits, 10 classes": digits,
    "correlated genes, 5 classes": genes,
    "150 words a class, 2 classes": lambda rng, share: independent_words(rng, share, 4.0, 150),
    "1500 words a class, 2 classes": lambda rng, share: independent_words(rng, share, 1.5, 1500),
    "topics, 2 % of words, 6 classes": lambda rng, share: topics(rng, share, 0.02, 6),
    "topics, all words, 6 classes": lambda rng, share: topics(rng, share, 1.0, 6),
    "topics, all words, 2 classes": lambda rng, share: topics(rng, share, 1.0, 2),
}


def _documents(
    rng: np.random.Generator, frequency: NDArray[np.float64], which: NDArray[np.int_], length: int
) -> sp.csr_array:
    """Which words occur in documents of so many words, as rows of unit length."""
    cumulative = np.cumsum(frequency / frequency.sum(axis=1, keepdims=True), axis=1)
    words = [
        np.unique(np.searchsorted(cumulative[k], rng.random(length) * (1 - 1e-9))) for k in which.tolist()
    ]
    sizes = np.array([drawn.size for drawn in words])
    # Of 32 bits, which liblinear wants.
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    columns = np.concatenate(words).astype(np.int32)
    values = np.repeat(1.0 / np.sqrt(sizes), sizes)
    return sp.csr_array((values, columns, ends), shape=(which.size, frequency.shape[1]))


def _split(X: Any, y: NDArray[np.int_], n_train: int) -> Table:
    return Table(X[:n_train], y[:n_train], X[n_train:], y[n_train:])
