"""Joint sites: correlated columns that have one prior site together, and what their priors answer to it.

Of strongly correlated columns labels say "one of these", and no product of sites of single weights can say
so: each site answers to the doubt that the others make, and an iteration goes in circles, or, while the
prior's parameters are learnt, away. The weights of a cluster therefore share a site. Their joint cavity P, h
is shown to their true priors, by summing over configurations of spikes and slabs (`configurations`), and the
site is what gives the Gaussian the mean and covariance that come out:

    site precision = covariance⁻¹ - P,    site shift = covariance⁻¹ mean - h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foldless.beliefs import Array
from foldless.problem import Problem
from foldless.solvers.configurations import (
    Configurations,
    SpikesAndSlabs,
    all_configurations,
    spikes_and_slabs,
)
from foldless.solvers.gaussian_layer import Block, JointCavity, Positions

# Configurations of ever more weights are left out once they have less than this share of the probability:
# a site needs no more digits than that.
NEGLIGIBLE = 1e-2
# Axes along which a cluster's weights vary less than this, relative to the others, are rounding error.
LEAST_AXIS = 1e-10
# No weight of a cluster is surer to be zero than by this share of its slab's variance.
LEAST_VARIANCE_SHARE = 1e-16


@dataclass(frozen=True, eq=False)
class ClusterSite:
    """One prior site of several weights: exp(-½ wᵀ precision w + shiftᵀ w)."""

    columns: Positions
    precision: Array
    shift: Array

    def weakened(self, share: float) -> Array:
        """The precision with this share of what is negative in it."""
        if share == 1.0:
            return self.precision
        unit = np.sqrt(np.max(np.abs(self.precision), axis=1))
        axes, vectors = np.linalg.eigh(self.precision / np.multiply.outer(unit, unit))
        vectors = vectors * unit[:, np.newaxis]
        return (vectors * np.where(axes < 0, share * axes, axes)) @ vectors.T


@dataclass(frozen=True, eq=False)
class Cluster:
    """The weights of a cluster at their joint cavity, under their priors."""

    site: ClusterSite
    cavity: JointCavity
    prior: SpikesAndSlabs
    found: Configurations

    @property
    def columns(self) -> Positions:
        return self.site.columns

    @property
    def var(self) -> Array:
        return self.found.covariance.diagonal()

    def wanted_site(self) -> ClusterSite:
        """What has to be added to the cavity for the mean and the covariance found."""
        std = np.sqrt(np.maximum(self.var, LEAST_VARIANCE_SHARE * self.prior.slab_var))
        axes, vectors = np.linalg.eigh(self.found.covariance / np.multiply.outer(std, std))
        vectors = vectors / std[:, np.newaxis]
        precision = (vectors / np.maximum(axes, LEAST_AXIS)) @ vectors.T
        shift = precision @ self.found.mean - self.cavity.shift
        return ClusterSite(self.columns, precision - self.cavity.precision, shift)

    def log_factor(self) -> float:
        """log ∫ prior · cavity - log ∫ site · cavity: what the site leaves out of the evidence."""
        precision, shift = self.cavity.precision + self.site.precision, self.cavity.shift + self.site.shift
        _, log_determinant = np.linalg.slogdet(precision / (2 * np.pi))
        square = float(shift @ np.linalg.solve(precision, shift))
        return self.found.log_z - 0.5 * (square - float(log_determinant))


class JointSites:
    """The joint sites of some of the free weights."""

    def __init__(self, sites: Sequence[ClusterSite], free: Positions) -> None:
        self.sites = tuple(sites)
        self.places = [np.searchsorted(free, site.columns) for site in sites]

    def put_into(self, precision: Array, share: float = 1.0) -> Array:
        """Precisions of all free weights as a matrix, with the joint sites, less what is negative in them."""
        matrix = np.diag(precision)
        for site, at in zip(self.sites, self.places, strict=True):
            matrix[np.ix_(at, at)] = site.weakened(share)
        return matrix

    def read(self, block: Block) -> tuple[ClusterSite, ...]:
        """The joint sites as a block has them."""
        return tuple(
            ClusterSite(site.columns, block.site_precision[np.ix_(at, at)], block.site_shift[at])
            for site, at in zip(self.sites, self.places, strict=True)
        )

    def judged(self, problem: Problem, block: Block) -> tuple[Cluster, ...]:
        """Every cluster at its joint cavity."""
        priors, _ = spikes_and_slabs(problem.prior, problem.operator.shape[1])
        sites = self.read(block)
        cavities = [block.cavity(at) for at in self.places]
        own_priors = [priors.at(site.columns) for site in sites]
        found = all_configurations(cavities, own_priors, NEGLIGIBLE)
        return tuple(Cluster(*parts) for parts in zip(sites, cavities, own_priors, found, strict=True))

    def wanted(
        self, clusters: Sequence[Cluster], precision: Array, shift: Array, var: Array
    ) -> tuple[Array, Array, Array]:
        """What single weights want, with what clusters want in its place: a matrix, shifts, and variances."""
        matrix, shift, var = np.diag(precision), shift.copy(), var.copy()
        for cluster, at in zip(clusters, self.places, strict=True):
            site = cluster.wanted_site()
            matrix[np.ix_(at, at)], shift[at], var[at] = site.precision, site.shift, cluster.var
        return matrix, shift, var


def cavities_of(clusters: Sequence[Cluster]) -> tuple[Positions, Array, Array]:
    """All columns of clusters, and the cavities at which their priors alone would say what the clusters do.

    Whoever asks the prior at the cavities, for inclusion probabilities or to learn its parameters, then has
    the joint answer.
    """
    columns, inclusion, mean, var = map(
        np.concatenate,
        zip(*((c.columns, c.found.inclusion, c.found.mean, c.var) for c in clusters), strict=True),
    )
    prior = SpikesAndSlabs(*map(np.concatenate, zip(*(cluster.prior for cluster in clusters), strict=True)))
    return columns, *equivalent_cavities(prior, inclusion, mean, var)


def equivalent_cavities(
    prior: SpikesAndSlabs, inclusion: Array, mean: Array, var: Array
) -> tuple[Array, Array]:
    """Cavities N(r, τ) at which priors give this inclusion ρ, this E[w²], and the sign of this mean.

    With v the slab's variance (its mean is zero), L = logit ρ - logit π, and a = E[w²]/(ρ v), the second
    moment of the slab's part in units of v: x = τ/(τ + v) has

        2L = log x + a/x - 1    <=>    u - log u = 2L + 1 - log a,   u = a/x >= max(a, 1),

    and the mean of the slab's part squared is v x (2L - log x). Where no x has both, ρ is kept.
    """
    rate, v = prior.inclusion, prior.slab_var
    tiny = np.finfo(np.float64).tiny
    inclusion = np.clip(inclusion, tiny, 1.0 - np.finfo(np.float64).eps)
    log_odds = np.log(inclusion) - np.log1p(-inclusion) - np.log(rate) + np.log1p(-rate)
    size = np.maximum((var + mean**2) / (inclusion * v), tiny)
    least = np.maximum(size, 1.0)
    target = np.maximum(2.0 * log_odds + 1.0 - np.log(size), least - np.log(least))
    # Newton's method on a convex function, from the right of its larger root.
    u = target + np.sqrt(2.0 * np.maximum(target - 1.0, 0.0)) + 1e-6
    for _ in range(8):
        u = np.maximum(u - (u - np.log(u) - target) * u / (u - 1.0 + 1e-12), least)
    x = np.minimum(size / u, np.exp(np.minimum(2.0 * log_odds, 0.0)))
    x = np.clip(x, 1e-200, 1.0 - 1e-9)
    slab_mean = np.copysign(np.sqrt(v * x * np.maximum(2.0 * log_odds - np.log(x), 0.0)), mean)
    # A ridge belongs to the prior: what the cavity lacks of it, the prior adds.
    inner_precision = (1.0 - x) / (v * x)
    precision = np.maximum(inner_precision - prior.ridge, 1e-9 * inner_precision)
    return slab_mean / (v * x) / precision, 1.0 / precision
