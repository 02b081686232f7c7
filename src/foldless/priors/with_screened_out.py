"""A prior whose parameters are learnt from more weights than it is asked about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array, Tilted
from foldless.component import Names, inner_names
from foldless.priors._common import Denoiser, MovedCavity, as_cavity, proximal_of
from foldless.priors.base import HyperPrior, Prior, Weight
from foldless.registry import registered

# They are counted in bins of their cavities' means. Within a bin of width h standard deviations the Bayes
# factor of a slab, at most exp(z²/2), is off by (1 + z²) h²/24 at second order: 1e-4 at z = 5.
BINS_PER_STANDARD_DEVIATION = 100
# They are close to zero; any further out than this would count as no more than so far.
OUTERMOST = 20
# Counted at a time, so that no temporary is of the features' length.
PIECE = 1 << 16


@registered("prior/with-screened-out")
@dataclass(frozen=True, eq=False)
class WithScreenedOut(MovedCavity):
    """The base, which learns also from weights that were screened out.

    Whatever else is asked is answered by the base alone.
    """

    # Cavities of theirs, and how many weights have them.
    screened_out_mean: Array
    screened_out_var: Array
    count: Array

    @classmethod
    def counting(
        cls, base: Prior, cavity_mean: Array, cavity_var: Array, screened_out: NDArray[np.bool_]
    ) -> Self:
        """Of all weights, which have these cavities, those marked `screened_out`.

        Weights whose cavities are within a hundredth of a standard deviation of each other become one, with
        the mean of their means and variances, that counts so many times.
        """
        r, tau = as_cavity(cavity_mean, cavity_var)
        tau = np.broadcast_to(tau, r.shape)
        last = OUTERMOST * BINS_PER_STANDARD_DEVIATION
        sums = np.zeros((3, 2 * last + 1))
        for start in range(0, r.size, PIECE):
            piece = slice(start, start + PIECE)
            var = tau[piece][screened_out[piece]]
            z = r[piece][screened_out[piece]] / np.sqrt(var)
            bins = np.rint(np.clip(BINS_PER_STANDARD_DEVIATION * z, -last, last)).astype(np.intp) + last
            for total, values in zip(sums, (None, z, var), strict=True):
                total += np.bincount(bins, values, minlength=total.size)
        count, z, var = sums[:, sums[0] > 0]
        return cls(base, z / count * np.sqrt(var / count), var / count, count)

    def screened_out_variance(self) -> float:
        """What the variances of all screened-out weights add up to."""
        return float(self.count @ self.base.tilted(self.screened_out_mean, self.screened_out_var).var)

    def inner_cavity(self, cavity_mean: Array, cavity_var: Array) -> tuple[Array, Array]:
        return as_cavity(cavity_mean, cavity_var)

    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        return self.base.tilted(cavity_mean, cavity_var)

    @property
    def proximal(self) -> Denoiser:
        return proximal_of(self.base, self)

    def _learned(self, r: Array, tau: Array, weight: Weight, names: Names, hyper: HyperPrior) -> Self:
        """One EM step of the base over present and screened-out weights together."""
        present = (np.broadcast_to(np.asarray(each), r.shape).ravel() for each in (r, tau, weight))
        # In double precision: few are present, and what the screened-out ones count by may be millions.
        mean, var, count = (
            np.concatenate(both, dtype=np.float64)
            for both in zip(present, (self.screened_out_mean, self.screened_out_var, self.count), strict=True)
        )
        base = self.base.em_update(  # type: ignore[attr-defined]
            mean, var, weight=count, names=inner_names(names, "base"), hyper=hyper
        )
        return replace(self, base=base)


def innermost(prior: Prior) -> Prior:
    """What is wrapped by all that moves a cavity."""
    while isinstance(prior, MovedCavity):
        prior = prior.base
    return prior


def innermost_cavity(prior: Prior, cavity_mean: Array, cavity_var: Array) -> tuple[Array, Array]:
    """The cavity as the innermost prior sees it."""
    while isinstance(prior, MovedCavity):
        cavity_mean, cavity_var = prior.inner_cavity(cavity_mean, cavity_var)
        prior = prior.base
    return cavity_mean, cavity_var


def around_innermost(prior: Prior, wrapped: Callable[[Prior], Prior]) -> Prior:
    """The same prior with its innermost wrapped once more."""
    if isinstance(prior, MovedCavity):
        return replace(prior, base=around_innermost(prior.base, wrapped))
    return wrapped(prior)
