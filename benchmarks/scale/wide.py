"""Two million features of 200 samples: the time and memory of a fit, beside celer's.

python -m benchmarks.scale.wide
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scale.growth import table
from benchmarks.studies import _common as common
from benchmarks.studies._isolated import isolated
from benchmarks.studies._rivals import has_celer, penalty_grid

HERE = Path(__file__).parent
N_SAMPLES = 200
COLUMNS = (
    *("what", "samples", "features", "seconds", "cpu_seconds", "bytes_of_X"),
    *("extra", "found", "kept", "n_iter", "peak_mb", "stopped"),
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
    measures = {"SparseClassifier, tuned": foldless_fit}
    if has_celer() and not arguments.without_celer:
        measures["celer, one path of 10 penalties, not tuned"] = celer_path
        measures["celer, the same with 5 folds"] = celer_folds
    with common.Results(arguments.out, COLUMNS, "wide.csv") as results:
        for what, measure in measures.items():
            row = isolated(measure, n_features, patience=3600)
            results.add(what=what, samples=N_SAMPLES, features=n_features, **row)
            print(what, row, flush=True)
    return arguments.out


def foldless_fit(n_features: int) -> dict[str, Any]:
    from foldless import SparseClassifier

    X, y = table(N_SAMPLES, n_features)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        SparseClassifier().fit(X[:, :2000].copy(), y)  # loads what is loaded late
    before, begun, processor = _peak(), time.perf_counter(), time.process_time()
    model = SparseClassifier().fit(X, y)
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
