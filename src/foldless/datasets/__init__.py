"""Simulators with known truth."""

from foldless.datasets.simulated import Simulated, make_class_means, make_logistic
from foldless.datasets.two_classes import TwoClasses, make_two_classes

__all__ = ["Simulated", "TwoClasses", "make_class_means", "make_logistic", "make_two_classes"]
