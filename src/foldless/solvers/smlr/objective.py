"""What is minimised: minus the log likelihood of labels given scores, and a penalty on the weights."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.component import Component


class AtScores(NamedTuple):
    """The likelihood at some scores."""

    loss: float  # minus the log likelihood of all labels
    proba: Array  # (samples, classes)
    residual: Array  # (samples, scores): label minus probability, times the sample's weight


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of any number of classes, and which classes have scores of their own.

    P(class k) ∝ exp(score_k). In the symmetric form every class has a score, so that no class is special.
    In the reference form [Krishnapuram et al. 2005, section 2] one class has none: its score is zero. Two
    classes always have the one score of the second.
    """

    code: NDArray[np.intp]  # the class of each sample
    n_classes: int
    sample_weight: Array
    reference: int | None = None

    @classmethod
    def of(
        cls, code: NDArray[np.intp], n_classes: int, sample_weight: Array, reference: int | None = None
    ) -> Labels:
        """Labels in their usual form: symmetric, but with one score for two classes."""
        return cls(code, n_classes, sample_weight, 0 if n_classes == 2 and reference is None else reference)

    @cached_property
    def free(self) -> NDArray[np.intp]:
        """The classes that have a score."""
        classes = np.arange(self.n_classes)
        return classes if self.reference is None else np.delete(classes, self.reference)

    @property
    def n_scores(self) -> int:
        return self.free.size

    @property
    def symmetric(self) -> bool:
        return self.reference is None

    @cached_property
    def onehot(self) -> Array:
        return np.eye(self.n_classes)[self.code]

    @property
    def steepest(self) -> float:
        """The largest curvature that one sample of weight 1 can have: of p (1 - p), or of diag p - p p'."""
        return 0.25 if self.n_scores == 1 else 0.5

    @cached_property
    def base_rates(self) -> Array:
        """The share of each class."""
        counts = np.bincount(self.code, weights=self.sample_weight, minlength=self.n_classes)
        return counts / counts.sum()

    def full(self, scores: Array) -> Array:
        """Scores of all classes, with the zero of the reference class put in."""
        if self.reference is None:
            return scores
        return np.insert(scores, self.reference, 0.0, axis=1)

    def at(self, scores: Array) -> AtScores:
        """Loss, probabilities and residuals.

        Scores are taken relative to that of the sample's own class, uₖ = ηₖ - η_own, so that both a loss
        of 1e-20 and one of 1e20 are exact: loss = log(1 + Σ exp uₖ) over the other classes. So is
        1 - p_own, as the sum of the other probabilities.
        """
        eta = self.full(scores)
        rows = np.arange(self.code.size)
        u = eta - eta[rows, self.code][:, np.newaxis]
        top = u.max(axis=1, keepdims=True)  # at least the 0 of the own class
        others = np.exp(u - top)
        others[rows, self.code] = 0.0
        total = others.sum(axis=1)
        top = top[:, 0]
        loss = np.where(top > 0, top + np.log(total + np.exp(-top)), np.log1p(total))
        proba = np.exp(u - loss[:, np.newaxis])
        away = proba.copy()
        away[rows, self.code] = 0.0
        residual = -away
        residual[rows, self.code] = away.sum(axis=1)
        residual = residual[:, self.free] * self.sample_weight[:, np.newaxis]
        return AtScores(float(self.sample_weight @ loss), proba, residual)

    @cached_property
    def sign(self) -> Array:
        """Of two classes: 1 for the one with a score, -1 for the other."""
        return np.where(self.code == self.free[0], 1.0, -1.0)

    def entropy(self, at: AtScores, shrink: float) -> float:
        """Σ weight · H(q) with q = label moved by the share `shrink` towards the probabilities."""
        q = shrink * at.proba
        own = np.arange(self.code.size), self.code
        # 1 - s (1 - p_own), with 1 - p_own from the others: what is left of the label.
        q[own] = 0.0
        q[own] = 1.0 - q.sum(axis=1)
        terms = np.zeros_like(q)
        np.log(q, out=terms, where=q > 0)
        return -float(self.sample_weight @ (q * terms).sum(axis=1))

    def curvature(self, at: AtScores, k: int, j: int) -> Array:
        """Per sample: the second derivative of its loss by the scores number k and j."""
        a, b = self.free[k], self.free[j]
        if a == b:
            rest = np.delete(at.proba, a, axis=1).sum(axis=1)  # 1 - p without its cancellation
            return self.sample_weight * at.proba[:, a] * rest
        return -self.sample_weight * at.proba[:, a] * at.proba[:, b]

    def curvatures(self, at: AtScores) -> Array:
        """`curvature` of all scores, (samples, scores, scores): the weight times diag p - p p'."""
        every = range(self.n_scores)
        blocks = np.array([[self.curvature(at, k, j) for j in every] for k in every])
        return np.ascontiguousarray(blocks.transpose(2, 0, 1))


# ---------------------------------------------------------------------- penalties


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

    def row_size(self, gradient: Array) -> Array:
        """Per feature: the size of the gradient, in the norm that the rate bounds at the optimum."""
        return np.abs(gradient).max(axis=1, initial=0.0)

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


PENALTIES: dict[str, type[Penalty]] = {"l1": L1, "group": RowGroups, "l2": Ridge, "none": NoPenalty}
