"""Far more features than samples [Ziniel et al. 2015, section VI-A]: error, seconds and features found.

python -m benchmarks.studies.gamp_sparsity.run
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.studies import _common as common
from benchmarks.studies import _rivals as rivals
from benchmarks.studies._resumable import Key, complete
from benchmarks.studies.gamp_sparsity.plot import draw, report
from foldless import GAMPClassifier, SparseClassifier
from foldless.datasets import make_class_means
from foldless.datasets.simulated import Simulated

STUDY = Path(__file__).parent
COLUMNS = [
    "trial",
    "n_active",
    "method",
    "error",
    "seconds",
    "kept",
    "kept_false",
    "kept_fdr",
    "kept_fdr_false",
    "generative_weight",
    "loo_error",
    "penalty",
    "n_iter",
    "outcome",
    "warned",
]


class Sizes(NamedTuple):
    n_samples: int
    n_features: int
    n_active: Sequence[int]


PAPER = Sizes(300, 30_000, (5, 10, 20, 30))
QUICK = Sizes(80, 1_000, (3, 6))


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=10)
    parser.add_argument("--rival-trials", type=int, default=3, help="trials with L1 beside (default 3)")
    parser.add_argument("--methods", nargs="+", help="some of the methods (default: all)")
    parser.add_argument("--again", action="store_true", help="measure anew what results.csv has already")
    args = parser.parse_args(argv)
    sizes = QUICK if args.quick else PAPER
    trials, rival_trials = args.trials, args.rival_trials
    if args.quick:
        trials, rival_trials = min(trials, 2), min(rival_trials, 1)
    folder = common.output_folder(args.out, STUDY, args.quick)
    if not rivals.has_celer():
        print("celer is not installed: pip install celer to compare with it")
    asked = [
        (str(trial), str(n_active), name)
        for trial in range(trials)
        for n_active in sizes.n_active
        for name in methods(with_rivals=trial < rival_trials)
        if args.methods is None or name in args.methods
    ]
    warm_up({name for *_, name in asked})

    def measure(key: Key, _: dict[Key, dict[str, Any]]) -> dict[str, Any]:
        trial, n_active, name = int(key[0]), int(key[1]), key[2]
        row = measured(methods(with_rivals=True)[name], simulated(sizes, n_active, trial))
        print(
            f"trial {trial}  K {n_active:2d}  {name:26s} error {row['error']:.4f}  "
            f"{row['seconds']:7.2f} s  kept {row['kept']} ({row['kept_false']} false)  "
            f"{row.get('outcome', '')}",
            flush=True,
        )
        return row

    settings = sizes._asdict() | {"trials": trials, "rival_trials": rival_trials}
    complete(folder, COLUMNS, COLUMNS[:3], asked, measure, again=args.again, **settings)
    print("\n" + report(folder))
    draw(folder)
    print(f"\nresults.csv, figure.png and machine.json are in {folder}")
    return folder


@lru_cache(maxsize=1)
def simulated(sizes: Sizes, n_active: int, trial: int) -> Simulated:
    # The seed names the setting, so that trial 3 of K = 20 is the same data in any run.
    return make_class_means(sizes.n_samples, sizes.n_features, n_active, random_state=1000 * n_active + trial)


def methods(*, with_rivals: bool) -> dict[str, Callable[[NDArray[Any], NDArray[Any]], Any]]:
    """Name to fit(X, y); each includes all its tuning and any scaling it needs."""
    chosen: dict[str, Callable[[NDArray[Any], NDArray[Any]], Any]] = {
        "foldless": SparseClassifier().fit,
        "foldless (discriminative)": SparseClassifier(generative_weight=0.0).fit,
        "GAMP, class-mean slabs": GAMPClassifier("class-means").fit,
        "GAMP, class-mean slabs, probit": GAMPClassifier("class-means", "probit").fit,
        "GAMP, class-mean slabs, hinge": GAMPClassifier("class-means", "hinge").fit,
        "GAMP, class-mean slabs, robust": GAMPClassifier("class-means", "robust-logistic").fit,
        "GAMP, max-sum L1": GAMPClassifier("laplace", rule="max-sum", generative_weight=0.0).fit,
        "one-bit, s by folds": rivals.one_bit_cv,
        "K largest of X'y, K by folds": rivals.largest_correlations_cv,
    }
    if with_rivals:
        if rivals.has_celer():
            chosen["celer L1"] = rivals.celer_cv
        chosen["liblinear L1"] = rivals.liblinear_cv
    return chosen


def measured(method: Callable[[NDArray[Any], NDArray[Any]], Any], data: Simulated) -> dict[str, Any]:
    """One fit on the clock, judged by the truth off the clock."""
    model, seconds, warned = common.timed(lambda: method(data.X, data.y))
    truth = np.zeros(data.X.shape[1], dtype=bool)
    truth[data.active] = True
    row: dict[str, Any] = {"seconds": seconds, "warned": warned}
    if isinstance(model, rivals.Linear):
        kept = model.coef != 0
        row |= {"error": data.test_error(model.coef, model.intercept), "penalty": model.penalty}
    else:
        kept = model.inclusion_probability_ > 0.5
        at_fdr = model.get_support(fdr=0.1)
        row |= {
            "error": data.test_error(model.coef_, model.intercept_[0]),
            "kept_fdr": int(at_fdr.sum()),
            "kept_fdr_false": int((at_fdr & ~truth).sum()),
            "generative_weight": model.generative_weight_,
            "loo_error": model.loo_error_,
            "n_iter": model.n_iter_,
            "outcome": str(model.outcome_),
        }
    return row | {"kept": int(kept.sum()), "kept_false": int((kept & ~truth).sum())}


def warm_up(names: set[str]) -> None:
    """Load what is loaded on first use, so that no method pays for it."""
    data = make_class_means(40, 50, 2, random_state=0)
    for name, method in methods(with_rivals=True).items():
        if name in names:
            common.timed(lambda method=method: method(data.X, data.y))


if __name__ == "__main__":
    main()
