"""Tables too large for exact covariances, beside cross-validated ridge and L1: error, and what was promised.

python -m benchmarks.studies.large_tables.run [--methods foldless ...] [--tables ...] [--again]

Every fit has a process of its own, with one thread. Rows that are in results.csv stay, unless --again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.studies import _common as common
from benchmarks.studies import _multinomial as multinomial
from benchmarks.studies import _rivals as rivals
from benchmarks.studies._isolated import clocked, isolated
from benchmarks.studies._resumable import Key, complete
from benchmarks.studies.large_tables.data import TABLES
from benchmarks.studies.large_tables.plot import FOLDLESS, draw, report

STUDY = Path(__file__).parent
COLUMNS = [
    "table",
    "trial",
    "method",
    "n_train",
    "n_features",
    "error",
    "log_loss",
    "loo_error",
    "loo_log_loss",
    "sparse_weight",
    "kept",
    "seconds",
    "cpu_seconds",
    "load",
    "outcome",
    "warned",
    "peak_mb",
    "stopped",
]
KEY = ("table", "trial", "method")
N_FOLDS, STRENGTHS = 5, np.geomspace(1e-4, 1e3, 10)
QUICK_SHARE = 0.1


def cross_validated(penalty: str, X: Any, y: Any) -> Any:
    """Ten penalties, five folds, by log loss; dense columns are standardised, text is as it is."""
    if penalty == "l1":
        scaled = X if sp.issparse(X) else StandardScaler().fit_transform(X)
        penalties = rivals.penalty_grid(scaled, np.where(y > 0, 1.0, -1.0), STRENGTHS.size)
        model = rivals.l1_logistic_cv(1.0 / penalties, N_FOLDS)
    else:
        model = rivals._logistic_cv("l2", STRENGTHS, N_FOLDS, solver="lbfgs", max_iter=1000)
    return (model if sp.issparse(X) else make_pipeline(StandardScaler(), model)).fit(X, y)


METHODS: dict[str, Callable[[Any, Any], Any]] = {
    FOLDLESS: lambda X, y: multinomial.foldless_classifier().fit(X, y),
    "ridge": partial(cross_validated, "l2"),
    "L1": partial(cross_validated, "l1"),
}


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=3)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--patience", type=float, default=900.0, help="seconds for one fit (default 900)")
    parser.add_argument("--again", action="store_true", help="measure anew what results.csv has already")
    args = parser.parse_args(argv)
    folder = common.output_folder(args.out, STUDY, args.quick)
    trials = 1 if args.quick else args.trials
    asked = [
        (table, trial, method) for table in args.tables for trial in range(trials) for method in args.methods
    ]
    share = QUICK_SHARE if args.quick else 1.0

    def measure(key: Key, _: Any) -> dict[str, Any] | None:
        if key[2] == "L1" and not key[0].endswith("2 classes"):
            return None  # of many classes it is saga's, for minutes: see the studies of many classes
        row: dict[str, Any] = {"load": os.getloadavg()[0]} if hasattr(os, "getloadavg") else {}
        row |= isolated(measured, key[0], int(key[1]), key[2], share, patience=args.patience)
        told = row.get("stopped") or f"error {row['error']:.4f}, log loss {row['log_loss']:.4f}"
        print(f"{key[0]:32s} trial {key[1]}  {key[2]:8s} {told}", flush=True)
        return row

    complete(folder, COLUMNS, KEY, asked, measure, again=args.again, patience=args.patience)
    print("\n" + report(folder))
    draw(folder)
    print(f"\nresults.csv, figure.png and machine.json are in {folder}")
    return folder


def measured(table: str, trial: int, method: str, share: float) -> dict[str, Any]:
    """One fit on the clock, judged off the clock."""
    data = TABLES[table](np.random.default_rng(trial), share)
    fitted = clocked(partial(METHODS[method], data.X, data.y))
    model = fitted.result
    proba = model.predict_proba(data.X_test)
    row = {
        "n_train": data.y.size,
        "n_features": data.X.shape[1],
        "error": float(np.mean(model.classes_[np.argmax(proba, axis=1)] != data.y_test)),
        "log_loss": log_loss(data.y_test, proba, labels=model.classes_),
        **fitted.cost,
    }
    if method == FOLDLESS:
        row |= {
            "loo_error": model.loo_error_,
            "loo_log_loss": model.loo_log_loss_,
            "sparse_weight": sum(share.weight for share in model.models_ if share.code == "sparse"),
            "kept": int(np.sum(model.inclusion_probability_ > 0.5)),
            "outcome": str(model.outcome_),
        }
    return row


if __name__ == "__main__":
    main()
