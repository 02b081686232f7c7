"""Every data set at hand, as it was published, and the splits that all methods share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.datasets import make_classification
from sklearn.model_selection import GroupShuffleSplit, StratifiedShuffleSplit

# Smallest first: samples times features.
NAMES = (
    "iris",
    "crabs",
    "fgl",
    "liver",
    "heart",
    "breast",
    "pima",
    "australian",
    "sonar",
    "contraceptive",
    "yeast",
    "colon",
    "brain_pomeroy42",
    "methylation_christensen",
    "breast_west",
    "haxby_slice",
    "p53_subramanian",
    "leukemia",
    "usps",
    "news_relathe",
    "rcv1_small",
)
# More features than samples.
WIDE = frozenset(NAMES[NAMES.index("colon") :]) - {"usps"}
FILES = tuple(f"{name}.npz" for name in NAMES)
TEST_SHARE = 0.3
# Tables of no more samples than this are split more often.
FEW_SAMPLES, SPLITS, SPLITS_OF_FEW = 100, 20, 50


class Data(NamedTuple):
    """A table, with groups of rows that must not be torn apart, if there are any."""

    name: str
    X: Any
    y: NDArray[Any]
    groups: NDArray[Any] | None = None

    @property
    def n_splits(self) -> int:
        return SPLITS_OF_FEW if len(self.y) <= FEW_SAMPLES else SPLITS

    def splits(self) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """70 % to train, class by class; where rows of a group are alike, 70 % of the groups."""
        kind = StratifiedShuffleSplit if self.groups is None else GroupShuffleSplit
        yield from kind(self.n_splits, test_size=TEST_SHARE, random_state=0).split(
            np.zeros((len(self.y), 1)), self.y, self.groups
        )


def load(folder: Path | None, name: str) -> Data:
    """From the folder; without one, made up, to see that everything runs."""
    if folder is None:
        X, y = make_classification(
            60, 12, n_informative=4, n_classes=3 if name == "iris" else 2, random_state=0
        )
        return Data(name, X, np.array(list("abc"))[y])
    with np.load(folder / f"{name}.npz") as stored:
        y = np.asarray(stored["y"])
        if "indptr" in stored:
            parts = (stored["data"].astype(np.float64), stored["indices"], stored["indptr"])
            return Data(name, sp.csr_matrix(parts, shape=tuple(stored["shape"])), y)
        X = stored["X"].astype(np.float64)
        if name == "haxby_slice":
            return _voxels(X, y, stored["run"])
    return Data(name, X, y)


def _voxels(X: NDArray[np.float64], y: NDArray[Any], run: NDArray[Any]) -> Data:
    """The eight objects, voxels of mean 0 and variance 1 within runs, split by whole runs."""
    scaled = X.copy()
    for one in np.unique(run):
        rows = run == one
        spread = X[rows].std(axis=0)
        scaled[rows] = (X[rows] - X[rows].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    object_shown = y != "rest"
    return Data("haxby_slice", scaled[object_shown], y[object_shown], run[object_shown])
