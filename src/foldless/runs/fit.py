"""Fit a model to a table, and say how it went."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from foldless.estimators._preparation import Preparation
from foldless.estimators._summary import Summary, summary_of
from foldless.estimators.panel import PanelClassifier
from foldless.estimators.planning import learning_curve
from foldless.io import printable
from foldless.io.journal import BadJournal
from foldless.io.table import BadTable, Table, check_present
from foldless.operators import stays_elsewhere
from foldless.problem import Iteration
from foldless.runs.models import DEFAULT, model_named
from foldless.theory.learning_curve import LearningCurve

Watch = Callable[[int, Iteration], None]


@dataclass(frozen=True, eq=False)
class Run:
    """A fitted model with its table."""

    table: Table
    model: Any
    seconds: float  # of the fit
    notes: tuple[str, ...]  # what the fit warned of
    panel: PanelClassifier | None = None

    @property
    def converged(self) -> bool:
        outcome = self.summary.outcome
        return outcome is None or bool(outcome.trustworthy)

    @cached_property
    def summary(self) -> Summary:
        return summary_of(self.model)


def fit_table(
    table: Table,
    *,
    model: str = DEFAULT,
    fdr: float = 0.1,
    seed: int = 0,
    class_weight: str | None = None,
    impute: str = "none",
    log_cpm: bool = False,
    average: bool = False,
    checkpoint: Path | None = None,
    watch: Watch | None = None,
) -> Run:
    """Fit the model of that name; covariates are always kept, groups are left out together.

    What is done to the table before is kept with the model. With a checkpoint, a fit that was ended before
    its time is resumed.
    """
    labels = table.labels()
    preparation = None
    if not stays_elsewhere(table.X):
        preparation, table = Preparation.fit(table, impute=impute, log_cpm=log_cpm, average=average)
    elif impute != "none" or log_cpm:
        problem = "rows stay where they are, and --impute and --log-cpm need them in memory."
        raise BadTable(table.path, problem, "Prepare the file first.")
    estimator = model_named(
        model,
        fdr=fdr,
        random_state=seed,
        always_keep=table.covariate_positions or None,
        checkpoint=checkpoint,
        class_weight=_class_weight(table, class_weight),
    )
    _check_wanted(table, estimator, model, checkpoint)
    options = {} if table.groups is None else {"groups": table.groups}
    if watch is not None and hasattr(type(estimator), "_on_iteration"):
        estimator._on_iteration = watch
    start = time.perf_counter()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator.fit(table.X, labels, **options)
    except BadJournal:
        raise  # names its own file
    except ValueError as error:
        raise BadTable(table.path, f"{type(estimator).__name__} cannot be fitted:", str(error)) from error
    finally:
        vars(estimator).pop("_on_iteration", None)  # a terminal is no part of a model
    seconds = time.perf_counter() - start
    # A sparse table cannot be given as a data frame, but its names are the model's all the same.
    estimator.feature_names_in_ = np.array(table.feature_names, dtype=object)
    if preparation is not None:
        estimator.preparation_ = preparation
    notes = [str(warning.message) for warning in caught if _is_news(warning.category)]
    return Run(table, estimator, seconds, tuple(dict.fromkeys(notes)))


def _class_weight(table: Table, asked: str | None) -> dict[Any, float] | str | None:
    """'balanced', or weights of classes as in tumour=5,normal=1."""
    if asked is None or asked == "balanced":
        return asked
    known = {str(label): label for label in np.unique(table.labels())}
    found = {}
    for part in asked.split(","):
        label, _, weight = part.rpartition("=")
        check_present(table.path, [label], known, "class", "--class-weight")
        try:
            found[known[label]] = float(weight)
        except ValueError:
            problem = f"--class-weight {printable(part)!r} has no number."
            raise BadTable(table.path, problem, "Write balanced, or LABEL=WEIGHT,LABEL=WEIGHT.") from None
    return dict.fromkeys(known.values(), 1.0) | found


def with_panel(run: Run, sizes: list[int] | str) -> Run:
    """The run, with a panel of its model: the few features that would do."""
    table, start = run.table, time.perf_counter()
    panel = PanelClassifier(sizes, run.model, always_keep=table.covariate_positions or None)
    with names_apart():
        panel.fit(table.X, table.labels(), groups=table.groups)
    panel.feature_names_in_ = np.array(table.feature_names, dtype=object)
    panel.feature_names_ = panel.feature_names_in_[panel.features_]
    if "preparation_" in vars(run.model):
        panel.preparation_ = run.model.preparation_
    return replace(run, panel=panel, seconds=run.seconds + time.perf_counter() - start)


def _check_wanted(table: Table, estimator: Any, name: str, checkpoint: Path | None) -> None:
    """Groups and covariates that are asked for and cannot be had are an error before any work."""
    known, model = inspect.signature(type(estimator)).parameters, f"the model {name!r}"
    resumable = "checkpoint" in known
    if table.groups is not None and "groups" not in inspect.signature(estimator.fit).parameters:
        problem, without = f"--groups is given, and {model} cannot leave groups out.", "do without --groups."
    elif table.covariates and "always_keep" not in known:
        problem = f"--covariates are given, and {model} cannot keep columns by decree."
        without = "do without --covariates: they are then features like others."
    elif checkpoint is not None and not resumable:
        problem = f"--checkpoint is given, and a fit of {model} cannot be resumed."
        without = "do without --checkpoint."
    elif stays_elsewhere(table.X) and not resumable:
        problem = f"rows stay where they are, and {model} needs them in memory."
        without = "a table that fits into memory."
    else:
        return
    raise BadTable(table.path, problem, f"Use --model {DEFAULT}, or {without}")


def check_curve_is_known(table: Table, model: str) -> None:
    """A curve that was asked for and cannot be had is an error before any work."""
    n_classes = len(table.class_counts())
    if model != DEFAULT:
        problem = f"theory knows no curve of the model {model!r}."
        remedy = f"Use --model {DEFAULT}, or do without --learning-curve."
    elif stays_elsewhere(table.X):
        problem = "needs the table in memory; its rows stay on disk."
        remedy = "Do without --learning-curve, or allow more memory with --max-memory."
    elif n_classes > 2:
        problem = f"theory knows two classes; the target has {n_classes}."
        remedy = "Do without --learning-curve."
    else:
        return
    raise BadTable(table.path, f"--learning-curve is given, and {problem}", remedy)


def learning_curve_of(run: Run) -> LearningCurve:
    """What more samples would bring, from half to four times as many."""
    with names_apart():
        return learning_curve(run.model, run.table.X, run.table.labels())


@contextmanager
def names_apart() -> Iterator[None]:
    """A sparse table has names, but no data frame to carry them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        yield


def _is_news(category: type[Warning]) -> bool:
    """How a fit ended, and what it could not do; not what other packages plan for their future."""
    return category is UserWarning or issubclass(category, ConvergenceWarning | RuntimeWarning)
