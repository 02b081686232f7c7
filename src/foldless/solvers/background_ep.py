"""EP of a few effects over a Gaussian background, in matrices of samples by samples.

A weight is a sparse effect beside a part of a dense background, w_j = b_j + g_j with g_j ~ N(0, s_j)
(`priors.OverBackground`). Where b_j is improbable it is left out, and the site of w_j is that of the
background, which never moves. So only *active* features have sites that are learnt. All others are held and
make of scores a Gaussian field with the fixed covariance

    K = Σ_held s_j x_j x_jᵀ,

one product over X, or over its non-zeros. An iteration is one of `EP` with the active features alone, in
O(M³ + M² q) for q of them, whatever the number of features. Columns that are always kept are active.

**Which are active?** With ρ the slopes of the labels' sites at the scores and W the precision of labels and
field together, what labels say of a held weight is a cavity of precision e / (1 - s e), e = x_jᵀ W x_j, about
x_jᵀ ρ / e. All x_jᵀ ρ are one sweep, and so is e with the diagonal of W in its place, which is too large as
far as a column goes with the field: by a quarter for half of the words of a document, by a factor of two for
few. Where half of that e would make an effect worth a glance, the feature becomes active and has its exact
cavity from then on. A fit is complete when a look over all features finds no more of them. It is that of EP
over all features in a model in which only the active ones can have effects; those of very many others, each
improbable, would make scores a little vaguer, and left-out labels are predicted better without.

**Exactly.** Thousands of effects, each of which is hardly probable, make more of scores together than the
background does where samples are few. With `exact_looks` e is what it is, a product of W with all columns,
and the priors of held weights answer at their cavities, as in `EP`: the field changes, in another product.
Such looks are few, and the fixed point is that of EP over all features.

Without effects the same solver fits the background alone, a ridge regression.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from foldless.beliefs import Array, Posterior
from foldless.operators.base import Gram, Operator
from foldless.priors.wrappers import background_of
from foldless.problem import Problem
from foldless.registry import registered
from foldless.solvers.ep import EP, EPState, state_of
from foldless.solvers.gaussian_layer import (
    Gaussian,
    HeldKernel,
    NotPositiveDefinite,
    Opened,
    Positions,
    Scores,
    Sites,
    Tiles,
)
from foldless.solvers.message_passing import (
    VAGUEST_START,
    AdaptiveDamping,
    Damping,
    Pace,
    Secants,
    psi,
)
from foldless.solvers.sites import LARGEST_GROWTH, Cavities, FreeWeights, opened_layers, score_cavities

# Labels have spoken before effects are looked for.
FIRST_LOOK = 3
# An effect of at least this probability is worth a site of its own, at a cavity with this share of the
# precision that the diagonal of W gives it.
LEAST_INCLUSION, SHARE_OF_DIAGONAL = 0.05, 0.5
# Exact looks are at every so manieth iteration: held weights that moved only when all others have settled
# would overshoot, and these with them. They end once held weights together move by less than this share of
# their variance.
LOOK_EVERY = 3
MOVED_LITTLE = 0.002
# At a look, held weights that together would move by this share of the variance of all stay as they are.
LEFT_ALONE = 0.0005
TINY = float(np.finfo(np.float64).tiny)
# So many at a time: two hundred wide effects at once would leave labels nothing to say. Sweeps look in every
# iteration, and of rare words that go together few at a time find their places sooner.
MOST_ADDED, MOST_ADDED_BY_SWEEP = 64, 16
# Factors of I + T^½ K T^½, whose eigenvalues are one and more, need no more digits: rounding moves scores by
# far less than the tolerance, in half of the time.
FACTOR_DTYPE = np.dtype(np.float32)
# Between two factors shifts of labels move so often at the most, as long as each time scores move by less
# than this share of the last, and by more than that share of their size.
MOST_SHIFTS, STILL_SHRINKS, SETTLED_MEANS = 4, 0.7, 0.01
# With active features still to come, an iteration is not nearer to its end than this.
INCOMPLETE = 1.0
# What labels say takes at most this share of a held weight's precision: beyond, the diagonal misleads.
LARGEST_SHARE = 0.99
# And of a column that never varies nothing, which must have an inverse.
LEAST_PRECISION = 1e-12


class HeldBackground(Tiles):
    """The active columns, and what all others make of scores."""

    def __init__(self, kernel: Array, columns: Array, held_scores: Array | None = None) -> None:
        self.operator = None  # type: ignore[assignment]
        self.kernel, self.active_columns, self.shape = kernel, columns, columns.shape
        self.held_scores = np.zeros(self.shape[0]) if held_scores is None else held_scores
        self._last: HeldKernel | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return HeldBackground, (self.kernel, self.active_columns, self.held_scores)

    def opened(self, sites: Sites, sample_weight: Array, free: Positions) -> Opened:
        last, precision = self._last, sample_weight * sites.label_precision
        if last is not None and np.array_equal(last.label_precision, precision):
            return last.shifted(sites, sample_weight)
        all_of_them, columns = np.arange(self.shape[1]), self.active_columns
        self._last = HeldKernel(self.kernel, self.held_scores, all_of_them, columns, sites, sample_weight)
        return self._last

    def freed(self, columns: Array, spread: Array, shift: Array) -> HeldBackground:
        """More active columns, whose weights are no longer held."""
        scaled = (columns * np.sqrt(spread)).astype(self.kernel.dtype)
        return HeldBackground(
            self.kernel - scaled @ scaled.T,
            np.hstack([self.active_columns, columns]),
            self.held_scores - columns @ (spread * shift),
        )


class AllOverHeld(Tiles):
    """All columns, of which those that are held have made their field already."""

    def __init__(self, operator: Operator, state: BackgroundState) -> None:
        super().__init__(operator, FACTOR_DTYPE, keeps=False)
        self.state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return AllOverHeld, (self.operator, self.state)

    def opened(self, sites: Sites, sample_weight: Array, free: Positions) -> Opened:
        """Active weights are free as well."""
        state, freed = self.state, np.setdiff1d(free, self.state.active)
        assert isinstance(state.tiles, HeldBackground)
        tiles = state.tiles.freed(self.operator.columns(freed), state.spread[freed], state.shift[freed])
        positions = np.append(state.active, freed)
        order = np.argsort(positions)
        columns = tiles.active_columns[:, order]
        return HeldKernel(tiles.kernel, tiles.held_scores, positions[order], columns, sites, sample_weight)


@dataclass(frozen=True, eq=False)
class BackgroundState(EPState):
    """Sites and moments are those of the active features, in this order."""

    active: Positions
    # Of held weights: the variance that their sites stand for, and their shifts; of others, zero.
    spread: Array
    shift: Array
    held_log_factor: float  # what the held factors have more than their sites, in the log evidence
    # The problem of the active features alone.
    reduced: Problem
    complete: bool  # all that should be active are
    moved: float = INCOMPLETE  # by which share held weights moved last, if none became active

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
    # Whether looks over held features take W as it is, a product with all columns, and so are rare; or its
    # diagonal, a sweep, which for rare words is nearly all of it.
    exact_looks: bool = False
    # Labels of a log-concave channel need no damping under a fixed field.
    damping: Damping = field(default_factory=lambda: AdaptiveDamping(smallest=0.2))

    def init(self, problem: Problem) -> BackgroundState:
        n_weights = problem.operator.shape[1]
        background = background_of(problem.prior, n_weights)
        active = np.zeros(0, dtype=np.intp) if problem.kept is None else problem.kept.positions
        reduced = _reduced(problem, active)
        mean, var = problem.prior.start(n_weights)
        kernel, columns = held_kernel(problem, background), problem.operator.columns(active)
        # For the first labels only, scores are no vaguer than this.
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
                tiles=HeldBackground(kernel, columns),
                sites=None,  # type: ignore[arg-type]
                gaussian=None,  # type: ignore[arg-type]
                weight_cavities=None,  # type: ignore[arg-type]
                score_cavities=None,  # type: ignore[arg-type]
                active=active,
                spread=background,
                shift=np.zeros(n_weights),
                held_log_factor=0.0,
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
            # Labels alone do not circle, and leaps would lead them astray.
            state = replace(state, secants=Secants())
        state = _of(super().step(state.reduced, state))
        state = replace(
            state,
            score_cavities=_without_labels(problem, state),
            log_evidence=state.log_evidence + state.held_log_factor,
        )
        return state if self.effects else self._settled_means(problem, state)

    def _settled_means(self, problem: Problem, state: BackgroundState) -> BackgroundState:
        """After labels have moved on with their precisions as they are, which takes no factor of a matrix.

        Where there are effects it is these that take their time, and this would not help.
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
        """Whether to look: always if it costs little, else now and then until nothing more moves."""
        its_turn = (state.iteration - FIRST_LOOK) % LOOK_EVERY == 0
        return not self.exact_looks or (its_turn and not state.complete)

    def _said(self, problem: Problem, state: BackgroundState) -> tuple[Array, Array]:
        return (said_exactly if self.exact_looks else said_by_diagonal)(problem, state)

    def _looked(self, problem: Problem, state: BackgroundState) -> BackgroundState:
        """With the features that should be active; complete if there were no more."""
        said, slope = self._said(problem, state)
        held = Held.of(said, slope, state.spread, state.shift)
        glance = (
            held if self.exact_looks else Held.of(SHARE_OF_DIAGONAL * said, slope, state.spread, state.shift)
        )
        inclusion = problem.prior.inclusion_probability(glance.cavity_mean, glance.cavity_var)  # type: ignore[attr-defined]
        inclusion[state.spread == 0] = 0.0
        wanted = np.flatnonzero(inclusion >= LEAST_INCLUSION)
        most = MOST_ADDED if self.exact_looks else MOST_ADDED_BY_SWEEP
        added = np.sort(wanted[np.argsort(-inclusion[wanted], kind="stable")[:most]])
        if added.size:
            state = self._with_active(problem, state, held, added)
        state = replace(state, complete=added.size == 0)
        return self._answered(problem, state, held) if self.exact_looks else state

    def _with_active(
        self, problem: Problem, state: BackgroundState, held: Held, added: Positions
    ) -> BackgroundState:
        """Features that begin to move begin where they were held."""
        active, spread = np.append(state.active, added), state.spread[added]
        reduced, sites, now = _reduced(problem, active), state.sites, state.gaussian
        sites = sites._replace(
            prior_precision=np.append(sites.prior_precision, 1.0 / spread),
            prior_shift=np.append(sites.prior_shift, state.shift[added]),
        )
        gaussian = now._replace(
            mean=np.append(now.mean, held.mean[added]),
            var=np.append(now.var, held.var[added]),
            data_precision=np.append(now.data_precision, 1.0 / held.cavity_var[added]),
            data_slope=np.append(now.data_slope, held.slope[added]),
        )
        assert isinstance(state.tiles, HeldBackground)
        tiles = state.tiles.freed(problem.operator.columns(added), spread, state.shift[added])
        held_spread, shift = state.spread.copy(), state.shift.copy()
        held_spread[added], shift[added] = 0.0, 0.0
        found = replace(
            state,
            tiles=tiles,
            active=active,
            spread=held_spread,
            shift=shift,
            reduced=reduced,
            complete=False,
        )
        return _of(state_of(reduced, sites, gaussian, found, proposed=None, secants=Secants()))

    def _answered(self, problem: Problem, state: BackgroundState, held: Held) -> BackgroundState:
        """After the priors of held weights have answered, too: thousands that are hardly in, together."""
        is_held = state.spread > 0
        mean, var, log_z = problem.prior.tilted(held.cavity_mean, held.cavity_var)
        precision = np.where(is_held, 1.0 / np.maximum(var, TINY) - 1.0 / held.cavity_var, np.inf)
        wanted = np.where(precision > 0, 1.0 / precision, state.spread)
        spread = np.where(is_held, wanted, 0.0)
        shift = np.where(is_held, mean / np.maximum(var, TINY) - held.cavity_mean / held.cavity_var, 0.0)
        factors = log_z + psi(held.cavity_mean, held.cavity_var) - psi(held.mean, np.maximum(held.var, TINY))
        factors += psi(state.spread * state.shift, np.maximum(state.spread, TINY))
        # Held weights that hardly move stay, so that the field changes by the columns of the others only.
        change = np.abs(spread - state.spread)
        moved, order = float(np.sum(change) / np.sum(spread)), np.argsort(change)
        stays = order[np.cumsum(change[order]) <= LEFT_ALONE * np.sum(spread)]
        spread[stays], shift[stays] = state.spread[stays], state.shift[stays]
        assert isinstance(state.tiles, HeldBackground)
        tiles = HeldBackground(
            changed_kernel(problem, state.tiles.kernel, state.spread, spread),
            state.tiles.active_columns,
            problem.operator.scores(spread * shift),
        )
        return replace(
            state,
            tiles=tiles,
            spread=spread,
            shift=shift,
            held_log_factor=float(np.sum(factors[is_held])),
            complete=state.complete and moved < MOVED_LITTLE,
            moved=moved if state.complete else INCOMPLETE,
            proposed=None,
            secants=Secants(),
        )

    def _at_pace(self, state: EPState, pace: Pace) -> EPState:
        return replace(super()._at_pace(state, pace), complete=not self.effects)  # type: ignore[call-arg]

    def posterior(self, problem: Problem, state: EPState) -> Posterior:
        """Of all weights; cavities of those that are not active are those of a look."""
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
    """What labels say of a weight and the field: e, as the diagonal has it, and the slope."""
    scores, weight = state.gaussian.scores, problem.sample_weight
    precision = weight * state.sites.label_precision
    slope = weight * state.sites.label_shift - precision * scores.mean
    diagonal = precision * _rest_precision(state) * scores.var
    n_weights = problem.operator.shape[1]
    sweep = problem.operator.sweep(
        np.zeros(n_weights), np.ones(n_weights), lambda rows, s, v: (slope[rows], diagonal[rows])
    )
    assert sweep.curvatures is not None
    return sweep.curvatures, sweep.slopes


def said_exactly(problem: Problem, state: BackgroundState) -> tuple[Array, Array]:
    """The same from W as it is, with what active features explain taken out."""
    all_of_them = np.arange(state.active.size)
    opened = state.tiles.opened(state.sites, problem.sample_weight, all_of_them)
    assert isinstance(opened, HeldKernel)
    tiles = Tiles(problem.operator, FACTOR_DTYPE, keeps=False)
    slope, said = opened.of_columns(tiles, opened.block_of(state.sites))
    return said, slope


def held_kernel(problem: Problem, spread: Array) -> Array:
    """What held weights make of scores."""
    return problem.operator.gram(spread, FACTOR_DTYPE).astype(FACTOR_DTYPE, copy=False)


def changed_kernel(problem: Problem, kernel: Array, before: Array, after: Array) -> Array:
    """What held weights make of scores after some of them have changed."""
    changed = np.flatnonzero(before != after)
    if 2 * changed.size > before.size:
        return held_kernel(problem, after)
    change, difference = after - before, Gram(kernel.shape[0], FACTOR_DTYPE)
    for sign, some in ((1.0, change > 0), (-1.0, change < 0)):
        positions = np.flatnonzero(some)
        for part in np.split(positions, range(kernel.shape[0], positions.size, kernel.shape[0])):
            difference.add(problem.operator.columns(part) * np.sqrt(np.abs(change[part])), sign)
    return kernel + difference.whole()


class Held(NamedTuple):
    """Held weights: marginals, cavities, and the slope of what labels say of them."""

    mean: Array
    var: Array
    cavity_mean: Array
    cavity_var: Array
    slope: Array

    @classmethod
    def of(cls, said: Array, slope: Array, spread: Array, shift: Array) -> Held:
        """From what labels say of a weight and the field together, e:  alone it is  e / (1 - spread e)."""
        with np.errstate(divide="ignore"):
            said = np.minimum(said, LARGEST_SHARE / spread)
        said = np.maximum(said, LEAST_PRECISION)
        retained = 1.0 - spread * said
        mean = spread * (shift + slope)
        return cls(mean, spread * retained, mean + slope * retained / said, retained / said, slope)


def _of(state: EPState) -> BackgroundState:
    assert isinstance(state, BackgroundState)
    return state


def _without_labels(problem: Problem, state: EPState, lost: Array | None = None) -> Cavities:
    """Cavities of scores: none is vaguer than the field and active weights, a little vaguer, make it.

    A negative site of a word that one document has could leave its score less than nothing.
    """
    scores = state.gaussian.scores._replace(rest_precision=_rest_precision(state))
    return score_cavities(scores, state.sites, problem.sample_weight, lost)


def _rest_precision(state: EPState) -> Array:
    """Of scores without any of their labels."""
    held = state.tiles
    assert isinstance(held, HeldBackground)
    vaguest = held.kernel.diagonal() + held.active_columns**2 @ (LARGEST_GROWTH * state.gaussian.var)
    return np.maximum(state.gaussian.scores.rest_precision, 1.0 / vaguest)


def _reduced(problem: Problem, active: Positions) -> Problem:
    """Of the active features alone."""
    prior = problem.prior.of_columns(active, problem.operator.shape[1])
    return problem.but(operator=None, prior=prior, kept=None)
