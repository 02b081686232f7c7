"""Exponentials softened by Gaussians, from a table:  log F(x, q),  F = E[exp(-e^(x + √q ξ))],  ξ ~ N(0, 1).

F is the Laplace transform of the lognormal distribution, and all that the softmax of independent Gaussian
scores asks for (`gumbel`). No closed form is known, and sums of exponentials for every argument were nine
tenths of a fit of many classes. So they are made once, on a grid, of

    L(s, t) = log(-log F(x, q)),    s = x/√(1 + q),    t = log(q + SMALLEST_WIDTH),

which is smooth in both and hardly bent: L = x + q/2 far to the left, where F is nearly one, and about 2 log x
far to the right, so that no digit is lost in either tail. Between nodes, L is the polynomial of degree five
in s that has L and two derivatives right at both ends, and of degree two in t. Then, dashes for ∂/∂x,

    log F = -e^L,    ∂ log F = -e^L L',    ∂² log F = -e^L (L'² + L'').

Errors are below 6e-5 in log F, and in derivatives in units of √(1 + q), where F is above e^-12. To the left
of the table L goes on in a straight line, as it does, and to the right, too, where a factor is far below what
anybody sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from foldless.beliefs import Array
from foldless.special import LOG_SQRT_2PI

# The grid. Widths near zero are logarithms apart as if they began here: of F the logarithm is a power series
# in q, but it converges for small q only.
SMALLEST_WIDTH = 0.03
WIDTH_STEP = 0.2
SCORE_STEP = 0.6
# Left of this, L is a straight line; right of the last node, which is so far beyond √q, F is negligible
# beside its value where the largest terms of any sum over levels are.
LEFT_END, RIGHT_MARGIN = -6.0, 4.5
# Wider Gaussians are for others to make narrower.
WIDEST = 1e4
# Coefficients of a patch: of powers of s within each power of t.
S_POWERS, T_POWERS = 6, 3
# Up to this variance, scores are summed over; beyond, Gumbel noise, which is then the narrower of the two.
LARGEST_SUMMED = 4.0


class Softened(NamedTuple):
    """log F(x, q) and its first two derivatives in x; F is log-concave, so `second` is never positive."""

    log: Array
    first: Array
    second: Array


class Table(NamedTuple):
    """Patches of the plane (s, t), those of one range of t after another."""

    coefficients: Array  # (patches, T_POWERS * S_POWERS)
    by_power: Array  # the same, transposed and laid out for NumPy
    begins: NDArray[np.int64]  # where the patches of each range of t begin, and end


@cache
def table() -> Table:
    """Made when it is first needed, in less than a tenth of a second."""
    n_ranges = int(np.ceil((np.log(WIDEST + SMALLEST_WIDTH) - np.log(SMALLEST_WIDTH)) / WIDTH_STEP))
    # The ends of each range and its middle.
    t = np.log(SMALLEST_WIDTH) + 0.5 * WIDTH_STEP * np.arange(2 * n_ranges + 1)
    var = np.maximum(np.exp(t) - SMALLEST_WIDTH, 0.0)
    n_patches = np.ceil((np.sqrt(var[2::2]) + RIGHT_MARGIN - LEFT_END) / SCORE_STEP).astype(int)
    along_s = []
    for node, q in enumerate(var):
        # A node at the end of one range is the beginning of the next, which reaches further.
        n_cells = n_patches[min(node // 2, n_ranges - 1)]
        along_s.append(_pieces_along_scores(LEFT_END + SCORE_STEP * np.arange(n_cells + 1), q))
    patches = []
    for part, size in enumerate(n_patches):
        low, middle, high = (pieces[:size] for pieces in along_s[2 * part : 2 * part + 3])
        bend = 2.0 * (low - 2.0 * middle + high)
        patches.append(np.hstack([low, high - low - bend, bend]))
    coefficients = np.vstack(patches)
    begins = np.concatenate([[0], np.cumsum(n_patches)])
    return Table(coefficients, np.ascontiguousarray(coefficients.T), begins)


def _pieces_along_scores(s: Array, q: float) -> Array:
    """L at one variance: coefficients of (s - left node)/SCORE_STEP between each two nodes, (pieces, 6)."""
    width = np.sqrt(1.0 + q)
    log, first, second = _summed(s * width, q)
    value = np.log(-log)
    unit = SCORE_STEP * width
    slope = unit * first / log
    bend = unit**2 * second / log - slope**2
    left, right = slice(None, -1), slice(1, None)
    gap = value[right] - value[left] - slope[left] - 0.5 * bend[left]
    turn = slope[right] - slope[left] - bend[left]
    curl = 0.5 * (bend[right] - bend[left])
    return np.column_stack(
        [
            value[left],
            slope[left],
            0.5 * bend[left],
            10.0 * gap - 4.0 * turn + curl,
            -15.0 * gap + 7.0 * turn - 2.0 * curl,
            6.0 * gap - 3.0 * turn + curl,
        ]
    )


def _summed(x: Array, q: float) -> Softened:
    """log F and its derivatives to nearly all digits, by trapezoidal sums of analytic functions.

    Up to LARGEST_SUMMED over ξ: with e the exponential and averages under the integrand,
        ∂ log F = -⟨e⟩,    ∂² log F = Var e - ⟨e⟩.
    Beyond it, exp(-e^z) = P(c > z) for a mirrored Gumbel variable c, so that F = E_c Φ((c - x)/√q) is a sum
    over c. With h = φ/Φ the inverse Mills ratio at b = (c - x)/√q:
        ∂ log F = -⟨h⟩/√q,    ∂² log F = -(⟨h b⟩ + ⟨h⟩²)/q.
    Where F is nearly one, its logarithm is that of one less a sum for 1 - F.
    """
    root = np.sqrt(q)
    if q <= LARGEST_SUMMED:
        noise = np.arange(-13.0, 13.1, 0.2)
        mass = np.exp(-0.5 * noise**2)
        mass /= mass.sum()
        size = np.exp(x[:, np.newaxis] + root * noise)
        log_likelihood = -size
        missing = -np.expm1(-size)
    else:
        noise = np.arange(-32.0, 4.7, 0.4)
        mass = np.exp(noise - np.exp(noise))
        mass /= mass.sum()
        b = (noise - x[:, np.newaxis]) / root
        log_likelihood = log_ndtr(b)
        missing = ndtr(-b)
    log_terms = np.log(mass) + log_likelihood
    largest = log_terms.max(axis=1, keepdims=True)
    share = np.exp(log_terms - largest)
    total = share.sum(axis=1)
    share /= total[:, np.newaxis]
    missed = missing @ mass
    log = np.where(missed < 0.5, np.log1p(-np.minimum(missed, 0.5)), largest[:, 0] + np.log(total))
    if q <= LARGEST_SUMMED:
        first = np.sum(share * size, axis=1)
        spread = np.sum(share * (size - first[:, np.newaxis]) ** 2, axis=1)
        return Softened(log, -first, spread - first)
    hazard = np.exp(-0.5 * b**2 - LOG_SQRT_2PI - log_likelihood)
    first = np.sum(share * hazard, axis=1)
    bend = np.sum(share * hazard * b, axis=1) + first**2
    return Softened(log, -first / root, -bend / q)


@dataclass(frozen=True, eq=False)
class Widths:
    """Where variances are in the table: what all arguments of one variance share."""

    unit: Array  # of x, from node to node
    position: Array  # within the range of t, from 0 to 1
    begin: NDArray[np.int64]  # the first patch
    last: NDArray[np.int64]  # how many patches further the last one is

    @classmethod
    def of(cls, var: Array) -> Widths:
        """Of variances up to WIDEST, of any shape."""
        begins = table().begins
        t = np.log1p(var / SMALLEST_WIDTH) / WIDTH_STEP
        part = np.clip(t.astype(np.int64), 0, begins.size - 2)
        return cls(SCORE_STEP * np.sqrt(1.0 + var), t - part, begins[part], np.diff(begins)[part] - 1)

    def of_rows(self, rows: Any) -> Widths:
        """Of some rows; indexed by [:, newaxis], for arguments (rows, levels, D) of variances (rows, D)."""
        return Widths(self.unit[rows], self.position[rows], self.begin[rows], self.last[rows])

    def at(self, x: Array) -> Softened:
        """log F(x, q) of arguments of the variances' shape, or one that they are repeated to."""
        s = x / self.unit - LEFT_END / SCORE_STEP
        inside = np.clip(s, 0.0, self.last + 1.0)
        cell = np.minimum(inside.astype(np.int64), self.last)
        along = inside - cell
        patch = self.begin + cell
        powers = table().by_power
        coefficient, other = np.empty(x.shape), np.empty(x.shape)
        value, slope, bend = np.zeros(x.shape), np.zeros(x.shape), np.zeros(x.shape)
        # Horner's scheme for a polynomial and its derivatives; every coefficient is a parabola in t.
        for power in reversed(range(S_POWERS)):
            np.take(powers[2 * S_POWERS + power], patch, out=coefficient, mode="clip")
            for lower in (S_POWERS + power, power):
                coefficient *= self.position
                coefficient += np.take(powers[lower], patch, out=other, mode="clip")
            bend *= along
            bend += slope
            slope *= along
            slope += value
            value *= along
            value += coefficient
        outside = s - inside
        if outside.any():
            value += slope * outside
            bend[outside != 0] = 0.0
        size = np.exp(value)
        slope /= self.unit
        bend *= 2.0
        bend /= self.unit**2
        bend += slope * slope
        np.maximum(bend, 0.0, out=bend)
        slope *= size
        bend *= size
        return Softened(
            np.negative(size, out=size), np.negative(slope, out=slope), np.negative(bend, out=bend)
        )


def as_arguments() -> tuple[Array, NDArray[np.int64], float, float, float, float]:
    """The table as compiled loops take it."""
    coefficients, _, begins = table()
    return coefficients, begins, SMALLEST_WIDTH, WIDTH_STEP, SCORE_STEP, LEFT_END
