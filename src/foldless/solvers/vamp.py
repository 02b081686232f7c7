"""VAMP: generalised vector approximate message passing, for ill-conditioned matrices at O(MN) an iteration.

Expectation propagation as in `ep`, with the site precisions tied: one number λ for all weights, one number τ
for all samples [Schniter, Rangan, Fletcher 2016; He, Wen, Jin 2017]. The Gaussian that the sites make then
has covariances that one eigendecomposition of the Gram matrix gives for every λ and τ (`tied_layer`). One
iteration, products element-wise and ⟨·⟩ a mean over weights or samples:

    Gaussian of the sites N(w; r₂, 1/λ), N(z; p₂, 1/τ), z = X w:   means m and X m, mean variances vw and vz
    take the sites out     g = 1/vw - λ,  r₁ = (m/vw - λ r₂)/g;    t = 1/vz - τ,  p₁ = (X m/vz - τ p₂)/t
    ask the prior          ŵ, a = ⟨var⟩ at N(r₁, 1/g):             λ = 1/a - g,   r₂ = ŵ + (g/λ)(ŵ - r₁)
    ask the channel        slope s, c = ⟨curvature⟩ at N(p₁, 1/t): τ = c t/(t - c),  p₂ = p₁ + s (1/t + 1/τ)

**Columns.** One variance for all weights is right for columns of equal norm, such as standardised ones.
Columns of other norms are brought to equal norm here and their weights with them, so it is the cavity
variance times the squared column norm that is shared; columns of zeros learn nothing and are left out.

**Kept columns.** An intercept has a far wider prior and a far better informed weight than any feature, so no
variance fits both. Kept columns, and a few columns with priors of another width, are therefore no part of the
tie: each has an exact site of its own, as in EP, and they enter the Gaussian exactly, by a Schur complement.

**Sample weights.** A sample of weight 2 is two equal rows: rows of X and p₂ are multiplied by the root of
their weights inside the Gaussian, and means over samples count each sample by its weight.

The price of tying is accuracy where weights differ much in their variances. On matrices with independent
entries VAMP is GAMP to about one per cent; on correlated ones it lies between GAMP and EP, close to EP with a
dense prior. With a sparse prior it knows nothing of the correlation between the few active weights and the
intercept, so standard deviations of kept columns come out too small, as they do in GAMP.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from foldless.beliefs import Array, Posterior
from foldless.problem import Problem
from foldless.solvers.message_passing import (
    VAGUEST_START,
    AdaptiveDamping,
    Damping,
    MessagePassing,
    Pace,
    PacedState,
    psi,
)
from foldless.solvers.sites import Cavities
from foldless.solvers.tied_layer import LEAST_CAVITY_SHARE, Belief, TiedLayer, TiedSites, tied_layer

# Kept columns have theirs by subtraction, so more of it must be left; with less the site waits.
LEAST_KEPT_SHARE = 1e-9
# Tied prior sites lie between these multiples of their cavity's precision. A sparse prior may want a negative
# one (its weights are on average less certain than their cavities), with which directions that no sample
# sees would be improper: N > M has such directions, so the tie cannot follow EP there.
LEAST_PRIOR_SHARE, LARGEST_PRIOR_SHARE = 1e-6, 1e13
# The same for tied label sites; a channel that is not log-concave may want a negative one.
LEAST_LABEL_SHARE, LARGEST_LABEL_SHARE = 1e-10, 1e10
# Sites of kept columns stay positive; theirs are wide log-concave priors, for which that is no restriction.
LEAST_KEPT_PRECISION = 1e-12
# The cavity of a weight whose column is zero: nothing, in units of log-odds.
IDLE_VARIANCE = 1e12


@dataclass(frozen=True, eq=False)
class VAMPState(PacedState):
    """Sites, the Gaussian they make, and what the next iteration needs to know of the last."""

    layer: TiedLayer
    sites: TiedSites
    belief: Belief
    cavity_mean: Array
    cavity_var: Array
    kept_cavities: Cavities
    score_cavity_mean: Array
    score_cavity_var: Array


@dataclass(frozen=True)
class VAMP(MessagePassing[VAMPState]):
    """Message passing for rotationally invariant matrices; columns are best standardised to equal norm.

    The start costs one Gram matrix and its eigenvectors, O(M²N + M³) for N > M features, O(N²M + N³)
    otherwise; an iteration two visits of the data.
    """

    damping: Damping = field(default_factory=AdaptiveDamping)

    def init(self, problem: Problem) -> VAMPState:
        if np.any(problem.labels == 0):
            raise ValueError(
                "VAMP gives all samples one variance and cannot hold rows that are constraints (labels of 0, "
                "from mean removal). It needs no mean removal: use it with mean_removal=False, or use EP."
            )
        layer = tied_layer(problem)
        mean, var = problem.prior.start(problem.operator.shape[1])
        scaled_var = var[layer.tied] * layer.norm**2
        precision = 1.0 / max(float(np.mean(scaled_var)) if scaled_var.size else 1.0, np.finfo(float).tiny)
        kept_precision = 1.0 / np.maximum(var[layer.kept], np.finfo(float).tiny)
        sites = TiedSites(
            precision=precision,
            mean=mean[layer.tied] * layer.norm,
            label_precision=0.0,
            label_mean=np.zeros(problem.labels.size),
            kept_precision=kept_precision,
            kept_shift=kept_precision * mean[layer.kept],
        )
        belief = layer.belief(sites)
        vagueness = belief.score_var / VAGUEST_START
        if vagueness > 1.0:
            sites = sites._replace(
                precision=vagueness * sites.precision,
                kept_precision=vagueness * sites.kept_precision,
                kept_shift=vagueness * sites.kept_shift,
            )
            belief = layer.belief(sites)
        return _state(
            layer,
            sites,
            belief,
            iteration=0,
            pace=Pace.first(self.damping, problem.labels.size),
            log_evidence=-np.inf,
        )

    def step(self, problem: Problem, state: VAMPState) -> VAMPState:
        if not state.layer.serves(problem):
            state = self.for_new_data(problem, state)
        layer = state.layer
        wanted, log_evidence = _wanted_sites(problem, state)
        step = state.next_step
        sites = state.sites.towards(wanted, step)
        belief = layer.belief(sites)
        before, after = state.belief.score_mean, belief.score_mean
        pace = state.pace.after(self.damping, before, after, step, problem.label_weight, problem.n_samples)
        return _state(
            layer, sites, belief, iteration=state.iteration + 1, pace=pace, log_evidence=log_evidence
        )

    def for_new_data(self, problem: Problem, state: VAMPState) -> VAMPState:
        """The state as a warm start for other data of the same shape: its sites, in the new Gaussian."""
        fresh, old, sites = self.init(problem), state.layer, state.sites
        layer = fresh.layer
        mean = problem.prior.start(layer.n_weights)[0]
        mean[old.tied] = sites.mean / old.norm
        sites = sites._replace(mean=mean[layer.tied] * layer.norm)
        if not np.array_equal(layer.kept, old.kept):
            sites = sites._replace(
                kept_precision=fresh.sites.kept_precision, kept_shift=fresh.sites.kept_shift
            )
        return _state(
            layer,
            sites,
            layer.belief(sites),
            iteration=state.iteration,
            pace=fresh.pace,
            log_evidence=-np.inf,
        )

    def posterior(self, problem: Problem, state: VAMPState) -> Posterior:
        """Moments of the prior at the cavities: their means are the Gaussian's at a fixed point, and their
        variances, unlike the tied one, tell weights apart. Leave-one-out takes out `loo_weight` equal sites
        of a sample, where a cavity takes out one."""
        tilted = problem.prior.tilted(state.cavity_mean, state.cavity_var)
        rows_kept = (1.0 - problem.loo_weight) * state.sites.label_precision
        loo_precision = np.maximum(
            state.belief.score_cavity_precision + rows_kept, LEAST_CAVITY_SHARE / state.belief.score_var
        )
        shift = state.belief.score_cavity_precision * state.score_cavity_mean
        return Posterior(
            mean=tilted.mean,
            var=tilted.var,
            cavity_mean=state.cavity_mean,
            cavity_var=state.cavity_var,
            loo_mean=(shift + rows_kept * state.sites.label_mean) / loo_precision,
            loo_var=1.0 / loo_precision,
            log_evidence=state.log_evidence,
        )


def _state(layer: TiedLayer, sites: TiedSites, belief: Belief, **rest: object) -> VAMPState:
    """The state of a belief: its cavities, scattered to all weights and samples."""
    weight_ratio = sites.precision / belief.cavity_precision
    tied_mean = belief.mean + weight_ratio * (belief.mean - sites.mean)
    kept = _kept_cavities(belief, sites)
    cavity_mean, cavity_var = np.zeros(layer.n_weights), np.full(layer.n_weights, IDLE_VARIANCE)
    cavity_mean[layer.tied] = tied_mean / layer.norm
    cavity_var[layer.tied] = 1.0 / (belief.cavity_precision * layer.norm**2)
    cavity_mean[layer.kept], cavity_var[layer.kept] = kept.mean, kept.var
    score_ratio = sites.label_precision / belief.score_cavity_precision
    score_cavity_mean = belief.score_mean + score_ratio * (belief.score_mean - sites.label_mean)
    return VAMPState(
        layer=layer,
        sites=sites,
        belief=belief,
        cavity_mean=cavity_mean,
        cavity_var=cavity_var,
        kept_cavities=kept,
        score_cavity_mean=score_cavity_mean,
        score_cavity_var=np.full(score_cavity_mean.size, 1.0 / belief.score_cavity_precision),
        **rest,  # type: ignore[arg-type]
    )


def _kept_cavities(belief: Belief, sites: TiedSites) -> Cavities:
    """Marginals of kept weights with their sites taken out; where nothing is left, the marginals."""
    marginal = 1.0 / belief.kept_var
    precision = marginal - sites.kept_precision
    proper = precision > LEAST_KEPT_SHARE * marginal
    safe = np.where(proper, precision, marginal)
    shift = belief.kept_mean * marginal - sites.kept_shift
    return Cavities(np.where(proper, shift / safe, belief.kept_mean), 1.0 / safe, proper)


def _wanted_sites(problem: Problem, state: VAMPState) -> tuple[TiedSites, float]:
    """Sites that explain the tilted moments at the present cavities, and the log evidence there.

    The evidence is that of EP with tied variances, and stationary in the sites like EP's: at a fixed point
    its derivative in a parameter of prior or channel is that of Σ log Z.
    """
    layer, belief, weight = state.layer, state.belief, problem.sample_weight
    total_weight = float(weight.sum())
    tilted = problem.prior.tilted(state.cavity_mean, state.cavity_var)
    cavity_precision = belief.cavity_precision
    tied_mean = tilted.mean[layer.tied] * layer.norm
    tied_var = float(np.mean(tilted.var[layer.tied] * layer.norm**2)) if layer.tied.size else 1.0
    precision = float(
        np.clip(
            1.0 / max(tied_var, np.finfo(float).tiny) - cavity_precision,
            LEAST_PRIOR_SHARE * cavity_precision,
            LARGEST_PRIOR_SHARE * cavity_precision,
        )
    )
    tied_cavity_mean = state.cavity_mean[layer.tied] * layer.norm
    site_mean = tied_mean + (cavity_precision / precision) * (tied_mean - tied_cavity_mean)

    kept, kept_precision, kept_shift = state.kept_cavities, state.sites.kept_precision, state.sites.kept_shift
    if layer.kept.size:
        kept_tilted = 1.0 / np.maximum(tilted.var[layer.kept], np.finfo(float).tiny)
        wanted = np.maximum(kept_tilted - 1.0 / kept.var, LEAST_KEPT_PRECISION)
        shift = tilted.mean[layer.kept] * (wanted + 1.0 / kept.var) - kept.mean / kept.var
        kept_precision = np.where(kept.proper, wanted, kept_precision)
        kept_shift = np.where(kept.proper, shift, kept_shift)

    response = problem.channel.respond(state.score_cavity_mean, state.score_cavity_var, problem.labels)
    score_precision = belief.score_cavity_precision
    # τ v = v c / (1 - v c), with v the cavity variance and c the mean curvature.
    explained = float(weight @ response.curvature) / (total_weight * score_precision)
    ratio = explained / (1 - explained) if explained < 1 else np.inf
    label_precision = score_precision * float(np.clip(ratio, LEAST_LABEL_SHARE, LARGEST_LABEL_SHARE))
    label_mean = state.score_cavity_mean + response.slope * (1 / score_precision + 1 / label_precision)

    log_evidence = (
        belief.log_normaliser
        + float(np.sum(tilted.log_z[layer.tied] - np.log(layer.norm)))
        + float(np.sum(psi(tied_cavity_mean, 1 / cavity_precision) - psi(belief.mean, belief.var)))
        + float(np.sum(tilted.log_z[layer.kept]))
        + float(np.sum(psi(kept.mean, kept.var) - psi(belief.kept_mean, belief.kept_var)))
        + float(weight @ (response.log_z + psi(state.score_cavity_mean, state.score_cavity_var)))
        - float(weight @ psi(belief.score_mean, belief.score_var))
    )
    sites = TiedSites(precision, site_mean, label_precision, label_mean, kept_precision, kept_shift)
    return sites, log_evidence
