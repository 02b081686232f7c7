"""The Bayes point by max-product message passing, its messages by linear knapsacks [Potetz 2011]."""

from foldless.solvers.knapsack.factors import CompiledFactors, ExactFactors, Factors, LinearFactors
from foldless.solvers.knapsack.histograms import PRIORS, Histograms, LogPrior, Marginals, grid
from foldless.solvers.knapsack.machine import ENGINES, Diffusion, Machine, Sweep

__all__ = [
    "ENGINES",
    "PRIORS",
    "CompiledFactors",
    "Diffusion",
    "ExactFactors",
    "Factors",
    "Histograms",
    "LinearFactors",
    "LogPrior",
    "Machine",
    "Marginals",
    "Sweep",
    "grid",
]
