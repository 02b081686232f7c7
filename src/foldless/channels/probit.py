"""The probit channel: the sign of a score plus Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from foldless.beliefs import Array, Response
from foldless.channels.base import MarginChannel, ScaleLearner, through_margin
from foldless.component import require_positive
from foldless.registry import registered
from foldless.special import mills

# Newton's method for the proximal point is monotone and needs about 8 steps; the rest is a safeguard.
NEWTON_STEPS = 60
NEWTON_TOLERANCE = 4 * np.finfo(np.float64).eps


@registered("channel/probit")
@dataclass(frozen=True)
class Probit(ScaleLearner, MarginChannel):
    """p(y | z) = Φ(y z / √variance)."""

    variance: float = 1.0

    tunable: ClassVar[tuple[str, ...]] = ("variance",)
    scale_name: ClassVar[str] = "variance"

    def __post_init__(self) -> None:
        advice = "It is the variance of the noise on the score; 1.0 is the convention. Without noise: Step()."
        require_positive(self, "variance", self.variance, advice)

    def proximal(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        return through_margin(self._proximal, labels, cavity_mean, cavity_var)

    def _log_scale(self) -> float:
        return -0.5 * float(np.log(self.variance))

    def _with_log_scale(self, log_scale: float) -> Self:
        return self.with_params(variance=float(np.exp(-2.0 * log_scale)))

    def _respond(self, margin: Array, var: Array) -> Response:
        return sign_response(margin, self.variance + var)

    def _at_margin(self, margin: Array) -> Response:
        return sign_response(margin, np.asarray(self.variance))

    def _proximal(self, margin: Array, var: Array) -> Response:
        """max_m log Φ(m/√v) - (m - u)²/2τ for margin u and cavity variance τ.

        In units of √v, c = m/√v solves c = c₀ + κ h(c) with c₀ = u/√v, κ = τ/v. The difference of the two
        sides is concave and increasing, so Newton's method from c₀ climbs to the root and never passes it.
        """
        root_v = np.sqrt(self.variance)
        start, kappa = margin / root_v, var / self.variance
        c = start
        for _ in range(NEWTON_STEPS):
            normal = mills(c)
            step = (start - c + kappa * normal.hazard) / (1.0 + kappa * normal.hazard * normal.mean)
            c = c + step
            if np.all(np.abs(step) <= NEWTON_TOLERANCE * (1.0 + np.abs(c))):
                break
        normal = mills(c)
        log_z = normal.log_cdf - 0.5 * kappa * np.square(normal.hazard)
        bend = normal.hazard * normal.mean
        return Response(log_z, normal.hazard / root_v, bend / (self.variance + var * bend))


def sign_response(margin: Array, var: Array) -> Response:
    """log P(m > 0) for m ~ N(margin, var), and its derivatives in the margin.

    With c = margin/√var and h, d of `mills`:  log Φ(c),  slope = h/√var,  curvature = h d/var.
    """
    std = np.sqrt(var)
    normal = mills(margin / std)
    return Response(normal.log_cdf, normal.hazard / std, normal.hazard * normal.mean / var)
