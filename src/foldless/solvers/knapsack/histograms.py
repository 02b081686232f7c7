"""Distributions of single weights as histograms: the grid they live on, priors on it, and what they say.

Everything is a logarithm. Max-marginals of a posterior raised to the power β are β times those of the
posterior itself, so one run of message passing serves every β.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from foldless.beliefs import Array
from foldless.registry import registered

LogPrior = Callable[[Array], Array]


# Logarithms of priors up to a constant. None needs to be convex, and l0 needs a grid that has zero on it.
PRIORS: dict[str, LogPrior] = {
    "l2": lambda weight: -0.5 * np.square(weight),
    "l1": lambda weight: -np.abs(weight),
    "l0": lambda weight: -np.where(weight == 0.0, 0.0, 1.0),
}


def grid(n_weights: int, n_bins: int, reach: float) -> Array:
    """Bin centres of every weight: an odd number, even on both sides of zero and with zero among them.

    Exchanging the classes turns every weight round, so a grid that is not its own mirror image would prefer
    one class; and a prior that counts weights must find the one place where there is none.
    """
    half = max(n_bins // 2, 1)
    steps = np.arange(-half, half + 1) / half
    return np.tile(reach * steps, (n_weights, 1))


@registered("marginals/histograms")
@dataclass(frozen=True, eq=False)
class Histograms:
    """Distributions of weights: evenly spaced points and their probabilities, along the last axis."""

    points: Array
    probability: Array

    @property
    def mean(self) -> Array:
        return np.sum(self.probability * self.points, axis=-1)

    @property
    def std(self) -> Array:
        return np.sqrt(self._moment(2))

    @property
    def skew(self) -> Array:
        """Third standardised moments; 0 for a weight that is certain."""
        var, third = self._moment(2), self._moment(3)
        return np.divide(third, var**1.5, out=np.zeros_like(third), where=var > 0)

    def interval(self, level: float = 0.95) -> Array:
        """Central intervals of this probability: lower and upper end, along a new last axis."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be a probability between 0 and 1; got {level!r}.")
        tails = np.array([(1.0 - level) / 2, (1.0 + level) / 2])
        n_bins = self.points.shape[-1]
        rows = zip(self.points.reshape(-1, n_bins), self.probability.reshape(-1, n_bins), strict=True)
        found = [_quantiles(tails, points, mass) for points, mass in rows]
        return np.array(found).reshape(*self.points.shape[:-1], 2)

    def _moment(self, order: int) -> Array:
        """About the mean, so that nothing cancels."""
        away = self.points - self.mean[..., np.newaxis]
        return np.sum(self.probability * away**order, axis=-1)


@dataclass(frozen=True, eq=False)
class Marginals:
    """Max-marginals of all weights, at β = 1: logarithms on a grid, both of shape (weights, bins)."""

    points: Array
    log_density: Array

    def at(self, beta: float) -> Histograms:
        """To the power β; its mean is the Bayes point. At β = ∞ all mass is at the maxima."""
        relative = self.log_density - self.log_density.max(axis=-1, keepdims=True)
        mass = _peaks(relative) if np.isinf(beta) else np.exp(beta * relative)
        return Histograms(self.points, mass / mass.sum(axis=-1, keepdims=True))


def _peaks(relative: Array) -> Array:
    """Mass at the maximum, 0, of each row; a single one between points is shared with its next neighbour.

    The parabola through the maximum and its neighbours has its vertex a share δ of a bin away, from -½ to ½.
    """
    mass = (relative == 0.0).astype(np.float64)
    at = np.argmax(relative, axis=1)
    for i in np.flatnonzero((mass.sum(axis=1) == 1) & (at > 0) & (at < relative.shape[1] - 1)):
        left, right = relative[i, at[i] - 1], relative[i, at[i] + 1]
        share = 0.5 * (left - right) / (left + right)
        mass[i, at[i]] -= abs(share)
        mass[i, at[i] + (1 if share > 0 else -1)] += abs(share)
    return mass


def gaussian_histograms(mean: Array, std: Array, n_bins: int) -> Histograms:
    """Gaussians as histograms, four standard deviations to either side."""
    relative = grid(1, n_bins, 4.0)[0]
    mass = np.exp(-0.5 * np.square(relative))
    points = mean[..., np.newaxis] + std[..., np.newaxis] * relative
    return Histograms(points, np.broadcast_to(mass / mass.sum(), points.shape).copy())


def _quantiles(tails: Array, points: Array, mass: Array) -> Array:
    width = points[1] - points[0]
    edges = np.append(points - width / 2, points[-1] + width / 2)
    cumulated = np.append(0.0, np.cumsum(mass))
    # Bins of no mass make plateaus, on which any place is as good as the last.
    rising = np.append(True, np.diff(cumulated) > 0)
    return np.interp(tails, cumulated[rising], edges[rising])
