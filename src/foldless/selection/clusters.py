"""Clusters: columns so correlated that their weights can only be judged together, at their joint cavity.

Correlated columns share what probability there is, and marginals of single weights divide it as though they
were apart. Of what labels and all other weights say of a few weights together, the probability of each is
read off their configurations here, and that of groups is drawn (`selection.groups`); nothing is fitted again.

**Which columns.** Seeds are the columns that data speak for; a cluster is a seed with the columns correlated
with it, and clusters that meet are one. Only seeds are compared with all columns, O(M N seeds).

**Which of them are in.** Of the weights of a cluster, labels and all other weights say exp(-½ wᵀ P w + hᵀ w)
(`sites.joint_cavities`). Under independent priors (1 - π_j) δ(w_j) + π_j N(w_j; m_j, v_j), the configuration
that has the weights S in and the others zero is a Gaussian, and its odds against none being in follow weight
by weight. With what S leaves to be said of all weights, R and c, which are P and h at first, and of a further
weight j the precision e = R_jj,

    log odds(S + j) - log odds(S) = log π_j/(1 - π_j) + ½ (v_j c_j² + 2 m_j c_j - m_j² e)/t - ½ log t,
    R(S + j) = R - R_j R_jᵀ v_j/t,    c(S + j) = c - R_j (v_j c_j + m_j)/t,    t = 1 + v_j e.

So configurations are visited by size, each level being the children of the last. A level of moderate size is
visited as a whole; of larger ones only the most probable configurations have children. Of duplicates e is a
small difference: where labels are 1e8 times as precise as the slab, probabilities have three digits left.
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
from scipy.sparse.csgraph import connected_components

from foldless.beliefs import Array
from foldless.priors import Blocks, OverBackground, Prior, Ridged, RowSparse, SpikeAndSlab
from foldless.problem import Problem, Solution
from foldless.solvers.gaussian_layer import JointCavity, Positions, Sites, Tiles
from foldless.solvers.sites import joint_cavities

Members = NDArray[np.bool_]  # (configurations, weights)

# Features whose joint posterior is drawn from; what others have is hardly probable, feature by feature.
MOST_CANDIDATES = 256
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
# Configurations whose remainders are made at a time.
AT_ONCE = 32
# Members are written as bits of an integer.
MOST_WEIGHTS = 62


@dataclass(frozen=True, eq=False)
class Candidates:
    """What is known together of the features that are most likely in, the most probable first."""

    columns: Positions
    inclusion: Array  # of each alone
    priors: SpikesAndSlabs
    cavities: list[JointCavity]  # of each score
    correlation: Array  # absolute, between candidates
    missed: float  # features that the prior expects among all others, beyond those that are found there


def joint_candidates(
    problem: Problem, sites: Sites, inclusion: Array, tiles: Tiles | None = None
) -> Candidates:
    """From the sites of a solution, inclusion probabilities of all weights, and tiles a solver has left."""
    priors, spiked = spikes_and_slabs(problem.prior, inclusion.size)
    order = np.argsort(np.where(spiked, -inclusion, 1.0), kind="stable")
    columns, others = np.split(order[: int(spiked.sum())], [MOST_CANDIDATES])
    tiles, cavities = tiles or Tiles(problem.operator), []
    for of_score in sites.of_scores():
        cavities += joint_cavities(tiles, of_score, problem.sample_weight, [columns])
    correlation = np.abs(correlations_within(problem.operator.columns(columns), problem.label_weight))
    missed = float(np.sum(priors.inclusion[others] - inclusion[others]))
    return Candidates(columns, inclusion[columns], priors.at(columns), cavities, correlation, missed)


def refined_inclusion(
    problem: Problem, sites: Sites, inclusion: Array, tiles: Tiles | None = None
) -> tuple[Array, float]:
    """Inclusion probabilities with those of correlated columns from their joint posterior.

    EP divides what is probable among the columns of a cluster as though they were apart. The second number
    is the largest share of a cluster's configurations that is estimated not to have been visited.
    """
    tiles, n_weights = tiles or Tiles(problem.operator), problem.operator.shape[1]
    priors, spiked = spikes_and_slabs(problem.prior, n_weights)
    inclusion = np.array(inclusion, dtype=np.float64)
    clusters = correlated_clusters(tiles, problem.label_weight, inclusion, priors.inclusion, spiked)
    if not clusters:
        return inclusion, 0.0
    cavities = joint_cavities(tiles, sites, problem.sample_weight, clusters)
    every = all_configurations(cavities, [priors.at(columns) for columns in clusters])
    for columns, found in zip(clusters, every, strict=True):
        inclusion[columns] = found.inclusion
    return inclusion, max(found.neglected for found in every)


def conditional_inclusion(solution: Solution, inclusion: Array) -> Array:
    """Inclusion probabilities of a blend of two classes with class means, each beside correlated columns.

    Class means are of columns one by one, and what they say of weights is diag(ridge): a column that only
    goes with one that matters has as large a difference. Of columns that are correlated within classes,
    beyond what all pairs of independent ones would show by chance (√(2 log N / M), a universal threshold
    [Donoho and Johnstone 1995]), they say √ridge C √ridge, with C these correlations. And variances within
    classes are not known: of differences in standard errors, squares are those of Student's t.
    """
    problem = solution.problem
    priors, spiked = spikes_and_slabs(problem.prior, problem.operator.shape[1])
    n_features, total = inclusion.size, float(problem.label_weight.sum())
    gained = spiked[:n_features] & (inclusion >= np.minimum(LEAST_GAIN * priors.inclusion[:n_features], 0.5))
    columns = np.flatnonzero(gained)
    columns = np.sort(columns[np.argsort(-inclusion[columns], kind="stable")][:MOST_CANDIDATES])
    if not columns.size or total <= 2.0:
        return inclusion
    posterior, state, free = solution.posterior, solution.state, total - 2.0
    values = np.asarray(problem.operator.columns(columns), dtype=np.float64)
    correlation = correlations_within(values, problem.label_weight, problem.labels)
    # Of few samples this is beyond what else counts as correlated: chance clusters would be judged together.
    threshold = np.sqrt(2.0 * np.log(n_features) / total)
    _, cluster = connected_components(np.abs(correlation) >= threshold)
    curvature, clusters, cavities = state.curvatures * problem.sample_weight, [], []
    for k in range(cluster.max() + 1):
        own = np.flatnonzero(cluster == k)
        own = own[np.argsort(-inclusion[columns[own]], kind="stable")][:LARGEST_CLUSTER]
        at, x = columns[own], values[:, own]
        by_labels, ridge = 1.0 / posterior.cavity_var[at].astype(np.float64), priors.ridge[at]
        beside = (x * curvature[:, np.newaxis]).T @ x
        np.fill_diagonal(beside, 0.0)
        shift = posterior.cavity_mean[at] * by_labels + beside @ posterior.mean[at]
        square = np.maximum(shift**2 / (by_labels + ridge), np.finfo(float).tiny)
        student = free * np.log1p(square / total) / square
        shift = shift * np.sqrt((by_labels + ridge * student) / (by_labels + ridge))
        by_means = np.sqrt(np.multiply.outer(ridge, ridge)) * correlation[np.ix_(own, own)]
        np.fill_diagonal(by_means, by_labels)  # the ridge itself is the prior's
        clusters.append(at)
        cavities.append(JointCavity(beside + by_means, shift))
    found = np.array(inclusion, dtype=np.float64)
    every = all_configurations(cavities, [priors.at(at) for at in clusters])
    for at, configurations in zip(clusters, every, strict=True):
        found[at] = configurations.inclusion
    return found


def correlated_clusters(
    tiles: Tiles,
    row_weight: Array,
    inclusion: Array,
    prior_inclusion: Array,
    eligible: NDArray[np.bool_],
) -> tuple[Positions, ...]:
    """Disjoint clusters of eligible columns, each in ascending order.

    `inclusion` is what is believed of columns after the data, `prior_inclusion` before. A seed without
    correlated columns is a cluster of one. Of too many correlated columns the most probable are taken, and in
    all, one cluster apart, no more than there are samples: not more weights than that can be told from zero.
    """
    gained = inclusion >= np.minimum(LEAST_GAIN * prior_inclusion, 0.5)
    # Every cluster that is worth it has a member like that.
    gained &= inclusion >= LEAST_MASS / LARGEST_CLUSTER
    seeds = np.flatnonzero(eligible & gained)
    seeds = seeds[np.argsort(-inclusion[seeds], kind="stable")][:MOST_SEEDS]
    cluster_of, n_clusters, found = np.full(inclusion.size, -1), 0, dict[int, Positions]()
    room = max(tiles.shape[0], LARGEST_CLUSTER)

    def together(column: np.intp) -> Positions:
        """A column with all of its cluster."""
        return found.get(int(cluster_of[column]), np.array([column]))

    for seed, row in zip(seeds, correlations(tiles, row_weight, seeds), strict=True):
        row = np.abs(row)
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
        n_new = int(np.count_nonzero(is_new))
        if worth_it and n_new <= room:
            room -= n_new
            if cluster_of[seed] < 0:
                cluster_of[seed], n_clusters = n_clusters, n_clusters + 1
            cluster_of[members] = cluster_of[seed]
            found[int(cluster_of[seed])] = members
    return tuple(np.sort(found[k]) for k in np.unique(cluster_of[cluster_of >= 0]))


def correlations(tiles: Tiles, row_weight: Array, columns: Positions) -> Array:
    """Correlations of some columns with all, (columns, N), rows counted by their weight."""
    share = row_weight / np.sum(row_weight)
    values = tiles.operator.columns(columns)
    values -= share @ values
    values *= share[:, np.newaxis]
    n_weights = tiles.shape[1]
    covariance = np.zeros((columns.size, n_weights), tiles.dtype if tiles.by_columns else np.float64)
    _, variance = tiles.operator.column_moments(row_weight)
    for part, tile in tiles:
        if tiles.by_columns:
            covariance[:, part] = values.T @ tile
        else:
            covariance += values[part].T @ tile
    # Of a column of large offset a variance near zero may be rounded below it.
    variance = np.maximum(variance, 0.0)
    size = np.divide(1.0, np.sqrt(variance), out=np.zeros(n_weights), where=variance > 0)
    covariance *= size
    covariance *= size[columns, np.newaxis]
    return covariance


def correlations_within(values: Array, row_weight: Array, labels: Array | None = None) -> Array:
    """Correlations of columns with each other; a column that does not vary is correlated with none.

    With `labels`, within the classes.
    """
    share = row_weight / np.sum(row_weight)
    values = np.array(values)
    for rows in [slice(None)] if labels is None else [labels == label for label in np.unique(labels)]:
        values[rows] -= share[rows] @ values[rows] / max(share[rows].sum(), np.finfo(float).tiny)
    values *= np.sqrt(share)[:, np.newaxis]
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


def spikes_and_slabs(prior: Prior, n_weights: int) -> tuple[SpikesAndSlabs, NDArray[np.bool_]]:
    """The priors of all weights in this form, and which weights have it; the others are NaN.

    Of a slab that is not Gaussian, the mean and variance are taken.
    """
    found = SpikesAndSlabs(*(np.full(n_weights, np.nan) for _ in SpikesAndSlabs._fields))
    _fill(found, prior, np.arange(n_weights))
    return found, np.isfinite(found.inclusion)


def _fill(found: SpikesAndSlabs, prior: Prior, columns: Positions) -> None:
    if isinstance(prior, Blocks):
        _fill(found, prior.base, columns)
        for others, other in prior.others:
            _fill(found, other, columns[others])
        return
    ridge: Any = 0.0
    background: Any = 0.0
    if isinstance(prior, Ridged):
        ridge, prior = np.broadcast_to(prior.precision, found.ridge.shape)[columns], prior.base
    elif isinstance(prior, OverBackground):
        background, prior = np.broadcast_to(prior.variance, found.ridge.shape)[columns], prior.base
    if isinstance(prior, SpikeAndSlab | RowSparse):
        found.inclusion[columns] = prior.inclusion
        found.slab_mean[columns], found.slab_var[columns] = prior.slab.moments()
        found.ridge[columns], found.background[columns] = ridge, background
    else:
        found.inclusion[columns] = np.nan


@dataclass(frozen=True, eq=False)
class Configurations:
    """Configurations, the smallest first, of the weights of a cluster."""

    members: Members
    probability: Array
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
    """The configurations of clusters that matter, with their probabilities.

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
    precision, shift = said_beyond(cavities, prior)
    n_weights = shift.shape[1]
    log_prior_odds = np.log(prior.inclusion) - np.log1p(-prior.inclusion)
    visited = [_Visited.nothing(precision, shift)]
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
        left = parents.left()
        # Rounding may leave less than nothing of a duplicate.
        left_precision = np.maximum(left[0][:, parent, added, added], 0.0)
        left_shift = left[1][:, parent, added]
        mean, var = prior.slab_mean[:, added], prior.slab_var[:, added]
        total = 1.0 + var * left_precision
        square = var * left_shift**2 + 2.0 * mean * left_shift - mean**2 * left_precision
        log_gain = 0.5 * (square / total - np.log(total))
        level = _Visited(
            members=members,
            log_odds=parents.log_odds[:, parent] + log_prior_odds[:, added] + log_gain,
            added_mean=(var * left_shift + mean) / total,
            gain=var / total,
            parent=parent,
            added=added,
            by_parents=left,
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
    neglected = np.exp(log_missed - np.logaddexp(log_total, log_missed))
    members = np.concatenate([level.members for level in visited])
    found = np.hstack(probabilities), neglected.tolist()
    return [Configurations(members, *own) for own in zip(*found, strict=True)]


class _Visited(NamedTuple):
    """A level with log odds, and with what it leaves to be said if it has children."""

    members: Members  # the same in all clusters
    log_odds: Array
    added_mean: Array
    gain: Array
    parent: Positions
    added: Positions
    by_parents: tuple[Array, Array]  # R and c

    @classmethod
    def nothing(cls, precision: Array, shift: Array) -> _Visited:
        """The configuration without any weight."""
        zero, first = np.zeros((len(shift), 1)), np.zeros(1, dtype=np.intp)
        members = np.zeros((1, shift.shape[1]), dtype=bool)
        left = precision[:, np.newaxis], shift[:, np.newaxis]
        return cls(members, zero, zero, zero, first, first, left)

    def only(self, which: Positions) -> _Visited:
        """Some of the configurations."""
        of_clusters = {name: getattr(self, name)[:, which] for name in ("log_odds", "added_mean", "gain")}
        of_all = {name: getattr(self, name)[which] for name in ("members", "parent", "added")}
        return self._replace(**of_clusters, **of_all)

    def left(self) -> tuple[Array, Array]:
        """R and c, (clusters, configurations, weights, weights) and (clusters, configurations, weights)."""
        precision, shift = self.by_parents
        row = precision[:, self.parent, self.added]
        left = precision[:, self.parent]
        # Some at a time stay in a processor's cache.
        for start in range(0, self.parent.size, AT_ONCE):
            some = slice(start, start + AT_ONCE)
            scaled = self.gain[:, some, np.newaxis] * row[:, some]
            left[:, some] -= row[:, some, :, np.newaxis] * scaled[:, :, np.newaxis]
        return left, shift[:, self.parent] - row * self.added_mean[:, :, np.newaxis]


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
    bits = 1 << np.arange(parents.shape[1])
    _, first = np.unique((parents @ bits)[parent] | bits[added], return_index=True)
    parent, added = parent[first], added[first]
    members = parents[parent]
    members[np.arange(added.size), added] = True
    return members, parent, added


def said_beyond(cavities: list[JointCavity], prior: SpikesAndSlabs) -> tuple[Array, Array]:
    """What is said of effects: precisions, with ridges, and shifts.

    Without directions of negative precision: there nothing is known.

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
