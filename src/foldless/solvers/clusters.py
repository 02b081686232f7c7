"""Clusters: columns so correlated that their weights can only be judged together, and how that is done.

**Which columns.** Seeds are the columns that data speak for; a cluster is a seed with the columns correlated
with it, and clusters that meet are one. Only seeds are compared with all columns, O(M N seeds).

**Which of them are in.** Of the weights of a cluster, labels and all other weights say exp(-½ wᵀ P w + hᵀ w)
(`sites.joint_cavities`). Under independent priors (1 - π_j) δ(w_j) + π_j N(w_j; m_j, v_j), the configuration
that has the weights S in and the others zero is a Gaussian with covariance Q and mean μ (zero outside S), and
its odds against none being in follow weight by weight. With what S leaves of a further weight j, the
precision e and the shift c,

    u = unit vector of j - Q P_j,    e = uᵀ P_j,    c = h_j - P_jᵀ μ,    t = 1 + v_j e,
    log odds(S + j) - log odds(S) = log π_j/(1 - π_j) + ½ (v_j c² + 2 m_j c - m_j² e)/t - ½ log t,
    μ(S + j) = μ + u (v_j c + m_j)/t,    Q(S + j) = Q + u uᵀ v_j/t.

So configurations are visited by size, each level being the children of the last. A level of moderate size is
visited as a whole; of larger ones only the most probable configurations have children. Of duplicates e is a
small difference: where labels are 1e8 times as precise as the slab, probabilities have three digits left.

**Joint sites.** Of strongly correlated columns labels say "one of these", and no product of sites of single
weights can: each site answers to the doubt that the others make, and an iteration goes in circles, or, while
the prior's parameters are learnt, away. The weights of a cluster therefore share a site, which is what gives
the Gaussian the mean and covariance that come out at their joint cavity:

    site precision = covariance⁻¹ - P,    site shift = covariance⁻¹ mean - h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.operators.base import Operator
from foldless.priors import Blocks, Gaussian, OverBackground, Prior, Ridged, SpikeAndSlab
from foldless.problem import Problem
from foldless.solvers.gaussian_layer import Block, JointCavity, Positions, Tiles

Members = NDArray[np.bool_]  # (configurations, weights)

# Columns that share a quarter of their variance belong together.
LEAST_CORRELATION = 0.5
# A seed is a column that data have made at least so many times as probable as it was before, or more probable
# than not. Even t equal columns, of which one is in, are seeds: 1/t each, unless the prior expects t of them.
LEAST_GAIN = 2.0
# A cluster that is expected to hold fewer features than this has little to be judged.
LEAST_MASS = 0.5
# More columns than this in one cluster cannot be told apart by anyone, nor their configurations be visited.
LARGEST_CLUSTER = 24
# So many seeds are compared with all columns, at the most.
MOST_SEEDS = 400
# Levels of up to this many configurations are visited as a whole: all of 14 weights, all triples of 30.
LARGEST_WHOLE_LEVEL = 5000
# Of larger ones, so many configurations of the level before have children.
MOST_PARENTS = 500
# Levels end when one has less than this share of the probability, but not before this size: two weights of
# opposite sign on nearly equal columns are improbable alone and certain together.
NEGLIGIBLE = 1e-4
LEAST_SIZE = 2
# Members are written as bits of an integer.
MOST_WEIGHTS = 62
# Configurations of ever more weights are left out once they have less than this share of the probability:
# a site needs no more digits than that.
NEGLIGIBLE_TO_A_SITE = 1e-2
# Axes along which a cluster's weights vary less than this, relative to the others, are rounding error.
LEAST_AXIS = 1e-10
# No weight of a cluster is surer to be zero than by this share of its slab's variance.
LEAST_VARIANCE_SHARE = 1e-16


def correlated_clusters(
    tiles: Tiles,
    row_weight: Array,
    inclusion: Array,
    prior_inclusion: Array,
    eligible: NDArray[np.bool_],
    existing: Sequence[Positions] = (),
) -> tuple[Positions, ...]:
    """Disjoint clusters of eligible columns, each in ascending order; existing ones only grow.

    `inclusion` is what is believed of columns after the data, `prior_inclusion` before. A seed without
    correlated columns is a cluster of one. Of too many correlated columns the most probable are taken, and in
    all, one cluster apart, no more than there are samples: not more weights than that can be told from zero.
    """
    gained = inclusion >= np.minimum(LEAST_GAIN * prior_inclusion, 0.5)
    # Every cluster that is worth it has a member like that.
    gained &= inclusion >= LEAST_MASS / LARGEST_CLUSTER
    seeds = np.flatnonzero(eligible & gained)
    seeds = seeds[np.argsort(-inclusion[seeds], kind="stable")][:MOST_SEEDS]
    cluster_of, n_clusters = np.full(inclusion.size, -1), len(existing)
    for k, cluster in enumerate(existing):
        cluster_of[cluster] = k
    room = max(tiles.shape[0], LARGEST_CLUSTER) - np.count_nonzero(cluster_of >= 0)

    def together(column: np.intp) -> Positions:
        """A column with all of its cluster."""
        own = cluster_of[column]
        return np.array([column]) if own < 0 else np.flatnonzero(cluster_of == own)

    for seed, row in zip(seeds, np.abs(correlations(tiles, row_weight, seeds)), strict=True):
        related = np.flatnonzero((row >= LEAST_CORRELATION) & eligible)
        related = related[np.lexsort((-row[related], -inclusion[related]))]
        members = together(seed)
        size = members.size
        for column in related:
            if members.size == LARGEST_CLUSTER:
                break
            joining = members[:0] if column in members else together(column)
            if members.size + joining.size <= LARGEST_CLUSTER:
                members = np.concatenate([members, joining])
        is_new = cluster_of[members] < 0
        met_others = not is_new[size:].all()
        worth_it = size > 1 or met_others or np.sum(inclusion[members]) >= LEAST_MASS
        if worth_it and np.count_nonzero(is_new) <= room:
            room -= np.count_nonzero(is_new)
            if cluster_of[seed] < 0:
                cluster_of[seed], n_clusters = n_clusters, n_clusters + 1
            cluster_of[members] = cluster_of[seed]
    return tuple(np.flatnonzero(cluster_of == k) for k in np.unique(cluster_of[cluster_of >= 0]))


def correlations(tiles: Tiles, row_weight: Array, columns: Positions) -> Array:
    """Correlations of some columns with all, (columns, N), rows counted by their weight."""
    share = row_weight / np.sum(row_weight)
    values = tiles.operator.columns(columns)
    values -= share @ values
    values *= share[:, np.newaxis]
    n_weights = tiles.shape[1]
    covariance = np.zeros((columns.size, n_weights))
    _, variance = tiles.operator.column_moments(row_weight)
    for part, tile in tiles:
        if tiles.by_columns:
            covariance[:, part] = values.T @ tile
        else:
            covariance += values[part].T @ tile
    size = np.sqrt(np.multiply.outer(variance[columns], variance))
    return np.divide(covariance, size, out=np.zeros_like(covariance), where=size > 0)


def correlations_within(operator: Operator, row_weight: Array, columns: Positions) -> Array:
    """Correlations of some columns with each other; a column that does not vary is correlated with none."""
    share = row_weight / np.sum(row_weight)
    values = operator.columns(columns)
    values = np.sqrt(share)[:, np.newaxis] * (values - share @ values)
    size = np.linalg.norm(values, axis=0)
    values = np.divide(values, size, out=np.zeros_like(values), where=size > 0)
    found = np.clip(values.T @ values, -1.0, 1.0)
    np.fill_diagonal(found, 1.0)
    return found


class SpikesAndSlabs(NamedTuple):
    """Priors of weights: [(1 - inclusion) δ(w) + inclusion N(w; slab_mean, slab_var)] exp(-½ ridge w²).

    Over a background, w is the part beyond it.
    """

    inclusion: Array
    slab_mean: Array
    slab_var: Array
    ridge: Array
    background: Array

    def at(self, columns: Positions) -> SpikesAndSlabs:
        return SpikesAndSlabs(*(values[columns] for values in self))


def spikes_and_slabs(
    prior: Prior, n_weights: int, *, any_slab: bool = False
) -> tuple[SpikesAndSlabs, NDArray[np.bool_]]:
    """The priors of all weights in this form, and which weights have it; the others are NaN.

    Slabs must be Gaussian, unless the mean and variance of `any_slab` will do.
    """
    found = SpikesAndSlabs(*(np.full(n_weights, np.nan) for _ in SpikesAndSlabs._fields))
    _fill(found, prior, np.arange(n_weights), any_slab)
    return found, np.isfinite(found.inclusion)


def _fill(found: SpikesAndSlabs, prior: Prior, columns: Positions, any_slab: bool) -> None:
    if isinstance(prior, Blocks):
        _fill(found, prior.base, columns, any_slab)
        for others, other in prior.others:
            _fill(found, other, columns[others], any_slab)
        return
    ridge: Any = 0.0
    background: Any = 0.0
    if isinstance(prior, Ridged):
        ridge, prior = np.broadcast_to(prior.precision, found.ridge.shape)[columns], prior.base
    elif isinstance(prior, OverBackground):
        background, prior = np.broadcast_to(prior.variance, found.ridge.shape)[columns], prior.base
    if isinstance(prior, SpikeAndSlab) and (any_slab or isinstance(prior.slab, Gaussian)):
        found.inclusion[columns] = prior.inclusion
        found.slab_mean[columns], found.slab_var[columns] = prior.slab.moments()
        found.ridge[columns], found.background[columns] = ridge, background
    else:
        found.inclusion[columns] = np.nan


@dataclass(frozen=True, eq=False)
class Configurations:
    """Configurations, the smallest first, and what they say about the weights of a cluster together."""

    members: Members
    probability: Array
    mean: Array
    covariance: Array
    log_z: float  # log ∫ prior · cavity
    neglected: float  # an estimate of the share that was not visited

    @property
    def inclusion(self) -> Array:
        """P(a weight is in), for every weight."""
        return np.asarray(self.probability @ self.members)

    @property
    def nothing(self) -> float:
        """P(no weight is in)."""
        return float(self.probability[0])


def all_configurations(
    cavities: Sequence[JointCavity], priors: Sequence[SpikesAndSlabs], negligible: float = NEGLIGIBLE
) -> list[Configurations]:
    """The configurations of clusters that matter, with their probabilities and moments.

    Clusters of one size are visited together, which is faster.
    """
    found: list[Configurations] = [None] * len(cavities)  # type: ignore[list-item]
    sizes = np.array([cavity.shift.size for cavity in cavities])
    for size in np.unique(sizes):
        if size > MOST_WEIGHTS:
            raise ValueError(f"a cluster may have at most {MOST_WEIGHTS} weights; got {size}. Divide it.")
        # Of a large cluster, which configurations are visited is its own affair.
        largest_level = comb(size, size // 2)
        together = max(LARGEST_WHOLE_LEVEL // largest_level, 1)
        same = np.flatnonzero(sizes == size)
        for start in range(0, same.size, together):
            group = same[start : start + together]
            visits = _visit([cavities[k] for k in group], [priors[k] for k in group], negligible)
            for k, visit in zip(group, visits, strict=True):
                found[k] = visit
    return found


def _visit(
    cavities: list[JointCavity], priors: list[SpikesAndSlabs], negligible: float
) -> list[Configurations]:
    """Clusters of one size; all arrays have the cluster as their first axis."""
    prior = SpikesAndSlabs(*map(np.stack, zip(*priors, strict=True)))
    precision, shift = _known(cavities, prior)
    n_weights = shift.shape[1]
    log_prior_odds = np.log(prior.inclusion) - np.log1p(-prior.inclusion)
    visited = [_Visited.nothing(*shift.shape)]
    log_total, log_missed, whole = np.zeros(len(cavities)), np.full(len(cavities), -np.inf), True
    for size in range(1, n_weights + 1):
        parents, log_unasked = visited[-1], np.array(-np.inf)
        whole = whole and comb(n_weights, size) <= LARGEST_WHOLE_LEVEL
        if whole:
            members, parent, added = _whole_level(n_weights, size)
        else:
            order = np.argsort(-parents.log_odds[0], kind="stable")
            if order.size > MOST_PARENTS:
                log_unasked = _log_sum(parents.log_odds[:, order[MOST_PARENTS:]])
            parents = parents.only(order[:MOST_PARENTS])
            members, parent, added = _children(parents.members)
        covariances = parents.covariances()
        explained = precision[:, np.newaxis] @ covariances  # rows P_j'Q
        direction = -explained[:, parent, added]
        direction[:, np.arange(added.size), added] += 1.0
        # Rounding may leave less than nothing of a duplicate.
        left_precision = np.maximum(np.sum(direction * precision[:, added], axis=2), 0.0)
        left_shift = (shift[:, np.newaxis] - parents.means @ precision)[:, parent, added]
        mean, var = prior.slab_mean[:, added], prior.slab_var[:, added]
        total = 1.0 + var * left_precision
        square = var * left_shift**2 + 2.0 * mean * left_shift - mean**2 * left_precision
        log_gain = 0.5 * (square / total - np.log(total))
        added_mean = (var * left_shift + mean) / total
        level = _Visited(
            members=members,
            log_odds=parents.log_odds[:, parent] + log_prior_odds[:, added] + log_gain,
            means=parents.means[:, parent] + direction * added_mean[:, :, np.newaxis],
            direction=direction,
            gain=var / total,
            parent=parent,
            parent_covariances=covariances,
        )
        visited.append(level)
        log_found = _log_sum(level.log_odds)
        log_total = np.logaddexp(log_total, log_found)
        # Configurations that were not asked are taken to have children for their share like the others.
        log_ratio = log_found - _log_sum(parents.log_odds)
        log_missed = np.logaddexp(log_missed, log_unasked + log_ratio)
        if LEAST_SIZE <= size < n_weights and np.all(np.exp(log_found - log_total) < negligible):
            # The next level would be to this one as this is to the last, at the most.
            log_missed = np.logaddexp(log_missed, log_found + np.minimum(log_ratio, 0.0))
            break
    probabilities = [np.exp(level.log_odds - log_total[:, np.newaxis]) for level in visited]
    means, covariances = _moments(visited, probabilities)
    log_z = log_total + np.sum(np.log1p(-prior.inclusion), axis=1)
    neglected = np.exp(log_missed - np.logaddexp(log_total, log_missed))
    members = np.concatenate([level.members for level in visited])
    found = np.hstack(probabilities), means, covariances, log_z.tolist(), neglected.tolist()
    return [Configurations(members, *own) for own in zip(*found, strict=True)]


class _Visited(NamedTuple):
    """A level with log odds and moments. A covariance is that of the parent, plus gain · u uᵀ."""

    members: Members  # the same in all clusters
    log_odds: Array
    means: Array
    direction: Array  # u, one for each configuration
    gain: Array
    parent: Positions
    parent_covariances: Array

    @classmethod
    def nothing(cls, n_clusters: int, n_weights: int) -> _Visited:
        """The configuration without any weight."""
        return cls(
            members=np.zeros((1, n_weights), dtype=bool),
            log_odds=np.zeros((n_clusters, 1)),
            means=np.zeros((n_clusters, 1, n_weights)),
            direction=np.zeros((n_clusters, 1, n_weights)),
            gain=np.zeros((n_clusters, 1)),
            parent=np.zeros(1, dtype=np.intp),
            parent_covariances=np.zeros((n_clusters, 1, n_weights, n_weights)),
        )

    def only(self, which: Positions) -> _Visited:
        """Some of the configurations."""
        names = ("log_odds", "means", "direction", "gain")
        of_clusters = {name: getattr(self, name)[:, which] for name in names}
        return self._replace(members=self.members[which], parent=self.parent[which], **of_clusters)

    def covariances(self) -> Array:
        """(clusters, configurations, weights, weights)."""
        scaled = self.gain[:, :, np.newaxis] * self.direction
        found = self.direction[..., np.newaxis] * scaled[:, :, np.newaxis, :]
        found += self.parent_covariances[:, self.parent]
        return found


def _moments(levels: list[_Visited], probabilities: list[Array]) -> tuple[Array, Array]:
    """Means and covariances of the weights: within configurations plus between them; nothing cancels."""
    mean: Array = np.zeros(())
    for level, p in zip(levels, probabilities, strict=True):
        mean = mean + (p[:, np.newaxis] @ level.means)[:, 0]
    covariance: Array = np.zeros(())
    for level, p in zip(levels, probabilities, strict=True):
        n_parents = level.parent_covariances.shape[1]
        of_parents = np.stack([np.bincount(level.parent, each, n_parents) for each in p])
        within = np.einsum("bp,bpij->bij", of_parents, level.parent_covariances)
        within += np.swapaxes(level.direction, 1, 2) @ ((p * level.gain)[..., np.newaxis] * level.direction)
        deviation = level.means - mean[:, np.newaxis]
        within += np.swapaxes(deviation, 1, 2) @ (p[..., np.newaxis] * deviation)
        covariance = covariance + within
    return mean, covariance


@lru_cache(maxsize=256)
def _whole_level(n_weights: int, size: int) -> tuple[Members, Positions, Positions]:
    """All configurations of a size in lexical order; each one's parent, without its last weight, and that."""
    place = {parent: k for k, parent in enumerate(combinations(range(n_weights), size - 1))}
    found = list(combinations(range(n_weights), size))
    members = np.zeros((len(found), n_weights), dtype=bool)
    np.put_along_axis(members, np.array(found), True, axis=1)
    return members, np.array([place[each[:-1]] for each in found]), np.array(found)[:, -1]


def _children(parents: Members) -> tuple[Members, Positions, Positions]:
    """All configurations with one weight more than a parent, once each; a parent, and the weight added."""
    parent, added = np.nonzero(~parents)
    members = parents[parent]
    members[np.arange(added.size), added] = True
    _, first = np.unique(members @ (1 << np.arange(parents.shape[1])), return_index=True)
    return members[first], parent[first], added[first]


def _known(cavities: list[JointCavity], prior: SpikesAndSlabs) -> tuple[Array, Array]:
    """Precisions, with ridges, and shifts, without directions of negative precision: there nothing is known.

    Sites of others that have negative precision and are correlated with these weights can leave such
    directions, and so does rounding, of duplicates. Of the part b of weights b + g over a background with
    variances S, labels say (P⁻¹ + S)⁻¹ = (I + P S)⁻¹ P, with the shift (I + P S)⁻¹ h.
    """
    precision = np.stack([cavity.precision for cavity in cavities])
    shift = np.stack([cavity.shift for cavity in cavities])
    n_weights = shift.shape[1]
    precision[:, np.arange(n_weights), np.arange(n_weights)] += prior.ridge
    eigenvalues, vectors = np.linalg.eigh(precision)
    for k in np.flatnonzero(eigenvalues[:, 0] < 0):
        known = vectors[k][:, eigenvalues[k] > 0]
        precision[k] = (known * eigenvalues[k][eigenvalues[k] > 0]) @ known.T
        shift[k] = known @ (shift[k] @ known)
    if prior.background.any():
        # (I + P S)⁻¹ is to the left of both.
        through = np.eye(n_weights) + precision * prior.background[:, np.newaxis]
        shift = np.linalg.solve(through, shift[:, :, np.newaxis])[:, :, 0]
        precision = np.linalg.solve(through, precision)
        precision = 0.5 * (precision + precision.transpose(0, 2, 1))
    return precision, shift


def _log_sum(log_values: Array) -> Array:
    """log Σ exp over the last axis."""
    largest = np.max(log_values, axis=-1)
    return np.asarray(largest + np.log(np.sum(np.exp(log_values - largest[..., np.newaxis]), axis=-1)))


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
        found = all_configurations(cavities, own_priors, NEGLIGIBLE_TO_A_SITE)
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
