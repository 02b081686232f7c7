"""Estimators: the scikit-learn face of foldless."""

from foldless.estimators.classifier import SparseClassifier
from foldless.estimators.gamp import GAMPClassifier
from foldless.estimators.multiclass import MultinomialClassifier

__all__ = ["GAMPClassifier", "MultinomialClassifier", "SparseClassifier"]
