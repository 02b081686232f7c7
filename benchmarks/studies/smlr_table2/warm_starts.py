"""Do fits that end early and begin where another fold ended explain what the paper's SMLR keeps and errs?

The paper starts each fit of a series (folds, random splits) from the weights of the one before, and holds
that this changes nothing, since its objective is concave. That is so for fits that arrive. Here the
component-wise algorithm is run as printed until a sweep changes the weights by a thousandth, from zero and
from the weights of the fold before, which has seen the labels that are tested next; beside both, the optimum.

python -m benchmarks.studies.smlr_table2.warm_starts --data DIR
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics.pairwise import pairwise_kernels

from benchmarks.studies import _common as common
from benchmarks.studies.smlr_table2.plot import PAPER
from benchmarks.studies.smlr_table2.run import (
    KERNELS,
    Split,
    checked_source,
    splits,
    tuned_svm,
    width_of_the_set,
)
from foldless.operators import Dense
from foldless.solvers.smlr import L1, Labels, Regression, Stop, largest_rate, nothing
from foldless.solvers.smlr.rate import Task

STUDY = Path(__file__).parent
COLUMNS = ["data", "gamma", "share", "rate", "way", "wrong", "tested", "kept", "sweeps"]
# The series of table 2. Crabs and leukemia are one fit each.
SERIES = ("yeast", "colon", "iris", "fgl")
# Of RBF kernels, beside the width that the SVM chooses.
MORE_GAMMAS = {"iris": (0.1, 1.0)}
# Rates, relative to the smallest at which no weight is left in the first split.
SHARES = 10.0 ** np.arange(-0.5, -5.0, -0.5)
# The paper prints neither; these are the defaults of PyMVPA's implementation of it (mvpa2/clfs/smlr.py).
TOL, DECAY, FLOOR = 1e-3, 0.5, 1e-3
MOST_SWEEPS = 10_000
# Beyond, exponentials and their sums overflow, and probabilities are 0 or 1 to the last digit.
LARGEST_SCORE = 300.0
WAYS = ("optimum", "from zero", "from the fold before")


class Kernels(NamedTuple):
    """Basis functions, at the training samples and at the test samples."""

    inside: NDArray[np.float64]
    outside: NDArray[np.float64]


class Fit(NamedTuple):
    weights: NDArray[np.float64]  # (basis functions, classes without the last)
    sweeps: int


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=0)
    parser.add_argument("--data", type=Path, default=os.environ.get("FOLDLESS_DATA"))
    parser.add_argument("--only", nargs="*", default=list(SERIES), choices=SERIES)
    args = parser.parse_args(argv)
    source = checked_source(args.data)
    folder = common.output_folder(args.out, STUDY, args.quick)
    rows = []
    for name in args.only:
        for row in measure(source, name, args.quick):
            rows.append(row)
            print({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()}, flush=True)
            pd.DataFrame(rows, columns=COLUMNS).to_csv(folder / "warm_starts.csv", index=False)
    text = report(folder)
    common.refresh_readme(folder, text, "warm_starts.csv")
    print("\n" + text)
    return folder


def measure(source: Path, name: str, quick: bool) -> Iterator[dict[str, Any]]:
    """Errors over all splits of a series, at every width and rate, for every way to start and to end."""
    every = list(splits(source, name, 0))[: 2 if quick else None]
    gammas: list[float | None] = [None]
    if KERNELS[name] == "rbf":
        chosen = width_of_the_set([common.timed(partial(tuned_svm, s)) for s in every])
        gammas = [chosen, *([] if quick else MORE_GAMMAS.get(name, ()))]
    for gamma in gammas:
        kernels = [_kernels(split, gamma) for split in every]
        top = largest_rate(L1, nothing(regression(kernels[0].inside, every[0].y)))
        for share in SHARES[:: 4 if quick else 1]:
            rate = float(share * top)
            for way in WAYS:
                fits = series(every, kernels, rate, way)
                yield {
                    "data": name,
                    "gamma": gamma,
                    "share": float(share),
                    "rate": rate,
                    "way": way,
                    "wrong": sum(map(errors, every, kernels, fits)),
                    "tested": sum(s.y_test.size for s in every),
                    "kept": float(np.mean([np.count_nonzero(f.weights) for f in fits])),
                    "sweeps": float(np.mean([f.sweeps for f in fits])),
                }


def report(folder: Path) -> str:
    """Where fits that end early keep as many weights as the paper's: errors of all ways, and the paper's."""
    results = pd.read_csv(folder / "warm_starts.csv")
    rows = []
    for (name, gamma), own in results.groupby(["data", "gamma"], sort=False, dropna=False):
        wrong, kept = PAPER["SMLR"][name].rstrip(")").split(" (")
        early = own[own.way == "from zero"]
        nearest = (np.log(early.kept + 1) - np.log(float(kept) + 1)).abs().idxmin()
        share = early.share[nearest]
        cells = [name, "" if np.isnan(gamma) else f"{gamma:g}", f"{share:.1g}"]
        at = own[own.share == share].set_index("way")
        cells += [f"{at.wrong[way]} ({at.kept[way]:.0f})" for way in WAYS]
        rows.append([*cells, f"{wrong} ({kept})"])
    return common.markdown(["wrong (kept)", "gamma", "rate / largest", *WAYS, "paper"], rows)


def series(every: list[Split], kernels: list[Kernels], rate: float, way: str) -> list[Fit]:
    """A fit for each split, in order."""
    fits: list[Fit] = []
    known: dict[int, NDArray[np.float64]] = {}
    for split, (inside, _) in zip(every, kernels, strict=True):
        if way == "optimum":
            fits.append(optimum(inside, split.y, rate))
            continue
        classes, code = np.unique(split.y, return_inverse=True)
        start = np.zeros((inside.shape[1], classes.size - 1))
        if way == "from the fold before":
            for i, sample in enumerate(split.train):
                start[i] = known.get(int(sample), 0.0)
        fits.append(as_printed(inside, code, rate, start))
        known = dict(zip(split.train.tolist(), fits[-1].weights, strict=True))
    return fits


def errors(split: Split, kernels: Kernels, fitted: Fit) -> int:
    scores = kernels.outside @ fitted.weights
    likeliest = np.argmax(np.column_stack([scores, np.zeros(len(scores))]), axis=1)
    return int(np.sum(np.unique(split.y)[likeliest] != split.y_test))


def optimum(columns: NDArray[np.float64], y: NDArray[Any], rate: float) -> Fit:
    """By the solver of foldless."""
    fitted = Task(regression(columns, y), L1, Stop(max_iter=MOST_SWEEPS)).at(rate)
    return Fit(fitted.coef(columns.shape[1]), fitted.n_iter)


def regression(columns: NDArray[np.float64], y: NDArray[Any]) -> Regression:
    """In the paper's form: the last class has no weights, and there is no intercept."""
    classes, code = np.unique(y, return_inverse=True)
    labels = Labels(code, classes.size, np.ones(code.size), reference=classes.size - 1)
    return Regression(Dense(columns), labels, intercept=False)


def _kernels(split: Split, gamma: float | None) -> Kernels:
    kernel, options = KERNELS[split.data], {} if gamma is None else {"gamma": gamma}
    inside = pairwise_kernels(split.X, metric=kernel, **options)
    outside = pairwise_kernels(split.X_test, split.X, metric=kernel, **options)
    return Kernels(np.asfortranarray(inside), outside)


def as_printed(
    columns: NDArray[np.float64], code: NDArray[Any], rate: float, start: NDArray[np.float64]
) -> Fit:
    """(15) of the paper, visited as its section 3.5 says, until a sweep changes little."""
    n_classes = start.shape[1] + 1
    label = np.asfortranarray(np.eye(n_classes)[code][:, :-1])
    weights = start.copy()
    chances = np.random.default_rng(0).random(997)
    return Fit(weights, _sweeps(columns, label, rate, weights, TOL, DECAY, FLOOR, MOST_SWEEPS, chances))


@numba.njit(cache=True, error_model="numpy")
def _sweeps(  # type: ignore[no-untyped-def]  # pragma: no cover
    columns, label, rate, weights, tol, decay, floor, most_sweeps, chances
):
    """In place; the number of sweeps."""
    n_samples, n_columns = columns.shape
    n_scores = weights.shape[1]
    scores = columns @ weights
    odds = np.exp(np.minimum(scores, LARGEST_SCORE))
    total = 1.0 + odds.sum(axis=1)
    visit = np.ones(weights.shape)
    bound = 0.5 * n_scores / (n_scores + 1.0) * np.square(columns).sum(axis=0)
    drawn = 0
    for sweep in range(most_sweeps):
        changed, length = 0.0, 0.0
        for c in range(n_columns):
            for k in range(n_scores):
                old = weights[c, k]
                drawn = (drawn + 1) % chances.size
                if old == 0 and chances[drawn] >= visit[c, k]:
                    continue
                slope = 0.0
                for m in range(n_samples):
                    slope += columns[m, c] * (label[m, k] - odds[m, k] / total[m])
                aim = old + slope / bound[c]
                new = np.sign(aim) * max(abs(aim) - rate / bound[c], 0.0)
                visit[c, k] = 1.0 if new != 0 else floor + (1.0 - decay) * (visit[c, k] - floor)
                length += old * old
                if new != old:
                    weights[c, k] = new
                    changed += (new - old) ** 2
                    for m in range(n_samples):
                        scores[m, k] += (new - old) * columns[m, c]
                        odds[m, k] = np.exp(min(scores[m, k], LARGEST_SCORE))
                        # Added up anew: a difference of sums loses the small odds beside large ones.
                        total[m] = 1.0
                        for other in range(n_scores):
                            total[m] += odds[m, other]
        if np.sqrt(changed) <= tol * np.sqrt(length):
            return sweep + 1
    return most_sweeps


if __name__ == "__main__":
    main()
