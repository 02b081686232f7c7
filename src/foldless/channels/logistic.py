"""The logistic channel: log-odds that are linear in the score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy.special import expit, log_expit

from foldless.beliefs import Array, Response
from foldless.channels.margin import MarginChannel, ScaleLearner, through_margin
from foldless.channels.sigmoid_averages import sigmoid_power_response
from foldless.channels.sigmoid_integrals import (
    gauss_hermite_response,
    logistic_fixed_point,
    mixture_response,
    variational_response,
)
from foldless.component import require_positive
from foldless.registry import registered

INTEGRALS: dict[str, Callable[[Array, Array], Response]] = {
    "exponential-sums": sigmoid_power_response,
    "variational": variational_response,
    "mixture": mixture_response,
    "gauss-hermite": gauss_hermite_response,
}


@registered("channel/logistic")
@dataclass(frozen=True)
class Logistic(ScaleLearner, MarginChannel):
    """p(y | z) = σ(scale y z), σ(x) = 1/(1 + e^-x).

    ``integral`` is how σ is averaged over a Gaussian: "exponential-sums" (accurate everywhere, about
    1e-10; at a few nodes where these do, see `sigmoid_averages`), "variational" (a bound, as published for
    GAMP), "mixture" (six normal cdfs, good where the label is not a surprise), "gauss-hermite" (21 nodes,
    good for small variances).
    """

    scale: float = 1.0
    integral: str = "exponential-sums"

    tunable: ClassVar[tuple[str, ...]] = ("scale",)

    def __post_init__(self) -> None:
        advice = "It is the change of log-odds per unit of score; 1.0 makes scores log-odds."
        require_positive(self, "scale", self.scale, advice)
        if self.integral not in INTEGRALS:
            raise ValueError(
                f"Logistic(integral={self.integral!r}): unknown integral. Choose one of {sorted(INTEGRALS)}; "
                "'exponential-sums' is the accurate default."
            )

    def proximal(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        def of_margin(margin: Array, var: Array) -> Response:
            return power_proximal(margin, var, self.scale, power=1.0)

        return through_margin(of_margin, labels, cavity_mean, cavity_var)

    def _log_scale(self) -> float:
        return float(np.log(self.scale))

    def _with_log_scale(self, log_scale: float) -> Self:
        return self.with_params(scale=float(np.exp(log_scale)))

    def _respond(self, margin: Array, var: Array) -> Response:
        return in_log_odds(INTEGRALS[self.integral], margin, var, self.scale)

    def _at_margin(self, margin: Array) -> Response:
        return power_at_margin(margin, self.scale, power=1.0)


def in_log_odds(
    response: Callable[[Array, Array], Response], margin: Array, var: Array, scale: float
) -> Response:
    """The response of a function of scale * m, by the chain rule."""
    if scale == 1.0:
        return response(margin, var)
    log_z, slope, curvature = response(scale * margin, scale**2 * var)
    return Response(log_z, scale * slope, scale**2 * curvature)


def power_at_margin(margin: Array, scale: float, power: float) -> Response:
    """log σ(scale m)^power at m = margin, and its derivatives."""
    x = scale * margin
    q = expit(-x)
    return Response(power * log_expit(x), power * scale * q, power * scale**2 * q * expit(x))


def power_proximal(margin: Array, var: Array, scale: float, power: float) -> Response:
    """max_m [power log σ(scale m) - (m - margin)²/2var] and its derivatives in the margin.

    In x = scale m with κ = power scale² var and x₀ = scale margin, the maximum is at x = x₀ + κ t, where
    t = σ(-x). Then slope = power scale t, and with f'' = power scale² t (1 - t) the curvature is
    f''/(1 + var f'').
    """
    kappa = power * scale**2 * var
    x, t = logistic_fixed_point(scale * margin, kappa)
    bend = power * scale**2 * t * expit(x)
    slope = power * scale * t
    log_z = power * log_expit(x) - 0.5 * var * np.square(slope)
    return Response(log_z, slope, bend / (1.0 + var * bend))
