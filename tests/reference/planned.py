"""Tables as tuning takes them, and classifiers whose plan is made from other facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from foldless import SparseClassifier
from foldless.operators import Standardized, operator_from
from foldless.tuning.costs import Budget
from foldless.tuning.fit import Choices
from foldless.tuning.path import Result, fit_table
from foldless.tuning.plan import plan
from foldless.tuning.record import Recorder
from foldless.tuning.table import Layout, LeftOut, Table, survey

# Exact covariances are too expensive for any table.
NEVER_EXACT = Budget(exact=0.0)
# Whatever the columns look like.
CORRELATED, INDEPENDENT = {"spectral_excess": 10.0}, {"spectral_excess": 0.9}


def table_of(
    X: Any,
    labels: np.ndarray,
    weight: np.ndarray | None = None,
    *,
    intercept: bool = True,
    mean_removal: bool = False,
    always_kept: tuple[int, ...] = (),
) -> Table:
    """Of labels -1 and +1, or 1 to D."""
    labels = np.asarray(labels, dtype=np.float64)
    weight = np.ones(labels.size) if weight is None else weight
    standardized = Standardized.fit(operator_from(X), weight)
    n_classes = 2 if labels.min() < 0 else int(labels.max())
    return Table(
        standardized,
        labels,
        weight,
        LeftOut(weight),
        Layout(X.shape[1], always_kept, intercept, mean_removal),
        n_classes,
    )


class Planned(SparseClassifier):
    """The default classifier, with a budget, and facts in place of those that a survey finds."""

    def but(self, budget: Budget | None = None, **facts: Any) -> Planned:
        self._budget, self._facts = budget or Budget(), facts
        return self

    def _fit_table(self, table: Table, choices: Choices, recorder: Recorder) -> Result:
        planned = plan(
            replace(survey(table), **self._facts),
            self._budget,
            groups=table.left_out.group is not None,
            generative_weight=choices.generative_weight,
        )
        return fit_table(table, planned, choices, recorder)
