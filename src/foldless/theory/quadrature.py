"""One-dimensional integrals to nearly full precision, whatever kinks and jumps the integrand has.

State evolution integrates slopes of channels and answers of priors. Some are smooth on a scale far below
the spread of the variable, some have kinks (hinge) or jumps (the derivative of a soft threshold, the sign
of a score). Panels are halved where halving still changes the answer, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt

import numpy as np

from foldless.beliefs import Array

# Nodes per panel: enough that one halving settles a panel on which the integrand is smooth.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)
# A panel is settled when halving changes it by less than this share of the whole integral. The change is
# the error of the coarser answer; the finer one, which is kept, is far closer.
PANEL_TOLERANCE = 1e-11
# A jump halves the error of its panel each time; after 40 halvings it is below the tolerance.
MOST_HALVINGS = 40
# More rough panels than this are not a few kinks but rounding noise, which no halving removes.
MOST_ROUGH_PANELS = 2000
# A standard normal variable is beyond this with probability 1e-23.
NORMAL_REACH = 10.0
# Panels of a standard normal variable. They narrow towards zero, where labels change their minds.
NORMAL_EDGES = np.array([0.0, 0.03, 0.1, 0.3, 1.0, 2.0, 3.0, 4.0, 6.0, NORMAL_REACH])


def halved(edges: Array, times: int) -> Array:
    """Every panel cut in halves, so many times."""
    for _ in range(times):
        edges = np.sort(np.concatenate([edges, 0.5 * (edges[:-1] + edges[1:])]))
    return edges


def panel_nodes(edges: Array) -> tuple[Array, Array]:
    """Nodes and weights of the panels as they are, where an integrand must be seen at all points at once."""
    half = 0.5 * np.diff(edges)[:, np.newaxis]
    middle = 0.5 * (edges[1:] + edges[:-1])[:, np.newaxis]
    return (middle + half * NODES).ravel(), (half * WEIGHTS).ravel()


def integrate(function: Callable[[Array], Array], edges: Array) -> Array:
    """∫ f over [edges[0], edges[-1]] for every row of `function(points)`, which is (rows, points).

    `edges` are the first panels; put an edge where a jump is known to be.
    """

    def panel_integrals(left: Array, right: Array) -> Array:
        half = 0.5 * (right - left)
        points = 0.5 * (right + left)[:, np.newaxis] + half[:, np.newaxis] * NODES
        values = np.atleast_2d(function(points.ravel()))
        return np.asarray((values.reshape(-1, *points.shape) @ WEIGHTS) * half)

    left, right = edges[:-1], edges[1:]
    coarse = panel_integrals(left, right)
    size = np.abs(coarse).sum(axis=1, keepdims=True)
    settled = np.zeros(len(coarse))
    for _ in range(MOST_HALVINGS):
        middle = 0.5 * (left + right)
        halves = panel_integrals(np.concatenate([left, middle]), np.concatenate([middle, right]))
        fine = halves[:, : left.size] + halves[:, left.size :]
        rough = np.any(np.abs(fine - coarse) > PANEL_TOLERANCE * size, axis=0)
        settled += fine[:, ~rough].sum(axis=1)
        if not rough.any():
            return settled
        if rough.sum() > MOST_ROUGH_PANELS:
            return settled + fine[:, rough].sum(axis=1)
        both = np.concatenate([rough, rough])
        left, right = np.concatenate([left, middle])[both], np.concatenate([middle, right])[both]
        coarse = halves[:, both]
    return settled + coarse.sum(axis=1)


def normal_expectation(function: Callable[[Array], Array], variance: float) -> Array:
    """E f(x) for x ~ N(0, variance) and every row of `function(points)`; there may be a jump at zero."""
    if variance <= 0.0:
        return np.atleast_2d(function(np.zeros(1)))[:, 0]
    std = sqrt(variance)

    def weighted(standard: Array) -> Array:
        density = np.exp(-0.5 * standard**2) / sqrt(2.0 * pi)
        return np.atleast_2d(function(std * standard)) * density

    return integrate(weighted, np.concatenate([-NORMAL_EDGES[:0:-1], NORMAL_EDGES]))
