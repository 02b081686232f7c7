"""Fit a model to a table, and say how it went."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from foldless.estimators._summary import Summary, summary_of
from foldless.io.journal import BadJournal
from foldless.io.table import BadTable, Table, check_finite
from foldless.operators import stays_elsewhere
from foldless.problem import Iteration
from foldless.runs.models import DEFAULT, model_named

Watch = Callable[[int, Iteration], None]


@dataclass(frozen=True, eq=False)
class Run:
    """A fitted model with its table."""

    table: Table
    model: Any
    seconds: float  # of the fit
    notes: tuple[str, ...]  # what the fit warned of

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
    checkpoint: Path | None = None,
    watch: Watch | None = None,
) -> Run:
    """Fit the model of that name; covariates are always kept, groups are left out together.

    With a checkpoint, a fit that was ended before its time is resumed.
    """
    labels = table.labels()
    if not stays_elsewhere(table.X):
        check_finite(table.path, table.X, table.feature_names)
    estimator = model_named(
        model,
        fdr=fdr,
        random_state=seed,
        always_keep=table.covariate_positions or None,
        checkpoint=checkpoint,
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
    notes = [str(warning.message) for warning in caught if _is_news(warning.category)]
    return Run(table, estimator, seconds, tuple(dict.fromkeys(notes)))


def _check_wanted(table: Table, estimator: Any, name: str, checkpoint: Path | None) -> None:
    """Groups and covariates are promises: a model that cannot keep them is not fitted."""
    if table.groups is not None and "groups" not in inspect.signature(estimator.fit).parameters:
        raise BadTable(
            table.path,
            f"--groups is given, and the model {name!r} cannot leave groups out.",
            f"Use --model {DEFAULT}, or do without --groups.",
        )
    if table.covariates and "always_keep" not in inspect.signature(type(estimator)).parameters:
        raise BadTable(
            table.path,
            f"--covariates are given, and the model {name!r} cannot keep columns by decree.",
            f"Use --model {DEFAULT}, or do without --covariates: they are then features like others.",
        )
    resumable = "checkpoint" in inspect.signature(type(estimator)).parameters
    if checkpoint is not None and not resumable:
        raise BadTable(
            table.path,
            f"--checkpoint is given, and a fit of the model {name!r} cannot be resumed.",
            f"Use --model {DEFAULT}, or do without --checkpoint.",
        )
    if stays_elsewhere(table.X) and not resumable:
        raise BadTable(
            table.path,
            f"rows stay where they are, and the model {name!r} needs them in memory.",
            f"Use --model {DEFAULT}, or a table that fits into memory.",
        )


def _is_news(category: type[Warning]) -> bool:
    """How a fit ended, and what it could not do; not what other packages plan for their future."""
    return category is UserWarning or issubclass(category, ConvergenceWarning | RuntimeWarning)
