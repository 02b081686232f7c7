"""Real data of three to eight classes beside cross-validated multinomial ridge and L1 on the same splits.

python -m benchmarks.studies.many_classes.run --data DIR [--only fgl ...] [--methods foldless ...] [--again]

Rows that are in results.csv stay, unless --again.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.studies import _common as common
from benchmarks.studies import _multinomial as multinomial
from benchmarks.studies._isolated import clocked
from benchmarks.studies._real_data import add_data_option, data_folder
from benchmarks.studies._resumable import Key, complete
from benchmarks.studies._rivals import Folds, folds_of
from benchmarks.studies.many_classes import data as sources
from benchmarks.studies.many_classes.plot import FOLDLESS, draw, report

STUDY = Path(__file__).parent
KEY = ("data", "split", "method")
COLUMNS = [
    *KEY,
    "n_classes",
    "n_train",
    "n_features",
    "n_test",
    "error",
    "log_loss",
    "kept",
    "seconds",
    "cpu_seconds",
    "load",
    "penalty",
    "loo_error",
    "loo_log_loss",
    "sparse_weight",
    "n_iter",
    "outcome",
    "warned",
]
FDR = 0.1
N_VALUES, SMALLEST_PENALTY = 10, 0.01


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=10)
    add_data_option(parser, sources.FILES)
    parser.add_argument("--only", nargs="+", choices=sources.NAMES, default=sources.NAMES)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--most-splits", type=int, help="only the first splits of each data set")
    parser.add_argument("--again", action="store_true", help="measure anew what results.csv has already")
    args = parser.parse_args(argv)
    source = (
        None
        if args.quick and args.data is None
        else data_folder(
            args.data, sources.FILES, instead="--quick without either runs on simulated stand-ins"
        )
    )
    folder = common.output_folder(args.out, STUDY, args.quick)
    trials, n_values = (1, 3) if args.quick else (args.trials, N_VALUES)
    most = 1 if args.quick else args.most_splits

    @cache
    def prepared(name: str) -> tuple[sources.Data, list[Any]]:
        data = sources.load(name, source)
        return data, list(sources.splits(data, trials))[:most]

    def measure(key: Key, _: Any) -> dict[str, Any]:
        name, number, method = key
        data, pieces = prepared(name)
        row = measured(method, data, *pieces[int(number)], n_values)
        tell(key, row)
        return row

    asked = [
        (name, number, method)
        for method in args.methods
        for name in args.only
        for number in range(len(prepared(name)[1]))
    ]
    # One thread for everyone: small matrices gain nothing from more, and CPU seconds then mean something.
    with threadpool_limits(1):
        complete(folder, COLUMNS, KEY, asked, measure, again=args.again, values=n_values)
    print("\n" + report(folder))
    draw(folder)
    print(f"\nresults.csv, figure.png and machine.json are in {folder}")
    return folder


def measured(
    method: str, data: sources.Data, train: NDArray[np.int_], test: NDArray[np.int_], n_values: int
) -> dict[str, Any]:
    """One fit on the clock, all tuning and scaling included, judged on the test rows."""
    X, y = data.X[train], data.y[train]
    runs = None if data.runs is None else data.runs[train]
    row: dict[str, Any] = {"load": os.getloadavg()[0]} if hasattr(os, "getloadavg") else {}
    fitted = clocked(partial(METHODS[method], X, y, runs, n_values))
    return {
        **row,
        "n_classes": int(data.y.max()) + 1,
        "n_train": X.shape[0],
        "n_features": X.shape[1],
        "n_test": test.size,
        **fitted.cost,
        **judged(fitted.result, data.X[test], data.y[test]),
    }


def foldless(X: Any, y: NDArray[np.int_], runs: NDArray[np.int_] | None, _: int) -> Any:
    """All defaults; samples of one run are alike, which a leave-one-out must know."""
    model = multinomial.foldless_classifier()
    if runs is not None and "groups" in inspect.signature(model.fit).parameters:
        return model.fit(X, y, groups=runs)
    return model.fit(X, y)


def folds(y: NDArray[np.int_], runs: NDArray[np.int_] | None) -> Folds:
    return folds_of(y, multinomial.N_FOLDS, runs)


METHODS: dict[str, Callable[..., Any]] = {
    FOLDLESS: foldless,
    "ridge": lambda X, y, runs, n_values: multinomial.ridge_cv(X, y, folds(y, runs), n_values),
    "L1": lambda X, y, runs, n_values: multinomial.saga_cv(
        X, y, folds(y, runs), n_values, smallest=SMALLEST_PENALTY
    ),
}


def judged(model: Any, X: NDArray[np.float64], y: NDArray[np.int_]) -> dict[str, Any]:
    """Test error and log loss, and what was kept."""
    if isinstance(model, multinomial.ManyLinear):
        log_proba = model.log_proba(X)
        kept = np.any(model.coef != 0, axis=0)
        about: dict[str, Any] = {"penalty": model.penalty}
    else:
        log_proba = model.predict_log_proba(X)
        kept = model.get_support(fdr=FDR)
        about = {
            "loo_error": model.loo_error_,
            "loo_log_loss": model.loo_log_loss_,
            "sparse_weight": getattr(model, "sparse_weight_", None),
            "n_iter": model.n_iter_,
            "outcome": str(model.outcome_),
        }
    return about | {
        "error": float(np.mean(np.argmax(log_proba, axis=1) != y)),
        "log_loss": -float(np.mean(log_proba[np.arange(y.size), y])),
        "kept": int(kept.sum()),
    }


def tell(key: Key, row: dict[str, Any]) -> None:
    name, number, method = key
    print(
        f"{name:13s} split {number:>2s}  {method:9s} error {row['error']:.4f}  "
        f"log loss {row['log_loss']:.4f}  {row['cpu_seconds']:6.2f} s (wall {row['seconds']:6.2f})  "
        f"kept {row['kept']:3d}  {row.get('outcome', '')} {row['warned']}",
        flush=True,
    )


if __name__ == "__main__":
    main()
