"""Theory: what to expect of a method before the data, from its prior and its channel alone; and bounds."""

from __future__ import annotations

from foldless.theory.bounds import Bounds, bound, bounds
from foldless.theory.state_evolution import Iterate, Model, StateEvolution, state_evolution

__all__ = ["Bounds", "Iterate", "Model", "StateEvolution", "bound", "bounds", "state_evolution"]
