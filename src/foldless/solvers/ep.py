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

**Order.** All sites in parallel, each part of the way, is what one would like, and what runs away: as scores
become less certain labels say less, and a negative prior site that still answers to what they said before
leaves a weight next to no precision, which makes scores less certain. An iteration therefore moves the label
sites and those of held weights, and then lets the free weights, whose sites are weak or negative, answer to
what labels say now. That is cheap, because it happens in the free weights' own small Gaussians
(`free_weights`), and its fixed points are those of any other order. Weights that compete for what
labels say can still go round in circles at any step; `secants` finds what they go round.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from foldless.beliefs import Array, Posterior
from foldless.problem import Problem
from foldless.solvers.cavities import Cavities, explaining_sites, label_sites, score_cavities, weight_cavities
from foldless.solvers.cluster_sites import Cluster, ClusterSite, cavities_of
from foldless.solvers.free_weights import LARGEST_GROWTH, MAX_HALVINGS, Layers, free_weights
from foldless.solvers.gaussian_layer import (
    Gaussian,
    NotPositiveDefinite,
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
    psi,
)

# Within a tenth of where they are going, sites leap: earlier they have not learnt enough and go astray. Those
# of several scores go astray from further off. It takes this many proposals to learn from, besides the
# present one.
NEAR, NEAR_OF_SEVERAL = 0.1, 0.02
FIRST_SECANTS = 2
# The longest step of labels of several scores: what a label says of the difference of two scores, sites of
# both would explain in full.
LABEL_STEP = 0.5


@dataclass(frozen=True, eq=False)
class EPState(PacedState):
    """Sites, and the Gaussian they make; of several scores side by side, (weights or samples, scores)."""

    tiles: Tiles
    sites: Sites
    gaussian: Gaussian
    weight_cavities: Cavities
    score_cavities: Cavities
    # The sites before free weights answered (None: as they are), and what earlier ones have taught.
    proposed: Array | None = field(default=None, kw_only=True)
    secants: Secants = field(default_factory=Secants, kw_only=True)
    # Joint sites, of which `sites` has the diagonals, and their clusters as judged last (`ClusteredEP`).
    cluster_sites: tuple[ClusterSite, ...] = field(default=(), kw_only=True)
    clusters: tuple[Cluster, ...] = field(default=(), kw_only=True)

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


@dataclass(frozen=True)
class EP(MessagePassing[EPState]):
    """Expectation propagation with exact covariances of the weights of each score.

    An iteration costs O(M²N) for each score for N > M features, O(N²M) otherwise. With several scores no step
    is longer than LABEL_STEP.
    """

    damping: Damping = field(default_factory=lambda: AdaptiveDamping(first=0.85, smallest=0.3))

    def init(self, problem: Problem) -> EPState:
        n_samples, n_weights = problem.operator.shape
        shape = problem.channel.score_shape
        mean, var = problem.prior.start(n_weights)
        precision = 1.0 / np.maximum(var, np.finfo(float).tiny)
        nothing = np.zeros(n_samples)
        sites = Sites(*(for_scores(part, shape) for part in (precision, precision * mean, nothing, nothing)))
        # For the first labels only; the sites are the prior's all the same.
        square = problem.operator.squared_norms(problem.sample_weight)[1] / problem.sample_weight.sum()
        narrower = np.maximum(precision, square / VAGUEST_START)
        gaussian = without_labels(problem.operator, narrower, narrower * mean)
        return state_of(
            problem,
            sites,
            Gaussian.of_scores([gaussian] * int(np.prod(shape))),
            tiles=Tiles(problem.operator),
            iteration=0,
            pace=self._first_pace((n_samples, *shape)),
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
        start = self.init(problem)
        weights = Cavities.believed(cavity_mean, cavity_var)
        scores = Cavities.believed(score_cavity_mean, score_cavity_var)
        of_labels, _ = label_sites(problem, scores, start.sites)
        believed = Sites(
            *explaining_sites(
                np.asarray(weight_mean, dtype=np.float64),
                np.asarray(weight_var, dtype=np.float64),
                weights,
                start.sites.prior_precision,
                start.sites.prior_shift,
            ),
            *of_labels,
        )
        share = 1.0
        for _ in range(MAX_HALVINGS + 1):
            sites = start.sites.towards(believed, share)
            free = np.flatnonzero(of_any_score(sites.prior_precision < 1.0 / weights.var))
            try:
                gaussian = Layers.open(start.tiles, sites, problem.sample_weight, free).gaussian()
            except NotPositiveDefinite:
                share /= 2
                continue
            return state_of(problem, sites, gaussian, start, iteration=1)
        return start

    def step(self, problem: Problem, state: EPState) -> EPState:
        if state.tiles.operator is not problem.operator:
            state = replace(state, tiles=Tiles(problem.operator))
        wanted, log_evidence = wanted_sites(problem, state)
        moved = _moved(problem, state, wanted)
        before, after = state.gaussian.score_mean, moved.gaussian.score_mean
        return state_of(
            problem,
            moved.sites,
            moved.gaussian,
            state,
            iteration=state.iteration + 1,
            pace=state.pace.after(
                self.damping, before, after, moved.step, problem.label_weight, problem.n_samples
            ),
            log_evidence=log_evidence,
            proposed=moved.proposed,
            secants=moved.secants,
            cluster_sites=moved.cluster_sites,
            clusters=moved.clusters,
        )

    def for_new_data(self, problem: Problem, state: EPState) -> EPState:
        # Sites answer to the data they were made for; others start afresh.
        return self.init(problem)

    def _first_pace(self, shape: tuple[int, ...]) -> Pace:
        return Pace.first(self.damping, shape, largest=1.0 if len(shape) == 1 else LABEL_STEP)

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


def state_of(
    problem: Problem, sites: Sites, gaussian: Gaussian, before: EPState | None = None, **rest: Any
) -> EPState:
    """The state of these sites and their Gaussian, with its cavities; what is not named is as before."""
    at = weight_cavities(gaussian)
    if clusters := rest.get("clusters"):
        columns, mean, var = cavities_of(clusters)
        at.mean[columns], at.var[columns], at.proper[columns] = mean, var, True
    rest |= {
        "sites": sites,
        "gaussian": gaussian,
        "weight_cavities": at,
        "score_cavities": score_cavities(gaussian.scores, sites, problem.sample_weight),
    }
    return EPState(**rest) if before is None else replace(before, **rest)


def wanted_sites(problem: Problem, state: EPState) -> tuple[Sites, float]:
    """Sites that explain the tilted moments at the present cavities, and the log evidence there.

    Improper cavities keep their sites.
    """
    old, now = state.sites, state.gaussian
    at, prior = state.score_cavities, state.weight_cavities
    tilted = problem.prior.tilted(prior.mean, prior.var)
    of_prior = explaining_sites(tilted.mean, tilted.var, prior, old.prior_precision, old.prior_shift)
    of_labels, label_log_z = label_sites(problem, at, old)
    # Each factor is Z / ∫ cavity·site times its site; weight counts how many there are of it.
    prior_factors = tilted.log_z + psi(prior.mean, prior.var) - psi(now.mean, now.var)
    with_site = 1.0 / (1.0 / at.var + old.label_precision)
    site_mean = with_site * (at.mean / at.var + old.label_shift)
    label_factors = label_log_z + over_scores(psi(at.mean, at.var) - psi(site_mean, with_site))
    log_evidence = now.log_normaliser + float(np.sum(prior_factors) + problem.sample_weight @ label_factors)
    for cluster in state.clusters:
        log_evidence += cluster.log_factor() - float(np.sum(prior_factors[cluster.columns]))
    return Sites(*of_prior, *of_labels), log_evidence


@dataclass(frozen=True, eq=False)
class _Moved:
    """Where an iteration has come to."""

    sites: Sites
    gaussian: Gaussian
    proposed: Array
    secants: Secants
    step: float | None  # None for a leap
    cluster_sites: tuple[ClusterSite, ...]
    clusters: tuple[Cluster, ...]


def _moved(problem: Problem, state: EPState, wanted: Sites) -> _Moved:
    """Labels and held weights go towards the wanted sites, free weights answer.

    Close to a fixed point by a leap, to where the last proposals and what became of them point (`Secants`);
    otherwise, and where that leaves no posterior or a vague one, a step of the way. Joint sites do not leap.
    """
    now, present = state.gaussian, state.sites.as_vector()
    n_samples, n_weights = state.tiles.shape
    step = state.next_step
    is_free = np.zeros(n_weights, dtype=bool)
    towards, joint = state.sites.towards(wanted, step), state.cluster_sites
    is_free[free_weights(towards, state.sites, now.data_precision, joint)] = True
    each = np.repeat(is_free, now.mean.size // n_weights)
    answers = np.concatenate([each, each, np.zeros(2 * now.score_mean.size, dtype=bool)])

    proposed = present if state.proposed is None else state.proposed
    # What became of the proposal: free weights have answered already, the others are to go where they want.
    residual = np.where(answers, present, wanted.as_vector()) - proposed
    # A sample of weight 2 has two rows' say in where a leap goes.
    rows = np.sqrt(along_scores(problem.sample_weight, now.score_var))
    scales = (now.var, np.sqrt(now.var), rows * now.score_var, rows * np.sqrt(now.score_var))
    scale = np.concatenate([part.ravel() for part in scales])
    secants = state.secants.of(problem).seen(proposed, residual, scale)

    def arrived(point: Array, step: float | None, secants: Secants) -> _Moved:
        sites = state.sites.from_vector(point)
        free = np.flatnonzero(is_free | of_any_score(sites.prior_precision <= 0))
        if free.size > 2 * n_samples:
            raise NotPositiveDefinite("more prior sites are negative than labels could outweigh")
        layers = Layers.open(state.tiles, sites, problem.sample_weight, free)
        weights = layers.free_weights(now.var, joint).answered(problem, state.weight_cavities)
        return _Moved(
            weights.sites, weights.gaussian(), point, secants, step, weights.cluster_sites, weights.clusters
        )

    near = NEAR_OF_SEVERAL if problem.channel.score_shape else NEAR
    if len(secants) > FIRST_SECANTS and state.change < near and not joint:
        try:
            leap = arrived(secants.next_point(np.where(answers, 1.0, step), scale), None, secants)
            if np.all(leap.gaussian.score_var <= LARGEST_GROWTH**2 * now.score_var):
                return leap
        except NotPositiveDefinite:
            pass
        secants = secants.last()
    for _ in range(MAX_HALVINGS):
        try:
            return arrived(proposed + np.where(answers, 1.0, step) * residual, step, secants)
        except NotPositiveDefinite:
            step /= 2
    # Nothing on the way is proper: say so by numbers that the loop takes for a divergence.
    broken = replace(now, score_mean=np.full_like(now.score_mean, np.nan))
    return _Moved(state.sites, broken, proposed, secants, step, joint, state.clusters)
