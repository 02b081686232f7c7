"""Credible sets: "one of these four columns, with probability 0.97", where columns are twins.

Correlated columns share what probability there is, so that none of them is selected on its own although one
of them is in for certain. As in SuSiE [Wang et al. 2020], but with any likelihood that a solver can fit, a
set is a few correlated columns at least one of which is in with a stated probability. It is read off the
configurations of a cluster at its joint cavity (`solvers.clusters`); nothing is fitted again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.problem import Problem
from foldless.registry import registered
from foldless.solvers.clusters import (
    Configurations,
    all_configurations,
    correlated_clusters,
    correlations_within,
    spikes_and_slabs,
)
from foldless.solvers.gaussian_layer import Sites, Tiles
from foldless.solvers.sites import joint_cavities

COVERAGE = 0.95
PURITY = 0.5
# A set in which the prior alone would expect a column, more likely than not, is no discovery.
LARGEST_PRIOR_PROBABILITY = 0.5


@registered("selection/credible-set")
@dataclass(frozen=True, eq=False)
class CredibleSet:
    """Correlated columns, the most probable first, at least one of which is in with this probability."""

    columns: NDArray[np.intp]
    probability: float
    inclusion: Array  # of each column alone
    purity: float  # the smallest absolute correlation between two of the columns; 1 for a single one

    def __str__(self) -> str:
        count = "this column" if self.columns.size == 1 else f"one of these {self.columns.size} columns"
        return f"{count}, probability {self.probability:.2f}: {', '.join(map(str, self.columns))}"


class CredibleSets(NamedTuple):
    """Disjoint sets, the one with the surest column first, and what else the clusters have shown."""

    sets: tuple[CredibleSet, ...]
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
    tiles: Tiles | None = None,
) -> CredibleSets:
    """Credible sets of columns whose prior has a spike, from the sites of a solution.

    Parameters
    ----------
    problem : as tuned
    sites : those of EP, or `solvers.sites.sites_at_cavities` of any solver's state
    inclusion : inclusion probabilities of all weights, by which clusters are found
    coverage : the least probability that at least one column of a set is in
    purity : the least absolute correlation between two columns of a set
    tiles : the columns as a solver has left them; made again if not given
    """
    _check_share("coverage", coverage)
    _check_share("purity", purity)
    tiles, n_weights = tiles or Tiles(problem.operator), problem.operator.shape[1]
    priors, spiked = spikes_and_slabs(problem.prior, n_weights)
    inclusion = np.array(inclusion, dtype=np.float64)
    clusters = correlated_clusters(tiles, problem.label_weight, inclusion, priors.inclusion, spiked)
    if not clusters:
        return CredibleSets((), inclusion, 0.0)
    cavities = joint_cavities(tiles, sites, problem.sample_weight, clusters)
    every = all_configurations(cavities, [priors.at(columns) for columns in clusters])
    sets: list[CredibleSet] = []
    for columns, found in zip(clusters, every, strict=True):
        inclusion[columns] = found.inclusion
        if 1.0 - found.nothing < coverage:
            continue
        correlation = np.abs(correlations_within(problem.operator, problem.label_weight, columns))
        sets += _sets_of(columns, found, correlation, priors.inclusion[columns], coverage, purity)
    sets.sort(key=lambda each: (-each.inclusion[0], each.columns[0]))
    return CredibleSets(tuple(sets), inclusion, max(found.neglected for found in every))


def _sets_of(
    columns: NDArray[np.intp],
    found: Configurations,
    correlation: Array,
    prior_inclusion: Array,
    coverage: float,
    purity: float,
) -> list[CredibleSet]:
    """Disjoint sets of a cluster. Each starts at the most probable column left, if one can."""
    members, probability, inclusion = found.members, found.probability, found.inclusion
    left = np.ones(columns.size, dtype=bool)
    sets = []
    for start in np.argsort(-inclusion, kind="stable"):
        if not left[start]:
            continue
        chosen, reached = _grown(start, members, probability, left, correlation >= purity, coverage)
        prior_probability = -np.expm1(np.sum(np.log1p(-prior_inclusion[chosen])))
        if reached < coverage or prior_probability > LARGEST_PRIOR_PROBABILITY:
            continue
        chosen = chosen[np.argsort(-inclusion[chosen], kind="stable")]
        left[chosen] = False
        smallest = float(np.min(correlation[np.ix_(chosen, chosen)]))
        sets.append(CredibleSet(columns[chosen], reached, inclusion[chosen], smallest))
    return sets


def _grown(
    start: np.intp,
    members: NDArray[np.bool_],
    probability: Array,
    allowed: NDArray[np.bool_],
    related: NDArray[np.bool_],
    coverage: float,
) -> tuple[NDArray[np.intp], float]:
    """Columns added to the first, always the one that covers most of what is not covered, and P(any is in).

    Only columns that are related to all others of the set are allowed in.
    """
    chosen = [start]
    open_share = np.where(members[:, start], 0.0, probability)
    while True:
        reached = 1.0 - float(np.sum(open_share))
        allowed = allowed & related[chosen[-1]]
        allowed[chosen] = False
        if reached >= coverage or not allowed.any():
            return np.array(chosen), reached
        covers = np.where(allowed, open_share @ members, -1.0)
        chosen.append(np.argmax(covers))
        open_share = np.where(members[:, chosen[-1]], 0.0, open_share)


def _check_share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, for instance 0.95; got {value!r}.")
