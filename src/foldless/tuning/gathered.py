"""Weights of several models side by side, so that one visit of the samples predicts with all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foldless.beliefs import Array
from foldless.operators import Operator

if TYPE_CHECKING:
    from foldless.tuning.portfolio import Part


class _SideBySide:
    """Columns of several arrays as one, equal arrays once: saved models no longer share what they had."""

    def __init__(self) -> None:
        self._blocks: list[Array] = []

    def place(self, block: Array) -> slice:
        """Where in the whole these columns are; all blocks have as many."""
        known = (n for n, own in enumerate(self._blocks) if own is block or np.array_equal(own, block))
        n, width = next(known, len(self._blocks)), block.shape[1]
        if n == len(self._blocks):
            self._blocks.append(block)
        return slice(n * width, (n + 1) * width)

    def whole(self) -> Array:
        return self._blocks[0] if len(self._blocks) == 1 else np.hstack(self._blocks or [np.empty((0, 0))])


class Gathered:
    """The weights of all parts of an average."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        means, variances = _SideBySide(), _SideBySide()
        self.parts = parts
        # Class frequencies have nothing to multiply, and certain parts no variances.
        self.mean_at = [means.place(p.weights.mean) if p.weights.mean.any() else None for p in parts]
        self.var_at = [variances.place(p.weights.of_scores) if p.certainty > 0 else None for p in parts]
        self._mean, self._var = means.whole(), variances.whole()

    def products(self, operator: Operator) -> tuple[Array, Array]:
        """Of the samples with all means, and of their squares with all variances."""
        if self._mean.size and self._var.size:
            return operator.scores_and_variances(self._mean, self._var)
        nothing = np.empty((operator.shape[0], 0))
        means = operator.scores(self._mean) if self._mean.size else nothing
        return means, operator.score_variances(self._var) if self._var.size else nothing

    def scores(self, means: Array, variances: Array) -> list[tuple[Array, Array | None]]:
        """Of every part, from all products: means, and variances as far as it is unsure."""
        found: list[tuple[Array, Array | None]] = []
        for part, at, var_at in zip(self.parts, self.mean_at, self.var_at, strict=True):
            own, mean, var = part.weights, part.weights.intercept, None
            mean = np.broadcast_to(mean, (len(means), mean.size)) if at is None else means[:, at] + mean
            if var_at is not None:
                var = part.certainty * part.spread * (variances[:, var_at] + own.intercept_var)
            found.append((mean, var))
        return found
