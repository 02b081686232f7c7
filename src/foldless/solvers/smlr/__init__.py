"""Sparse multinomial logistic regression [Krishnapuram, Carin, Figueiredo, Hartemink 2005]."""

from foldless.solvers.smlr.objective import L1, PENALTIES, Labels, NoPenalty, Penalty, Ridge, RowGroups
from foldless.solvers.smlr.path import (
    ALGORITHMS,
    Columns,
    Regression,
    RegressionFit,
    Stop,
    fit,
    largest_rate,
    nothing,
    path,
    plainest,
)

__all__ = [
    "ALGORITHMS",
    "L1",
    "PENALTIES",
    "Columns",
    "Labels",
    "NoPenalty",
    "Penalty",
    "Regression",
    "RegressionFit",
    "Ridge",
    "RowGroups",
    "Stop",
    "fit",
    "largest_rate",
    "nothing",
    "path",
    "plainest",
]
