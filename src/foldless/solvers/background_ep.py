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

Without effects the same solver fits the background alone, a ridge regression.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from foldless.beliefs import Array, Posterior
from foldless.priors import Blocks, OverBackground, Prior
from foldless.priors.wrappers import positions_of
from foldless.problem import Problem
from foldless.registry import registered
from foldless.solvers.ep import EP, EPState, state_of
from foldless.solvers.gaussian_layer import Gaussian, HeldKernel, Opened, Positions, Scores, Sites, Tiles
from foldless.solvers.message_passing import VAGUEST_START, AdaptiveDamping, Damping, Pace, Secants
from foldless.solvers.sites import LARGEST_GROWTH, Cavities, score_cavities

# Labels have spoken before effects are looked for.
FIRST_LOOK = 3
# An effect of at least this probability is worth a site of its own, at a cavity with this share of the
# precision that the diagonal of W gives it.
LEAST_INCLUSION, SHARE_OF_DIAGONAL = 0.05, 0.5
# So many at a time: two hundred wide effects at once would leave labels nothing to say.
MOST_ADDED = 64
# Factors of I + T^½ K T^½, whose eigenvalues are one and more, need no more digits: rounding moves scores by
# far less than the tolerance, in half of the time.
FACTOR_DTYPE = np.dtype(np.float32)
# With active features still to come, an iteration is not nearer to its end than this.
INCOMPLETE = 1.0
# What labels say takes at most this share of a held weight's precision: beyond, the diagonal misleads.
LARGEST_SHARE = 0.99
# And of a column that never varies nothing, which must have an inverse.
LEAST_PRECISION = 1e-12


class HeldBackground(Tiles):
    """The active columns, and what all others make of scores."""

    def __init__(self, kernel: Array, columns: Array) -> None:
        self.operator = None  # type: ignore[assignment]
        self.kernel, self.active_columns, self.shape = kernel, columns, columns.shape

    def __reduce__(self) -> tuple[Any, ...]:
        return HeldBackground, (self.kernel, self.active_columns)

    def opened(self, sites: Sites, sample_weight: Array, free: Positions) -> Opened:
        nothing, all_of_them = np.zeros(self.shape[0]), np.arange(self.shape[1])
        return HeldKernel(self.kernel, nothing, all_of_them, self.active_columns, sites, sample_weight)

    def with_active(self, columns: Array, background: Array) -> HeldBackground:
        """More active columns, whose background is no longer held."""
        scaled = (columns * np.sqrt(background)).astype(self.kernel.dtype)
        kernel = self.kernel - scaled @ scaled.T
        return HeldBackground(kernel, np.hstack([self.active_columns, columns]))


@dataclass(frozen=True, eq=False)
class BackgroundState(EPState):
    """Sites and moments are those of the active features, in this order."""

    active: Positions
    background: Array  # (weights,): variances
    # The problem of the active features alone.
    reduced: Problem
    complete: bool  # all that should be active are

    def problem_of(self, problem: Problem) -> Problem:
        return self.reduced

    @property
    def change(self) -> float:
        return self.pace.change if self.complete else max(self.pace.change, INCOMPLETE)


@registered("solver/background-ep")
@dataclass(frozen=True)
class BackgroundEP(EP):
    """Expectation propagation for `OverBackground`, of one score; without effects, of its background."""

    effects: bool = True
    # Labels of a log-concave channel need no damping under a fixed field.
    damping: Damping = field(default_factory=lambda: AdaptiveDamping(smallest=0.3))

    def init(self, problem: Problem) -> BackgroundState:
        n_weights = problem.operator.shape[1]
        background = background_of(problem.prior, n_weights)
        active = np.zeros(0, dtype=np.intp) if problem.kept is None else problem.kept.positions
        reduced = _reduced(problem, active)
        mean, var = problem.prior.start(n_weights)
        kernel, columns = problem.operator.gram(background), problem.operator.columns(active)
        kernel = kernel.astype(FACTOR_DTYPE)
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
                background=background,
                reduced=reduced,
                complete=not self.effects,
            ),
        )
        return _of(state)

    def step(self, problem: Problem, state: EPState) -> EPState:
        state = _of(state)
        if state.reduced.channel is not problem.channel:
            state = replace(state, reduced=_reduced(problem, state.active))
        if not self.effects:
            # Labels alone do not circle, and leaps would lead them astray.
            state = replace(state, secants=Secants())
        elif state.iteration >= FIRST_LOOK:
            state = self._looked(problem, state)
        state = super().step(state.reduced, state)
        return replace(state, score_cavities=_without_labels(problem, state))

    def _looked(self, problem: Problem, state: BackgroundState) -> BackgroundState:
        """With the features that should be active; complete if there were no more."""
        mean, var = held_cavities(problem, state, SHARE_OF_DIAGONAL)[:2]
        inclusion = problem.prior.inclusion_probability(mean, var)  # type: ignore[attr-defined]
        inclusion[state.active] = 0.0
        inclusion[state.background == 0] = 0.0
        wanted = np.flatnonzero(inclusion >= LEAST_INCLUSION)
        if wanted.size == 0:
            return replace(state, complete=True)
        added = np.sort(wanted[np.argsort(-inclusion[wanted], kind="stable")[:MOST_ADDED]])
        active, background = np.append(state.active, added), state.background[added]
        reduced = _reduced(problem, active)
        # They begin where the background has them.
        data_precision, data_slope = held_cavities(problem, state)[2:]
        sites, now = state.sites, state.gaussian
        sites = sites._replace(
            prior_precision=np.append(sites.prior_precision, 1.0 / background),
            prior_shift=np.append(sites.prior_shift, np.zeros(added.size)),
        )
        own_var = 1.0 / (data_precision[added] + 1.0 / background)
        gaussian = now._replace(
            mean=np.append(now.mean, background * data_slope[added]),
            var=np.append(now.var, own_var),
            data_precision=np.append(now.data_precision, data_precision[added]),
            data_slope=np.append(now.data_slope, data_slope[added]),
        )
        assert isinstance(state.tiles, HeldBackground)
        tiles = state.tiles.with_active(problem.operator.columns(added), background)
        found = replace(state, tiles=tiles, active=active, reduced=reduced, complete=False)
        return _of(state_of(reduced, sites, gaussian, found, proposed=None, secants=Secants()))

    def _at_pace(self, state: EPState, pace: Pace) -> EPState:
        return replace(super()._at_pace(state, pace), complete=not self.effects)  # type: ignore[call-arg]

    def posterior(self, problem: Problem, state: EPState) -> Posterior:
        """Of all weights; cavities of those that are not active are those of the diagonal."""
        state = _of(state)
        cavity_mean, cavity_var, data_precision, data_slope = held_cavities(problem, state)
        with np.errstate(divide="ignore"):
            var = 1.0 / (data_precision + 1.0 / state.background)
        mean = state.background * data_slope
        own, at = state.active, state.weight_cavities
        mean[own], var[own] = state.gaussian.mean, state.gaussian.var
        cavity_mean[own], cavity_var[own] = at.mean, at.var
        left_out = _without_labels(problem, state, problem.loo_weight)
        return Posterior(
            mean=mean,
            var=var,
            cavity_mean=cavity_mean,
            cavity_var=cavity_var,
            loo_mean=left_out.mean,
            loo_var=left_out.var,
            log_evidence=state.log_evidence,
        )


def background_of(prior: Prior, n_weights: int) -> Array:
    """The variances of the background, zero for columns that have none."""
    base = prior.base if isinstance(prior, Blocks) else prior
    if not isinstance(base, OverBackground):
        raise ValueError(
            f"BackgroundEP needs a prior over a background; got {type(base).__name__}. "
            "Use OverBackground(SpikeAndSlab(...), variance), or EP."
        )
    found = np.array(np.broadcast_to(np.asarray(base.variance, dtype=np.float64), n_weights))
    for columns, _ in prior.others if isinstance(prior, Blocks) else ():
        found[positions_of(columns, n_weights)] = 0.0
    return found


def held_cavities(
    problem: Problem, state: BackgroundState, share: float = 1.0
) -> tuple[Array, Array, Array, Array]:
    """Means and variances of the cavities of held weights; what labels say: precision and slope.

    Labels say e of a weight and the field, of which the diagonal has so much that e takes this `share`.
    """
    scores, weight = state.gaussian.scores, problem.sample_weight
    precision = weight * state.sites.label_precision
    slope = weight * state.sites.label_shift - precision * scores.mean
    diagonal = precision * _rest_precision(state) * scores.var
    n_weights = problem.operator.shape[1]
    sweep = problem.operator.sweep(
        np.zeros(n_weights), np.ones(n_weights), lambda rows, s, v: (slope[rows], diagonal[rows])
    )
    assert sweep.curvatures is not None
    said = share * sweep.curvatures
    with np.errstate(divide="ignore"):
        said = np.minimum(said, LARGEST_SHARE / state.background)
    said = np.maximum(said, LEAST_PRECISION)
    alone = said / (1.0 - state.background * said)
    return sweep.slopes / said, 1.0 / alone, alone, sweep.slopes


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
