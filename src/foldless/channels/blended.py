"""The blended channel: partly a model of labels given features, partly of features given labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np

from foldless.beliefs import Array, Response
from foldless.channels.base import Channel, doubles
from foldless.channels.logistic import Logistic, in_log_odds, power_at_margin, power_proximal
from foldless.channels.margin import (
    SMALLEST_VAR,
    ScaleLearner,
    cast,
    require_between,
    score_dtype,
)
from foldless.channels.sigmoid_averages import sigmoid_power_response
from foldless.registry import registered


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
        require_between(
            self,
            "generative_weight",
            self.generative_weight,
            0.0,
            1.0,
            advice="0 is purely discriminative (the logistic channel), 1 purely generative (class means).",
        )
        require_between(
            self,
            "label_mean",
            self.label_mean,
            -1.0,
            1.0,
            advice="It is the mean of the labels coded as -1 and +1; 0 for equal classes.",
        )

    @property
    def normalised(self) -> bool:
        return self.generative_weight == 0.0

    @property
    def _power(self) -> float:
        return 1.0 - float(self.generative_weight)

    def respond(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        """A linear factor e^(tz) moves a Gaussian: E[f(z) e^(tz)] = e^(t p + t² v/2) E[f] at mean p + t v."""
        return self._shifted(self._power_respond, cavity_mean, cavity_var, labels)

    def proximal(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        return self._shifted(self._power_proximal, cavity_mean, cavity_var, labels)

    def at_score(self, score: Array, labels: Array) -> Response:
        z, y = doubles(score, labels)
        tilt = self._tilt(y)
        log_z, slope, curvature = power_at_margin(y * z, self.base.scale, self._power)
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

    def _power_respond(self, margin: Array, var: Array) -> Response:
        def of_log_odds(mean: Array, var: Array) -> Response:
            return sigmoid_power_response(mean, var, self._power)

        return in_log_odds(of_log_odds, margin, var, self.base.scale)

    def _power_proximal(self, margin: Array, var: Array) -> Response:
        return power_proximal(margin, var, self.base.scale, self._power)
