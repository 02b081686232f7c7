"""Four classes with sparse orthogonal means [Byrne's thesis, section 4.1]: error and time against M, N and K.

python -m benchmarks.studies.shygamp_synthetic.run                       # what results.csv still lacks
python -m benchmarks.studies.shygamp_synthetic.run --methods foldless --again

Every fit has a process of its own with one thread. Rows that are in results.csv stay, unless --again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.studies import _common as common
from benchmarks.studies import _multinomial as multinomial
from benchmarks.studies._isolated import clocked, isolated
from benchmarks.studies._resumable import Key, complete
from benchmarks.studies.shygamp_synthetic.data import OrthogonalMeans, make_orthogonal_means
from benchmarks.studies.shygamp_synthetic.plot import FOLDLESS, draw, report
from foldless.priors import Gaussian, RowSparse, SpikeAndSlab

STUDY = Path(__file__).parent
COLUMNS = [
    "sweep",
    "n_samples",
    "n_features",
    "n_active",
    "trial",
    "method",
    "error",
    "seconds",
    "cpu_seconds",
    "load",
    "kept",
    "kept_false",
    "k99",
    "k_l0",
    "penalty",
    "loo_error",
    "generative_weight",
    "n_iter",
    "outcome",
    "peak_mb",
    "warned",
    "stopped",
]
KEY = ("sweep", "n_samples", "n_features", "n_active", "trial", "method")
# Samples on which predictions are held against a linear rule whose error is known exactly.
N_TEST, TEST_ELEMENTS = 2000, 200_000_000


class Setting(NamedTuple):
    """One point of a sweep; the letters of the thesis are M, N and K."""

    sweep: str
    n_samples: int
    n_features: int
    n_active: int


def settings(*, quick: bool) -> list[Setting]:
    if quick:
        sweep_m = [Setting("M", m, 300, 5) for m in (60, 120)]
        sweep_n = [Setting("N", 60, n, 5) for n in (200, 400)]
        return [*sweep_m, *sweep_n, Setting("K", 60, 300, 4)]
    return [
        *(Setting("M", m, 10_000, 10) for m in (100, 300, 1000, 3000, 5000)),
        *(Setting("N", 200, n, 10) for n in (1000, 3000, 10_000, 30_000, 100_000, 300_000)),
        *(Setting("K", 300, 30_000, k) for k in (5, 10, 20, 30)),
    ]


Fit = Callable[[NDArray[Any], NDArray[Any]], Any]
METHODS: dict[str, Fit] = {
    FOLDLESS: lambda X, y: multinomial.foldless_classifier().fit(X, y),
    # As glmnet does by default: a hundred penalties, down to a hundredth of the largest.
    "adelie": partial(multinomial.adelie_cv, n_values=100, smallest=0.01, tol=1e-7),
    # In a hurry: ten steps down adelie's own range, which ends at a tenth, solved to four digits.
    "adelie, 10 penalties": partial(multinomial.adelie_cv, n_values=10, smallest=0.1, tol=1e-4),
    "saga L1": partial(multinomial.saga_cv, folds=multinomial.N_FOLDS, n_values=10),
    # The thesis's own: the L1 maximum with its rate by SURE, posterior means under a Bernoulli-Gauss prior of
    # single weights, and what it compares with.
    "MAP-SHyGAMP": lambda X, y: multinomial.gamp("laplace", rule="max-sum", tuning="sure").fit(X, y),
    "MMSE-SHyGAMP": lambda X, y: multinomial.gamp("spike-and-slab").fit(X, y),
    "SBMLR": multinomial.sbmlr,
    "one-bit, one against the rest": multinomial.one_bit_cv,
}
# MMSE told how many rows matter and the size of their weights, nothing learnt: what its two priors can do at
# best. Single weights have the prior of SHyGAMP, (3.48), whole rows that of HyGAMP, (2.35).
GENIES: dict[str, type] = {"genie, MMSE, single weights": SpikeAndSlab, "genie, MMSE, rows": RowSparse}


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=5)
    parser.add_argument("--rival-trials", type=int, default=2, help="trials with rivals beside (default 2)")
    parser.add_argument("--methods", nargs="+", choices=[*METHODS, *GENIES], default=[*METHODS, *GENIES])
    parser.add_argument("--sweeps", nargs="+", choices="MNK", default=list("MNK"))
    parser.add_argument("--features", nargs="+", type=int, help="some of the numbers of features N")
    parser.add_argument("--samples", nargs="+", type=int, help="some of the numbers of samples M")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds for one fit (default 600)")
    parser.add_argument("--again", action="store_true", help="measure anew what results.csv has already")
    args = parser.parse_args(argv)
    folder = common.output_folder(args.out, STUDY, args.quick)
    chosen = [
        s
        for s in settings(quick=args.quick)
        if s.sweep in args.sweeps
        and (args.features is None or s.n_features in args.features)
        and (args.samples is None or s.n_samples in args.samples)
    ]
    methods = [name for name in args.methods if multinomial.has_adelie() or "adelie" not in name]
    if len(methods) < len(args.methods):
        print("adelie is not installed: pip install adelie to compare with it")
    trials = {name: args.trials if name == FOLDLESS else args.rival_trials for name in methods}
    if args.quick:
        trials = dict.fromkeys(methods, 1)
    asked = [
        (*setting, trial, name) for name in methods for trial in range(trials[name]) for setting in chosen
    ]
    complete(
        folder,
        COLUMNS,
        KEY,
        asked,
        partial(measured_apart, patience=args.patience),
        again=args.again,
        patience=args.patience,
    )
    print("\n" + report(folder))
    draw(folder)
    print(f"\nresults.csv, figure.png and machine.json are in {folder}")
    return folder


def measured_apart(key: Key, rows: dict[Key, dict[str, Any]], patience: float) -> dict[str, Any] | None:
    """The row of one fit; None where a smaller one of its sweep took too long."""
    if any(row.get("stopped") and is_larger(key, other) for other, row in rows.items()):
        return None
    sweep, *sizes, trial, method = key
    row = {"load": os.getloadavg()[0]} if hasattr(os, "getloadavg") else {}
    setting = Setting(sweep, *map(int, sizes))
    row |= isolated(measured, method, setting, int(trial), patience=patience)
    tell(key, row)
    return row


def is_larger(key: Key, other: Key) -> bool:
    """Of one sweep and method, a setting at least as large as another."""
    same = (key[0], key[-1]) == (other[0], other[-1])
    return same and [int(size) for size in key[1:4]] >= [int(size) for size in other[1:4]]


def measured(method: str, setting: Setting, trial: int) -> dict[str, Any]:
    """One fit on the clock, all tuning and scaling included; judged off the clock."""
    warm_up(method)
    # The seed names the setting, so that trial 3 of M = 1000 is the same data in any run.
    seed = 1000 * (setting.n_samples + setting.n_features) + 100 * setting.n_active + trial
    data = make_orthogonal_means(setting.n_samples, setting.n_features, setting.n_active, seed)
    fitted = clocked(fit_of(method, data))
    n_test = min(N_TEST, TEST_ELEMENTS // setting.n_features)
    return fitted.cost | judged(fitted.result, data, n_test)


def warm_up(method: str) -> None:
    """Load what is loaded on first use, so that no fit pays for it; compiled loops are, from 4096 scores."""
    data = make_orthogonal_means(1100, 30, 4, seed=0)
    clocked(fit_of(method, data))


def fit_of(method: str, data: OrthogonalMeans) -> Callable[[], Any]:
    if method in METHODS:
        return partial(METHODS[method], data.X, data.y)
    n_active = data.active.size
    # The best weights are the class means, since the noise has variance one.
    slab = Gaussian(variance=float(np.mean(data.active_means**2)))
    prior = GENIES[method](slab, n_active / data.X.shape[1])
    return lambda: multinomial.gamp(prior, tune=False).fit(data.X, data.y)


def judged(model: Any, data: OrthogonalMeans, n_test: int) -> dict[str, Any]:
    truth = np.zeros(data.X.shape[1], dtype=bool)
    truth[data.active] = True
    if isinstance(model, multinomial.ManyLinear):
        coef, kept = model.coef, np.any(model.coef != 0, axis=0)
        row = {"error": data.linear_error(model.coef, model.intercept), "penalty": model.penalty}
    else:
        coef, kept = model.coef_, model.inclusion_probability_ > 0.5
        row = {
            "error": data.test_error(model, n_test),
            "loo_error": model.loo_error_,
            "generative_weight": model.generative_weight_,
            "n_iter": model.n_iter_,
            "outcome": str(model.outcome_),
        }
    # Row-sparse counts of the thesis: rows with 99 % of all squares, and rows that are not zero.
    squares = np.sort(np.sum(coef**2, axis=0))[::-1]
    k99 = 1 + int(np.searchsorted(np.cumsum(squares), 0.99 * squares.sum()))
    return row | {
        "kept": int(kept.sum()),
        "kept_false": int((kept & ~truth).sum()),
        "k99": k99 if squares[0] > 0 else 0,
        "k_l0": int(np.count_nonzero(squares)),
    }


def tell(key: Key, row: dict[str, Any]) -> None:
    sweep, m, n, k, trial, method = key
    told = f"{sweep}: M {m:>5s}  N {n:>6s}  K {k:>2s}  trial {trial}  {method:21s}"
    if row.get("stopped"):
        print(f"{told} {row['stopped']}", flush=True)
        return
    print(
        f"{told} error {row['error']:.4f}  {row['cpu_seconds']:7.2f} s (wall {row['seconds']:7.2f})  "
        f"kept {row['kept']} ({row['kept_false']} false)  {row.get('outcome', '')} {row['warned']}",
        flush=True,
    )


if __name__ == "__main__":
    main()
