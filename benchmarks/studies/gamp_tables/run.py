"""Tables VIII to X of [Ziniel et al. 2015], on what can be had of their data: text, and pairs of objects.

python -m benchmarks.studies.gamp_tables.run --data DIR

Text: a random 1500 documents of RCV1 in two parts, each trained on in turn. Brain: six pairs of the eight
objects in a slice of 530 voxels, each run left out once and the other eleven trained on, as in table X.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.studies import _common as common
from benchmarks.studies import _rivals as rivals
from benchmarks.studies._isolated import clocked
from benchmarks.studies._real_data import add_data_option, data_folder
from benchmarks.studies._resumable import Key, complete
from benchmarks.studies.all_methods.data import load
from benchmarks.studies.gamp_tables.plot import report
from foldless import GAMPClassifier, SparseClassifier
from foldless.priors import Laplace

STUDY = Path(__file__).parent
FILES = ("rcv1_small.npz", "haxby_slice.npz")
KEY = ("table", "task", "method")
COLUMNS = [*KEY, "error", "tested", "density", "consistency", "cpu_seconds", "warned"]
TEXT = {"VIII": "test", "IX": "train"}  # the part of the documents that is trained on
PAIRS = (
    ("cat", "scissors"),
    ("cat", "shoe"),
    ("cat", "house"),
    ("bottle", "shoe"),
    ("bottle", "chair"),
    ("face", "chair"),
)
# The paper's: a logarithmic grid of ten, by two folds for text and without each run for voxels; of one-bit
# compressed sensing from .1 to 15 % of the features.
N_VALUES, N_FOLDS, SHARES = 10, 2, (1e-3, 0.15)
L1_RATES = np.geomspace(0.3, 30.0, N_VALUES)


class Part(NamedTuple):
    """Labels are -1 and +1; `groups` are runs of the scanner."""

    X: Any
    y: NDArray[np.float64]
    groups: NDArray[Any] | None


class Task(NamedTuple):
    """What to train on and what to predict, once or for every run."""

    X: Any
    y: NDArray[np.float64]
    groups: NDArray[Any] | None
    folds: list[tuple[NDArray[np.intp], NDArray[np.intp]]]


Fitted = tuple[NDArray[np.float64], float, NDArray[np.bool_]]  # weights, intercept, features kept


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=1)
    add_data_option(parser, FILES)
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=tuple(METHODS))
    parser.add_argument("--again", action="store_true", help="measure anew what is there")
    args = parser.parse_args(argv)
    source = data_folder(args.data, FILES)
    folder = common.output_folder(args.out, STUDY, args.quick)

    def measure(key: Key, _: dict[Key, dict[str, Any]]) -> dict[str, Any]:
        row = measured(source, *key, quick=args.quick)
        print(*key, {name: row[name] for name in COLUMNS[3:]}, flush=True)
        return row

    asked = [(*where, method) for where in tasks() for method in args.methods if method in of_table(where[0])]
    complete(folder, COLUMNS, KEY, asked, measure, again=args.again)
    print(report(folder))
    return folder


def tasks() -> Iterator[tuple[str, str]]:
    for table, part in TEXT.items():
        yield table, f"trained on {part}"
    for pair in PAIRS:
        yield "X", " vs. ".join(pair)


def task_of(source: Path, table: str, task: str) -> Task:
    data = load(source, "haxby_slice" if table == "X" else "rcv1_small")
    if table == "X":
        first, second = task.split(" vs. ")
        rows = np.flatnonzero(np.isin(data.y, [first, second]))
        assert data.groups is not None
        y, runs = np.where(data.y[rows] == first, 1.0, -1.0), data.groups[rows]
        folds = [(np.flatnonzero(runs != run), np.flatnonzero(runs == run)) for run in np.unique(runs)]
        return Task(data.X[rows], y, runs, folds)
    with np.load(source / "rcv1_small.npz") as stored:
        trained = stored["split"] == task.rpartition(" ")[2]
    y = np.where(data.y == data.y.max(), 1.0, -1.0)
    return Task(data.X, y, None, [(np.flatnonzero(trained), np.flatnonzero(~trained))])


def measured(source: Path, table: str, task: str, method: str, *, quick: bool = False) -> dict[str, Any]:
    """Errors over all folds, the mean share of features kept, and how alike the kept ones are (Jaccard)."""
    data, fit = task_of(source, table, task), METHODS[method]
    wrong, tested, seconds, kept, warned = 0, 0, 0.0, [], set()
    for train, test in data.folds[: 2 if quick else None]:
        groups = None if data.groups is None else data.groups[train]
        part = Part(data.X[train], data.y[train], groups)
        found = clocked(lambda part=part: fit(part))
        coef, intercept, support = found.result
        wrong += int(np.sum((data.X[test] @ coef + intercept > 0) != (data.y[test] > 0)))
        tested += test.size
        seconds += found.cpu_seconds
        kept.append(support)
        warned.add(found.warned)
    return {
        "error": wrong / tested,
        "tested": tested,
        "density": float(np.mean(kept)),
        "consistency": float(np.mean([jaccard(a, b) for a, b in combinations(kept, 2)]))
        if len(kept) > 1
        else "",
        "cpu_seconds": seconds,
        "warned": " ".join(sorted(warned - {""})),
    }


def jaccard(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> float:
    either = np.count_nonzero(a | b)
    return np.count_nonzero(a & b) / either if either else 1.0


def of_estimator(
    model: GAMPClassifier | SparseClassifier, *, groups: bool = False
) -> Callable[[Part], Fitted]:
    def fit(part: Part) -> Fitted:
        more = {"groups": part.groups} if groups and part.groups is not None else {}
        fitted = model.fit(part.X, part.y, **more)
        return fitted.coef_[0], float(fitted.intercept_[0]), fitted.inclusion_probability_ > 0.5

    return fit


def folds_of(part: Part) -> rivals.Folds:
    n_folds = N_FOLDS if part.groups is None else np.unique(part.groups).size
    return rivals.folds_of(part.y, n_folds, part.groups)


def l1_by_folds(part: Part) -> Fitted:
    """By liblinear (CDN): for text as it is, as in the paper."""
    found = rivals.tuned_l1(part.X, part.y, folds_of(part), N_VALUES)
    return found.coef, found.intercept, found.coef != 0


def max_sum_by_folds(part: Part) -> Fitted:
    def fitted(rate: float, rows: Any) -> Fitted:
        model = GAMPClassifier(Laplace(rate), rule="max-sum", generative_weight=0.0, tune=False)
        return of_estimator(model)(Part(part.X[rows], part.y[rows], None))

    return _chosen(part, fitted, L1_RATES)


def one_bit(part: Part) -> Fitted:
    """The K largest entries of X'y, which is what one-bit compressed sensing comes to (section VI-B)."""

    def fitted(share: float, rows: Any) -> Fitted:
        X, y = part.X[rows], part.y[rows]
        correlation = X.T @ (y - y.mean())
        least = np.sort(np.abs(correlation))[-max(round(share * correlation.size), 1)]
        coef = np.where(np.abs(correlation) >= least, correlation, 0.0)
        scores = X @ coef
        return coef, -float(scores[y > 0].mean() + scores[y < 0].mean()) / 2, coef != 0

    return _chosen(part, fitted, np.geomspace(*SHARES, N_VALUES))


def _chosen(part: Part, fitted: Callable[[float, Any], Fitted], values: NDArray[np.float64]) -> Fitted:
    """At the value with the fewest errors in folds; of those that err equally often the sparsest."""
    errors = np.zeros(values.size)
    for train, left_out in folds_of(part):
        for k, value in enumerate(values):
            coef, intercept, _ = fitted(value, train)
            errors[k] += np.sum((part.X[left_out] @ coef + intercept > 0) != (part.y[left_out] > 0))
    best = np.flatnonzero(errors == errors.min())
    sparsest = best[-1] if values is L1_RATES else best[0]
    return fitted(values[sparsest], np.arange(part.y.size))


METHODS: dict[str, Callable[[Part], Fitted]] = {
    "sum-product, spike and slab, logistic": of_estimator(
        GAMPClassifier("spike-and-slab", generative_weight=0.0)
    ),
    "sum-product, spike and slab, probit": of_estimator(GAMPClassifier("spike-and-slab", "probit")),
    "sum-product, spike and slab, hinge": of_estimator(GAMPClassifier("spike-and-slab", "hinge")),
    "max-sum, L1, learnt": of_estimator(GAMPClassifier("laplace", rule="max-sum", generative_weight=0.0)),
    "max-sum, L1, by folds": max_sum_by_folds,
    "L1 by liblinear, by folds": l1_by_folds,
    "one-bit, by folds": one_bit,
    "SparseClassifier": of_estimator(SparseClassifier(), groups=True),
}


def of_table(table: str) -> tuple[str, ...]:
    """Table X has logistic channels only, and leaves the rate of max-sum to EM."""
    if table == "X":
        without = ("probit", "hinge", "max-sum, L1, by folds")
        return tuple(m for m in METHODS if not m.endswith(without))
    return tuple(METHODS)


if __name__ == "__main__":
    main()
