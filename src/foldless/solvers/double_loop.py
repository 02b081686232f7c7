"""EP in two loops, for weights whose sites go round in circles: marginals, and the best sites beside them.

Sites that are updated in parallel need not come nearer to their fixed point, however short the steps. Among
near twins of which one has a negative site, the sites of the others go round in circles, even if all label
sites stay. Updated one after the other they do so with larger moves; cut at zero with smaller ones.

A fixed point of EP is a stationary point of  [Opper and Winther 2005; Heskes and Zoeter 2002]

    log ∫ exp(-½ wᵀ H w + hᵀ w) Π s_i(w_i) dw  +  Σ log ∫ t_i(w) θ_i(w) / s_i(w) dw  -  Σ log ∫ θ_i(w) dw

in the sites s and in Gaussian marginals θ, with t the priors and H, h what labels make of the weights. With θ
held, this is convex in the natural parameters of s, because the first two terms are log partition functions.
So there are best sites, and Newton's method finds them: the inner loop. Where its slopes vanish, the Gaussian
of sites has the moments of the priors at the cavities θ/s. These moments make the next θ: the outer loop,
which is that of `BackgroundEP`.

A narrow θ changes slowly. So the first ones should be wide.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from foldless.beliefs import Array
from foldless.priors import Prior
from foldless.solvers.gaussian_layer import Block, NotPositiveDefinite
from foldless.solvers.message_passing import psi
from foldless.solvers.sites import LARGEST_GROWTH

# Newton's method ends when less than this would be gained, or after so many steps: the next iteration goes on
# from there.
LEAST_GAIN, NEWTON_STEPS = 1e-6, 8
# A step takes away no more than this share of the precision of any cavity or marginal. One that gains nothing
# is halved, so often at most.
LARGEST_TAKEN, HALVINGS = 0.8, 20
# Derivatives by the precision of a cavity are differences over this share of it.
NUDGE = 1e-4
# Added to the scaled diagonal of the curvature, where the function is flat in some direction.
RIDGE = 1e-10
# A marginal stays if the next one would leave less than this share of its cavity.
LEAST_LEFT = 0.05
TINY = float(np.finfo(np.float64).tiny)


class Marginals:
    """The marginals θ that are held: a precision and a shift for each weight."""

    def __init__(self, precision: Array, shift: Array) -> None:
        self.precision, self.shift = precision, shift

    @classmethod
    def of(cls, mean: Array, var: Array) -> Marginals:
        return cls(1.0 / var, mean / var)

    def and_those(self, mean: Array, var: Array) -> Marginals:
        """With the marginals of more weights after these."""
        return Marginals(np.append(self.precision, 1.0 / var), np.append(self.shift, mean / var))

    def beside(self, stronger: Array) -> Marginals:
        """After sites have become stronger by so much: marginals, too, so that cavities stay as they are."""
        return Marginals(self.precision + stronger, self.shift)

    def following(self, mean: Array, var: Array, sites: Array) -> Marginals:
        """The next marginals: those of these moments, unless they leave hardly any cavity beside these sites.

        Such a weight keeps its marginal; or, if that leaves no cavity either, has one that makes its cavity
        as wide as a marginal of this variance.
        """
        held = self.precision - sites
        leaves = 1.0 / var - sites > LEAST_LEFT * np.maximum(held, 0.0)
        begins = ~leaves & (held <= 0)
        precision = np.where(leaves, 1.0 / var, np.where(begins, sites + 1.0 / var, self.precision))
        return Marginals(precision, np.where(leaves | begins, mean * precision, self.shift))

    def answered(self, prior: Prior, block: Block) -> Block:
        """The block with the best sites beside these; NotPositiveDefinite where a cavity is improper."""
        given, double = block.opened, copy(block.opened)
        # Gains are too small beside logarithms of determinants in single precision.
        double.precision = np.asarray(given.precision, dtype=np.float64)
        block = Block(double, block.site_precision, block.site_shift)
        here, largest = self._at(prior, block), LARGEST_GROWTH * np.maximum(block.var, 1.0 / self.precision)
        if here is None:
            raise NotPositiveDefinite("a cavity has no precision")
        for _ in range(NEWTON_STEPS):
            value, mean, var = here
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
            # Each weight has its own share of the step, so that none loses its cavity or its marginal.
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
        """Moments of t(w) exp(shift w - precision w²/2) for each weight, and the log of its integral."""
        mean, var, log_z = prior.tilted(shift / precision, 1.0 / precision)
        return mean, var, log_z + psi(shift / precision, 1.0 / precision)

    def _at(self, prior: Prior, block: Block) -> tuple[float, Array, Array] | None:
        """The convex function, and means and variances of priors at the cavities; None if one is improper."""
        cavity = self.precision - block.site_precision
        if not np.all(cavity > 0):
            return None
        mean, var, log_z = self._tilted(prior, self.shift - block.site_shift, cavity)
        shift = block.site_shift + block.opened.shift
        value = 0.5 * (float(shift @ block.mean) - block.log_determinant) + float(np.sum(log_z))
        return (value, mean, var) if np.isfinite(value) else None

    def _curvature(self, prior: Prior, block: Block, cavity: Array, var: Array, covariance: Array) -> Array:
        """Covariances of w and -w²/2, in the Gaussian of sites plus those in each tilted distribution."""
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
