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
from foldless.solvers.gaussian_layer import Gaussian, NotPositiveDefinite, Sites, gaussian_layer

# A cavity must keep this share of its marginal's precision; with less it says nothing, and its site waits.
LEAST_CAVITY_SHARE = 1e-9
# Prior sites closer to zero than this are indistinguishable from none, and their inverses from infinity.
LEAST_PRIOR_PRECISION = 1e-7
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


@dataclass(frozen=True, eq=False)
class EPState:
    """Sites, the Gaussian they make, and what the next iteration needs to know of the last."""

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
        gaussian = gaussian_layer(problem.operator, sites, problem.sample_weight)
        return EPState(
            sites=sites,
            gaussian=gaussian,
            weight_cavities=_cavities(gaussian.mean, gaussian.var, sites.prior_precision, sites.prior_shift),
            score_cavities=_cavities(
                gaussian.score_mean, gaussian.score_var, sites.label_precision, sites.label_shift
            ),
            iteration=0,
            change=np.inf,
            move=np.zeros(n_samples),
            step=self.damping.first,
            largest_step=self.damping.first,
            log_evidence=-np.inf,
        )

    def step(self, problem: Problem, state: EPState) -> EPState:
        wanted, log_z = self._wanted_sites(problem, state)
        sites, gaussian, step = self._damped(problem, state, wanted)
        weight_cavities = _cavities(gaussian.mean, gaussian.var, sites.prior_precision, sites.prior_shift)
        score_cavities = _cavities(
            gaussian.score_mean, gaussian.score_var, sites.label_precision, sites.label_shift
        )
        move = (gaussian.score_mean - state.gaussian.score_mean) / step
        share = problem.label_weight / problem.n_samples
        size = float(np.sqrt(share @ gaussian.score_mean**2))
        change = float(np.sqrt(share @ move**2)) / (size + SETTLED_SCORE)
        growth, turn = _growth_and_turn(move, state.move, share)
        next_step = self.damping.following(max(step, state.step / 2), growth, turn)
        return EPState(
            sites=sites,
            gaussian=gaussian,
            weight_cavities=weight_cavities,
            score_cavities=score_cavities,
            iteration=state.iteration + 1,
            change=change,
            move=move,
            step=min(next_step, state.largest_step),
            largest_step=state.largest_step,
            log_evidence=log_z,
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

    def posterior(self, problem: Problem, state: EPState) -> Posterior:
        return Posterior(
            mean=state.gaussian.mean,
            var=state.gaussian.var,
            cavity_mean=state.weight_cavities.mean,
            cavity_var=state.weight_cavities.var,
            score_cavity_mean=state.score_cavities.mean,
            score_cavity_var=state.score_cavities.var,
            log_evidence=state.log_evidence,
        )

    def _wanted_sites(self, problem: Problem, state: EPState) -> tuple[Sites, float]:
        """Sites that explain the tilted moments at the present cavities, and the log evidence there.

        With label cavity N(p, v), slope s and curvature c of log Z: site precision c / (1 - v c) and shift
        p · precision + s (1 + v · precision). Improper cavities keep their sites.
        """
        old, at, labels = state.sites, state.score_cavities, problem.labels
        response = problem.channel.respond(at.mean, at.var, labels)
        curvature = np.clip(response.curvature, 0.0, (1 - 1e-12) / at.var)
        label_precision = curvature / (1 - at.var * curvature)
        label_shift = at.mean * label_precision + response.slope * (1 + at.var * label_precision)

        prior = state.weight_cavities
        tilted = problem.prior.tilted(prior.mean, prior.var)
        tilted_precision = 1.0 / np.maximum(tilted.var, np.finfo(float).tiny)
        prior_precision = tilted_precision - 1.0 / prior.var
        prior_shift = tilted.mean * tilted_precision - prior.mean / prior.var
        small = np.abs(prior_precision) < LEAST_PRIOR_PRECISION
        prior_precision = np.where(
            small, np.copysign(LEAST_PRIOR_PRECISION, prior_precision), prior_precision
        )
        wanted = Sites(
            np.where(prior.proper, prior_precision, old.prior_precision),
            np.where(prior.proper, prior_shift, old.prior_shift),
            np.where(at.proper, label_precision, old.label_precision),
            np.where(at.proper, label_shift, old.label_shift),
        )
        log_evidence = (
            state.gaussian.log_normaliser
            + float(np.sum(tilted.log_z + _psi(prior.mean, prior.var)))
            - float(np.sum(_psi(state.gaussian.mean, state.gaussian.var)))
            + float(problem.sample_weight @ (response.log_z + _psi(at.mean, at.var)))
            - float(problem.sample_weight @ _psi(state.gaussian.score_mean, state.gaussian.score_var))
        )
        return wanted, log_evidence

    def _damped(self, problem: Problem, state: EPState, wanted: Sites) -> tuple[Sites, Gaussian, float]:
        """The largest step towards the wanted sites, up to the state's, that leaves a proper posterior."""
        step = 1.0 if state.iteration == 0 else state.step
        for _ in range(MAX_HALVINGS):
            sites = state.sites.towards(wanted, step)
            try:
                return sites, gaussian_layer(problem.operator, sites, problem.sample_weight), step
            except NotPositiveDefinite:
                step /= 2
        # Nothing on the way is proper: say so by numbers that the loop takes for a divergence.
        broken = replace(state.gaussian, score_mean=np.full_like(state.gaussian.score_mean, np.nan))
        return state.sites, broken, step


def _cavities(mean: Array, var: Array, site_precision: Array, site_shift: Array) -> Cavities:
    """Marginals with their sites taken out; where that is improper, the marginals themselves."""
    marginal_precision = 1.0 / var
    precision = marginal_precision - site_precision
    proper = precision > LEAST_CAVITY_SHARE * marginal_precision
    safe = np.where(proper, precision, marginal_precision)
    shift = mean * marginal_precision - site_shift
    return Cavities(np.where(proper, shift / safe, mean), 1.0 / safe, proper)


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
