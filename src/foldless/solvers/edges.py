"""Belief propagation with a message on every edge: what GAMP approximates, for reference.

Each sample sends each weight what it says about it, and each weight answers without what it heard from that
sample; only the Gaussian approximation of sums is made [Uda, Kabashima 2005, (23)-(31); relaxed belief
propagation, Rangan 2010]. With S = X∘X and every sum less its own term,

    p_mn = Σ_{j≠n} x_mj w_jm            what sample m expects of its score without weight n
    s_mn = slope of the channel at (p_mn, τp)
    r_n  = τr Σ_m x_mn s_mn,   r_nm = τr Σ_{k≠m} x_kn s_kn
    w_n, τw = moments of the prior at (r_n, τr);   w_nm = its mean at (r_nm, τr)

with variances as in GAMP. The paper counts O(N²M) an iteration, summing anew for every edge. A total less one
term makes that O(NM), but with NM answers of channel and prior instead of N + M, and two matrices of messages
of the size of X. GAMP expands the messages around their node. The expansion is off by O(1/N); replacing x² by
its mean in it, as shared variances and the paper do, by O(1/√N), unless all x² are equal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foldless.beliefs import Array
from foldless.problem import Problem
from foldless.registry import registered
from foldless.solvers.gamp import GAMP, MIN_CURVATURE, MIN_VARIANCE, GAMPState, weight_evidence


@dataclass(frozen=True, eq=False)
class EdgeState(GAMPState):
    """GAMP's state, and the messages of all edges, (samples, weights)."""

    X: Array
    edge_weights: Array
    edge_slopes: Array


@registered("solver/edge-messages")
@dataclass(frozen=True)
class EdgeMessages(GAMP):
    """GAMP before messages are tied to nodes. For comparison on small problems: it holds X three times."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_sum:
            raise ValueError(f"EdgeMessages is sum-product; got rule={self.rule!r}. Use GAMP for max-sum.")

    def init(self, problem: Problem) -> EdgeState:
        state = super().init(problem)
        n_samples, n_weights = problem.operator.shape
        X = np.empty((n_samples, n_weights))
        for rows, tile in problem.operator.dense_rows():
            X[rows] = tile
        return EdgeState(
            **vars(state),
            X=X,
            edge_weights=np.tile(state.weights, (n_samples, 1)),
            edge_slopes=np.zeros((n_samples, n_weights)),
        )

    def step(self, problem: Problem, state: GAMPState) -> EdgeState:
        assert isinstance(state, EdgeState)
        step = state.next_step
        respond, labels = problem.channel.respond, problem.labels
        weight = problem.sample_weight

        score_var = state.X**2 @ state.weight_var if self._exact else state.norms.score_var(state.weight_var)
        cavity_var = np.maximum(score_var, MIN_VARIANCE)
        shares = state.X * state.edge_weights
        cavity_mean = shares.sum(axis=1)
        log_z, slopes, curvatures = respond(cavity_mean, cavity_var, labels)
        edge_slopes = respond(
            cavity_mean[:, np.newaxis] - shares, cavity_var[:, np.newaxis], labels[:, np.newaxis]
        ).slope
        edge_slopes = state.edge_slopes + step * (edge_slopes - state.edge_slopes)
        curvatures = state.curvatures + step * (curvatures - state.curvatures)

        # As in GAMP, negative curvatures may lower an average, but not the precision of a single weight.
        precision = (
            (weight * np.maximum(curvatures, 0.0)) @ state.X**2
            if self._exact
            else state.norms.weight_precision(weight * curvatures)
        )
        precision = np.maximum(precision, MIN_CURVATURE * np.maximum(state.norms.column, 1.0))
        evidence = state.X * (weight[:, np.newaxis] * edge_slopes)
        field = evidence.sum(axis=0)
        r, tau = field / precision, 1.0 / precision
        prior = problem.prior.constrained(r, tau)
        tilted = prior.tilted(r, tau)
        # Weights first: a prior may differ between columns.
        edge_weights = prior.tilted(((field - evidence) / precision).T, tau[:, np.newaxis]).mean.T
        edge_weights = state.edge_weights + step * (edge_weights - state.edge_weights)

        of_weights = weight_evidence(tilted, r, tau)
        return replace(
            state,
            weights=tilted.mean,
            weight_var=np.maximum(tilted.var, MIN_VARIANCE),
            damped_weights=tilted.mean,
            slopes=slopes,
            curvatures=curvatures,
            cavity_mean=r,
            cavity_var=tau,
            score_cavity_mean=cavity_mean,
            score_cavity_var=cavity_var,
            iteration=state.iteration + 1,
            pace=state.pace.after(
                self.damping, state.weights, tilted.mean, step, state.norms.column, problem.n_samples
            ),
            log_evidence=float(weight @ (log_z + 0.5 * cavity_var * slopes**2)) + of_weights,
            weight_evidence=of_weights,
            edge_weights=edge_weights,
            edge_slopes=edge_slopes,
        )
