"""The step channel: only the sign of the score matters, and a share of labels is noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from foldless.beliefs import Array, Response
from foldless.channels.base import Learner, MarginChannel, Weight
from foldless.channels.flipped_labels import flip_posterior, flip_prob_update, require_flip_prob, with_floor
from foldless.channels.probit import sign_response
from foldless.component import Names, wants
from foldless.registry import registered


@registered("channel/step")
@dataclass(frozen=True)
class Step(Learner, MarginChannel):
    """p(y | z) = noise + (1 - 2 noise) 1{y z > 0}. Sum-product only: its proximal point says nothing."""

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

    def _respond(self, margin: Array, var: Array) -> Response:
        return with_floor(sign_response(margin, var), self.noise)

    def _at_margin(self, margin: Array) -> Response:
        # The average of both sides at zero, so that the two labels' likelihoods sum to one there too.
        likelihood = self.noise + (1.0 - 2.0 * self.noise) * np.heaviside(margin, 0.5)
        with np.errstate(divide="ignore"):
            return Response(np.log(likelihood), np.zeros_like(margin), np.zeros_like(margin))
