"""EP: expectation propagation with exact covariances, for columns that are correlated.

Every prior factor and every label is replaced by a Gaussian factor, a site; together they make a Gaussian
posterior q(w) with precision  Λ = diag(λ) + Xᵀ T X  and shift  Λ μ = γ + Xᵀ ν, whose covariances are kept
exactly (`gaussian_layer`). A site is updated by [Minka 2001; Hernández-Lobato 2013]

    take a site out of its marginal          cavity precision = marginal precision - site precision
    ask the prior or channel at that cavity  tilted mean and variance
    make the site explain them               site = tilted precision - cavity precision

A prior site may have negative precision: a spike-and-slab prior can leave a weight less certain than its
cavity. Clipping it would quadruple the error; the posterior only has to stay positive definite as a whole.

**Order.** All sites in parallel, each part of the way, is what one would like, and what runs away: as scores
become less certain labels say less, and a negative prior site that still answers to what they said before
leaves a weight next to no precision, which makes scores less certain. An iteration therefore moves the label
sites and those of held weights, and then lets the free weights, whose sites are weak or negative, answer to
what labels say now. That is cheap, because it happens in the free weights' own small Gaussian
(`gaussian_layer.Opened`), and its fixed points are those of any other order. Weights that compete for what
labels say can still go round in circles at any step; `secants` finds what they go round.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array, Posterior
from foldless.problem import Problem
from foldless.solvers.damping import AdaptiveDamping, Damping, Pace
from foldless.solvers.gaussian_layer import (
    Block,
    Gaussian,
    NotPositiveDefinite,
    Opened,
    Positions,
    Scores,
    Sites,
    Tiles,
    opened_layer,
    without_labels,
)
from foldless.solvers.message_passing import MessagePassing, PacedState, psi
from foldless.solvers.secants import Secants

# A cavity without precision, or with less than this share of its marginal's, says nothing: its site waits.
# The share may be very small, since a prior can be all but certain that a weight is zero.
LEAST_CAVITY_SHARE = 1e-200
# The share that such a cavity is shown with: wide enough to say nothing.
WIDE_CAVITY_SHARE = 1e-9
# Site precisions are differences of precisions. A site that moves by less than so many units in the last
# place of those stays: a Gaussian prior keeps its own precision, however small beside the labels'.
ROUNDING = 32 * np.finfo(np.float64).eps
# An intercept vaguer than this (log-odds squared), or any column that makes scores as vague, lets the first
# labels look uninformative, and all of them together leap where they are certain and wrong.
VAGUEST_START = 10.0
# A step is halved this often to keep the posterior positive definite before the iteration is called diverged.
MAX_HALVINGS = 12
# Within a tenth of where they are going, sites leap: earlier they have not learnt enough and go astray. It
# takes this many proposals to learn from, besides the present one.
NEAR = 0.1
FIRST_SECANTS = 2
# Free weights answer this often to the labels of an iteration: once is for the labels, once for each other.
ANSWERS = 2
ANSWER_STEP = 0.8
# No answer makes a weight's variance so many times larger than it was or is to be: that is the way in which a
# posterior ceases to be one.
LARGEST_GROWTH = 2.0
# Where labels have become so vague that negative sites leave nothing, these shares of them are tried.
WEAKER_SITES = (1.0, 0.5, 0.25, 0.125, -0.125)


@dataclass(frozen=True, eq=False)
class Cavities:
    """Means and variances with one factor taken out each; `proper` says where that leaves a distribution."""

    mean: Array
    var: Array
    proper: NDArray[np.bool_]

    @classmethod
    def left(cls, mean: Array, var: Array, precision: Array, slope: Array) -> Cavities:
        """What is left of marginals: this precision, and a mean moved by the factor's slope over it.

        The factor's slope at the marginal mean is balanced by that of all others, `slope`. Where nothing is
        left the cavity is wide and the mean stays.
        """
        proper = precision > LEAST_CAVITY_SHARE / var
        precision = np.where(proper, precision, WIDE_CAVITY_SHARE / var)
        return cls(np.where(proper, mean + slope / precision, mean), 1.0 / precision, proper)


@dataclass(frozen=True, eq=False)
class SitesState(PacedState):
    """What the next iteration needs to know of the last, for one Gaussian of sites or several."""

    tiles: Tiles
    weight_cavities: Cavities
    score_cavities: Cavities
    # The sites before free weights answered (None: as they are), and what earlier ones have taught.
    proposed: Array | None = field(default=None, kw_only=True)
    secants: Secants = field(default_factory=Secants, kw_only=True)

    @property
    def cavity_mean(self) -> Array:
        return self.weight_cavities.mean

    @property
    def cavity_var(self) -> Array:
        return self.weight_cavities.var

    @property
    def score_cavity_mean(self) -> Array:
        return self.score_cavities.mean

    @property
    def score_cavity_var(self) -> Array:
        return self.score_cavities.var


@dataclass(frozen=True, eq=False)
class EPState(SitesState):
    """Sites, and the Gaussian they make."""

    sites: Sites
    gaussian: Gaussian

    @property
    def consistent(self) -> bool:
        """Whether every site could be asked for; those of improper cavities wait at what they were."""
        return bool(np.all(self.weight_cavities.proper) and np.all(self.score_cavities.proper))


@dataclass(frozen=True)
class EP(MessagePassing[EPState]):
    """Expectation propagation; an iteration costs O(M²N) for N > M features, O(N²M) otherwise."""

    damping: Damping = field(default_factory=lambda: AdaptiveDamping(first=0.85, smallest=0.3))

    def init(self, problem: Problem) -> EPState:
        n_samples, n_weights = problem.operator.shape
        mean, var = problem.prior.start(n_weights)
        precision = 1.0 / np.maximum(var, np.finfo(float).tiny)
        sites = Sites(precision, precision * mean, np.zeros(n_samples), np.zeros(n_samples))
        # For the first labels only; the sites are the prior's all the same.
        square = problem.operator.squared_norms(problem.sample_weight)[1] / problem.sample_weight.sum()
        narrower = np.maximum(precision, square / VAGUEST_START)
        gaussian = without_labels(problem.operator, narrower, narrower * mean)
        return EPState(
            tiles=Tiles(problem.operator),
            sites=sites,
            gaussian=gaussian,
            weight_cavities=weight_cavities(gaussian),
            score_cavities=score_cavities(gaussian.scores, sites, problem.sample_weight),
            iteration=0,
            pace=Pace.first(self.damping, n_samples),
            log_evidence=-np.inf,
        )

    def from_beliefs(
        self,
        problem: Problem,
        *,
        weight_mean: Array,
        weight_var: Array,
        cavity_mean: Array,
        cavity_var: Array,
        score_cavity_mean: Array,
        score_cavity_var: Array,
    ) -> EPState:
        """The state whose sites are those of another solver's answer, to be judged or continued from.

        Sites explain the weights' moments at their cavities, and what the channel says at the scores'. If
        that solver was right, one iteration hardly moves the scores: `change` of the next state is small.
        Where its sites make no posterior, as much of them is taken as does.
        """
        nothing = self.init(problem)
        # Exact covariances are made in double precision.
        weight_mean, weight_var, cavity_mean, cavity_var = (
            np.asarray(a, dtype=np.float64) for a in (weight_mean, weight_var, cavity_mean, cavity_var)
        )
        weights = Cavities(cavity_mean, cavity_var, np.ones(cavity_mean.size, dtype=bool))
        scores = Cavities(score_cavity_mean, score_cavity_var, np.ones(score_cavity_mean.size, dtype=bool))
        prior_sites = explaining_sites(
            weight_mean, weight_var, weights, nothing.sites.prior_precision, nothing.sites.prior_shift
        )
        believed = Sites(*prior_sites, *label_sites(problem, scores, nothing.sites)[0])
        share, tiles = 1.0, nothing.tiles
        while True:
            sites = nothing.sites.towards(believed, share)
            free = np.flatnonzero(sites.prior_precision < 1.0 / cavity_var)
            try:
                opened = opened_layer(tiles, sites, problem.sample_weight, free)
                gaussian = opened.closed(opened.block_of(sites))
                break
            except NotPositiveDefinite:
                share /= 2
                if share < 0.5**MAX_HALVINGS:
                    return nothing
        return replace(
            nothing,
            sites=sites,
            gaussian=gaussian,
            weight_cavities=weight_cavities(gaussian),
            score_cavities=score_cavities(gaussian.scores, sites, problem.sample_weight),
            iteration=1,
        )

    def step(self, problem: Problem, state: EPState) -> EPState:
        tiles = state.tiles if state.tiles.operator is problem.operator else Tiles(problem.operator)
        wanted, log_evidence = wanted_sites(problem, state)
        moved = _moved(problem, tiles, state, wanted)
        return EPState(
            tiles=tiles,
            sites=moved.sites,
            gaussian=moved.gaussian,
            weight_cavities=weight_cavities(moved.gaussian),
            score_cavities=score_cavities(moved.gaussian.scores, moved.sites, problem.sample_weight),
            iteration=state.iteration + 1,
            pace=pace_after(self.damping, problem, state, moved.gaussian, moved.step),
            log_evidence=log_evidence,
            proposed=moved.proposed,
            secants=moved.secants,
        )

    def for_new_data(self, problem: Problem, state: EPState) -> EPState:
        # Sites answer to the data they were made for; others start afresh.
        return self.init(problem)

    def _at_pace(self, state: EPState, pace: Pace) -> EPState:
        return replace(state, pace=pace, secants=Secants())

    def posterior(self, problem: Problem, state: EPState) -> Posterior:
        left_out = score_cavities(
            state.gaussian.scores, state.sites, problem.sample_weight, problem.loo_weight
        )
        return Posterior(
            mean=state.gaussian.mean,
            var=state.gaussian.var,
            cavity_mean=state.weight_cavities.mean,
            cavity_var=state.weight_cavities.var,
            loo_mean=left_out.mean,
            loo_var=left_out.var,
            log_evidence=state.log_evidence,
        )


def wanted_sites(problem: Problem, state: EPState) -> tuple[Sites, float]:
    """Sites that explain the tilted moments at the present cavities, and the log evidence there.

    Improper cavities keep their sites.
    """
    old, now = state.sites, state.gaussian
    at, prior = state.score_cavities, state.weight_cavities
    tilted = problem.prior.tilted(prior.mean, prior.var)
    of_labels, label_log_z = label_sites(problem, at, old)
    wanted = Sites(
        *explaining_sites(tilted.mean, tilted.var, prior, old.prior_precision, old.prior_shift), *of_labels
    )
    # Each factor is Z / ∫ cavity·site times its site; weight counts how many there are of it.
    prior_factors = tilted.log_z + psi(prior.mean, prior.var) - psi(now.mean, now.var)
    with_site = 1.0 / (1.0 / at.var + old.label_precision)
    site_mean = with_site * (at.mean / at.var + old.label_shift)
    label_factors = label_log_z + psi(at.mean, at.var) - psi(site_mean, with_site)
    log_evidence = now.log_normaliser + float(np.sum(prior_factors) + problem.sample_weight @ label_factors)
    return wanted, log_evidence


def label_sites(problem: Problem, at: Cavities, old: Sites) -> tuple[tuple[Array, Array], Array]:
    """Precisions and shifts of label sites at these cavities, and the log normalisers there.

    With cavity N(p, v), slope s and curvature c of log Z: site precision c / (1 - v c) and shift
    p · precision + s (1 + v · precision). Label sites stay non-negative.
    """
    response = problem.channel.respond(at.mean, at.var, problem.labels)
    curvature = np.clip(response.curvature, 0.0, (1 - 1e-12) / at.var)
    precision = curvature / (1 - at.var * curvature)
    shift = at.mean * precision + response.slope * (1 + at.var * precision)
    heard = at.proper & np.isfinite(precision) & np.isfinite(shift)
    sites = np.where(heard, precision, old.label_precision), np.where(heard, shift, old.label_shift)
    return sites, response.log_z


def explaining_sites(
    mean: Array, var: Array, cavity: Cavities, old_precision: Array, old_shift: Array
) -> tuple[Array, Array]:
    """Precisions and shifts of sites that make these moments of cavities; improper cavities keep theirs."""
    tilted_precision = 1.0 / np.maximum(var, np.finfo(float).tiny)
    tilted_shift = mean * tilted_precision
    cavity_precision = 1.0 / cavity.var
    precision = _settled(tilted_precision - cavity_precision, old_precision, tilted_precision)
    shift = _settled(tilted_shift - cavity.mean * cavity_precision, old_shift, np.abs(tilted_shift))
    known = cavity.proper & np.isfinite(precision) & np.isfinite(shift)
    return np.where(known, precision, old_precision), np.where(known, shift, old_shift)


class Moved(NamedTuple):
    """Where an iteration has come to."""

    sites: Sites
    gaussian: Gaussian
    step: float | None  # None for a leap
    proposed: Array
    secants: Secants


def _moved(problem: Problem, tiles: Tiles, state: EPState, wanted: Sites) -> Moved:
    """Labels and held weights go towards the wanted sites, free weights answer.

    Close to a fixed point by a leap, to where the last proposals and what became of them point (`Secants`);
    otherwise, and where that leaves no posterior or a vague one, a step of the way.
    """
    n_samples, n_weights = tiles.shape
    # The first label sites replace none: there is nothing yet to damp towards.
    step = 1.0 if state.iteration == 0 else state.step
    is_free = np.zeros(n_weights, dtype=bool)
    is_free[free_weights(state.sites.towards(wanted, step), state)] = True
    answers = np.concatenate([is_free, is_free, np.zeros(2 * n_samples, dtype=bool)])

    present = state.sites.as_vector()
    proposed = present if state.proposed is None else state.proposed
    # What became of the proposal: free weights have answered already, the others are to go where they want.
    residual = np.where(answers, present, wanted.as_vector()) - proposed
    now = state.gaussian
    # A sample of weight 2 has two rows' say in where a leap goes.
    rows = np.sqrt(problem.sample_weight)
    scale = np.concatenate([now.var, np.sqrt(now.var), rows * now.score_var, rows * np.sqrt(now.score_var)])
    secants = state.secants.of(problem).seen(proposed, residual, scale)

    def arrived(point: Array) -> tuple[Sites, Gaussian]:
        sites = Sites.from_vector(point, n_samples, n_weights)
        free = np.flatnonzero(is_free | (sites.prior_precision <= 0))
        if free.size > 2 * n_samples:
            raise NotPositiveDefinite("more prior sites are negative than labels could outweigh")
        opened = opened_layer(tiles, sites, problem.sample_weight, free)
        block = answered(problem, state, opened, opening(opened, sites, now.var))
        return sites.with_prior(opened.free, block.site_precision, block.site_shift), opened.closed(block)

    if len(secants) > FIRST_SECANTS and state.change < NEAR:
        point = secants.next_point(np.where(answers, 1.0, step), scale)
        try:
            sites, gaussian = arrived(point)
            if np.all(gaussian.score_var <= LARGEST_GROWTH**2 * now.score_var):
                return Moved(sites, gaussian, None, point, secants)
        except NotPositiveDefinite:
            pass
        secants = secants.last()
    for _ in range(MAX_HALVINGS):
        point = proposed + np.where(answers, 1.0, step) * residual
        try:
            return Moved(*arrived(point), step, point, secants)
        except NotPositiveDefinite:
            step /= 2
    # Nothing on the way is proper: say so by numbers that the loop takes for a divergence.
    broken = replace(now, score_mean=np.full(n_samples, np.nan))
    return Moved(state.sites, broken, step, proposed, secants)


def free_weights(sites: Sites, state: EPState) -> Positions:
    """Weights of which labels say more than the prior, or whose sites are not positive, or have been.

    There can be at most twice as many of the first as there are samples, and at most as many of the second
    [Σ (1 - λ var) <= M]. Half as many of the first are taken as there are samples: with a prior that is weak
    for all weights it matters little which are free.
    """
    precision, data_precision = sites.prior_precision, state.gaussian.data_precision
    negative, proposed = state.sites.prior_precision <= 0, precision <= 0
    # More negative sites than labels make no posterior: such a proposal is not followed that far.
    if np.count_nonzero(proposed) <= sites.label_precision.size:
        negative = negative | proposed
    free = negative | (precision < data_precision)
    most = sites.label_precision.size // 2
    if np.count_nonzero(free) > most:
        share = np.where(free, precision / np.maximum(data_precision, np.finfo(float).tiny), np.inf)
        weakest = np.argsort(share, kind="stable")[:most]
        free = negative
        free[weakest] = True
    return np.flatnonzero(free)


def opening(opened: Opened, sites: Sites, var: Array) -> Block:
    """The free weights at their present sites, with weaker ones instead of negative ones if need be."""
    precision, shift = sites.prior_precision[opened.free], sites.prior_shift[opened.free]
    negative, largest = precision < 0, LARGEST_GROWTH**2 * var[opened.free]
    block: Block | None = None
    for share in WEAKER_SITES:
        try:
            block = opened.block(np.where(negative, share * precision, precision), shift)
        except NotPositiveDefinite:
            continue
        if not negative.any() or np.all(block.var <= largest):
            return block
    if block is None:
        raise NotPositiveDefinite("prior sites of negative precision outweigh the labels")
    return block


def answered(problem: Problem, state: EPState, opened: Opened, block: Block) -> Block:
    """The free weights after their priors have answered to what labels and held weights say of them."""
    free = opened.free
    if free.size == 0:
        return block
    cavity_mean, cavity_var = state.weight_cavities.mean.copy(), state.weight_cavities.var.copy()
    for _ in range(ANSWERS):
        at = Cavities.left(block.mean, block.var, block.data_precision, block.data_slope)
        # A prior may differ between columns, so it is shown all of them.
        cavity_mean[free], cavity_var[free] = at.mean, at.var
        mean, var, _ = problem.prior.tilted(cavity_mean, cavity_var)
        precision, shift = explaining_sites(mean[free], var[free], at, block.site_precision, block.site_shift)
        block = step_of_block(
            opened, block, precision, shift, LARGEST_GROWTH * np.maximum(block.var, var[free])
        )
    return block


def step_of_block(opened: Opened, block: Block, precision: Array, shift: Array, largest_var: Array) -> Block:
    """The free weights a step towards these sites, shortened until no variance is larger than allowed."""
    step = ANSWER_STEP
    for _ in range(MAX_HALVINGS):
        try:
            found = opened.block(
                block.site_precision + step * (precision - block.site_precision),
                block.site_shift + step * (shift - block.site_shift),
            )
        except NotPositiveDefinite:
            step /= 2
            continue
        if np.all(found.var <= largest_var):
            return found
        step /= 2
    return block


def pace_after(
    damping: Damping, problem: Problem, state: EPState, gaussian: Gaussian, step: float | None
) -> Pace:
    """The pace after a step to this Gaussian, or after a leap (None)."""
    return state.pace.after(
        damping,
        position=gaussian.score_mean,
        move=(gaussian.score_mean - state.gaussian.score_mean) / (1.0 if step is None else step),
        taken=step,
        weight=problem.label_weight,
        total=problem.n_samples,
    )


def weight_cavities(gaussian: Gaussian) -> Cavities:
    return Cavities.left(gaussian.mean, gaussian.var, gaussian.data_precision, gaussian.data_slope)


def score_cavities(scores: Scores, sites: Sites, sample_weight: Array, lost: Array | None = None) -> Cavities:
    """Scores without one label: a sample of weight 2 keeps the other, one of weight ½ had half to lose."""
    lost = np.minimum(sample_weight, 1.0) if lost is None else lost
    precision = scores.rest_precision + (sample_weight - lost) * sites.label_precision
    slope = lost * (sites.label_precision * scores.mean - sites.label_shift)
    return Cavities.left(scores.mean, scores.var, precision, slope)


def _settled(wanted: Array, old: Array, size: Array) -> Array:
    """The wanted values, but the old ones where the difference is rounding error of numbers of this size."""
    return np.where(np.abs(wanted - old) <= ROUNDING * size, old, wanted)
