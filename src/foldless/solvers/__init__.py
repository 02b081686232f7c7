"""Solvers turn a problem into a solution."""

from foldless.solvers.damping import AdaptiveDamping, ConstantDamping
from foldless.solvers.ep import EP
from foldless.solvers.gamp import GAMP
from foldless.solvers.solve import Stopping, solve

__all__ = ["EP", "GAMP", "AdaptiveDamping", "ConstantDamping", "Stopping", "solve"]
