"""The Gaussian field that held weights make of scores, and columns that are at hand.

Held weights have Gaussian sites and are integrated: all that is left of them are the means and the covariance
K = Σ s_j x_j x_jᵀ of scores, samples by samples, beside the columns of the active weights. K changes when
weights become active and when sites of held ones move. While label sites hardly move, one factor made of K
serves many iterations (`gaussian_layer.NearKernel`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from foldless.beliefs import Array
from foldless.operators.base import Gram
from foldless.solvers.gaussian_layer import (
    FAR,
    NEAR,
    Factor,
    HeldKernel,
    KnownLabels,
    NearKernel,
    Opened,
    Positions,
    Sites,
    Tiles,
    share_moved,
)

# Columns at hand are visited so many at a time.
AT_ONCE = 512


class HeldBackground(Tiles):
    """The active columns, and the field that all held weights make of scores.

    With `nearby` a factor is kept while labels are close to those it was made for, so that the iteration
    makes no other. Not where held columns are looked at exactly: these looks need the factor of the present
    labels.
    """

    def __init__(
        self,
        kernel: Array,
        columns: Array,
        held_scores: Array | None = None,
        nearby: bool = False,
        factor: Factor | KnownLabels | None = None,
        freed: tuple[Array, Array] | None = None,
    ) -> None:
        self.operator = None  # type: ignore[assignment]
        self.kernel, self.active_columns, self.shape = kernel, columns, columns.shape
        self.held_scores = np.zeros(self.shape[0]) if held_scores is None else held_scores
        # The last factor, or only its labels where these had moved too far for another use of it; and columns
        # that have left the kernel since, with their variances.
        self.nearby, self._factor, self._freed = nearby, factor, freed
        self._last: HeldKernel | NearKernel | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return HeldBackground, (self.kernel, self.active_columns, self.held_scores, self.nearby)

    def opened(self, sites: Sites, sample_weight: Array, free: Positions) -> Opened:
        last, precision = self._last, sample_weight * sites.label_precision
        if last is not None and np.array_equal(last.label_precision, precision):
            return last.shifted(sites, sample_weight)
        columns, factor = self.active_columns, self._factor
        moved = np.inf if factor is None else share_moved(factor, precision)
        if not self.nearby or moved > FAR:
            at = np.arange(self.shape[1])
            self._last = HeldKernel(self.kernel, self.held_scores, at, columns, sites, sample_weight)
            if self.nearby:
                self._factor, self._freed = self._last.known, None
            return self._last
        if not isinstance(factor, Factor) or moved >= NEAR:
            factor = Factor.of(self.kernel, precision)
        elif self._freed is not None:
            factor = factor.without(self.kernel, *self._freed)
        self._factor, self._freed = factor, None
        if isinstance(last, NearKernel) and last.factor is factor:
            self._last = last.moved(sites, sample_weight)
        else:
            self._last = NearKernel(factor, self.held_scores, columns, sites, sample_weight)
        return self._last

    def freed(self, columns: Array, spread: Array, shift: Array) -> HeldBackground:
        """After weights have become active: with their columns, and a field without them."""
        scaled = (columns * np.sqrt(spread)).astype(self.kernel.dtype)
        before = (np.zeros((self.shape[0], 0)), np.zeros(0)) if self._freed is None else self._freed
        kernel = scaled @ scaled.T
        return HeldBackground(
            np.subtract(self.kernel, kernel, out=kernel),
            np.hstack([self.active_columns, columns]),
            self.held_scores - columns @ (spread * shift),
            self.nearby,
            self._factor,
            (np.hstack([before[0], columns]), np.append(before[1], spread)),
        )

    def changed(
        self, tiles: Tiles, spread: Array, mean: Array, chosen: Positions
    ) -> tuple[HeldBackground, Array]:
        """After sites of held weights have moved: variances changed by `spread`, means by `mean`.

        Returns the `chosen` columns as well, since all are visited here.
        """
        difference, held_scores = Gram(self.shape[0], self.kernel.dtype), self.held_scores.copy()
        columns, root = np.empty((self.shape[0], chosen.size), dtype=tiles.dtype), np.sqrt(np.abs(spread))
        for where, tile in tiles:
            held_scores += tile @ mean[where].astype(tile.dtype)
            begin, end = np.searchsorted(chosen, (where.start, where.stop))
            columns[:, begin:end] = tile[:, chosen[begin:end] - where.start]
            for sign in (1.0, -1.0):
                moving = np.flatnonzero(sign * spread[where] > 0)
                for start in range(0, moving.size, AT_ONCE):
                    some = moving[start : start + AT_ONCE]
                    difference.add(tile[:, some] * root[where][some].astype(tile.dtype), sign)
        return HeldBackground(self.kernel + difference.whole(), self.active_columns, held_scores), columns


class FewColumns(Tiles):
    """Columns that are at hand in an array, visited some at a time."""

    def __init__(self, columns: Array) -> None:
        self.few, self.shape, self.dtype = columns, columns.shape, columns.dtype

    def __iter__(self) -> Iterator[tuple[slice, Array]]:
        for start in range(0, self.shape[1], AT_ONCE):
            some = slice(start, min(start + AT_ONCE, self.shape[1]))
            yield some, self.few[:, some]
