"""What a prediction costs beside one of scikit-learn's LogisticRegression, of the same samples.

python -m benchmarks.scale.predict

One row, as a service gets them, and ten thousand at once. Every model is asked in turns with a
LogisticRegression of the same training samples, in one process and on one thread; times are medians, of
the processor, so that other programs do not count.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression

import foldless
from benchmarks.studies import _common as common
from foldless.estimators.baselines import OneBitCS, RVMClassifier, SBMLRClassifier
from foldless.kernels import bounded_threads

HERE = Path(__file__).parent
N_TRAINING, N_FEATURES, MANY = 100, 2000, 10_000
# Of what is stored in sparse tables, as with words.
SHARE_STORED = 0.05
STORAGES = ("float64", "float32", "CSR", "DataFrame")
COLUMNS = ("model", "classes", "storage", "rows", "call", "ms", "logistic_ms", "ratio")


class Kind(NamedTuple):
    """An estimator, how many classes it takes, and whether sparse tables."""

    name: str
    make: Callable[[], Any]
    classes: tuple[int, ...] = (2, 5)
    sparse: bool = True
    correlated: bool = False


KINDS = (
    Kind("SparseClassifier, independent", foldless.SparseClassifier),
    Kind("SparseClassifier, genes", foldless.SparseClassifier, correlated=True),
    Kind("GAMPClassifier", foldless.GAMPClassifier),
    Kind("PanelClassifier", lambda: foldless.PanelClassifier(5, LogisticRegression(), n_parts=2)),
    Kind("SMLRClassifier", lambda: foldless.SMLRClassifier(rate=5.0)),
    Kind("EPBayesPointClassifier", foldless.EPBayesPointClassifier),
    Kind(
        "BayesPointClassifier",
        lambda: foldless.BayesPointClassifier(violation_cost=1.0, n_sweeps=2, beta=1.0, n_bins=8),
    ),
    Kind("PrunedBayesClassifier", lambda: foldless.PrunedBayesClassifier(0.01, 0.1), (2,)),
    Kind("SBMLRClassifier", SBMLRClassifier),
    Kind("OneBitCS", OneBitCS, (2,), sparse=False),
    Kind("RVMClassifier", lambda: RVMClassifier(kernel=None, max_iter=20), (2,), sparse=False),
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="models whose names contain this")
    parser.add_argument("--storage", choices=STORAGES, help="this one only")
    parser.add_argument("--seconds", type=float, default=0.6, help="for each pair of calls")
    parser.add_argument("--rows", type=int, default=MANY, help="of the many")
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    worst: dict[int, tuple[float, str]] = {}
    chosen = [kind for kind in KINDS if arguments.only.lower() in kind.name.lower()]
    storages = STORAGES if arguments.storage is None else (arguments.storage,)
    with common.Results(arguments.out, COLUMNS, "predict.csv") as results, bounded_threads(1):
        for found in measured(chosen, storages, arguments.rows, arguments.seconds):
            results.add(**found)
            print(
                *(f"{value:.3g}" if isinstance(value, float) else value for value in found.values()),
                flush=True,
            )
            rows, ratio = found["rows"], found["ratio"]
            where = f"{found['model']}, {found['classes']} classes, {found['storage']}, {found['call']}"
            worst[rows] = max(worst.get(rows, (0.0, "")), (ratio, where))
    for rows, (ratio, where) in worst.items():
        print(f"{rows} rows: at most {ratio:.1f} times LogisticRegression ({where}); meant: {bound(rows):g}")
    return int(any(ratio > bound(rows) for rows, (ratio, _) in worst.items()))


def bound(rows: int) -> float:
    return 5.0 if rows == 1 else 2.0


def measured(
    kinds: Sequence[Kind], storages: Sequence[str], n_many: int, seconds: float
) -> Iterator[dict[str, Any]]:
    for kind in kinds:
        for n_classes in kind.classes:
            for storage in storages:
                if storage == "CSR" and not kind.sparse:
                    continue
                X, y, many = tables(n_classes, storage, n_many, kind.correlated)
                model = fitted(kind.make(), X, y)
                plain = fitted(LogisticRegression(), X, y)
                for rows in (many[:1] if storage != "DataFrame" else many.iloc[:1], many):
                    for call in ("predict", "predict_proba"):
                        if not hasattr(model, call):
                            continue
                        own, other = medians(getattr(model, call), getattr(plain, call), rows, seconds)
                        yield {
                            "model": kind.name,
                            "classes": n_classes,
                            "storage": storage,
                            "rows": rows.shape[0],
                            "call": call,
                            "ms": 1e3 * own,
                            "logistic_ms": 1e3 * other,
                            "ratio": own / other,
                        }


def fitted(model: Any, X: Any, y: NDArray[Any]) -> Any:
    with warnings.catch_warnings():
        # How well it has converged does not matter to what a prediction costs.
        warnings.simplefilter("ignore")
        return model.fit(X, y)


def tables(n_classes: int, storage: str, n_many: int, correlated: bool) -> tuple[Any, NDArray[Any], Any]:
    """Samples to learn from, their labels, and many more: columns far from zero, or mostly zero."""
    rng = np.random.default_rng(0)
    n_rows = N_TRAINING + n_many
    code = np.arange(n_rows) % n_classes
    y = np.array([f"class {k}" for k in range(n_classes)])[code[:N_TRAINING]]
    if storage == "CSR":
        X = sparse.random_array((n_rows, N_FEATURES), density=SHARE_STORED, format="csr", rng=rng)
        informative = (code[:, np.newaxis] == np.arange(n_classes)) * rng.random((n_rows, n_classes))
        X = sparse.hstack([sparse.csr_array(informative), X[:, n_classes:]], format="csr")
        return X[:N_TRAINING], y, X[N_TRAINING:]
    X = rng.standard_normal((n_rows, N_FEATURES))
    if correlated:
        X += rng.standard_normal((n_rows, 5)) @ rng.standard_normal((5, N_FEATURES))
    X[:, : 10 * n_classes] += 1.2 * np.repeat(np.eye(n_classes), 10, axis=1)[code]
    X += 8.0
    if storage == "float32":
        X = X.astype(np.float32)
    if storage == "DataFrame":
        X = pd.DataFrame(X, columns=[f"gene {j}" for j in range(N_FEATURES)])
    return X[:N_TRAINING], y, X[N_TRAINING:]


def medians(
    one: Callable[[Any], Any], other: Callable[[Any], Any], rows: Any, seconds: float
) -> tuple[float, float]:
    """Seconds of both, called in turns for about so long, and at least five times."""
    taken: list[tuple[float, float]] = []
    one(rows)
    other(rows)
    begun = process_time()
    while len(taken) < 5 or process_time() - begun < seconds:
        start = process_time()
        one(rows)
        middle = process_time()
        other(rows)
        taken.append((middle - start, process_time() - middle))
    own, others = np.median(np.array(taken), axis=0)
    return float(own), float(others)


if __name__ == "__main__":
    raise SystemExit(main())
