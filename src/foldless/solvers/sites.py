"""Sites: Gaussian factors that stand for priors and for labels.

A cavity is a marginal with one factor taken out. At each cavity the prior or the channel has a mean and a
variance; the site is the Gaussian factor with which the cavity has the same. With several scores, cavities
and sites are side by side, (weights or samples, scores).

Sites of free weights are updated in a Gaussian of few dimensions, one for each score, to which labels and
held weights have been reduced (`gaussian_layer.Opened`). A prior sees all scores of a weight together. Sites
may be negative, but only as far as a posterior remains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.beliefs import Array
from foldless.operators.base import column_positions
from foldless.problem import Problem
from foldless.solvers.base import State
from foldless.solvers.gaussian_layer import (
    Block,
    Gaussian,
    JointCavity,
    NotPositiveDefinite,
    Opened,
    Positions,
    Scores,
    Sites,
    Tiles,
    columns_of,
    of_any_score,
    side_by_side,
)
from foldless.solvers.message_passing import along_scores

# A cavity is improper if its precision is less than this share of its marginal's. The share is very small,
# since a prior can be all but certain that a weight is zero.
LEAST_CAVITY_SHARE = 1e-200
# An improper cavity is replaced by one of this share, so wide that it holds no information.
WIDE_CAVITY_SHARE = 1e-9
# Of a label's site whose cavity is improper this share is left in each iteration of those that have almost
# settled. With less of it, weights with negative sites become surer, until the cavity is proper.
IMPROPER_SHARE = 0.5
# A label site has at most this share of the precision of site and cavity together, so that 1 - v c > 0.
LARGEST_LABEL_SHARE = 1 - 1e-12
# Site precisions are differences of precisions. A site whose change is less than so many units in the last
# place of those stays: so a Gaussian prior keeps its own precision, however small beside that of the labels.
ROUNDING = 32 * np.finfo(np.float64).eps
# Sites of free weights are updated so often in an iteration, once for the new label sites and once for the
# new sites of each other, and go this share of their way each time.
ANSWERS = 2
ANSWER_STEP = 0.8
# A step that leaves no posterior is halved so often before it is given up.
MAX_HALVINGS = 12
# In no update may the variance of a weight become so many times larger than it was and is to be: growing
# variances are how a posterior ceases to be one.
LARGEST_GROWTH = 2.0
# Where label sites have become so weak that negative prior sites leave no posterior, these shares of the
# negative ones are tried instead. The last one is positive.
WEAKER_SITES, WEAKEST_SITES = (0.5, 0.25, 0.125), -0.125


@dataclass(frozen=True, eq=False)
class Cavities:
    """Means and variances with one factor taken out; `proper` where that leaves a distribution."""

    mean: Array
    var: Array
    proper: NDArray[np.bool_]

    @classmethod
    def left(cls, mean: Array, var: Array, precision: Array, slope: Array) -> Cavities:
        """What is left of marginals: cavities of these precisions, their means moved by slope / precision.

        `slope` is that of the log of all other factors at the marginal mean, where the slopes of all factors
        cancel. Improper cavities are replaced by wide ones about the marginal mean.
        """
        proper = precision > LEAST_CAVITY_SHARE / var
        precision = np.where(proper, precision, WIDE_CAVITY_SHARE / var)
        return cls(np.where(proper, mean + slope / precision, mean), 1.0 / precision, proper)

    @classmethod
    def believed(cls, mean: Array, var: Array) -> Cavities:
        """Cavities of another solver, in double precision as exact covariances are."""
        mean, var = np.asarray(mean, dtype=np.float64), np.asarray(var, dtype=np.float64)
        return cls(mean, var, np.ones(mean.shape, dtype=bool))


def score_cavities(scores: Scores, sites: Sites, sample_weight: Array, lost: Array | None = None) -> Cavities:
    """Scores without one label: a sample of weight 2 keeps the other, one of weight ½ loses that half.

    These are the cavities at which sites are made. For leave-one-out all of a sample's weight is `lost`.
    """
    lost = np.minimum(sample_weight, 1.0) if lost is None else lost
    remaining, lost = (along_scores(weight, scores.mean) for weight in (sample_weight - lost, lost))
    precision = scores.rest_precision + remaining * sites.label_precision
    slope = lost * (sites.label_precision * scores.mean - sites.label_shift)
    return Cavities.left(scores.mean, scores.var, precision, slope)


def label_sites(
    problem: Problem, at: Cavities, old: Sites, improper_share: float = 1.0
) -> tuple[tuple[Array, Array], Array]:
    """Precisions and shifts of sites that explain labels at these cavities, and the log normalisers there.

    With slope s and curvature c of log Z at N(p, v): c / (1 - v c) and p · precision + s (1 + v · precision).
    Label sites are never negative. Where a cavity is improper, no site can be made, and this share of the old
    one is left. If all of it were, the iteration could end at sites that are no fixed point, with a log
    evidence that means nothing.
    """
    response = problem.channel.respond(at.mean, at.var, problem.labels)
    curvature = np.clip(response.curvature, 0.0, LARGEST_LABEL_SHARE / at.var)
    precision = curvature / (1 - at.var * curvature)
    shift = at.mean * precision + response.slope * (1 + at.var * precision)
    known = at.proper & np.isfinite(precision) & np.isfinite(shift)
    share = np.where(at.proper, 1.0, improper_share)
    sites = (
        np.where(known, precision, share * old.label_precision),
        np.where(known, shift, share * old.label_shift),
    )
    return sites, response.log_z


def prior_sites(mean: Array, var: Array, at: Cavities, old: tuple[Array, Array]) -> tuple[Array, Array]:
    """Precisions and shifts of sites by which cavities have these moments; improper ones keep the old."""
    tilted_precision = 1.0 / np.maximum(var, np.finfo(float).tiny)
    tilted_shift = mean * tilted_precision
    cavity_precision = 1.0 / at.var
    precision = _settled(tilted_precision - cavity_precision, old[0], tilted_precision)
    shift = _settled(tilted_shift - at.mean * cavity_precision, old[1], np.abs(tilted_shift))
    known = at.proper & np.isfinite(precision) & np.isfinite(shift)
    return np.where(known, precision, old[0]), np.where(known, shift, old[1])


def _settled(wanted: Array, old: Array, size: Array) -> Array:
    """The wanted values; or the old ones where the difference is rounding of numbers of this size."""
    return np.where(np.abs(wanted - old) <= ROUNDING * size, old, wanted)


def sites_at_cavities(problem: Problem, state: State, old: Sites | None = None) -> Sites:
    """Sites by the moments of prior and channel at the cavities of a state, of whatever solver.

    At a fixed point of `EP` these are its sites; of GAMP and VAMP they are the sites that its messages imply.
    """
    old = Sites(*np.zeros((4, 1))) if old is None else old
    weights = Cavities.believed(state.cavity_mean, state.cavity_var)
    scores = Cavities.believed(state.score_cavity_mean, state.score_cavity_var)
    mean, var, _ = problem.prior.tilted(weights.mean, weights.var)
    return Sites(*prior_sites(mean, var, weights, old[:2]), *label_sites(problem, scores, old)[0])


def share_of_way(present: Array, wanted: Array, step: float) -> Array:
    """The share of the way to wanted precisions that a step in their logarithms makes: a factor r^step of r.

    Precisions of a row that is in and of one that is out differ by a factor of thousands. Half of the way
    from the smaller to the larger one is nearly as large, and half of the way back has hardly begun. Where
    one of the two is not positive, the share is the step itself.
    """
    has_factor = (present > 0) & (wanted > 0)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        log_factor = np.where(has_factor, np.log(wanted / present), 0.0)
        share = np.expm1(step * log_factor) / np.expm1(log_factor)
    return np.where(np.isfinite(share), share, step)


def free_weights(proposed: Sites, present: Sites, data_precision: Array, n_samples: int) -> Positions:
    """Weights that are informed more by labels than by the prior, or whose sites are or were not positive.

    For M samples there can be at most 2M of the first kind and M of the second [Σ (1 - λ var) <= M]. Of the
    first at most M / 2 are taken: under a prior that is weak for all weights, it matters little which are
    free. A weight is free in all scores if it is in one.
    """
    precision = proposed.prior_precision
    negative = of_any_score(present.prior_precision <= 0)
    # With more negative sites than labels there is no posterior: such a proposal is not followed that far.
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
    return np.flatnonzero(free)


@dataclass(frozen=True, eq=False)
class FreeWeights:
    """The free weights of every score under their sites."""

    opened: Sequence[Opened]
    held: Sites  # all sites; those of free weights do not count, as `blocks` have newer ones
    blocks: Sequence[Block]

    @classmethod
    def at(cls, opened: Sequence[Opened], sites: Sites, var: Array) -> FreeWeights:
        """At their present sites, of which negative ones are weakened if need be.

        That is where variances would be too large beside `var`, those of the iteration before.
        """
        parts = zip(opened, sites.of_scores(), columns_of(var), strict=True)
        return cls(opened, sites, [_weakened(*part) for part in parts])

    def answered(self, problem: Problem, cavities: Cavities) -> FreeWeights:
        """With their sites updated, at the present sites of labels and held weights.

        `cavities` are those of all weights, which a joint prior needs.
        """
        free, blocks = self.opened[0].free, self.blocks
        if free.size == 0:
            return self
        prior, at_free = problem.prior, free
        if prior.joint:
            cavity_mean, cavity_var = cavities.mean.copy(), cavities.var.copy()
        else:
            prior, at_free = prior.of_columns(free, cavities.mean.shape[0]), np.arange(free.size)
            cavity_mean, cavity_var = cavities.mean[free], cavities.var[free]
        # With several scores and no weight held, an update costs as much as an iteration.
        several = len(blocks) > 1
        once = several and free.size == cavities.mean.shape[0]
        for _ in range(1 if once else ANSWERS):
            moments = zip(*(block.moments for block in blocks), strict=True)
            at = Cavities.left(*map(side_by_side, moments))
            cavity_mean[at_free], cavity_var[at_free] = at.mean, at.var
            mean, var, _ = prior.tilted(cavity_mean, cavity_var)
            mean, var = mean[at_free], var[at_free]
            precision, shift = prior_sites(mean, var, at, _sites(blocks))
            wanted = map(columns_of, (precision, shift, var))
            blocks = [_towards(*part, by_factors=several) for part in zip(blocks, *wanted, strict=True)]
        return replace(self, blocks=blocks)

    @property
    def sites(self) -> Sites:
        """The sites of all weights and labels."""
        return self.held.with_prior(self.opened[0].free, *_sites(self.blocks))

    def gaussian(self) -> Gaussian:
        """The Gaussian of all sites; raises NotPositiveDefinite if there is none."""
        pairs = zip(self.opened, self.blocks, strict=True)
        return Gaussian.of_scores([layer.closed(block) for layer, block in pairs])

    def scores(self) -> Scores:
        pairs = zip(self.opened, self.blocks, strict=True)
        return Scores.side_by_side([layer.scores(block) for layer, block in pairs])


def opened_layers(tiles: Tiles, sites: Sites, sample_weight: Array, free: Positions) -> list[Opened]:
    """The layers of all scores, opened for the same free weights."""
    return [tiles.opened(own, sample_weight, free) for own in sites.of_scores()]


def _sites(blocks: Sequence[Block]) -> tuple[Array, Array]:
    precision = side_by_side([block.site_precision for block in blocks])
    return precision, side_by_side([block.site_shift for block in blocks])


def _weakened(opened: Opened, sites: Sites, var: Array) -> Block:
    """The free weights of a score, with as much of their negative sites as keeps variances in bounds.

    The weaker negative sites are, the smaller are all variances. So if one is too large with the weakest, as
    it can be with weaker label sites alone, the shares between need not be tried.
    """
    precision, shift = sites.prior_precision[opened.free], sites.prior_shift[opened.free]
    negative, largest = precision < 0, LARGEST_GROWTH**2 * var[opened.free]

    def at(share: float) -> Block | None:
        try:
            return Block(opened, np.where(negative, share * precision, precision), shift)
        except NotPositiveDefinite:
            return None

    def in_bounds(block: Block) -> bool:
        return not negative.any() or bool(np.all(block.var <= largest))

    if (block := at(1.0)) is not None and in_bounds(block):
        return block
    weakest = at(WEAKEST_SITES)
    if weakest is None:
        raise NotPositiveDefinite("prior sites of negative precision outweigh the labels")
    for share in WEAKER_SITES if in_bounds(weakest) else ():
        if (block := at(share)) is not None and in_bounds(block):
            return block
    return weakest


def _towards(block: Block, precision: Array, shift: Array, var: Array, *, by_factors: bool) -> Block:
    """A step towards these sites, under which variances are `var`, shortened until none grows too much."""
    largest, step = LARGEST_GROWTH * np.maximum(block.var, var), ANSWER_STEP
    for _ in range(MAX_HALVINGS):
        try:
            share = share_of_way(block.site_precision, precision, step) if by_factors else step
            found = Block(
                block.opened,
                block.site_precision + share * (precision - block.site_precision),
                block.site_shift + share * (shift - block.site_shift),
            )
            if np.all(found.var <= largest):
                return found
        except NotPositiveDefinite:
            pass
        step /= 2
    return block


def joint_cavities(
    tiles: Tiles, sites: Sites, sample_weight: Array, sets: Sequence[ArrayLike]
) -> list[JointCavity]:
    """What is known of the weights of each set of columns together, without their priors.

    With the prior sites of a set C taken out at once and the other weights integrated, the Gaussian of sites
    leaves a function exp(-½ wᵀ P w + hᵀ w) of the weights in C, which are free there (`Block.cavity`).

    Sites may come from any solver. Negative ones that do not come from one Gaussian (those of GAMP) may leave
    no posterior together, and then are weakened. A label site is that of one sample, and counts as often as
    `sample_weight` has it.
    """
    n_weights = tiles.shape[1]
    asked = [column_positions(columns, n_weights) for columns in sets]
    # Held weights are integrated one by one, which needs positive sites.
    free = np.unique(np.concatenate([*asked, np.flatnonzero(sites.prior_precision <= 0)]))
    opened = opened_layers(tiles, sites, sample_weight, free)
    # With more samples than weights all are free.
    places = [np.searchsorted(opened[0].free, positions) for positions in asked]
    if all(at.size == opened[0].free.size for at in places):
        # No free weight is to be integrated: this is the function before their sites are put in.
        said, shift = opened[0].precision, opened[0].shift
        return [JointCavity(said[np.ix_(at, at)], shift[at]) for at in places]
    (block,) = FreeWeights.at(opened, sites, np.full(n_weights, np.inf)).blocks
    return [block.cavity(at) for at in places]
