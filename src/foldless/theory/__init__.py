"""Theory: what to expect of a method before the data, from its prior and its channel alone."""

from __future__ import annotations

from foldless.theory.state_evolution import Iterate, Model, StateEvolution, state_evolution

__all__ = ["Iterate", "Model", "StateEvolution", "state_evolution"]
