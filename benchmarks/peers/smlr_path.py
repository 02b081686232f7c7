"""Seconds of a 100-point L1 path: foldless with and without its fast extra, celer, skglm, adelie.

python -m benchmarks.peers.smlr_path --data DIR

Every solver goes through the same rates, without intercept, at the loosest of its own tolerances that brings
the duality gap, relative to the objective, below the same value everywhere. What a solver compiles at its
first call is compiled before the clock starts. Seconds are those of the processor, the least of three runs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.studies import _common as common
from benchmarks.studies.smlr_table2.checks import dense_regression, path_rates, regression
from benchmarks.studies.smlr_table2.run import checked_source
from foldless import kernels
from foldless.datasets import make_class_means
from foldless.solvers.smlr import L1, Regression, Stop, path
from foldless.solvers.smlr.design import duality_gap

PEERS = Path(__file__).parent
COLUMNS = ["data", "solver", "tolerance", "gap", "seconds"]
SAME_GAP = 1e-6
RUNS = 3
SOLVERS = ("foldless (NumPy)", "foldless (fast)", "adelie", "skglm", "celer")
Run = Callable[[float], list[Any]]


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=RUNS)
    parser.add_argument("--data", type=Path, default=os.environ.get("FOLDLESS_DATA"))
    parser.add_argument("--only", nargs="*", choices=SOLVERS, help="solvers, if not all")
    args = parser.parse_args(argv)
    source = checked_source(args.data)
    folder = common.output_folder(args.out, PEERS, args.quick)
    rows = []
    for name, problem in problems(source, args.quick):
        rates = path_rates(problem, 10 if args.quick else 100)
        for solver, run in solvers(problem, rates, args.only or SOLVERS).items():
            rows.append({"data": name, "solver": solver} | measured(problem, rates, run, args.trials))
            print(rows[-1], flush=True)
    pd.DataFrame(rows, columns=COLUMNS).to_csv(folder / "smlr_path.csv", index=False)
    return folder


def problems(source: Path, quick: bool) -> Iterator[tuple[str, Regression]]:
    for name in ("colon", "leukemia"):
        yield name, regression(source, name, intercept=False)
    data = make_class_means(300, 300 if quick else 30_000, 20, random_state=0)
    yield "300 x 30 000", dense_regression(data.X, data.y, intercept=False)


def measured(problem: Regression, rates: Any, run: Run, n_runs: int) -> dict[str, Any]:
    """The loosest tolerance that reaches the gap, in half decades, and the seconds it takes."""
    gap, tolerance = np.inf, np.nan
    for tolerance in 10.0 ** -np.arange(3.0, 18.0, 0.5):
        weights = run(tolerance)
        gap = max(relative_gap(problem, w, r) for w, r in zip(weights, rates, strict=True))
        if gap <= SAME_GAP:
            break
    seconds = []
    for _ in range(n_runs):
        start = time.process_time()
        run(tolerance)
        seconds.append(time.process_time() - start)
    return {"tolerance": float(tolerance), "gap": float(gap), "seconds": min(seconds)}


def relative_gap(problem: Regression, weights: Any, rate: float) -> float:
    at = problem.labels.at(problem.operator.scores(weights[:, np.newaxis]))
    penalty = L1(float(rate))
    gradient = problem.operator.adjoint(at.residual)
    gap = duality_gap(problem.labels, penalty, at, weights[:, np.newaxis], gradient)
    return gap / (at.loss + penalty.value(weights))


def solvers(problem: Regression, rates: Any, wanted: Sequence[str]) -> dict[str, Run]:
    """Name to a call that gives the weights at every rate to a tolerance of its own kind."""
    X = problem.operator.X  # type: ignore[attr-defined]
    y = np.where(problem.labels.code == problem.labels.free[0], 1.0, -1.0)
    found: dict[str, Run] = {}
    if "foldless (NumPy)" in wanted:
        found["foldless (NumPy)"] = _in_numpy(_foldless(problem, rates))
    if "foldless (fast)" in wanted and kernels.compiled("smlr") is not None:
        found["foldless (fast)"] = _foldless(problem, rates)
        found["foldless (fast)"](1e-2)
    for name, make in (("adelie", _adelie), ("skglm", _skglm), ("celer", _celer)):
        if name not in wanted:
            continue
        try:
            run = make(X, y, rates)
            run(1e-2)
            found[name] = run
        except ImportError:
            print(f"{name} is not installed and left out", file=sys.stderr)
    return found


def _foldless(problem: Regression, rates: Any) -> Run:
    n_columns = problem.operator.shape[1]
    return lambda tol: [f.coef(n_columns)[:, 0] for f in path(problem, L1, rates, stop=Stop(tol))]


def _in_numpy(run: Run) -> Run:
    """The same without what numba compiles."""

    def plain(tol: float) -> list[Any]:
        compiled = kernels.compiled
        try:
            kernels.compiled = lambda name: None  # type: ignore[assignment]
            return run(tol)
        finally:
            kernels.compiled = compiled

    return plain


def _celer(X: Any, y: Any, rates: Any) -> Run:
    from celer import celer_path

    return lambda tol: list(celer_path(X, y, pb="logreg", alphas=rates, tol=tol)[1].T)


def _skglm(X: Any, y: Any, rates: Any) -> Run:
    from skglm.datafits import Logistic
    from skglm.penalties import L1 as SkglmL1
    from skglm.solvers import ProxNewton

    def run(tol: float) -> list[Any]:
        solver = ProxNewton(tol=tol, fit_intercept=False, warm_start=True, max_iter=100)
        weights, start, scores = [], np.zeros(X.shape[1]), np.zeros(y.size)
        for rate in rates:
            penalty = SkglmL1(float(rate) / y.size)
            # The solver writes into what it starts from.
            start = solver.solve(X, y, Logistic(), penalty, start.copy(), scores)[0].copy()
            scores = X @ start
            weights.append(start)
        return weights

    return run


def _adelie(X: Any, y: Any, rates: Any) -> Run:
    import adelie

    def run(tol: float) -> list[Any]:
        state = adelie.grpnet(
            X,
            adelie.glm.binomial((y + 1) / 2, dtype=np.float64),
            lmda_path=rates / y.size,
            intercept=False,
            tol=tol,
            irls_tol=tol,
            early_exit=False,
            progress_bar=False,
        )
        return [np.asarray(b.todense()).ravel() for b in state.betas]

    return run


if __name__ == "__main__":
    main()
