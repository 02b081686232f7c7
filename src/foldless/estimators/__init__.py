"""Estimators: the scikit-learn face of foldless."""

from foldless.estimators.classifier import SparseClassifier
from foldless.estimators.gamp import GAMPClassifier

__all__ = ["GAMPClassifier", "SparseClassifier"]
