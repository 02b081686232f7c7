"""Groups of features at any resolution: "one of these 14, probability 0.96".

Where columns are correlated, which of them has an effect may be beyond the data, and that one of a few has
may not be. A group is a set of features at least one of which has an effect of its own, with a stated
probability of at least 1 - fdr; it is a single feature where the data allow it, and the neighbourhood of
one where they do not. Groups are disjoint, and no share of false ones larger than fdr is expected [Spector
and Janson 2022].

**The probability of a group** is one of the joint posterior, which marginals do not have. At the labels'
sites of EP, labels and all other weights say exp(-½ wᵀ P w + hᵀ w) of the weights of the most probable
features, the candidates (`sites.joint_cavities`), and under spikes and slabs every set S of features that
are in has odds (`selection.clusters`). From these, sets are drawn by a jump process: a member leaves at rate
1, and a feature j joins at the rate of its odds given those that are in, odds(S + j) / odds(S). That is in
detailed balance, and a feature that leaves is replaced by itself or by one that can stand in its place.
Rows of weights, one for each class, are in or out as a whole: log odds are sums over scores.

**How many features are in** is not known, and of many that are improbable one is in the more surely, the
surer their number is. So prior odds have a common factor r, Gamma distributed with mean one and shape a
[Scott and Berger 2010]. Of r, a set S of candidates says r^|S| exp(-r E), where E is what the prior expects
among candidates, and among all other features beyond what data have found there. Over all r, a feature joins
S at (a + |S|) / (a + E) times its rate.

**Which groups.** Around every leading candidate, of those that are correlated with it by at least a radius,
the most probable are taken until one of them is in with the probability asked for. The smallest group is
reported first, and the search goes on among the features that are left. Features that explain the same labels
stand in for each other even if they hardly go together, as where samples are few: at the last groups are of
the most probable ones of all that are left. The smallest of very many groups is one that draws happen to
favour: groups are sought by one half of the chains, and have the probability that the other half gives them,
too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.problem import Problem
from foldless.registry import registered
from foldless.selection.clusters import (
    Candidates,
    SpikesAndSlabs,
    joint_candidates,
    refined_inclusion,
    said_beyond,
    spikes_and_slabs,
)
from foldless.solvers.gaussian_layer import Positions, Sites

# Chains side by side, and how long each is followed, in mean lives of a member: the first lives are not
# counted. A probability of .9 has a standard error of about .01.
CHAINS, LIVES, LIVES_BEFORE = 64, 32.0, 4.0
MOST_JUMPS = 5000
# A chain has no more members than this; the prior expects ten in all.
MOST_MEMBERS = 40
# Odds beyond this are as good as certain, and finite.
LARGEST_LOG_ODDS = 500.0
# How well the number of features is known, a: where ten are expected it is ten, give or take seven.
SHAPE_OF_RATE = 3.0
# A feature this probable is in every set that is drawn: chains would only lose it and find it again.
CERTAIN = 0.999
# Equally probable sets that probabilities are counted in; those of each half of the chains.
DRAWS = 2000
HALF = DRAWS // 2
# Groups form around so many features, of those correlated with it at least so much: twins first, and then
# whatever shares a tenth of its variance. What is left after these may be in one group with anything.
MOST_LEADERS = 100
RADII, ANYTHING = (0.9, 0.7, 0.5, 0.3), (0.0,)
# A group in which the prior alone would expect a feature, more likely than not, is no discovery.
LARGEST_PRIOR_PROBABILITY = 0.5
OF_EACH = ("columns", "inclusion", "prior_inclusion", "slab_mean", "slab_var")
# Of credible sets.
COVERAGE, PURITY = 0.95, 0.5


@registered("selection/credible-set")
@dataclass(frozen=True, eq=False)
class Group:
    """Features, the most probable first, at least one of which has an effect, with this probability."""

    columns: NDArray[np.intp]
    probability: float
    inclusion: Array  # of each feature alone
    purity: float  # the smallest absolute correlation between two of the features; 1 for a single one

    @property
    def features(self) -> NDArray[np.intp]:
        """The same as `columns`: positions of the features."""
        return self.columns

    @property
    def leader(self) -> int:
        """The most probable of the features."""
        return int(self.columns[0])

    def __str__(self) -> str:
        count = "this column" if self.columns.size == 1 else f"one of these {self.columns.size} columns"
        return f"{count}, probability {self.probability:.2f}: {', '.join(map(str, self.columns))}"


@dataclass(frozen=True, eq=False)
class JointPosterior:
    """Candidates whose joint posterior is drawn from."""

    columns: Positions
    inclusion: Array  # of each alone
    prior_inclusion: Array
    slab_mean: Array
    slab_var: Array
    precision: Array  # (scores, candidates, candidates): P, of the effects beyond a background
    shift: Array  # (scores, candidates): h
    correlation: Array  # absolute, between candidates
    missed: float  # features that the prior expects among all others, beyond those that are found there
    n_certain: int = 0  # others that are in every set

    @classmethod
    def of(cls, found: Candidates) -> JointPosterior:
        own, alike = found.priors, SpikesAndSlabs(*(values[np.newaxis] for values in found.priors))
        said = said_beyond(found.cavities, alike)
        priors = own.inclusion, own.slab_mean, own.slab_var
        return cls(found.columns, found.inclusion, *priors, *said, found.correlation, found.missed)

    @cached_property
    def draws(self) -> NDArray[np.intp]:
        """(draws, members): places of candidates that are in; what is no member is the number of them.

        The first half is of one half of the chains, the second of the other.
        """
        certain = self.inclusion >= CERTAIN
        if not certain.any():
            return self._drawn()
        n, open_ = self.columns.size, np.flatnonzero(~certain)
        drawn = np.append(open_, n)[self._given(certain)._drawn()]
        return np.hstack([drawn, np.broadcast_to(np.flatnonzero(certain), (DRAWS, n - open_.size))])

    def _given(self, certain: NDArray[np.bool_]) -> JointPosterior:
        """The others, where these are in: their weights are integrated out."""
        rest, prior = ~certain, 1.0 / self.slab_var[certain]
        across = self.precision[:, rest][:, :, certain]
        among = self.precision[:, certain][:, :, certain] + np.diag(prior)
        pull = self.shift[:, certain] + prior * self.slab_mean[certain]
        solved = np.linalg.solve(among, np.dstack([across.transpose(0, 2, 1), pull]))
        return replace(
            self,
            precision=self.precision[:, rest][:, :, rest] - across @ solved[:, :, :-1],
            shift=self.shift[:, rest] - np.einsum("src,sc->sr", across, solved[:, :, -1]),
            correlation=self.correlation[np.ix_(rest, rest)],
            missed=self.missed + float(self.prior_inclusion[certain].sum()),
            n_certain=int(certain.sum()),
            **{name: getattr(self, name)[rest] for name in OF_EACH},
        )

    def _drawn(self) -> NDArray[np.intp]:
        states, time, owner = [], [], []
        rng, n = np.random.default_rng(0), self.columns.size
        expected = SHAPE_OF_RATE + max(float(self.prior_inclusion.sum()) + self.missed, 0.0)
        members, size = self._start(rng), np.zeros(CHAINS, dtype=np.intp)
        size[:] = np.sum(members < n, axis=1)
        chain, elapsed = np.arange(CHAINS), np.zeros(CHAINS)
        for _ in range(MOST_JUMPS if n else 0):
            most = max(int(size.max()), 1)
            joins = np.exp(self._log_odds(members[:, :most]))
            joins *= (SHAPE_OF_RATE + self.n_certain + size[:, np.newaxis]) / expected
            joins[size >= MOST_MEMBERS] = 0.0
            reach = np.cumsum(joins, axis=1)
            rate = reach[:, -1] + size
            counted = elapsed >= LIVES_BEFORE
            states.append(members[counted].astype(np.int16))
            time.append(1.0 / rate[counted])
            owner.append(chain[counted])
            elapsed += 1.0 / rate
            if elapsed.min() >= LIVES_BEFORE + LIVES:
                break
            chance = rng.random(CHAINS) * rate
            joined = chance < reach[:, -1]
            added = np.minimum(np.sum(reach <= chance[:, np.newaxis], axis=1), n - 1)
            place = np.minimum((chance - reach[:, -1]).clip(0).astype(np.intp), np.maximum(size - 1, 0))
            last = np.where(joined, size, size - 1)
            # Who leaves gives its place to the last.
            members[chain, np.where(joined, last, place)] = np.where(joined, added, members[chain, last])
            members[chain[~joined], last[~joined]] = n
            size += np.where(joined, 1, -1)
        if not states:
            return np.full((DRAWS, 1), n)
        lasted, later, at = np.concatenate(time), np.concatenate(owner) >= CHAINS // 2, []
        for half in (~later, later):
            share = np.cumsum(np.where(half, lasted, 0.0))
            at.append(np.searchsorted(share, (np.arange(HALF) + 0.5) / HALF * share[-1]))
        found = np.concatenate(states)[np.concatenate(at)].astype(np.intp)
        return found[:, : max(int(np.sum(found < n, axis=1).max()), 1)]

    def _start(self, rng: np.random.Generator) -> Positions:
        """Sets as marginals have them."""
        n = self.columns.size
        members = np.full((CHAINS, MOST_MEMBERS + 1), n)
        for own, inside in zip(members, rng.random((CHAINS, n)) < self.inclusion, strict=True):
            found = np.flatnonzero(inside)[: MOST_MEMBERS // 2]
            own[: found.size] = found
        return members

    def _log_odds(self, members: Positions) -> Array:
        """Of every candidate joining, for each set of members; those that are in cannot."""
        n, n_sets = self.columns.size, len(members)
        inside = members < n
        at = np.where(inside, members, 0)
        var, mean = self.slab_var, self.slab_mean
        log_odds = np.log(self.prior_inclusion) - np.log1p(-self.prior_inclusion)
        log_odds = np.broadcast_to(log_odds, (n_sets, n)).copy()
        diagonal = np.arange(members.shape[1])
        for precision, shift in zip(self.precision, self.shift, strict=True):
            rows = precision[at] * inside[:, :, np.newaxis]
            among = np.take_along_axis(rows, at[:, np.newaxis, :], axis=2) * inside[:, np.newaxis, :]
            among[:, diagonal, diagonal] += np.where(inside, 1.0 / var[at], 1.0)
            covariance = np.linalg.inv(among)
            weights = covariance @ (inside * (shift[at] + mean[at] / var[at]))[:, :, np.newaxis]
            explained = np.einsum("smn,smn->sn", rows, covariance @ rows)
            # Rounding may leave less than nothing of a duplicate.
            left = np.maximum(precision.diagonal() - explained, 0.0)
            pull = shift - np.matmul(weights.transpose(0, 2, 1), rows)[:, 0]
            total = 1.0 + var * left
            log_odds += 0.5 * ((var * pull**2 + 2.0 * mean * pull - mean**2 * left) / total - np.log(total))
        which, place = np.nonzero(inside)
        log_odds[which, members[which, place]] = -np.inf
        return np.minimum(log_odds, LARGEST_LOG_ODDS)

    @cached_property
    def joint_inclusion(self) -> Array:
        """How often each candidate is in, among draws."""
        counts = np.bincount(self.draws.ravel(), minlength=self.columns.size + 1)
        return np.asarray(counts[: self.columns.size] / DRAWS)

    def alone(self, level: float) -> list[Group]:
        """Features that have this probability each by itself."""
        sure = np.flatnonzero((self.inclusion >= level) & (self.prior_inclusion <= LARGEST_PRIOR_PROBABILITY))
        return [self._group(np.array([place]), float(self.inclusion[place])) for place in sure]

    def groups(
        self, level: float, singles: Sequence[Group] | None = None, purity: float = 0.0
    ) -> list[Group]:
        """Disjoint groups of several features, each with at least this probability, the smallest first.

        `singles` stand for themselves, by default those that are as probable; `purity` is the least
        correlation between members.
        """
        singles = self.alone(level) if singles is None else singles
        free, found = ~np.isin(self.columns, [each.leader for each in singles]), []
        # One of a group is no more probable than the sum of all: nothing is drawn where that is too little.
        if self.inclusion @ free < level:
            return []
        for radii in (RADII, ANYTHING) if purity == 0 else (RADII,):
            while smaller := self._around_leaders(free, level, purity, radii):
                for members, probability in smaller:
                    if free[members].all():
                        free[members] = False
                        found.append(self._group(members, probability))
        return found

    def _group(self, members: Positions, probability: float) -> Group:
        members = members[np.argsort(-self.inclusion[members], kind="stable")]
        purity = float(np.min(self.correlation[np.ix_(members, members)]))
        return Group(self.columns[members], probability, self.inclusion[members], purity)

    def _around_leaders(
        self, free: NDArray[np.bool_], level: float, purity: float, radii: Sequence[float]
    ) -> list[tuple[Positions, float]]:
        """Of every leader the smallest group that has the probability, the smallest of these first."""
        n, probable = self.columns.size, self.joint_inclusion
        leaders = np.flatnonzero(free & (probable > 0))
        leaders = leaders[np.argsort(-probable[leaders], kind="stable")]
        # Where anything goes, no group is smaller than that of the most probable ones.
        leaders = leaders[: MOST_LEADERS if radii is RADII else 1]
        if leaders.size == 0:
            return []
        best: dict[int, tuple[int, Positions, float]] = {}
        for radius in radii:
            near = free & (self.correlation[leaders] >= radius)
            rank = np.where(near, -probable, 1.0)
            rank[np.arange(leaders.size), leaders] = -2.0
            order = np.argsort(rank, axis=1, kind="stable")
            place = np.full((leaders.size, n + 1), n)
            np.put_along_axis(place[:, :n], order, np.arange(n), axis=1)
            place[:, :n][rank > 0] = n
            first = place[:, self.draws].min(axis=2)  # of the members of a draw, the one that comes first
            for leader, own, arrived, most in zip(
                leaders.tolist(), order, first, near.sum(axis=1), strict=True
            ):
                halves = [np.bincount(half, minlength=n + 1)[:n] for half in np.split(arrived, 2)]
                # Draws have errors of their own; that one is in is no more probable than the sum of all.
                covered = np.minimum(np.cumsum(halves, axis=1) / HALF, np.cumsum(self.inclusion[own]))
                sought, size = (int(np.searchsorted(c, level)) + 1 for c in (covered[0], covered.min(axis=0)))
                if size > most or (leader in best and best[leader][0] <= sought):
                    continue
                members = own[:size]
                expected = float(np.sum(self.prior_inclusion[members]))
                prior = 1.0 - (1.0 + expected / SHAPE_OF_RATE) ** -SHAPE_OF_RATE
                pure = purity == 0 or self.correlation[np.ix_(members, members)].min() >= purity
                if size > 1 and pure and prior <= LARGEST_PRIOR_PROBABILITY:
                    best[leader] = sought, members, float(covered[:, size - 1].min())
        return [each[1:] for each in sorted(best.values(), key=lambda each: (each[0], -each[2]))]


def single_features(inclusion: Array, selected: Positions) -> list[Group]:
    """Features that are selected by themselves, each a group of its own, the surest first."""
    chosen = selected[np.argsort(-inclusion[selected], kind="stable")]
    return [Group(np.array([j]), float(inclusion[j]), inclusion[[j]], 1.0) for j in chosen]


class CredibleSets(NamedTuple):
    """Disjoint sets, the one with the surest column first, and what else the clusters have shown."""

    sets: tuple[Group, ...]
    # Of every weight; those of clustered columns are their joint posterior's.
    inclusion: Array
    # The largest share of a cluster's configurations that is estimated not to have been visited.
    neglected: float


def credible_sets(
    problem: Problem,
    sites: Sites,
    inclusion: Array,
    *,
    coverage: float = COVERAGE,
    purity: float = PURITY,
) -> CredibleSets:
    """Groups of columns that are all correlated with each other, as in SuSiE [Wang et al. 2020].

    Of columns whose prior has a spike, from the sites of a solution of any likelihood.

    Parameters
    ----------
    problem : as tuned
    sites : those of EP, or `solvers.sites.sites_at_cavities` of any solver's state
    inclusion : inclusion probabilities of all weights, by which clusters are found
    coverage : the least probability that at least one column of a set is in
    purity : the least absolute correlation between two columns of a set
    """
    _check_share("coverage", coverage)
    _check_share("purity", purity)
    refined, neglected = refined_inclusion(problem, sites, inclusion)
    if not spikes_and_slabs(problem.prior, refined.size)[1].any():
        return CredibleSets((), refined, neglected)
    joint = JointPosterior.of(joint_candidates(problem, sites, refined))
    found = joint.alone(coverage) + joint.groups(coverage, purity=purity)
    return CredibleSets(tuple(sorted(found, key=lambda each: -each.inclusion[0])), refined, neglected)


def _check_share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, for instance 0.95; got {value!r}.")
