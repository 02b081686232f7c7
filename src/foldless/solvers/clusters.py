"""Clusters: columns so correlated that their weights can only be judged together.

Seeds are the columns that data speak for; a cluster is a seed with the columns correlated with it, and
clusters that meet are one. Only seeds are compared with all columns, O(M N seeds); nothing is N x N.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.operators.base import Operator
from foldless.solvers.gaussian_layer import Positions, Tiles

# Columns that share a quarter of their variance belong together.
LEAST_CORRELATION = 0.5
# A seed is a column that data have made at least so many times as probable as it was before, or more probable
# than not. Even t equal columns, of which one is in, are seeds: 1/t each, unless the prior expects t of them.
LEAST_GAIN = 2.0
# A cluster that is expected to hold fewer features than this has little to be judged.
LEAST_MASS = 0.2
# More columns than this in one cluster cannot be told apart by anyone, nor their configurations be visited.
LARGEST_CLUSTER = 24
# So many seeds are compared with all columns, at the most.
MOST_SEEDS = 400


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
    cluster_of = np.full(inclusion.size, -1)
    clusters: list[list[int]] = [cluster.tolist() for cluster in existing]
    for k, cluster in enumerate(clusters):
        cluster_of[cluster] = k
    room = max(tiles.shape[0], LARGEST_CLUSTER) - int(np.count_nonzero(cluster_of >= 0))
    for seed, row in zip(seeds, np.abs(correlations(tiles, row_weight, seeds)), strict=True):
        related = np.flatnonzero((row >= LEAST_CORRELATION) & eligible)
        related = related[np.lexsort((-row[related], -inclusion[related]))]
        own = int(cluster_of[seed])
        members: list[int] = [int(seed)] if own < 0 else clusters[own]
        size = len(members)
        met: list[int] = []
        for column in related[related != seed]:
            if len(members) == LARGEST_CLUSTER:
                break
            other = int(cluster_of[column])
            if (own >= 0 and other == own) or other in met:
                continue
            joining = [int(column)] if other < 0 else clusters[other]
            if len(members) + len(joining) <= LARGEST_CLUSTER:
                members = members + joining
                met += [] if other < 0 else [other]
        n_new = int(np.count_nonzero(cluster_of[members] < 0))
        worth_it = size > 1 or met or np.sum(inclusion[members]) >= LEAST_MASS
        if not worth_it or n_new > room:
            continue
        room -= n_new
        for other in met:
            clusters[other] = []
        if own < 0:
            own = len(clusters)
            clusters.append([])
        clusters[own] = members
        cluster_of[members] = own
    return tuple(np.sort(np.array(cluster, dtype=np.intp)) for cluster in clusters if cluster)


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
    values -= share @ values
    covariance = values.T @ (share[:, np.newaxis] * values)
    std = np.sqrt(covariance.diagonal())
    size = np.multiply.outer(std, std)
    found = np.divide(covariance, size, out=np.zeros_like(covariance), where=size > 0)
    np.fill_diagonal(found, 1.0)
    return np.clip(found, -1.0, 1.0)
