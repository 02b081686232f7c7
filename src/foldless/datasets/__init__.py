"""Simulators with known truth."""

from foldless.datasets.simulated import Simulated, make_class_means, make_logistic

__all__ = ["Simulated", "make_class_means", "make_logistic"]
