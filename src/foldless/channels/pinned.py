"""A wrapper for scores that are known: the two rows that mean removal adds, observed to be zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, cast

import numpy as np

from foldless.beliefs import Array, Response
from foldless.channels.base import Channel, SupportsEM, SupportsEMByFlips, SupportsMaxSum, Weight, Wrapper
from foldless.component import Names, inner_names
from foldless.registry import registered
from foldless.special import log_normal_density


@registered("channel/pinned")
@dataclass(frozen=True)
class Pinned(Wrapper):
    """The base channel for labels -1 and +1; a label of 0 is a score of zero, give or take `variance`."""

    # Tight beside scores of the order of one, and wide beside rounding.
    variance: float = 1e-8

    def respond(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        return self._split(self.base.respond, cavity_mean, cavity_var, labels)

    def _proximal(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        return self._split(cast(SupportsMaxSum, self.base).proximal, cavity_mean, cavity_var, labels)

    def at_score(self, score: Array, labels: Array) -> Response:
        no_var = np.zeros_like(score)
        return self._split(lambda mean, _, label: self.base.at_score(mean, label), score, no_var, labels)

    def untempered(self) -> Channel:
        return Pinned(self.base.untempered(), self.variance)

    def predictive(self) -> Channel:
        return self.base.predictive()

    def _learned(self, mean: Array, var: Array, y: Array, weight: Weight, names: Names) -> Self:
        """One EM step of the base on the samples that have a label."""
        if not isinstance(self.base, SupportsEM):
            return self
        own = y != 0
        weight = np.broadcast_to(weight, y.shape)[own]
        base = self.base.em_update(
            mean[own], var[own], y[own], weight=weight, names=inner_names(names, "base")
        )
        return self.with_params(base=base)

    def flipped_by_evidence(self, log_z: Array) -> Array | None:
        return self.base.flipped_by_evidence(log_z) if isinstance(self.base, SupportsEMByFlips) else None

    def em_by_flips(
        self, flipped: Array, labels: Array, *, weight: Weight = 1.0, names: Names = None
    ) -> Self | None:
        if not isinstance(self.base, SupportsEMByFlips):
            return None
        labelled = labels != 0
        base = self.base.em_by_flips(
            flipped[labelled],
            labels[labelled],
            weight=np.broadcast_to(weight, labels.shape)[labelled],
            names=inner_names(names, "base"),
        )
        return None if base is None else self.with_params(base=base)

    def _split(
        self, rule: Callable[[Array, Array, Array], Response], mean: Array, var: Array, labels: Array
    ) -> Response:
        if np.all(labels != 0):
            return rule(mean, var, labels)
        total = var + self.variance
        known = Response(log_normal_density(0.0, mean, total), -mean / total, 1.0 / total)
        if not np.any(labels != 0):
            return known
        labelled = rule(mean, var, np.where(labels == 0, 1.0, labels))
        return Response(*(np.where(labels == 0, k, b) for k, b in zip(known, labelled, strict=True)))
