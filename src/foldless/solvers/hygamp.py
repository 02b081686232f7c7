"""HyGAMP: message passing with full covariances between the D scores of a sample [Byrne, Schniter 2016].

The lines of `gamp`, with D x D matrices in place of variances (X∘X acts on each of their entries):

    Qp_m = Σ_n x_mn² Qw_n,    p_m = W'x_m - Qp_m s_m
    s_m, Qs_m = slope and curvature of the channel's log normaliser at N(p_m, Qp_m)
    Λ_n = Σ_m x_mn² Qs_m,     η_n = Λ_n w_n + Σ_m x_mn s_m
    w_n, Qw_n = moments of the prior times exp(η'w - ½ w'Λw)

SHyGAMP, which is `gamp` with several scores, drops all entries off the diagonals. That costs it little with
many classes and makes it D times cheaper, and so it is what the estimators use; HyGAMP is exact about the one
thing SHyGAMP gets wrong, that labels say nothing of a shift of all scores. In information form, with Λ and η,
this needs no special care: see `priors.base.TiltedRows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from foldless.beliefs import Array, Posterior
from foldless.problem import Problem
from foldless.registry import registered
from foldless.solvers.gamp import MIN_CURVATURE, SquaredNorms, Sweeping
from foldless.solvers.message_passing import Pace, PacedState


@dataclass(frozen=True, eq=False)
class HyGAMPState(PacedState):
    """Everything the next iteration needs."""

    weights: Array  # (weights, D)
    weight_cov: Array  # (weights, D, D)
    damped_weights: Array
    slopes: Array  # (samples, D)
    curvatures: Array  # (samples, D, D)
    shift: Array  # η, (weights, D)
    precision: Array  # Λ, (weights, D, D)
    score_cavity_mean: Array  # (samples, D)
    score_cavity_cov: Array  # (samples, D, D)
    norms: SquaredNorms

    @property
    def cavity_var(self) -> Array:
        """Of each weight, were the others of its row not there."""
        least = MIN_CURVATURE * np.maximum(self.norms.column, 1.0)
        return 1.0 / np.maximum(np.einsum("nii->ni", self.precision), least[:, np.newaxis])

    @property
    def cavity_mean(self) -> Array:
        return self.shift * self.cavity_var

    @property
    def score_cavity_var(self) -> Array:
        return np.einsum("mii->mi", self.score_cavity_cov)


@registered("solver/hygamp")
@dataclass(frozen=True)
class HyGAMP(Sweeping[HyGAMPState]):
    """Message passing with full covariances of the scores of a sample.

    ``rule`` and ``variances`` are those of `GAMP`. The channel needs `respond_full` (or `proximal_full`), the
    prior `tilted_rows` (or `proximal_rows`).
    """

    def init(self, problem: Problem) -> HyGAMPState:
        methods = ("tilted_rows", "respond_full")
        if self.max_sum:
            methods = ("proximal_rows", "proximal_full")
        instead = (
            "Use GAMP, which has diagonal covariances, or a prior such as MultivariateGaussian, Gaussian, "
            "RowSparse (sum-product) or Laplace (max-sum), and the channel Multinomial(n_classes)."
        )
        self._check_support(problem, *methods, instead)
        n_samples = problem.operator.shape[0]
        (n_scores,) = problem.channel.score_shape
        norms = self.squared_norms(problem)
        mean, var = self._start(problem, norms)
        weights = np.repeat(mean[:, np.newaxis], n_scores, axis=1)
        cov = var[:, np.newaxis, np.newaxis] * np.eye(n_scores)
        nothing = np.zeros((n_samples, n_scores))
        none = np.zeros((n_samples, n_scores, n_scores))
        return HyGAMPState(
            weights=weights,
            weight_cov=cov,
            damped_weights=weights,
            slopes=nothing,
            curvatures=none,
            shift=np.zeros_like(weights),
            precision=np.zeros_like(cov),
            score_cavity_mean=nothing,
            score_cavity_cov=none,
            norms=norms,
            iteration=0,
            pace=Pace.first(self.damping, weights.shape),
            log_evidence=-np.inf,
        )

    def step(self, problem: Problem, state: HyGAMPState) -> HyGAMPState:
        step = state.next_step
        n_weights, n_scores = state.weights.shape
        n_samples, exact = problem.operator.shape[0], self._exact
        flat_cov = state.weight_cov.reshape(n_weights, -1)
        cavity_cov: Array = np.empty((n_samples, n_scores, n_scores))
        if not exact:
            cavity_cov = state.norms.score_var(flat_cov).reshape(n_samples, n_scores, n_scores)
        cavity_mean, slopes = np.empty_like(state.slopes), np.empty_like(state.slopes)
        curvatures, log_evidence = np.empty_like(state.curvatures), 0.0
        weight = problem.sample_weight[:, np.newaxis]
        respond: Any = problem.channel
        respond = respond.proximal_full if self.max_sum else respond.respond_full

        def row_step(rows: slice, scores: Array, score_var: Array | None) -> tuple[Array, Array | None]:
            nonlocal log_evidence
            if score_var is not None:
                cavity_cov[rows] = score_var.reshape(-1, n_scores, n_scores)
            correction = np.einsum("mij,mj->mi", cavity_cov[rows], state.slopes[rows])
            cavity_mean[rows] = scores - correction
            log_z, slope, curvature = respond(cavity_mean[rows], cavity_cov[rows], problem.labels[rows])
            slopes[rows] = state.slopes[rows] + step * (slope - state.slopes[rows])
            curvatures[rows] = state.curvatures[rows] + step * (curvature - state.curvatures[rows])
            joint = 0.5 * np.einsum("mi,mi->m", correction, state.slopes[rows])
            log_evidence += float(problem.sample_weight[rows] @ (log_z + joint))
            flat = weight[rows] * curvatures[rows].reshape(-1, n_scores**2) if exact else None
            return weight[rows] * slopes[rows], flat

        sweep = problem.operator.sweep(state.weights, flat_cov if exact else None, row_step)
        flat_precision = sweep.curvatures
        if flat_precision is None:
            flat_precision = state.norms.weight_precision(weight * curvatures.reshape(n_samples, -1))
        precision = flat_precision.reshape(n_weights, n_scores, n_scores)
        damped_weights = state.damped_weights + step * (state.weights - state.damped_weights)
        shift = np.einsum("nij,nj->ni", precision, damped_weights) + sweep.slopes
        prior: Any = problem.prior
        answer = prior.proximal_rows if self.max_sum else prior.tilted_rows
        mean, cov, log_z = answer(shift, precision)

        log_evidence += float(np.sum(log_z))
        log_evidence += 0.5 * float(np.einsum("nij,nij->", precision, cov))
        log_evidence += float(np.sum(mean * (0.5 * np.einsum("nij,nj->ni", precision, mean) - shift)))
        return HyGAMPState(
            weights=mean,
            weight_cov=cov,
            damped_weights=damped_weights,
            slopes=slopes,
            curvatures=curvatures,
            shift=shift,
            precision=precision,
            score_cavity_mean=cavity_mean,
            score_cavity_cov=cavity_cov,
            norms=state.norms,
            iteration=state.iteration + 1,
            pace=state.pace.after(
                self.damping, state.weights, mean, step, state.norms.column, problem.n_samples
            ),
            log_evidence=log_evidence,
        )

    def posterior(self, problem: Problem, state: HyGAMPState) -> Posterior:
        rows_kept = (1.0 - problem.sample_weight)[:, np.newaxis]
        pull = np.einsum("mij,mj->mi", state.score_cavity_cov, state.slopes)
        return Posterior(
            mean=state.weights,
            var=np.einsum("nii->ni", state.weight_cov),
            cavity_mean=state.cavity_mean,
            cavity_var=state.cavity_var,
            loo_mean=state.score_cavity_mean + rows_kept * pull,
            loo_var=state.score_cavity_var,
            log_evidence=state.log_evidence,
        )
