"""Joint cavities: what labels and all other weights say about a few weights together.

With the prior sites of all columns C taken out at once and the other weights integrated, a Gaussian of sites
leaves a function of the weights in C,

    exp(-½ wᵀ P w + hᵀ w),    P = Σ_CC⁻¹ - S_C,    h = P μ_C + S_C μ_C - γ_C,

for μ and Σ the mean and covariance, S_C and γ_C the precision and shift of the sites taken out. Where several
weights share one site, S_C is a matrix. `gaussian_layer` leaves of the free weights, which C is among, the
Gaussian exp(-½ wᵀ H w + hᵀ w) before their sites S, so that with H Σ = I - S Σ

    P = (H Σ)_CC Σ_CC⁻¹,

whose rows are taken from H Σ where the prior is the stronger, and from I - S Σ where labels are: a prior that
is sure of a weight has a huge S, of which the difference would leave nothing, and of collinear columns with
weak priors the sum cancels. P may be singular: of duplicated columns data see the sum only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.beliefs import Array
from foldless.operators.base import column_positions
from foldless.problem import Problem
from foldless.solvers.base import State
from foldless.solvers.gaussian_layer import (
    Block,
    NotPositiveDefinite,
    Opened,
    Positions,
    Sites,
    Tiles,
    _cholesky,
    _inverse_of,
    opened_layer,
)


class JointCavity(NamedTuple):
    """exp(-½ wᵀ precision w + shiftᵀ w) for the weights of some columns."""

    precision: Array
    shift: Array


@dataclass(frozen=True, eq=False)
class ClusterSite:
    """One prior site of several weights: exp(-½ wᵀ precision w + shiftᵀ w)."""

    columns: Positions
    precision: Array
    shift: Array


class JointBlock:
    """The free weights under sites that may be joint: precision S, a matrix, and shift γ.

    Raises NotPositiveDefinite if there is no such Gaussian.
    """

    def __init__(self, opened: Opened, site_precision: Array, site_shift: Array) -> None:
        self.opened, self.site_precision, self.site_shift = opened, site_precision, site_shift
        self.root, self.log_determinant = _cholesky(opened.precision + site_precision)
        self.covariance = _inverse_of(self.root)
        self.mean = self.covariance @ (site_shift + opened.shift)
        self.var = self.covariance.diagonal().copy()
        if not np.all(self.var > 0):
            raise NotPositiveDefinite("a marginal variance is not positive")
        self._sure: NDArray[np.bool_] = site_precision.diagonal() > opened.precision.diagonal()

    def cavity(self, at: Positions) -> JointCavity:
        """The joint cavity of free weights at these places among them; they share no site with others."""
        block = self.covariance[np.ix_(at, at)]
        site = self.site_precision[np.ix_(at, at)]
        said = np.eye(at.size) - site @ block
        slope = site @ self.mean[at] - self.site_shift[at]
        sure = self._sure[at]
        if sure.any():
            said[sure] = self.opened.precision[at[sure]] @ self.covariance[:, at]
            slope[sure] = self.opened.shift[at[sure]] - self.opened.precision[at[sure]] @ self.mean
        unit = np.sqrt(block.diagonal())
        scaled = block / np.multiply.outer(unit, unit)
        precision = np.linalg.solve(scaled, (said / unit).T).T / unit
        precision = 0.5 * (precision + precision.T)
        return JointCavity(precision, precision @ self.mean[at] + slope)

    def single_cavities(self) -> tuple[Array, Array]:
        """What labels and the others say to each weight that has a site of its own: precision, and slope."""
        site, precision = self.site_precision.diagonal(), self.opened.precision
        said = 1.0 / self.var - site
        slope = site * self.mean - self.site_shift
        if self._sure.any():
            by_labels = np.einsum("ij,ij->i", precision, self.covariance) / self.var
            said = np.where(self._sure, by_labels, said)
            slope = np.where(self._sure, self.opened.shift - precision @ self.mean, slope)
        return said, slope

    def as_block(self) -> Block:
        """In the form in which the layer takes it, to make the Gaussian of all weights and scores."""
        data_precision, data_slope = self.single_cavities()
        return Block(
            self.site_precision.diagonal(),
            self.site_shift,
            self.mean,
            self.var,
            data_precision,
            data_slope,
            self.root,
            self.log_determinant,
        )


class JointCavities:
    """The Gaussian of these sites, factored once, to be asked about many sets of some columns.

    Sites may come from any solver; raises NotPositiveDefinite if they make no distribution. A label site is
    that of one sample, which counts as often as `sample_weight` says. Columns of a cluster have its site.
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
        opened = opened_layer(tiles, sites, sample_weight, free)
        precision, shift = np.diag(sites.prior_precision[opened.free]), sites.prior_shift[opened.free]
        for cluster in clusters:
            at = np.searchsorted(opened.free, cluster.columns)
            precision[at] = 0.0
            precision[np.ix_(at, at)] = cluster.precision
            shift[at] = cluster.shift
        self._block = JointBlock(opened, precision, shift)

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


def joint_cavity(
    problem: Problem, sites: Sites, columns: ArrayLike, clusters: Sequence[ClusterSite] = ()
) -> JointCavity:
    """The joint cavity of some columns; for many sets of them, `JointCavities` factors only once."""
    return JointCavities(Tiles(problem.operator), sites, problem.sample_weight, columns, clusters).of(columns)


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
    curvature = np.clip(response.curvature, 0.0, (1 - 1e-12) / score_var)
    label_precision = curvature / (1 - score_var * curvature)
    return Sites(
        tilted_precision - 1.0 / var,
        tilted.mean * tilted_precision - mean / var,
        label_precision,
        score_mean * label_precision + response.slope * (1 + score_var * label_precision),
    )
