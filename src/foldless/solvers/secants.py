"""Secants: leaps to a fixed point, learnt from the steps before (Anderson's method).

A fixed point x = g(x) has residual f(x) = g(x) - x = 0. Plain iterations x + step·f shrink it at the rate of
the slowest direction, and not at all if some direction turns faster than it shrinks, however short the step.
Of the last few points the differences ΔX and ΔF show how f changes in just those directions; the combination
that explains the present residual best is undone [Anderson 1965; Walker and Ni 2011]:

    γ = argmin |f - ΔF γ|,    x + step·f - (ΔX + step·ΔF) γ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foldless.beliefs import Array

# As many directions are learnt at a time: those that matter are few, and older differences mislead.
MEMORY = 6
# Directions in which residuals change less than this, relative to others, are left alone.
LEAST_INDEPENDENT = 1e-6
# A residual that has grown by this factor says that the last leap went astray: what led there is forgotten.
ASTRAY = 2.0


@dataclass(frozen=True, eq=False)
class Secants:
    """The last points of an iteration and their residuals, all of one problem."""

    problem: object = None
    points: tuple[Array, ...] = ()
    residuals: tuple[Array, ...] = ()

    def __len__(self) -> int:
        return len(self.points)

    def of(self, problem: object) -> Secants:
        """Nothing, if the problem is another one: its residuals are another function."""
        return self if self.problem is problem else Secants(problem)

    def seen(self, point: Array, residual: Array, scale: Array) -> Secants:
        """With one more point; sizes of residuals are in units of 1/scale."""
        points, residuals = self.points[-MEMORY:], self.residuals[-MEMORY:]
        if points and np.linalg.norm(residual * scale) > ASTRAY * np.linalg.norm(residuals[-1] * scale):
            points, residuals = (), ()
        return Secants(self.problem, (*points, point), (*residuals, residual))

    def last(self) -> Secants:
        """The last point only."""
        return Secants(self.problem, self.points[-1:], self.residuals[-1:])

    def next_point(self, step: float | Array, scale: Array) -> Array:
        """Where the residual would be zero as far as it is known, and a step along what is left of it."""
        point, residual = self.points[-1], self.residuals[-1]
        moves, changes = np.diff(self.points, axis=0), np.diff(self.residuals, axis=0)
        scaled = changes * scale
        # There are few directions in very many entries, so their inner products are all that is decomposed.
        products, known = scaled @ scaled.T, scaled @ (residual * scale)
        combination = np.linalg.lstsq(products, known, rcond=LEAST_INDEPENDENT**2)[0]
        return np.asarray(point + step * residual - combination @ (moves + step * changes))
