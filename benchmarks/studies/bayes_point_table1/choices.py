"""Why table 1 is missed: single settings of the knapsack on its tables, and ways of choosing on other ones.

python -m benchmarks.studies.bayes_point_table1.choices single --data DIR --only heart --trials 30
python -m benchmarks.studies.bayes_point_table1.choices elsewhere --data DIR --trials 2

`single` has splits with seeds from 1000 on, so none of the study's own, and goes to single_settings.csv: the
mean test error of every setting beside SVM and EP. `elsewhere` has tables that are not in table 1, on which a
default may be chosen, and goes to ways_of_choosing.csv: the test error of averages over some of the settings.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits

from benchmarks.studies import _common as common
from benchmarks.studies._real_data import add_data_option, data_folder
from benchmarks.studies.all_methods.data import load
from benchmarks.studies.bayes_point_table1.plot import PAPER, SETS
from benchmarks.studies.bayes_point_table1.run import Split, random_split, tuned_svm
from foldless import EPBayesPointClassifier
from foldless.solvers.knapsack import Machine
from foldless.solvers.knapsack.settings import (
    COSTS,
    FOLD_BINS,
    Choices,
    Setting,
    folds,
    left_out_margins,
    sweeps_of,
    weighed,
)

STUDY = Path(__file__).parent
FIRST_SEED = 1000
SINGLE, ELSEWHERE = "single_settings.csv", "ways_of_choosing.csv"
# A few more than the default has.
SINGLE_CHOICES = Choices(costs=(0.03, 0.1, *COSTS), betas=(0.1, 1.0, 10.0, np.inf))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=("single", "elsewhere"))
    add_data_option(parser, [f"{name}.npz" for name in SETS])
    parser.add_argument("--only", nargs="*", choices=SETS, default=SETS)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--bins", type=int, default=FOLD_BINS, help=f"of histograms (default {FOLD_BINS})")
    parser.add_argument("--out", type=Path, default=STUDY)
    args = parser.parse_args(argv)
    source = data_folder(args.data, [f"{name}.npz" for name in args.only])
    machine = Machine(n_bins=args.bins)
    if args.part == "single":
        found = (row for name in args.only for row in single(source, name, args.trials, machine))
        keep(args.out / SINGLE, ["data", "bins"], list(found))
        common.refresh_readme(args.out, single_report(args.out), SINGLE)
        return
    path, key = args.out / ELSEWHERE, ["data", "trial", "bins"]
    there = set(pd.read_csv(path).set_index(key).index) if path.exists() else set()
    rows = []
    for row in elsewhere(source, args.trials, machine, there):
        rows.append(row)
        keep(path, key, rows)
    common.refresh_readme(args.out, elsewhere_report(args.out), ELSEWHERE)


def keep(path: Path, key: list[str], rows: list[dict[str, Any]]) -> None:
    """Write rows, beside earlier ones of another key."""
    new = pd.DataFrame(rows).assign(commit=common.commit())
    if path.exists():
        old = pd.read_csv(path)
        again = old.set_index(key).index.isin(new.set_index(key).index)
        new = pd.concat([old[~again], new])
    new.to_csv(path, index=False, float_format="%.6g")


def single_report(folder: Path) -> str:
    """The best and the worst of the settings of each set, with their lead over the SVM on the same splits."""
    rows = []
    for (name, bins), own in pd.read_csv(folder / SINGLE).groupby(["data", "bins"]):
        beside = own[own.loop.isin(["SVM", "EP"])].set_index("loop").error
        settings = own[~own.loop.isin(["SVM", "EP"])].sort_values("error")
        best = settings.iloc[0]
        long = settings[(settings.loop == "inner") & (settings.sweeps == 50)].iloc[0]
        place = SETS.index(str(name))
        rows.append(
            [
                name,
                f"{bins}",
                f"{own.splits.iloc[0]}",
                *(f"{100 * beside[m]:.1f}" for m in ("SVM", "EP")),
                _told(best),
                _told(long),
                f"{100 * settings.error.quantile(0.25):.1f} to {100 * settings.error.quantile(0.75):.1f}",
                f"{PAPER['SVM'][place] - PAPER['knapsack'][place]:+.2f}",
            ]
        )
    header = ["set", "bins", "splits", "SVM", "EP", "best setting, points ahead of SVM", "best of 50 sweeps"]
    return common.markdown([*header, "middle half of settings", "published, ahead of SVM"], rows)


def _told(one: pd.Series) -> str:
    where = f"{one.loop} loop, c = {one.cost:g}, {one.sweeps:.0f} sweeps, β = {one.beta:g}"
    return f"{100 * one.error:.1f}: {100 * one.ahead_of_svm:+.1f} ± {100 * one.standard_error:.1f} ({where})"


def elsewhere_report(folder: Path) -> str:
    results = pd.read_csv(folder / ELSEWHERE)
    coarse = results[results.bins == FOLD_BINS]
    table = 100.0 * coarse.pivot_table(index=["data", "trial"], columns="way", values="error", sort=False)
    for bins, own in results[(results.bins != FOLD_BINS) & (results.way == "default")].groupby("bins"):
        table[f"default, {bins} bins"] = 100.0 * own.set_index(["data", "trial"]).error
    beyond = table.sub(table["default"], axis=0)
    rows = [
        [
            way,
            f"{table[way].count()}",
            f"{table[way].mean():.1f}",
            f"{beyond[way].mean():+.2f} ± {beyond[way].sem():.2f}",
            f"{(beyond[way] < 0).sum()}, {(beyond[way] > 0).sum()}",
        ]
        for way in table
    ]
    header = ["averaged or chosen", "tables", "error %", "beyond the default", "better, worse"]
    return common.markdown(header, rows)


def designs(split: Split) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows y (x, 1) of training and of test samples: a negative product with the weights is an error."""

    def rows(X: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        return y[:, np.newaxis] * np.column_stack([X, np.ones(y.size)])

    return rows(split.X, split.y), rows(split.X_test, split.y_test)


def test_margins(split: Split, settings: list[Setting], machine: Machine) -> NDArray[np.float64]:
    """Of every setting, fitted to all training samples."""
    rows, test = designs(split)
    place = {setting: k for k, setting in enumerate(settings)}
    margins = np.zeros((len(settings), len(test)))
    for setting, sweep in sweeps_of(rows, np.ones(len(rows)), machine, settings, 1e-4):
        margins[place[setting]] = test @ sweep.marginals.at(setting.beta).mean
    return margins


def single(source: Path, name: str, n_splits: int, machine: Machine) -> Iterator[dict[str, Any]]:
    settings = SINGLE_CHOICES.settings
    errors, beside = [], []
    for seed in range(FIRST_SEED, FIRST_SEED + n_splits):
        split = random_split(source, name, seed)
        errors.append(np.mean(test_margins(split, settings, machine) <= 0, axis=1))
        models = tuned_svm(split), EPBayesPointClassifier().fit(split.X, split.y)
        beside.append([np.mean(model.predict(split.X_test) != split.y_test) for model in models])
        print(name, seed, flush=True)
    every = [*((s.outer_every or "", s.cost, s.n_sweeps, s.beta) for s in settings)]
    columns = np.column_stack([np.array(beside), np.array(errors)])
    ahead = columns[:, :1] - columns  # of the SVM, split by split
    for k, (outer, cost, sweeps, beta) in enumerate([("SVM", "", "", ""), ("EP", "", "", ""), *every]):
        yield {
            "data": name,
            "bins": machine.n_bins,
            "splits": n_splits,
            "loop": "outer" if outer == 1 else outer or "inner",
            "cost": cost,
            "sweeps": sweeps,
            "beta": beta,
            "error": columns[:, k].mean(),
            "ahead_of_svm": ahead[:, k].mean(),
            "standard_error": ahead[:, k].std(ddof=1) / np.sqrt(n_splits) if n_splits > 1 else np.nan,
        }


class Way(NamedTuple):
    """Which settings are averaged, and how much an error on left-out samples counts."""

    of: Callable[[Setting], bool] = lambda s: True
    strictness: float = 1.0  # infinity: the setting with the fewest errors


WAYS = {
    "default": Way(),
    "inner loop": Way(lambda s: s.outer_every is None),
    "inner loop, 20 and 50 sweeps": Way(lambda s: s.outer_every is None and s.n_sweeps >= 20),
    "inner loop, 50 sweeps": Way(lambda s: s.outer_every is None and s.n_sweeps == 50),
    "inner loop, 50 sweeps, the best": Way(lambda s: s.outer_every is None and s.n_sweeps == 50, np.inf),
    "outer loop": Way(lambda s: s.outer_every is not None),
    "errors count half": Way(strictness=0.5),
    "errors count twice": Way(strictness=2.0),
    "the best": Way(strictness=np.inf),
}


def elsewhere(
    source: Path, n_trials: int, machine: Machine, there: set[tuple[str, int, int]]
) -> Iterator[dict[str, Any]]:
    choices = Choices()
    settings = choices.settings
    for trial in range(n_trials):
        for name, make in OTHERS.items():
            if (name, trial, machine.n_bins) in there:
                continue
            split = standardised(*make(source, trial))
            rows, _ = designs(split)
            fold = folds(np.column_stack([split.X, np.ones(split.y.size)]), split.y, choices.n_folds)
            assert fold is not None
            left_out = left_out_margins(rows, np.ones(len(rows)), fold, machine, choices)
            margins = test_margins(split, settings, machine)
            for way, (of, strictness) in WAYS.items():
                mine = np.array([of(s) for s in settings])
                share = shares(settings, left_out, mine, strictness)
                error = float(np.mean(share @ margins <= 0))
                yield {"data": name, "trial": trial, "bins": machine.n_bins, "way": way, "error": error}
            print(name, trial, flush=True)


def shares(
    settings: list[Setting], left_out: NDArray[np.float64], mine: NDArray[np.bool_], strictness: float
) -> NDArray[np.float64]:
    weight = np.zeros(len(settings))
    own = [s for s, used in zip(settings, mine, strict=True) if used]
    if np.isinf(strictness):
        errors = np.sum(left_out <= 0, axis=1)
        weight[np.flatnonzero(mine)[np.argmin(errors[mine])]] = 1.0
        return weight
    counted = np.full(left_out.shape[1], strictness)
    weight[mine] = [s.share for s in weighed(own, left_out[mine], counted)]
    return weight


Raw = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


def standardised(X: Any, y: Any, X_test: Any, y_test: Any) -> Split:
    center, scale = X.mean(axis=0), X.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    return Split((X - center) / scale, y, (X_test - center) / scale, y_test)


def simulated(kind: str, n_samples: int, n_features: int, seed: int) -> Raw:
    """Logistic labels of half of the columns, which are correlated, heavy-tailed, skewed or binary."""
    rng, total = np.random.default_rng(seed), n_samples + 2000
    correlation = 0.6 ** np.abs(np.subtract.outer(np.arange(n_features), np.arange(n_features)))
    X = rng.standard_normal((total, n_features)) @ np.linalg.cholesky(correlation).T
    if kind == "binary":
        X = (rng.random(X.shape) < rng.uniform(0.1, 0.5, n_features)).astype(np.float64)
    elif kind == "heavy tails":
        X = rng.standard_t(3, X.shape)
    elif kind == "skewed":
        X = np.exp(0.7 * X)
    weights = rng.standard_normal(n_features) * (rng.random(n_features) < 0.5)
    score = (X - X.mean(axis=0)) / X.std(axis=0) @ weights
    score *= (3.0 if kind == "wrong labels" else 1.5) / score.std()
    y = np.where(rng.random(total) < 1.0 / (1.0 + np.exp(-score)), 1.0, -1.0)
    if kind == "wrong labels":
        y = np.where(rng.random(total) < 0.15, -y, y)
    return X[:n_samples], y[:n_samples], X[n_samples:], y[n_samples:]


def drawn(X: Any, y: Any, n_samples: int, seed: int) -> Raw:
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:n_samples], order[n_samples:]
    return X[train], y[train], X[test], y[test]


def glass(source: Path, seed: int) -> Raw:
    """The two commonest kinds."""
    data = load(source, "fgl")
    kinds, counts = np.unique(data.y, return_counts=True)
    return pair(data.X, data.y, *kinds[np.argsort(-counts)[:2]], 100, seed)


def voxels(source: Path, seed: int, first: str, second: str) -> Raw:
    data = load(source, "haxby_slice")
    some = np.random.default_rng(0).choice(data.X.shape[1], 40, replace=False)
    return pair(data.X[:, some], data.y, first, second, 130, seed)


def pair(X: Any, y: Any, first: Any, second: Any, n_samples: int, seed: int) -> Raw:
    rows = np.isin(y, [first, second])
    return drawn(X[rows], np.where(y[rows] == first, 1.0, -1.0), n_samples, seed)


def tumours(_: Path, seed: int) -> Raw:
    X, y = load_breast_cancer(return_X_y=True)
    return drawn(X, 2.0 * y - 1.0, 150, seed)


def digits(_: Path, seed: int) -> Raw:
    return pair(*load_digits(return_X_y=True), 3, 8, 80, seed)


def _simulated(kind: str, n_samples: int, n_features: int) -> Callable[[Path, int], Raw]:
    return lambda _, seed: simulated(kind, n_samples, n_features, seed)


OTHERS: dict[str, Callable[[Path, int], Raw]] = {
    "correlated, 12": _simulated("correlated", 150, 12),
    "heavy tails, 12": _simulated("heavy tails", 150, 12),
    "binary, 12": _simulated("binary", 250, 12),
    "wrong labels, 8": _simulated("wrong labels", 250, 8),
    "skewed, 15": _simulated("skewed", 200, 15),
    "glass": glass,
    "tumours": tumours,
    "correlated, 40": _simulated("correlated", 150, 40),
    "bottle, shoe": lambda source, seed: voxels(source, seed, "bottle", "shoe"),
    "cat, scissors": lambda source, seed: voxels(source, seed, "cat", "scissors"),
    "digits": digits,
}


if __name__ == "__main__":
    main()
