"""Real data under the protocols of the papers, beside cross-validated rivals on the same splits.

python -m benchmarks.studies.real_data.run --data DIR [--protocol a b ...] [--methods foldless ...]

Rows of methods and protocols that are not asked for stay in results.csv. Without --trials each protocol has
its own number of random splits.
"""

from __future__ import annotations

import csv
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from benchmarks.studies import _common as common
from benchmarks.studies import _rivals as rivals
from benchmarks.studies._real_data import add_data_option, data_folder
from benchmarks.studies._resumable import earlier_runs
from benchmarks.studies.real_data.data import FILES, PROTOCOLS, REPETITIONS, Data, Source, Split, splits
from benchmarks.studies.real_data.plot import SELECTORS, draw, report

STUDY = Path(__file__).parent
COLUMNS = [
    "protocol",
    "data",
    "split",
    "method",
    "scaling",
    "n_train",
    "n_features",
    "n_test",
    "errors",
    "error",
    "log_loss",
    "seconds",
    "load",
    "kept",
    "selected",
    "penalty",
    "loo_error",
    "loo_log_loss",
    "n_iter",
    "outcome",
    "warned",
]
N_VALUES, N_FOLDS = 10, 5
FDR = 0.1
# Text wants weaker penalties than tables do: three decades instead of two.
TEXT_SMALLEST_PENALTY = 1e-3


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=0)
    described = "\n".join(f"{letter}: {what}" for letter, what in PROTOCOLS.items()).replace("%", "%%")
    add_data_option(parser, FILES)
    parser.add_argument("--protocol", nargs="+", choices=PROTOCOLS, default=list(PROTOCOLS), help=described)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    args = parser.parse_args(argv)
    source = Source(
        None
        if args.quick and args.data is None
        else data_folder(args.data, FILES, instead="--quick without either runs on simulated stand-ins")
    )
    folder = common.output_folder(args.out, STUDY, args.quick)
    others = rows_of_others(folder / "results.csv", args.protocol, args.methods)
    n_values = 3 if args.quick else N_VALUES
    earlier = earlier_runs(folder / "machine.json") if others else []
    common.write_machine(folder, values=n_values, folds=N_FOLDS, earlier_runs=earlier)

    with common.Results(folder, COLUMNS) as results:
        for row in others:
            results.add(**row)
        for protocol in args.protocol:
            repetitions = args.trials or REPETITIONS.get(protocol, 1)
            for split in splits(source, protocol, min(repetitions, 2) if args.quick else repetitions):
                for method in args.methods:
                    for row, model in measured(method, split, n_values):
                        results.add(**row)
                        tell(row)
                        if protocol == "c" and method == "foldless":
                            write_features(folder, model, split.data)
    print("\n" + report(folder))
    draw(folder)
    print(f"\nresults.csv, figure.png and machine.json are in {folder}")
    return folder


def rows_of_others(path: Path, protocols: Sequence[str], methods: Sequence[str]) -> list[dict[str, str]]:
    """What is in results.csv already and is not to be measured again."""
    rows = common.read_rows(path)
    return [row for row in rows if not (row["protocol"] in protocols and row["method"] in methods)]


def measured(method: str, split: Split, n_values: int = N_VALUES) -> Iterator[tuple[dict[str, Any], Any]]:
    """Fits on the clock, all tuning and scaling included, judged on the test rows: row and model.

    One row; for text, one for each way of scaling that a rival might have chosen.
    """
    data = split.data
    X, y = data.X[split.train], data.y[split.train]
    X_test, y_test = data.X[split.test], data.y[split.test]
    runs = None if data.runs is None else data.runs[split.train]
    for scaling in scalings(method, sparse=sp.issparse(X)):
        # The load before the fit: seconds on a busy machine are not comparable.
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
        model, seconds, warned = common.timed(partial(METHODS[method], X, y, runs, scaling, n_values))
        row = {
            "protocol": split.protocol,
            "data": data.name,
            "split": split.number,
            "method": method,
            "scaling": scaling,
            "n_train": X.shape[0],
            "n_features": X.shape[1],
            "n_test": len(y_test),
            "seconds": seconds,
            "load": load,
            "warned": warned,
        }
        yield row | judged(method, model, X_test, y_test), model


def scalings(method: str, *, sparse: bool) -> tuple[str, ...]:
    if method == "foldless":
        return ("own",)
    # Centring would fill a sparse matrix. Which of the other ways suits is not known beforehand: both are
    # shown, and the better one counts as the rival.
    return ("max-abs", "standardised") if sparse else ("standardised",)


def foldless(X: Any, y: NDArray[np.int_], runs: NDArray[np.int_] | None, *_: Any) -> Any:
    """All defaults, nothing to try; samples of one run are alike, which a leave-one-out must know."""
    from foldless import SparseClassifier  # here, so that rivals run while foldless is being rebuilt

    model = SparseClassifier()
    if runs is not None and "groups" in inspect.signature(model.fit).parameters:
        return model.fit(X, y, groups=runs)
    return model.fit(X, y)


class ScaledLinear(NamedTuple):
    """A rival and the scaling of columns in front of it."""

    scaler: Any
    linear: rivals.Linear
    has_probabilities: bool

    def scores(self, X: Any) -> NDArray[np.float64]:
        return self.scaler.transform(X) @ self.linear.coef + self.linear.intercept


def scaled(
    tuned: Callable[..., rivals.Linear],
    X: Any,
    y: NDArray[np.int_],
    runs: NDArray[np.int_] | None,
    scaling: str,
    n_values: int,
) -> ScaledLinear:
    """A rival, tuned over folds that keep samples of one run together."""
    scaler = MaxAbsScaler() if scaling == "max-abs" else StandardScaler(with_mean=not sp.issparse(X))
    folds = rivals.folds_of(y, N_FOLDS, runs)
    linear = tuned(scaler.fit_transform(X), y, folds, n_values)
    return ScaledLinear(scaler, linear, has_probabilities=tuned is not rivals.tuned_svm)


def tuned_l1(X: Any, y: NDArray[np.int_], folds: rivals.Folds, n_values: int) -> rivals.Linear:
    smallest = TEXT_SMALLEST_PENALTY if sp.issparse(X) else rivals.SMALLEST_PENALTY
    return rivals.tuned_l1(X, y, folds, n_values, smallest)


METHODS: dict[str, Callable[..., Any]] = {
    "foldless": foldless,
    "L1": partial(scaled, tuned_l1),
    "ridge": partial(scaled, rivals.tuned_ridge),
    "SVM": partial(scaled, rivals.tuned_svm),
    "centroids": partial(scaled, rivals.tuned_centroids),
}


def judged(method: str, model: Any, X_test: Any, y_test: NDArray[np.int_]) -> dict[str, Any]:
    """Test error and log loss, and what was kept."""
    if isinstance(model, ScaledLinear):
        scores = model.scores(X_test)
        predicted = np.where(scores > 0, 1, -1)
        selected = model.linear.coef != 0
        about: dict[str, Any] = {"penalty": model.linear.penalty}
        if model.has_probabilities:
            about["log_loss"] = float(np.logaddexp(0.0, -y_test * scores).mean())
    else:
        predicted = model.predict(X_test)
        selected = model.get_support(fdr=FDR)
        about = {
            # Logarithms of probabilities, so that a certain and wrong answer costs what it should.
            "log_loss": -float(
                model.predict_log_proba(X_test)[np.arange(len(y_test)), (y_test + 1) // 2].mean()
            ),
            "loo_error": model.loo_error_,
            "loo_log_loss": model.loo_log_loss_,
            "n_iter": model.n_iter_,
            "outcome": str(model.outcome_),
        }
    errors = int((predicted != y_test).sum())
    return {
        "errors": errors,
        "error": errors / len(y_test),
        "kept": int(selected.sum()),
        "selected": " ".join(map(str, np.flatnonzero(selected))) if method in SELECTORS else "",
        **about,
    }


def write_features(folder: Path, model: Any, data: Data) -> None:
    """leukemia.csv: the selected features by name, then the members of each cluster of twins."""
    chosen = model.get_support(fdr=FDR, indices=True)
    by_inclusion = chosen[np.argsort(-model.inclusion_probability_[chosen], kind="stable")]
    groups: list[tuple[str, str, Any]] = [("", "", by_inclusion)]
    for number, cluster in enumerate(getattr(model, "credible_sets_", ()), start=1):
        probability = getattr(cluster, "probability", None)
        shown = "" if probability is None else f"{probability:.3f}"
        groups.append((str(number), shown, getattr(cluster, "features", cluster)))
    with (folder / "leukemia.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["cluster", "cluster_probability", "name", "description", "inclusion", "weight"])
        for label, probability, features in groups:
            for j in features:
                inclusion, weight = model.inclusion_probability_[j], model.coef_[0, j]
                known = (data.feature_names[j], data.descriptions[j])
                writer.writerow([label, probability, *known, f"{inclusion:.3f}", f"{weight:.3g}"])


def tell(row: dict[str, Any]) -> None:
    print(
        f"{row['protocol']} {row['data']:13s} split {row['split']:3d}  "
        f"{row['method']:9s} {row['scaling']:12s} "
        f"error {row['error']:.4f}  log loss {row.get('log_loss', float('nan')):.4f}  "
        f"{row['seconds']:6.2f} s  kept {row['kept']:5d}  {row.get('outcome', '')} {row['warned']}",
        flush=True,
    )


if __name__ == "__main__":
    main()
