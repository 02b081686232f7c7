"""A tenth of the labels of real tables turned over: the flip rate of a fit, and its ranking of labels.

python -m benchmarks.studies.honesty.flips --data DIR

Beside it the ranking by a ridge regression, its strength cross-validated within each of ten folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from benchmarks.studies import _common as common
from benchmarks.studies._real_data import add_data_option, data_folder
from benchmarks.studies._resumable import stored_rows
from foldless import SparseClassifier

STUDY = Path(__file__).parent
KEY = ("table", "trial")
COLUMNS = [*KEY, "classes", "flipped", "flip_rate", "auc", "ridge_auc"]
TABLES = ("leukemia", "methylation_christensen", "breast", "breast_west", "brain_pomeroy42")
FLIPPED, FOLDS = 0.1, 10


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=3)
    files = [f"{name}.npz" for name in TABLES]
    add_data_option(parser, files)
    args = parser.parse_args(argv)
    data = data_folder(args.data, files)
    folder = common.output_folder(args.out, STUDY, args.quick)
    stored = stored_rows(folder / "flips.csv", KEY)
    with common.Results(folder, COLUMNS, "flips.csv") as results:
        for row in stored.values():
            results.add(**row)
        for table in TABLES:
            for trial in range(args.trials):
                if (table, str(trial)) not in stored:
                    row = {"table": table, "trial": trial} | found(data / f"{table}.npz", trial)
                    results.add(**row)
                    print(row, flush=True)
    return folder


def found(path: Path, trial: int) -> dict[str, Any]:
    with np.load(path) as stored:
        X, y = stored["X"].astype(np.float64), np.unique(stored["y"], return_inverse=True)[1]
    rng, n_classes = np.random.default_rng(trial), int(y.max()) + 1
    wrong = np.zeros(y.size, dtype=bool)
    wrong[rng.choice(y.size, round(FLIPPED * y.size), replace=False)] = True
    labels = np.where(wrong, (y + rng.integers(1, n_classes, y.size)) % n_classes, y)
    model = SparseClassifier().fit(X, labels)
    return {
        "classes": n_classes,
        "flipped": wrong.mean(),
        "flip_rate": model.flip_rate_,
        "auc": roc_auc_score(wrong, model.mislabel_probability_),
        "ridge_auc": roc_auc_score(wrong, -ridge_proba(X, labels, trial)),
    }


def ridge_proba(X: NDArray[np.float64], labels: NDArray[np.intp], trial: int) -> NDArray[np.float64]:
    """Of every label as it is, from the nine tenths without it."""
    spread = X.std(axis=0)
    standardized = (X - X.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    # A ridge regression depends on columns through their products only: so many coordinates do as samples.
    left, size, _ = np.linalg.svd(standardized, full_matrices=False)
    coordinates = left * size / np.sqrt(standardized.shape[1])
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=trial)
    ridge = LogisticRegressionCV(Cs=10, cv=5, scoring="neg_log_loss", max_iter=1000)
    return np.asarray(
        cross_val_predict(ridge, coordinates, labels, cv=folds, method="predict_proba")[
            np.arange(labels.size), labels
        ]
    )


if __name__ == "__main__":
    main()
