"""EP of a few effects over a Gaussian background, in matrices of samples by samples.

A weight is a sparse effect beside its part of a dense background, w_j = b_j + g_j with g_j ~ N(0, s_j)
(`priors.OverBackground`). Where b_j is improbable it is left out, and the site of w_j is that of the
background, which never moves. So only *active* features have sites that are learnt. All others are *held*:
together they make scores a Gaussian field of the fixed covariance

    K = Σ_held s_j x_j x_jᵀ,

one product over X, or over its non-zeros. An iteration is one of `EP` with the active features alone, in
O(M³ + M² q) for q of them, whatever the number of features, and in O(M² q) while labels are near those of the
last factor (`gaussian_layer.NearKernel`). Columns that are always kept are active.

**Which are active?** Let ρ be the slopes of the label sites at the scores, and W the precision of labels and
field together. Then the cavity of a held weight has the precision e / (1 - s e), with e = x_jᵀ W x_j, and is
about x_jᵀ ρ / e. All x_jᵀ ρ are one sweep, and so are all e if W is replaced by its diagonal. That makes e
too large for columns that go with the field: by a quarter for half of the words of a document, by a factor of
two for few. A feature whose effect would be probable at half of that e becomes active, and has its exact
cavity from then on. A fit is complete when a look over all features finds no more of them. It is that of EP
over all features in a model in which only the active ones can have effects. Very many improbable effects of
the others would make scores a little vaguer, and left-out labels are predicted better without these.

**Exact looks.** Where samples are few, thousands of effects, each of them hardly probable, can make up more
of the scores than the background does. With `exact_looks` e is computed as it is, in a product of W with all
columns; the sites of held weights are updated at their cavities, as in `EP`; and so the field changes, in
another product. Such a look takes as long as the rest of an iteration, and most of the change is in few
columns. These are *watched*: only they are looked at, in every third iteration, until they have settled, and
then all are looked at again. The fixed point is that of EP over all features.

Without effects the same solver fits the background alone, a ridge regression.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from foldless.beliefs import Array, Posterior
from foldless.operators.base import Operator
from foldless.priors import Prior
from foldless.priors.wrappers import background_of
from foldless.problem import Problem
from foldless.registry import registered
from foldless.solvers.double_loop import Marginals
from foldless.solvers.ep import EP, LABEL_STEP, EPState, held_kernel, state_of
from foldless.solvers.gaussian_layer import (
    FACTOR_DTYPE,
    Block,
    Gaussian,
    HeldKernel,
    NotPositiveDefinite,
    Opened,
    Positions,
    Scores,
    Sites,
    Tiles,
)
from foldless.solvers.held_background import FewColumns, HeldBackground
from foldless.solvers.message_passing import (
    VAGUEST_START,
    AdaptiveDamping,
    Damping,
    Pace,
    Secants,
    psi,
    psi_difference,
)
from foldless.solvers.sites import LARGEST_GROWTH, Cavities, FreeWeights, opened_layers, score_cavities

# Effects are looked for from this iteration on: before, label sites are still far from where they settle.
FIRST_LOOK = 3
# A feature becomes active if its effect has at least this probability. Sweeps judge it by a cavity with this
# share of the precision that the diagonal of W gives it.
LEAST_INCLUSION, SHARE_OF_DIAGONAL = 0.05, 0.5
# Exact looks are in every third iteration. If held weights moved only after all others have settled, they
# would go too far, and all others with them. Looks end once one at all held weights moves their variances by
# less than this share of the sum of these.
LOOK_EVERY = 3
MOVED_LITTLE = 0.001
# If an exact look finds a feature to become active, those of this probability become active with it: they may
# have to soon.
ALONG_INCLUSION = 0.01
# Held weights whose variances move least stay as they are: as many as make up together the first share of all
# variances, or the second of all moves, whichever is more. Among them may be twins of one active feature,
# whose probability is then wrong: with five times these shares by up to 0.002.
LEFT_ALONE, LEFT_OF_MOVES = 0.0001, 0.02
# Watched are the columns of the largest moves: all but the first share of the moves, and at most the second
# share of all columns; until they move by less than the third share of what all moved when they were chosen.
NOT_WATCHED, MOST_WATCHED, SETTLED_WATCHED = 0.2, 0.05, 0.1
TINY = float(np.finfo(np.float64).tiny)
# A variance that leaves a weight at zero, and has an inverse.
NO_BACKGROUND = 1e-15
# So many features become active at once at most. (After two hundred wide effects at once, scores would be so
# vague that labels hardly inform about weights.) Sweeps look in every iteration, and rare words that go
# together settle sooner if few become active at a time.
MOST_ADDED, MOST_ADDED_BY_SWEEP = 64, 16
# Between two factors the shifts of label sites move so often at most; and only as long as scores move by less
# than this share of the move before, and by more than that share of their own size.
MOST_SHIFTS, STILL_SHRINKS, SETTLED_MEANS = 4, 0.7, 0.01
# The change of an iteration after which more features become active: too large for it to be the last.
INCOMPLETE = 1.0
# s e, the share by which labels make a held weight surer, is at most this: beyond it the diagonal misleads.
LARGEST_SHARE = 0.99
# The e of a column that never varies is 0; this takes its place, as it must have an inverse.
LEAST_PRECISION = 1e-12


class AllOverHeld(Tiles):
    """All columns: those that are free, beside the field of those that are held."""

    def __init__(self, operator: Operator, state: BackgroundState) -> None:
        super().__init__(operator, FACTOR_DTYPE, keeps=False)
        self.state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return AllOverHeld, (self.operator, self.state)

    def opened(self, sites: Sites, sample_weight: Array, free: Positions) -> Opened:
        """Active weights are free, whether they are asked for or not."""
        state, freed = self.state, np.setdiff1d(free, self.state.active)
        assert isinstance(state.tiles, HeldBackground)
        tiles = state.tiles.freed(self.operator.columns(freed), state.spread[freed], state.shift[freed])
        positions = np.append(state.active, freed)
        order = np.argsort(positions)
        columns = tiles.active_columns[:, order]
        return HeldKernel(tiles.kernel, tiles.held_scores, positions[order], columns, sites, sample_weight)


class Watched(NamedTuple):
    """Held columns that are looked at until they have settled."""

    positions: Positions
    columns: Array
    moved: float  # the share by which the variances of all held weights moved when these were chosen


@dataclass(frozen=True, eq=False)
class BackgroundState(EPState):
    """Sites and moments of the active features, in the order of `active`, and the sites of all others."""

    active: Positions
    # The inverse precisions and the shifts of the sites of held weights; zero for active ones.
    spread: Array
    shift: Array
    # In the log evidence, the logs of the factors of held weights over those of their sites.
    held_log_factor: Array
    reduced: Problem  # the problem of the active features alone
    complete: bool  # whether no more features are to become active
    moved: float = INCOMPLETE  # the share by which the variances of held weights moved in the last look
    # e of every weight, as exact looks last found it; and the columns that are watched (None: all of them).
    said: Array | None = None
    watched: Watched | None = None
    # The marginals of active weights that the next iteration holds, if it is one of two loops.
    marginals: Marginals | None = None

    def over_background(self, problem: Problem, background: Array, sites: Sites) -> Scores:
        """As in `EPState`; if held weights have not moved, by the field that is at hand."""
        held = self.spread > 0
        if not np.array_equal(self.spread[held], background[held]):
            return super().over_background(problem, background, sites)
        opened = self.tiles.opened(sites, problem.sample_weight, self.active)
        precision = 1.0 / np.maximum(background[self.active], NO_BACKGROUND)
        return opened.scores(Block(opened, precision, np.zeros(self.active.size)))

    def problem_of(self, problem: Problem) -> Problem:
        return self.reduced

    @property
    def all_sites(self) -> Sites:
        with np.errstate(divide="ignore"):
            precision, shift = 1.0 / self.spread, self.shift.copy()
        precision[self.active], shift[self.active] = self.sites[:2]
        return self.sites._replace(prior_precision=precision, prior_shift=shift)

    def all_tiles(self, problem: Problem) -> Tiles:
        return AllOverHeld(problem.operator, self)

    @property
    def change(self) -> float:
        return self.pace.change if self.complete else max(self.pace.change, self.moved)


@registered("solver/background-ep")
@dataclass(frozen=True)
class BackgroundEP(EP):
    """Expectation propagation for `OverBackground`, of one score; without effects, of its background."""

    effects: bool = True
    # Whether looks at held features are by W, a product with all columns, and so are rare; or by its
    # diagonal, a sweep, which for rare words differs little.
    exact_looks: bool = False
    # Under a fixed field, label sites of a log-concave channel need no damping.
    damping: Damping = field(default_factory=lambda: AdaptiveDamping(smallest=0.2))

    def init(self, problem: Problem) -> BackgroundState:
        n_weights = problem.operator.shape[1]
        background = background_of(problem.prior, n_weights)
        active = np.zeros(0, dtype=np.intp) if problem.kept is None else problem.kept.positions
        reduced = _reduced(problem, active)
        mean, var = problem.prior.start(n_weights)
        kernel, columns = held_kernel(problem, background), problem.operator.columns(active)
        # The first label sites are made as though scores were no vaguer than this.
        score_var = np.minimum(kernel.diagonal() + columns**2 @ var[active], VAGUEST_START)
        score_var = np.maximum(score_var, np.finfo(float).tiny)
        none = np.zeros(problem.operator.shape[0])
        precision = 1.0 / var[active]
        scores = Scores(columns @ mean[active], score_var, 1.0 / score_var)
        nothing = np.zeros(active.size)
        state = state_of(
            reduced,
            Sites(precision, precision * mean[active], none, none),
            Gaussian(mean[active], var[active], nothing, nothing, scores, 0.0),
            BackgroundState(
                pace=self._first_pace(none.shape),
                iteration=0,
                log_evidence=-np.inf,
                tiles=HeldBackground(kernel, columns, nearby=not self.exact_looks),
                sites=None,  # type: ignore[arg-type]
                gaussian=None,  # type: ignore[arg-type]
                weight_cavities=None,  # type: ignore[arg-type]
                score_cavities=None,  # type: ignore[arg-type]
                active=active,
                spread=background,
                shift=np.zeros(n_weights),
                held_log_factor=np.zeros(n_weights),
                reduced=reduced,
                complete=not self.effects,
            ),
        )
        return _of(state)

    def step(self, problem: Problem, state: EPState) -> EPState:
        state = _of(state)
        if state.reduced.channel is not problem.channel:
            state = replace(state, reduced=_reduced(problem, state.active))
        if self.effects and state.iteration >= FIRST_LOOK and self._is_time(state):
            state = self._looked(problem, state)
        if state.active.size == (0 if problem.kept is None else problem.kept.positions.size):
            # Without active effects label sites do not go round in circles, and leaps would lead them astray.
            state = replace(state, secants=Secants())
        state = _of(super().step(state.reduced, state))
        if state.marginals is not None:
            now = state.gaussian
            found = state.marginals.following(now.mean, now.var, state.sites.prior_precision)
            # With other marginals the iteration is another one: leaps must not be computed from earlier
            # points.
            state = replace(state, marginals=found, secants=Secants())
        state = replace(
            state,
            score_cavities=_without_labels(problem, state),
            log_evidence=state.log_evidence + float(np.sum(state.held_log_factor)),
        )
        return state if self.effects else self._settled_means(problem, state)

    def otherwise(self, problem: Problem, state: EPState) -> BackgroundState | None:
        """By two loops, in which near twins settle that go round in circles otherwise (`double_loop`).

        The sites that went round are no start. Each weight begins with a site about zero that is as precise
        as what labels tell of this weight alone.
        """
        state = _of(state)
        if not (self.effects and self.exact_looks) or state.marginals is not None or not state.active.size:
            return None
        opened = state.tiles.opened(state.sites, problem.sample_weight, np.arange(state.active.size))
        alone = np.maximum(opened.precision.diagonal().astype(np.float64), LEAST_PRECISION)
        block = Block(opened, alone, np.zeros(alone.size))
        sites = state.sites.with_prior(opened.free, alone, block.site_shift)
        wide = replace(state, marginals=Marginals.of(block.mean, block.var))
        return _of(state_of(state.reduced, sites, opened.closed(block), self.as_start(wide), proposed=None))

    def _free(self, state: EPState, towards: Sites, n_samples: int) -> Positions:
        if _of(state).marginals is None:
            return super()._free(state, towards, n_samples)
        return np.arange(towards.prior_precision.size)

    def _free_answer(
        self, problem: Problem, state: EPState, opened: Sequence[Opened], sites: Sites
    ) -> FreeWeights:
        marginals = _of(state).marginals
        if marginals is None:
            return super()._free_answer(problem, state, opened, sites)
        weights = FreeWeights.at(opened, sites, state.gaussian.var)
        (block,) = weights.blocks
        beside = marginals.beside(block.site_precision - sites.prior_precision)
        return replace(weights, blocks=[beside.answered(problem.prior, block)])

    def _settled_means(self, problem: Problem, state: BackgroundState) -> BackgroundState:
        """After shifts of label sites have moved on; as long as precisions stay, that takes no other factor.

        For a background alone. Effects settle more slowly than labels do; and if labels moved ahead of them,
        hundreds of rare words that go together would be led astray.
        """
        weight, before = problem.label_weight, np.inf
        size = float(np.sqrt(weight @ state.gaussian.scores.mean**2))
        for _ in range(MOST_SHIFTS if np.isfinite(state.pace.change) else 0):
            at, precision = state.score_cavities, state.sites.label_precision
            slope = problem.channel.respond(at.mean, at.var, problem.labels).slope
            shift = at.mean * precision + slope * (1.0 + at.var * precision)
            shift = np.where(at.proper & np.isfinite(shift), shift, state.sites.label_shift)
            sites = state.sites._replace(label_shift=shift)
            try:
                opened = opened_layers(state.tiles, sites, problem.sample_weight, state.active)
                free = FreeWeights.at(opened, sites, state.gaussian.var)
                free = free.answered(state.reduced, state.weight_cavities)
                other = _of(state_of(state.reduced, free.sites, free.gaussian(), state, proposed=None))
            except NotPositiveDefinite:
                break
            move = other.gaussian.scores.mean - state.gaussian.scores.mean
            moved = float(np.sqrt(weight @ move**2))
            if not moved < STILL_SHRINKS * before:
                break
            state = replace(other, score_cavities=_without_labels(problem, other))
            if moved <= SETTLED_MEANS * size:
                break
            before = moved
        return state

    def _is_time(self, state: BackgroundState) -> bool:
        """Whether to look: always if looks are sweeps, otherwise now and then until held weights settle."""
        its_turn = (state.iteration - FIRST_LOOK) % LOOK_EVERY == 0
        return not self.exact_looks or (its_turn and not state.complete)

    def _looked(self, problem: Problem, state: BackgroundState) -> BackgroundState:
        """With all features active that should be; complete if none became so."""
        if self.exact_looks:
            return self._looked_exactly(problem, state)
        said, slope = said_by_diagonal(problem, state)
        held = Held.of(said, slope, state.spread, state.shift)
        glance = Held.of(SHARE_OF_DIAGONAL * said, slope, state.spread, state.shift)
        inclusion = _inclusion(problem.prior, glance, state.spread)
        added = _largest(inclusion, LEAST_INCLUSION, MOST_ADDED_BY_SWEEP)
        if added.size:
            state = self._with_active(problem, state, held, added, added)
        return replace(state, complete=added.size == 0)

    def _looked_exactly(self, problem: Problem, state: BackgroundState) -> BackgroundState:
        """With held weights updated as well; complete only if all were looked at and hardly moved."""
        watched, n_weights = state.watched, problem.operator.shape[1]
        if watched is None:
            at = np.arange(n_weights)
            tiles, prior = Tiles(problem.operator, FACTOR_DTYPE, keeps=False), problem.prior
        else:
            at, tiles = watched.positions, FewColumns(watched.columns)
            prior = problem.prior.of_columns(at, n_weights)
        said, slope = said_exactly(problem, state, tiles)
        known = np.empty(n_weights) if state.said is None else state.said.copy()
        known[at] = said
        held = Held.of(said, slope, state.spread[at], state.shift[at])
        inclusion = _inclusion(prior, held, state.spread[at])
        worth_it = np.any(inclusion >= LEAST_INCLUSION)
        added = _largest(inclusion, ALONG_INCLUSION if worth_it else np.inf, MOST_ADDED)
        if added.size:
            state = self._with_active(problem, state, held, at[added], added)
        answers = held.answers(prior, state.spread[at], state.shift[at])
        del held, said, slope, inclusion  # each as long as there are features; columns are visited again now
        state = self._answered(tiles, replace(state, said=known), answers, at)
        return replace(state, complete=False, moved=INCOMPLETE) if added.size else state

    def _with_active(
        self, problem: Problem, state: BackgroundState, held: Held, added: Positions, place: Positions
    ) -> BackgroundState:
        """With more active features, at the sites they were held with; `place` is theirs in `held`."""
        active, spread = np.append(state.active, added), state.spread[added]
        reduced, sites, now = _reduced(problem, active), state.sites, state.gaussian
        sites = sites._replace(
            prior_precision=np.append(sites.prior_precision, 1.0 / spread),
            prior_shift=np.append(sites.prior_shift, state.shift[added]),
        )
        gaussian = now._replace(
            mean=np.append(now.mean, held.mean[place]),
            var=np.append(now.var, held.var[place]),
            data_precision=np.append(now.data_precision, 1.0 / held.cavity_var[place]),
            data_slope=np.append(now.data_slope, held.slope[place]),
        )
        assert isinstance(state.tiles, HeldBackground)
        tiles = state.tiles.freed(problem.operator.columns(added), spread, state.shift[added])
        held_spread, shift, factor = state.spread.copy(), state.shift.copy(), state.held_log_factor.copy()
        held_spread[added], shift[added], factor[added] = 0.0, 0.0, 0.0
        found = replace(
            state,
            tiles=tiles,
            active=active,
            spread=held_spread,
            shift=shift,
            held_log_factor=factor,
            reduced=reduced,
            complete=False,
        )
        if state.marginals is not None:
            # Held weights have narrow marginals, which two loops leave slowly: these weights begin wide, too.
            alone, cavity_mean = 1.0 / held.cavity_var[place], held.cavity_mean[place]
            at = np.arange(active.size - added.size, active.size)
            sites = sites.with_prior(at, alone, np.zeros(added.size))
            found = replace(found, marginals=state.marginals.and_those(0.5 * cavity_mean, 0.5 / alone))
        return _of(state_of(reduced, sites, gaussian, found, proposed=None, secants=Secants()))

    def _answered(
        self, tiles: Tiles, state: BackgroundState, answers: tuple[Array, Array, Array], at: Positions
    ) -> BackgroundState:
        """After the sites of the held weights `at` have moved to those that their priors want."""
        before, shift_before = state.spread[at], state.shift[at]
        spread, shift, factors = answers
        # Those that would hardly move stay, so that only columns of the others change the field.
        change, total = np.abs(spread - before), float(np.sum(state.spread))
        moved, order = float(np.sum(change)) / total, np.argsort(change)
        sums = np.cumsum(change[order])
        stays = order[sums <= max(LEFT_ALONE, LEFT_OF_MOVES * moved) * total]
        spread[stays], shift[stays] = before[stays], shift_before[stays]
        after, shifts, factor = (
            values.copy() for values in (state.spread, state.shift, state.held_log_factor)
        )
        after[at], shifts[at], factor[at] = spread, shift, factors
        watched, settled, chosen = state.watched, False, np.zeros(0, dtype=np.intp)
        if watched is None and not (settled := moved < MOVED_LITTLE):
            few = order.size - math.ceil(MOST_WATCHED * order.size)
            chosen = np.sort(order[max(np.count_nonzero(sums <= NOT_WATCHED * moved * total), few) :])
        assert isinstance(state.tiles, HeldBackground)
        held_tiles, columns = state.tiles.changed(
            tiles, spread - before, spread * shift - before * shift_before, chosen
        )
        if watched is not None:
            done = moved < max(SETTLED_WATCHED * watched.moved, MOVED_LITTLE)
            # Of columns that are not watched it is not known how far they are to move.
            moved = max(moved, NOT_WATCHED * watched.moved, MOVED_LITTLE)
            watched = None if done else watched
        elif not settled:
            watched = Watched(chosen, columns, moved)
        return replace(
            state,
            tiles=held_tiles,
            spread=after,
            shift=shifts,
            held_log_factor=factor,
            complete=settled,
            moved=moved,
            watched=watched,
            # After the field has changed, earlier moves of labels tell nothing of the next ones.
            pace=replace(state.pace, move=np.zeros_like(state.pace.move), square=0.0),
            proposed=None,
            secants=Secants(),
        )

    def _at_pace(self, state: EPState, pace: Pace) -> EPState:
        if _of(state).marginals is not None:
            largest = min(pace.largest_step, LABEL_STEP)
            pace = replace(pace, step=min(pace.step, largest), largest_step=largest)
        paced = replace(super()._at_pace(state, pace), complete=not self.effects)  # type: ignore[call-arg]
        return replace(paced, watched=None)  # type: ignore[call-arg]

    def _said(self, problem: Problem, state: BackgroundState) -> tuple[Array, Array]:
        """e and slope of every weight; e of the last exact look, if held weights had settled in it."""
        if not self.exact_looks:
            return said_by_diagonal(problem, state)
        if state.complete and state.said is not None:
            return state.said, problem.operator.adjoint(_slope(problem, state))
        return said_exactly(problem, state, Tiles(problem.operator, FACTOR_DTYPE, keeps=False))

    def posterior(self, problem: Problem, state: EPState) -> Posterior:
        """Of all weights; those that are not active have the cavities of a look."""
        state = _of(state)
        held = Held.of(*self._said(problem, state), state.spread, state.shift)
        own, at = state.active, state.weight_cavities
        mean, var, cavity_mean, cavity_var = (values.copy() for values in held[:4])
        mean[own], var[own] = state.gaussian.mean, state.gaussian.var
        cavity_mean[own], cavity_var[own] = at.mean, at.var
        left_out = _without_labels(problem, state, problem.sample_weight)
        return Posterior(
            mean=mean,
            var=var,
            cavity_mean=cavity_mean,
            cavity_var=cavity_var,
            loo_mean=left_out.mean,
            loo_var=left_out.var,
            log_evidence=state.log_evidence,
        )


def said_by_diagonal(problem: Problem, state: BackgroundState) -> tuple[Array, Array]:
    """e by the diagonal of W, and the slope x_jᵀ ρ, of every weight."""
    scores, slope = state.gaussian.scores, _slope(problem, state)
    diagonal = problem.sample_weight * state.sites.label_precision * _rest_precision(state) * scores.var
    n_weights = problem.operator.shape[1]
    sweep = problem.operator.sweep(
        np.zeros(n_weights), np.ones(n_weights), lambda rows, s, v: (slope[rows], diagonal[rows])
    )
    assert sweep.curvatures is not None
    return sweep.curvatures, sweep.slopes


def _slope(problem: Problem, state: BackgroundState) -> Array:
    """ρ, the slopes of label sites at the scores."""
    return problem.sample_weight * (
        state.sites.label_shift - state.sites.label_precision * state.gaussian.scores.mean
    )


def said_exactly(problem: Problem, state: BackgroundState, tiles: Tiles) -> tuple[Array, Array]:
    """e by W as it is, with what active features explain taken out, and the slope, of some columns."""
    all_of_them = np.arange(state.active.size)
    opened = state.tiles.opened(state.sites, problem.sample_weight, all_of_them)
    assert isinstance(opened, HeldKernel)
    slope, said = opened.of_columns(tiles, opened.block_of(state.sites))
    return said, slope


class Held(NamedTuple):
    """Marginals and cavities of held weights, and the slopes x_jᵀ ρ."""

    mean: Array
    var: Array
    cavity_mean: Array
    cavity_var: Array
    slope: Array

    @classmethod
    def of(cls, said: Array, slope: Array, spread: Array, shift: Array) -> Held:
        """From e (`said`), slopes and sites; the precision of a cavity is e / (1 - spread e)."""
        with np.errstate(divide="ignore"):
            said = np.minimum(said, LARGEST_SHARE / spread)
        said = np.maximum(said, LEAST_PRECISION)
        retained = 1.0 - spread * said
        mean = spread * (shift + slope)
        return cls(mean, spread * retained, mean + slope * retained / said, retained / said, slope)

    def answers(self, prior: Prior, before: Array, shift_before: Array) -> tuple[Array, Array, Array]:
        """Spread and shift of the sites that priors want, and logs of factors over those of their sites."""
        is_held = before > 0
        mean, var, log_z = prior.tilted(self.cavity_mean, self.cavity_var)
        precision = np.where(is_held, 1.0 / np.maximum(var, TINY) - 1.0 / self.cavity_var, np.inf)
        wanted = np.where(precision > 0, 1.0 / precision, before)
        shift = mean / np.maximum(var, TINY) - self.cavity_mean / self.cavity_var
        own = self.mean, np.maximum(self.var, TINY)
        factors = log_z + psi_difference(self.cavity_mean, self.cavity_var, *own)
        factors += psi(before * shift_before, np.maximum(before, TINY))
        return np.where(is_held, wanted, 0.0), np.where(is_held, shift, 0.0), np.where(is_held, factors, 0.0)


def _inclusion(prior: Prior, held: Held, spread: Array) -> Array:
    """The probability of an effect of each held weight; zero for active ones."""
    inclusion = prior.inclusion_probability(held.cavity_mean, held.cavity_var)  # type: ignore[attr-defined]
    return np.where(spread == 0, 0.0, inclusion)


def _largest(values: Array, least: float, most: int) -> Positions:
    """The places of the largest values, at most `most` of them, that are at least `least`."""
    wanted = np.flatnonzero(values >= least)
    return np.sort(wanted[np.argsort(-values[wanted], kind="stable")[:most]])


def _of(state: EPState) -> BackgroundState:
    assert isinstance(state, BackgroundState)
    return state


def _without_labels(problem: Problem, state: EPState, lost: Array | None = None) -> Cavities:
    """Cavities of scores, none vaguer than the field and the active weights allow (`_rest_precision`).

    Otherwise the negative site of a word that is in one document only could leave its score without any
    precision.
    """
    scores = state.gaussian.scores._replace(rest_precision=_rest_precision(state))
    return score_cavities(scores, state.sites, problem.sample_weight, lost)


def _rest_precision(state: EPState) -> Array:
    """Precisions of scores without their own labels: at least as if active weights were a little vaguer."""
    held = state.tiles
    assert isinstance(held, HeldBackground)
    vaguest = held.kernel.diagonal() + held.active_columns**2 @ (LARGEST_GROWTH * state.gaussian.var)
    return np.maximum(state.gaussian.scores.rest_precision, 1.0 / vaguest)


def _reduced(problem: Problem, active: Positions) -> Problem:
    """The problem of the active features alone."""
    prior = problem.prior.of_columns(active, problem.operator.shape[1])
    return problem.but(operator=None, prior=prior, kept=None)
