"""Who is compared: each method fits a table and says how sure it is of every feature, and which it selects.

- sparsevb: Ray and Szabó's variational spike-and-slab logistic regression (pip install sparsevb, a port of
  R's package), standardised columns and an intercept. Its defaults take the prior of the inclusion rate from
  a cross-validated lasso of scikit-learn, tuned by accuracy, where R's package takes the sparser one within a
  standard error: some of them keep hundreds of features, and all others then have an inclusion probability of
  0.1 to 0.7. So it is also run with the prior of the paper's theory, Beta(1, p).
- knockoffs: knockpy's Gaussian knockoffs of a Ledoit-Wolf covariance, and coefficients of a cross-validated
  lasso (pip install knockpy, which needs a C compiler). Their threshold, knockoff+, selects at least 1/rate
  features or none: ten at a rate of 0.1, five at 0.2.
- susieR: the Gaussian "sum of single effects" on labels -1 and +1, twenty effects (R, package susieR).
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Groups = list[tuple[NDArray[np.intp], float]]
FOLDLESS = "foldless"
# Knockoffs need a p x p covariance and its factors: minutes beyond this.
MOST_FOR_KNOCKOFFS = 2500
N_SINGLE_EFFECTS = 20
SUSIE = Path(__file__).with_name("susie.R")


class Found(NamedTuple):
    """What a method said of the features."""

    score: Array  # the larger, the surer
    probability: Array | None  # that a feature has an effect, if the method gives one
    support: Callable[[float], NDArray[np.bool_]]  # the features selected at a false discovery rate
    settled: bool | None = None  # None: the method does not say
    outcome: str = ""
    cpu_seconds: float | None = None  # if it ran in a process of its own
    groups: Groups | None = None  # features and the probability that one of them has an effect, of each
    # How many standard errors the log loss of left-out labels is below that of class frequencies.
    gain: float | None = None


def by_probability(probability: Array, **more: Any) -> Found:
    """Selected as foldless does: as many as keep the mean chance of a mistake within the rate."""
    from foldless.selection import select

    return Found(probability, probability, lambda fdr: select(probability, fdr), **more)


def foldless(X: Array, y: NDArray[np.int_]) -> Found:
    from foldless import SparseClassifier

    model = SparseClassifier().fit(X, y)
    probability = np.asarray(model.inclusion_probability_, dtype=np.float64)
    outcome = model.outcome_
    return Found(
        probability,
        probability,
        lambda fdr: model.get_support(fdr=fdr),
        outcome.trustworthy,
        str(outcome),
        groups=[(group.features, group.probability) for group in model.groups_],
        gain=gain_over_frequencies(np.asarray(model.loo_proba_, dtype=np.float64), y),
    )


def gain_over_frequencies(loo_proba: Array, y: NDArray[np.int_]) -> float:
    """In standard errors; class frequencies are those of all other samples."""
    own = loo_proba[np.arange(y.size), (y > 0).astype(int)]
    same = np.array([np.sum(y == label) for label in y])
    frequency = np.maximum(same - 1, 0.5) / (y.size - 1)
    gain = np.log(np.maximum(own, 1e-12)) - np.log(frequency)
    return float(gain.mean() / (gain.std(ddof=1) / np.sqrt(y.size)))


def sparsevb(X: Array, y: NDArray[np.int_], **prior: float) -> Found:
    from sparsevb import svb_fit_logit

    np.random.seed(0)  # noqa: NPY002 (the lasso that it starts from draws from the global state)
    found = svb_fit_logit(standardised(X), (y > 0).astype(np.float64), intercept=True, **prior)
    return by_probability(np.asarray(found["gamma"], dtype=np.float64)[: X.shape[1]])


def sparsevb_of_theory(X: Array, y: NDArray[np.int_]) -> Found:
    return sparsevb(X, y, alpha=1.0, beta=float(X.shape[1]))


def knockoffs(X: Array, y: NDArray[np.int_]) -> Found:
    from knockpy.knockoff_filter import KnockoffFilter

    np.random.seed(0)  # noqa: NPY002 (knockpy draws from the global state)
    found = KnockoffFilter(fstat="lasso", ksampler="gaussian")
    found.forward(
        X=standardised(X),
        y=(y > 0).astype(np.float64),
        fdr=0.1,
        shrinkage="ledoitwolf",
        knockoff_kwargs={"method": "equicorrelated"},
    )
    statistic = np.asarray(found.W, dtype=np.float64)
    return Found(statistic, None, lambda fdr: np.asarray(found.make_selections(statistic, fdr), dtype=bool))


def susie(X: Array, y: NDArray[np.int_]) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        table, answer = Path(folder) / "table.bin", Path(folder) / "answer.bin"
        np.concatenate([np.asfortranarray(X).ravel(order="F"), y.astype(np.float64)]).tofile(table)
        sizes = [str(size) for size in (*X.shape, N_SINGLE_EFFECTS)]
        subprocess.run(
            ["Rscript", "--vanilla", str(SUSIE), str(table), str(answer), *sizes],
            check=True,
            capture_output=True,
        )
        seconds, converged, *probability = np.fromfile(answer)
    settled = bool(converged)
    return by_probability(
        np.array(probability),
        settled=settled,
        outcome="converged" if settled else "budget",
        cpu_seconds=float(seconds),
    )


def standardised(X: Array) -> Array:
    return np.asarray((X - X.mean(axis=0)) / X.std(axis=0))


METHODS: dict[str, Callable[[Array, NDArray[np.int_]], Found]] = {
    FOLDLESS: foldless,
    "sparsevb": sparsevb,
    "sparsevb, Beta(1, p)": sparsevb_of_theory,
    "knockoffs": knockoffs,
    "susieR": susie,
}


def missing(method: str) -> str:
    """What must be installed for a method, if anything."""
    if method == "susieR":
        if shutil.which("Rscript") is None:
            return "R with the package susieR"
        asked = ["Rscript", "--vanilla", "-e", 'quit(status = !requireNamespace("susieR", quietly = TRUE))']
        return (
            "R's package susieR" if subprocess.run(asked, capture_output=True, check=False).returncode else ""
        )
    needed = "knockpy" if method == "knockoffs" else "sparsevb" if method.startswith("sparsevb") else None
    return f"pip install {needed}" if needed and importlib.util.find_spec(needed) is None else ""
