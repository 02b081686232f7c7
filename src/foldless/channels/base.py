"""The contract of a channel: how labels depend on scores."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_expit

from foldless.beliefs import Array, Response
from foldless.component import Component, Names

# How often samples are counted: all equally, or each its own number of times.
Weight = Array | float


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
        """One EM step for the named tunable parameters (None: all), samples counted with `weight`."""
        mean, var, y = doubles(cavity_mean, cavity_var, labels)
        return self._learned(mean, var, y, weight, names)

    @abstractmethod
    def _learned(self, mean: Array, var: Array, y: Array, weight: Weight, names: Names) -> Self:
        """The step at cavities and labels in float64, of one shape."""


@runtime_checkable
class SupportsEMByFlips(Protocol):
    """EM without asking for any integral again, where it is about flipped labels only."""

    def flipped_by_evidence(self, log_z: Array) -> Array | None:
        """Probabilities that labels are flipped, from the log normalisers of `respond` if these suffice."""

    def em_by_flips(
        self,
        flipped: Array,
        labels: Array,
        *,
        weight: Weight = 1.0,
        names: Names = None,
    ) -> Self | None:
        """`em_update` for labels flipped with these probabilities; None where it takes more than these."""


def doubles(*arrays: ArrayLike) -> tuple[Array, ...]:
    """The arrays in float64 and in their common shape."""
    return tuple(np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in arrays)))
