"""Theory: what to expect of a method before the data, from its prior and its channel alone; and bounds."""

from __future__ import annotations

from foldless.theory.bounds import Bounds, bound, bounds
from foldless.theory.learning_curve import LearningCurve
from foldless.theory.planning import Expectation, Plan, plan
from foldless.theory.replica import (
    Macroscopic,
    SaddlePoint,
    error_curve,
    free_energy,
    macroscopic,
    optimal_error,
    saddle_point,
)
from foldless.theory.state_evolution import Iterate, Model, StateEvolution, state_evolution
from foldless.theory.study import Spectrum, Study
from foldless.theory.tuned_student import expected_fit

__all__ = [
    "Bounds",
    "Expectation",
    "Iterate",
    "LearningCurve",
    "Macroscopic",
    "Model",
    "Plan",
    "SaddlePoint",
    "Spectrum",
    "StateEvolution",
    "Study",
    "bound",
    "bounds",
    "error_curve",
    "expected_fit",
    "free_energy",
    "macroscopic",
    "optimal_error",
    "plan",
    "saddle_point",
    "state_evolution",
]
