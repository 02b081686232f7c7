"""Sparse tables: an iteration against the two products it cannot do without, a tuned fit against its rivals.

python -m benchmarks.scale.sparse [--large] [--only iteration fit] [--ours]

Documents are simulated: a Zipf vocabulary, log-normal lengths, tf-idf, rows of unit length, and labels from a
sparse logistic model of the standardised columns. `--large` adds 677 000 documents (50 M entries), as many as
RCV1 has. Everything is measured with the fast extra (numba, as many threads as NUMBA_NUM_THREADS allows) and
without, in one run. Products and iterations take turns, and each counts with its least time: on a busy
machine, the one that waited least. `--ours` measures fits of foldless only, and leaves the rivals' rows as
they were.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegressionCV, SGDClassifier
from sklearn.model_selection import GridSearchCV

from benchmarks.scale._iteration import starting_problem
from benchmarks.studies import _common as common
from benchmarks.studies._rivals import has_celer
from benchmarks.studies.text_many_classes.data import drawn_counts
from foldless import SparseClassifier, kernels
from foldless.channels import FlippedLabels, Logistic
from foldless.operators import Standardized, operator_from
from foldless.solvers import GAMP, Stopping, solve
from foldless.tuning.em import EM, tunable_names

SCALE = Path(__file__).parent
N_WORDS, SMALL, LARGE = 47_000, 20_000, 677_000
N_TEST = 10_000
# Words that matter, and the standard deviation of the log-odds that they make.
N_ACTIVE, SCORE_STD = 200, 3.0
# Iterations before the clock starts: cavities then have the widths that most iterations see. And documents
# whose fit loads what is compiled.
WARM_UP = 25
WARM_ROWS = 2000
PENALTIES, FOLDS = 10, 2
ITERATION_COLUMNS = [
    "documents",
    "entries",
    "form",
    "products_ms",
    "iteration_ms",
    "ratio",
    "cpu_products_ms",
    "cpu_iteration_ms",
    "cpu_channel_ns",
    "load",
]
FIT_COLUMNS = ["documents", "method", "seconds", "cpu_seconds", "accuracy", "bayes_accuracy", "warned"]


@dataclass(frozen=True, eq=False)
class Text:
    """Documents to train with and to test with, and the accuracy of the true model on the latter."""

    X: sp.csr_matrix
    y: NDArray[np.int_]
    X_test: sp.csr_matrix
    y_test: NDArray[np.int_]
    bayes_accuracy: float


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=20)
    parser.add_argument("--large", action="store_true", help=f"also {LARGE} documents")
    parser.add_argument("--only", nargs="*", choices=("iteration", "fit"), default=("iteration", "fit"))
    parser.add_argument("--ours", action="store_true", help="no fits of rivals: their rows stay")
    args = parser.parse_args(argv)
    folder = common.output_folder(args.out, SCALE, args.quick)
    measured_before = rivals_of(folder / "sparse_fit.csv") if args.ours else {}
    sizes = [200] if args.quick else [SMALL, LARGE] if args.large else [SMALL]
    n_words = 300 if args.quick else N_WORDS
    for part, columns in (("iteration", ITERATION_COLUMNS), ("fit", FIT_COLUMNS)):
        if part not in args.only:
            continue
        with common.Results(folder, columns, f"sparse_{part}.csv") as results:
            for n_documents in sizes:
                text = make_text(n_documents, 200 if args.quick else N_TEST, n_words, seed=0)
                rows = iterations(text, args.trials) if part == "iteration" else fits(text, args.ours)
                for row in rows:
                    results.add(documents=n_documents, **row)
                    print(n_documents, row, flush=True)
                for row in measured_before.get(n_documents, []) if part == "fit" else []:
                    results.add(documents=n_documents, **row)
    report(folder)
    return folder


def make_text(n_train: int, n_test: int, n_words: int, seed: int) -> Text:
    rng = np.random.default_rng(seed)
    everyone = np.zeros(n_train + n_test, dtype=int)
    zipf = 1.0 / np.arange(1, n_words + 1)
    # In pieces, because every occurrence of a word is an entry until they are counted.
    pieces = np.array_split(everyone, max(everyone.size // 50_000, 1))
    X = sp.vstack([drawn_counts(rng, zipf[np.newaxis] / zipf.sum(), piece) for piece in pieces], format="csr")
    document_frequency = np.bincount(X[:n_train].indices, minlength=n_words)
    inverse = np.log((1.0 + n_train) / (1.0 + document_frequency)) + 1.0
    X.data = (1.0 + np.log(X.data)) * inverse[X.indices]
    lengths = np.sqrt(np.add.reduceat(np.square(X.data), X.indptr[:-1]))
    X.data /= np.repeat(lengths, np.diff(X.indptr))
    standardized = Standardized.fit(operator_from(X))
    # Of words that at least one document in a hundred has: others cannot be learnt by anybody.
    known = np.flatnonzero(document_frequency >= n_train / 100)
    weights = np.zeros(n_words)
    weights[rng.choice(known, min(N_ACTIVE, known.size // 2), replace=False)] = 1.0
    weights *= rng.standard_normal(n_words)
    scores = standardized.scores(weights)
    scores *= SCORE_STD / scores.std()
    y = (rng.random(scores.size) < expit(scores)).astype(int)
    train, test = slice(n_train), slice(n_train, None)
    return Text(X[train], y[train], X[test], y[test], float(np.mean((scores[test] > 0) == y[test])))


@contextmanager
def compiled_loops(wanted: bool) -> Iterator[None]:
    """With the fast extra, or as though it were not installed."""
    before = os.environ.get("FOLDLESS_COMPILED")
    os.environ["FOLDLESS_COMPILED"] = "1" if wanted else "0"
    kernels.compiled.cache_clear()
    try:
        yield
    finally:
        os.environ.pop("FOLDLESS_COMPILED")
        if before is not None:
            os.environ["FOLDLESS_COMPILED"] = before
        kernels.compiled.cache_clear()


def forms() -> Iterator[str]:
    """Names of what there is to measure, each with its loops in place."""
    with compiled_loops(False):
        yield "NumPy"
    with compiled_loops(True):
        if kernels.compiled("sparse") is not None:
            yield f"fast, threads: {kernels.n_threads()}"


def iterations(text: Text, trials: int) -> Iterator[dict[str, Any]]:
    for form in forms():
        yield {"entries": text.X.nnz, "form": form} | iteration_times(text, trials)


def iteration_times(text: Text, trials: int) -> dict[str, float]:
    """The default's iteration, at the state it has after a few of them, beside SciPy's products with X."""
    n_documents, n_words = text.X.shape
    labels = 2.0 * text.y - 1.0
    problem = starting_problem(text.X, labels, FlippedLabels(Logistic()))
    solver = GAMP()
    solution = solve(problem, solver, stopping=Stopping(max_iter=WARM_UP), tuner=EM(tunable_names(problem)))
    problem, state = solution.problem, solution.state
    cavity = state.score_cavity_mean, state.score_cavity_var, labels
    rng = np.random.default_rng(1)
    w, r = rng.standard_normal(n_words), rng.standard_normal(n_documents)
    transposed = text.X.T
    wall, cpu = least_seconds(
        {
            "products": lambda: (text.X @ w, transposed @ r),
            "iteration": lambda: solver.step(problem, state),
            "channel": lambda: problem.channel.respond(*cavity),
        },
        trials,
    )
    return {
        "products_ms": 1e3 * wall["products"],
        "iteration_ms": 1e3 * wall["iteration"],
        "ratio": wall["iteration"] / wall["products"],
        "cpu_products_ms": 1e3 * cpu["products"],
        "cpu_iteration_ms": 1e3 * cpu["iteration"],
        "cpu_channel_ns": 1e9 * cpu["channel"] / n_documents,
        "load": round(os.getloadavg()[0], 1),
    }


def least_seconds(calls: dict[str, Callable[[], Any]], trials: int) -> tuple[dict[str, float], ...]:
    """The least seconds of each, by the clock on the wall and by that of the processor, taking turns."""
    clocks = (time.perf_counter, time.process_time)
    least = tuple(dict.fromkeys(calls, np.inf) for _ in clocks)
    for _ in range(trials):
        for name, call in calls.items():
            starts = [clock() for clock in clocks]
            call()
            for seconds, clock, start in zip(least, clocks, starts, strict=True):
                seconds[name] = min(seconds[name], clock() - start)
    return least


def rivals_of(path: Path) -> dict[int, list[dict[str, Any]]]:
    """Rows of other methods in an earlier table, by the number of documents."""
    rows = pd.read_csv(path, keep_default_na=False)
    rows = rows[~rows.method.str.startswith("foldless")]
    return {
        int(n): part.drop(columns="documents").to_dict("records") for n, part in rows.groupby("documents")
    }


def fits(text: Text, ours_only: bool = False) -> Iterator[dict[str, Any]]:
    for form in forms():
        # What numba compiles is compiled once per installation, before the clock starts.
        if form != "NumPy":
            common.timed(lambda: SparseClassifier(max_iter=2).fit(text.X[:WARM_ROWS], text.y[:WARM_ROWS]))
        yield measured(f"foldless ({form})", SparseClassifier(), text)
    if ours_only:
        return
    yield measured("SGD, L1, grid", sgd_cv(text), text)
    if has_celer():
        yield measured("celer, grid", celer_cv(text), text)
    liblinear = LogisticRegressionCV(
        Cs=1.0 / penalties(text), cv=FOLDS, penalty="l1", solver="liblinear", scoring="neg_log_loss"
    )
    yield measured("liblinear, L1, CV", liblinear, text)


def measured(method: str, model: Any, text: Text) -> dict[str, Any]:
    cpu = time.process_time()
    done = common.timed(lambda: model.fit(text.X, text.y))
    cpu = time.process_time() - cpu
    return {
        "method": method,
        "seconds": done.seconds,
        "cpu_seconds": cpu,
        "accuracy": float(np.mean(model.predict(text.X_test) == text.y_test)),
        "bayes_accuracy": text.bayes_accuracy,
        "warned": done.warned,
    }


def penalties(text: Text) -> NDArray[np.float64]:
    """From the smallest that silences every word down to a hundredth of it, for sums over documents."""
    strongest = np.abs(text.X.T @ (text.y - text.y.mean())).max()
    return np.geomspace(strongest, strongest / 100.0, PENALTIES)


def sgd_cv(text: Text) -> GridSearchCV:
    """Penalties are per document here."""
    return GridSearchCV(
        SGDClassifier(loss="log_loss", penalty="l1", random_state=0),
        {"alpha": penalties(text) / text.y.size},
        cv=FOLDS,
        scoring="neg_log_loss",
    )


def celer_cv(text: Text) -> GridSearchCV:
    from celer import LogisticRegression as CelerLogisticRegression

    return GridSearchCV(
        CelerLogisticRegression(fit_intercept=False),
        {"C": 1.0 / penalties(text)},
        cv=FOLDS,
        scoring="neg_log_loss",
    )


def report(folder: Path) -> str:
    """The tables, also written into sparse.md."""
    told = []
    iteration, fit = folder / "sparse_iteration.csv", folder / "sparse_fit.csv"
    if iteration.exists():
        rows = pd.read_csv(iteration)
        header = [
            "documents",
            "entries",
            "form",
            "products, ms",
            "iteration, ms",
            "ratio",
            "products, CPU ms",
            "iteration, CPU ms",
            "channel, CPU ns",
            "load",
        ]
        told.append(
            common.markdown(
                header,
                [
                    [
                        f"{row.documents:,}",
                        f"{row.entries:,}",
                        row.form,
                        f"{row.products_ms:.2f}",
                        f"{row.iteration_ms:.2f}",
                        f"{row.ratio:.2f}",
                        f"{row.cpu_products_ms:.2f}",
                        f"{row.cpu_iteration_ms:.2f}",
                        f"{row.cpu_channel_ns:.0f}",
                        f"{row.load:.0f}",
                    ]
                    for row in rows.itertuples()
                ],
            )
        )
    if fit.exists():
        rows = pd.read_csv(fit)
        header = ["documents", "method", "seconds", "CPU seconds", "test accuracy", "of the true model"]
        told.append(
            common.markdown(
                header,
                [
                    [
                        f"{row.documents:,}",
                        row.method,
                        f"{row.seconds:.1f}",
                        f"{row.cpu_seconds:.1f}",
                        f"{row.accuracy:.4f}",
                        f"{row.bayes_accuracy:.4f}",
                    ]
                    for row in rows.itertuples()
                ],
            )
        )
    text = "\n\n".join(told)
    page = folder / "sparse.md"
    if page.exists():
        before, _, rest = page.read_text().partition(common.TABLE_BEGINS)
        after = rest.partition(common.TABLE_ENDS)[2]
        page.write_text(f"{before}{common.TABLE_BEGINS}\n\n{text}\n\n{common.TABLE_ENDS}{after}")
    return text


if __name__ == "__main__":
    print(report(main()))
    sys.exit(0)
