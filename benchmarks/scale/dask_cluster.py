"""Fits on a Dask cluster: the answer of memory, what a sweep costs beyond its products, and what is survived.

    python -m benchmarks.scale.dask_cluster [--quick] [--kills 10] [--out DIR]

Two workers of one thread, on this machine. Sweeps are timed on standard normal X in 8 blocks of rows. Workers
are killed (SIGKILL) in mid-fit at random moments. The scheduler is a process of its own and is killed, too;
the fit is then resumed from its checkpoint on a new cluster. All figures go to dask_cluster.csv.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from foldless import SparseClassifier
from foldless.datasets import make_class_means
from foldless.operators import ClusterLost, Dense, operator_from

HERE = Path(__file__).parent
RESULTS = "dask_cluster.csv"
N_WORKERS, N_BLOCKS = 2, 8
SWEEPS, QUICK_SWEEPS = 100, 10
SIZES, QUICK_SIZES = ((400, 2000), (400, 30_000), (400, 200_000)), ((80, 300),)
FIT_SIZE, QUICK_FIT_SIZE = (400, 10_000), (80, 300)


class Figures:
    """Rows of (experiment, case, figure, value), written whenever one is added."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, []

    def add(self, experiment: str, case: str, **figures: float) -> None:
        self.rows += [(experiment, case, name, value) for name, value in figures.items()]
        frame = pd.DataFrame(self.rows, columns=["experiment", "case", "figure", "value"])
        frame.to_csv(self.path, index=False)
        print(experiment, case, {name: float(f"{value:.4g}") for name, value in figures.items()}, flush=True)


@contextmanager
def local_cluster() -> Iterator[Any]:
    """Workers are processes that come back when killed, however long a busy machine takes for that."""
    import dask
    from distributed import Client, LocalCluster

    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"}),
        LocalCluster(
            n_workers=N_WORKERS, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def killable_cluster(folder: Path) -> Iterator[tuple[Any, subprocess.Popen[bytes]]]:
    """Scheduler and workers are processes of their own: the client, and the scheduler's process."""
    from distributed import Client

    where = folder / f"scheduler-{time.monotonic_ns()}.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    common = ["--scheduler-file", str(where), "--no-dashboard"]
    start = [sys.executable, "-m", "distributed.cli"]
    scheduler = subprocess.Popen(
        [*start[:2], "distributed.cli.dask_scheduler", *common, "--host", "127.0.0.1", "--port", "0"], **quiet
    )
    worker = [*start[:2], "distributed.cli.dask_worker", *common, "--nthreads", "1", "--no-nanny"]
    workers = [subprocess.Popen(worker, **quiet) for _ in range(N_WORKERS)]
    try:
        while not where.exists():
            time.sleep(0.1)
        client = Client(json.loads(where.read_text())["address"], timeout=60, set_as_default=False)
        client.wait_for_workers(N_WORKERS, timeout=120)
        with client.as_current():
            yield client, scheduler
        client.close(timeout=1)
    finally:
        for process in (scheduler, *workers):
            process.kill()
            process.wait()


def blocks_of(X: np.ndarray) -> Any:
    import dask.array as da

    return da.from_array(X, chunks=(-(-X.shape[0] // N_BLOCKS), -1))


def relative_difference(model: SparseClassifier, other: SparseClassifier) -> float:
    return float(np.max(np.abs(model.coef_ - other.coef_)) / np.max(np.abs(other.coef_)))


def agreement(figures: Figures, size: tuple[int, int]) -> None:
    """The same coefficients as in memory, where columns are independent and where they are not."""
    data = make_class_means(*size, 10, random_state=0)
    rng = np.random.default_rng(0)
    small = data.X[:, : min(size[1], 300)]
    cases = {
        "independent columns": data.X,
        "independent columns, float32": data.X.astype(np.float32),
        "correlated columns, exact covariances": small + 2 * rng.standard_normal((size[0], 1)),
    }
    for case, X in cases.items():
        there = SparseClassifier().fit(blocks_of(X), data.y)
        here = SparseClassifier().fit(X, data.y)
        figures.add("agreement", case, largest_relative_difference=relative_difference(there, here))


def sweeps(figures: Figures, sizes: tuple[tuple[int, int], ...], n_sweeps: int) -> None:
    """Wall-clock time of a sweep, of the same products in memory, and bytes over the loopback device."""
    for n_rows, n_columns in sizes:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n_rows, n_columns), dtype=np.float32)
        weights, slopes = rng.standard_normal(n_columns), rng.standard_normal(n_rows)

        def row_step(rows: slice, scores: Any, score_var: Any, slopes: Any = slopes) -> Any:
            return slopes[rows], None

        found = {}
        operators = {"memory": Dense(X), "cluster": operator_from(blocks_of(X))}
        for place, operator in operators.items():
            operator.sweep(weights, None, row_step)
            seconds = []
            before = loopback_bytes(), time.process_time()
            for _ in range(n_sweeps):
                start = time.perf_counter()
                operator.sweep(weights, None, row_step)
                seconds.append(time.perf_counter() - start)
            found[place] = np.array(seconds)
            sent, driver = loopback_bytes() - before[0], time.process_time() - before[1]
        ours, memory = 1e3 * found["cluster"], 1e3 * found["memory"]
        figures.add(
            "sweep",
            f"{n_rows} x {n_columns} float32",
            cluster_ms_median=float(np.median(ours)),
            cluster_ms_least=float(ours.min()),
            memory_ms_median=float(np.median(memory)),
            overhead_ms_median=float(np.median(ours) - np.median(memory)),
            overhead_ms_least=float(ours.min() - memory.min()),
            driver_and_scheduler_cpu_ms=1e3 * driver / n_sweeps,
            megabytes_on_the_wire=1e-6 * sent / n_sweeps,
            # To each worker weights, as precise as X; from each block sums in float64; scores and slopes.
            megabytes_of_vectors=1e-6 * (n_columns * (4 * N_WORKERS + 8 * N_BLOCKS) + 16 * n_rows),
            megabytes_of_X=1e-6 * X.nbytes,
            load_average=os.getloadavg()[0],
        )


def loopback_bytes() -> float:
    """Received on the loopback device since the machine started, by anybody; nan where that is not told."""
    try:
        lines = Path("/proc/net/dev").read_text().splitlines()
    except OSError:
        return float("nan")
    return next((float(line.split()[1]) for line in lines if line.split()[0] == "lo:"), float("nan"))


def kills(figures: Figures, size: tuple[int, int], n_kills: int) -> None:
    """One of the workers is killed at a random moment of a fit; the answer must be that of a quiet fit."""
    from distributed import default_client

    client = default_client()
    data = make_class_means(*size, 10, random_state=0)
    X = blocks_of(data.X)
    expected = SparseClassifier().fit(X, data.y)
    rng = np.random.default_rng(0)
    for number in range(n_kills):
        client.wait_for_workers(N_WORKERS)
        victim = list(client.run(os.getpid).values())[number % N_WORKERS]
        model = SparseClassifier()
        at, delay, seen, killed = int(rng.integers(1, 8)), float(rng.uniform(0, 0.05)), [], []

        def kill(victim: int = victim, killed: list[float] = killed) -> None:
            killed.append(time.perf_counter())
            os.kill(victim, signal.SIGKILL)

        def watch(iteration: int, line: Any, seen: Any = seen, at: int = at, delay: float = delay) -> None:
            seen.append(iteration)
            if len(seen) == at:
                threading.Timer(delay, kill).start()

        model._on_iteration = watch
        start = time.perf_counter()
        model.fit(X, data.y)
        seconds = time.perf_counter() - start
        figures.add(
            "worker killed",
            f"kill {number + 1}",
            same_bits=float(np.array_equal(model.coef_, expected.coef_)),
            largest_relative_difference=relative_difference(model, expected),
            seconds_after_the_start=killed[0] - start if killed else float("nan"),
            seconds_of_the_fit=seconds,
        )


def lost_scheduler(figures: Figures, size: tuple[int, int], folder: Path) -> None:
    """Seconds from the death of the scheduler to the error; then the fit again, on a new cluster."""
    data = make_class_means(*size, 10, random_state=0)
    X = blocks_of(data.X)
    checkpoint = folder / "fit.journal"
    killed: list[float] = []
    with killable_cluster(folder) as (_, scheduler):
        expected = SparseClassifier().fit(X, data.y)
        model = SparseClassifier(checkpoint=checkpoint)

        def watch(iteration: int, line: Any) -> None:
            if iteration == 5 and not killed:
                killed.append(time.perf_counter())
                scheduler.kill()

        model._on_iteration = watch
        try:
            model.fit(X, data.y)
        except ClusterLost as error:
            seconds = time.perf_counter() - killed[0]
            print(error)
        else:
            raise AssertionError("the fit outlived its scheduler")
    kept = checkpoint.stat().st_size
    with killable_cluster(folder):
        resumed = SparseClassifier(checkpoint=checkpoint).fit(X, data.y)
    figures.add(
        "scheduler killed",
        "resumed on a new cluster",
        seconds_to_the_error=seconds,
        megabytes_of_the_checkpoint=1e-6 * kept,
        same_bits=float(np.array_equal(resumed.coef_, expected.coef_)),
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    parser.add_argument("--kills", type=int, default=10, help="of workers, one in each fit (default 10)")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for the results")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", message="Sending large graph")  # simulated here, so it must travel
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # it tells of every worker that we kill
    figures = Figures(asked.out / RESULTS)
    fit_size = QUICK_FIT_SIZE if asked.quick else FIT_SIZE
    with local_cluster():
        agreement(figures, fit_size)
        sweeps(figures, QUICK_SIZES if asked.quick else SIZES, QUICK_SWEEPS if asked.quick else SWEEPS)
        kills(figures, fit_size, asked.kills)
    with tempfile.TemporaryDirectory() as folder:
        lost_scheduler(figures, fit_size, Path(folder))


if __name__ == "__main__":
    main()
