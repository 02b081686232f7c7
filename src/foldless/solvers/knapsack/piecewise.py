"""Exact knapsacks of two functions: the best split of a score between them, dents included.

A message is a function of the share of the score that its weight contributes, linear between its points.
"At least t" makes it a falling function: what is contributed beyond t does no harm. Two of them combine to

    h(t) = max { f(s) + g(t - s) }.

Falling functions are cut into concave runs, a convex stretch into its single pieces. Two concave runs
combine by merging their pieces, least steep first; h is the largest of what all pairs of runs give. (The
paper's rule, both points in concave runs or one of them at an end of a region, misses optima: a concave and
a convex piece can meet inside both.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from foldless.beliefs import Array

# Pieces whose slopes differ by less than rounding are one piece.
SAME_SLOPE = 1e-13


@dataclass(frozen=True, eq=False)
class Piecewise:
    """A falling, continuous function: linear between corners, constant before them, -∞ after them."""

    score: Array  # increasing
    value: Array  # not increasing

    @classmethod
    def of_message(cls, share: Array, value: Array, cost: float) -> Piecewise:
        """The largest value at a share of at least t, down to -cost."""
        order = np.lexsort((value, share))
        share, value = share[order], value[order]
        if share[-1] - share[0] <= np.finfo(float).tiny:
            return cls(np.zeros(1), np.array([value.max()]))
        corners, values = [share[-1]], [value[-1]]
        for left, right in zip(range(share.size - 2, -1, -1), range(share.size - 1, 0, -1), strict=True):
            if value[left] <= values[-1]:
                continue
            if value[right] < values[-1]:
                # The function comes up through the level that was reached further right.
                crossing = share[right] + (share[left] - share[right]) * (
                    (values[-1] - value[right]) / (value[left] - value[right])
                )
                corners.append(crossing)
                values.append(values[-1])
            elif share[right] < corners[-1]:
                corners.append(share[right])
                values.append(values[-1])
            corners.append(share[left])
            values.append(value[left])
        return cls(np.array(corners[::-1]), np.array(values[::-1])).simplified(cost)

    def at(self, score: Array) -> Array:
        return np.interp(score, self.score, self.value, right=-np.inf)

    def combined(self, other: Piecewise, cost: float) -> Piecewise:
        """The best split of a score between this function and the other, down to -cost."""
        pairs = [_merged(run, other_run) for run in self.concave_runs for other_run in other.concave_runs]
        # The first runs start at the maxima, so at least their pair is above.
        return _envelope([pair for pair in pairs if pair.value[0] > -cost]).simplified(cost)

    @cached_property
    def concave_runs(self) -> list[Piecewise]:
        if self.score.size == 1:
            return [self]
        slope = np.diff(self.value) / np.diff(self.score)
        cuts = np.flatnonzero(slope[1:] > slope[:-1]) + 1
        ends = [0, *cuts.tolist(), self.score.size - 1]
        return [
            Piecewise(self.score[first : last + 1], self.value[first : last + 1])
            for first, last in pairwise(ends)
        ]

    def simplified(self, cost: float) -> Piecewise:
        """Without corners that turn nothing, and without what lies below -cost."""
        score, value = self.score, self.value
        below = np.flatnonzero(value < -cost)
        if below.size and below[0] > 0:
            score, value = score[: below[0] + 1], value[: below[0] + 1]
        keep = np.append(True, np.diff(score) > 0)
        score, value = score[keep], value[keep]
        if score.size > 2:
            slope = np.diff(value) / np.diff(score)
            turns = np.abs(np.diff(slope)) > SAME_SLOPE * (1.0 + np.abs(slope[1:]))
            keep = np.concatenate([[True], turns, [True]])
            score, value = score[keep], value[keep]
        return Piecewise(score, value)


def nothing_needed() -> Piecewise:
    """The function of no weight at all: a score of 0, at no cost."""
    return Piecewise(np.zeros(1), np.zeros(1))


def _merged(a: Piecewise, b: Piecewise) -> Piecewise:
    """Two concave runs: all their pieces, least steep first."""
    width = np.concatenate([np.diff(a.score), np.diff(b.score)])
    change = np.concatenate([np.diff(a.value), np.diff(b.value)])
    order = np.argsort(-change / width, kind="stable")
    return Piecewise(
        a.score[0] + b.score[0] + np.append(0.0, np.cumsum(width[order])),
        a.value[0] + b.value[0] + np.append(0.0, np.cumsum(change[order])),
    )


def _envelope(functions: list[Piecewise]) -> Piecewise:
    """The largest of several falling functions at every score."""
    if len(functions) == 1:
        return functions[0]
    score = np.unique(np.concatenate([function.score for function in functions]))
    values = np.array([function.at(score) for function in functions])
    corners, heights = [score], [values.max(axis=0)]
    for k in range(score.size - 1):
        # Between neighbouring corners all functions are lines; those that end at the left one are gone.
        live = np.isfinite(values[:, k + 1])
        left, right = values[live, k], values[live, k + 1]
        share, height = _crossings(left, right)
        corners.append(score[k] + share * (score[k + 1] - score[k]))
        heights.append(height)
    found, first = np.unique(np.concatenate(corners), return_index=True)
    return Piecewise(found, np.concatenate(heights)[first])


def _crossings(left: Array, right: Array) -> tuple[Array, Array]:
    """Where the upper envelope of lines on [0, 1] changes from one line to another, and how high it is."""
    shares: list[float] = []
    heights: list[float] = []
    line = int(np.lexsort((right, left))[-1])
    while True:
        behind, gains = left[line] - left, (right - left) - (right[line] - left[line])
        share = np.divide(behind, gains, out=np.full_like(behind, np.inf), where=gains > 0)
        steeper = int(np.argmin(share))
        if not share[steeper] < 1.0:
            return np.array(shares), np.array(heights)
        shares.append(float(share[steeper]))
        heights.append(float(left[line] + share[steeper] * (right[line] - left[line])))
        # Of lines that cross in one point the steepest goes on.
        meet = np.flatnonzero(share <= share[steeper])
        line = int(meet[np.argmax(gains[meet])])
