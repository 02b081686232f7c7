"""Sparse Bayesian classification from one fit without folds."""

from foldless.estimators import GAMPClassifier, SparseClassifier

__all__ = ["GAMPClassifier", "SparseClassifier", "__version__"]
__version__ = "0.1.0.dev0"
