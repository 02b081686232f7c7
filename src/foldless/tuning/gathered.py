"""Weights of several models side by side, so that one visit of the samples predicts with all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from foldless.beliefs import Array
from foldless.channels import FlippedLabels, Logistic
from foldless.channels.logistic import LEAST_ROWS_COMPILED, log_tails
from foldless.kernels import compiled
from foldless.operators import Operator

if TYPE_CHECKING:
    from foldless.tuning.portfolio import Part, Weights


@dataclass(frozen=True, eq=False)
class Gathered:
    """The weights of all parts of an average, each once."""

    parts: tuple[Part, ...]
    place: tuple[int, ...]  # of a part's weights among the different ones
    different: tuple[Weights, ...]
    mean: Array  # (features, scores of all that are not zero)
    var: Array  # likewise, of those whose variances a part needs
    mean_at: tuple[slice | None, ...]  # of the different ones
    var_at: tuple[slice | None, ...]

    @classmethod
    def of(cls, parts: tuple[Part, ...]) -> Gathered:
        different: list[Weights] = []
        place = []
        for part in parts:
            known = (n for n, own in enumerate(different) if _are_equal(own, part.weights))
            place.append(next(known, len(different)))
            if place[-1] == len(different):
                different.append(part.weights)
        unsure = {n for n, part in zip(place, parts, strict=True) if part.certainty > 0}
        mean, mean_at = _side_by_side([own.mean if own.mean.any() else None for own in different])
        var, var_at = _side_by_side(
            [own.of_scores if n in unsure else None for n, own in enumerate(different)]
        )
        return cls(parts, tuple(place), tuple(different), mean, var, mean_at, var_at)

    def scores(self, means: Array, variances: Array) -> list[tuple[Array, Array | None]]:
        """Of every part, from its columns of products: means, and variances as far as it is unsure."""
        shape = (means.shape[0], self.different[0].intercept.size)
        found: list[tuple[Array, Array | None]] = []
        for part, n in zip(self.parts, self.place, strict=True):
            own, at, var_at = self.different[n], self.mean_at[n], self.var_at[n]
            mean = np.broadcast_to(own.intercept, shape) if at is None else means[:, at] + own.intercept
            var = None
            if part.certainty > 0 and var_at is not None:
                var = part.certainty * part.spread * (variances[:, var_at] + own.intercept_var)
            found.append((mean, var))
        return found

    def products(self, operator: Operator) -> tuple[Array, Array]:
        """Of the samples with all means, and of their squares with all variances."""
        if self.mean.shape[1] and self.var.shape[1]:
            return operator.scores_and_variances(self.mean, self.var)
        nothing = np.empty((operator.shape[0], 0))
        means = operator.scores(self.mean) if self.mean.shape[1] else nothing
        return means, operator.score_variances(self.var) if self.var.shape[1] else nothing

    def proba(self, means: Array, variances: Array) -> Array | None:
        """Of two classes by loops where these serve, NaN where a row is not for them; else None."""
        if self._as_arguments is None or means.shape[0] < LEAST_ROWS_COMPILED:
            return None
        if (loops := compiled("mixtures")) is None:
            return None
        found = np.empty((means.shape[0], 2))
        loops.mixture_rows(means, variances, *self._as_arguments, log_tails(), found)
        return found

    @cached_property
    def _as_arguments(self) -> tuple[Array, ...] | None:
        """What `kernels.mixtures` takes of every part, in log-odds, if all have logistic channels."""
        rows = []
        for part, n in zip(self.parts, self.place, strict=True):
            channel, flip, own, at = part.channel, 0.0, self.different[n], self.var_at[n]
            if isinstance(channel, FlippedLabels):
                flip, channel = channel.flip_prob, channel.base
            if not (isinstance(channel, Logistic) and channel.exact and channel.scale == 1.0):
                return None
            mean_at, var_at = self.mean_at[n], at if part.certainty > 0 else None
            first = [-1 if columns is None else columns.start for columns in (mean_at, var_at)]
            moments = float(own.intercept[0]), float(own.intercept_var[0])
            rows.append((*first, *moments, part.certainty * part.spread, flip, part.weight))
        columns = np.array(rows).T
        return (*columns[:2].astype(np.intp), *np.ascontiguousarray(columns[2:]))


def _are_equal(one: Weights, other: Weights) -> bool:
    """Models that were saved and read again no longer share what they had in common."""
    return one is other or all(map(np.array_equal, vars(one).values(), vars(other).values()))


def _side_by_side(blocks: Sequence[Array | None]) -> tuple[Array, tuple[slice | None, ...]]:
    """The blocks that there are, as one array, and where in it each is."""
    present = [block for block in blocks if block is not None]
    ends = np.cumsum([0 if block is None else block.shape[1] for block in blocks])
    at = tuple(
        None if block is None else slice(int(end) - block.shape[1], int(end))
        for block, end in zip(blocks, ends, strict=True)
    )
    if not present:
        return np.empty((0, 0)), at
    return present[0] if len(present) == 1 else np.hstack(present), at
