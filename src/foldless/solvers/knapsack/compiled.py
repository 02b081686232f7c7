"""The moves of all weights, kept sorted for every sample: loops that NumPy cannot do, compiled by numba.

A row per sample: slope, width and owner (the weight) of each move, cheapest first. Asking for one weight
walks along a row past that weight's own moves; a new message from one weight replaces its own moves by a
merge. Neither sorts anything.

A walk ends where a margin of 1 is reached or violating it is cheaper, and most moves lie beyond. So a row has
only moves of a slope above its `limit`. Where a walk runs off the end of a row, the row is gathered again
from the messages, with a lower limit, and walked again: the answer is that of all moves.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from foldless.beliefs import Array
from foldless.solvers.knapsack.increments import NEGLIGIBLE

# A row has moves for this many times the largest score that a walk may need. Moves change between walks, so
# twice as much saves gathering rows again and again; more makes every merge longer.
SPARE = 2.0


def _compiled(function: Any) -> Any:
    """Compiled once per machine where numba may write its cache, else once per process."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        return numba.njit(nogil=True)(function)


@_compiled
def hull_moves(
    a: float, points: Any, inputs: Any, cost: float, limit: float, corner_s: Any, corner_u: Any, slope: Any,
    width: Any,
) -> Any:  # fmt: skip
    """The moves of one message: how many, where they start, the maximum there, and whether these are all."""
    n_bins = points.size
    first, best = 0, -np.inf
    for k in range(n_bins):
        bin_ = k if a >= 0 else n_bins - 1 - k
        if inputs[bin_] >= best:
            first, best = k, inputs[bin_]
    if abs(a) <= NEGLIGIBLE:
        return 0, 0.0, best, True
    # The upper hull from the maximum on, as a stack of its corners.
    top = 0
    for k in range(first, n_bins):
        bin_ = k if a >= 0 else n_bins - 1 - k
        s, u = a * points[bin_], inputs[bin_]
        while top >= 2 and (u - corner_u[top - 2]) * (corner_s[top - 1] - corner_s[top - 2]) >= (
            corner_u[top - 1] - corner_u[top - 2]
        ) * (s - corner_s[top - 2]):
            top -= 1
        corner_s[top], corner_u[top] = s, u
        top += 1
    n_moves = 0
    for k in range(1, top):
        # What alone costs as much as a violation is never worth going beyond.
        if corner_u[k - 1] - best <= -cost:
            break
        step = corner_s[k] - corner_s[k - 1]
        steepness = (corner_u[k] - corner_u[k - 1]) / step
        if steepness < limit:
            return n_moves, corner_s[0], best, False
        slope[n_moves], width[n_moves] = steepness, step
        n_moves += 1
    return n_moves, corner_s[0], best, True


@_compiled
def gather(
    f: int, need: float, spare: float, rows: Any, points: Any, cost: float, inputs: Any, start: Any,
    peak: Any, slope: Any, width: Any, owner: Any, count: Any, limit: Any, complete: Any,
) -> None:  # fmt: skip
    """A sample's row from its messages: `spare` times the moves that a walk to `need` takes now."""
    n_weights, n_bins = points.shape
    corner_s, corner_u = np.empty(n_bins), np.empty(n_bins)
    own_slope, own_width = np.empty(n_bins), np.empty(n_bins)
    all_slope, all_width = np.empty(n_weights * n_bins), np.empty(n_weights * n_bins)
    all_owner = np.empty(n_weights * n_bins, dtype=owner.dtype)
    n_all = 0
    for j in range(n_weights):
        n_own, start[f, j], peak[f, j], _ = hull_moves(
            rows[f, j], points[j], inputs[f, j], cost, -np.inf, corner_s, corner_u, own_slope, own_width
        )
        for k in range(n_own):
            all_slope[n_all], all_width[n_all], all_owner[n_all] = own_slope[k], own_width[k], j
            n_all += 1
    # Stable: the moves of one weight stay in their order.
    order = np.argsort(-all_slope[:n_all], kind="mergesort")
    moved, lost, n_kept = 0.0, 0.0, 0
    while n_kept < n_all and moved < spare * need and lost > -spare * cost:
        at = order[n_kept]
        moved += all_width[at]
        lost += all_slope[at] * all_width[at]
        n_kept += 1
    # All moves as cheap as the last one belong to the row.
    while 0 < n_kept < n_all and all_slope[order[n_kept]] == all_slope[order[n_kept - 1]]:
        n_kept += 1
    for k in range(n_kept):
        at = order[k]
        slope[f, k], width[f, k], owner[f, k] = all_slope[at], all_width[at], all_owner[at]
    count[f] = n_kept
    complete[f] = n_kept == n_all
    limit[f] = -np.inf if complete[f] or n_kept == 0 else slope[f, n_kept - 1]


@_compiled
def walk_row(
    a: float, points: Any, weight: int, base: float, cost: float, slope: Any, width: Any, owner: Any,
    count: int, complete: bool, out: Any,
) -> bool:  # fmt: skip
    """One sample's message to one weight; False if the row was too short to tell."""
    n_bins = out.size
    at, moved, lost = 0, 0.0, 0.0
    too_dear = False
    for k in range(n_bins):
        # In the order in which more and more is asked of the other weights.
        bin_ = n_bins - 1 - k if a > 0 else k
        need = 1.0 - base
        if weight >= 0:
            need -= a * points[bin_]
        if need <= 0.0:
            out[bin_] = 0.0
            continue
        while not too_dear and at < count:
            if owner[at] != weight:
                if moved + width[at] >= need:
                    break
                moved += width[at]
                lost += slope[at] * width[at]
                too_dear = lost <= -cost
            at += 1
        if not too_dear and at == count and not complete:
            return False
        if too_dear or at == count:
            out[bin_] = -cost
        else:
            out[bin_] = max(lost + slope[at] * (need - moved), -cost)
    return True


@_compiled
def walk(
    weight: int, rows: Any, points: Any, cost: float, inputs: Any, start: Any, peak: Any, slope: Any,
    width: Any, owner: Any, count: Any, limit: Any, complete: Any, out: Any,
) -> None:  # fmt: skip
    """Messages of all samples to one weight; with weight = -1, what reaching the margin costs each sample."""
    n_samples, n_weights = rows.shape
    for f in range(n_samples):
        a = rows[f, weight] if weight >= 0 else 0.0
        base = 0.0
        for j in range(n_weights):
            if j != weight:
                base += start[f, j]
        need = max(1.0 - base + abs(a) * np.abs(points[max(weight, 0)]).max(), 1.0)
        spare = SPARE
        while not walk_row(
            a, points[max(weight, 0)], weight, base, cost, slope[f], width[f], owner[f], count[f],
            complete[f], out[f],
        ):  # fmt: skip
            gather(
                f, need, spare, rows, points, cost, inputs, start, peak, slope, width, owner, count, limit,
                complete,
            )  # fmt: skip
            spare *= SPARE


@_compiled
def replace(
    weight: int, new_inputs: Any, rows: Any, points: Any, cost: float, inputs: Any, start: Any, peak: Any,
    slope: Any, width: Any, owner: Any, count: Any, limit: Any, complete: Any,
) -> None:  # fmt: skip
    """New messages (samples, bins) from one weight: its moves in every row are replaced."""
    n_samples, n_bins = new_inputs.shape
    corner_s, corner_u = np.empty(n_bins), np.empty(n_bins)
    own_slope, own_width = np.empty(n_bins), np.empty(n_bins)
    new_slope, new_width = np.empty(slope.shape[1]), np.empty(slope.shape[1])
    new_owner = np.empty(slope.shape[1], dtype=owner.dtype)
    for f in range(n_samples):
        inputs[f, weight] = new_inputs[f]
        n_own, start[f, weight], peak[f, weight], every = hull_moves(
            rows[f, weight], points[weight], inputs[f, weight], cost, limit[f], corner_s, corner_u, own_slope,
            own_width,
        )  # fmt: skip
        complete[f] = complete[f] and every
        row_slope, row_width, row_owner = slope[f], width[f], owner[f]
        n_new, own = 0, 0
        for at in range(count[f]):
            if row_owner[at] == weight:
                continue
            while own < n_own and own_slope[own] > row_slope[at]:
                new_slope[n_new], new_width[n_new], new_owner[n_new] = own_slope[own], own_width[own], weight
                n_new += 1
                own += 1
            new_slope[n_new] = row_slope[at]
            new_width[n_new] = row_width[at]
            new_owner[n_new] = row_owner[at]
            n_new += 1
        while own < n_own:
            new_slope[n_new], new_width[n_new], new_owner[n_new] = own_slope[own], own_width[own], weight
            n_new += 1
            own += 1
        row_slope[:n_new] = new_slope[:n_new]
        row_width[:n_new] = new_width[:n_new]
        row_owner[:n_new] = new_owner[:n_new]
        count[f] = n_new


class SortedMoves:
    """The arrays and the two loops over them."""

    def __init__(self, rows: Array, points: Array, cost: float) -> None:
        n_samples, n_weights = rows.shape
        n_bins = points.shape[1]
        room = n_weights * (n_bins - 1)
        self.peak = np.zeros((n_samples, n_weights))
        # In the order of the loops' arguments. A row that is not complete and has no moves is gathered when
        # it is first asked for.
        self._arrays = (
            rows,
            points,
            cost,
            np.zeros((n_samples, n_weights, n_bins)),  # inputs
            np.zeros((n_samples, n_weights)),  # start
            self.peak,
            np.zeros((n_samples, room)),  # slope
            np.zeros((n_samples, room)),  # width
            np.zeros((n_samples, room), dtype=np.int32),  # owner
            np.zeros(n_samples, dtype=np.int64),  # count
            np.full(n_samples, np.inf),  # limit
            np.zeros(n_samples, dtype=np.bool_),  # complete
        )

    def replace(self, weight: int, inputs: Array) -> None:
        replace(weight, inputs, *self._arrays)

    def walk(self, weight: int | None) -> Array:
        out = np.empty((len(self.peak), 1 if weight is None else self._arrays[1].shape[1]))
        walk(-1 if weight is None else weight, *self._arrays, out)
        return out
