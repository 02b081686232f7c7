"""Simulated documents of many classes: a Zipf vocabulary, of which each class likes a few words better."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

# How many words a class has of its own, how much more often it uses them, and where in the vocabulary they
# are: neither among the words that everybody uses nor among those that occur once.
TOPIC_WORDS, TOPIC_BOOST, TOPIC_RANKS = 150, 4.0, (50, 20_000)
# Lengths of documents are log-normal.
MEDIAN_LENGTH, LENGTH_SPREAD = 80.0, 0.6


@dataclass(frozen=True, eq=False)
class Documents:
    """Rows of unit length, tf-idf, to train and to test; classes are numbered from 0."""

    X: sp.csr_matrix
    y: NDArray[np.int_]
    X_test: sp.csr_matrix
    y_test: NDArray[np.int_]
    bayes_error: float  # of the true word frequencies, on the test documents


def make_documents(
    n_train: int, n_test: int, n_words: int, n_classes: int, seed: int, dtype: type = np.float64
) -> Documents:
    """Documents of words drawn independently, given the class."""
    rng = np.random.default_rng(seed)
    frequency = class_frequencies(rng, n_words, n_classes)
    y = rng.permutation(np.arange(n_train + n_test) % n_classes)
    counts = drawn_counts(rng, frequency, y)
    train, test = slice(n_train), slice(n_train, None)
    # The best guess: the class whose frequencies make the document's words most likely.
    likely = np.argmax(counts[test] @ np.log(frequency).T, axis=1)
    document_frequency = np.bincount(counts[train].indices, minlength=n_words)
    inverse = np.log((1.0 + n_train) / (1.0 + document_frequency)) + 1.0
    scaled = counts.astype(dtype)
    scaled.data = (1.0 + np.log(scaled.data)) * inverse[scaled.indices].astype(dtype)
    lengths = np.sqrt(np.asarray(scaled.multiply(scaled).sum(axis=1)).ravel())
    scaled.data /= np.repeat(lengths, np.diff(scaled.indptr)).astype(dtype)
    return Documents(
        scaled[train],
        y[train],
        scaled[test],
        y[test],
        float(np.mean(likely != y[test])),
    )


def class_frequencies(rng: np.random.Generator, n_words: int, n_classes: int) -> NDArray[np.float64]:
    """(classes, words): 1/rank, times the boost where a word is of the class's own."""
    weight = np.tile(1.0 / np.arange(1, n_words + 1), (n_classes, 1))
    low, high = (min(rank, n_words) for rank in TOPIC_RANKS)
    for of_class in weight:
        # Evenly on the logarithmic scale of ranks, as frequent words are few.
        ranks = np.exp(rng.uniform(np.log(low), np.log(high), TOPIC_WORDS)).astype(int) - 1
        of_class[np.unique(ranks)] *= TOPIC_BOOST
    return weight / weight.sum(axis=1, keepdims=True)


def drawn_counts(
    rng: np.random.Generator, frequency: NDArray[np.float64], y: NDArray[np.int_]
) -> sp.csr_matrix:
    """How often each word occurs in each document."""
    lengths = np.maximum(rng.lognormal(np.log(MEDIAN_LENGTH), LENGTH_SPREAD, y.size).astype(int), 1)
    documents = np.repeat(np.arange(y.size), lengths)
    words = np.empty(documents.size, dtype=np.int64)
    for k, of_class in enumerate(frequency):
        own = y[documents] == k
        cumulative = np.cumsum(of_class)
        words[own] = np.searchsorted(cumulative / cumulative[-1], rng.random(int(own.sum())), side="right")
    counts = sp.coo_matrix((np.ones(words.size), (documents, words)), shape=(y.size, frequency.shape[1]))
    return counts.tocsr()
