"""Credible sets: "one of these four columns, with probability 0.97", where columns are twins.

Correlated columns share what probability there is, so that none of them is selected on its own although one
of them is in for certain. As in SuSiE [Wang et al. 2020], but with any likelihood that a solver can fit, a
set is a few correlated columns at least one of which is in with a stated probability: a group
(`selection.groups`) whose members are all correlated with each other.

The probability of each column is read off the configurations of its cluster at their joint cavity
(`solvers.clusters`); nothing is fitted again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from foldless.beliefs import Array
from foldless.problem import Problem
from foldless.selection.groups import Group, joint_posterior
from foldless.solvers.clusters import all_configurations, correlated_clusters, spikes_and_slabs
from foldless.solvers.gaussian_layer import Sites, Tiles
from foldless.solvers.sites import joint_cavities

COVERAGE = 0.95
PURITY = 0.5


class CredibleSets(NamedTuple):
    """Disjoint sets, the one with the surest column first, and what else the clusters have shown."""

    sets: tuple[Group, ...]
    # Of every weight; those of clustered columns are their joint posterior's.
    inclusion: Array
    # The largest share of a cluster's configurations that is estimated not to have been visited.
    neglected: float


def credible_sets(
    problem: Problem,
    sites: Sites,
    inclusion: Array,
    *,
    coverage: float = COVERAGE,
    purity: float = PURITY,
) -> CredibleSets:
    """Credible sets of columns whose prior has a spike, from the sites of a solution.

    Parameters
    ----------
    problem : as tuned
    sites : those of EP, or `solvers.sites.sites_at_cavities` of any solver's state
    inclusion : inclusion probabilities of all weights, by which clusters are found
    coverage : the least probability that at least one column of a set is in
    purity : the least absolute correlation between two columns of a set
    """
    _check_share("coverage", coverage)
    _check_share("purity", purity)
    refined, neglected = refined_inclusion(problem, sites, inclusion)
    if not spikes_and_slabs(problem.prior, refined.size)[1].any():
        return CredibleSets((), refined, neglected)
    joint = joint_posterior(problem, sites, refined)
    found = joint.alone(coverage) + joint.groups(coverage, purity=purity)
    return CredibleSets(tuple(sorted(found, key=lambda each: -each.inclusion[0])), refined, neglected)


def refined_inclusion(problem: Problem, sites: Sites, inclusion: Array) -> tuple[Array, float]:
    """Inclusion probabilities with those of correlated columns from their joint posterior; what it neglects.

    EP divides what is probable among the columns of a cluster as though they were apart.
    """
    tiles, n_weights = Tiles(problem.operator), problem.operator.shape[1]
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


def _check_share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, for instance 0.95; got {value!r}.")
