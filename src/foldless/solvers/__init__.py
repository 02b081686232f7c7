"""Solvers turn a problem into a solution."""

from foldless.solvers.background_ep import BackgroundEP
from foldless.solvers.edges import EdgeMessages
from foldless.solvers.ep import EP, ClusteredEP
from foldless.solvers.gamp import GAMP
from foldless.solvers.hygamp import HyGAMP
from foldless.solvers.message_passing import AdaptiveDamping, ConstantDamping
from foldless.solvers.solve import Stopping, solve
from foldless.solvers.vamp import VAMP

__all__ = [
    "EP",
    "GAMP",
    "VAMP",
    "AdaptiveDamping",
    "BackgroundEP",
    "ClusteredEP",
    "ConstantDamping",
    "EdgeMessages",
    "HyGAMP",
    "Stopping",
    "solve",
]
