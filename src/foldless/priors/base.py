"""The contract of a prior: what is believed of a weight before the data."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array, Tilted
from foldless.component import Component, Names
from foldless.registry import registered

# How often weights are counted: all equally, or each its own number of times.
Weight = Array | float


@dataclass(frozen=True)
class Prior(Component):
    """A density over one weight, applied element-wise to all weights.

    All methods broadcast, accept float32 or float64 and return the dtype they got.
    """

    @abstractmethod
    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """Sum-product: moments of prior(w) N(w; mean, var) and the log normaliser."""

    @property
    def joint(self) -> bool:
        """Whether it speaks of all weights together: what it says of one depends on the cavities of all."""
        return False

    def constrained(self, cavity_mean: Array, cavity_var: Array, weight: Weight = 1.0) -> Prior:
        """The element-wise prior to use at these cavities: itself, unless it is `joint`.

        Such a prior (`Pruned`) states averages over all weights, counted by `weight`, and finds here what
        meets them.
        """
        return self

    def of_columns(self, columns: NDArray[np.intp], n_weights: int) -> Prior:
        """The prior of some of `n_weights` weights: itself, unless it differs between columns."""
        return self

    @abstractmethod
    def moments(self) -> tuple[float, float]:
        """Mean and variance of the prior itself: the state of knowledge before any data."""

    def start(self, n_weights: int) -> tuple[Array, Array]:
        """Mean and variance of each of `n_weights` weights before any data: where a solver starts."""
        mean, var = self.moments()
        return np.full(n_weights, mean), np.full(n_weights, var)

    @abstractmethod
    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draws from the prior."""


@runtime_checkable
class SupportsMaxSum(Protocol):
    def proximal(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """Max-sum: maximiser of log prior(w) - (w - mean)²/2var, var times its derivative, the maximum."""


@runtime_checkable
class SupportsInclusion(Protocol):
    def inclusion_probability(self, cavity_mean: Array, cavity_var: Array) -> Array:
        """Posterior probability that the weight is not exactly zero."""


@registered("prior/hyper-prior")
@dataclass(frozen=True)
class HyperPrior:
    """Weak beliefs about the parameters of priors, as pseudo-observations; zeros switch them off.

    Small real data sets (60 samples, 2 000 features) hardly inform single weights, and plain EM then
    drifts to a dense or an empty model. The defaults are worth a couple of imaginary weights, and
    are stated for columns of unit variance, where log-odds weights are of the order of one.
    """

    # As though this many further active weights of size `scale` had been seen.
    scale_count: float = 2.0
    scale: float = 1.0
    # Typical sizes beyond this many times `scale` are ruled out. Where classes are separable, every size of
    # weights fits the labels and larger ones fit better; ten log-odds per standard deviation is certainty.
    largest: float = 10.0
    # Beta prior of the inclusion rate: one imaginary active feature, `sparsity` times all inactive ones.
    active_count: float = 1.0
    sparsity: float = 0.2

    def bounded_size(self, size: float) -> float:
        """A typical size of weights (a standard deviation, a mean absolute value) within what is allowed."""
        return min(size, self.largest * self.scale)

    def log_density(self, variance: float) -> float:
        """What the imaginary weights say of a variance, over its logarithm and up to a constant."""
        return -0.5 * self.scale_count * (float(np.log(variance)) + self.scale**2 / variance)


NO_HYPER_PRIOR = HyperPrior(scale_count=0.0, largest=np.inf, active_count=0.0, sparsity=0.0)


@runtime_checkable
class SupportsEM(Protocol):
    def em_update(
        self,
        cavity_mean: Array,
        cavity_var: Array,
        *,
        weight: Weight = 1.0,
        names: Names = None,
        hyper: HyperPrior = NO_HYPER_PRIOR,
    ) -> Self:
        """One EM step for the named tunable parameters (None: all), weights counted with `weight`.

        `weight` is how a wrapper passes responsibilities on: a spike-and-slab prior updates its slab
        with each feature's inclusion probability.
        """
