"""The factors of the samples: messages from the margin to the weights.

The factor of a sample with signed features a = y x costs nothing where its margin a·w reaches 1 and c where
it does not. Given messages U_j from all weights, its message to weight i is [Potetz 2011, (14), corrected]

    m_i(w) = max( T(1 - a_i w) - T*, -c ),
    T(t) = max { Σ_{j≠i} U_j(w_j) : Σ_{j≠i} a_j w_j ≥ t },    T* = Σ_{j≠i} max U_j,

a multiple-choice knapsack problem for every w. `Factors` is what the message passing asks of them; there are
three answers: with fractions allowed (the linear problem) in NumPy and compiled, and exactly.

In the linear problem every weight starts where its incoming message U is largest, and can be moved from there
towards a larger share s = a w of the score, at a loss of U. Only moves on the upper concave hull of U(s) are
ever worth while, and along the hull each costs more per unit than the one before. So the moves of all
weights, sorted by cost, are the solution for every score at once [Potetz 2011; Kellerer et al. 2004].

**Exactly**, dents included: the best split of a score between two functions. A message is a function of the
share of the score that its weight contributes, linear between its points. "At least t" makes it a falling
function: what is contributed beyond t does no harm. Two of them combine to

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
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.kernels import compiled
from foldless.kernels.knapsack import NEGLIGIBLE, Moves

# Pieces whose slopes differ by less than rounding are one piece.
SAME_SLOPE = 1e-13


# Slope, width and owner of moves, (samples, moves).
Sorted = tuple[Array, Array, NDArray[np.int32]]


class Factors(Protocol):
    """Messages between the weights and all samples."""

    def receive(self, weight: int, inputs: Array) -> None:
        """New messages from one weight, of shape (samples, bins)."""

    def send(self, weight: int) -> Array:
        """Messages to one weight, of shape (samples, bins), between -c and 0."""

    def best(self) -> Array:
        """The largest value of each factor together with all messages to it, (samples,)."""


class LinearFactors:
    """Linear knapsack messages in NumPy: the moves of all weights, sorted, all samples at once."""

    def __init__(self, rows: Array, points: Array, cost: float) -> None:
        (n_samples, n_weights), self._n_moves = rows.shape, points.shape[1] - 1
        self._rows, self._points, self._cost = rows, points, cost
        self._start, self._peak = np.zeros(rows.shape), np.zeros(rows.shape)
        # Cheapest first: what a move costs per unit of score, how much it adds, whose it is.
        owner = np.repeat(np.arange(n_weights, dtype=np.int32), self._n_moves)
        none = np.zeros((n_samples, owner.size))
        self._moves: Sorted = none, none, np.tile(owner, (n_samples, 1))
        self._others: tuple[int, Sorted] | None = None

    def receive(self, weight: int, inputs: Array) -> None:
        own = increments(self._rows[:, weight], self._points[weight], inputs, self._cost)
        self._start[:, weight], self._peak[:, weight] = own.start, own.peak
        slope, width, owner = self._but(weight)
        slope = np.concatenate([slope, own.slope], axis=1)
        # Two runs, each sorted: a stable sort merges them.
        order = np.argsort(-slope, axis=1, kind="stable")
        order += np.arange(len(order))[:, np.newaxis] * order.shape[1]
        whose = np.full((len(slope), self._n_moves), weight, dtype=owner.dtype)
        self._moves = (
            np.take(slope, order),
            np.take(np.concatenate([width, own.width], axis=1), order),
            np.take(np.concatenate([owner, whose], axis=1), order),
        )
        self._others = None

    def send(self, weight: int) -> Array:
        need = 1.0 - self._rows[:, weight, np.newaxis] * self._points[weight]
        base = self._start.sum(axis=1) - self._start[:, weight]
        slope, width, _ = self._but(weight)
        return self._gained(need - base[:, np.newaxis], slope, width)

    def best(self) -> Array:
        need = 1.0 - self._start.sum(axis=1, keepdims=True)
        slope, width, _ = self._moves
        return self._peak.sum(axis=1) + self._gained(need, slope, width)[:, 0]

    def _but(self, weight: int) -> Sorted:
        """The moves of all other weights; of one weight every sample has as many."""
        if self._others is None or self._others[0] != weight:
            others = np.flatnonzero(self._moves[2] != weight).reshape(len(self._rows), -1)
            slope, width, owner = self._moves
            self._others = weight, (np.take(slope, others), np.take(width, others), np.take(owner, others))
        return self._others[1]

    def _gained(self, need: Array, slope: Array, width: Array) -> Array:
        """What it takes to add `need` (samples, any number) to the scores by these moves."""
        n_samples, n_moves = slope.shape
        if n_moves == 0:
            return np.where(need > 0.0, -self._cost, 0.0)
        moved, lost = np.zeros((2, n_samples, n_moves + 1))
        np.cumsum(width, axis=1, out=moved[:, 1:])
        np.cumsum(width * slope, axis=1, out=lost[:, 1:])
        asked = np.maximum(need, 0.0)
        # One search for all samples, each in a stretch of its own; beyond the largest need nothing matters.
        # A place that rounding takes for its neighbour does no harm: the lines of both meet there.
        farthest = float(asked.max()) + 1.0
        sample = np.arange(n_samples)[:, np.newaxis]
        stretch = 2.0 * farthest * sample
        placed = np.searchsorted((np.minimum(moved, farthest) + stretch).ravel(), asked + stretch)
        at = np.clip(placed - sample * (n_moves + 1) - 1, 0, n_moves - 1)
        corner, line = at + sample * (n_moves + 1), at + sample * n_moves
        out = np.take(lost, corner) + (asked - np.take(moved, corner)) * np.take(slope, line)
        return np.where(asked <= moved[:, -1:], np.maximum(out, -self._cost), -self._cost)


class Increments(NamedTuple):
    """Moves of one weight, for each of several samples, cheapest first; moves of no width are padding."""

    start: Array  # (samples,): the share of the score where the message is largest
    peak: Array  # (samples,): the message there
    width: Array  # (samples, bins - 1): what a move adds to the score
    slope: Array  # (samples, bins - 1): what it adds to the message per unit of score, negative, falling


def increments(coefficient: Array, points: Array, messages: Array, cost: float) -> Increments:
    """The moves that `messages` of shape (samples, bins) allow, for coefficients a of the samples.

    Moves that all by themselves cost as much as violating the margin are left out, but for the first.
    """
    share = coefficient[:, np.newaxis] * points
    # In the order of a growing score.
    falling = coefficient < 0
    share[falling] = share[falling, ::-1]
    value = messages.copy()
    value[falling] = value[falling, ::-1]
    peak = value.max(axis=1)
    n_bins = points.size
    # Of several maxima the one with the largest score.
    first = n_bins - 1 - np.argmax(value[:, ::-1] == peak[:, np.newaxis], axis=1)
    rows = np.arange(coefficient.size)
    useful = np.abs(coefficient) > NEGLIGIBLE
    start = np.where(useful, share[rows, first], 0.0)
    width = np.diff(share, axis=1)
    beyond = (np.arange(n_bins - 1) >= first[:, np.newaxis]) & useful[:, np.newaxis]
    slope = np.diff(value, axis=1) / np.where(useful[:, np.newaxis], width, 1.0)
    width, slope = np.where(beyond, width, 0.0), np.where(beyond, slope, 0.0)

    dented = np.any((slope[:, 1:] > slope[:, :-1]) & beyond[:, :-1], axis=1)
    if dented.any():
        slope[dented] = np.where(
            beyond[dented], hull_slopes(share[dented], value[dented], first[dented]), slope[dented]
        )
    spent = np.cumsum(slope * width, axis=1) - slope * width
    return Increments(start, peak, np.where(spent > -cost, width, 0.0), slope)


def hull_slopes(share: Array, value: Array, first: NDArray[np.intp]) -> Array:
    """Between neighbouring points, slopes of the upper concave hull of the points from `first` on, by rows.

    Beyond point k it is the least, over points up to k, of the steepest way from there to a point beyond k.
    """
    s, u = share.T.copy(), value.T.copy()
    # Infinite before `first`, so that no least value is found there.
    steepest = np.where(np.arange(len(s))[:, np.newaxis] >= first, -np.inf, np.inf)
    slopes = np.empty((len(s) - 1, len(first)))
    for k in reversed(range(len(slopes))):
        here = steepest[: k + 1]
        np.maximum(here, (u[k + 1] - u[: k + 1]) / (s[k + 1] - s[: k + 1]), out=here)
        np.minimum.reduce(here, axis=0, out=slopes[k])
    return slopes.T


class CompiledFactors:
    """The same messages by loops that keep the moves sorted; needs numba, the extra `fast`."""

    def __init__(self, rows: Array, points: Array, cost: float) -> None:
        self._loops = compiled("knapsack")
        self._moves = Moves.none(rows, points, cost)

    def receive(self, weight: int, inputs: Array) -> None:
        self._loops.replace(weight, inputs, self._moves)

    def send(self, weight: int) -> Array:
        out = np.empty((len(self._moves.rows), self._moves.points.shape[1]))
        self._loops.walk(weight, self._moves, out)
        return out

    def best(self) -> Array:
        out = np.empty((len(self._moves.rows), 1))
        self._loops.walk(-1, self._moves, out)
        return self._moves.peak.sum(axis=1) + out[:, 0]


class ExactFactors:
    """Messages without the hull, for inputs that are not concave.

    A message between its points is linear, as in the linear problem, but dents stay dents: functions are
    combined two by two (`Piecewise`). For concave inputs this is the linear problem. The number of pieces
    grows with every dent, so this is for few weights.
    """

    def __init__(self, rows: Array, points: Array, cost: float) -> None:
        self._rows, self._points, self._cost = rows, points, float(cost)
        self._inputs: list[list[Piecewise]] = [[nothing_needed()] * rows.shape[1] for _ in range(len(rows))]
        self._peak = np.zeros(rows.shape)

    def receive(self, weight: int, inputs: Array) -> None:
        self._peak[:, weight] = inputs.max(axis=1)
        for f, a in enumerate(self._rows[:, weight]):
            self._inputs[f][weight] = Piecewise.of_message(
                a * self._points[weight], inputs[f] - self._peak[f, weight], self._cost
            )

    def send(self, weight: int) -> Array:
        need = 1.0 - self._rows[:, weight, np.newaxis] * self._points[weight]
        out = np.empty_like(need)
        for f, functions in enumerate(self._inputs):
            others = functions[:weight] + functions[weight + 1 :]
            out[f] = self._together(others).at(need[f])
        return np.maximum(out, -self._cost)

    def best(self) -> Array:
        gained = [float(self._together(functions).at(np.ones(1))[0]) for functions in self._inputs]
        return self._peak.sum(axis=1) + np.maximum(gained, -self._cost)

    def _together(self, functions: list[Piecewise]) -> Piecewise:
        total = nothing_needed()
        for function in functions:
            total = total.combined(function, self._cost)
        return total


# ---------------------------------------------------------------------- exact knapsacks of two functions


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
