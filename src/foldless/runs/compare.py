"""foldless beside scikit-learn's usual choices, on the same splits of a table.

The rivals are tuned as their users tune them: penalties by cross-validation inside each training part,
columns standardised there. Nothing of a test part is seen before it is predicted.
"""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from foldless.estimators._preparation import Preparation
from foldless.io.table import BadTable, Table
from foldless.runs.fit import fit_table
from foldless.runs.models import DEFAULT

N_SPLITS = 5
INNER_FOLDS = 5
# Ten inverse penalties over five decades, for standardised columns.
INVERSE_PENALTIES = np.geomspace(1e-4, 10.0, 10)

Watch = Callable[[str], None]
Fitted = tuple[Any, int, int | None]  # a model, the features it uses, and those it selects
Method = Callable[[NDArray[np.intp]], Fitted]


@dataclass(frozen=True)
class Score:
    """How one method did on one split."""

    split: int
    method: str
    error: float
    log_loss: float | None  # a machine without probabilities has none
    n_features: int  # that predictions use
    n_selected: int | None  # as `fit` counts them, without covariates; None of a method that selects none
    seconds: float


def compare_table(
    table: Table,
    *,
    model: str = DEFAULT,
    fdr: float = 0.1,
    n_splits: int = N_SPLITS,
    seed: int = 0,
    threads: int = 1,
    impute: str = "none",
    log_cpm: bool = False,
    watch: Watch | None = None,
) -> list[Score]:
    """Error, log loss, features used and seconds of every method on every split.

    Missing values are filled in for all methods alike, from all samples.
    """
    labels = table.labels()
    _, table = Preparation.fit(table, impute=impute, log_cpm=log_cpm)
    splits = list(_splits(table, labels, n_splits, seed))
    methods = _methods(table, model, fdr, seed, threads)
    scores = []
    for number, (train, test) in enumerate(splits, start=1):
        for name, method in methods.items():
            if watch is not None:
                watch(f"Split {number} of {len(splits)}: {name}")
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # rivals' advice on their own settings
                fitted, used, selected = method(train)
                seconds = time.perf_counter() - start
                predicted = fitted.predict(table.X[test])
                loss = None
                if hasattr(fitted, "predict_proba"):
                    loss = float(
                        log_loss(labels[test], fitted.predict_proba(table.X[test]), labels=np.unique(labels))
                    )
            error = float(np.mean(predicted != labels[test]))
            scores.append(Score(number, name, error, loss, used, selected, seconds))
    return scores


def _splits(
    table: Table, labels: NDArray[Any], n_splits: int, seed: int
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    smallest = int(np.min(np.unique(labels, return_counts=True)[1]))
    available = smallest if table.groups is None else int(np.unique(table.groups).size)
    if available < 2:
        raise BadTable(table.path, "a class has one sample only.", "Two are needed to train and to test.")
    n_splits = min(n_splits, available)
    if table.groups is None:
        yield from StratifiedKFold(n_splits, shuffle=True, random_state=seed).split(table.X, labels)
    else:
        folds = StratifiedGroupKFold(n_splits, shuffle=True, random_state=seed)
        for train, test in folds.split(table.X, labels, table.groups):
            if np.unique(labels[train]).size == np.unique(labels).size:
                yield train, test


def _methods(table: Table, model: str, fdr: float, seed: int, threads: int) -> dict[str, Method]:
    labels, kept = table.labels(), table.covariate_positions

    def ours(train: NDArray[np.intp]) -> Fitted:
        names = [table.sample_names[i] for i in train]
        groups = None if table.groups is None else table.groups[train]
        part = replace(table, X=table.X[train], sample_names=names, target=labels[train], groups=groups)
        fitted = fit_table(part, model=model, fdr=fdr, seed=seed).model
        # A kernel's weights are those of its basis, and all features are in that.
        if getattr(fitted, "kernel", None) is not None:
            return fitted, table.X.shape[1], None
        # Not by a summary, which looks for groups: nobody reads them here, and that may outlast the fit.
        others = np.delete(np.atleast_2d(fitted.coef_), kept, axis=1)
        selects = hasattr(fitted, "get_support")
        selected = int(np.delete(fitted.get_support(), kept).sum()) if selects else _used(others)
        return fitted, _used(fitted.coef_), selected

    def rival(make: Callable[[Any], Any], *, selects: bool = False) -> Method:
        def fit(train: NDArray[np.intp]) -> Fitted:
            folds = list(_inner_folds(table, labels, train, seed))
            pipeline = make_pipeline(StandardScaler(with_mean=not sp.issparse(table.X)), make(folds))
            pipeline.fit(table.X[train], labels[train])
            last = pipeline[-1]
            coef = getattr(last, "best_estimator_", last).coef_
            selected = _used(np.delete(coef, kept, axis=1)) if selects else None
            return pipeline, _used(coef), selected

        return fit

    binary = np.unique(labels).size == 2
    l1_solver = (
        {"solver": "liblinear", "random_state": seed} if binary else {"solver": "saga", "max_iter": 300}
    )
    return {
        f"foldless ({model})": ours,
        "L1 logistic, tuned": rival(
            lambda folds: _logistic_cv("l1", folds, threads, **l1_solver), selects=True
        ),
        "ridge logistic, tuned": rival(lambda folds: _logistic_cv("l2", folds, threads, max_iter=1000)),
        "linear SVM, tuned": rival(
            lambda folds: GridSearchCV(
                LinearSVC(random_state=seed), {"C": INVERSE_PENALTIES}, cv=folds, n_jobs=threads
            )
        ),
    }


def _used(coef: Any) -> int:
    return int(np.any(np.atleast_2d(coef) != 0, axis=0).sum())


def _inner_folds(table: Table, labels: NDArray[Any], train: NDArray[np.intp], seed: int) -> Iterator[Any]:
    """Folds to tune on: of whole groups where there are groups, and of every class."""
    y = labels[train]
    if table.groups is not None:
        groups = table.groups[train]
        n_folds = min(INNER_FOLDS, np.unique(groups).size)
        if n_folds >= 2:
            found = [
                (a, b)
                for a, b in StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed).split(y, y, groups)
                if np.unique(y[a]).size == np.unique(y).size == np.unique(y[b]).size
            ]
            if found:
                yield from found
                return
    n_folds = min(INNER_FOLDS, int(np.min(np.unique(y, return_counts=True)[1])))
    if n_folds < 2:
        raise BadTable(table.path, "a class has too few samples to tune rivals on.", "Three are needed.")
    yield from StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(y, y)


def _logistic_cv(penalty: str, folds: Any, threads: int, **more: Any) -> LogisticRegressionCV:
    """LogisticRegressionCV tuned by log loss, asked for in the words of the installed version."""
    known = inspect.signature(LogisticRegressionCV).parameters
    words: dict[str, Any] = {"penalty": penalty}
    if known["penalty"].default == "deprecated":
        words = {"l1_ratios": (1.0 if penalty == "l1" else 0.0,)}
    if "use_legacy_attributes" in known:
        words["use_legacy_attributes"] = False
    return LogisticRegressionCV(
        Cs=INVERSE_PENALTIES, cv=folds, scoring="neg_log_loss", n_jobs=threads, **words, **more
    )
