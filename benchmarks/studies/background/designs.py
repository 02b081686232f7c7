"""Correlated matrices, real and simulated, with labels of a few features that are known.

A run of a design has 3, 6 or 12 true features, and scores of standard deviation 2 or 3; every six runs have
each of these once; runs of null designs have none. True effects are of one size with random signs in half
of the runs, and normal in the other half, where some of them are too small for anyone to find.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.studies.real_data.data import Source
from benchmarks.studies.trust import designs as trust

Array = NDArray[np.float64]
REAL = ("colon", "leukemia", "breast_west", "p53_subramanian", "methylation_christensen")
FILES = tuple(f"{name}.npz" for name in REAL)
SETTINGS = tuple(itertools.product((3, 6, 12), (2.0, 3.0)))
N_SAMPLES, N_FEATURES = 150, 1500
# Labels of nearly one class alone are drawn again.
RAREST_CLASS, MOST_DRAWS = 0.15, 100


class Task(NamedTuple):
    """A table, labels -1 and +1, and which features have an effect."""

    X: Array
    y: NDArray[np.int_]
    active: NDArray[np.bool_]
    score_sd: float
    effects: str


def toeplitz(correlation: float) -> Callable[[np.random.Generator, int, int], Array]:
    return lambda rng, n, p: trust.neighbours(rng, n, p, correlation).X


def equicorrelated(rng: np.random.Generator, n_samples: int, n_features: int) -> Array:
    """Any two columns have correlation 0.5."""
    shared = rng.standard_normal((n_samples, 1))
    return np.asarray(np.sqrt(0.5) * (shared + rng.standard_normal((n_samples, n_features))))


def ten_factors(rng: np.random.Generator, n_samples: int, n_features: int) -> Array:
    """Ten factors, half of the variance."""
    loadings = rng.standard_normal((10, n_features)) / np.sqrt(10)
    return np.asarray(
        rng.standard_normal((n_samples, 10)) @ loadings + rng.standard_normal((n_samples, n_features))
    )


def counts(rng: np.random.Generator, n_samples: int, n_features: int) -> Array:
    """Poisson counts, most of them small: depths differ between samples, and five factors correlate rates."""
    depth = 0.4 * rng.standard_normal((n_samples, 1))
    programmes = rng.standard_normal((n_samples, 5)) @ rng.standard_normal((5, n_features)) * 0.4 / np.sqrt(5)
    return rng.poisson(np.exp(rng.normal(0.5, 1.0, n_features) + depth + programmes)).astype(np.float64)


SIMULATED: dict[str, Callable[[np.random.Generator, int, int], Array]] = {
    **{f"Toeplitz {correlation:g}": toeplitz(correlation) for correlation in (0.5, 0.7, 0.9, 0.95)},
    "equicorrelated 0.5": equicorrelated,
    "10 factors": ten_factors,
    "blocks 0.9": lambda rng, n, p: trust.blocks(rng, n, p).X,
    "LD genotypes": lambda rng, n, p: trust.genotypes(rng, n, p).X,
    "counts": counts,
}
DESIGNS = (*REAL, *SIMULATED)
# The same matrices with labels that have nothing to do with them.
NULL = tuple(f"{name}, null" for name in (*REAL, "Toeplitz 0.9", "10 factors", "blocks 0.9"))


def task(
    design: str, run: int, folder: Path | None, share: float = 1.0, shape: tuple[int, int] | None = None
) -> Task:
    """One draw, the same for every method; without a folder real matrices are simulated by ten factors.

    Simulated ones have this shape, or that share of the study's sizes.
    """
    shape = shape or (max(int(share * N_SAMPLES), 50), int(share * N_FEATURES))
    # A number of its own, so that a design added later changes no other.
    rng = np.random.default_rng([zlib.crc32(design.encode()), run])
    design, null = design.removesuffix(", null"), design in NULL
    if design in REAL and folder is not None:
        X = real_matrix(design, folder)
    else:
        X = SIMULATED.get(design, ten_factors)(rng, *shape)
    # Not the standard deviation, which rounding leaves above zero for constant columns.
    X = X[:, np.ptp(X, axis=0) > 0]
    if null:
        y = rng.permutation(np.where(np.arange(X.shape[0]) < rng.uniform(0.3, 0.7) * X.shape[0], 1, -1))
        return Task(X, y, np.zeros(X.shape[1], dtype=bool), 0.0, "none")
    n_active, score_sd = SETTINGS[run % len(SETTINGS)]
    # Both kinds occur among the first six runs, and every setting has both in twelve.
    effects = ("equal", "normal")[(run + run // len(SETTINGS)) % 2]
    chosen = rng.choice(X.shape[1], n_active, replace=False)
    weights = rng.choice([-1.0, 1.0], n_active) if effects == "equal" else rng.standard_normal(n_active)
    columns = X[:, chosen]
    scores = (columns - columns.mean(axis=0)) / columns.std(axis=0) @ weights
    chance = expit(score_sd * scores / scores.std())
    active = np.zeros(X.shape[1], dtype=bool)
    active[chosen] = True
    for _ in range(MOST_DRAWS):
        y = np.where(rng.random(chance.size) < chance, 1, -1)
        if min(np.mean(y == 1), np.mean(y == -1)) >= RAREST_CLASS:
            return Task(X, y, active, score_sd, effects)
    raise RuntimeError(f"{design}, run {run}: no draw of labels has both classes")


def real_matrix(name: str, folder: Path) -> Array:
    """As the study of real data prepares it: logarithms of colon and leukemia; the labels are not used."""
    if name == "methylation_christensen":
        with np.load(folder / f"{name}.npz") as stored:
            return stored["X"].astype(np.float64)
    return np.asarray(Source(folder).table(name).X, dtype=np.float64)
