"""Dense tables: what an iteration costs beside one pass `X.sum()`, and what a fit needs beside X.

python -m benchmarks.scale.dense
"""

from __future__ import annotations

import argparse
import tracemalloc
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.scale._iteration import default_iteration, least_seconds
from benchmarks.studies import _common as common
from foldless import SparseClassifier
from foldless.kernels import bounded_threads

HERE = Path(__file__).parent
SHAPES = ((300, 30_000), (1000, 50_000))
QUICK_SHAPES = ((60, 3000),)
STORAGES = (
    ("float64", "C"),
    ("float64", "F"),
    ("float32", "C"),
    ("float32", "F"),
    ("int8", "C"),
    ("int8", "F"),
)
COLUMNS = (
    *("samples", "features", "dtype", "order"),
    *("pass_ms", "step_ms", "step_2_threads_ms", "tune_ms"),
    *("step_ratio", "step_ratio_2_threads", "ratio", "extra"),
)


def main(argv: Sequence[str] | None = None) -> Path:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small table, to see that it runs")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args(argv)
    shapes = QUICK_SHAPES if arguments.quick else SHAPES
    arguments.out.mkdir(parents=True, exist_ok=True)
    with common.Results(arguments.out, COLUMNS, "dense.csv") as results:
        for n_samples, n_features in shapes:
            for dtype, order in STORAGES:
                X, y = table(n_samples, n_features, dtype, order)
                row = measured(X, y, 3 if arguments.quick else arguments.rounds)
                results.add(samples=n_samples, features=n_features, dtype=dtype, order=order, **row)
                print(f"{n_samples} x {n_features} {dtype} {order}: {row}", flush=True)
    return arguments.out


def table(
    n_samples: int, n_features: int, dtype: str, order: Any
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Independent features, ten of which have class means one standard deviation apart."""
    rng = np.random.default_rng(0)
    y = np.where(np.arange(n_samples) % 2, 1.0, -1.0)
    X = np.empty((n_samples, n_features), dtype, order=order)
    # Small integers have standard deviations of some units, as intensities do.
    unit = 20.0 if np.dtype(dtype).kind == "i" else 1.0
    for row, label in zip(X, y, strict=True):
        values = rng.standard_normal(n_features)
        values[:10] += 0.5 * label
        row[:] = np.clip(unit * values, -127, 127)
    return X, y


def measured(X: NDArray[Any], y: NDArray[np.float64], rounds: int) -> dict[str, float]:
    """Milliseconds, the ratios to one pass, and the most memory of a whole fit as a share of X."""
    iteration = default_iteration(X, y)
    with bounded_threads(1):
        seconds = least_seconds({"pass": X.sum, "step": iteration.step, "tune": iteration.tune}, rounds)
    with bounded_threads(2):
        seconds |= least_seconds({"step_2_threads": iteration.step}, rounds)
    del iteration
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tracemalloc.start()
        SparseClassifier().fit(X, y)
        extra = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return {
        **{f"{name}_ms": 1e3 * value for name, value in seconds.items()},
        "step_ratio": seconds["step"] / seconds["pass"],
        "step_ratio_2_threads": seconds["step_2_threads"] / seconds["pass"],
        "ratio": (seconds["step"] + seconds["tune"]) / seconds["pass"],
        "extra": extra / X.nbytes,
    }


if __name__ == "__main__":
    main()
