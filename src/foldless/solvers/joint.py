"""Joint cavities: what labels and all other weights say about a few weights together.

With the prior sites of all columns C taken out at once and the other weights integrated, a Gaussian of sites
leaves a function exp(-½ wᵀ P w + hᵀ w) of the weights in C, which are free there
(`gaussian_layer.Block.cavity`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from foldless.beliefs import Array
from foldless.operators.base import column_positions
from foldless.problem import Problem
from foldless.solvers.base import State
from foldless.solvers.cavities import label_site
from foldless.solvers.cluster_sites import ClusterSite
from foldless.solvers.free_weights import Layers
from foldless.solvers.gaussian_layer import JointCavity, Sites, Tiles


class JointCavities:
    """The Gaussian of these sites, factored once, to be asked about many sets of some columns.

    Sites may come from any solver. Those of negative precision may not go together if they do not come from
    one Gaussian, as GAMP's do not, and then are weakened (`free_weights`). A label site is that of one
    sample, which counts as often as `sample_weight` says. Columns of a cluster have its site.
    """

    def __init__(
        self,
        tiles: Tiles,
        sites: Sites,
        sample_weight: Array,
        columns: ArrayLike,
        clusters: Sequence[ClusterSite] = (),
    ) -> None:
        self._n_weights = tiles.shape[1]
        self._clusters = tuple(cluster.columns for cluster in clusters)
        # What is not positive, or joint, cannot be integrated weight by weight.
        negative = np.flatnonzero(sites.prior_precision <= 0)
        asked = column_positions(columns, self._n_weights)
        free = np.unique(np.concatenate([asked, negative, *self._clusters]))
        for cluster in clusters:
            sites = sites.with_prior(cluster.columns, cluster.precision.diagonal(), cluster.shift)
        any_var = np.full(self._n_weights, np.inf)
        weights = Layers.open(tiles, sites, sample_weight, free).free_weights(any_var, clusters)
        self._block = weights.blocks[0]

    def of(self, columns: ArrayLike) -> JointCavity:
        """The joint cavity of some of the columns."""
        positions = column_positions(columns, self._n_weights)
        free = self._block.opened.free
        places = np.minimum(np.searchsorted(free, positions), free.size - 1)
        if not np.array_equal(free[places], positions):
            raise ValueError(
                f"columns {positions.tolist()} are not all among those that were opened. Name all columns "
                "that will be asked about when making JointCavities."
            )
        for cluster in self._clusters:
            inside = np.isin(cluster, positions)
            if inside.any() and not inside.all():
                raise ValueError(
                    f"columns {positions.tolist()} are a part of the cluster {cluster.tolist()}, whose one "
                    "site cannot be divided. Ask for all of its columns."
                )
        return self._block.cavity(places)


def sites_at_cavities(problem: Problem, state: State) -> Sites:
    """Sites that explain what prior and channel answer at a state's cavities, of whatever solver.

    At a fixed point of `EP` these are its sites; of GAMP and VAMP they are what its messages stand for.
    """
    n_samples, n_weights = problem.operator.shape
    mean, var = (np.broadcast_to(a, n_weights) for a in (state.cavity_mean, state.cavity_var))
    tilted = problem.prior.tilted(mean, var)
    tilted_precision = 1.0 / np.maximum(tilted.var, np.finfo(np.float64).tiny)
    score_mean, score_var = (
        np.broadcast_to(a, n_samples) for a in (state.score_cavity_mean, state.score_cavity_var)
    )
    response = problem.channel.respond(score_mean, score_var, problem.labels)
    return Sites(
        tilted_precision - 1.0 / var,
        tilted.mean * tilted_precision - mean / var,
        *label_site(response, score_mean, score_var),
    )
