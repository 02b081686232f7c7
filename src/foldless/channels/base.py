"""The contract of a channel: how labels depend on scores; and what channels of two classes share.

Most of these see label y and score z through the margin y z, and all compute in float64.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import log_expit

from foldless.beliefs import Array, Response
from foldless.component import Component, Names, wants

# How often samples are counted: all equally, or each its own number of times.
Weight = Array | float
# A cavity without any spread would divide 0 by 0. This one is still representable in float32.
SMALLEST_VAR = 1e-30
# One step of a scale parameter moves it by at most this factor: labels and scores that can be separated
# ask for an infinite scale, and cavities belong to the scale that they were computed with.
LARGEST_SCALE_STEP = np.log(2.0)
LOG_SCALE_LIMITS = (np.log(1e-6), np.log(1e6))
# Attempts to shorten a step that lowered the objective before it is given up.
SCALE_STEP_HALVINGS = 20


@dataclass(frozen=True)
class Channel(Component):
    """A likelihood p(label | score). Binary labels are -1.0 and +1.0.

    All methods are element-wise, broadcast, accept float32 or float64 and return the dtype of the
    scores they got.
    """

    @property
    def normalised(self) -> bool:
        """Whether the two labels' likelihoods sum to one for every score (the hinge's do not)."""
        return True

    @property
    def exact(self) -> bool:
        """Whether averages over Gaussian scores are exact, so that those of both labels add up to one."""
        return True

    @property
    def scale_free(self) -> bool:
        """Whether only the sign of the score matters, so that labels cannot tell the size of weights."""
        return False

    @property
    def score_shape(self) -> tuple[int, ...]:
        """The shape of one sample's score: a number, except for channels of many classes."""
        return ()

    @abstractmethod
    def respond(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        """Sum-product: log ∫ p(label | z) N(z; mean, var) dz and its derivatives in the mean."""

    @abstractmethod
    def at_score(self, score: Array, labels: Array) -> Response:
        """The response to a score that is known: log p(label | score) and its derivatives."""

    def log_likelihood(self, score: Array, labels: Array) -> Array:
        """log p(label | score)."""
        return self.at_score(score, labels).log_z

    def log_odds(self, mean: Array, var: Array | None) -> Array:
        """log P(y = +1) - log P(y = -1) for scores N(mean, var); without variances they are certain.

        Two likelihoods that do not sum to one are normalised by this.
        """
        label = np.ones_like(mean)
        if var is None:
            return self.log_likelihood(mean, label) - self.log_likelihood(mean, -label)
        return self.respond(mean, var, label).log_z - self.respond(mean, var, -label).log_z

    def log_proba(self, mean: Array, var: Array | None) -> Array:
        """Log probability of every class, (samples, classes), for Gaussian scores, (samples, scores)."""
        log_odds = self.log_odds(mean[:, 0], None if var is None else var[:, 0])
        return np.column_stack([log_expit(-log_odds), log_expit(log_odds)])

    def untempered(self) -> Channel:
        """The same channel where fitting does not temper the likelihood; self for most."""
        return self

    def respond_both(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> tuple[Response, Response]:
        """`respond`, tempered, and untempered at the same cavities: what the two share is made once."""
        tempered = self.respond(cavity_mean, cavity_var, labels)
        return tempered, self.untempered().respond(cavity_mean, cavity_var, labels)

    def predictive(self) -> Channel:
        """The channel of a new label."""
        return self.untempered()


@runtime_checkable
class SupportsMaxSum(Protocol):
    def proximal(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        """Max-sum: max_z [log p(label | z) - (z - mean)²/2var] and its derivatives in the mean."""


@runtime_checkable
class SupportsEM(Protocol):
    def em_update(
        self,
        cavity_mean: Array,
        cavity_var: Array,
        labels: Array,
        *,
        weight: Weight = 1.0,
        names: Names = None,
    ) -> Self:
        """One EM step for the named tunable parameters (None: all), samples counted with `weight`."""


@dataclass(frozen=True)
class Learner(Channel):
    """A channel whose parameters EM can learn, by steps that a subclass calls `_learned`."""

    def em_update(
        self,
        cavity_mean: Array,
        cavity_var: Array,
        labels: Array,
        *,
        weight: Weight = 1.0,
        names: Names = None,
    ) -> Self:
        mean, var = doubles(cavity_mean, cavity_var)
        y: Array = np.asarray(labels, dtype=np.float64)
        if not self.score_shape:
            mean, var, y = doubles(mean, var, y)
        return self._learned(mean, var, y, weight, names)

    @abstractmethod
    def _learned(self, mean: Array, var: Array, y: Array, weight: Weight, names: Names) -> Self:
        """The step at cavities and labels in float64; labels have no axis of scores, if there is one."""


@dataclass(frozen=True)
class Wrapper(Learner):
    """A channel around another one, its base."""

    base: Channel

    @property
    def normalised(self) -> bool:
        return self.base.normalised

    @property
    def scale_free(self) -> bool:
        return self.base.scale_free

    @property
    def score_shape(self) -> tuple[int, ...]:
        return self.base.score_shape

    @property
    def proximal(self) -> Callable[[Array, Array, Array], Response]:
        """Max-sum of two classes, if the base has it; a property, so that `hasattr` is true of the inside."""
        if not hasattr(self.base, "proximal") or self.base.score_shape:
            raise AttributeError(
                f"{type(self).__name__} has `proximal` only if its base does; {type(self.base).__name__} has "
                "only `respond`. Use rule='sum-product', or a base such as Logistic(), Probit() or Hinge()."
            )
        return self._proximal

    @abstractmethod
    def _proximal(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        """`proximal`, for a base that has it."""


class Tempered:
    """`base` to the power 1 - ω, ω = `generative_weight`, times what a blend adds; the base predicts."""

    base: Channel
    generative_weight: float

    @property
    def normalised(self) -> bool:
        return self.generative_weight == 0.0

    @property
    def _power(self) -> float:
        return 1.0 - float(self.generative_weight)

    def untempered(self) -> Channel:
        return self.base


def innermost(channel: Channel) -> Channel:
    """What wrappers wrap."""
    return innermost(channel.base) if isinstance(channel, Wrapper) else channel


def log_odds_per_score(channel: Channel) -> float:
    """Of labels that are right, at the boundary: the scale of a logistic channel, 2 of the hinge."""
    return 2.0 * float(innermost(channel).at_score(np.zeros(1), np.ones(1)).slope[0])


def with_innermost(channel: Channel, changed: Channel) -> Channel:
    """The same wrappers around another channel."""
    if isinstance(channel, Wrapper):
        return replace(channel, base=with_innermost(channel.base, changed))
    return changed


@runtime_checkable
class SupportsEMByFlips(Protocol):
    """EM without asking for any integral again, where it is about flipped labels only."""

    def flipped_by_evidence(self, log_z: Array) -> Array | None:
        """Probabilities that labels are flipped, from the log normalisers of `respond` if these suffice."""

    def em_by_flips(
        self, flipped: Array, labels: Array, *, weight: Weight = 1.0, names: Names = None
    ) -> Self | None:
        """`em_update` for labels flipped with these probabilities; None where it takes more than these."""


def doubles(*arrays: ArrayLike) -> tuple[Array, ...]:
    """The arrays in float64 and in their common shape."""
    found = tuple(np.asarray(a, dtype=np.float64) for a in arrays)
    same = all(each.shape == found[0].shape for each in found)  # then there is nothing to broadcast
    return found if same else tuple(np.broadcast_arrays(*found))


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
        """One safeguarded ascent step of Σ weight log_z in the log of the scale.

        log_z depends on a, the cavity mean p and variance v through a p and a² v only, and ∂Z/∂v = ½ ∂²Z/∂p²
        (the heat equation), so the derivative in log a needs nothing but the response:

            ∂log_z / ∂log a = p slope + v (slope² - curvature).

        The step goes to the zero of the summed derivative if there is one within a factor of two, else that
        factor far, and is shortened until the sum is not lower than before. Its fixed points are therefore
        exactly the stationary points of Σ weight log_z. (An EM step in the strict sense, through the
        posterior of z, has the same fixed points and moves less.)
        """
        if not wants(names, self.scale_name):
            return self

        def total_and_derivative(log_a: float) -> tuple[float, float]:
            log_z, slope, curvature = self._with_log_scale(log_a).respond(mean, var, y)
            derivative = mean * slope + var * (slope**2 - curvature)
            return float(np.sum(weight * log_z)), float(np.sum(weight * derivative))

        start = self._log_scale()
        start_total, start_derivative = total_and_derivative(start)
        end = float(np.clip(start + np.copysign(LARGEST_SCALE_STEP, start_derivative), *LOG_SCALE_LIMITS))
        if start_derivative == 0.0 or end == start:
            return self
        if total_and_derivative(end)[1] * start_derivative < 0.0:
            end = float(brentq(lambda log_a: total_and_derivative(log_a)[1], start, end, xtol=1e-12))
        # Rounding of a sum of many terms must not count as a loss.
        allowed_loss = 1e-12 * abs(start_total)
        for _ in range(SCALE_STEP_HALVINGS):
            if total_and_derivative(end)[0] >= start_total - allowed_loss:
                return self._with_log_scale(end)
            end = 0.5 * (start + end)
        return self
