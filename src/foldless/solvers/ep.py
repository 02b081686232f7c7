"""EP: expectation propagation with exact covariances, for columns that are correlated.

Every prior factor and every label is replaced by a Gaussian factor, a site; together they make a Gaussian
posterior q(w) with precision  Λ = diag(λ) + Xᵀ T X  and shift  Λ μ = γ + Xᵀ ν, whose covariances are kept
exactly (`gaussian_layer`). One iteration, in parallel over all factors [Minka 2001; Hernández-Lobato 2013]:

    take a site out of its marginal          cavity precision = marginal precision - site precision
    ask the prior or channel at that cavity  tilted mean and variance
    make the site explain them               site = tilted precision - cavity precision

A prior site may have negative precision: a spike-and-slab prior can leave a weight less certain than its
cavity. Clipping it would quadruple the error; the posterior only has to stay positive definite as a whole,
which shortens the step where necessary. Label sites are kept non-negative.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array, Posterior
from foldless.problem import Problem
from foldless.solvers.base import Solver
from foldless.solvers.damping import AdaptiveDamping, Damping
from foldless.solvers.gaussian_layer import (
    Gaussian,
    NotPositiveDefinite,
    Sites,
    Tiles,
    gaussian_layer,
    without_labels,
)

# A cavity without precision, or with less than this share of its marginal's, says nothing: its site waits.
# The share may be very small, since a prior can be all but certain that a weight is zero.
LEAST_CAVITY_SHARE = 1e-200
# The share that such a cavity is shown with: wide enough to say nothing.
WIDE_CAVITY_SHARE = 1e-9
# Prior sites closer to zero than this share of the weight's precision are indistinguishable from none,
# and their inverses, which N > M needs, from infinity.
LEAST_PRIOR_SHARE = 1e-7
# Site precisions are differences of precisions. A site that moves by less than so many units in the last
# place of those stays: a Gaussian prior keeps its own precision, however small beside the labels'.
ROUNDING = 32 * np.finfo(np.float64).eps
# Scores within a hundredth of a logit of where they were count as settled, as in GAMP.
SETTLED_SCORE = 1e-2
# A step is halved this often to keep the posterior positive definite before the iteration is called diverged.
MAX_HALVINGS = 12
CALMEST_STEP = 0.02


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
class EPState:
    """Sites, the Gaussian they make, and what the next iteration needs to know of the last."""

    tiles: Tiles
    sites: Sites
    gaussian: Gaussian
    weight_cavities: Cavities
    score_cavities: Cavities
    iteration: int
    change: float
    move: Array
    step: float
    largest_step: float
    log_evidence: float

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
class EP(Solver[EPState]):
    """Expectation propagation; an iteration costs O(M²N) for N > M features, O(N²M) otherwise."""

    damping: Damping = field(default_factory=lambda: AdaptiveDamping(first=0.8, smallest=0.05))

    def init(self, problem: Problem) -> EPState:
        n_samples, n_weights = problem.operator.shape
        mean, var = problem.prior.start(n_weights)
        precision = 1.0 / np.maximum(var, np.finfo(float).tiny)
        sites = Sites(precision, precision * mean, np.zeros(n_samples), np.zeros(n_samples))
        gaussian = without_labels(problem.operator, sites.prior_precision, sites.prior_shift)
        return EPState(
            tiles=Tiles(problem.operator),
            sites=sites,
            gaussian=gaussian,
            weight_cavities=_weight_cavities(gaussian),
            score_cavities=_score_cavities(gaussian, sites, problem.sample_weight),
            iteration=0,
            change=np.inf,
            move=np.zeros(n_samples),
            step=self.damping.first,
            largest_step=self.damping.first,
            log_evidence=-np.inf,
        )

    def step(self, problem: Problem, state: EPState) -> EPState:
        tiles = state.tiles if state.tiles.operator is problem.operator else Tiles(problem.operator)
        wanted, log_evidence = self._wanted_sites(problem, state)
        sites, gaussian, step = self._damped(problem, tiles, state, wanted)
        move = (gaussian.score_mean - state.gaussian.score_mean) / step
        share = problem.label_weight / problem.n_samples
        size = float(np.sqrt(share @ gaussian.score_mean**2))
        change = float(np.sqrt(share @ move**2)) / (size + SETTLED_SCORE)
        growth, turn = _growth_and_turn(move, state.move, share)
        next_step = self.damping.following(max(step, state.step / 2), growth, turn)
        return EPState(
            tiles=tiles,
            sites=sites,
            gaussian=gaussian,
            weight_cavities=_weight_cavities(gaussian),
            score_cavities=_score_cavities(gaussian, sites, problem.sample_weight),
            iteration=state.iteration + 1,
            change=change,
            move=move,
            step=min(next_step, state.largest_step),
            largest_step=state.largest_step,
            log_evidence=log_evidence,
        )

    def calmer(self, state: EPState) -> EPState | None:
        largest = state.largest_step / 3
        if largest < CALMEST_STEP:
            return None
        return replace(state, step=largest, largest_step=largest)

    def resumed(self, state: EPState) -> EPState:
        return replace(
            state,
            change=np.inf,
            move=np.zeros_like(state.move),
            step=self.damping.first,
            largest_step=self.damping.first,
        )

    def transferred(self, problem: Problem, state: EPState) -> EPState:
        # Sites answer to the data they were made for; others start afresh.
        return self.init(problem)

    def posterior(self, problem: Problem, state: EPState) -> Posterior:
        left_out = _score_cavities(state.gaussian, state.sites, problem.sample_weight, problem.loo_weight)
        return Posterior(
            mean=state.gaussian.mean,
            var=state.gaussian.var,
            cavity_mean=state.weight_cavities.mean,
            cavity_var=state.weight_cavities.var,
            loo_mean=left_out.mean,
            loo_var=left_out.var,
            log_evidence=state.log_evidence,
        )

    def _wanted_sites(self, problem: Problem, state: EPState) -> tuple[Sites, float]:
        """Sites that explain the tilted moments at the present cavities, and the log evidence there.

        With label cavity N(p, v), slope s and curvature c of log Z: site precision c / (1 - v c) and shift
        p · precision + s (1 + v · precision). Improper cavities keep their sites.
        """
        old, now = state.sites, state.gaussian
        at = state.score_cavities
        response = problem.channel.respond(at.mean, at.var, problem.labels)
        curvature = np.clip(response.curvature, 0.0, (1 - 1e-12) / at.var)
        label_precision = curvature / (1 - at.var * curvature)
        label_shift = at.mean * label_precision + response.slope * (1 + at.var * label_precision)

        prior = state.weight_cavities
        tilted = problem.prior.tilted(prior.mean, prior.var)
        tilted_precision = 1.0 / np.maximum(tilted.var, np.finfo(float).tiny)
        tilted_shift = tilted.mean * tilted_precision
        prior_precision = _settled(tilted_precision - 1.0 / prior.var, old.prior_precision, tilted_precision)
        prior_shift = _settled(tilted_shift - prior.mean / prior.var, old.prior_shift, np.abs(tilted_shift))
        if state.tiles.by_columns:
            least = LEAST_PRIOR_SHARE * tilted_precision
            small = (np.abs(prior_precision) < least) & (prior_precision != old.prior_precision)
            prior_precision = np.where(small, np.copysign(least, prior_precision), prior_precision)
        known = prior.proper & np.isfinite(prior_precision) & np.isfinite(prior_shift)
        heard = at.proper & np.isfinite(label_precision) & np.isfinite(label_shift)
        wanted = Sites(
            np.where(known, prior_precision, old.prior_precision),
            np.where(known, prior_shift, old.prior_shift),
            np.where(heard, label_precision, old.label_precision),
            np.where(heard, label_shift, old.label_shift),
        )
        # Each factor is Z / ∫ cavity·site times its site; weight counts how many there are of it.
        prior_factors = tilted.log_z + _psi(prior.mean, prior.var) - _psi(now.mean, now.var)
        with_site = 1.0 / (1.0 / at.var + old.label_precision)
        site_mean = with_site * (at.mean / at.var + old.label_shift)
        label_factors = response.log_z + _psi(at.mean, at.var) - _psi(site_mean, with_site)
        log_evidence = now.log_normaliser + float(
            np.sum(prior_factors) + problem.sample_weight @ label_factors
        )
        return wanted, log_evidence

    def _damped(
        self, problem: Problem, tiles: Tiles, state: EPState, wanted: Sites
    ) -> tuple[Sites, Gaussian, float]:
        """The largest step towards the wanted sites, up to the state's, that leaves a proper posterior."""
        step = 1.0 if state.iteration == 0 else state.step
        for _ in range(MAX_HALVINGS):
            sites = state.sites.towards(wanted, step)
            try:
                return sites, gaussian_layer(tiles, sites, problem.sample_weight), step
            except NotPositiveDefinite:
                step /= 2
        # Nothing on the way is proper: say so by numbers that the loop takes for a divergence.
        broken = replace(state.gaussian, score_mean=np.full_like(state.gaussian.score_mean, np.nan))
        return state.sites, broken, step


def _weight_cavities(gaussian: Gaussian) -> Cavities:
    return Cavities.left(gaussian.mean, gaussian.var, gaussian.data_precision, gaussian.data_slope)


def _score_cavities(
    gaussian: Gaussian, sites: Sites, sample_weight: Array, lost: Array | None = None
) -> Cavities:
    """Scores without one label: a sample of weight 2 keeps the other, one of weight ½ had half to lose."""
    lost = np.minimum(sample_weight, 1.0) if lost is None else lost
    precision = gaussian.rest_precision + (sample_weight - lost) * sites.label_precision
    slope = lost * (sites.label_precision * gaussian.score_mean - sites.label_shift)
    return Cavities.left(gaussian.score_mean, gaussian.score_var, precision, slope)


def _settled(wanted: Array, old: Array, size: Array) -> Array:
    """The wanted values, but the old ones where the difference is rounding error of numbers of this size."""
    return np.where(np.abs(wanted - old) <= ROUNDING * size, old, wanted)


def _psi(mean: Array, var: Array) -> Array:
    """Log normaliser of a Gaussian in its natural parameters: mean²/2var + ½ log(2π var)."""
    return 0.5 * (mean * mean / var + np.log(2 * np.pi * var))


def _growth_and_turn(move: Array, previous: Array, share: Array) -> tuple[float, float]:
    square, previous_square = float(share @ move**2), float(share @ previous**2)
    if not (square > 0 and previous_square > 0):
        return 0.0, 1.0
    return (square / previous_square) ** 0.5, float(share @ (move * previous)) / (
        square * previous_square
    ) ** 0.5
