"""What an iteration will cost on k workers, from constants that are measured here.

python -m benchmarks.scale.cost_model [--docs]

An iteration reads every stored entry once (twice in cache), answers for every sample and for every feature,
and, on a cluster, sends vectors. So

    seconds = entries / k · per_entry + samples · per_sample + features · per_feature
              + blocks · latency + bytes / bandwidth,
    bytes   = 8 · [features · (workers + blocks) + 2 · samples],

with weights sent to every worker, a sum of the features' length from every block, and scores from, and slopes
to, the rows' own block. With exact covariances, where columns are correlated, it is in memory and costs

    samples² · (samples + features) · per_exact_operation.

`--docs` writes the tables into docs/scaling.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.scale._iteration import default_iteration, least_seconds
from benchmarks.studies import _common as common
from foldless.channels import FlippedLabels, Logistic
from foldless.kernels import one_blas_thread
from foldless.operators import operator_from
from foldless.priors import Gaussian, OverBackground, SpikeAndSlab
from foldless.problem import Problem
from foldless.solvers import EP
from foldless.tuning.costs import exact_cost

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
# Of a block on a Dask cluster in both phases of a sweep; benchmarks/scale/dask.md has the measured one.
LATENCY = 2e-3
# Ten gigabits a second, as machines of one rack have.
BANDWIDTH = 1.25e9
# A fit takes 15 to 40 iterations; so many are reckoned with.
ITERATIONS = 30


@dataclass(frozen=True)
class Constants:
    """Seconds, on one core."""

    per_dense_entry: float  # float32
    per_sparse_entry: float  # float32 and 32-bit indices
    per_sample: float
    per_feature: float
    per_exact_operation: float  # of EP over a background, float32


@dataclass(frozen=True)
class Table:
    name: str
    samples: float
    features: float
    entries: float
    is_sparse: bool

    @property
    def bytes(self) -> float:
        return self.entries * (8 if self.is_sparse else 4)


TABLES = (
    Table("genes, 200 x 50 000", 200, 5e4, 1e7, False),
    Table("variants, 2 000 x 2 000 000", 2e3, 2e6, 4e9, False),
    Table("text, 677 000 x 47 000 (50 M entries)", 6.77e5, 4.7e4, 5e7, True),
    Table("cells, 10 000 000 x 30 000 (5 %)", 1e7, 3e4, 1.5e10, True),
    Table("10^9 x 10^6, 100 entries a row", 1e9, 1e6, 1e11, True),
    Table("10^9 x 10^6, dense", 1e9, 1e6, 1e15, False),
)


def main(argv: Sequence[str] | None = None) -> str:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", action="store_true", help="write the tables into docs/scaling.md")
    parser.add_argument("--quick", action="store_true", help="small measurements")
    arguments = parser.parse_args(argv)
    constants = measured(arguments.quick)
    text = "\n\n".join((told(constants), forecast(constants), check(constants, arguments.quick)))
    print(text)
    if arguments.docs:
        before, _, rest = PAGE.read_text().partition(common.TABLE_BEGINS)
        after = rest.partition(common.TABLE_ENDS)[2]
        PAGE.write_text(f"{before}{common.TABLE_BEGINS}\n{text}\n{common.TABLE_ENDS}{after}")
    return text


def seconds(table: Table, constants: Constants, workers: int, blocks: int) -> float:
    """Of one iteration; with one worker nothing is sent."""
    per_entry = constants.per_sparse_entry if table.is_sparse else constants.per_dense_entry
    time = table.entries / workers * per_entry
    time += table.samples * constants.per_sample + table.features * constants.per_feature
    if workers > 1:
        time += blocks * LATENCY + traffic(table, workers, blocks) / BANDWIDTH
    return time


def traffic(table: Table, workers: int, blocks: int) -> float:
    """Bytes of one iteration."""
    return 8 * (table.features * (workers + blocks) + 2 * table.samples)


def measured(quick: bool) -> Constants:
    rng = np.random.default_rng(0)
    rounds, size = (3, 1000) if quick else (30, 100_000)
    X = rng.standard_normal((300, size // 3), dtype=np.float32)
    W = sparse.random(size, size // 2, 2e-3, format="csr", dtype=np.float32, rng=0)
    mean, var = rng.standard_normal(size), np.full(size, 0.5)
    labels = np.sign(mean)
    channel, prior = FlippedLabels(Logistic()), SpikeAndSlab(Gaussian(), 0.01)
    dense, sparse_ = operator_from(X), operator_from(W)
    step, operations = exact_step(200, size // 10)
    with one_blas_thread():
        least = least_seconds(
            {
                "dense": lambda: dense.sweep(
                    np.zeros(X.shape[1]), None, lambda rows, scores, var: (scores, None)
                ),
                "sparse": lambda: sparse_.sweep(
                    np.zeros(W.shape[1]), None, lambda rows, scores, var: (scores, None)
                ),
                # Twice: the response, and what EM asks.
                "sample": lambda: [channel.respond(mean, var, labels) for _ in range(2)],
                "feature": lambda: [prior.tilted(mean, var), prior.em_update(mean, var)],
                "exact": step,
            },
            rounds,
        )
    return Constants(
        least["dense"] / X.size,
        least["sparse"] / W.nnz,
        least["sample"] / size,
        least["feature"] / size,
        least["exact"] / operations,
    )


def exact_step(n_samples: int, n_features: int) -> tuple[Callable[[], Any], float]:
    """An iteration of EP over a background, and its operations as a plan counts them."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n_samples, n_features), dtype=np.float32)
    X += rng.standard_normal((n_samples, 1), dtype=np.float32)
    labels = np.where(rng.random(n_samples) < 0.5, 1.0, -1.0)
    prior = OverBackground(SpikeAndSlab(Gaussian(4.0), 10 / n_features), 20 / n_features)
    problem = Problem(operator_from(X), labels, np.ones(n_samples), FlippedLabels(Logistic()), prior)
    solver = EP()
    state = solver.init(problem)
    for _ in range(3):
        state = solver.step(problem, state)
    return lambda: solver.step(problem, state), exact_cost(n_samples, n_features)


def told(constants: Constants) -> str:
    rows = [
        ("a dense entry, float32", f"{1e9 * constants.per_dense_entry:.2f} ns"),
        ("a stored entry of a sparse matrix, float32", f"{1e9 * constants.per_sparse_entry:.2f} ns"),
        ("a sample (channel, EM)", f"{1e9 * constants.per_sample:.0f} ns"),
        ("a feature (prior, EM)", f"{1e9 * constants.per_feature:.0f} ns"),
        (
            "an operation of exact covariances, float32",
            f"{1e9 * constants.per_exact_operation:.3f} ns",
        ),
        ("a block on a cluster (assumed)", f"{1e3 * LATENCY:.0f} ms"),
        ("the network (assumed)", f"{BANDWIDTH / 1e9:.2f} GB/s"),
    ]
    return common.markdown(("per iteration", "cost"), rows)


def forecast(constants: Constants) -> str:
    rows = []
    for table in TABLES:
        for workers in (1, 10, 100, 1000, 20_000):
            per_worker = table.bytes / workers
            if (
                per_worker > 256e9
                or (workers > 1 and per_worker < 1e8)
                or (workers > 1000 and per_worker < 1e10)
            ):
                continue
            blocks = workers * max(1, round(per_worker / 2e9))
            each = seconds(table, constants, workers, blocks)
            sent = traffic(table, workers, blocks) if workers > 1 else 0.0
            rows.append(
                (
                    table.name,
                    workers,
                    _size(per_worker),
                    _time(each),
                    _time(ITERATIONS * each),
                    _size(sent) if sent else "none",
                    _size(8 * (8 * table.samples + 12 * table.features)),
                )
            )
    header = (
        "table",
        "workers",
        "data on each",
        "an iteration",
        f"{ITERATIONS} of them",
        "sent each",
        "driver holds",
    )
    return common.markdown(header, rows)


def check(constants: Constants, quick: bool) -> str:
    """The model beside whole iterations (with intercept, standardisation and damping) on this machine."""
    rng = np.random.default_rng(1)
    shapes = ((60, 2000),) if quick else ((60, 2000), (300, 30_000), (1000, 50_000), (200, 500_000))
    rows = []
    for n_samples, n_features in shapes:
        X = rng.standard_normal((n_samples, n_features), dtype=np.float32)
        y = np.where(np.arange(n_samples) % 2, 1.0, -1.0)
        with one_blas_thread():
            iteration = default_iteration(X, y)
            least = least_seconds({"step": iteration.step, "tune": iteration.tune}, 5 if quick else 15)
        found = least["step"] + least["tune"]
        predicted = seconds(Table("", n_samples, n_features, X.size, False), constants, 1, 1)
        rows.append(
            (f"{n_samples} x {n_features}", _time(predicted), _time(found), f"{predicted / found:.2f}")
        )
    return common.markdown(("dense, float32", "predicted", "measured", "ratio"), rows)


def _time(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= 2 * length or (unit == "s" and seconds >= 1):
            return f"{seconds / length:.3g} {unit}"
    return f"{1e3 * seconds:.3g} ms"


def _size(n_bytes: float) -> str:
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes / 1e3:.3g} kB"


if __name__ == "__main__":
    main()
