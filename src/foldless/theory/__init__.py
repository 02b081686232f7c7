"""Theory: what to expect of a method before the data, from its prior and its channel alone; and bounds."""

from __future__ import annotations

from foldless.theory.bounds import Bounds, bound, bounds
from foldless.theory.macroscopic import macroscopic
from foldless.theory.replica import (
    Macroscopic,
    SaddlePoint,
    error_curve,
    free_energy,
    optimal_error,
    saddle_point,
)
from foldless.theory.state_evolution import Iterate, Model, StateEvolution, state_evolution

__all__ = [
    "Bounds",
    "Iterate",
    "Macroscopic",
    "Model",
    "SaddlePoint",
    "StateEvolution",
    "bound",
    "bounds",
    "error_curve",
    "free_energy",
    "macroscopic",
    "optimal_error",
    "saddle_point",
    "state_evolution",
]
