"""Which of a few correlated weights are in: configurations of spikes and slabs, with their probabilities.

Of the weights of a cluster, labels and all other weights say exp(-½ wᵀ P w + hᵀ w) (`joint`). Under
independent priors (1 - π_j) δ(w_j) + π_j N(w_j; m_j, v_j), the configuration that has the weights S in and
the others zero is a Gaussian with covariance Q and mean μ (zero outside S), and its odds against none being
in follow weight by weight. With what S leaves of a further weight j, the precision e and the shift c,

    u = unit vector of j - Q P_j,    e = uᵀ P_j,    c = h_j - P_jᵀ μ,    t = 1 + v_j e,
    log odds(S + j) - log odds(S) = log π_j/(1 - π_j) + ½ (v_j c² + 2 m_j c - m_j² e)/t - ½ log t,
    μ(S + j) = μ + u (v_j c + m_j)/t,    Q(S + j) = Q + u uᵀ v_j/t.

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

from foldless.beliefs import Array
from foldless.priors import Blocks, Gaussian, Prior, Ridged, SpikeAndSlab
from foldless.solvers.gaussian_layer import JointCavity, Positions

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


class SpikesAndSlabs(NamedTuple):
    """Priors of weights: [(1 - inclusion) δ(w) + inclusion N(w; slab_mean, slab_var)] exp(-½ ridge w²)."""

    inclusion: Array
    slab_mean: Array
    slab_var: Array
    ridge: Array

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
    if isinstance(prior, Ridged):
        ridge, prior = np.broadcast_to(prior.precision, found.ridge.shape)[columns], prior.base
    if isinstance(prior, SpikeAndSlab) and (any_slab or isinstance(prior.slab, Gaussian)):
        found.inclusion[columns] = prior.inclusion
        found.slab_mean[columns], found.slab_var[columns] = prior.slab.moments()
        found.ridge[columns] = ridge
    else:
        found.inclusion[columns] = np.nan


class Level(NamedTuple):
    """Configurations of one size: positions of the weights that are in, and probabilities."""

    members: Positions  # (configurations, size)
    probability: Array


@dataclass(frozen=True, eq=False)
class Configurations:
    """Configurations by size, and what they say about the weights of a cluster together."""

    levels: tuple[Level, ...]
    mean: Array
    covariance: Array
    log_z: float  # log ∫ prior · cavity
    neglected: float  # an estimate of the share that was not visited

    @property
    def probability(self) -> Array:
        """Of every configuration, in the order of `members`."""
        return np.concatenate([level.probability for level in self.levels])

    @property
    def members(self) -> NDArray[np.bool_]:
        """Which weights are in, (configurations, weights)."""
        sizes = [level.probability.size for level in self.levels]
        member = np.zeros((sum(sizes), self.mean.size), dtype=bool)
        for level, stop in zip(self.levels, np.cumsum(sizes), strict=True):
            rows = np.arange(stop - level.probability.size, stop)
            member[rows[:, np.newaxis], level.members] = True
        return member

    @property
    def inclusion(self) -> Array:
        """P(a weight is in), for every weight."""
        total = np.zeros(self.mean.size)
        for level in self.levels[1:]:
            share = np.repeat(level.probability, level.members.shape[1])
            total += np.bincount(level.members.ravel(), share, total.size)
        return total

    @property
    def nothing(self) -> float:
        """P(no weight is in)."""
        return float(self.levels[0].probability[0])


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
    precision, shift = _known(cavities, prior.ridge)
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
            members, parent, added = _children(parents.members, n_weights)
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
    return [
        Configurations(
            levels=tuple(Level(level.members, p[k]) for level, p in zip(visited, probabilities, strict=True)),
            mean=means[k],
            covariance=covariances[k],
            log_z=float(log_z[k]),
            neglected=float(neglected[k]),
        )
        for k in range(len(cavities))
    ]


class _Visited(NamedTuple):
    """A level with log odds and moments. A covariance is that of the parent, plus gain · u uᵀ."""

    members: Positions  # the same in all clusters
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
            members=np.empty((1, 0), dtype=np.intp),
            log_odds=np.zeros((n_clusters, 1)),
            means=np.zeros((n_clusters, 1, n_weights)),
            direction=np.zeros((n_clusters, 1, n_weights)),
            gain=np.zeros((n_clusters, 1)),
            parent=np.zeros(1, dtype=np.intp),
            parent_covariances=np.zeros((n_clusters, 1, n_weights, n_weights)),
        )

    def only(self, which: Positions) -> _Visited:
        """Some of the configurations."""
        return self._replace(
            members=self.members[which],
            log_odds=self.log_odds[:, which],
            means=self.means[:, which],
            direction=self.direction[:, which],
            gain=self.gain[:, which],
            parent=self.parent[which],
        )

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
def _whole_level(n_weights: int, size: int) -> tuple[Positions, Positions, Positions]:
    """All configurations of a size in lexical order; each one's parent, without its last weight, and that."""
    place = {parent: k for k, parent in enumerate(combinations(range(n_weights), size - 1))}
    found = list(combinations(range(n_weights), size))
    members = np.array(found, dtype=np.intp)
    return members, np.array([place[each[:-1]] for each in found], dtype=np.intp), members[:, -1]


def _children(parents: Positions, n_weights: int) -> tuple[Positions, Positions, Positions]:
    """All configurations with one weight more than a parent, once each; a parent, and the weight added."""
    outside = np.ones((parents.shape[0], n_weights), dtype=bool)
    np.put_along_axis(outside, parents, False, axis=1)
    parent, added = np.nonzero(outside)
    bits = np.left_shift(np.int64(1), parents.astype(np.int64)).sum(axis=1)[parent]
    bits += np.left_shift(np.int64(1), added.astype(np.int64))
    _, first = np.unique(bits, return_index=True)
    parent, added = parent[first], added[first]
    return np.column_stack([parents[parent], added]), parent, added


def _known(cavities: list[JointCavity], ridge: Array) -> tuple[Array, Array]:
    """Precisions, with ridges, and shifts, without directions of negative precision: there nothing is known.

    Sites of others that have negative precision and are correlated with these weights can leave such
    directions, and so does rounding, of duplicates.
    """
    precision = np.stack([cavity.precision for cavity in cavities])
    shift = np.stack([cavity.shift for cavity in cavities])
    n_weights = shift.shape[1]
    precision[:, np.arange(n_weights), np.arange(n_weights)] += ridge
    eigenvalues, vectors = np.linalg.eigh(precision)
    for k in np.flatnonzero(eigenvalues[:, 0] < 0):
        known = vectors[k][:, eigenvalues[k] > 0]
        precision[k] = (known * eigenvalues[k][eigenvalues[k] > 0]) @ known.T
        shift[k] = known @ (shift[k] @ known)
    return precision, shift


def _log_sum(log_values: Array) -> Array:
    """log Σ exp over the last axis."""
    largest = np.max(log_values, axis=-1)
    return np.asarray(largest + np.log(np.sum(np.exp(log_values - largest[..., np.newaxis]), axis=-1)))
