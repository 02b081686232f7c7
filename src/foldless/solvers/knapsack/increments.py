"""What a factor must know of a message: how much each further unit of score costs.

A sample's factor asks for a score of 1. Every weight starts where its incoming message U is largest, and can
be moved from there towards a larger share s = a w of the score, at a loss of U. Only moves on the upper
concave hull of U(s) are ever worth while (if fractions of moves are allowed: the linear multiple-choice
knapsack), and along the hull each costs more per unit than the one before. So the moves of all weights,
sorted by cost, are the solution for every score at once [Potetz 2011; Kellerer et al. 2004].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from foldless.beliefs import Array
from foldless.kernels.knapsack import NEGLIGIBLE


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
    for row in np.flatnonzero(dented):
        # Slopes of the least concave majorant are the antitonic regression of the slopes.
        hull = slice(first[row], None)
        slope[row, hull] = isotonic_regression(slope[row, hull], weights=width[row, hull], increasing=False).x
    spent = np.cumsum(slope * width, axis=1) - slope * width
    return Increments(start, peak, np.where(spent > -cost, width, 0.0), slope)
