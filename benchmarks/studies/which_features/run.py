"""Which few features would do? Panels beside other short lists, on real tables in splits of 70 and 30 %.

python -m benchmarks.studies.which_features.run --data DIR
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler

from benchmarks.studies import _common as common
from benchmarks.studies._real_data import add_data_option, data_folder
from foldless import PanelClassifier, SparseClassifier
from foldless.operators import Standardized, operator_from
from foldless.selection.panel import Target, projected

STUDY = Path(__file__).parent
SIZES = (10, 20, 50)
NAMES = ("colon", "leukemia", "breast_west")
COLUMNS = [
    "data", "split", "method", "size", "n_features", "error", "log_loss",
    "promised_error", "promised_error_se", "promised_log_loss", "seconds", "features",
]  # fmt: skip
# Members of two lists count as equal if they are correlated beyond this.
ALIKE = 0.8

Array = NDArray[np.float64]


class Split(NamedTuple):
    X: Array
    y: NDArray[np.intp]
    X_test: Array
    y_test: NDArray[np.intp]


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=4)
    files = [f"{name}.npz" for name in NAMES]
    add_data_option(parser, files)
    args = parser.parse_args(argv)
    tables = {"simulated": simulated()} if args.quick else real(data_folder(args.data, files))
    folder = common.output_folder(args.out, STUDY, args.quick)
    trials = min(args.trials, 2) if args.quick else args.trials
    common.write_machine(folder, trials=trials)
    with common.Results(folder, COLUMNS) as results:
        for name, (X, y) in tables.items():
            for n, split in enumerate(splits(X, y, trials)):
                for row in measured(split):
                    results.add(data=name, split=n, **row)
    table = report(folder, tables)
    print(table)
    if not args.quick:
        common.refresh_readme(folder, table)
    return folder


def real(folder: Path) -> dict[str, tuple[Array, NDArray[np.intp]]]:
    found = {}
    for name in NAMES:
        with np.load(folder / f"{name}.npz") as file:
            found[name] = (file["X"].astype(np.float64), np.unique(file["y"], return_inverse=True)[1])
    return found


def simulated() -> tuple[Array, NDArray[np.intp]]:
    """Sixty samples of 300 columns with three common factors, the classes apart in one of them."""
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((60, 3))
    X = rng.standard_normal((60, 300)) + factors @ rng.standard_normal((3, 300))
    return X, (factors[:, 0] + 0.3 * rng.standard_normal(60) > 0).astype(np.intp)


def splits(X: Array, y: NDArray[np.intp], trials: int) -> Iterator[Split]:
    for train, test in StratifiedShuffleSplit(trials, test_size=0.3, random_state=0).split(X, y):
        yield Split(X[train], y[train], X[test], y[test])


def measured(split: Split) -> Iterator[dict[str, Any]]:
    start = time.process_time()
    full = SparseClassifier().fit(split.X, split.y)
    seconds = time.process_time() - start
    yield _row("full", "all", split, full.predict_log_proba(split.X_test), seconds=seconds)
    yield from _panels(split, full, seconds)
    yield from _refitted(split, full)
    yield from _l1(split)


def _panels(split: Split, full: SparseClassifier, seconds: float) -> Iterator[dict[str, Any]]:
    for size in (*SIZES, "auto"):
        start = time.process_time()
        panel = PanelClassifier(size, full).fit(split.X, split.y)
        took = seconds + time.process_time() - start
        promised = next(each for each in panel.path_ if each.size == panel.features_.size)
        yield _row(
            "panel",
            size,
            split,
            panel.predict_log_proba(split.X_test),
            panel.features_,
            seconds=took,
            promised_error=promised.error,
            promised_error_se=promised.error_se,
            promised_log_loss=promised.log_loss,
        )


def _refitted(split: Split, full: SparseClassifier) -> Iterator[dict[str, Any]]:
    """Other orders, with the panel's own refit."""
    table = full.feature_table()
    ones = np.ones(len(split.y))
    standardized = Standardized.fit(operator_from(split.X), ones)
    new = Standardized(operator_from(split.X_test), standardized.center, standardized.scale)
    target = Target.of(np.asarray(full.predict_log_proba(split.X)), ones)
    for method, order in (("t test", table.p), ("inclusion", -table.inclusion)):
        ranked = np.argsort(order.to_numpy(), kind="stable")
        for size in SIZES:
            chosen = ranked[:size]
            fit = projected(standardized.columns(chosen), target)
            yield _row(method, size, split, fit.log_proba(new.columns(chosen)), chosen)


def _l1(split: Split) -> Iterator[dict[str, Any]]:
    """By cross-validation, and the model of the path that is nearest to each size."""
    scaler = StandardScaler().fit(split.X)
    X, X_test = scaler.transform(split.X), scaler.transform(split.X_test)
    path = np.logspace(-2.5, 1.5, 25)
    options = {"solver": "liblinear", "penalty": "l1", "max_iter": 500, "random_state": 0}
    with np.errstate(all="ignore"):
        tuned = common.timed(
            lambda: LogisticRegressionCV(Cs=path, cv=5, scoring="neg_log_loss", **options).fit(X, split.y)
        ).result
        fits = common.timed(lambda: [LogisticRegression(C=c, **options).fit(X, split.y) for c in path]).result
    used = [np.flatnonzero(fit.coef_[0]) for fit in fits]
    yield _row("L1, tuned", "auto", split, tuned.predict_log_proba(X_test), np.flatnonzero(tuned.coef_[0]))
    for size in SIZES:
        nearest = int(np.argmin([abs(each.size - size) for each in used]))
        yield _row("L1 path", size, split, fits[nearest].predict_log_proba(X_test), used[nearest])


def _row(
    method: str,
    size: int | str,
    split: Split,
    log_proba: Array,
    features: NDArray[np.intp] | None = None,
    **more: Any,
) -> dict[str, Any]:
    own = np.maximum(log_proba[np.arange(split.y_test.size), split.y_test], -50.0)
    return {
        "method": method,
        "size": size,
        "n_features": split.X.shape[1] if features is None else features.size,
        "error": float(np.mean(log_proba.argmax(axis=1) != split.y_test)),
        "log_loss": -float(own.mean()),
        "features": "" if features is None else " ".join(map(str, np.sort(features))),
        **more,
    }


def agreement(lists: Sequence[set[int]], X: Array | None = None) -> float:
    """Mean Jaccard index of pairs of lists; with X, members that are correlated beyond 0.8 are equal."""
    found = []
    for first, second in itertools.combinations(lists, 2):
        if not first or not second:
            continue
        if X is None:
            found.append(len(first & second) / len(first | second))
            continue
        one, two = sorted(first), sorted(second)
        related = np.abs(np.corrcoef(X[:, one + two].T)[: len(one), len(one) :]) > ALIKE
        matched = (related.any(axis=0).sum() + related.any(axis=1).sum()) / (len(one) + len(two))
        found.append(matched / (2.0 - matched))
    return float(np.mean(found)) if found else np.nan


def report(folder: Path, tables: dict[str, tuple[Array, NDArray[np.intp]]]) -> str:
    results = pd.read_csv(folder / "results.csv", dtype={"size": str, "features": str}).fillna(
        {"features": ""}
    )
    rows = []
    for (size, method), of_method in results.groupby(["size", "method"], sort=True):
        exact, alike = [], []
        for name, of_table in of_method.groupby("data"):
            lists = [{int(j) for j in text.split()} for text in of_table.features]
            exact.append(agreement(lists))
            alike.append(agreement(lists, tables[str(name)][0]))
        promised = of_method.promised_error - of_method.error
        rows.append(
            [
                size,
                method,
                common.mean_only(of_method.n_features),
                common.mean_and_error(of_method.error),
                common.mean_and_error(of_method.log_loss),
                common.mean_and_error(promised),
                common.mean_only(of_method.promised_error_se, 3),
                common.mean_only(pd.Series(exact), 2),
                common.mean_only(pd.Series(alike), 2),
            ]
        )
    header = ["size", "method", "features", "error", "log loss", "promised - error", "promised s.e."]
    return common.markdown([*header, "agreement", "with twins"], rows)


if __name__ == "__main__":
    main()
