"""Estimators: the scikit-learn face of foldless."""

from foldless.estimators._saving import load
from foldless.estimators.bayes_point import BayesPointClassifier
from foldless.estimators.classifier import SparseClassifier
from foldless.estimators.gamp import GAMPClassifier
from foldless.estimators.pruned import PrunedBayesClassifier
from foldless.estimators.smlr import SMLRClassifier

__all__ = [
    "BayesPointClassifier",
    "GAMPClassifier",
    "PrunedBayesClassifier",
    "SMLRClassifier",
    "SparseClassifier",
    "load",
]
