"""Tables of every shape, real or simulated, and what a tuned fit may cost on each.

Without a folder real tables are small simulated stand-ins, which show that everything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.ndimage import zoom
from scipy.special import expit
from sklearn.datasets import load_digits

from benchmarks.studies.large_tables.data import _documents
from benchmarks.studies.many_classes import data as many_data
from benchmarks.studies.real_data.data import Source


class Bar(NamedTuple):
    """CPU time of a tuned fit, as a share of the faster cross-validated rival; seconds are always granted."""

    kind: str
    ratio: float
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.ratio:g}" + (f" or {self.seconds:g} s" if self.seconds else "")

    def met(self, ours: float, rival: float) -> bool:
        return ours <= max(self.ratio * rival, self.seconds)


WIDE = Bar("dense and wide", 0.5)
TEXT = Bar("text", 2.0)
LONG = Bar("more samples than features", 5.0, 2.0)
MANY = Bar("many classes", 1.0)


class Table(NamedTuple):
    """How a table is made, from the folder of real data and the share of its size, and its bar."""

    bar: Bar
    make: Callable[[Path | None, float], tuple[Any, NDArray[Any]]]


def two_classes(name: str) -> Callable[..., tuple[Any, NDArray[Any]]]:
    """As the study of real data prepares it: logarithms of colon and leukemia, all others as published."""

    def make(folder: Path | None, _: float) -> tuple[Any, NDArray[Any]]:
        data = Source(folder).table(name)
        return data.X, data.y

    return make


def as_published(name: str) -> Callable[..., tuple[Any, NDArray[Any]]]:
    def make(folder: Path | None, _: float) -> tuple[Any, NDArray[Any]]:
        stored = many_data._stored(name, folder)
        return stored["X"].astype(np.float64), np.unique(stored["y"], return_inverse=True)[1]

    return make


def haxby(name: str) -> Callable[..., tuple[Any, NDArray[Any]]]:
    def make(folder: Path | None, _: float) -> tuple[Any, NDArray[Any]]:
        data = many_data.load(name, folder)
        return data.X, data.y

    return make


def words_on_file(name: str) -> Callable[..., tuple[Any, NDArray[Any]]]:
    def make(folder: Path | None, share: float) -> tuple[Any, NDArray[Any]]:
        if folder is None:
            return words(210, 2000)(folder, share)
        with np.load(folder / f"{name}.npz") as stored:
            parts = (stored["data"], stored["indices"], stored["indptr"])
            X = sp.csr_matrix(parts, shape=stored["shape"]).astype(np.float64)
            return X, stored["y"]

    return make


def factor_genes(n_samples: int, n_features: int) -> Callable[..., tuple[Any, NDArray[Any]]]:
    """Genes that ten factors correlate, half of their variance; ten of them decide the label."""

    def make(_: Path | None, share: float) -> tuple[Any, NDArray[Any]]:
        n, p = max(int(share * n_samples), 60), int(share * n_features)
        rng = np.random.default_rng(n_features + n_samples)
        loadings = rng.standard_normal((10, p)) / np.sqrt(10)
        X = rng.standard_normal((n, 10)) @ loadings + rng.standard_normal((n, p))
        scores = X[:, rng.choice(p, 10, replace=False)] @ rng.standard_normal(10)
        return X, np.where(rng.random(n) < expit(3 * scores / scores.std()), 1, -1)

    return make


def words(n_documents: int, n_words: int) -> Callable[..., tuple[Any, NDArray[Any]]]:
    """Documents of 150 words of Zipf's law, of unit length; classes use words of their own more often."""

    def make(_: Path | None, share: float) -> tuple[Any, NDArray[Any]]:
        n, p = max(int(share * n_documents), 60), int(share * n_words)
        rng = np.random.default_rng(0)
        frequency = np.tile(1.0 / np.arange(1, p + 1), (2, 1))
        for of_class in frequency:
            of_class[rng.choice(p, p // 50, replace=False)] *= 5.0
        y = rng.integers(2, size=n)
        return _documents(rng, frequency, y, 150), y

    return make


def topics(n_documents: int, n_words: int) -> Callable[..., tuple[Any, NDArray[Any]]]:
    """Documents of 150 words of one of eight topics, which correlate words as real text does.

    Half of the topics are one class, and one label in twenty is wrong.
    """

    def make(_: Path | None, share: float) -> tuple[Any, NDArray[Any]]:
        n, p = max(int(share * n_documents), 60), int(share * n_words)
        rng = np.random.default_rng(0)
        frequency = np.exp(2.0 * rng.standard_normal((8, p))) / np.arange(1, p + 1)
        topic = rng.integers(8, size=n)
        y = (topic + (rng.random(n) < 0.05)) % 2
        return _documents(rng, frequency, topic, 150), y

    return make


def pixels(n_samples: int, n_classes: int) -> Callable[..., tuple[Any, NDArray[Any]]]:
    """Handwritten digits of scikit-learn, drawn with return, enlarged to 28 x 28, each with noise of its own.

    For two classes, odd digits against even ones.
    """

    def make(_: Path | None, share: float) -> tuple[Any, NDArray[Any]]:
        bunch, rng = load_digits(), np.random.default_rng(0)
        drawn = rng.integers(bunch.target.size, size=max(int(share * n_samples), 200))
        images = np.array([zoom(image, 3.5, order=1).ravel() for image in bunch.images])[drawn]
        return images + rng.normal(0, 2.0, images.shape), bunch.target[drawn] % n_classes

    return make


def counts(n_documents: int, n_words: int, n_classes: int) -> Callable[..., tuple[Any, NDArray[Any]]]:
    """Counts of words in documents of about 60, CSR; a class has its own frequencies of all words."""

    def make(_: Path | None, share: float) -> tuple[Any, NDArray[Any]]:
        n, p = max(int(share * n_documents), 300), max(int(share * n_words), 50)
        rng = np.random.default_rng(0)
        frequency = np.exp(0.6 * rng.standard_normal((n_classes, p))) / np.arange(3, p + 3)
        frequency /= frequency.sum(axis=1, keepdims=True)
        y = rng.integers(n_classes, size=n)
        length = rng.lognormal(np.log(60.0), 0.7, size=(n, 1))
        blocks = [rng.poisson(length[rows] * frequency[y[rows]]) for rows in np.array_split(np.arange(n), 20)]
        X = sp.vstack([sp.csr_array(block.astype(np.float64)) for block in blocks], format="csr")
        return X, y

    return make


TABLES: dict[str, Table] = {
    "colon": Table(WIDE, two_classes("colon")),
    "leukemia": Table(WIDE, two_classes("leukemia")),
    "breast_west": Table(WIDE, two_classes("breast_west")),
    "p53_subramanian": Table(WIDE, two_classes("p53_subramanian")),
    "genes 120 x 12 000": Table(WIDE, factor_genes(120, 12_000)),
    "genes 300 x 20 000": Table(WIDE, factor_genes(300, 20_000)),
    "genes 1000 x 20 000": Table(WIDE, factor_genes(1000, 20_000)),
    "rcv1_small": Table(TEXT, words_on_file("rcv1_small")),
    "news_relathe": Table(TEXT, words_on_file("news_relathe")),
    "words 210 x 20 000": Table(TEXT, words(210, 20_000)),
    "topics 210 x 20 000": Table(TEXT, topics(210, 20_000)),
    "usps": Table(LONG, as_published("usps")),
    "pixels 3500 x 784, 2 classes": Table(LONG, pixels(3500, 2)),
    "pixels 3500 x 784, 10 classes": Table(LONG, pixels(3500, 10)),
    "counts 13 000 x 1000, 20 classes": Table(LONG, counts(13_000, 1000, 20)),
    "pima": Table(LONG, two_classes("pima")),
    "heart": Table(LONG, two_classes("heart")),
    "australian": Table(LONG, two_classes("australian")),
    "breast": Table(LONG, two_classes("breast")),
    "liver": Table(LONG, two_classes("liver")),
    "sonar": Table(LONG, two_classes("sonar")),
    "contraceptive": Table(LONG, as_published("contraceptive")),
    "brain_pomeroy42": Table(MANY, as_published("brain_pomeroy42")),
    "methylation_christensen": Table(MANY, as_published("methylation_christensen")),
    "haxby 5": Table(MANY, haxby("haxby 5")),
    "haxby 7": Table(MANY, haxby("haxby 7")),
    "haxby 8": Table(MANY, haxby("haxby 8")),
}
