"""Simulators with known truth."""

from foldless.datasets.simulated import (
    Simulated,
    TwoClasses,
    make_class_means,
    make_logistic,
    make_two_classes,
)

__all__ = ["Simulated", "TwoClasses", "make_class_means", "make_logistic", "make_two_classes"]
