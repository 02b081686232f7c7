"""A cavity with its full evidence: for columns that a blended likelihood should not temper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foldless.beliefs import Array, Tilted
from foldless.priors._common import Denoiser, MovedCavity, as_cavity, proximal_of


@dataclass(frozen=True, eq=False)
class Untempered(MovedCavity):
    """The base at (r, factor·τ): the evidence about a weight counted 1/factor times.

    A blend of discriminative and generative likelihood tempers the labels by 1 - ω, and the generative
    part gives back what that takes away - except for intercepts and covariates that are always kept, of
    which it says nothing. With factor = 1 - ω they see the labels in full.

    Mean, variance and log_z are those of the base in the reduced variance, and are derivatives of each
    other there: mean = r + factor·τ ∂log_z/∂r. In the τ of the caller the identity of priors holds only
    for factor = 1. This is on purpose.
    """

    factor: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (np.ndim(self.factor) == 0 and 0.0 < self.factor <= 1.0):
            raise ValueError(
                f"Untempered(factor=...) must be above 0 and at most 1; got {self.factor!r}. It is the power "
                "to which the labels' likelihood was raised; at 0 there is nothing to undo: use the base."
            )

    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        return self.base.tilted(*self.inner_cavity(cavity_mean, cavity_var))

    @property
    def proximal(self) -> Denoiser:
        """Max-sum, if the base has it."""
        inner = proximal_of(self.base, self)
        return lambda cavity_mean, cavity_var: inner(*self.inner_cavity(cavity_mean, cavity_var))

    def inner_cavity(self, cavity_mean: Array, cavity_var: Array) -> tuple[Array, Array]:
        """(r, factor·τ)."""
        r, tau = as_cavity(cavity_mean, cavity_var)
        return r, np.asarray(tau * float(self.factor))
