"""What binary channels share: they see label y and score z through the margin y z, in float64."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from foldless.beliefs import Array, Response
from foldless.channels.base import Channel, Learner, Weight, doubles
from foldless.component import Names, wants

# A cavity without any spread would divide 0 by 0. This one is still representable in float32.
SMALLEST_VAR = 1e-30
# One step of a scale parameter moves it by at most this factor: labels and scores that can be separated
# ask for an infinite scale, and cavities belong to the scale that they were computed with.
LARGEST_SCALE_STEP = np.log(2.0)
LOG_SCALE_LIMITS = (np.log(1e-6), np.log(1e6))
# Attempts to shorten a step that lowered the objective before it is given up.
SCALE_STEP_HALVINGS = 20


@dataclass(frozen=True)
class MarginChannel(Channel):
    """A channel p(y | z) = f(y z): the two labels are mirror images of each other."""

    @abstractmethod
    def _respond(self, margin: Array, var: Array) -> Response:
        """log ∫ f(m) N(m; margin, var) dm and its derivatives in the margin; float64 in and out."""

    @abstractmethod
    def _at_margin(self, margin: Array) -> Response:
        """log f(margin) and its derivatives; float64 in and out."""

    def respond(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        return through_margin(self._respond, labels, cavity_mean, cavity_var)

    def at_score(self, score: Array, labels: Array) -> Response:
        return through_margin(self._at_margin, labels, score)


def through_margin(
    function: Callable[..., Response], labels: ArrayLike, score: ArrayLike, var: ArrayLike | None = None
) -> Response:
    """Evaluate a function of the margin y z in float64, and return in terms of z in the dtype of z."""
    dtype = score_dtype(score)
    if var is None:
        y, z = doubles(labels, score)
        response = function(y * z)
    else:
        y, z, v = doubles(labels, score, var)
        response = function(y * z, np.maximum(v, SMALLEST_VAR))
    return cast(Response(response.log_z, y * response.slope, response.curvature), dtype)


def score_dtype(score: ArrayLike) -> np.dtype[Any]:
    """float32 if scores are float32, otherwise float64."""
    return np.dtype(np.float32 if getattr(score, "dtype", None) == np.float32 else np.float64)


def cast(response: Response, dtype: np.dtype[Any]) -> Response:
    """The response in the caller's dtype."""
    if dtype == np.float64:
        return response
    # A log_z beyond the range of float32 becomes -inf, which is the right answer there.
    with np.errstate(over="ignore"):
        return Response(*(np.asarray(field).astype(dtype) for field in response))


@dataclass(frozen=True)
class ScaleLearner(Learner):
    """A channel p(y | z) = f(y a z) that learns its scale a, whatever it calls it."""

    scale_name: ClassVar[str] = "scale"

    @abstractmethod
    def _log_scale(self) -> float: ...

    @abstractmethod
    def _with_log_scale(self, log_scale: float) -> Self: ...

    def _learned(self, mean: Array, var: Array, y: Array, weight: Weight, names: Names) -> Self:
        """Move the scale uphill in Σ weight log_z; see `improved_log_scale`."""
        if not wants(names, self.scale_name):
            return self

        def respond_at(log_scale: float) -> Response:
            return self._with_log_scale(log_scale).respond(mean, var, y)

        return self._with_log_scale(improved_log_scale(respond_at, self._log_scale(), mean, var, weight))


def improved_log_scale(
    respond_at: Callable[[float], Response],
    log_scale: float,
    cavity_mean: Array,
    cavity_var: Array,
    weight: Weight,
) -> float:
    """One safeguarded ascent step of Σ weight log_z in the log of a scale a, for p(y | z) = f(y a z).

    log_z depends on a, the cavity mean p and variance v through a p and a² v only, and ∂Z/∂v = ½ ∂²Z/∂p²
    (the heat equation), so the derivative in log a needs nothing but the response:

        ∂log_z / ∂log a = p slope + v (slope² - curvature).

    The step goes to the zero of the summed derivative if there is one within a factor of two, else that
    factor far, and is shortened until the sum is not lower than before. Its fixed points are therefore
    exactly the stationary points of Σ weight log_z. (An EM step in the strict sense, through the
    posterior of z, has the same fixed points and moves less.)
    """

    def total_and_derivative(log_a: float) -> tuple[float, float]:
        response = respond_at(log_a)
        derivative = cavity_mean * response.slope + cavity_var * (response.slope**2 - response.curvature)
        return float(np.sum(weight * response.log_z)), float(np.sum(weight * derivative))

    start_total, start_derivative = total_and_derivative(log_scale)
    if start_derivative == 0.0:
        return log_scale
    step = np.copysign(LARGEST_SCALE_STEP, start_derivative)
    end = float(np.clip(log_scale + step, *LOG_SCALE_LIMITS))
    if end == log_scale:
        return log_scale
    if total_and_derivative(end)[1] * start_derivative < 0.0:
        end = float(brentq(lambda log_a: total_and_derivative(log_a)[1], log_scale, end, xtol=1e-12))
    # Rounding of a sum of many terms must not count as a loss.
    allowed_loss = 1e-12 * abs(start_total)
    for _ in range(SCALE_STEP_HALVINGS):
        if total_and_derivative(end)[0] >= start_total - allowed_loss:
            return end
        end = 0.5 * (log_scale + end)
    return log_scale


def require_between(
    owner: object,
    name: str,
    value: Any,
    low: float,
    high: float,
    *,
    advice: str,
    high_open: bool = False,
) -> None:
    """Raise if a parameter is not a number of the interval; the message says what to do."""
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not (is_number and low <= value and (value < high if high_open else value <= high)):
        interval = f"[{low:g}, {high:g}{')' if high_open else ']'}"
        raise ValueError(
            f"{type(owner).__name__}({name}={value!r}): {name} must be a number in {interval}. {advice}"
        )
