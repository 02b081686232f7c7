"""A tuned fit beside L1 and ridge tuned by cross-validation: CPU time, all in one process and one thread.

python -m benchmarks.peers.cross_validation.run --data DIR [--only colon ...] [--again] [--revision NAME]

Rivals choose among ten penalties by five folds. Their rows stay unless --again; ours are of a revision, and
are measured anew whenever they are asked for. Times are of the processor, the least of up to three fits.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks.peers.cross_validation.report import FOLDLESS, RIVALS, report
from benchmarks.peers.cross_validation.tables import TABLES
from benchmarks.studies import _common as common
from benchmarks.studies import _rivals as rivals
from benchmarks.studies._real_data import add_data_option
from benchmarks.studies._resumable import stored_rows

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
KEY = ("table", "method", "revision")
COLUMNS = [*KEY, "samples", "features", "classes", "cpu_seconds", "fits", "pace", "load", "outcome", "models"]
N_VALUES, N_FOLDS = 10, 5
# The values of scikit-learn's own default, Cs=10.
RIDGE_STRENGTHS = np.geomspace(1e-4, 1e4, N_VALUES)
# A fit is repeated as long as all of them together stay below this; what is slow is hardly noisy.
PATIENCE, MOST_FITS = 15.0, 3
# Above so many parameters, one Newton step of a Hessian of all of them costs more than a path by lbfgs.
MOST_FOR_NEWTON = 1000
QUICK_SHARE = 0.05
Fit = Callable[[Any, Any], Any]


def main(argv: Sequence[str] | None = None) -> Path:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add_data_option(parser, ["the real tables"])
    parser.add_argument("--only", nargs="+", choices=TABLES, default=list(TABLES), metavar="NAME")
    parser.add_argument("--methods", nargs="+", choices=(FOLDLESS, *RIVALS), default=(FOLDLESS, *RIVALS))
    parser.add_argument("--again", action="store_true", help="measure rivals anew, too")
    parser.add_argument("--revision", help="name of our rows (default: the commit)")
    parser.add_argument("--quick", action="store_true", help="small tables, to see that everything runs")
    parser.add_argument("--out", type=Path, help="folder for results.csv; this one, if not quick")
    args = parser.parse_args(argv)
    if args.data is None and not args.quick:
        parser.error("name the folder of real tables with --data DIR or in FOLDLESS_DATA")
    folder = common.output_folder(args.out, HERE, args.quick)
    revision = args.revision or common.commit()
    rows = stored_rows(folder / "results.csv", KEY)
    with threadpool_limits(1):
        warm_up()
        for name in args.only:
            X, y = TABLES[name].make(args.data, QUICK_SHARE if args.quick else 1.0)
            for method, fit in methods(X, y).items():
                key = (name, method, revision if method == FOLDLESS else "")
                if method not in args.methods or (method != FOLDLESS and key in rows and not args.again):
                    continue
                about = {"samples": X.shape[0], "features": X.shape[1], "classes": np.unique(y).size}
                found = measured(fit, X, y, 1 if args.quick else MOST_FITS)
                rows[key] = dict(zip(KEY, key, strict=True)) | about | found
                write(folder, rows)
                print(
                    f"{name:33s} {method:24s} {found['cpu_seconds']:8.3f} s  "
                    f"pace {found['pace']:.2f}  {found['outcome']}",
                    flush=True,
                )
    common.write_machine(folder, revision=revision)
    print("\n" + report(folder, revision))
    return folder


def methods(X: Any, y: Any) -> dict[str, Fit]:
    """Ours, and the rivals that a sensible user would try on a table of this shape."""
    n_classes, (n_samples, n_features) = np.unique(y).size, X.shape
    found: dict[str, Fit] = {FOLDLESS: foldless, "ridge, lbfgs": ridge(solver="lbfgs")}
    if n_classes == 2:
        found["L1, liblinear"] = lasso
        found["ridge, liblinear"] = ridge(solver="liblinear", dual=n_features > n_samples, random_state=0)
    if not sp.issparse(X) and n_features * (1 if n_classes == 2 else n_classes) <= MOST_FOR_NEWTON:
        found["ridge, newton-cholesky"] = ridge(solver="newton-cholesky")
    return found


def foldless(X: Any, y: Any) -> Any:
    from foldless import SparseClassifier

    return SparseClassifier().fit(X, y)


def lasso(X: Any, y: Any) -> Any:
    scaled = scaler(X).fit_transform(X)
    penalties = rivals.penalty_grid(scaled, np.where(y == np.max(y), 1.0, -1.0), N_VALUES)
    return rivals.l1_logistic_cv(1.0 / penalties, N_FOLDS).fit(scaled, y)


def ridge(**solver: Any) -> Fit:
    def fit(X: Any, y: Any) -> Any:
        model = rivals._logistic_cv("l2", RIDGE_STRENGTHS, N_FOLDS, **solver)
        return make_pipeline(scaler(X), model).fit(X, y)

    return fit


def scaler(X: Any) -> Any:
    """Columns of one size; text keeps its zeros."""
    return MaxAbsScaler() if sp.issparse(X) else StandardScaler()


def measured(fit: Fit, X: Any, y: Any, most: int) -> dict[str, Any]:
    """The least CPU time of a few fits, and how fast the machine was meanwhile."""
    cpu: list[float] = []
    paces = [pace()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while len(cpu) < most and sum(cpu) < PATIENCE:
            start = time.process_time()
            model = fit(X, y)
            cpu.append(time.process_time() - start)
    paces.append(pace())
    return {
        "cpu_seconds": min(cpu),
        "fits": len(cpu),
        "pace": float(np.mean(paces)),
        "load": os.getloadavg()[0],
        "outcome": str(getattr(model, "outcome_", "")),
        "models": len(getattr(model, "models_", ())) or "",
    }


def pace() -> float:
    """CPU milliseconds of a fixed piece of work: a neighbour on the same core slows down all others.

    Half of it is arithmetic, half is reading. Rows of different hours are compared at equal pace.
    """
    X = np.random.default_rng(0).standard_normal((400, 5000))
    v = np.ones(5000)
    spent = []
    for _ in range(3):
        start = time.process_time()
        X @ X.T
        for _ in range(10):
            X @ v
        spent.append(1000 * (time.process_time() - start))
    return min(spent)


def warm_up() -> None:
    """Imports and compiled loops, of two classes and of more, dense and sparse."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 100))
    rare = sp.random(60, 100, 0.05, format="csr", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for matrix in (X, rare):
            for n_classes in (2, 3):
                for fit in methods(matrix, np.arange(60) % n_classes).values():
                    fit(matrix, np.arange(60) % n_classes)


def write(folder: Path, rows: dict[Any, dict[str, Any]]) -> None:
    """All rows in the order of the tables."""
    place = {name: i for i, name in enumerate((*TABLES, FOLDLESS, *RIVALS))}
    ordered = sorted(rows.values(), key=lambda row: (place[row["table"]], place[row["method"]]))
    with common.Results(folder, COLUMNS) as results:
        for row in ordered:
            results.add(**row)


if __name__ == "__main__":
    main()
