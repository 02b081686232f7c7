"""Real data of three to eight classes, and how they are split."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import LeaveOneGroupOut, StratifiedShuffleSplit

from benchmarks.studies.real_data.data import detrended

TABLES = ("fgl", "iris", "yeast", "contraceptive")
# The five and seven objects of Byrne's thesis, table 4.1, and all that were shown.
FIVE = ("cat", "house", "shoe", "face", "chair")
SEVEN = (*FIVE, "scissors", "bottle")
OBJECTS = {"haxby 5": FIVE, "haxby 7": SEVEN, "haxby 8": (*SEVEN, "scrambledpix")}
NAMES = (*TABLES, *OBJECTS)
FILES = tuple(f"{name}.npz" for name in (*TABLES, "haxby_slice"))
TEST_SHARE = 0.2


class Data(NamedTuple):
    """A matrix, the numbers of the classes from 0, and the runs of a scanner if there are any."""

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.int_]
    runs: NDArray[np.int_] | None = None


def load(name: str, folder: Path | None) -> Data:
    """From a folder with the files or, without one, a small simulated stand-in of the same form."""
    stored = _stored("haxby_slice" if name in OBJECTS else name, folder)
    X, labels = stored["X"].astype(np.float64), stored["y"]
    if name not in OBJECTS:
        return Data(name, X, np.unique(labels, return_inverse=True)[1])
    run = stored["run"].astype(int)
    for number in np.unique(run):
        X[run == number] = detrended(X[run == number])
    shown = np.isin(labels, OBJECTS[name])
    return Data(name, X[shown], np.unique(labels[shown], return_inverse=True)[1], run[shown])


def splits(data: Data, repetitions: int) -> Iterator[tuple[NDArray[np.int_], NDArray[np.int_]]]:
    """Rows to train and rows to test: each run left out once, or random rows with classes in proportion."""
    if data.runs is not None:
        yield from LeaveOneGroupOut().split(data.X, data.y, data.runs)
    else:
        shuffle = StratifiedShuffleSplit(repetitions, test_size=TEST_SHARE, random_state=0)
        yield from shuffle.split(data.X, data.y)


def _stored(name: str, folder: Path | None) -> dict[str, Any]:
    if folder is None:
        return stand_in(name)
    with np.load(folder / f"{name}.npz") as stored:
        return dict(stored)


def stand_in(name: str) -> dict[str, Any]:
    """Arrays like those of the file, but small and simulated: class means differ in a few features."""
    rng = np.random.default_rng(0)
    if name == "haxby_slice":
        objects = np.tile([*OBJECTS["haxby 8"], "rest"], 9)
        kinds, which = np.unique(objects, return_inverse=True)
        X = rng.standard_normal((objects.size, 12)) + 1.5 * rng.standard_normal((kinds.size, 12))[which]
        return {"X": 400 + 10 * X, "y": objects, "run": np.repeat(np.arange(3), objects.size // 3)}
    which = np.arange(75) % 3
    X = rng.standard_normal((75, 6))
    X[:, :3] += 2.0 * np.eye(3)[which]
    return {"X": X, "y": np.array(["a", "b", "c"])[which]}
