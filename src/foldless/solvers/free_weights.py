"""Free weights answer: the part of an EP iteration that happens in their own small Gaussians.

What labels and held weights say of the free weights is a Gaussian of few dimensions, one for each score
(`gaussian_layer.Opened`). There the priors of free weights answer, all scores of a weight together and all
weights of a cluster together (`cluster_sites`), and the sites move towards what explains the answers. Sites
may be negative; here it is seen to that a posterior remains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foldless.beliefs import Array
from foldless.problem import Problem
from foldless.solvers.cavities import Cavities, explaining_sites
from foldless.solvers.cluster_sites import Cluster, ClusterSite, JointSites
from foldless.solvers.gaussian_layer import (
    Block,
    Gaussian,
    NotPositiveDefinite,
    Opened,
    Positions,
    Scores,
    Sites,
    Tiles,
    columns_of,
    of_any_score,
    opened_layer,
    side_by_side,
)

# Free weights answer this often to the labels of an iteration: once is for the labels, once for each other.
ANSWERS = 2
ANSWER_STEP = 0.8
# A step is halved this often to keep the posterior positive definite before it is given up.
MAX_HALVINGS = 12
# No answer makes a weight's variance so many times larger than it was or is to be: that is the way in which a
# posterior ceases to be one.
LARGEST_GROWTH = 2.0
# Where labels have become so vague that negative sites leave nothing, these shares of them are tried.
WEAKER_SITES = (1.0, 0.5, 0.25, 0.125, -0.125)


def free_weights(
    proposed: Sites, present: Sites, data_precision: Array, clusters: Sequence[ClusterSite] = ()
) -> Positions:
    """Weights of which labels say more than the prior, or whose sites are not positive, or have been.

    There can be at most twice as many of the first as there are samples, and at most as many of the second
    [Σ (1 - λ var) <= M]. Half as many of the first are taken as there are samples: with a prior that is weak
    for all weights it matters little which are free. With several scores, those that one of them makes free.
    Weights that share a site are free always.
    """
    n_samples, precision = proposed.label_precision.shape[0], proposed.prior_precision
    negative = of_any_score(present.prior_precision <= 0)
    # More negative sites than labels make no posterior: such a proposal is not followed that far.
    if np.all(np.count_nonzero(precision <= 0, axis=0) <= n_samples):
        negative = negative | of_any_score(precision <= 0)
    free = negative | of_any_score(precision < data_precision)
    most = n_samples // 2
    if np.count_nonzero(free) > most:
        with np.errstate(over="ignore"):
            share = precision / np.maximum(data_precision, np.finfo(float).tiny)
        least = np.min(columns_of(share), axis=0)
        weakest = np.argsort(np.where(free, least, np.inf), kind="stable")[:most]
        free = negative.copy()
        free[weakest] = True
    for cluster in clusters:
        free[cluster.columns] = True
    return np.flatnonzero(free)


@dataclass(frozen=True, eq=False)
class Layers:
    """The layers of all scores, opened for the same free weights."""

    opened: tuple[Opened, ...]
    sites: Sites

    @classmethod
    def open(cls, tiles: Tiles, sites: Sites, sample_weight: Array, free: Positions) -> Layers:
        of_scores = sites.of_scores()
        return cls(tuple(opened_layer(tiles, own, sample_weight, free) for own in of_scores), sites)

    def relabelled(self, sites: Sites, sample_weight: Array) -> Layers:
        """With other label sites, and other prior sites of the free weights."""
        pairs = zip(self.opened, sites.of_scores(), strict=True)
        return Layers(tuple(layer.relabelled(own, sample_weight) for layer, own in pairs), sites)

    @property
    def free(self) -> Positions:
        return self.opened[0].free

    def gaussian(self) -> Gaussian:
        """The Gaussian of all sites; raises NotPositiveDefinite if there is none."""
        pairs = zip(self.opened, self.sites.of_scores(), strict=True)
        return Gaussian.of_scores([layer.closed(layer.block_of(own)) for layer, own in pairs])

    def free_weights(self, var: Array, clusters: Sequence[ClusterSite] = ()) -> FreeWeights:
        """The free weights at their present sites, with weaker ones instead of negative ones if need be.

        Variances are to be compared with `var`, those of the iteration before. Clusters are among the free
        weights and have joint sites.
        """
        joint = JointSites(clusters, self.free) if clusters else None
        parts = zip(self.opened, self.sites.of_scores(), columns_of(var), strict=True)
        blocks = tuple(_opening(layer, own, before, joint) for layer, own, before in parts)
        return FreeWeights(self, blocks, joint)


@dataclass(frozen=True, eq=False)
class FreeWeights:
    """The free weights of every score under their sites, and the clusters among them as judged last."""

    layers: Layers
    blocks: tuple[Block, ...]
    joint: JointSites | None = None
    clusters: tuple[Cluster, ...] = ()

    def answered(self, problem: Problem, cavities: Cavities) -> FreeWeights:
        """After their priors have answered to what labels and held weights say of them.

        The cavities are those of all weights: a prior may differ between columns, so it is shown all of them.
        """
        free, blocks, clusters = self.layers.free, self.blocks, self.clusters
        if free.size == 0:
            return self
        cavity_mean, cavity_var = cavities.mean.copy(), cavities.var.copy()
        # With several scores and no weight held, an answer costs as much as an iteration.
        once = len(blocks) > 1 and free.size == cavity_mean.shape[0]
        for _ in range(1 if once else ANSWERS):
            at = _cavities(blocks)
            cavity_mean[free], cavity_var[free] = at.mean, at.var
            mean, var, _ = problem.prior.tilted(cavity_mean, cavity_var)
            mean, var = mean[free], var[free]
            precision, shift = explaining_sites(mean, var, at, *_sites(blocks))
            wanted = list(zip(*map(columns_of, (precision, shift, var)), strict=True))
            if self.joint is not None:
                clusters = self.joint.judged(problem, blocks[0])
                wanted = [self.joint.wanted(clusters, *wanted[0])]
            blocks = tuple(_towards(block, *site) for block, site in zip(blocks, wanted, strict=True))
        return replace(self, blocks=blocks, clusters=clusters)

    @property
    def sites(self) -> Sites:
        """The sites of all weights and labels."""
        return self.layers.sites.with_prior(self.layers.free, *_sites(self.blocks))

    @property
    def cluster_sites(self) -> tuple[ClusterSite, ...]:
        return () if self.joint is None else self.joint.read(self.blocks[0])

    def gaussian(self) -> Gaussian:
        """The Gaussian of all sites; raises NotPositiveDefinite if there is none."""
        pairs = zip(self.layers.opened, self.blocks, strict=True)
        return Gaussian.of_scores([layer.closed(block) for layer, block in pairs])

    def scores(self) -> Scores:
        pairs = zip(self.layers.opened, self.blocks, strict=True)
        found = [layer.scores(block) for layer, block in pairs]
        return Scores(*map(side_by_side, zip(*found, strict=True)))


def _sites(blocks: tuple[Block, ...]) -> tuple[Array, Array]:
    precision = side_by_side([block.own_precision for block in blocks])
    return precision, side_by_side([block.site_shift for block in blocks])


def _cavities(blocks: tuple[Block, ...]) -> Cavities:
    moments = [(block.mean, block.var, block.data_precision, block.data_slope) for block in blocks]
    return Cavities.left(*map(side_by_side, zip(*moments, strict=True)))


def _opening(opened: Opened, sites: Sites, var: Array, joint: JointSites | None) -> Block:
    precision, shift = sites.prior_precision[opened.free], sites.prior_shift[opened.free]
    negative, largest = precision < 0, LARGEST_GROWTH**2 * var[opened.free]
    block: Block | None = None
    for share in WEAKER_SITES:
        weaker = np.where(negative, share * precision, precision)
        try:
            block = opened.block(weaker if joint is None else joint.put_into(weaker, share), shift)
        except NotPositiveDefinite:
            continue
        if (joint is None and not negative.any()) or np.all(block.var <= largest):
            return block
    if block is None:
        raise NotPositiveDefinite("prior sites of negative precision outweigh the labels")
    return block


def _towards(block: Block, precision: Array, shift: Array, var: Array) -> Block:
    """A step towards these sites, which make this variance, shortened until no variance grows too much."""
    largest, step = LARGEST_GROWTH * np.maximum(block.var, var), ANSWER_STEP
    for _ in range(MAX_HALVINGS):
        try:
            found = block.opened.block(
                block.site_precision + step * (precision - block.site_precision),
                block.site_shift + step * (shift - block.site_shift),
            )
        except NotPositiveDefinite:
            step /= 2
            continue
        if np.all(found.var <= largest):
            return found
        step /= 2
    return block
