"""The hinge channel: the loss of the support vector machine as a likelihood."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foldless.beliefs import Array, Response
from foldless.channels.base import MarginChannel, through_margin
from foldless.registry import registered
from foldless.special import LOG_SQRT_2PI, mills


@registered("channel/hinge")
@dataclass(frozen=True)
class Hinge(MarginChannel):
    """p(y | z) ∝ exp(-max(0, 1 - y z)). The two labels' likelihoods do not sum to one."""

    @property
    def normalised(self) -> bool:
        return False

    def proximal(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        return through_margin(_proximal, labels, cavity_mean, cavity_var)

    def _respond(self, margin: Array, var: Array) -> Response:
        """Two cut Gaussians, one inside the margin (m < 1) and one outside.

        With u the margin, τ its variance, a = (1 - u - τ)/√τ, b = (u - 1)/√τ:

            log_z = log(e^A + Φ(b)),  A = u - 1 + τ/2 + log Φ(a),
            slope = ρ = P(m < 1) = e^(A - log_z),   ω = 1 - ρ,   κ = φ(b) e^-log_z,
            curvature = κ/√τ - ρ ω.

        The last difference cancels in both tails; with ρ = κ/h(a), ω = κ/h(b) it is
        κ (1/√τ - 1/h(a)) + ρ² = κ (1/√τ - 1/h(b)) + ω², of which the one with the smaller square is used.
        """
        std = np.sqrt(var)
        a, b = (1.0 - margin - var) / std, (margin - 1.0) / std
        inside, outside = mills(a), mills(b)
        log_inside = margin - 1.0 + 0.5 * var + inside.log_cdf
        log_z = np.logaddexp(log_inside, outside.log_cdf)
        rho = np.exp(log_inside - log_z)
        omega = np.exp(outside.log_cdf - log_z)
        kappa = np.exp(-0.5 * np.square(b) - LOG_SQRT_2PI - log_z)
        mostly_outside = b > -0.5 * std
        # The hazard of the rarer side, whose argument is negative: it is never zero.
        hazard = np.where(mostly_outside, inside.hazard, outside.hazard)
        square = np.square(np.where(mostly_outside, rho, omega))
        curvature = kappa * (1.0 / std - 1.0 / hazard) + square
        return Response(log_z, rho, np.maximum(curvature, 0.0))

    def _at_margin(self, margin: Array) -> Response:
        slope = np.where(margin < 1.0, 1.0, 0.0)
        return Response(np.minimum(margin - 1.0, 0.0), slope, np.zeros_like(slope))


def _proximal(margin: Array, var: Array) -> Response:
    """max_m -max(0, 1 - m) - (m - u)²/2τ: below the kink (m = u + τ), at it (m = 1), or above (m = u)."""
    distance = 1.0 - margin
    slope = np.clip(distance / var, 0.0, 1.0)
    at_kink = (distance >= 0.0) & (distance <= var)
    # The loss at m = u + τ slope, and the cost of having moved there.
    log_z = -np.maximum(distance - var * slope, 0.0) - 0.5 * var * np.square(slope)
    return Response(log_z, slope, np.where(at_kink, 1.0 / var, 0.0))
