"""Channels of the sign of a score: probit, with Gaussian noise on the score, and step, with wrong signs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy.special import log_ndtr

from foldless.beliefs import Array, Response
from foldless.channels.base import Learner, MarginChannel, ScaleLearner, Weight, through_margin
from foldless.channels.flipped_labels import (
    flip_posterior,
    flip_prob_update,
    flipped_log_odds,
    require_flip_prob,
    with_floor,
)
from foldless.component import Names, require_positive, wants
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

    def log_odds(self, mean: Array, var: Array | None) -> Array:
        return sign_log_odds(mean, self.variance if var is None else self.variance + var)

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


@registered("channel/step")
@dataclass(frozen=True)
class Step(Learner, MarginChannel):
    """p(y | z) = noise + (1 - 2 noise) 1{y z > 0}. Sum-product only: its proximal point is of no use."""

    noise: float = 0.01

    tunable: ClassVar[tuple[str, ...]] = ("noise",)

    def __post_init__(self) -> None:
        require_flip_prob(self, "noise", self.noise)

    @property
    def scale_free(self) -> bool:
        return True

    def _learned(self, mean: Array, var: Array, y: Array, weight: Weight, names: Names) -> Self:
        """EM for the noise, the same as for `FlippedLabels.flip_prob` and with the same hyper-prior."""
        if not wants(names, "noise"):
            return self
        noiseless = Step(noise=0.0)
        given, flipped = (noiseless.respond(mean, var, sign * y).log_z for sign in (1.0, -1.0))
        return self.with_params(noise=flip_prob_update(flip_posterior(given, flipped, self.noise), weight))

    def log_odds(self, mean: Array, var: Array | None) -> Array:
        if var is None:
            return super().log_odds(mean, var)
        return flipped_log_odds(sign_log_odds(mean, var), self.noise)

    def _respond(self, margin: Array, var: Array) -> Response:
        return with_floor(sign_response(margin, var), self.noise)

    def _at_margin(self, margin: Array) -> Response:
        # The average of both sides at zero, so that the two labels' likelihoods sum to one there too.
        likelihood = self.noise + (1.0 - 2.0 * self.noise) * np.heaviside(margin, 0.5)
        with np.errstate(divide="ignore"):
            return Response(np.log(likelihood), np.zeros_like(margin), np.zeros_like(margin))


def sign_log_odds(mean: Array, var: Array | float) -> Array:
    """log P(z > 0) - log P(z < 0) for z ~ N(mean, var); derivatives would take most of the time."""
    c = mean / np.sqrt(var)
    return np.asarray(log_ndtr(c) - log_ndtr(-c))


def sign_response(margin: Array, var: Array) -> Response:
    """log P(m > 0) for m ~ N(margin, var), and its derivatives in the margin.

    With c = margin/√var and h, d of `mills`:  log Φ(c),  slope = h/√var,  curvature = h d/var.
    """
    std = np.sqrt(var)
    normal = mills(margin / std)
    return Response(normal.log_cdf, normal.hazard / std, normal.hazard * normal.mean / var)
