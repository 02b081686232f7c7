"""Penalties on the weights of a multinomial regression: what they cost, and when a gradient is optimal."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foldless.beliefs import Array
from foldless.component import Component


@dataclass(frozen=True)
class Penalty(Component):
    """A penalty of weights of shape (features, scores); `gradient` is that of the log likelihood.

    `rate` is λ: of λ Σ|w|, of λ/2 Σw², of λ Σ‖wᵢ‖.
    """

    rate: float = 1.0
    sparse: ClassVar[bool] = True  # are weights exactly zero, so that working sets make sense?
    has_dual: ClassVar[bool] = True

    @abstractmethod
    def value(self, weights: Array) -> float:
        """What the weights cost."""

    @abstractmethod
    def excess(self, weights: Array, gradient: Array) -> Array:
        """How far each gradient is from where it would be at the optimum; zero there."""

    @abstractmethod
    def row_size(self, gradient: Array) -> Array:
        """Per feature: the size of the gradient, in the norm that the rate bounds at the optimum."""

    def root_scale(self, weights: Array) -> Array:
        """G of the block update: the penalty is below rate/2 Σ (w/G)² + const, with equality here."""
        return np.ones(weights.shape)

    def threshold(self, weights: Array, by: float) -> Array:
        """The minimum of ½ Σ (v - w)² + by/rate · penalty(v): what of the weights stays."""
        raise NotImplementedError(f"{type(self).__name__} sets no weight to zero")

    def shrink(self, gradient: Array) -> float:
        """The share of the residuals that makes them feasible for the dual."""
        largest = float(np.max(self.row_size(gradient), initial=0.0))
        return 1.0 if largest <= self.rate else self.rate / largest

    def conjugate(self, gradient: Array) -> float:
        """What a feasible gradient costs in the dual."""
        return 0.0


class L1(Penalty):
    """λ Σ|w|: the Laplace prior of SMLR."""

    def value(self, weights: Array) -> float:
        return self.rate * float(np.abs(weights).sum())

    def excess(self, weights: Array, gradient: Array) -> Array:
        inside = np.maximum(np.abs(gradient) - self.rate, 0.0)
        return np.where(weights != 0, np.abs(gradient - self.rate * np.sign(weights)), inside)

    def row_size(self, gradient: Array) -> Array:
        return np.abs(gradient).max(axis=1, initial=0.0)

    def root_scale(self, weights: Array) -> Array:
        return np.sqrt(np.abs(weights))

    def threshold(self, weights: Array, by: float) -> Array:
        return np.sign(weights) * np.maximum(np.abs(weights) - by, 0.0)


class RowGroups(Penalty):
    """λ Σ‖wᵢ‖ over features: a feature is in for all classes or for none."""

    def value(self, weights: Array) -> float:
        return self.rate * float(np.linalg.norm(weights, axis=1).sum())

    def excess(self, weights: Array, gradient: Array) -> Array:
        norm = np.linalg.norm(weights, axis=1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            direction = np.where(norm > 0, weights / norm, 0.0)
            inside = np.maximum(1.0 - self.rate / np.linalg.norm(gradient, axis=1, keepdims=True), 0.0)
        return np.where(norm > 0, np.abs(gradient - self.rate * direction), np.abs(gradient) * inside)

    def row_size(self, gradient: Array) -> Array:
        size: Array = np.linalg.norm(gradient, axis=1)
        return size

    def root_scale(self, weights: Array) -> Array:
        norm = np.linalg.norm(weights, axis=1, keepdims=True)
        return np.broadcast_to(np.sqrt(norm), weights.shape)

    def threshold(self, weights: Array, by: float) -> Array:
        norm = np.linalg.norm(weights, axis=1, keepdims=True)
        stays = np.maximum(1.0 - np.divide(by, norm, out=np.ones_like(norm), where=norm > 0), 0.0)
        return weights * stays


class Ridge(Penalty):
    """λ/2 Σw²: the Gaussian prior of RMLR."""

    sparse = False

    def value(self, weights: Array) -> float:
        return 0.5 * self.rate * float(np.square(weights).sum())

    def excess(self, weights: Array, gradient: Array) -> Array:
        return np.abs(gradient - self.rate * weights)

    def row_size(self, gradient: Array) -> Array:
        size: Array = np.linalg.norm(gradient, axis=1)
        return size

    def shrink(self, gradient: Array) -> float:
        return 1.0

    def conjugate(self, gradient: Array) -> float:
        return float(np.square(gradient).sum()) / (2.0 * self.rate)


class NoPenalty(Penalty):
    """Maximum likelihood."""

    sparse = False
    has_dual = False

    def value(self, weights: Array) -> float:
        return 0.0

    def excess(self, weights: Array, gradient: Array) -> Array:
        return np.abs(gradient)

    def row_size(self, gradient: Array) -> Array:
        return np.abs(gradient).max(axis=1, initial=0.0)


PENALTIES: dict[str, type[Penalty]] = {"l1": L1, "group": RowGroups, "l2": Ridge, "none": NoPenalty}
