"""Leave-one-out of message passing in which everything that has seen a label answers to its absence.

GAMP's cavities leave the label of a sample out to first order, and nothing else. With few samples and sparse
weights that is too good to be true: weights are in or out on the strength of a few labels, other samples are
taken for wrongly labelled or not because of it, and a blend with class means has a ridge and a label mean
that are made of all labels. So the fixed point is solved for again without each sample, from where it is, all
samples at once: a few iterations in matrices of (columns, samples), with class means exactly those of the
other samples. Parameters stay. Scores then are those of refits within a few hundredths, where cavities are
off by tenths (tests/solvers/test_settled_without_each.py).

Columns that hardly contribute to the variance of scores have their first order, if all would be too many.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.channels import Blended
from foldless.channels.base import innermost
from foldless.priors import Blocks, Prior, Ridged
from foldless.problem import Problem, Solution
from foldless.solvers.gamp import MIN_CURVATURE, GAMPState

ITERATIONS = 4


def answered(solution: Solution, most_edges: int) -> Solution:
    """The solution of a blend of two classes, by GAMP, with such leave-one-out scores.

    `most_edges` is how many pairs of samples and columns may answer. Nothing else is changed: without class
    means a fixed point may be far from that without a sample, and a few iterations do not get there.
    """
    blend = innermost(solution.problem.channel)
    if not (most_edges and isinstance(solution.state, GAMPState) and isinstance(blend, Blended)):
        return solution
    mean, var = _Without(solution.problem, solution.state, most_edges).scores()
    known = np.isfinite(mean) & np.isfinite(var) & (var > 0) & (solution.problem.label_weight > 0)
    posterior = solution.posterior
    loo_mean, loo_var = np.where(known, mean, posterior.loo_mean), np.where(known, var, posterior.loo_var)
    return replace(solution, posterior=replace(posterior, loo_mean=loo_mean, loo_var=loo_var))


@dataclass(frozen=True, eq=False)
class _Without:
    """A fixed point, and the problems without each sample in turn: (columns or samples, left-out samples)."""

    problem: Problem
    state: GAMPState
    most_edges: int

    @cached_property
    def which(self) -> NDArray[np.intp]:
        """The columns whose weights answer: those that are kept, and of the others the least certain."""
        share = self.state.weight_var * self.state.norms.column
        if self.problem.kept is not None:
            share[self.problem.kept.positions] = np.inf
        most = max(self.most_edges // self.state.slopes.size, 1)
        return np.sort(np.argsort(-share, kind="stable")[:most])

    @cached_property
    def columns(self) -> Array:
        return np.asarray(self.problem.operator.columns(self.which), dtype=np.float64)

    def scores(self) -> tuple[Array, Array]:
        """Mean and variance of every sample's score from all others."""
        problem, state, x, which = self.problem, self.state, self.columns, self.which
        n_samples, weight, norms = state.slopes.size, problem.sample_weight, state.norms
        others = np.repeat(weight[:, np.newaxis], n_samples, axis=1)
        np.fill_diagonal(others, 0.0)
        prior, tilt = self._of_other_labels()
        before = state.weights[which].astype(np.float64), state.weight_var[which].astype(np.float64)
        weights: Array
        weight_var: Array
        weights, weight_var = (np.repeat(part[:, np.newaxis], n_samples, axis=1) for part in before)
        row, column = norms.row[:, np.newaxis], norms.column[which][:, np.newaxis]
        precision_before = (1.0 / state.cavity_var[which].astype(np.float64))[:, np.newaxis]
        scores = state.score_cavity_mean + state.score_cavity_var * state.slopes
        var = state.score_cavity_var[:, np.newaxis]
        slopes, curvatures = state.slopes[:, np.newaxis], state.curvatures[:, np.newaxis]
        labels = np.repeat(problem.labels[:, np.newaxis], n_samples, axis=1)
        kept = None
        if state.kept is not None:
            kept = state.kept.slopes[:, np.newaxis], state.kept.curvatures[:, np.newaxis]
        for n in range(ITERATIONS):
            if n:
                moved = column[:, 0] @ (weight_var - before[1][:, np.newaxis]) / norms.total
                var = np.maximum(state.score_cavity_var[:, np.newaxis] + row * moved, np.finfo(float).tiny)
                at = scores[:, np.newaxis] + x @ (weights - before[0][:, np.newaxis]) - var * slopes
                if kept is None:
                    response = problem.channel.respond(at, var, labels)
                else:
                    response, plain = problem.channel.respond_both(at, var, labels)
                    kept = plain.slope, plain.curvature
                _, slopes, curvatures = response
            precision = norms.row @ (others * curvatures - (weight * state.curvatures)[:, np.newaxis])
            precision = precision_before + column * precision / norms.total
            said = x.T @ (others * (slopes + tilt))
            if kept is not None:
                assert problem.kept is not None
                here = np.searchsorted(which, problem.kept.positions)
                said[here] = problem.kept.values.T @ (others * kept[0])
                precision[here] = problem.kept.squares.T @ (others * kept[1])
            np.maximum(precision, MIN_CURVATURE * np.maximum(column, 1.0), out=precision)
            weights, weight_var, _ = prior.tilted(weights + said / precision, 1.0 / precision)
        of_rest = np.maximum(state.score_cavity_var - norms.row * (column[:, 0] @ before[1] / norms.total), 0)
        mean = scores + np.einsum("ij,ji->i", x, weights - before[0][:, np.newaxis])
        return (
            mean - weight * of_rest * state.slopes,
            of_rest + norms.row * (column[:, 0] @ weight_var / norms.total),
        )

    def _of_other_labels(self) -> tuple[Prior, Array]:
        """Ridges of the prior, and what a label mean adds to slopes, as the labels of others have them.

        Sums over samples of columns of mean zero and variance one, and of labels, lose what the sample had
        in them once means are those of the others: (x - x̄)(y - ȳ) N/(N - weight).
        """
        problem, x, which = self.problem, self.columns, self.which
        assert isinstance(problem.prior, Blocks)
        prior, blend = problem.prior.of_columns(which, self.state.weights.size), innermost(problem.channel)
        assert isinstance(blend, Blended)
        assert isinstance(prior, Blocks)
        assert isinstance(prior.base, Ridged)
        labels, weight = problem.labels, problem.sample_weight
        total = float(weight.sum())
        left = np.maximum(total - weight, np.finfo(float).tiny)
        deviation = labels - weight @ labels / total
        lost = weight * total / left
        information = float(weight @ deviation**2) / 4
        own_information = np.maximum(information - lost * deviation**2 / 4, np.finfo(float).tiny)
        contrast = x.T @ (weight * deviation) / 2
        own_contrast = contrast[:, np.newaxis] - x.T * (lost * deviation / 2)
        variance = np.maximum(1.0 - contrast**2 / (information * total), 1.0 / total)[:, np.newaxis]
        own_variance = (total - lost * x.T**2) / left - own_contrast**2 / (own_information * left)
        # The ridge of a blend is information times variance within classes.
        change = own_information / information * np.maximum(own_variance, 1.0 / total) / variance
        ridge = np.broadcast_to(prior.base.precision, which.shape)[:, np.newaxis] * change
        prior = replace(prior, base=replace(prior.base, precision=ridge))
        tilt = 0.5 * blend.generative_weight * blend.base.scale * weight * deviation / left
        return prior, tilt
