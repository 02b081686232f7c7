"""EP: expectation propagation with exact covariances, for columns that are correlated.

Every prior factor and every label is replaced by a Gaussian factor, a site; together they make a Gaussian
posterior q(w) with precision  Λ = diag(λ) + Xᵀ T X  and shift  Λ μ = γ + Xᵀ ν, whose covariances are kept
exactly (`gaussian_layer`). A site is updated by [Minka 2001; Hernández-Lobato 2013]

    take a site out of its marginal          cavity precision = marginal precision - site precision
    ask the prior or channel at that cavity  tilted mean and variance
    make the site explain them               site = tilted precision - cavity precision

A prior site may have negative precision: a spike-and-slab prior can leave a weight less certain than its
cavity. Clipping it would quadruple the error; the posterior only has to stay positive definite as a whole.

**Several scores.** A sample of D classes has D scores, linear in D columns of weights. Covariances between
weights of one score are what correlated features need, and are kept exactly; those between scores are left
out, as in SHyGAMP. Scores meet where sites are made: the channel sees all scores of a sample, and a
row-sparse prior all weights of a feature.

**Order.** If all sites are updated at once, each part of the way, the iteration can run away. As scores
become less certain, the precisions of label sites fall. A negative prior site that was made for the larger
ones then leaves its weight next to no precision, which makes scores less certain still. So weights are of two
kinds. *Free* weights have sites that are weak beside the labels, or negative; all others are *held*. An
iteration first moves the sites of labels and of held weights, and then updates the sites of free weights at
the new label sites. That is cheap, because it takes place in a small Gaussian of the free weights alone
(`sites`), and its fixed points are those of any other order.

Weights that can stand in for each other may still go round in circles, whatever the length of the steps;
`Secants` finds the point that they go round. With several scores, held weights move in the same proportion as
free ones: if they were slower than the labels, both would go round in circles.

**Leave-one-group-out** comes from one fit. Without the site of one label, all other sites hardly change.
Without a whole group they do: under a sparse prior it may be this group by which weights are in or out. So
after the sites of its labels are taken out, free weights are updated, then the labels of all other samples,
and then free weights again. This takes place in the M x M matrices that held weights leave, O(M³) for a
group. With one score, and unless groups are many, two ordinary iterations follow, in which held weights move,
too. Beside refits without each group, mean log loss differs by less than 0.001 with dense priors (visual
objects by runs, simulations); with sparse priors by 0.002 to 0.004, by 0.004 to 0.017 without these
iterations, and by 0.02 if cavities are taken as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array, Posterior
from foldless.priors.wrappers import background_of
from foldless.problem import Problem
from foldless.registry import registered
from foldless.solvers.base import State
from foldless.solvers.gaussian_layer import (
    FACTOR_DTYPE,
    Gaussian,
    HeldKernel,
    NotPositiveDefinite,
    Opened,
    Positions,
    Scores,
    Sites,
    Tiles,
    of_any_score,
    without_labels,
)
from foldless.solvers.message_passing import (
    VAGUEST_START,
    AdaptiveDamping,
    Damping,
    MessagePassing,
    Pace,
    PacedState,
    Secants,
    along_scores,
    for_scores,
    over_scores,
    psi_difference,
)
from foldless.solvers.sites import (
    ANSWER_STEP,
    IMPROPER_SHARE,
    LARGEST_GROWTH,
    MAX_HALVINGS,
    Cavities,
    FreeWeights,
    free_weights,
    label_sites,
    opened_layers,
    prior_sites,
    score_cavities,
    share_of_way,
    sites_at_cavities,
)

# Once scores change by less than this, an improper cavity will not become proper by itself.
SETTLING = 1e-3
# Sites leap once scores change by less than this: earlier leaps go astray, of several scores for longer. It
# takes so many earlier proposals to learn from.
NEAR, NEAR_OF_SEVERAL = 0.1, 0.02
FIRST_SECANTS = 2
# The longest step of label sites of several scores. A label informs about differences of scores; in a whole
# step the sites of both scores would each account for all of it.
LABEL_STEP = 0.5
# How often the sites of other labels are updated after a group has been left out. Those of several scores go
# half of their way, as in an iteration, and so twice.
GROUP_ANSWERS, GROUP_ANSWERS_OF_SEVERAL = 1, 2
# The most iterations after a group has been taken out, and of all groups together: those of a few fits.
GROUP_ITERATIONS, GROUP_ITERATIONS_IN_ALL = 2, 60


@dataclass(frozen=True, eq=False)
class EPState(PacedState):
    """Sites, and the Gaussian they make; of several scores side by side, (weights or samples, scores)."""

    tiles: Tiles
    sites: Sites
    gaussian: Gaussian
    weight_cavities: Cavities
    score_cavities: Cavities
    # The sites as they were before those of free weights were updated (None: as they are now); and earlier
    # ones, from which a leap can be computed.
    proposed: Array | None = field(default=None, kw_only=True)
    secants: Secants = field(default_factory=Secants, kw_only=True)

    def problem_of(self, problem: Problem) -> Problem:
        """The problem of the weights that these sites are of: all of them."""
        return problem

    def over_background(self, problem: Problem, background: Array, sites: Sites) -> Scores:
        """The scores of weights with these prior variances and no others, with the label sites of `sites`."""
        kernel, nothing = held_kernel(problem, background), np.zeros(sites.label_shift.size)
        none, columns = np.zeros(0, dtype=np.intp), np.zeros((nothing.size, 0))
        opened = HeldKernel(kernel, nothing, none, columns, sites, problem.sample_weight)
        return opened.scores(opened.block_of(sites))

    @property
    def all_sites(self) -> Sites:
        """The sites of all weights and labels."""
        return self.sites

    def all_tiles(self, problem: Problem) -> Tiles:
        """All columns of the problem that these sites are of."""
        return self.tiles

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


@registered("solver/ep")
@dataclass(frozen=True)
class EP(MessagePassing[EPState]):
    """Expectation propagation with exact covariances of the weights of each score.

    An iteration costs O(M²N) for each score for N > M features, O(N²M) otherwise. With several scores no step
    is longer than LABEL_STEP.
    """

    damping: Damping = field(default_factory=lambda: AdaptiveDamping(first=0.85, smallest=0.3))
    # Whether products with X are in single precision, in half of the time and memory: their rounding moves
    # scores by far less than the tolerance. Matrices of samples by samples stay in double precision; so do
    # those of features by features (of more samples than features), if there is one score.
    single: bool = False

    def init(self, problem: Problem) -> EPState:
        n_samples, n_weights = problem.operator.shape
        shape = problem.channel.score_shape
        mean, var = problem.prior.start(n_weights)
        precision = 1.0 / np.maximum(var, np.finfo(float).tiny)
        nothing = np.zeros(n_samples)
        sites = Sites(*(for_scores(part, shape) for part in (precision, precision * mean, nothing, nothing)))
        # Sites are the prior's; but the first label sites are made as though scores were no vaguer than this.
        square = problem.operator.squared_norms(problem.sample_weight)[1] / problem.sample_weight.sum()
        narrower = np.maximum(precision, square / VAGUEST_START)
        gaussian = without_labels(problem.operator, narrower, narrower * mean)
        return state_of(
            problem,
            sites,
            Gaussian.of_scores([gaussian] * int(np.prod(shape))),
            tiles=self._tiles(problem),
            iteration=0,
            pace=self._first_pace((n_samples, *shape)),
            log_evidence=-np.inf,
        )

    def from_state(self, problem: Problem, state: State) -> EPState:
        """The state whose sites explain another solver's answer, to judge that by or to go on from it.

        If that solver was right, one iteration hardly moves the scores: `change` of the next state is small.
        Where its sites make no posterior, the state is only so far on the way to them that there is one.
        """
        start = self.init(problem)
        believed = sites_at_cavities(problem, state, start.sites)
        share = 1.0
        for _ in range(MAX_HALVINGS + 1):
            sites = start.sites.towards(believed, share)
            free = np.flatnonzero(of_any_score(sites.prior_precision < 1.0 / state.cavity_var))
            try:
                opened = opened_layers(start.tiles, sites, problem.sample_weight, free)
                gaussian = gaussian_of(opened, sites)
            except NotPositiveDefinite:
                share /= 2
                continue
            return state_of(problem, sites, gaussian, start, iteration=1)
        return start

    def from_ridge(self, problem: Problem, free: Positions, precision: Array, scores: Array) -> EPState:
        """The state of a ridge: Gaussian priors of free weights, and label sites at the `scores` of its mode.

        In a ridge all rows of weights are in; from there, those that are not needed drop out. From plain
        parameters most rows would drop out at once, with small scores and sure labels, and it would take
        dozens of iterations to bring back those that are needed.
        """
        start = self.init(problem)
        sites = start.sites.with_prior(free, along_scores(precision, scores), np.zeros_like(scores[:1]))
        at_mode = problem.channel.at_score(scores, problem.labels)
        curvature = np.maximum(at_mode.curvature, 0.0)
        sites = sites._replace(label_precision=curvature, label_shift=curvature * scores + at_mode.slope)
        held = np.ones(start.tiles.shape[1], dtype=bool)
        held[free] = False
        try:
            opened = opened_layers(start.tiles, sites, problem.sample_weight, np.flatnonzero(held))
            gaussian = gaussian_of(opened, sites)
        except NotPositiveDefinite:
            return start
        return state_of(problem, sites, gaussian, start, iteration=1)

    def step(self, problem: Problem, state: EPState) -> EPState:
        """Sites of labels and held weights move to the wanted ones, then those of free weights are updated.

        Close to a fixed point they leap to where it seems to be by the last proposals and what became of them
        (`Secants`). Otherwise, and where a leap leaves no posterior or a vague one, they go a step of the
        way.
        """
        if state.tiles.operator is not problem.operator:
            state = replace(state, tiles=self._tiles(problem))
        wanted, log_evidence = wanted_sites(problem, state)
        now, present = state.gaussian, state.sites.as_vector()
        # Rows without weight do not count.
        n_samples, n_weights = int(np.count_nonzero(problem.sample_weight)), state.tiles.shape[1]
        step, several = state.next_step, bool(problem.channel.score_shape)
        is_free, towards = np.zeros(n_weights, dtype=bool), state.sites.towards(wanted, step)
        is_free[self._free(state, towards, n_samples)] = True
        each = np.repeat(is_free, now.mean.size // n_weights)
        answers = np.concatenate([each, each, np.zeros(2 * now.scores.mean.size, dtype=bool)])

        proposed = present if state.proposed is None else state.proposed
        # What became of the proposal: free weights are where they have moved to since, the others are to go
        # to the wanted sites.
        residual = np.where(answers, present, wanted.as_vector()) - proposed

        def steps(step: float) -> Array:
            """Of all sites. Rows of weights must not be slower than labels, or both go round in circles."""
            of_labels = np.full(2 * now.scores.mean.size, step)
            share: Array | float = step
            if several:
                share = share_of_way(state.sites.prior_precision, wanted.prior_precision, ANSWER_STEP)
            of_prior = np.broadcast_to(share, now.mean.shape).ravel()
            return np.where(answers, 1.0, np.concatenate([of_prior, of_prior, of_labels]))

        # A sample of weight 2 counts as two rows in where a leap goes.
        score_var = now.scores.var
        rows = np.sqrt(along_scores(problem.sample_weight, score_var))
        scales = (now.var, np.sqrt(now.var), rows * score_var, rows * np.sqrt(score_var))
        scale = np.concatenate([part.ravel() for part in scales])
        secants = state.secants.of(problem).seen(proposed, residual, scale)

        def reached(sites: Sites, gaussian: Gaussian, step: float | None, **rest: Any) -> EPState:
            before, after = now.scores.mean, gaussian.scores.mean
            weight, total = problem.label_weight, problem.n_samples
            rest["pace"] = state.pace.after(self.damping, before, after, step, weight, total)
            rest |= {"iteration": state.iteration + 1, "log_evidence": log_evidence}
            return state_of(problem, sites, gaussian, state, **rest)

        def moved(point: Array, step: float | None, secants: Secants) -> EPState:
            sites = state.sites.from_vector(point)
            free = np.flatnonzero(is_free | of_any_score(sites.prior_precision <= 0))
            if free.size > 2 * n_samples:
                raise NotPositiveDefinite("more prior sites are negative than labels could outweigh")
            opened = opened_layers(state.tiles, sites, problem.sample_weight, free)
            weights = self._free_answer(problem, state, opened, sites)
            return reached(weights.sites, weights.gaussian(), step, proposed=point, secants=secants)

        near = NEAR_OF_SEVERAL if several else NEAR
        if len(secants) > FIRST_SECANTS and state.change < near:
            try:
                leap = moved(secants.next_point(steps(step), scale), None, secants)
                if np.all(leap.gaussian.scores.var <= LARGEST_GROWTH**2 * score_var):
                    return leap
            except NotPositiveDefinite:
                pass
            secants = secants.last()
        for _ in range(MAX_HALVINGS):
            try:
                return moved(proposed + steps(step) * residual, step, secants)
            except NotPositiveDefinite:
                step /= 2
        # No step leaves a posterior. By these numbers the loop recognises that the run has diverged.
        nowhere = now.scores._replace(mean=np.full_like(now.scores.mean, np.nan))
        return reached(state.sites, now._replace(scores=nowhere), step, proposed=proposed, secants=secants)

    def _free(self, state: EPState, towards: Sites, n_samples: int) -> Positions:
        """The free weights of this iteration."""
        return free_weights(towards, state.sites, state.gaussian.data_precision, n_samples)

    def _free_answer(
        self, problem: Problem, state: EPState, opened: Sequence[Opened], sites: Sites
    ) -> FreeWeights:
        """The free weights, with their sites updated at the new sites of labels and held weights."""
        weights = FreeWeights.at(opened, sites, state.gaussian.var)
        return weights.answered(problem, state.weight_cavities)

    def _tiles(self, problem: Problem) -> Tiles:
        if not self.single:
            return Tiles(problem.operator)
        # With several scores, whose tolerance is wide, factors of matrices are most of the work.
        return Tiles(problem.operator, np.float32, np.float32 if problem.channel.score_shape else np.float64)

    def for_new_data(self, problem: Problem, state: EPState) -> EPState:
        # Sites are those of the data they were made for: other data start afresh.
        return self.init(problem)

    def _first_pace(self, shape: tuple[int, ...]) -> Pace:
        return Pace.first(self.damping, shape, largest=1.0 if len(shape) == 1 else LABEL_STEP)

    def _at_pace(self, state: EPState, pace: Pace) -> EPState:
        return replace(state, pace=pace, secants=Secants())

    def ended(self, state: EPState) -> EPState:
        return replace(state, secants=Secants())

    def posterior(self, problem: Problem, state: EPState) -> Posterior:
        left_out = _left_out(problem, state)
        return Posterior(
            mean=state.gaussian.mean,
            var=state.gaussian.var,
            cavity_mean=state.weight_cavities.mean,
            cavity_var=state.weight_cavities.var,
            loo_mean=left_out.mean,
            loo_var=left_out.var,
            log_evidence=state.log_evidence,
        )


def state_of(
    problem: Problem, sites: Sites, gaussian: Gaussian, before: EPState | None = None, **rest: Any
) -> EPState:
    """The state of these sites and their Gaussian, with its cavities; what is not named is as before."""
    rest |= {
        "sites": sites,
        "gaussian": gaussian,
        "weight_cavities": Cavities.left(*gaussian[:4]),
        "score_cavities": score_cavities(gaussian.scores, sites, problem.sample_weight),
    }
    return EPState(**rest) if before is None else replace(before, **rest)


def gaussian_of(opened: Sequence[Opened], sites: Sites) -> Gaussian:
    """The Gaussian of these sites as they are; raises NotPositiveDefinite if there is none."""
    pairs = zip(opened, sites.of_scores(), strict=True)
    return Gaussian.of_scores([layer.closed(layer.block_of(own)) for layer, own in pairs])


def _left_out(problem: Problem, state: EPState) -> Cavities:
    """Beliefs about every sample's scores from all other samples.

    Of D classes only differences of scores matter. Along these the curvature of a label is diag p - p pᵀ: for
    equal p, or two classes, D / (D - 1) times the p (1 - p) of the sites of single scores. So label sites are
    made stiffer by that much before one is taken out. With the sites as they are, samples would depend too
    much on their own labels, and scores without these would be too far off.
    """
    sites, scores, weight = state.sites, state.gaussian.scores, problem.sample_weight
    if problem.channel.score_shape:
        more = sites.label_precision / (scores.mean.shape[1] - 1)
        stiffer = sites._replace(
            label_precision=sites.label_precision + more, label_shift=sites.label_shift + more * scores.mean
        )
        n_samples = int(np.count_nonzero(weight))
        free = free_weights(stiffer, stiffer, state.gaussian.data_precision, n_samples)
        try:
            opened = opened_layers(state.tiles, stiffer, weight, free)
            pairs = zip(opened, stiffer.of_scores(), strict=True)
            found = [layer.scores(layer.block_of(own)) for layer, own in pairs]
            sites, scores = stiffer, Scores.side_by_side(found)
        except NotPositiveDefinite:
            pass
    return score_cavities(scores, sites, weight, weight)


def wanted_sites(problem: Problem, state: EPState) -> tuple[Sites, float]:
    """Sites that explain the tilted moments at the present cavities, and the log evidence there.

    Where a cavity is improper, a prior site stays, and so does a label site until the iteration has almost
    settled: until then such cavities become proper by themselves. Later a part of it is taken away.
    """
    old, now = state.sites, state.gaussian
    at, prior = state.score_cavities, state.weight_cavities
    tilted = problem.prior.tilted(prior.mean, prior.var)
    of_prior = prior_sites(tilted.mean, tilted.var, prior, old[:2])
    share = IMPROPER_SHARE if state.change < SETTLING else 1.0
    of_labels, label_log_z = label_sites(problem, at, old, share)
    # In the evidence each factor is its site times Z / ∫ cavity · site, as often as the sample's weight.
    prior_factors = tilted.log_z + psi_difference(prior.mean, prior.var, now.mean, now.var)
    with_site = 1.0 / (1.0 / at.var + old.label_precision)
    site_mean = with_site * (at.mean / at.var + old.label_shift)
    label_factors = label_log_z + over_scores(psi_difference(at.mean, at.var, site_mean, with_site))
    log_evidence = now.log_normaliser + float(np.sum(prior_factors) + problem.sample_weight @ label_factors)
    return Sites(*of_prior, *of_labels), log_evidence


def left_out_groups(problem: Problem, state: EPState, group: NDArray[np.intp]) -> tuple[Array, Array]:
    """Mean and variance of every score from the samples of other groups; groups are numbered from 0.

    Samples that are a group of their own have their ordinary cavities, and so have those of a group without
    which there is no posterior.
    """
    problem = state.problem_of(problem)
    alone = _left_out(problem, state)
    mean, var = alone.mean.copy(), alone.var.copy()
    several = np.flatnonzero(np.bincount(group) > 1)
    if several.size == 0:
        return mean, var
    n_samples = int(np.count_nonzero(problem.sample_weight))
    free = free_weights(state.sites, state.sites, state.gaussian.data_precision, n_samples)
    whole = opened_layers(state.tiles, state.sites, problem.sample_weight, free)
    iterations = min(GROUP_ITERATIONS, GROUP_ITERATIONS_IN_ALL // several.size)
    for number in several:
        inside = group == number
        without = problem.but(sample_weight=np.where(inside, 0.0, problem.sample_weight))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # as in the loop of `solve`
            scores = _without_group(without, state, whole, iterations)
        if scores is not None:
            mean[inside], var[inside] = scores.mean[inside], scores.var[inside]
    return mean, var


def _without_group(problem: Problem, state: EPState, whole: list[Opened], iterations: int) -> Scores | None:
    """Scores in a problem in which a group has no weight, from the state of one in which it has."""
    several = bool(problem.channel.score_shape)
    step, answers = (LABEL_STEP, GROUP_ANSWERS_OF_SEVERAL) if several else (1.0, GROUP_ANSWERS)

    def answered(sites: Sites) -> FreeWeights:
        pairs = zip(whole, sites.of_scores(), strict=True)
        opened = [layer.relabelled(own, problem.sample_weight) for layer, own in pairs]
        return FreeWeights.at(opened, sites, state.gaussian.var).answered(problem, state.weight_cavities)

    try:
        weights = answered(state.sites)
        for _ in range(answers):
            sites = weights.sites
            at = score_cavities(weights.scores(), sites, problem.sample_weight)
            of_labels = label_sites(problem, at, sites)[0]
            weights = answered(sites.towards(Sites(*sites[:2], *of_labels), step))
        scores = weights.scores()
        if iterations and not several:
            solver = EP()
            start = solver.as_start(state)
            now = state_of(problem, weights.sites, weights.gaussian(), start, proposed=None)
            for _ in range(iterations):
                now = solver.step(problem, now)
            scores = now.gaussian.scores
    except NotPositiveDefinite:
        return None
    return scores if np.isfinite(scores.mean).all() and np.isfinite(scores.var).all() else None


def held_kernel(problem: Problem, spread: Array) -> Array:
    """The covariance X diag(spread) Xᵀ of scores, from held weights of these variances."""
    return problem.operator.gram(spread, FACTOR_DTYPE).astype(FACTOR_DTYPE, copy=False)


def unknown_over_background(problem: Problem, state: EPState) -> Array:
    """Variances of scores without their own labels, of the background alone, at the present label sites."""
    background = background_of(problem.prior, problem.operator.shape[1])
    found = [state.over_background(problem, background, sites) for sites in state.sites.of_scores()]
    return np.column_stack([1.0 / scores.rest_precision for scores in found])
