"""The moves of all weights, kept sorted for every sample, as loops only.

NumPy has no merge, so its form is another algorithm, which sorts: `solvers.knapsack.factors.LinearFactors`.

A row per sample: slope, width and owner (the weight) of each move, cheapest first. A message to one weight
walks along a row past that weight's own moves; a new message from one weight replaces its own moves by a
merge. Neither sorts anything.

A walk ends where a margin of 1 is reached or violating it is cheaper, and most moves lie beyond. So a row has
only moves of a slope above its `limit`. Where a walk runs off the end of a row, the row is gathered again
from the messages, with a lower limit, and walked again: the answer is that of all moves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from foldless.beliefs import Array
from foldless.kernels import kernel

# A row has moves for this many times the largest score that a walk may need. Moves change between walks, so
# twice as much saves gathering rows again and again; more makes every merge longer.
SPARE = 2.0
# With a feature this small, no move of the feature's weight brings a sample any score.
NEGLIGIBLE = 1e-12


class Moves(NamedTuple):
    """What the loops share and change in place."""

    rows: Array  # (samples, weights): signed features
    points: Array  # (weights, bins)
    cost: float  # of violating a margin
    inputs: Array  # (samples, weights, bins)
    start: Array  # (samples, weights): the share of the score where a message is largest
    peak: Array  # and the message there
    slope: Array  # (samples, moves), as is all that follows, up to `count`
    width: Array
    owner: Any
    count: Any  # (samples,)
    limit: Array
    complete: Any  # whether a row has all moves there are

    @classmethod
    def none(cls, rows: Array, points: Array, cost: float) -> Moves:
        """A row that is not complete and has no moves is gathered when it is first walked."""
        (n_samples, n_weights), n_bins = rows.shape, points.shape[1]
        by_weight, by_move = (n_samples, n_weights), (n_samples, n_weights * (n_bins - 1))
        return cls(
            np.ascontiguousarray(rows, dtype=np.float64),
            points,
            float(cost),
            np.zeros((*by_weight, n_bins)),
            np.zeros(by_weight),
            np.zeros(by_weight),
            np.zeros(by_move),
            np.zeros(by_move),
            np.zeros(by_move, dtype=np.int32),
            np.zeros(n_samples, dtype=np.int64),
            np.full(n_samples, np.inf),
            np.zeros(n_samples, dtype=np.bool_),
        )


@kernel()
def hull_moves(
    f: int, j: int, moves: Any, limit: float, corner_s: Array, corner_u: Array, slope: Array, width: Array
) -> Any:
    """The moves of one message: how many, and whether these are all; where they start into its place."""
    a, points, inputs, cost = moves.rows[f, j], moves.points[j], moves.inputs[f, j], moves.cost
    n_bins = points.size
    first, best = 0, -np.inf
    for k in range(n_bins):
        bin_ = k if a >= 0 else n_bins - 1 - k
        if inputs[bin_] >= best:
            first, best = k, inputs[bin_]
    if abs(a) <= NEGLIGIBLE:
        moves.start[f, j], moves.peak[f, j] = 0.0, best
        return 0, True
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
    moves.start[f, j], moves.peak[f, j] = corner_s[0], best
    n_moves = 0
    for k in range(1, top):
        # What alone costs as much as a violation is never worth going beyond.
        if corner_u[k - 1] - best <= -cost:
            break
        step = corner_s[k] - corner_s[k - 1]
        steepness = (corner_u[k] - corner_u[k - 1]) / step
        if steepness < limit:
            return n_moves, False
        slope[n_moves], width[n_moves] = steepness, step
        n_moves += 1
    return n_moves, True


@kernel()
def gather(f: int, need: float, spare: float, moves: Any) -> None:
    """A sample's row from its messages: `spare` times the moves that a walk to `need` takes now."""
    n_weights, n_bins = moves.points.shape
    corner_s, corner_u = np.empty(n_bins), np.empty(n_bins)
    own_slope, own_width = np.empty(n_bins), np.empty(n_bins)
    all_slope, all_width = np.empty(n_weights * n_bins), np.empty(n_weights * n_bins)
    all_owner = np.empty(n_weights * n_bins, dtype=moves.owner.dtype)
    n_all = 0
    for j in range(n_weights):
        n_own, _ = hull_moves(f, j, moves, -np.inf, corner_s, corner_u, own_slope, own_width)
        for k in range(n_own):
            all_slope[n_all], all_width[n_all], all_owner[n_all] = own_slope[k], own_width[k], j
            n_all += 1
    # Stable: the moves of one weight stay in their order.
    order = np.argsort(-all_slope[:n_all], kind="mergesort")
    moved, lost, n_kept = 0.0, 0.0, 0
    while n_kept < n_all and moved < spare * need and lost > -spare * moves.cost:
        at = order[n_kept]
        moved += all_width[at]
        lost += all_slope[at] * all_width[at]
        n_kept += 1
    # All moves as cheap as the last one belong to the row.
    while 0 < n_kept < n_all and all_slope[order[n_kept]] == all_slope[order[n_kept - 1]]:
        n_kept += 1
    for k in range(n_kept):
        at = order[k]
        moves.slope[f, k], moves.width[f, k], moves.owner[f, k] = all_slope[at], all_width[at], all_owner[at]
    moves.count[f] = n_kept
    moves.complete[f] = n_kept == n_all
    moves.limit[f] = -np.inf if n_kept in (0, n_all) else moves.slope[f, n_kept - 1]


@kernel()
def walk_row(f: int, a: float, weight: int, base: float, moves: Any, out: Array) -> bool:
    """One sample's message to one weight; False if the row was too short for it."""
    slope, width, owner, count = moves.slope[f], moves.width[f], moves.owner[f], moves.count[f]
    points, cost = moves.points[max(weight, 0)], moves.cost
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
        if not too_dear and at == count and not moves.complete[f]:
            return False
        if too_dear or at == count:
            out[bin_] = -cost
        else:
            out[bin_] = max(lost + slope[at] * (need - moved), -cost)
    return True


@kernel()
def walk(weight: int, moves: Any, out: Array) -> None:
    """Messages of all samples to one weight; with weight = -1, what reaching the margin costs each sample."""
    n_samples, n_weights = moves.rows.shape
    reach = np.abs(moves.points[max(weight, 0)]).max()
    for f in range(n_samples):
        a = moves.rows[f, weight] if weight >= 0 else 0.0
        base = 0.0
        for j in range(n_weights):
            if j != weight:
                base += moves.start[f, j]
        need = max(1.0 - base + abs(a) * reach, 1.0)
        spare = SPARE
        while not walk_row(f, a, weight, base, moves, out[f]):
            gather(f, need, spare, moves)
            spare *= SPARE


@kernel()
def replace(weight: int, new_inputs: Array, moves: Any) -> None:
    """New messages (samples, bins) from one weight: its moves in every row are replaced."""
    n_samples, n_bins = new_inputs.shape
    corner_s, corner_u = np.empty(n_bins), np.empty(n_bins)
    own_slope, own_width = np.empty(n_bins), np.empty(n_bins)
    new_slope, new_width = np.empty(moves.slope.shape[1]), np.empty(moves.slope.shape[1])
    new_owner = np.empty(moves.slope.shape[1], dtype=moves.owner.dtype)
    for f in range(n_samples):
        moves.inputs[f, weight] = new_inputs[f]
        n_own, every = hull_moves(f, weight, moves, moves.limit[f], corner_s, corner_u, own_slope, own_width)
        moves.complete[f] = moves.complete[f] and every
        row_slope, row_width, row_owner = moves.slope[f], moves.width[f], moves.owner[f]
        n_new, own = 0, 0
        for at in range(moves.count[f]):
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
        moves.count[f] = n_new
