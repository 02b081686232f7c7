"""Table 2 of the SMLR paper, side by side: SMLR, RMLR, RVM and SVM on six data sets, and SMLR on features.

python -m benchmarks.studies.smlr_table2.run --data DIR
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV, StratifiedKFold, StratifiedShuffleSplit
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.studies import _common as common
from benchmarks.studies.smlr_table2.plot import draw, report
from foldless import SMLRClassifier
from foldless.estimators.baselines import RVMClassifier, SBMLRClassifier

STUDY = Path(__file__).parent
COLUMNS = ["data", "split", "method", "wrong", "tested", "kept", "seconds", "rate", "loo_log_loss", "warned"]
# Kernels as in the paper; the width is chosen for the SVM, by cross-validation, and used for all. Of equally
# good widths the widest. One grid and one kind of folds for all sets.
KERNELS = {
    "crabs": "rbf",
    "leukemia": "linear",
    "colon": "linear",
    "iris": "rbf",
    "yeast": "linear",
    "fgl": "rbf",
}
# The features themselves, for the two gene expression sets of the paper's last paragraphs.
ON_FEATURES = ("leukemia", "colon")
GAMMAS = np.geomspace(1e-3, 1.0, 7)
COSTS = np.geomspace(0.1, 1e3, 5)
SVM_FOLDS = 10


class Split(NamedTuple):
    data: str
    number: int
    X: NDArray[np.float64]
    y: NDArray[Any]
    X_test: NDArray[np.float64]
    y_test: NDArray[Any]


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=30)
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("FOLDLESS_DATA"),
        help="folder with the .npz files (default: environment variable FOLDLESS_DATA)",
    )
    parser.add_argument("--only", nargs="*", help="data sets, if not all")
    args = parser.parse_args(argv)
    source = checked_source(args.data)
    folder = common.output_folder(args.out, STUDY, args.quick)
    names = args.only or list(KERNELS)
    common.write_machine(folder, colon_splits=args.trials, svm_folds=SVM_FOLDS)

    with common.Results(folder, COLUMNS) as results:
        for name in names:
            for split in splits(source, name, args.trials):
                if args.quick and split.number > 0:
                    break
                svm = common.timed(partial(_tuned_svm, split))
                gamma = svm.result.best_params_.get("estimator__gamma")
                fits = {
                    method: common.timed(fit) for method, fit in methods(split, gamma, args.quick).items()
                }
                for method, fitted in (fits | {"SVM": svm}).items():
                    row = measured(fitted, split)
                    results.add(data=name, split=split.number, method=method, **row)
                    print(
                        f"{name:9s} {split.number:2d}  {method:22s} wrong {row['wrong']:3d} of "
                        f"{row['tested']:3d}  kept {row['kept']:4d}  {row['seconds']:7.2f} s {row['warned']}",
                        flush=True,
                    )
    print("\n" + report(folder))
    draw(folder)
    return folder


def checked_source(given: Path | None) -> Path:
    if given is None or not Path(given).is_dir():
        sys.exit(
            f"This study needs a folder with {', '.join(KERNELS)} as .npz files; got {given}.\n"
            "Name it with --data DIR or in the environment variable FOLDLESS_DATA."
        )
    return Path(given)


def splits(source: Path, name: str, colon_splits: int) -> Iterator[Split]:
    """The paper's protocols: fixed halves, folds, or random splits of 50 and 12."""
    path = source / f"{name}.npz"
    if not path.is_file():
        print(f"{name} is left out: {path} does not exist")
        return
    stored = np.load(path)
    X, y = stored["X"].astype(np.float64), stored["y"]
    for number, (train, test) in enumerate(_parts(name, stored, y, colon_splits)):
        scaler = StandardScaler().fit(X[train])
        # Yeast profiles have unit length already, as in the papers that the kernel comes from.
        inside, outside = (
            (X[train], X[test])
            if name == "yeast"
            else (scaler.transform(X[train]), scaler.transform(X[test]))
        )
        yield Split(name, number, inside, y[train], outside, y[test])


def _parts(
    name: str, stored: Any, y: NDArray[Any], colon_splits: int
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    if name in ("crabs", "leukemia"):
        train = stored["split"] == "train"
        yield np.flatnonzero(train), np.flatnonzero(~train)
    elif name == "fgl":
        for fold in np.unique(stored["cv_fold"]):
            inside = stored["cv_fold"] == fold
            yield np.flatnonzero(~inside), np.flatnonzero(inside)
    elif name == "colon":
        yield from StratifiedShuffleSplit(colon_splits, test_size=12, random_state=0).split(y, y)
    else:
        n_folds = {"iris": 10, "yeast": 8}[name]
        yield from StratifiedKFold(n_folds, shuffle=True, random_state=0).split(y, y)


def methods(split: Split, gamma: float | None, quick: bool) -> dict[str, Callable[[], Any]]:
    """Name to a call that fits; each includes all its tuning."""
    kernel = KERNELS[split.data]
    multi = np.unique(split.y).size > 2
    n_rates = 8 if quick else 30
    # The paper's form, as its counts of weights tell: no intercept, one class without weights, raw kernels.
    form = {"fit_intercept": False, "standardize": False, "reference_class": np.unique(split.y)[-1]}
    smlr = SMLRClassifier(kernel=kernel, gamma=gamma, n_rates=n_rates, **form)
    rmlr = SMLRClassifier(kernel=kernel, gamma=gamma, penalty="l2", n_rates=n_rates, **form)
    rvm: Any = RVMClassifier(kernel=kernel, gamma=gamma)
    if multi:
        rvm = OneVsRestClassifier(rvm)
    calls: dict[str, Callable[[], Any]] = {
        "SMLR": lambda: smlr.fit(split.X, split.y),
        "RMLR": lambda: rmlr.fit(split.X, split.y),
        "RVM": lambda: rvm.fit(split.X, split.y),
    }
    if split.data in ON_FEATURES:
        on_features = SMLRClassifier(n_rates=n_rates)
        no_intercept = SMLRClassifier(n_rates=n_rates, fit_intercept=False)
        by_folds = SMLRClassifier(n_rates=n_rates, tuning="cv")
        sbmlr = SBMLRClassifier()
        calls |= {
            "SMLR features": lambda: on_features.fit(split.X, split.y),
            "SMLR features, no intercept": lambda: no_intercept.fit(split.X, split.y),
            "SMLR features, CV": lambda: by_folds.fit(split.X, split.y),
            "SBMLR features": lambda: sbmlr.fit(split.X, split.y),
        }
    return calls


def _tuned_svm(split: Split) -> GridSearchCV:
    kernel = KERNELS[split.data]
    grid = {"estimator__C": COSTS}
    if kernel == "rbf":
        grid["estimator__gamma"] = GAMMAS
    fewest = int(np.unique(split.y, return_counts=True)[1].min())
    n_folds = min(SVM_FOLDS, max(fewest, 2))
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=0)
    model = OneVsRestClassifier(SVC(kernel=kernel))
    return GridSearchCV(model, grid, cv=folds, refit=_widest_of_the_best).fit(split.X, split.y)


def _widest_of_the_best(results: dict[str, Any]) -> int:
    """The smallest gamma of the best accuracy, then the smallest cost."""
    mean = results["mean_test_score"]
    good = np.flatnonzero(mean >= mean.max() - 1e-9)
    gamma = results.get("param_estimator__gamma")
    widths = np.zeros(mean.size) if gamma is None else np.asarray(gamma, dtype=np.float64)
    return int(good[np.argmin(widths[good])])


def measured(fitted: common.Timed, split: Split) -> dict[str, Any]:
    model, seconds, warned = fitted
    row: dict[str, Any] = {
        "wrong": int(np.sum(model.predict(split.X_test) != split.y_test)),
        "tested": int(split.y_test.size),
        "seconds": seconds,
        "warned": warned,
        "kept": kept(model),
    }
    if hasattr(model, "loo_log_loss_"):
        row |= {"rate": float(model.rate_), "loo_log_loss": float(model.loo_log_loss_)}
    return row


def kept(model: Any) -> int:
    """Weights that are not zero, over all classes, as the paper counts; two classes have one set."""
    if isinstance(model, GridSearchCV):
        return sum(int(e.n_support_.sum()) for e in model.best_estimator_.estimators_)
    if isinstance(model, OneVsRestClassifier):
        return sum(int(e.n_kept_) for e in model.estimators_)
    return int(np.count_nonzero(model.coef_)) if hasattr(model, "coef_") else int(model.n_kept_)


if __name__ == "__main__":
    main()
