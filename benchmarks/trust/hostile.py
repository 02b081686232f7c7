"""Inputs nobody would draw from a distribution, in every storage and precision, to every estimator.

    python -m benchmarks.trust.hostile                    # all cells
    python -m benchmarks.trust.hostile --estimators SMLRClassifier --inputs "one class"

A cell is well answered if the fit and its predictions are finite, or if a ValueError says what is wrong (the
words that each input must bring about stand beside it), within five seconds of CPU time. Any other exception,
a warning that is not ours, a number that is not finite or a longer time is a failure.
"""

from __future__ import annotations

import argparse
import re
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from benchmarks.trust.estimators import every_estimator

PATIENCE = 5.0
N_SAMPLES, N_FEATURES = 26, 12


class Table(NamedTuple):
    X: Any
    y: Any
    # Of the message, if the table may be refused; a table without such words must be fitted.
    refused: str | None = None


def plain() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    y = np.arange(N_SAMPLES) % 2
    X = 20 * rng.standard_normal((N_SAMPLES, N_FEATURES))
    X[:, 0] += 30 * y
    return np.round(X), y


def spoiled(value: float) -> np.ndarray:
    X, _ = plain()
    X[4, 3] = value
    return X


def _outlier() -> np.ndarray:
    X, _ = plain()
    X[4, 3] = 1e12
    return X


def _scales() -> np.ndarray:
    return plain()[0] * 10.0 ** np.linspace(-100, 100, N_FEATURES)


def _rank_one() -> np.ndarray:
    X, _ = plain()
    return np.outer(X[:, 0], np.arange(1, N_FEATURES + 1))


def _separable() -> np.ndarray:
    X, y = plain()
    X[:, 5] = 100 * (2 * y - 1)
    return X


def _few(*rows: int) -> Table:
    X, y = plain()
    return Table(X[list(rows)], y[list(rows)])


def _labels(kind: str) -> Any:
    y = plain()[1]
    match kind:
        case "one class":
            return np.ones_like(y)
        case "one positive":
            return (np.arange(y.size) == 5).astype(int)
        case "all different":
            return np.arange(y.size)
        case "nan":
            return np.where(y == 1, np.nan, 0.0)
        case "continuous":
            return y + 0.25 * np.arange(y.size)
    raise ValueError(kind)


# 25 inputs; numbers beyond what a storage can hold are cut off at its largest.
INPUTS: dict[str, Callable[[], Table]] = {
    "NaN": lambda: Table(spoiled(np.nan), plain()[1], "NaN.* row 4, column 3.* fill"),
    "infinity": lambda: Table(spoiled(np.inf), plain()[1], "infinity.* row 4, column 3.* fill"),
    "largest number": lambda: Table(spoiled(1.7e308), plain()[1], "column 3.* Rescale"),
    "one outlier": lambda: Table(_outlier(), plain()[1]),
    "all constant": lambda: Table(np.full((N_SAMPLES, N_FEATURES), 7.0), plain()[1]),
    "all zero": lambda: Table(np.zeros((N_SAMPLES, N_FEATURES)), plain()[1]),
    "some constant": lambda: Table(np.where(np.arange(N_FEATURES) % 3, plain()[0], 3.0), plain()[1]),
    "49 equal columns": lambda: Table(np.repeat(plain()[0][:, :2], 49, axis=1), plain()[1]),
    "rank one": lambda: Table(_rank_one(), plain()[1]),
    "equal rows": lambda: Table(np.repeat(plain()[0][:13], 2, axis=0), plain()[1]),
    "scale 1e150": lambda: Table(1e150 * plain()[0], plain()[1], "column 0.* Rescale"),
    "scale 1e-150": lambda: Table(1e-150 * plain()[0], plain()[1]),
    "denormal": lambda: Table(1e-322 * plain()[0], plain()[1]),
    "scales 1e-100 to 1e100": lambda: Table(_scales(), plain()[1]),
    "offset 1e8": lambda: Table(plain()[0] + 1e8, plain()[1]),
    "offset 1e15": lambda: Table(plain()[0] + 1e15, plain()[1]),
    "separable": lambda: Table(_separable(), plain()[1]),
    "two samples": lambda: _few(0, 1),
    "three samples": lambda: _few(0, 1, 2),
    "one feature": lambda: Table(plain()[0][:, :1], plain()[1]),
    "one class": lambda: Table(plain()[0], _labels("one class"), "one class"),
    "one positive": lambda: Table(plain()[0], _labels("one positive")),
    "a class each": lambda: Table(plain()[0], _labels("all different"), "classes"),
    "labels NaN": lambda: Table(plain()[0], _labels("nan"), "y contains NaN"),
    "continuous labels": lambda: Table(plain()[0], _labels("continuous"), "Unknown label type|continuous"),
}
STORAGES: dict[str, Callable[[np.ndarray], Any]] = {
    "dense": np.asarray,
    "CSR": sparse.csr_array,
    "CSC": sparse.csc_array,
}
DTYPES = {"float64": np.float64, "float32": np.float32, "int8": np.int8}


def stored(X: np.ndarray, storage: str, dtype: str) -> Any:
    """In this storage and precision; what does not fit is cut off, and no integer is NaN."""
    kind: Any = DTYPES[dtype]
    if kind is np.int8:
        X = np.nan_to_num(X, nan=-128.0, posinf=127.0, neginf=-128.0).clip(-128, 127)
    elif kind is np.float32:
        largest = float(np.finfo(np.float32).max)
        X = np.where(np.isfinite(X), X.clip(-largest, largest), X)
    return STORAGES[storage](X.astype(kind))


class Verdict(NamedTuple):
    estimator: str
    input: str
    storage: str
    dtype: str
    verdict: str  # fitted, refused, or what went wrong
    seconds: float

    @property
    def good(self) -> bool:
        return self.verdict in ("fitted", "refused")


def judged(name: str, model: Any, given: str, storage: str, dtype: str) -> Verdict:
    table = INPUTS[given]()
    start = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            X = stored(np.asarray(table.X), storage, dtype)
            verdict = _fitted(clone(model), X, table.y)
        except ValueError as error:
            words = f"{table.refused or 'nothing'}|{ALSO_RIGHT}"
            text = " ".join(str(error).split())
            verdict = "refused" if re.search(words, text) else f"ValueError: {text}"
        except TypeError as error:
            # scikit-learn's own word for estimators that take no sparse tables.
            no_sparse = storage != "dense" and "dense data is required" in str(error)
            verdict = "refused" if no_sparse else f"TypeError: {error}"
        except Exception as error:  # whatever it is, it is the finding
            verdict = f"{type(error).__name__}: {error}"
    seconds = time.process_time() - start
    strange = [w for w in caught if not issubclass(w.category, ConvergenceWarning | FutureWarning)]
    strange = [w for w in strange if "unique classes is greater than 50%" not in str(w.message)]
    if strange and verdict in ("fitted", "refused"):
        verdict = f"{strange[0].category.__name__}: {strange[0].message}"
    if seconds > PATIENCE and verdict in ("fitted", "refused"):
        verdict = f"{seconds:.1f} s"
    return Verdict(name, given, storage, dtype, verdict, seconds)


# Refusals that are right for some estimators: they have two classes, or need more samples than there are.
ALSO_RIGHT = r"Only binary classification|at least \d+ samples|Rescale or remove"


# NaN there says "not known": a class of one sample cannot be left out and learnt (PanelClassifier), and
# nothing was cross-validated where all choices were made (BayesPointClassifier).
UNKNOWN = {"left_out_proba_", "cv_error_", "cv_log_loss_"}


def _fitted(model: Any, X: Any, y: Any) -> str:
    model.fit(X, y)
    answers = [model.decision_function(X)]
    if hasattr(model, "predict_proba"):
        answers.append(model.predict_proba(X))
    published = [value for name, value in vars(model).items() if name.endswith("_") and name not in UNKNOWN]
    numbers = [value for value in published if isinstance(value, float | np.ndarray)]
    for value in (*answers, *numbers):
        value = np.asarray(value)
        if value.dtype.kind == "f" and not np.all(np.isfinite(value)):
            return "a number that is not finite"
    if not np.isin(model.predict(X), model.classes_).all():
        return "a label that is no class"
    return "fitted"


def cells(estimators: Any = None, inputs: Any = None) -> Iterator[tuple[str, Any, str, str, str]]:
    for name, model in every_estimator().items():
        for given in INPUTS:
            for storage in STORAGES:
                for dtype in DTYPES:
                    if (estimators is None or name in estimators) and (inputs is None or given in inputs):
                        yield name, model, given, storage, dtype


def run(estimators: Any = None, inputs: Any = None) -> dict[str, Any]:
    """The results of `docs/trust.md`."""
    for model in every_estimator().values():
        _fitted(clone(model), *plain())  # loops are compiled once, which is no matter of the input
    verdicts = [judged(*cell) for cell in cells(estimators, inputs)]
    failures = [verdict._asdict() for verdict in verdicts if not verdict.good]
    return {
        "cells": len(verdicts),
        "good": len(verdicts) - len(failures),
        "fitted": sum(v.verdict == "fitted" for v in verdicts),
        "refused": sum(v.verdict == "refused" for v in verdicts),
        "slowest": round(max(v.seconds for v in verdicts), 2),
        "failures": failures,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--estimators", nargs="*")
    parser.add_argument("--inputs", nargs="*")
    options = parser.parse_args()
    found = run(options.estimators, options.inputs)
    for failure in found.pop("failures"):
        print(failure)
    print(found)
