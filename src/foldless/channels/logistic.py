"""The logistic channel, log-odds linear in the score, and its blend with a model of features given labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Self

import numpy as np
from scipy.special import expit, log_expit

from foldless.beliefs import Array, Response
from foldless.channels.base import (
    SMALLEST_VAR,
    Channel,
    MarginChannel,
    ScaleLearner,
    cast,
    doubles,
    score_dtype,
    through_margin,
)
from foldless.channels.sigmoid_averages import (
    gauss_hermite_response,
    logistic_fixed_point,
    mixture_response,
    sigmoid_power_response,
    variational_response,
)
from foldless.component import require_between, require_positive
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
        return through_margin(
            partial(_power_proximal, scale=self.scale, power=1.0), labels, cavity_mean, cavity_var
        )

    def _log_scale(self) -> float:
        return float(np.log(self.scale))

    def _with_log_scale(self, log_scale: float) -> Self:
        return self.with_params(scale=float(np.exp(log_scale)))

    def _respond(self, margin: Array, var: Array) -> Response:
        return _in_log_odds(INTEGRALS[self.integral], margin, var, self.scale)

    def _at_margin(self, margin: Array) -> Response:
        return _power_at_margin(margin, self.scale, power=1.0)


@registered("channel/blended")
@dataclass(frozen=True)
class Blended(ScaleLearner):
    """σ(a y z)^(1-ω) · exp(ω a (y - label_mean) z / 2), with ω = generative_weight and a = base.scale.

    ω = 0 is the logistic channel; ω = 1 is the part of a Gaussian model of the features that depends on
    the labels (the class-mean difference); its other part is a ridge on the weights, which belongs to the
    prior. ``label_mean``, the mean of the training labels, keeps the linear factor neutral to an intercept
    when the classes are unequal. New labels are predicted with the untempered ``base``.
    """

    base: Logistic = field(default_factory=Logistic)
    generative_weight: float = 0.5
    label_mean: float = 0.0

    scale_name: ClassVar[str] = "base__scale"

    def __post_init__(self) -> None:
        if not isinstance(self.base, Logistic):
            raise TypeError(
                f"Blended(base={self.base!r}): the base must be a Logistic channel, because only its powers "
                "have a closed integral. To allow for wrong labels, wrap the other way round: "
                "FlippedLabels(Blended())."
            )
        if self.base.integral != "exponential-sums":
            raise ValueError(
                f"Blended(base={self.base!r}): powers of the logistic function are integrated by "
                "'exponential-sums' only. Use Blended(Logistic(scale=...)), without another integral."
            )
        advice = "0 is purely discriminative (the logistic channel), 1 purely generative (class means)."
        require_between(self, "generative_weight", self.generative_weight, 0.0, 1.0, advice=advice)
        advice = "It is the mean of the labels coded as -1 and +1; 0 for equal classes."
        require_between(self, "label_mean", self.label_mean, -1.0, 1.0, advice=advice)

    @property
    def normalised(self) -> bool:
        return self.generative_weight == 0.0

    @property
    def _power(self) -> float:
        return 1.0 - float(self.generative_weight)

    def respond(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        """A linear factor e^(tz) moves a Gaussian: E[f(z) e^(tz)] = e^(t p + t² v/2) E[f] at mean p + t v."""
        of_log_odds = partial(sigmoid_power_response, power=self._power)
        of_margin = partial(_in_log_odds, of_log_odds, scale=self.base.scale)
        return self._shifted(of_margin, cavity_mean, cavity_var, labels)

    def proximal(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        of_margin = partial(_power_proximal, scale=self.base.scale, power=self._power)
        return self._shifted(of_margin, cavity_mean, cavity_var, labels)

    def at_score(self, score: Array, labels: Array) -> Response:
        z, y = doubles(score, labels)
        tilt = self._tilt(y)
        log_z, slope, curvature = _power_at_margin(y * z, self.base.scale, self._power)
        return cast(Response(log_z + tilt * z, y * slope + tilt, curvature), score_dtype(score))

    def untempered(self) -> Channel:
        return self.base

    def _log_scale(self) -> float:
        """The blend, too, is a function of scale * z."""
        return float(np.log(self.base.scale))

    def _with_log_scale(self, log_scale: float) -> Self:
        return self.with_params(base__scale=float(np.exp(log_scale)))

    def _tilt(self, labels: Array) -> Array:
        """t = ω a (y - label_mean) / 2, the slope of the linear factor's logarithm."""
        return 0.5 * self.generative_weight * self.base.scale * (labels - self.label_mean)

    def _shifted(
        self,
        power_response: Callable[[Array, Array], Response],
        cavity_mean: Array,
        cavity_var: Array,
        labels: Array,
    ) -> Response:
        mean, var, y = doubles(cavity_mean, cavity_var, labels)
        var = np.maximum(var, SMALLEST_VAR)
        tilt = self._tilt(y)
        log_linear = tilt * (mean + 0.5 * tilt * var)
        if self._power == 0.0:
            response = Response(log_linear, tilt, np.zeros_like(tilt))
        else:
            log_z, slope, curvature = power_response(y * (mean + tilt * var), var)
            response = Response(log_z + log_linear, y * slope + tilt, curvature)
        return cast(response, score_dtype(cavity_mean))


def _in_log_odds(
    response: Callable[[Array, Array], Response], margin: Array, var: Array, scale: float
) -> Response:
    """The response of a function of scale * m, by the chain rule."""
    if scale == 1.0:
        return response(margin, var)
    log_z, slope, curvature = response(scale * margin, scale**2 * var)
    return Response(log_z, scale * slope, scale**2 * curvature)


def _power_at_margin(margin: Array, scale: float, power: float) -> Response:
    """log σ(scale m)^power at m = margin, and its derivatives."""
    x = scale * margin
    q = expit(-x)
    return Response(power * log_expit(x), power * scale * q, power * scale**2 * q * expit(x))


def _power_proximal(margin: Array, var: Array, scale: float, power: float) -> Response:
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
