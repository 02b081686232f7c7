"""Contracts that can be run: of priors, channels, operators and solvers, and of estimators."""

from foldless.testing.components import check_channel, check_operator, check_prior, check_solver
from foldless.testing.estimators import check_estimator, estimator_checks

__all__ = [
    "check_channel",
    "check_estimator",
    "check_operator",
    "check_prior",
    "check_solver",
    "estimator_checks",
]
