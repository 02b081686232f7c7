"""Sparse multinomial logistic regression [Krishnapuram, Carin, Figueiredo, Hartemink 2005]."""

from foldless.solvers.smlr.likelihood import Labels
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
from foldless.solvers.smlr.penalties import L1, PENALTIES, NoPenalty, Penalty, Ridge, RowGroups

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
