"""Clustered EP: expectation propagation in which correlated columns have one prior site together.

All is as in `ep`, whose free weights the clusters are among (`cluster_sites`). Clusters are looked for while
beliefs form (`clusters`), and only grow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foldless.priors.base import SupportsInclusion
from foldless.problem import Problem
from foldless.solvers.cluster_sites import ClusterSite
from foldless.solvers.clusters import correlated_clusters
from foldless.solvers.configurations import spikes_and_slabs
from foldless.solvers.ep import EP, EPState
from foldless.solvers.gaussian_layer import Positions

# Clusters are looked for after this many iterations, and again whenever these have doubled.
FIRST_LOOK = 3


@dataclass(frozen=True)
class ClusteredEP(EP):
    """Expectation propagation with joint sites of correlated columns, for one score.

    Joint are columns whose prior is `SpikeAndSlab` with a Gaussian slab of mean zero; where there are none,
    this is `EP`.
    """

    def init(self, problem: Problem) -> EPState:
        if problem.channel.score_shape:
            raise ValueError(f"ClusteredEP is for channels of one score; got {problem.channel!r}. Use EP.")
        return super().init(problem)

    def step(self, problem: Problem, state: EPState) -> EPState:
        state = super().step(problem, state)
        looks = FIRST_LOOK * 2 ** np.arange(20)
        if state.iteration not in looks or not isinstance(problem.prior, SupportsInclusion):
            return state
        priors, spiked = spikes_and_slabs(problem.prior, problem.operator.shape[1])
        found = correlated_clusters(
            state.tiles,
            problem.label_weight,
            problem.prior.inclusion_probability(state.cavity_mean, state.cavity_var),
            priors.inclusion,
            spiked & (priors.slab_mean == 0),
            [site.columns for site in state.cluster_sites],
        )
        return replace(state, cluster_sites=_gathered(state, found))


def _gathered(state: EPState, found: tuple[Positions, ...]) -> tuple[ClusterSite, ...]:
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
