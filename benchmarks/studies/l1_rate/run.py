"""The L1 rate of max-sum, learnt, beside fixed rates on both sides of it: test error and features kept.

python -m benchmarks.studies.l1_rate.run --data DIR
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.studies import _common as common
from benchmarks.studies import _multinomial as multinomial
from benchmarks.studies._isolated import clocked
from benchmarks.studies._real_data import add_data_option, data_folder
from benchmarks.studies._resumable import Key, complete
from benchmarks.studies.all_methods.data import load
from benchmarks.studies.l1_rate.plot import FOUR_CLASSES, LEARNT, MULTIPLES, TEXT, TWO_CLASSES, report
from benchmarks.studies.shygamp_synthetic.data import make_orthogonal_means
from foldless.datasets import make_class_means
from foldless.priors import Laplace

STUDY = Path(__file__).parent
KEY = ("data", "n_features", "n_active", "trial", "times")
COLUMNS = [*KEY, "rate", "error", "kept", "n_iter", "outcome", "cpu_seconds", "warned"]
N_TEST = 2000


class Place(NamedTuple):
    """A table and what its error is measured by."""

    data: str
    n_features: int
    n_active: int


PLACES = (
    *(Place(TWO_CLASSES, 5000, k) for k in (5, 10, 20, 30)),
    *(Place(FOUR_CLASSES, n, 10) for n in (3000, 10_000)),
    Place(TEXT, 47_236, 0),
    *(Place(TWO_CLASSES, 30_000, k) for k in (5, 10, 20, 30)),
)
QUICK = (Place(TWO_CLASSES, 300, 3), Place(FOUR_CLASSES, 200, 5))


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=3)
    add_data_option(parser, [f"{TEXT}.npz"])
    parser.add_argument("--again", action="store_true", help="measure anew what is there")
    args = parser.parse_args(argv)
    source = None if args.quick else data_folder(args.data, [f"{TEXT}.npz"])
    folder = common.output_folder(args.out, STUDY, args.quick)
    asked = [
        (*map(str, place), str(trial), times)
        for place in (QUICK if args.quick else PLACES)
        for trial in range(1 if args.quick or place.data == TEXT else args.trials)
        for times in (LEARNT, *MULTIPLES)
    ]
    complete(folder, COLUMNS, KEY, asked, partial(measured, source), again=args.again, trials=args.trials)
    print(report(folder))
    return folder


def measured(source: Path | None, key: Key, rows: dict[Key, dict[str, Any]]) -> dict[str, Any]:
    name, n_features, n_active, trial, times = key
    X, y, error_of = table(source, Place(name, int(n_features), int(n_active)), int(trial))
    prior: Any
    tuning: dict[str, Any]
    if times == LEARNT:
        prior, tuning = "laplace", {"tuning": "sure"}
    else:
        learnt = rows[*key[:-1], LEARNT]
        prior, tuning = Laplace(float(learnt["rate"]) * float(times)), {"tune": False}
    fitted = clocked(lambda: multinomial.gamp(prior, rule="max-sum", **tuning).fit(X, y))
    model = fitted.result
    row = {
        "rate": float(model.prior_.rate),
        "error": error_of(model),
        "kept": int(np.count_nonzero(np.any(model.coef_ != 0, axis=0))),
        "n_iter": model.n_iter_,
        "outcome": str(model.outcome_),
        "cpu_seconds": fitted.cpu_seconds,
        "warned": fitted.warned,
    }
    print(*key, {name: row[name] for name in ("rate", "error", "kept", "cpu_seconds")}, flush=True)
    return row


# Rates of one table follow each other.
@lru_cache(maxsize=1)
def table(source: Path | None, place: Place, trial: int) -> tuple[Any, Any, Any]:
    """Features and labels to train on, and the error of a model: exact, or on what is not trained on."""
    if place.data == TWO_CLASSES:
        seed = 1000 * place.n_active + trial
        two = make_class_means(300, place.n_features, place.n_active, random_state=seed)
        return two.X, two.y, lambda model: two.test_error(model.coef_, model.intercept_[0])
    if place.data == FOUR_CLASSES:
        # Seeds as in the study of the thesis's figures.
        seed = 1000 * (300 + place.n_features) + 100 * place.n_active + trial
        four = make_orthogonal_means(300, place.n_features, place.n_active, seed)
        return four.X, four.y, lambda model: four.test_error(model, N_TEST)
    assert source is not None
    text = load(source, TEXT)
    with np.load(source / f"{TEXT}.npz") as stored:
        train = stored["split"] == "train"
    X, y = text.X[~train], text.y[~train]
    return text.X[train], text.y[train], lambda model: float(np.mean(model.predict(X) != y))


if __name__ == "__main__":
    main()
