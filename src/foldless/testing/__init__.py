"""Contracts that can be run: of priors, channels, operators and solvers, and of estimators."""

from foldless.testing.estimators import check_estimator, estimator_checks

__all__ = ["check_estimator", "estimator_checks"]
