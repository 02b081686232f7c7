"""Twenty classes of simulated documents, a vocabulary of 60 000 words: memory, time and error beside saga.

python -m benchmarks.studies.text_many_classes.run [--methods foldless ...] [--again]

Every fit has a process of its own, with one thread and a limit to its memory. Rows that are in results.csv
stay, unless --again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks.studies import _common as common
from benchmarks.studies import _multinomial as multinomial
from benchmarks.studies._isolated import clocked, isolated, peak_bytes
from benchmarks.studies._resumable import Key, complete
from benchmarks.studies.text_many_classes.data import make_documents
from benchmarks.studies.text_many_classes.plot import FOLDLESS, TUNED, draw, report

STUDY = Path(__file__).parent
KEY = ("trial", "method")
COLUMNS = [
    *KEY,
    "n_train",
    "n_words",
    "n_classes",
    "error",
    "log_loss",
    "bayes_error",
    "kept",
    "seconds",
    "cpu_seconds",
    "load",
    "peak_mb",
    "loaded_mb",
    "penalty",
    "loo_error",
    "n_iter",
    "outcome",
    "warned",
    "stopped",
]
MOST_MEMORY = 4 * 2**30
# As shares of the smallest L1 penalty that silences every word; for the ridge as scikit-learn's C.
L1_SHARES, RIDGE_STRENGTHS = (0.1, 0.05, 0.025), (3.0, 10.0)
# Loose, for the sake of saga's time; whether a tighter one errs less was not measured.
TOLERANCE, EPOCHS = 1e-2, 200


class Sizes(NamedTuple):
    n_train: int
    n_test: int
    n_words: int
    n_classes: int


FULL, QUICK = Sizes(15_000, 5000, 60_000, 20), Sizes(200, 100, 400, 3)


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=1)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--patience", type=float, default=3600.0, help="seconds for one fit (default 3600)")
    parser.add_argument("--again", action="store_true", help="measure anew what results.csv has already")
    args = parser.parse_args(argv)
    sizes = QUICK if args.quick else FULL
    folder = common.output_folder(args.out, STUDY, args.quick)
    asked = [(trial, method) for trial in range(args.trials) for method in args.methods]

    def measure(key: Key, _: Any) -> dict[str, Any]:
        row: dict[str, Any] = {"load": os.getloadavg()[0]} if hasattr(os, "getloadavg") else {}
        row |= isolated(measured, key[1], int(key[0]), sizes, patience=args.patience, memory=MOST_MEMORY)
        tell(key, row)
        return row

    complete(folder, COLUMNS, KEY, asked, measure, again=args.again, **sizes._asdict())
    print("\n" + report(folder))
    draw(folder)
    print(f"\nresults.csv, figure.png and machine.json are in {folder}")
    return folder


def saga(X: Any, y: NDArray[np.int_], *, l1_share: float = 0.0, strength: float = 0.0) -> Any:
    """One penalty, as if it were known: what remains of a search when there is nothing to search."""
    if l1_share:
        strength = 1.0 / (l1_share * multinomial.largest_penalty(X, y))
    model = LogisticRegression(
        C=strength,
        l1_ratio=1.0 if l1_share else 0.0,
        solver="saga",
        tol=TOLERANCE,
        max_iter=EPOCHS,
        random_state=0,
    ).fit(X, y)
    return multinomial.ManyLinear(model.coef_, model.intercept_, 1.0 / strength)


METHODS: dict[str, Callable[..., Any]] = {
    FOLDLESS: lambda X, y: multinomial.foldless_classifier().fit(X, y),
    **{f"saga L1, {share} of the largest": partial(saga, l1_share=share) for share in L1_SHARES},
    **{f"saga ridge, C = {strength:g}": partial(saga, strength=strength) for strength in RIDGE_STRENGTHS},
    TUNED: partial(multinomial.saga_cv, folds=multinomial.N_FOLDS, n_values=10, smallest=0.02, tol=TOLERANCE),
}


def measured(method: str, trial: int, sizes: Sizes) -> dict[str, Any]:
    """One fit on the clock, judged off the clock."""
    small = make_documents(*QUICK, seed=0)
    clocked(partial(METHODS[method], small.X, small.y))  # loads what is loaded on first use
    data = make_documents(*sizes, seed=trial)
    # Libraries and data, before anything is fitted.
    loaded = resident_mb()
    fitted = clocked(partial(METHODS[method], data.X, data.y))
    model = fitted.result
    row = {
        "n_train": sizes.n_train,
        "n_words": sizes.n_words,
        "n_classes": sizes.n_classes,
        "bayes_error": data.bayes_error,
        "loaded_mb": loaded,
        **fitted.cost,
    }
    if isinstance(model, multinomial.ManyLinear):
        log_proba = model.log_proba(data.X_test)
        kept = np.any(model.coef != 0, axis=0)
        row["penalty"] = model.penalty
    else:
        log_proba = model.predict_log_proba(data.X_test)
        kept = model.inclusion_probability_ > 0.5
        row |= {"loo_error": model.loo_error_, "n_iter": model.n_iter_, "outcome": str(model.outcome_)}
    return row | {
        "error": float(np.mean(np.argmax(log_proba, axis=1) != data.y_test)),
        "log_loss": -float(np.mean(log_proba[np.arange(data.y_test.size), data.y_test])),
        "kept": int(kept.sum()),
    }


def resident_mb() -> float:
    """Memory held now; the peak where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak_bytes() / 2**20
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def tell(key: Key, row: dict[str, Any]) -> None:
    told = f"trial {key[0]}  {key[1]:28s}"
    if row.get("stopped"):
        print(f"{told} {row['stopped']}", flush=True)
        return
    print(
        f"{told} error {row['error']:.4f} (Bayes {row['bayes_error']:.4f})  log loss {row['log_loss']:.4f}  "
        f"{row['cpu_seconds']:7.2f} s (wall {row['seconds']:7.2f})  peak {row['peak_mb']:.0f} MB  "
        f"kept {row['kept']}  {row.get('outcome', '')} {row['warned']}",
        flush=True,
    )


if __name__ == "__main__":
    main()
