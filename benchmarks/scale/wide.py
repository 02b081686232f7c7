"""Two million features of 200 samples: the time and memory of a fit, screened and not, beside celer's.

python -m benchmarks.scale.wide
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scale.growth import table
from benchmarks.studies import _common as common
from benchmarks.studies._isolated import isolated
from benchmarks.studies._rivals import has_celer, penalty_grid
from foldless import SparseClassifier
from foldless.problem import Iteration
from foldless.solvers.screening import Screening
from foldless.tuning.fit import Choices

HERE = Path(__file__).parent
N_SAMPLES = 200
COLUMNS = (
    *("what", "samples", "features", "seconds", "cpu_seconds", "bytes_of_X"),
    *("extra", "found", "kept", "n_iter", "n_whole", "loo_log_loss", "peak_mb", "stopped"),
)


def main(argv: Sequence[str] | None = None) -> Path:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=int, default=2_000_000)
    parser.add_argument("--quick", action="store_true", help="20 000 features")
    parser.add_argument("--without-celer", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args(argv)
    n_features = 20_000 if arguments.quick else arguments.features
    arguments.out.mkdir(parents=True, exist_ok=True)
    measures = {
        "SparseClassifier, tuned": screened_fit,
        "SparseClassifier, tuned, without screening": whole_fit,
    }
    if has_celer() and not arguments.without_celer:
        measures["celer, one path of 10 penalties, not tuned"] = celer_path
        measures["celer, the same with 5 folds"] = celer_folds
    with common.Results(arguments.out, COLUMNS, "wide.csv") as results:
        for what, measure in measures.items():
            row = isolated(measure, n_features, patience=3600)
            results.add(what=what, samples=N_SAMPLES, features=n_features, **row)
            print(what, row, flush=True)
    return arguments.out


def screened_fit(n_features: int) -> dict[str, Any]:
    screening = Screening()
    if n_features < screening.least_weights:  # a quick run, which shows no gain but that everything runs
        screening = Screening(least_weights=n_features, largest_share=0.3)
    return foldless_fit(n_features, screening)


def whole_fit(n_features: int) -> dict[str, Any]:
    return foldless_fit(n_features, Screening(least_weights=n_features + 2))


def foldless_fit(n_features: int, screening: Screening) -> dict[str, Any]:
    class Classifier(SparseClassifier):
        def _choices(self, n_classes: int) -> Choices:
            return replace(super()._choices(n_classes), screening=screening)

    X, y = table(N_SAMPLES, n_features)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        SparseClassifier().fit(X[:, :2000].copy(), y)  # loads what is loaded late
    lines: list[Iteration] = []
    model = Classifier()
    model._on_iteration = lambda n, line: lines.append(line)
    before, begun, processor = _peak(), time.perf_counter(), time.process_time()
    model.fit(X, y)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - processor
    kept = model.get_support(indices=True)
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "bytes_of_X": X.nbytes,
        "extra": (_peak() - before) / X.nbytes,
        "found": int(np.sum(kept < 10)),
        "kept": kept.size,
        "n_iter": model.n_iter_,
        "n_whole": sum(line.visited is None for line in lines),
        "loo_log_loss": model.loo_log_loss_,
    }


def celer_path(n_features: int, n_folds: int = 0) -> dict[str, Any]:
    """celer takes float64 by columns only, and has no intercept: it is given that, outside the clock."""
    from celer import celer_path as path

    X32, y = table(N_SAMPLES, n_features)
    X = np.asfortranarray(X32, dtype=np.float64)
    X -= X.mean(axis=0)
    X /= X.std(axis=0)
    size = X32.nbytes
    del X32
    penalties = penalty_grid(X, y, 10)
    before, begun, processor = _peak(), time.perf_counter(), time.process_time()
    _, weights, _ = path(X, y, pb="logreg", alphas=penalties, tol=1e-4)
    for fold in range(n_folds):
        train = np.arange(y.size) % n_folds != fold
        path(np.asfortranarray(X[train]), y[train], pb="logreg", alphas=penalties, tol=1e-4)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - processor
    kept = np.flatnonzero(weights[:, -1])
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "bytes_of_X": size,
        "extra": (_peak() - before) / size,
        "found": int(np.sum(kept < 10)),
        "kept": kept.size,
    }


def celer_folds(n_features: int) -> dict[str, Any]:
    return celer_path(n_features, n_folds=5)


def _peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
