"""From a table to a tuned model: foldless beside cross-validated rivals, all in one process and one thread.

python -m benchmarks.peers.tuned_models --data DIR        (DIR has colon.npz and leukemia.npz)

Rivals choose among ten penalties by ten folds (four classes: five folds), the fewest their users would take,
with warm-started paths and loose tolerances. Times are of the processor, the least of three.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies import _common as common
from benchmarks.studies import _multinomial as multinomial
from benchmarks.studies import _rivals as rivals
from benchmarks.studies.real_data.data import Source
from benchmarks.studies.shygamp_synthetic.data import make_orthogonal_means
from foldless import SparseClassifier
from foldless.datasets import make_class_means
from foldless.kernels import one_blas_thread

HERE = Path(__file__).parent
COLUMNS = ("data", "samples", "features", "classes", "method", "seconds", "cpu_seconds", "over_foldless")
# adelie and saga, hurried: tolerances at which their test error is that of tighter ones to a percent.
MANY_TOLERANCE = 1e-4
# Seconds after which a method is not run again.
PATIENCE = 20.0
Fit = Callable[[Any, Any], Any]


def main(argv: Sequence[str] | None = None) -> Path:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of colon.npz and leukemia.npz; else FOLDLESS_DATA")
    parser.add_argument("--only", nargs="*", help="names of data")
    parser.add_argument("--quick", action="store_true", help="small tables, one run")
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with common.Results(arguments.out, COLUMNS, "tuned_models.csv") as results, one_blas_thread():
        for name, X, y in tables(arguments.data, arguments.quick):
            if arguments.only and name not in arguments.only:
                continue
            classes = np.unique(y).size
            ours = None
            for method, fit in methods(classes).items():
                seconds, cpu = least(lambda fit=fit, X=X, y=y: fit(X, y), 1 if arguments.quick else 3)
                ours = ours or cpu
                results.add(
                    data=name,
                    samples=X.shape[0],
                    features=X.shape[1],
                    classes=classes,
                    method=method,
                    seconds=seconds,
                    cpu_seconds=cpu,
                    over_foldless=cpu / ours,
                )
                print(f"{name:15} {method:20} {cpu:8.3f} s  {cpu / ours:6.1f}", flush=True)
    return arguments.out


def tables(folder: Path | None, quick: bool) -> Iterator[tuple[str, Any, Any]]:
    wide = (60, 2000) if quick else (300, 30_000)
    data = make_class_means(n_samples=wide[0], n_features=wide[1], n_active=10, random_state=0)
    yield f"{wide[0]} x {wide[1]}", data.X, data.y
    if folder is not None:
        source = Source(folder)
        for name in ("colon", "leukemia"):
            table = source.table(name)
            yield name, np.asarray(table.X, dtype=np.float64), np.asarray(table.y, dtype=np.float64)
    many = make_orthogonal_means(100 if quick else 300, 1000 if quick else 30_000, 10, seed=0)
    yield "four classes", many.X, many.y


def methods(classes: int) -> dict[str, Fit]:
    found: dict[str, Fit] = {"foldless": lambda X, y: SparseClassifier().fit(X, y)}
    if classes == 2:
        found["liblinear, L1"] = lambda X, y: rivals.liblinear_cv(X, np.where(y > np.min(y), 1.0, -1.0))
        if rivals.has_celer():
            found["celer, L1"] = lambda X, y: rivals.celer_cv(X, np.where(y > np.min(y), 1.0, -1.0))
        return found
    if multinomial.has_adelie():
        found["adelie, grouped L1"] = lambda X, y: multinomial.adelie_cv(X, y, 10, 0.1, MANY_TOLERANCE)
    found["saga, L1"] = lambda X, y: multinomial.saga_cv(X, y, 5, 10, 0.1, 1e-2)
    return found


def least(call: Callable[[], Any], runs: int) -> tuple[float, float]:
    """Wall and processor seconds, the least of each; what takes minutes is not repeated."""
    seconds: list[float] = []
    cpu: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The first call loads and compiles, which the least of several does not show.
        while len(seconds) <= runs and sum(seconds) < PATIENCE:
            start, processor = time.perf_counter(), time.process_time()
            call()
            seconds.append(time.perf_counter() - start)
            cpu.append(time.process_time() - processor)
    return min(seconds), min(cpu)


if __name__ == "__main__":
    main()
