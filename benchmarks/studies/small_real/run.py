"""Two small real data sets beside scikit-learn's cross-validated L1: error, log loss, seconds, features kept.

python -m benchmarks.studies.small_real.run --data DIR
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from benchmarks.studies import _common as common
from benchmarks.studies import _rivals as rivals
from benchmarks.studies._real_data import add_data_option, data_folder
from benchmarks.studies.small_real.plot import draw, report
from foldless import GAMPClassifier, SparseClassifier

STUDY = Path(__file__).parent
COLUMNS = [
    "data",
    "split",
    "method",
    "error",
    "log_loss",
    "seconds",
    "kept",
    "kept_fdr",
    "generative_weight",
    "loo_error",
    "loo_log_loss",
    "penalty",
    "n_iter",
    "outcome",
    "warned",
]
FILES = ("rcv1_small.npz", "sonar.npz")
N_VALUES, N_FOLDS = 10, 5
# Text wants weaker penalties than the simulated studies: three decades instead of two.
SMALLEST_PENALTY = 1e-3


class Split(NamedTuple):
    data: str
    number: int
    X: Any
    y: NDArray[np.int_]  # -1 and +1
    X_test: Any
    y_test: NDArray[np.int_]


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=20)
    add_data_option(parser, FILES)
    args = parser.parse_args(argv)
    source = data_folder(args.data, FILES)
    trials = min(args.trials, 2) if args.quick else args.trials
    folder = common.output_folder(args.out, STUDY, args.quick)
    common.write_machine(folder, sonar_splits=trials, values=N_VALUES, folds=N_FOLDS)

    with common.Results(folder, COLUMNS) as results:
        for split in splits(source, trials):
            for name, fit in methods(split).items():
                row = measured(fit, split)
                results.add(data=split.data, split=split.number, method=name, **row)
                print(
                    f"{split.data:10s} split {split.number:2d}  {name:34s} error {row['error']:.4f}  "
                    f"log loss {row['log_loss']:.4f}  {row['seconds']:6.2f} s  kept {row['kept']:5d}  "
                    f"{row.get('outcome', '')} {row['warned']}",
                    flush=True,
                )
    print("\n" + report(folder))
    draw(folder)
    print(f"\nresults.csv, figure.png and machine.json are in {folder}")
    return folder


def splits(source: Path, sonar_splits: int) -> Iterator[Split]:
    """rcv1_small as it comes, sonar split at random, 80 % to train."""
    rcv1 = np.load(source / "rcv1_small.npz")
    X = sp.csr_matrix((rcv1["data"], rcv1["indices"], rcv1["indptr"]), shape=rcv1["shape"]).astype(np.float64)
    y, train = signs(rcv1["y"]), rcv1["split"] == "train"
    yield Split("rcv1_small", 0, X[train], y[train], X[~train], y[~train])

    sonar = np.load(source / "sonar.npz")
    X, y = sonar["X"].astype(np.float64), signs(sonar["y"])
    shuffle = StratifiedShuffleSplit(sonar_splits, test_size=0.2, random_state=0)
    for number, (train, test) in enumerate(shuffle.split(X, y)):
        yield Split("sonar", number, X[train], y[train], X[test], y[test])


def signs(labels: NDArray[Any]) -> NDArray[np.int_]:
    return np.where(labels == np.unique(labels)[1], 1, -1)


def methods(split: Split) -> dict[str, Callable[[], Any]]:
    """Name to a call that fits; each includes all its tuning and any scaling it needs."""
    ours = {
        "SparseClassifier": SparseClassifier(),
        "GAMP spike-and-slab": GAMPClassifier(),
        "GAMP spike-and-slab (discriminative)": GAMPClassifier(generative_weight=0.0),
        "GAMP Laplace": GAMPClassifier(prior="laplace"),
        "GAMP Gaussian": GAMPClassifier(prior="gaussian"),
        "GAMP Laplace, max-sum": GAMPClassifier(prior="laplace", rule="max-sum"),
    }
    calls: dict[str, Callable[[], Any]] = {name: partial(m.fit, split.X, split.y) for name, m in ours.items()}
    # Which scaling suits text is not known beforehand: all are shown, the best counts as the rival.
    scalers = {"no scaling": None, "max-abs": MaxAbsScaler(), "standardised": StandardScaler(with_mean=False)}
    if not sp.issparse(split.X):
        scalers = {"standardised": StandardScaler()}
    for name, scaler in scalers.items():
        calls[f"liblinear L1, {name}"] = partial(cross_validated_l1, scaler, split.X, split.y)
    return calls


def cross_validated_l1(scaler: Any, X: Any, y: NDArray[np.int_]) -> Any:
    scaled = X if scaler is None else scaler.fit_transform(X)
    penalties = rivals.penalty_grid(scaled, y, N_VALUES, SMALLEST_PENALTY)
    model = rivals.l1_logistic_cv(1.0 / penalties, N_FOLDS).fit(scaled, y)
    return model if scaler is None else make_pipeline(scaler, model)


def measured(fit: Callable[[], Any], split: Split) -> dict[str, Any]:
    """One fit on the clock, judged on the test half."""
    model, seconds, warned = common.timed(fit)
    proba = np.asarray(model.predict_proba(split.X_test), dtype=np.float64)
    row: dict[str, Any] = {
        "error": float(np.mean(model.predict(split.X_test) != split.y_test)),
        "log_loss": float(log_loss(split.y_test, proba, labels=[-1, 1])),
        "seconds": seconds,
        "warned": warned,
    }
    if hasattr(model, "inclusion_probability_"):
        return row | {
            "kept": int((model.inclusion_probability_ > 0.5).sum()),
            "kept_fdr": int(model.get_support(fdr=0.1).sum()),
            "generative_weight": model.generative_weight_,
            "loo_error": model.loo_error_,
            "loo_log_loss": model.loo_log_loss_,
            "n_iter": model.n_iter_,
            "outcome": str(model.outcome_),
        }
    last = model[-1] if hasattr(model, "steps") else model
    return row | {"kept": int((last.coef_ != 0).sum()), "penalty": 1.0 / float(np.ravel(last.C_)[0])}


if __name__ == "__main__":
    main()
