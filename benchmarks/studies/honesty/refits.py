"""Leave-one-out of one fit beside true refits without each sample: real tables, and weights of samples.

python -m benchmarks.studies.honesty.refits --data DIR      # rows that refits.csv lacks
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.studies import _common as common
from benchmarks.studies._real_data import add_data_option, data_folder
from benchmarks.studies._resumable import stored_rows
from foldless import SparseClassifier

STUDY = Path(__file__).parent
KEY = ("table", "weights")
COLUMNS = [*KEY, "refits", "loo_error", "refit_error", "loo_log_loss", "refit_log_loss"]
TABLES = ("colon", "leukemia", "breast_west", "methylation_christensen")
WEIGHTS = ("constant", "halves", "balanced", "random")
# Of larger tables every so many-th sample is refitted without, and compared.
MOST_REFITS = 72
N_GENES = 300


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=1)
    files = [f"{name}.npz" for name in TABLES]
    add_data_option(parser, files)
    args = parser.parse_args(argv)
    data = data_folder(args.data, files)
    folder = common.output_folder(args.out, STUDY, args.quick)
    stored = stored_rows(folder / "refits.csv", KEY)
    asked = [("colon, 300 genes", kind) for kind in WEIGHTS] + [(name, "") for name in TABLES]
    with common.Results(folder, COLUMNS, "refits.csv") as results:
        for row in stored.values():
            results.add(**row)
        for table, kind in asked:
            if (table, kind) not in stored:
                row = {"table": table, "weights": kind} | compared(data, table, kind)
                results.add(**row)
                print(row, flush=True)
    return folder


def compared(data: Path, table: str, kind: str) -> dict[str, Any]:
    with np.load(data / f"{table.partition(',')[0]}.npz") as stored:
        X, y = stored["X"], np.unique(stored["y"], return_inverse=True)[1]
    X = X[:, :N_GENES] if kind else X
    weight = weights_of(kind, y)
    rows = np.unique(np.linspace(0, y.size - 1, min(MOST_REFITS, y.size)).astype(int))
    claimed = np.log(SparseClassifier().fit(X, y, sample_weight=weight).loo_proba_.astype(np.float64))
    refitted = np.full_like(claimed, np.nan)
    for row in rows:
        others = np.arange(y.size) != row
        refit = SparseClassifier().fit(X[others], y[others], sample_weight=weight[others])
        refitted[row] = refit.predict_log_proba(X[[row]])[0]
    share = weight[rows] / weight[rows].sum()

    def of(log_proba: NDArray[np.float64]) -> tuple[float, float]:
        own = log_proba[rows]
        return float(share @ (own.argmax(axis=1) != y[rows])), -float(share @ own[range(rows.size), y[rows]])

    (error, loss), (refit_error, refit_loss) = of(claimed), of(refitted)
    return {
        "refits": rows.size,
        "loo_error": error,
        "refit_error": refit_error,
        "loo_log_loss": loss,
        "refit_log_loss": refit_loss,
    }


def weights_of(kind: str, y: NDArray[np.intp]) -> NDArray[np.float64]:
    rng = np.random.default_rng(0)
    return {
        "": np.ones(y.size),
        "constant": np.full(y.size, 3.0),
        "halves": np.full(y.size, 0.5),
        "balanced": (y.size / np.unique(y).size / np.bincount(y))[y],
        "random": rng.uniform(0.2, 3.0, y.size),
    }[kind]


if __name__ == "__main__":
    main()
