"""VAMP: generalised vector approximate message passing, for ill-conditioned matrices at O(MN) an iteration.

Expectation propagation as in `ep`, with the site precisions tied: one number λ for all weights, one number τ
for all samples [Schniter, Rangan, Fletcher 2016; He, Wen, Jin 2017]. The Gaussian that the sites make then
has covariances that one eigendecomposition of the Gram matrix gives for every λ and τ (`TiedLayer`), so that
an iteration visits the data only for products with vectors. One iteration, products element-wise and ⟨·⟩ a
mean over weights or samples:

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
dense prior. With a sparse prior it leaves out the correlation between the few active weights and the
intercept, so standard deviations of kept columns come out too small, as they do in GAMP.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh

from foldless.beliefs import Array, Posterior
from foldless.problem import Problem
from foldless.registry import registered
from foldless.solvers.gaussian_layer import Positions
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

# A cavity keeps at least this share of its marginal's precision: labels that say nothing leave weights a
# cavity so wide that every prior answers with its own moments.
LEAST_CAVITY_SHARE = 1e-12
# Columns with priors of another width are treated exactly up to this many; more are a group to be tied.
MOST_EXACT_COLUMNS = 32
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


class TiedSites(NamedTuple):
    """Gaussian sites: one precision for all tied weights, one for all samples, one for each kept column."""

    precision: float  # λ
    mean: Array  # r₂ of the tied weights, at equal column norms
    label_precision: float  # τ, of one of the equal rows that a sample counts as
    label_mean: Array  # p₂
    kept_precision: Array
    kept_shift: Array

    def towards(self, other: TiedSites, step: float) -> TiedSites:
        """Part of the way in precisions and in shifts, precision times mean.

        Means are not safe to mix: where labels say next to nothing they are next to infinite, and only
        their shifts are of any size.
        """
        if step == 1.0:
            return other

        between = [a + step * (b - a) for a, b in zip(self._shifts(), other._shifts(), strict=True)]
        precision, shift, label_precision, label_shift, *kept = between
        return TiedSites(precision, shift / precision, label_precision, label_shift / label_precision, *kept)

    def _shifts(self) -> tuple[Any, ...]:
        precision, mean, label_precision, label_mean, *kept = self
        return precision, precision * mean, label_precision, label_precision * label_mean, *kept


class Belief(NamedTuple):
    """The Gaussian that the sites make: marginals, and the tied cavities without cancellation."""

    mean: Array  # of the tied weights, at equal column norms
    var: float
    cavity_precision: float  # 1/var - λ
    kept_mean: Array
    kept_var: Array
    score_mean: Array
    score_var: float
    score_cavity_precision: float  # 1/score_var - τ
    log_normaliser: float


class TiedLayer(ABC):
    """The Gaussian of tied sites, from eigenvalues d of the Gram matrix of A = W^½ X/norm.

    With B = W^½ (kept columns), Λ and γ the kept sites' precisions and shifts, q = W^½ p₂, b = q - A r₂ and
    functions of the Gram matrix written as functions of d:

        δ = λ/(λ + τ d),   h = τ/(λ + τ d),   C = diag Λ + τ Bᵀ δ B   (precision of the kept weights u)
        u = C⁻¹ (γ + τ Bᵀ δ b),    w = r₂ + Aᵀ h (b - B u)
        N vw = Σ 1/(λ + τ d) + tr C⁻¹ Bᵀ A h² Aᵀ B,    M vz = Σ d/(λ + τ d) + tr C⁻¹ Bᵀ δ² B
        log |precision| = Σ log(λ + τ d) + log |C|,

    N, M and the sums counting all weights and all rows, those with d = 0 included. N (1 - λ vw) and
    M (1 - τ vz), the numerators of the cavity precisions, are summed without cancellation.
    """

    def __init__(self, problem: Problem, tied: Positions, kept: Positions, norm: Array) -> None:
        self.operator = problem.operator
        self.sample_weight = problem.sample_weight
        self.n_samples = float(problem.sample_weight.sum())
        self.n_weights = problem.operator.shape[1]
        self.tied, self.kept, self.norm = tied, kept, norm
        self.root_weight = np.sqrt(problem.sample_weight)
        self.kept_values = problem.operator.columns(kept)
        self.weighted_kept = self.root_weight[:, np.newaxis] * self.kept_values  # B

    values: Array  # d, as many as the Gram matrix that was decomposed has

    @abstractmethod
    def _means(self, sites: TiedSites, h: Array, kept_precision: _Factor) -> tuple[Array, Array, Array]:
        """w, u and the scores."""

    @abstractmethod
    def _kept_products(self, delta: Array, h: Array) -> tuple[Array, Array, Array]:
        """Bᵀ δ B, Bᵀ δ² B and Bᵀ A h² Aᵀ B."""

    def serves(self, problem: Problem) -> bool:
        """Whether this is the layer of that problem too, whatever its prior and channel."""
        return self.operator is problem.operator and (
            self.sample_weight is problem.sample_weight
            or np.array_equal(self.sample_weight, problem.sample_weight)
        )

    def belief(self, sites: TiedSites) -> Belief:
        weight_precision, label_precision = sites.precision, sites.label_precision
        n_tied = self.tied.size
        precisions = weight_precision + label_precision * self.values
        delta, h = weight_precision / precisions, label_precision / precisions
        residual, residual_square, leak = self._kept_products(delta, h)
        kept = _Factor(sites.kept_precision, label_precision * residual)
        mean, kept_mean, score_mean = self._means(sites, h, kept)

        # Degrees of freedom: those of weights that labels inform, those of scores that they do not.
        from_kept, scores_from_kept = kept.trace_of_solved(leak), kept.trace_of_solved(residual_square)
        informed = float(np.sum(h * self.values)) - weight_precision * from_kept
        free = self.n_samples - self.values.size + float(np.sum(delta)) - label_precision * scores_from_kept
        unseen = n_tied - self.values.size  # directions that no sample sees; none or negative for N <= M
        var = (float(np.sum(1.0 / precisions)) + unseen / weight_precision + from_kept) / max(n_tied, 1)
        score_var = (float(np.sum(self.values / precisions)) + scores_from_kept) / self.n_samples
        tiny = np.finfo(float).tiny
        # Without any tied column a variance is needed in name only.
        var, score_var = max(var, tiny) if n_tied else 1.0, max(score_var, tiny)

        shift_times_mean = (
            weight_precision * float(sites.mean @ mean)
            + float(sites.kept_shift @ kept_mean)
            + label_precision * float((self.sample_weight * sites.label_mean) @ score_mean)
        )
        log_determinant = (
            float(np.sum(np.log(precisions))) + unseen * np.log(weight_precision) + kept.log_determinant
        )
        log_normaliser = 0.5 * (
            shift_times_mean - log_determinant + (n_tied + self.kept.size) * np.log(2 * np.pi)
        )
        return Belief(
            mean=mean,
            var=var,
            cavity_precision=max(informed / max(n_tied, 1), LEAST_CAVITY_SHARE) / var,
            kept_mean=kept_mean,
            kept_var=kept.diagonal_of_inverse(),
            score_mean=score_mean,
            score_var=score_var,
            score_cavity_precision=max(free / self.n_samples, LEAST_CAVITY_SHARE) / score_var,
            log_normaliser=log_normaliser,
        )

    def _scores(self, tied: Array) -> Array:
        """Scores of the tied weights alone."""
        weights = np.zeros(self.n_weights)
        weights[self.tied] = tied / self.norm
        return self.operator.scores(weights)

    def _slopes(self, row_vector: Array) -> Array:
        """(X/norm)ᵀ row_vector for the tied columns."""
        return self.operator.adjoint(row_vector)[self.tied] / self.norm


class _BySamples(TiedLayer):
    """Eigenvectors U of A Aᵀ, M x M, for N > M: everything between two products with X is M x M."""

    def __init__(self, problem: Problem, tied: Positions, kept: Positions, norm: Array) -> None:
        super().__init__(problem, tied, kept, norm)
        weight_var = np.zeros(self.n_weights)
        weight_var[tied] = 1.0 / norm**2
        # Without sample weights, for the scores of samples of weight 0 too.
        self.gram = self.operator.gram(weight_var)
        self.values, self.vectors = _eigen(self.root_weight[:, np.newaxis] * self.gram * self.root_weight)
        self.kept_inside = self.vectors.T @ self.weighted_kept  # Uᵀ B

    def _kept_products(self, delta: Array, h: Array) -> tuple[Array, Array, Array]:
        b = self.kept_inside
        residual, residual_square, leak = (
            b.T @ (f[:, np.newaxis] * b) for f in (delta, delta**2, self.values * h**2)
        )
        return residual, residual_square, leak

    def _means(self, sites: TiedSites, h: Array, kept_precision: _Factor) -> tuple[Array, Array, Array]:
        site_scores = self._scores(sites.mean)
        rest = self.vectors.T @ (self.root_weight * (sites.label_mean - site_scores))
        # τ δ = λ h.
        kept_mean = kept_precision.solve(
            sites.kept_shift + sites.precision * (self.kept_inside.T @ (h * rest))
        )
        pull = self.root_weight * (self.vectors @ (h * (rest - self.kept_inside @ kept_mean)))
        mean = sites.mean + self._slopes(pull)
        return mean, kept_mean, site_scores + self.gram @ pull + self.kept_values @ kept_mean


class _ByWeights(TiedLayer):
    """Eigenvectors V of AᵀA, N x N, for N <= M. Functions of A Aᵀ are taken from d = 0 and moved:

    f(A Aᵀ) = f(0) I + A V (f(d) - f(0))/d Vᵀ Aᵀ,  where (δ - 1)/d = -h and (δ² - 1)/d = -h (1 + δ).
    """

    def __init__(self, problem: Problem, tied: Positions, kept: Positions, norm: Array) -> None:
        super().__init__(problem, tied, kept, norm)
        gram, across = np.zeros((tied.size, tied.size)), np.zeros((tied.size, kept.size))
        for rows, block in self.operator.dense_rows():
            block = self.root_weight[rows, np.newaxis] * block[:, tied] / norm
            gram += block.T @ block
            across += block.T @ self.weighted_kept[rows]
        self.values, self.vectors = _eigen(gram)
        self.kept_inside = self.vectors.T @ across  # Vᵀ Aᵀ B
        self.kept_gram = self.weighted_kept.T @ self.weighted_kept

    def _kept_products(self, delta: Array, h: Array) -> tuple[Array, Array, Array]:
        f = self.kept_inside
        residual = self.kept_gram - f.T @ (h[:, np.newaxis] * f)
        residual_square = self.kept_gram - f.T @ ((h * (1 + delta))[:, np.newaxis] * f)
        return residual, residual_square, f.T @ ((h**2)[:, np.newaxis] * f)

    def _means(self, sites: TiedSites, h: Array, kept_precision: _Factor) -> tuple[Array, Array, Array]:
        weighted_labels = self.sample_weight * sites.label_mean
        site_inside = self.vectors.T @ sites.mean
        rest = self.vectors.T @ self._slopes(weighted_labels) - self.values * site_inside
        of_kept = self.kept_values.T @ weighted_labels - self.kept_inside.T @ (site_inside + h * rest)
        kept_mean = kept_precision.solve(sites.kept_shift + sites.label_precision * of_kept)
        mean = sites.mean + self.vectors @ (h * (rest - self.kept_inside @ kept_mean))
        return mean, kept_mean, self._scores(mean) + self.kept_values @ kept_mean


class _Factor:
    """The precision C of the kept weights, decomposed; possibly 0 x 0."""

    def __init__(self, site_precision: Array, from_labels: Array) -> None:
        matrix = np.diag(site_precision) + from_labels
        # LAPACK refuses what is not finite; NaN reaches the loop instead, which restarts with a smaller step.
        broken = np.nan if not np.all(np.isfinite(matrix)) else 1.0
        values, self.vectors = _eigen(np.nan_to_num(matrix))
        values *= broken
        # Labels only add precision; what rounding took below that of the sites is put back.
        self.values = np.maximum(values, np.min(site_precision, initial=np.inf))
        self.log_determinant = float(np.sum(np.log(self.values)))

    def solve(self, vector: Array) -> Array:
        return self.vectors @ ((self.vectors.T @ vector) / self.values)

    def trace_of_solved(self, matrix: Array) -> float:
        """tr C⁻¹ matrix."""
        return float(np.sum((self.vectors * (matrix @ self.vectors)).sum(axis=0) / self.values))

    def diagonal_of_inverse(self) -> Array:
        return (self.vectors**2) @ (1.0 / self.values)


def _eigen(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues, none below zero, and eigenvectors of a positive semi-definite matrix of any size."""
    if matrix.shape[0] == 0:
        return np.zeros(0), np.zeros((0, 0))
    values, vectors = eigh(matrix, driver="evd")
    return np.maximum(values, 0.0), vectors


def tied_layer(problem: Problem) -> TiedLayer:
    """The layer of a problem: which columns are tied, which are exact, and the smaller Gram matrix.

    Exact are kept columns, and columns with a prior of another width if these are few.
    """
    n_rows, n_weights = problem.operator.shape
    _, squared = problem.operator.squared_norms(problem.sample_weight)
    is_tied = squared > 0
    mean, var = problem.prior.start(n_weights)
    usual_mean, usual_var = problem.prior.moments()
    others = np.flatnonzero(is_tied & ((mean != usual_mean) | (var != usual_var)))
    kept = np.zeros(0, dtype=np.intp) if problem.kept is None else problem.kept.positions
    if others.size <= MOST_EXACT_COLUMNS:
        kept = np.union1d(kept, others)
    is_tied[kept] = False
    tied = np.flatnonzero(is_tied)
    norm = np.sqrt(squared[tied])
    if tied.size:
        # In units of the typical column, so that standardised columns stay as they are.
        norm = norm / np.sqrt(np.mean(norm**2))
    return (_BySamples if tied.size > n_rows else _ByWeights)(problem, tied, np.unique(kept), norm)


@dataclass(frozen=True, eq=False)
class VAMPState(PacedState):
    """Sites, the Gaussian they make, and what the next iteration needs of the last."""

    layer: TiedLayer
    sites: TiedSites
    belief: Belief
    cavity_mean: Array
    cavity_var: Array
    kept_cavities: Cavities
    score_cavity_mean: Array
    score_cavity_var: Array


@registered("solver/vamp")
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
        pace = Pace.first(self.damping, problem.labels.size)
        return _state(layer, sites, belief, iteration=0, pace=pace, log_evidence=-np.inf)

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
        rest = {"iteration": state.iteration, "pace": fresh.pace, "log_evidence": -np.inf}
        return _state(layer, sites, layer.belief(sites), **rest)

    def posterior(self, problem: Problem, state: VAMPState) -> Posterior:
        """Moments of the prior at the cavities: their means are the Gaussian's at a fixed point, and their
        variances, unlike the tied one, tell weights apart. Leave-one-out takes out as many equal
        sites as a sample has weight, where a cavity takes out one."""
        tilted = problem.prior.tilted(state.cavity_mean, state.cavity_var)
        rows_kept = (1.0 - problem.sample_weight) * state.sites.label_precision
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
