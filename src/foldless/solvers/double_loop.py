"""Sites of weights at marginals that are held: the inner loop of EP in two loops.

Updates of sites in parallel need not come nearer to their fixed point, however short the steps. Where one
of several near twins has a negative site, those of the others go up and down and round again, even with all
labels as they are; one after the other they do so more wildly. Sites cut at zero are calmer, but circle, too.

A fixed point of EP is a stationary point of  [Opper and Winther 2005; Heskes and Zoeter 2002]

    log ∫ exp(-½ wᵀ H w + hᵀ w) Π s_i(w_i) dw  +  Σ log ∫ t_i(w) θ_i(w) / s_i(w) dw  -  Σ log ∫ θ_i(w) dw

in the sites s and in Gaussian marginals θ. With θ as they are, this is convex in the natural parameters of
s: both logarithms are log partition functions. So there are best sites, and Newton's method finds them. Where
its slopes vanish, the Gaussian of sites and the priors at the cavities θ/s have the same moments, the next θ.

A narrow θ is left slowly: weights should begin wide.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from foldless.beliefs import Array
from foldless.priors import Prior
from foldless.solvers.gaussian_layer import Block, NotPositiveDefinite
from foldless.solvers.message_passing import psi
from foldless.solvers.sites import LARGEST_GROWTH

# Newton's method ends when what is to be gained is below this, and after so many steps: the next iteration
# goes on from there.
LEAST_GAIN, NEWTON_STEPS = 1e-6, 8
# A step takes no more than this share of any cavity's precision or marginal's, and is halved so often.
LARGEST_TAKEN, HALVINGS = 0.8, 20
# By this share of cavities' precisions their curvatures are differences.
NUDGE = 1e-4
# Of the diagonal, for what is flat.
RIDGE = 1e-10
# Marginals that would leave less than this share of a cavity stay.
LEAST_LEFT = 0.05
TINY = float(np.finfo(np.float64).tiny)


class Marginals:
    """Precisions and shifts of θ, weight by weight."""

    def __init__(self, precision: Array, shift: Array) -> None:
        self.precision, self.shift = precision, shift

    @classmethod
    def of(cls, mean: Array, var: Array) -> Marginals:
        return cls(1.0 / var, mean / var)

    def and_those(self, mean: Array, var: Array) -> Marginals:
        """Of more weights, behind these."""
        return Marginals(np.append(self.precision, 1.0 / var), np.append(self.shift, mean / var))

    def beside(self, stronger: Array) -> Marginals:
        """Where sites have become so much stronger, cavities stay instead."""
        return Marginals(self.precision + stronger, self.shift)

    def following(self, mean: Array, var: Array, sites: Array) -> Marginals:
        """Those of these moments, but for weights of which they would leave no cavity beside these sites.

        These keep theirs, and where that leaves none either begin with a cavity like the marginal.
        """
        held = self.precision - sites
        leaves = 1.0 / var - sites > LEAST_LEFT * np.maximum(held, 0.0)
        begins = ~leaves & (held <= 0)
        precision = np.where(leaves, 1.0 / var, np.where(begins, sites + 1.0 / var, self.precision))
        return Marginals(precision, np.where(leaves | begins, mean * precision, self.shift))

    def answered(self, prior: Prior, block: Block) -> Block:
        """With the best sites beside these marginals; NotPositiveDefinite where a cavity is improper."""
        given, double = block.opened, copy(block.opened)
        # Gains are too small beside logarithms of determinants in single precision.
        double.precision = np.asarray(given.precision, dtype=np.float64)
        block = Block(double, block.site_precision, block.site_shift)
        here, largest = self._at(prior, block), LARGEST_GROWTH * np.maximum(block.var, 1.0 / self.precision)
        if here is None:
            raise NotPositiveDefinite("a cavity has no precision")
        for _ in range(NEWTON_STEPS):
            value, mean, var, _ = here
            cavity, covariance, own = self.precision - block.site_precision, block.covariance, block.mean
            slope = np.concatenate([own - mean, 0.5 * (var + mean**2 - block.var - own**2)])
            curvature = self._curvature(prior, block, cavity, var, covariance)
            unit = np.sqrt(curvature.diagonal())
            curvature /= np.multiply.outer(unit, unit)
            curvature.flat[:: unit.size + 1] += RIDGE
            step = -np.linalg.solve(curvature, slope / unit) / unit
            if -float(slope @ step) < LEAST_GAIN:
                break
            shift, precision = np.split(step, 2)
            # No weight on its own is to lose its cavity, or its marginal.
            bound, share = np.where(precision > 0, cavity, 1.0 / block.var), 1.0
            for _ in range(HALVINGS):
                each = np.minimum(share, LARGEST_TAKEN * bound / np.maximum(np.abs(precision), TINY))
                try:
                    found = Block(
                        block.opened, block.site_precision + each * precision, block.site_shift + each * shift
                    )
                    there = self._at(prior, found) if np.all(found.var <= largest) else None
                except NotPositiveDefinite:
                    there = None
                if there is not None and there[0] < value:
                    break
                share /= 2
            else:
                break
            block, here = found, there
        return Block(given, block.site_precision, block.site_shift)

    def _tilted(self, prior: Prior, shift: Array, precision: Array) -> tuple[Array, Array, Array]:
        """Moments and log ∫ t exp(shift w - precision w²/2)."""
        mean, var, log_z = prior.tilted(shift / precision, 1.0 / precision)
        return mean, var, log_z + psi(shift / precision, 1.0 / precision)

    def _at(self, prior: Prior, block: Block) -> tuple[float, Array, Array, Array] | None:
        """The convex function, and what priors answer; None where a cavity is improper."""
        cavity = self.precision - block.site_precision
        if not np.all(cavity > 0):
            return None
        mean, var, log_z = self._tilted(prior, self.shift - block.site_shift, cavity)
        shift = block.site_shift + block.opened.shift
        value = 0.5 * (float(shift @ block.mean) - block.log_determinant) + float(np.sum(log_z))
        return (value, mean, var, log_z) if np.isfinite(value) else None

    def _curvature(self, prior: Prior, block: Block, cavity: Array, var: Array, covariance: Array) -> Array:
        """Covariances of w and -w²/2 in the Gaussian, and in each tilted distribution."""
        shift, nudge, size = self.shift - block.site_shift, NUDGE * cavity, cavity.size
        (more, more_var, _), (less, less_var, _) = (
            self._tilted(prior, shift, cavity + sign * nudge) for sign in (1.0, -1.0)
        )
        cross = (more - less) / (2 * nudge)
        square = -0.5 * (more_var + more**2 - less_var - less**2) / (2 * nudge)
        square = np.maximum(square, cross**2 / np.maximum(var, TINY))
        found = np.empty((2 * size, 2 * size))
        found[:size, :size] = covariance + np.diag(var)
        found[:size, size:] = -covariance * block.mean + np.diag(cross)
        found[size:, :size] = found[:size, size:].T
        found[size:, size:] = 0.5 * covariance**2 + np.multiply.outer(block.mean, block.mean) * covariance
        found[size:, size:] += np.diag(square)
        return found
