"""Clustered EP: expectation propagation in which correlated columns have one prior site together.

Of strongly correlated columns labels say "one of these", and no product of sites of single weights can say
so: each site answers to the doubt that the others make, and an iteration goes in circles, or, while the
prior's parameters are learnt, away. Here the weights of a cluster share a site. Their joint cavity P, h is
shown to their true priors, by summing over configurations of spikes and slabs (`configurations`), and the
site is what gives the Gaussian the mean and covariance that come out:

    site precision = covariance⁻¹ - P,    site shift = covariance⁻¹ mean - h.

All else is as in `ep`; the clusters are among its free weights. They are looked for while beliefs form
(`clusters`), and only grow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.priors.base import SupportsInclusion
from foldless.problem import Problem
from foldless.solvers.clusters import correlated_clusters
from foldless.solvers.configurations import (
    Configurations,
    SpikesAndSlabs,
    all_configurations,
    spikes_and_slabs,
)
from foldless.solvers.ep import (
    ANSWER_STEP,
    ANSWERS,
    EP,
    LARGEST_GROWTH,
    MAX_HALVINGS,
    WEAKER_SITES,
    Cavities,
    EPState,
    explaining_sites,
    free_weights,
    pace_after,
    score_cavities,
    wanted_sites,
    weight_cavities,
)
from foldless.solvers.gaussian_layer import (
    Gaussian,
    NotPositiveDefinite,
    Opened,
    Positions,
    Sites,
    Tiles,
    opened_layer,
)
from foldless.solvers.joint import ClusterSite, JointBlock, JointCavity
from foldless.solvers.message_passing import psi

# Clusters are looked for after this many iterations, and again whenever these have doubled.
FIRST_LOOK = 3
# Configurations of ever more weights are left out once they have less than this share of the probability:
# a site needs no more digits than that.
NEGLIGIBLE = 1e-2
# Axes along which a cluster's weights vary less than this, relative to the others, are rounding error.
LEAST_AXIS = 1e-10
# No weight of a cluster is surer to be zero than by this share of its slab's variance.
LEAST_VARIANCE_SHARE = 1e-16


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


@dataclass(frozen=True, eq=False)
class ClusteredState(EPState):
    """The state of EP, the joint sites, and the clusters as they were judged last.

    `sites` has of a clustered weight the diagonal of its joint site.
    """

    cluster_sites: tuple[ClusterSite, ...] = ()
    clusters: tuple[Cluster, ...] = ()


@dataclass(frozen=True)
class ClusteredEP(EP):
    """Expectation propagation with joint sites of correlated columns.

    Joint are columns whose prior is `SpikeAndSlab` with a Gaussian slab of mean zero; where there are none,
    this is `EP`.
    """

    def init(self, problem: Problem) -> ClusteredState:
        return ClusteredState(**vars(super().init(problem)))

    def step(self, problem: Problem, state: EPState) -> ClusteredState:
        assert isinstance(state, ClusteredState)
        tiles = state.tiles if state.tiles.operator is problem.operator else Tiles(problem.operator)
        priors, spiked = spikes_and_slabs(problem.prior, tiles.shape[1])
        spiked &= priors.slab_mean == 0
        wanted, log_evidence = _wanted_with_clusters(problem, state)
        moved = _moved(problem, tiles, state, wanted, priors)
        cavities = weight_cavities(moved.gaussian)
        _put_equivalents(cavities, moved.clusters)
        state = replace(
            state,
            tiles=tiles,
            sites=moved.sites,
            gaussian=moved.gaussian,
            weight_cavities=cavities,
            score_cavities=score_cavities(moved.gaussian.scores, moved.sites, problem.sample_weight),
            iteration=state.iteration + 1,
            pace=pace_after(self.damping, problem, state, moved.gaussian, moved.step),
            log_evidence=log_evidence,
            cluster_sites=moved.cluster_sites,
            clusters=moved.clusters,
        )
        looks = FIRST_LOOK * 2 ** np.arange(20)
        if state.iteration in looks and isinstance(problem.prior, SupportsInclusion):
            inclusion = problem.prior.inclusion_probability(state.cavity_mean, state.cavity_var)
            found = correlated_clusters(
                tiles,
                problem.label_weight,
                inclusion,
                priors.inclusion,
                spiked,
                [site.columns for site in state.cluster_sites],
            )
            state = replace(state, cluster_sites=_gathered(state, found))
        return state


@dataclass(frozen=True, eq=False)
class _Moved:
    sites: Sites
    cluster_sites: tuple[ClusterSite, ...]
    clusters: tuple[Cluster, ...]
    gaussian: Gaussian
    step: float


def _wanted_with_clusters(problem: Problem, state: ClusteredState) -> tuple[Sites, float]:
    """What `ep` wants of labels and single weights, and the evidence with the clusters' factors."""
    wanted, log_evidence = wanted_sites(problem, state)
    if state.clusters:
        clustered = np.concatenate([cluster.columns for cluster in state.clusters])
        at, now = state.weight_cavities, state.gaussian
        factors = problem.prior.tilted(at.mean, at.var).log_z + psi(at.mean, at.var)
        factors -= psi(now.mean, now.var)
        log_evidence -= float(np.sum(factors[clustered]))
        log_evidence += sum(cluster.log_factor() for cluster in state.clusters)
    return wanted, log_evidence


def _moved(
    problem: Problem, tiles: Tiles, state: ClusteredState, wanted: Sites, priors: SpikesAndSlabs
) -> _Moved:
    """As in `ep`: labels and held weights a step towards the wanted sites; then free weights answer."""
    step = 1.0 if state.iteration == 0 else state.step
    clustered = [site.columns for site in state.cluster_sites]
    for _ in range(MAX_HALVINGS):
        sites = state.sites.towards(wanted, step)
        free = np.unique(np.concatenate([free_weights(sites, state), *clustered]))
        sites = sites.with_prior(free, state.sites.prior_precision[free], state.sites.prior_shift[free])
        try:
            opened = opened_layer(tiles, sites, problem.sample_weight, free)
            places = [np.searchsorted(opened.free, columns) for columns in clustered]
            block = _opening(opened, state, places)
            block, clusters = _answered(problem, state, opened, block, places, priors)
            gaussian = opened.closed(block.as_block())
        except NotPositiveDefinite:
            step /= 2
            continue
        sites = sites.with_prior(opened.free, block.site_precision.diagonal(), block.site_shift)
        cluster_sites = tuple(
            ClusterSite(columns, block.site_precision[np.ix_(at, at)], block.site_shift[at])
            for columns, at in zip(clustered, places, strict=True)
        )
        return _Moved(sites, cluster_sites, clusters, gaussian, step)
    # Nothing on the way is proper: say so by numbers that the loop takes for a divergence.
    broken = replace(state.gaussian, score_mean=np.full_like(state.gaussian.score_mean, np.nan))
    return _Moved(state.sites, state.cluster_sites, state.clusters, broken, step)


def _opening(opened: Opened, state: ClusteredState, places: list[Positions]) -> JointBlock:
    """The free weights at their present sites, with weaker ones instead of negative ones if need be."""
    shift = state.sites.prior_shift[opened.free].copy()
    largest = LARGEST_GROWTH**2 * state.gaussian.var[opened.free]
    single = state.sites.prior_precision[opened.free]
    block: JointBlock | None = None
    for share in WEAKER_SITES:
        precision = np.diag(np.where(single < 0, share * single, single))
        for site, at in zip(state.cluster_sites, places, strict=True):
            precision[np.ix_(at, at)] = _weakened(site.precision, share)
            shift[at] = site.shift
        try:
            block = JointBlock(opened, precision, shift)
        except NotPositiveDefinite:
            continue
        if np.all(block.var <= largest):
            return block
    if block is None:
        raise NotPositiveDefinite("prior sites of negative precision outweigh the labels")
    return block


def _weakened(precision: Array, share: float) -> Array:
    """A joint site with this share of what is negative in it."""
    if share == 1.0:
        return precision
    unit = np.sqrt(np.max(np.abs(precision), axis=1))
    axes, vectors = np.linalg.eigh(precision / np.multiply.outer(unit, unit))
    vectors = vectors * unit[:, np.newaxis]
    return (vectors * np.where(axes < 0, share * axes, axes)) @ vectors.T


def _answered(
    problem: Problem,
    state: ClusteredState,
    opened: Opened,
    block: JointBlock,
    places: list[Positions],
    priors: SpikesAndSlabs,
) -> tuple[JointBlock, tuple[Cluster, ...]]:
    """The free weights after their priors have answered to what labels and held weights say of them."""
    free = opened.free
    clusters: tuple[Cluster, ...] = ()
    if free.size == 0:
        return block, clusters
    cavity_mean, cavity_var = state.weight_cavities.mean.copy(), state.weight_cavities.var.copy()
    for _ in range(ANSWERS):
        said, slope = block.single_cavities()
        at = Cavities.left(block.mean, block.var, said, slope)
        # A prior may differ between columns, so it is shown all of them.
        cavity_mean[free], cavity_var[free] = at.mean, at.var
        mean, var, _ = problem.prior.tilted(cavity_mean, cavity_var)
        mean, var = mean[free], var[free].copy()
        single, shift = explaining_sites(mean, var, at, block.site_precision.diagonal(), block.site_shift)
        precision = np.diag(single)
        clusters = _judged(block, places, priors)
        for cluster, inside in zip(clusters, places, strict=True):
            site = cluster.wanted_site()
            precision[np.ix_(inside, inside)] = site.precision
            shift[inside] = site.shift
            var[inside] = cluster.var
        block = _step_of_block(block, precision, shift, LARGEST_GROWTH * np.maximum(block.var, var))
    return block, clusters


def _judged(block: JointBlock, places: list[Positions], priors: SpikesAndSlabs) -> tuple[Cluster, ...]:
    """Every cluster at its joint cavity."""
    sites, cavities = [], []
    for inside in places:
        precision, shift = block.site_precision[np.ix_(inside, inside)], block.site_shift[inside]
        sites.append(ClusterSite(block.opened.free[inside], precision, shift))
        cavities.append(block.cavity(inside))
    own_priors = [priors.at(site.columns) for site in sites]
    found = all_configurations(cavities, own_priors, NEGLIGIBLE)
    return tuple(Cluster(*parts) for parts in zip(sites, cavities, own_priors, found, strict=True))


def _step_of_block(block: JointBlock, precision: Array, shift: Array, largest_var: Array) -> JointBlock:
    """The free weights a step towards these sites, shortened until no variance is larger than allowed."""
    step = ANSWER_STEP
    for _ in range(MAX_HALVINGS):
        try:
            found = JointBlock(
                block.opened,
                block.site_precision + step * (precision - block.site_precision),
                block.site_shift + step * (shift - block.site_shift),
            )
        except NotPositiveDefinite:
            step /= 2
            continue
        if np.all(found.var <= largest_var):
            return found
        step /= 2
    return block


def _gathered(state: ClusteredState, found: tuple[Positions, ...]) -> tuple[ClusterSite, ...]:
    """Joint sites of new clusters, made of the sites that their weights have: the Gaussian stays."""
    sites = state.sites
    found = tuple(columns for columns in found if columns.size > 1)
    precisions = [np.diag(sites.prior_precision[columns]) for columns in found]
    cluster_of = np.empty(sites.prior_precision.size, dtype=np.intp)
    for k, columns in enumerate(found):
        cluster_of[columns] = k
    for site in state.cluster_sites:
        k = cluster_of[site.columns[0]]
        inside = np.searchsorted(found[k], site.columns)
        precisions[k][np.ix_(inside, inside)] = site.precision
    return tuple(
        ClusterSite(columns, precision, sites.prior_shift[columns])
        for columns, precision in zip(found, precisions, strict=True)
    )


def _put_equivalents(cavities: Cavities, clusters: tuple[Cluster, ...]) -> None:
    """Of clustered weights, the cavities at which their priors alone would say what the cluster does.

    Whoever asks the prior at the cavities, for inclusion probabilities or to learn its parameters, then has
    the joint answer.
    """
    if not clusters:
        return
    columns = np.concatenate([cluster.columns for cluster in clusters])
    prior = SpikesAndSlabs(*map(np.concatenate, zip(*(cluster.prior for cluster in clusters), strict=True)))
    inclusion = np.concatenate([cluster.found.inclusion for cluster in clusters])
    mean = np.concatenate([cluster.found.mean for cluster in clusters])
    var = np.concatenate([cluster.var for cluster in clusters])
    cavities.mean[columns], cavities.var[columns] = equivalent_cavities(prior, inclusion, mean, var)
    cavities.proper[columns] = True


def equivalent_cavities(
    prior: SpikesAndSlabs, inclusion: Array, mean: Array, var: Array
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
