"""Which few features would do? Panels beside other short lists, on real tables in splits of 70 and 30 %.

python -m benchmarks.studies.which_features.run --data DIR
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler

from benchmarks.studies import _common as common
from benchmarks.studies._real_data import add_data_option, data_folder
from foldless import PanelClassifier, SparseClassifier
from foldless.operators import Standardized, operator_from
from foldless.selection.marginal import class_sums
from foldless.selection.panel import Target, importances, projected

STUDY = Path(__file__).parent
SIZES = (10, 20, 50)
NAMES = ("colon", "leukemia", "breast_west", "p53_subramanian", "methylation_christensen", "brain_pomeroy42")
# Four classes of 29, 25, 18 and 11 samples of 2308 genes, as small round blue cell tumours are.
TUMOURS, N_GENES, N_MARKERS, N_FACTORS = (29, 25, 18, 11), 2308, 40, 12
# Of L1's path and folds, and of stability selection.
N_PENALTIES, N_FOLDS, SUBSAMPLES, STABL_PENALTIES = 20, 5, 30, 8
COLUMNS = [
    "data", "split", "method", "size", "n_features", "error", "log_loss",
    "promised_error", "promised_error_se", "promised_log_loss", "seconds", "features",
]  # fmt: skip
L1: dict[str, Any] = {"solver": "liblinear", "penalty": "l1", "max_iter": 300, "random_state": 0}
# Probabilities below are no surer statement.
LEAST = 1e-6
# Members of two lists count as equal if they are correlated beyond this.
ALIKE = 0.8

Array = NDArray[np.float64]


class Split(NamedTuple):
    X: Array
    y: NDArray[np.intp]
    X_test: Array
    y_test: NDArray[np.intp]


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=8)
    files = [f"{name}.npz" for name in NAMES]
    add_data_option(parser, files)
    parser.add_argument(
        "--stay", choices=("others", "all"), help="whose stored rows stay: others than foldless have, or all"
    )
    args = parser.parse_args(argv)
    if args.quick:
        tables = {"simulated": simulated()}
    else:
        tables = real(data_folder(args.data, files)) | {"srbct-like": four_tumours()}
    folder = common.output_folder(args.out, STUDY, args.quick)
    trials = min(args.trials, 2) if args.quick else args.trials
    stored: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in common.read_rows(folder / "results.csv") if args.stay else []:
        stored.setdefault((row["data"], row["split"], STAGE.get(row["method"], "foldless")), []).append(row)
    common.write_machine(folder, trials=trials)
    with common.Results(folder, COLUMNS) as results:
        parts = {name: list(splits(X, y, trials)) for name, (X, y) in tables.items()}
        # What takes longest comes last, and tables in turn: a run that is cut short has measured all of them.
        for (stage, measure), n, name in itertools.product(STAGES.items(), range(trials), tables):
            rows = stored.get((name, str(n), stage), [])
            if not rows or (stage == "foldless" and args.stay != "all"):
                rows = [{"data": name, "split": n} | row for row in measure(parts[name][n])]
            for row in rows:
                results.add(**row)
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


def four_tumours() -> tuple[Array, NDArray[np.intp]]:
    """Genes of common factors; each class has markers of its own, most of them weak."""
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(len(TUMOURS)), TUMOURS)
    loadings = rng.standard_normal((N_FACTORS, N_GENES)) * (rng.random((N_FACTORS, N_GENES)) < 0.3)
    X = rng.standard_normal((y.size, N_FACTORS)) @ loadings + rng.standard_normal((y.size, N_GENES))
    for label in range(len(TUMOURS)):
        markers = rng.choice(N_GENES, N_MARKERS, replace=False)
        X[np.ix_(y == label, markers)] += rng.standard_exponential(N_MARKERS)
    return X, y


def splits(X: Array, y: NDArray[np.intp], trials: int) -> Iterator[Split]:
    for train, test in StratifiedShuffleSplit(trials, test_size=0.3, random_state=0).split(X, y):
        yield Split(X[train], y[train], X[test], y[test])


def of_foldless(split: Split) -> Iterator[dict[str, Any]]:
    """Rows of the full model, of its panels, and of other orders with the panel's refit."""
    start = time.process_time()
    full = SparseClassifier().fit(split.X, split.y)
    seconds = time.process_time() - start
    yield row_of("full", "all", split, full.predict_log_proba(split.X_test), seconds=seconds)
    yield from _panels(split, full, seconds)
    yield from _refitted(split, full)


def _panels(split: Split, full: SparseClassifier, seconds: float) -> Iterator[dict[str, Any]]:
    for size in (*SIZES, "auto"):
        start = time.process_time()
        panel = PanelClassifier(size, full).fit(split.X, split.y)
        took = seconds + time.process_time() - start
        promised = next(each for each in panel.path_ if each.size == panel.features_.size)
        yield row_of(
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
    ones, n_classes = np.ones(len(split.y)), int(split.y.max()) + 1
    standardized = Standardized.fit(operator_from(split.X), ones)
    new = Standardized(operator_from(split.X_test), standardized.center, standardized.scale)
    target = Target.of(np.asarray(full.predict_log_proba(split.X)), ones)
    ratio = class_sums(standardized, split.y, ones, n_classes).ratio
    importance = importances(standardized, split.y, target, (full.coef_ * standardized.scale).T)
    orders = {
        "t test": np.argsort(table.p.to_numpy(), kind="stable"),
        "inclusion": np.argsort(-table.inclusion.to_numpy(), kind="stable"),
        "mRMR": mrmr(standardized, ratio, max(SIZES)),
    }
    for method, ranked in orders.items():
        for size in SIZES:
            chosen = ranked[:size]
            fit = projected(standardized.columns(chosen), target, importance[chosen])
            yield row_of(method, size, split, fit.log_proba(new.columns(chosen)), chosen)


def mrmr(standardized: Standardized, ratio: Array, n_members: int) -> NDArray[np.intp]:
    """Greedily the largest F over the mean |correlation| with those chosen [Ding and Peng 2005: FCQ]."""
    n_samples, n_features = standardized.shape
    order, redundancy = [int(np.argmax(ratio))], np.zeros(n_features)
    while len(order) < n_members:
        redundancy += np.abs(standardized.adjoint(standardized.columns(order[-1:])[:, 0])) / n_samples
        score = ratio * len(order) / np.maximum(redundancy, 1e-3)
        score[order] = -np.inf
        order.append(int(np.argmax(score)))
    return np.array(order)


def _logistic(penalty: float) -> Any:
    """With an L1 penalty; of several classes, each against the rest."""
    return LogisticRegression(C=1.0 / penalty, **L1)


def _l1_fits(X: Array, y: NDArray[np.intp], penalties: Array) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of paths that liblinear gives up, and of words that change
        fits = [_logistic(each) for each in penalties]
        return [(fit if y.max() == 1 else OneVsRestClassifier(fit)).fit(X, y) for fit in fits]


def _l1(split: Split) -> Iterator[dict[str, Any]]:
    """By cross-validation, by its rule of one standard error, and the path nearest to each size."""
    split = _scaled(split)
    X, y = split.X, split.y
    largest = max(np.abs(X.T @ ((y == c) - np.mean(y == c))).max() for c in range(y.max() + 1))
    penalties = largest * np.geomspace(1.0, 0.01, N_PENALTIES)
    losses = []
    for train, left_out in StratifiedKFold(N_FOLDS, shuffle=True, random_state=0).split(X, y):
        fits = _l1_fits(X[train], y[train], penalties)
        losses.append(
            [log_loss(y[left_out], f.predict_proba(X[left_out]), labels=range(y.max() + 1)) for f in fits]
        )
    mean, error = np.mean(losses, axis=0), np.std(losses, axis=0, ddof=1) / np.sqrt(N_FOLDS)
    best = int(np.argmin(mean))
    fits = _l1_fits(X, y, penalties)
    used = [_used(fit) for fit in fits]
    within = int(np.argmax(mean <= mean[best] + error[best]))
    chosen = [("L1, CV", "auto", best), ("L1, 1 s.e.", "auto", within)]
    chosen += [("L1 path", k, int(np.argmin([abs(each.size - k) for each in used]))) for k in SIZES]
    for method, size, n in chosen:
        yield row_of(method, size, split, _log_proba(fits[n], split.X_test), used[n])


def _scaled(split: Split) -> Split:
    scaler = StandardScaler().fit(split.X)
    return split._replace(X=scaler.transform(split.X), X_test=scaler.transform(split.X_test))


def _used(fit: Any) -> NDArray[np.intp]:
    coef = fit.coef_ if hasattr(fit, "coef_") else np.vstack([each.coef_ for each in fit.estimators_])
    return np.flatnonzero(np.abs(coef).sum(axis=0))


def _log_proba(fit: Any, X: Array) -> Array:
    return np.asarray(np.log(np.maximum(fit.predict_proba(X), LEAST)))


def _stabl(split: Split) -> Iterator[dict[str, Any]]:
    """As its authors describe it [Hedou et al. 2024]: permuted copies of all columns compete with them.

    Frequencies are the largest over penalties of how often L1 takes a column in halves of the samples; the
    threshold has the smallest (1 + copies above it) / columns above it. A logistic regression with a small
    ridge, which serves it better than none, has what is left. The paper has no more than two classes.
    """
    if split.y.max() > 1:
        return
    split = _scaled(split)
    rng = np.random.default_rng(0)
    X, y, p = split.X, split.y, split.X.shape[1]
    both = np.hstack([X, rng.permuted(X, axis=0)])
    largest = np.abs(X.T @ (y - y.mean())).max()
    penalties = largest * np.geomspace(0.7, 0.1, STABL_PENALTIES)
    taken = np.zeros((STABL_PENALTIES, 2 * p))
    for half, _ in StratifiedShuffleSplit(SUBSAMPLES, train_size=0.5, random_state=0).split(X, y):
        for n, fit in enumerate(_l1_fits(both[half], y[half], penalties / 2.0)):
            taken[n] += fit.coef_[0] != 0
    frequency = taken.max(axis=0) / SUBSAMPLES
    levels = np.unique(frequency[frequency > 0])
    real, copies = (np.array([(f >= t).sum() for t in levels]) for f in (frequency[:p], frequency[p:]))
    threshold = levels[int(np.argmin((1.0 + copies) / np.maximum(real, 1)))]
    chosen = np.flatnonzero(frequency[:p] >= threshold)
    if not chosen.size:
        shares = np.log(np.bincount(y) / y.size)
        yield row_of("Stabl", "auto", split, np.tile(shares, (split.y_test.size, 1)), chosen)
        return
    fit = LogisticRegression(C=1.0, max_iter=1000).fit(X[:, chosen], y)
    yield row_of("Stabl", "auto", split, _log_proba(fit, split.X_test[:, chosen]), chosen)


def row_of(
    method: str,
    size: int | str,
    split: Split,
    log_proba: Array,
    features: NDArray[np.intp] | None = None,
    **more: Any,
) -> dict[str, Any]:
    own = np.maximum(log_proba[np.arange(split.y_test.size), split.y_test], np.log(LEAST))
    return {
        "method": method,
        "size": size,
        "n_features": split.X.shape[1] if features is None else features.size,
        "error": float(np.mean(log_proba.argmax(axis=1) != split.y_test)),
        "log_loss": -float(own.mean()),
        "features": "" if features is None else " ".join(map(str, np.sort(features))),
        **more,
    }


STAGES = {"foldless": of_foldless, "L1": _l1, "Stabl": _stabl}
STAGE = {"L1 path": "L1", "L1, CV": "L1", "L1, 1 s.e.": "L1", "Stabl": "Stabl"}


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
