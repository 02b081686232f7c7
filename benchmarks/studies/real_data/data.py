"""The data sets of the study of real data, prepared for fitting, and how each protocol splits them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.model_selection import LeaveOneGroupOut, ShuffleSplit, StratifiedShuffleSplit

TABLES = ("colon", "leukemia", "sonar", "heart", "pima", "australian", "breast", "liver")
PAIRS = (("face", "house"), ("face", "cat"), ("cat", "scissors"))
FILES = tuple(f"{name}.npz" for name in (*TABLES, "haxby_slice", "rcv1_small"))
PROTOCOLS = {
    "a": "colon, random splits, 50 to train and 12 to test",
    "b": "colon, random splits, 42 to train and 20 to test",
    "c": "leukemia, its own split, 38 to train and 34 to test",
    "d": "haxby_slice, three pairs of objects, leave-one-run-out",
    "e": "eight tables, stratified splits, 70 % to train; rcv1_small, its own split",
}
# How often each protocol splits at random; c, d and rcv1_small have no chance in them.
REPETITIONS = {"a": 30, "b": 200, "e": 10}


class Data(NamedTuple):
    """A matrix as foldless and its rivals get it, labels -1 and +1, and what else is known."""

    name: str
    X: Any
    y: NDArray[np.int_]
    classes: tuple[str, str]
    runs: NDArray[np.int_] | None = None
    for_training: NDArray[np.bool_] | None = None
    feature_names: NDArray[np.str_] | None = None
    descriptions: NDArray[np.str_] | None = None


class Split(NamedTuple):
    protocol: str
    data: Data
    number: int
    train: NDArray[np.int_]
    test: NDArray[np.int_]


class Source:
    """The files of a folder or, without one, small simulated stand-ins of the same form."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @property
    def tables(self) -> tuple[str, ...]:
        # Stand-ins are to be quick, and most would be alike.
        return TABLES if self._folder else ("colon", "sonar")

    def table(self, name: str) -> Data:
        stored = self._stored(name)
        X = stored["X"].astype(np.float64)
        if name == "colon":
            X = np.log(X)
        if name == "leukemia":
            # The scanner's range, as everyone has used it since Golub et al.; below and above it is noise.
            X = np.log2(np.clip(X, 20.0, 16000.0))
        y, classes = signs(stored["y"])
        return Data(
            name,
            X,
            y,
            classes,
            for_training=stored["split"] == "train" if "split" in stored else None,
            feature_names=stored.get("feature_names"),
            descriptions=stored.get("feature_descriptions"),
        )

    def text(self) -> Data:
        stored = self._stored("rcv1_small")
        parts = (stored["data"], stored["indices"], stored["indptr"])
        X = sp.csr_matrix(parts, shape=stored["shape"]).astype(np.float64)
        return Data("rcv1_small", X, *signs(stored["y"]), for_training=stored["split"] == "train")

    def pairs(self) -> Iterator[Data]:
        """Two objects at a time, after each run has lost its drift and its scale."""
        stored = self._stored("haxby_slice")
        X, objects, run = stored["X"].astype(np.float64), stored["y"], stored["run"].astype(int)
        for number in np.unique(run):
            X[run == number] = detrended(X[run == number])
        for pair in PAIRS:
            shown = np.isin(objects, pair)
            y, classes = signs(objects[shown])
            yield Data("/".join(pair), X[shown], y, classes, runs=run[shown])

    def _stored(self, name: str) -> dict[str, Any]:
        if self._folder is None:
            return stand_in(name)
        with np.load(self._folder / f"{name}.npz") as stored:
            return dict(stored)


def splits(source: Source, protocol: str, repetitions: int) -> Iterator[Split]:
    if protocol in "ab":
        data = source.table("colon")
        # 12 or 20 of the 62, or the same share of a stand-in.
        n_test = round(len(data.y) * {"a": 12, "b": 20}[protocol] / 62)
        shuffle = ShuffleSplit(repetitions, test_size=n_test, random_state=0)
        yield from _numbered(protocol, data, shuffle.split(data.X))
    elif protocol == "c":
        yield _given(protocol, source.table("leukemia"))
    elif protocol == "d":
        for data in source.pairs():
            yield from _numbered(protocol, data, LeaveOneGroupOut().split(data.X, data.y, data.runs))
    else:
        for name in source.tables:
            data = source.table(name)
            shuffle = StratifiedShuffleSplit(repetitions, test_size=0.3, random_state=0)
            yield from _numbered(protocol, data, shuffle.split(data.X, data.y))
        yield _given(protocol, source.text())


def _numbered(protocol: str, data: Data, pieces: Any) -> Iterator[Split]:
    for number, (train, test) in enumerate(pieces):
        yield Split(protocol, data, number, train, test)


def _given(protocol: str, data: Data) -> Split:
    return Split(protocol, data, 0, np.flatnonzero(data.for_training), np.flatnonzero(~data.for_training))


def signs(labels: NDArray[Any]) -> tuple[NDArray[np.int_], tuple[str, str]]:
    low, high = np.unique(labels)
    return np.where(labels == high, 1, -1), (str(low), str(high))


def detrended(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Residuals of each column from a straight line in time, with standard deviation 1."""
    time = np.linspace(-1.0, 1.0, len(X))
    mean = X.mean(axis=0)
    residuals = X - mean - np.outer(time, time @ X) / (time @ time)
    spread = residuals.std(axis=0)
    # A voxel that never changes leaves rounding errors, which must not be blown up to a signal.
    return residuals / np.where(spread > 1e-9 * np.abs(mean), spread, 1.0)


def stand_in(name: str) -> dict[str, Any]:
    """Arrays like those of the file, but small and simulated: a few features shift with the class."""
    rng = np.random.default_rng(0)
    if name == "haxby_slice":
        objects = np.tile(["face", "house", "cat", "scissors", "rest"], 18)
        kinds, which = np.unique(objects, return_inverse=True)
        X = rng.standard_normal((90, 40)) + 0.7 * rng.standard_normal((len(kinds), 40))[which]
        return {"X": 400 + 10 * X, "y": objects, "run": np.repeat(np.arange(3), 30)}
    n_features = {"colon": 100, "leukemia": 120, "rcv1_small": 200}.get(name, 8)
    which = np.arange(60) % 2
    X = rng.standard_normal((60, n_features))
    X[:, :4] += 1.2 * which[:, np.newaxis]
    split = np.where(np.arange(60) < 40, "train", "test")
    if name == "rcv1_small":
        text = sp.csr_array(np.where(X > 1.0, X, 0.0))
        parts = {part: getattr(text, part) for part in ("data", "indices", "indptr", "shape")}
        return {**parts, "y": 2 * which - 1, "split": split}
    positive = {"X": np.exp2(8 + X), "y": np.where(which, "tumor", "normal")}
    if name == "colon":
        return positive
    names = np.array([f"gene {j}" for j in range(n_features)])
    if name == "leukemia":
        return {**positive, "split": split, "feature_names": names, "feature_descriptions": names}
    return {"X": X, "y": which}
