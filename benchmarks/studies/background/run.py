"""Inclusion probabilities where columns are correlated: are they what they promise, and what is found?

python -m benchmarks.studies.background.run --data DIR [--methods foldless ...] [--designs colon ...]

Rows that are in results.csv stay, unless --again. Ours are of a revision (--revision NAME, or the commit), so
that what a change does can be seen beside what was. Everything has one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score
from threadpoolctl import threadpool_limits

from benchmarks.studies import _common as common
from benchmarks.studies._isolated import clocked
from benchmarks.studies._real_data import add_data_option, data_folder
from benchmarks.studies._resumable import Key, complete
from benchmarks.studies.background.designs import DESIGNS, FILES, NULL, REAL, Task, task
from benchmarks.studies.background.methods import FOLDLESS, METHODS, MOST_FOR_KNOCKOFFS, Found, missing
from benchmarks.studies.background.plot import N_BINS, RATES, draw, report

STUDY = Path(__file__).parent
KEY = ("design", "run", "method", "revision")
COLUMNS = [
    *KEY,
    "n_samples",
    "n_features",
    "n_active",
    "score_sd",
    "effects",
    "outcome",
    "settled",
    "warned",
    "cpu_seconds",
    # Ten numbers each, of bins of the promised probability: features, the sum promised, how many true.
    "count",
    "promised",
    "true",
    *(f"{name}_{rate:g}" for rate in RATES for name in ("selected", "false")),
    "average_precision",
    "in_k_best",
    # The surest features, each with its score, and + if it is a true one.
    "best",
    # Groups at the first rate, and in how many a feature is true; the sum of their probabilities, their
    # sizes, and the true features in them; and whether there was something to find.
    "groups",
    "groups_right",
    "groups_promised",
    "group_sizes",
    "in_groups",
    "gain",
    "stopped",
]
# Twenty runs of each number of true features and each strength.
RUNS = 120
N_BEST = 40
QUICK_SHARE = 0.1


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=RUNS)
    add_data_option(parser, FILES)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[FOLDLESS])
    parser.add_argument("--designs", nargs="+", choices=(*DESIGNS, *NULL), default=DESIGNS, metavar="NAME")
    parser.add_argument("--revision", help="name of the rows of foldless (default: the commit)")
    parser.add_argument("--again", action="store_true", help="measure anew what results.csv has already")
    args = parser.parse_args(argv)
    for method in args.methods:
        if needed := missing(method):
            parser.error(f"{method} needs {needed}")
    source = None
    if not args.quick and {design.removesuffix(", null") for design in args.designs} & set(REAL):
        source = data_folder(args.data, FILES)
    folder = common.output_folder(args.out, STUDY, args.quick)
    revision = args.revision or common.commit()
    trials, share = (min(args.trials, 2), QUICK_SHARE) if args.quick else (args.trials, 1.0)
    # Run by run, so that an interrupted study has seen every design.
    asked = [
        (design, run, method, revision if method == FOLDLESS else "")
        for run in range(trials)
        for design in args.designs
        for method in args.methods
    ]

    def measure(key: Key, _: Any) -> dict[str, Any] | None:
        drawn = task(key[0], int(key[1]), source, share)
        if key[2] == "knockoffs" and drawn.X.shape[1] > MOST_FOR_KNOCKOFFS:
            return None
        row = measured(key[2], drawn)
        tell(key, row)
        return row

    with threadpool_limits(1):
        complete(folder, COLUMNS, KEY, asked, measure, again=args.again, trials=trials)
    print("\n" + report(folder))
    draw(folder)
    print(f"\nresults.csv, figure.png and machine.json are in {folder}")
    return folder


def measured(method: str, drawn: Task) -> dict[str, Any]:
    """One fit on the clock, against the truth."""
    row: dict[str, Any] = {
        "n_samples": drawn.X.shape[0],
        "n_features": drawn.X.shape[1],
        "n_active": int(drawn.active.sum()),
        "score_sd": drawn.score_sd,
        "effects": drawn.effects,
    }
    try:
        fitted = clocked(partial(METHODS[method], drawn.X, drawn.y))
    except Exception as error:  # a rival that fails on a table is a result, too
        if method == FOLDLESS:
            raise
        return row | {"stopped": f"{type(error).__name__}: {error}".splitlines()[0][:120]}
    found: Found = fitted.result
    return row | {
        "outcome": found.outcome,
        "settled": None if found.settled is None else int(found.settled),
        "warned": fitted.warned,
        "cpu_seconds": fitted.cpu_seconds if found.cpu_seconds is None else found.cpu_seconds,
        **judged(found, drawn.active),
    }


def judged(found: Found, active: NDArray[np.bool_]) -> dict[str, Any]:
    """Calibration in ten bins, what was selected, and how well features were ranked."""
    row: dict[str, Any] = {}
    if found.probability is not None:
        promised = np.clip(found.probability, 0.0, 1.0)
        which = np.minimum((N_BINS * promised).astype(int), N_BINS - 1)
        sums = {"count": None, "promised": promised, "true": active.astype(float)}
        row = {name: _numbers(np.bincount(which, of, N_BINS)) for name, of in sums.items()}
    for rate in RATES:
        kept = found.support(rate)
        row |= {f"selected_{rate:g}": int(kept.sum()), f"false_{rate:g}": int(np.sum(kept & ~active))}
    order = np.argsort(-found.score, kind="stable")
    best = order[:N_BEST]
    if found.groups is not None:
        true = [int(active[columns].sum()) for columns, _ in found.groups]
        row |= {
            "groups": len(true),
            "groups_right": sum(count > 0 for count in true),
            "groups_promised": sum(probability for _, probability in found.groups),
            "group_sizes": " ".join(str(columns.size) for columns, _ in found.groups),
            "in_groups": sum(true),
            "gain": found.gain,
        }
    some = bool(active.any())
    return row | {
        "average_precision": float(average_precision_score(active, found.score)) if some else None,
        "in_k_best": float(np.mean(active[order[: active.sum()]])) if some else None,
        "best": " ".join(f"{found.score[j]:.4g}{'+' if active[j] else ''}" for j in best),
    }


def _numbers(values: NDArray[Any]) -> str:
    return " ".join(f"{value:.6g}" for value in values)


def tell(key: Key, row: dict[str, Any]) -> None:
    design, run, method, _ = key
    if row.get("stopped"):
        said = row["stopped"]
    else:
        chosen = ", ".join(f"{row[f'selected_{r:g}']} ({row[f'false_{r:g}']} false)" for r in RATES)
        said = (
            f"{row['n_active']:2d} true, selected {chosen}, groups {row.get('groups', 'none')} "
            f"({row.get('groups_right', 0)} right; sizes {row.get('group_sizes', '')}), "
            f"{row['cpu_seconds']:.2f} s, {row['outcome']}"
        )
    print(f"{design:24s} run {run:>3s}  {method:20s} {said}", flush=True)


if __name__ == "__main__":
    main()
