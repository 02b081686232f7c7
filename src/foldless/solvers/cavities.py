"""Cavities, and the Gaussian sites that explain what priors and channels answer at them.

A cavity is a marginal with one factor taken out. Of weights and samples with several scores, cavities and
sites are side by side, (weights or samples, scores); all that is here acts on each of them alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array, Response
from foldless.problem import Problem
from foldless.solvers.gaussian_layer import Gaussian, Scores, Sites
from foldless.solvers.message_passing import along_scores

# A cavity without precision, or with less than this share of its marginal's, says nothing: its site waits.
# The share may be very small, since a prior can be all but certain that a weight is zero.
LEAST_CAVITY_SHARE = 1e-200
# The share that such a cavity is shown with: wide enough to say nothing.
WIDE_CAVITY_SHARE = 1e-9
# Label sites take at most this share of what a label and its cavity say together, so that 1 - v c > 0.
LARGEST_LABEL_SHARE = 1 - 1e-12
# Site precisions are differences of precisions. A site that moves by less than so many units in the last
# place of those stays: a Gaussian prior keeps its own precision, however small beside the labels'.
ROUNDING = 32 * np.finfo(np.float64).eps


@dataclass(frozen=True, eq=False)
class Cavities:
    """Means and variances with one factor taken out each; `proper` says where that leaves a distribution."""

    mean: Array
    var: Array
    proper: NDArray[np.bool_]

    @classmethod
    def left(cls, mean: Array, var: Array, precision: Array, slope: Array) -> Cavities:
        """What is left of marginals: this precision, and a mean moved by the factor's slope over it.

        The factor's slope at the marginal mean is balanced by that of all others, `slope`. Where nothing is
        left the cavity is wide and the mean stays.
        """
        proper = precision > LEAST_CAVITY_SHARE / var
        precision = np.where(proper, precision, WIDE_CAVITY_SHARE / var)
        return cls(np.where(proper, mean + slope / precision, mean), 1.0 / precision, proper)

    @classmethod
    def believed(cls, mean: Array, var: Array) -> Cavities:
        """Cavities of another solver; exact covariances are made in double precision."""
        mean, var = np.asarray(mean, dtype=np.float64), np.asarray(var, dtype=np.float64)
        return cls(mean, var, np.ones(mean.shape, dtype=bool))


def weight_cavities(gaussian: Gaussian) -> Cavities:
    return Cavities.left(gaussian.mean, gaussian.var, gaussian.data_precision, gaussian.data_slope)


def score_cavities(scores: Scores, sites: Sites, sample_weight: Array, lost: Array | None = None) -> Cavities:
    """Scores without one label: a sample of weight 2 keeps the other, one of weight ½ had half to lose."""
    lost = np.minimum(sample_weight, 1.0) if lost is None else lost
    remaining, lost = (along_scores(weight, scores.mean) for weight in (sample_weight - lost, lost))
    precision = scores.rest_precision + remaining * sites.label_precision
    slope = lost * (sites.label_precision * scores.mean - sites.label_shift)
    return Cavities.left(scores.mean, scores.var, precision, slope)


def label_site(response: Response, mean: Array, var: Array) -> tuple[Array, Array]:
    """Precision and shift of the site that explains a response at the cavity N(mean, var).

    With slope s and curvature c of log Z: c / (1 - v c) and p · precision + s (1 + v · precision). Label
    sites stay non-negative.
    """
    curvature = np.clip(response.curvature, 0.0, LARGEST_LABEL_SHARE / var)
    precision = curvature / (1 - var * curvature)
    return precision, mean * precision + response.slope * (1 + var * precision)


def label_sites(problem: Problem, at: Cavities, old: Sites) -> tuple[tuple[Array, Array], Array]:
    """Precisions and shifts of label sites at these cavities, and the log normalisers there.

    Improper cavities keep their sites.
    """
    response = problem.channel.respond(at.mean, at.var, problem.labels)
    precision, shift = label_site(response, at.mean, at.var)
    known = at.proper & np.isfinite(precision) & np.isfinite(shift)
    sites = np.where(known, precision, old.label_precision), np.where(known, shift, old.label_shift)
    return sites, response.log_z


def explaining_sites(
    mean: Array, var: Array, cavity: Cavities, old_precision: Array, old_shift: Array
) -> tuple[Array, Array]:
    """Precisions and shifts of sites that make these moments of cavities; improper cavities keep theirs."""
    tilted_precision = 1.0 / np.maximum(var, np.finfo(float).tiny)
    tilted_shift = mean * tilted_precision
    cavity_precision = 1.0 / cavity.var
    precision = _settled(tilted_precision - cavity_precision, old_precision, tilted_precision)
    shift = _settled(tilted_shift - cavity.mean * cavity_precision, old_shift, np.abs(tilted_shift))
    known = cavity.proper & np.isfinite(precision) & np.isfinite(shift)
    return np.where(known, precision, old_precision), np.where(known, shift, old_shift)


def _settled(wanted: Array, old: Array, size: Array) -> Array:
    """The wanted values, but the old ones where the difference is rounding error of numbers of this size."""
    return np.where(np.abs(wanted - old) <= ROUNDING * size, old, wanted)
