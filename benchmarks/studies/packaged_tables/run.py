"""Real tables of R packages, which no decision about this package was made on, beside ridge and L1.

python -m benchmarks.studies.packaged_tables.run --data DIR [--methods foldless ...] [--tables ...] [--again]

DIR is what export.R has written. Every fit has a process of its own, with one thread; rows that are in
results.csv stay, unless --again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedShuffleSplit

from benchmarks.studies import _common as common
from benchmarks.studies._isolated import clocked, isolated
from benchmarks.studies._real_data import add_data_option, data_folder
from benchmarks.studies._resumable import Key, complete
from benchmarks.studies.large_tables.run import METHODS
from benchmarks.studies.packaged_tables.data import TABLES, files, load
from benchmarks.studies.packaged_tables.plot import FOLDLESS, draw, report

STUDY = Path(__file__).parent
COLUMNS = [
    *("table", "split", "method", "n_train", "n_features", "n_classes", "error", "log_loss"),
    *("loo_error", "loo_log_loss", "p_value", "selected", "groups", "differ", "flags", "outcome"),
    *("seconds", "cpu_seconds", "warned", "peak_mb", "stopped"),
]
KEY = ("table", "split", "method")
TEST_SHARE = 0.3


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=5)
    add_data_option(parser, ["the files of export.R"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--patience", type=float, default=600.0, help="seconds for one fit (default 600)")
    parser.add_argument("--again", action="store_true", help="measure anew what results.csv has already")
    args = parser.parse_args(argv)
    needed = [name for table in args.tables for name in files(table)]
    data = data_folder(args.data, needed, instead="export.R says how they are made")
    folder = common.output_folder(args.out, STUDY, args.quick)
    splits = 1 if args.quick else args.trials
    asked = [(t, s, m) for t in args.tables for s in range(splits) for m in args.methods]

    def measure(key: Key, _: Any) -> dict[str, Any] | None:
        if key[2] == "L1" and np.unique(load(data, key[0])[1]).size > 2:
            return None  # of many classes it is saga's, for minutes: see the studies of many classes
        row = isolated(measured, data, key[0], int(key[1]), key[2], patience=args.patience)
        told = row.get("stopped") or f"error {row['error']:.4f}, log loss {row['log_loss']:.4f}"
        print(f"{key[0]:20s} split {key[1]}  {key[2]:8s} {told}", flush=True)
        return row

    complete(folder, COLUMNS, KEY, asked, measure, again=args.again, patience=args.patience)
    print("\n" + report(folder))
    draw(folder)
    print(f"\nresults.csv, figure.png and machine.json are in {folder}")
    return folder


def measured(data: Path, table: str, split: int, method: str) -> dict[str, Any]:
    return judged(*load(data, table), split, method)


def judged(X: Any, y: Any, split: int, method: str) -> dict[str, Any]:
    """One fit on the clock, judged off the clock."""
    splits = StratifiedShuffleSplit(split + 1, test_size=TEST_SHARE, random_state=0)
    *_, (train, test) = splits.split(np.zeros(y.size), y)
    if np.unique(y).size == 2:
        y = np.where(y == np.unique(y)[1], 1, -1)  # as the grid of L1's penalties has them
    fitted = clocked(partial(METHODS[method], X[train], y[train]))
    model = fitted.result
    proba = model.predict_proba(X[test])
    row = {
        "n_train": train.size,
        "n_features": X.shape[1],
        "n_classes": model.classes_.size,
        "error": float(np.mean(model.predict(X[test]) != y[test])),
        "log_loss": log_loss(y[test], proba, labels=model.classes_),
        **fitted.cost,
    }
    return row | (_of_foldless(model) if method == FOLDLESS else {})


def _of_foldless(model: Any) -> dict[str, Any]:
    return {
        "loo_error": model.loo_error_,
        "loo_log_loss": model.loo_log_loss_,
        "p_value": model.p_value_,
        "selected": int(model.get_support(fdr=0.1).sum()),
        "groups": len(model.groups_),
        "differ": int(np.sum(model.feature_table()["q"] <= 0.1)),
        "flags": " ".join(flag.code for flag in model.flags_),
        "outcome": str(model.outcome_),
    }


if __name__ == "__main__":
    main()
