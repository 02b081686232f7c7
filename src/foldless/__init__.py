"""Sparse Bayesian classification from one fit without folds."""
