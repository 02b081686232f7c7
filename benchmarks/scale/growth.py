"""How the time of a fit grows with samples and with features: log-log slopes from 10^6 to 10^9 entries.

python -m benchmarks.scale.growth

Float32, rows in order, independent features. What grows is the time of one iteration (sweep, channel, prior,
EM) and of the passes before the first; how many iterations a fit takes depends on what there is to find.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.scale._iteration import default_iteration, least_seconds
from benchmarks.studies import _common as common
from foldless.kernels import one_blas_thread

HERE = Path(__file__).parent
LARGE = 9e6
COLUMNS = ("grows", "samples", "features", "entries", "iteration_ms", "start_seconds")


def shapes(quick: bool) -> Iterator[tuple[str, int, int]]:
    largest = 7 if quick else 9
    for power in np.arange(6, largest + 0.1, 0.5):
        yield "features", 50, round(10**power / 50)
    for power in np.arange(6, largest + 0.1, 0.5):
        yield "samples", round(10**power / 2000), 2000


def main(argv: Sequence[str] | None = None) -> Path:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 10^7 entries")
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    seen: dict[str, list[tuple[int, float]]] = {}
    with common.Results(arguments.out, COLUMNS, "growth.csv") as results:
        for grows, n_samples, n_features in shapes(arguments.quick):
            X, y = table(n_samples, n_features)
            start = time.perf_counter()
            with one_blas_thread():
                iteration = default_iteration(X, y)
                before = time.perf_counter() - start
                rounds = int(np.clip(3e9 / X.size, 3, 100))
                seconds = least_seconds({"step": iteration.step, "tune": iteration.tune}, rounds)
            total = seconds["step"] + seconds["tune"]
            results.add(
                grows=grows,
                samples=n_samples,
                features=n_features,
                entries=X.size,
                iteration_ms=1e3 * total,
                start_seconds=before,
            )
            seen.setdefault(grows, []).append((X.size, total))
            print(f"{grows}: {n_samples} x {n_features}  {1e3 * total:.2f} ms", flush=True)
            del X, iteration
    for grows, points in seen.items():
        size, time_ = np.log(np.array(points)).T
        print(f"slope in {grows}: {np.polyfit(size, time_, 1)[0]:.3f}")
        # Below, arrays of a few thousand numbers take as long as the calls that handle them.
        large = size >= np.log(LARGE)
        if large.sum() > 2:
            print(f"from {LARGE:.0e} entries: {np.polyfit(size[large], time_[large], 1)[0]:.3f}")
    return arguments.out


def table(n_samples: int, n_features: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    rng = np.random.default_rng(0)
    X = np.empty((n_samples, n_features), np.float32)
    for row in X:
        rng.standard_normal(out=row, dtype=np.float32)
    y = np.where(np.arange(n_samples) % 2, 1.0, -1.0)
    X[:, :10] += 0.5 * y[:, np.newaxis].astype(np.float32)
    return X, y


if __name__ == "__main__":
    main()
