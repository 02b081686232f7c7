"""Leave-one-out of message passing in which everything that has seen a label answers to its absence.

GAMP's cavities leave the label of a sample out to first order, and nothing else. With few samples and sparse
weights that is too good to be true: weights are in or out on the strength of a few labels, other samples are
taken for wrongly labelled or not because of it, and a blend with class means has a ridge and a label mean
that are made of all labels. So the fixed point is solved for again without each sample, from where it is, all
samples at once: a few iterations in matrices of (columns, samples), with class means exactly those of the
other samples. Parameters stay. Scores then are those of refits within a few hundredths, where cavities are
off by tenths (tests/solvers/test_settled_without_each.py).

Columns that hardly contribute to the variance of scores have their first order, if all would be too many.

Of several classes the ridge of a class's weights is a multiple of its number of samples, while cavities leave
out only what the sample pulled: of a class of four, weights stay at three quarters of what a fit to the other
three would find. And a sample far from its class has made the variance within classes, of which the ridge is
a multiple too, larger. There the weights answer once, under the ridge that the others make; samples stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.channels import Blended
from foldless.channels.base import innermost
from foldless.channels.multinomial import BlendedMultinomial
from foldless.priors import Blocks, Prior, Ridged
from foldless.problem import Problem, Solution
from foldless.solvers.gamp import MIN_CURVATURE, GAMPState
from foldless.solvers.message_passing import along_scores

EPS = float(np.finfo(np.float64).eps)
ITERATIONS = 4
# Rounding moves scores by far less than iterations that are left out would, and so many pairs of columns and
# samples at a time stay in a processor's cache.
PRECISION, AT_ONCE = np.dtype(np.float32), 1 << 15
LEAST = float(np.finfo(np.float64).tiny)
# A class of which less than this share is left without a sample has no other.
ALONE = 1e-9


def answered(solution: Solution, most_edges: int) -> Solution:
    """The solution of a blend, by GAMP, with such leave-one-out scores.

    `most_edges` is how many weights may answer, each for every sample. Nothing else is changed: without class
    means a fixed point may be far from that without a sample, and a few iterations do not get there.
    """
    problem, state = solution.problem, solution.state
    if not (most_edges and isinstance(state, GAMPState)):
        return solution
    if isinstance(innermost(problem.channel), Blended):
        mean, var = _Without(problem, state, most_edges).scores()
    elif isinstance(problem.channel, BlendedMultinomial):
        mean, var = _WithoutOfSeveral(problem, state, most_edges).scores()
    else:
        return solution
    known = np.isfinite(mean) & np.isfinite(var) & (var > 0) & (along_scores(problem.label_weight, mean) > 0)
    posterior = solution.posterior
    loo_mean, loo_var = np.where(known, mean, posterior.loo_mean), np.where(known, var, posterior.loo_var)
    return replace(solution, posterior=replace(posterior, loo_mean=loo_mean, loo_var=loo_var))


@dataclass(frozen=True, eq=False)
class _Answering:
    """A fixed point, and which of its weights are found again without each sample."""

    problem: Problem
    state: GAMPState
    most_edges: int

    @cached_property
    def which(self) -> NDArray[np.intp]:
        """The columns whose weights answer: those that are kept, and of the others the least certain."""
        var = self.state.weight_var
        share = (var if var.ndim == 1 else var.sum(axis=1)) * self.state.norms.column
        if self.problem.kept is not None:
            share[self.problem.kept.positions] = np.inf
        most = max(self.most_edges // self.state.slopes.size, 1)
        return np.sort(np.argsort(-share, kind="stable")[:most])

    @cached_property
    def columns(self) -> Array:
        return np.asarray(self.problem.operator.columns(self.which), dtype=PRECISION)


class _Without(_Answering):
    """Two classes: the problems without each sample in turn, (columns or samples, left-out samples)."""

    def scores(self) -> tuple[Array, Array]:
        """Mean and variance of every sample's score from all others."""
        problem, state, x, which = self.problem, self.state, self.columns.T, self.which
        n_samples, weight, norms = state.slopes.size, problem.sample_weight, state.norms
        others = np.repeat(weight[:, np.newaxis], n_samples, axis=1)
        np.fill_diagonal(others, 0.0)
        prior, tilt = self._of_other_labels()
        parts = np.array_split(np.arange(which.size), -(-which.size * n_samples // AT_ONCE))
        priors = [prior.of_columns(part, which.size) for part in parts]
        of_columns = state.weights, state.weight_var, 1.0 / state.cavity_var, norms.column
        before, var_before, precision_before, column = (
            np.asarray(values[which], dtype=PRECISION)[:, np.newaxis] for values in of_columns
        )
        weights = np.repeat(before, n_samples, axis=1)
        scores = state.score_cavity_mean + state.score_cavity_var * state.slopes
        var, row = state.score_cavity_var[:, np.newaxis], norms.row[:, np.newaxis]
        slopes, curvatures = state.slopes[:, np.newaxis], state.curvatures[:, np.newaxis]
        labels = np.repeat(problem.labels[:, np.newaxis], n_samples, axis=1)
        kept: tuple[Array, Array] | None = None
        if state.kept is not None:
            kept = state.kept.slopes[:, np.newaxis], state.kept.curvatures[:, np.newaxis]
        # What weights that have answered change of scores, and of the sum of their variances.
        change, moved = np.zeros((n_samples, n_samples)), np.zeros(n_samples)
        for n in range(ITERATIONS):
            if n:
                var = np.maximum(state.score_cavity_var[:, np.newaxis] + row * moved, np.finfo(float).tiny)
                at = scores[:, np.newaxis] + change - var * slopes
                if kept is None:
                    response = problem.channel.respond(at, var, labels)
                else:
                    response, plain = problem.channel.respond_both(at, var, labels)
                    kept = plain.slope, plain.curvature
                _, slopes, curvatures = response
            more = norms.row @ (others * curvatures - (weight * state.curvatures)[:, np.newaxis])
            more = (more / norms.total).astype(PRECISION)
            pulls = (others * (slopes + tilt)).astype(PRECISION)
            of_kept = None if kept is None else (others * kept[0], others * kept[1])
            change, moved = np.zeros((n_samples, n_samples)), np.zeros(n_samples)
            for part, own in zip(parts, priors, strict=True):
                some = slice(part[0], part[-1] + 1)
                precision, said = precision_before[some] + column[some] * more, x[some] @ pulls
                if of_kept is not None:
                    self._say_of_kept(which[some], *of_kept, said, precision)
                np.maximum(precision, MIN_CURVATURE * np.maximum(column[some], 1.0), out=precision)
                weights[some], weight_var, _ = own.tilted(weights[some] + said / precision, 1.0 / precision)
                change += x[some].T @ (weights[some] - before[some])
                moved += column[some, 0] @ (weight_var - var_before[some])
            moved /= norms.total
        of_these = float(column[:, 0] @ var_before[:, 0]) / norms.total
        of_rest = np.maximum(state.score_cavity_var - norms.row * of_these, 0)
        return (
            scores + change.diagonal() - weight * of_rest * state.slopes,
            of_rest + norms.row * (of_these + moved),
        )

    def _say_of_kept(
        self, which: NDArray[np.intp], slopes: Array, curvatures: Array, said: Array, precision: Array
    ) -> None:
        """Of columns that are kept, if any are among these, the labels alone."""
        kept = self.problem.kept
        assert kept is not None
        _, here, own = np.intersect1d(which, kept.positions, return_indices=True)
        said[here] = kept.values[:, own].T @ slopes
        precision[here] = kept.squares[:, own].T @ curvatures

    def _of_other_labels(self) -> tuple[Prior, Array]:
        """Ridges of the prior, and what a label mean adds to slopes, as the labels of others have them.

        Sums over samples of columns of mean zero and variance one, and of labels, lose what the sample had
        in them once means are those of the others: (x - x̄)(y - ȳ) N/(N - weight).
        """
        problem, x, which = self.problem, self.columns.astype(np.float64), self.which
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
        own_information = np.maximum(information - lost * deviation**2 / 4, EPS * information)
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


class _WithoutOfSeveral(_Answering):
    """Several classes: weights without each sample in turn, (columns, left-out samples, classes)."""

    def scores(self) -> tuple[Array, Array]:
        """Means and variances of every sample's scores from all others."""
        problem, state, norms, which = self.problem, self.state, self.state.norms, self.which
        weight, row = problem.sample_weight[:, np.newaxis], norms.row[:, np.newaxis]
        lost_slopes, lost_curvatures = weight * state.slopes, weight * state.curvatures * row / norms.total
        prior = problem.prior.of_columns(which, state.weights.shape[0])
        change, moved = np.zeros_like(state.slopes), np.zeros_like(state.slopes)
        for part in np.array_split(np.arange(which.size), -(-which.size * state.slopes.size // AT_ONCE)):
            x = self.columns.T[part, :, np.newaxis]
            column = norms.column[which[part], np.newaxis, np.newaxis]
            of_columns = state.weights, state.weight_var, state.cavity_mean, state.cavity_var
            before, var_before, mean, var = (values[which[part], np.newaxis] for values in of_columns)
            lost, lost_precision = x * lost_slopes, column * lost_curvatures
            self._put_kept(which[part], lost, lost_precision)
            precision = np.maximum(1.0 / var - lost_precision, MIN_CURVATURE * np.maximum(column, 1.0))
            mean = before + ((mean - before) / var - lost) / precision
            own = _with_ridge(prior.of_columns(part, which.size), self._share_of_ridges(x[:, :, 0]))
            found, found_var, _ = own.tilted(mean, 1.0 / precision)
            change += np.einsum("nm,nmk->mk", x[:, :, 0], found - before)
            moved += np.einsum("n,nmk->mk", column[:, 0, 0], found_var - var_before)
        scores = state.score_cavity_mean + state.score_cavity_var * state.slopes
        of_these = norms.column[which] @ state.weight_var[which] / norms.total
        of_rest = np.maximum(state.score_cavity_var - row * of_these, 0.0)
        return scores + change - of_rest * lost_slopes, of_rest + row * (of_these + moved / norms.total)

    @cached_property
    def _own_class(self) -> Array:
        """(samples, classes), one of each row 1."""
        channel = self.problem.channel
        assert isinstance(channel, BlendedMultinomial)
        return np.eye(channel.base.n_classes)[channel.base.codes(self.problem.labels)]

    def _share_of_ridges(self, x: Array) -> Array:
        """What is left of the ridges ω n_k v of columns without each sample.

        Of its own class, what others weigh; and a sample far from the mean of its class has made the variance
        within classes larger, by n/(n - weight) of the square, of columns that have a variance of one in all.
        """
        own, weight = self._own_class, self.problem.sample_weight
        of_class, total = weight @ own, float(weight.sum())
        left = np.maximum(of_class - weight[:, np.newaxis] * own, 0.0) / np.maximum(of_class, LEAST)
        centres = (x * weight) @ own / np.maximum(of_class, LEAST)
        least = 1.0 / total
        within = np.maximum(1.0 - centres**2 @ of_class / total, least)[:, np.newaxis]
        # A sample that is alone in its class is its mean.
        rest = np.einsum("mk,mk->m", left, own)
        lost = np.where(rest > ALONE, weight / np.maximum(rest, ALONE), 0.0) * (x - centres @ own.T) ** 2
        others = np.maximum((total * within - lost) / np.maximum(total - weight, LEAST), least)
        return (others / within)[:, :, np.newaxis] * left

    def _put_kept(self, which: NDArray[np.intp], lost: Array, lost_precision: Array) -> None:
        """For columns that are kept, if any are among these: what they lose is of the labels alone."""
        kept, told = self.problem.kept, self.state.kept
        if kept is None or told is None:
            return
        _, here, own = np.intersect1d(which, kept.positions, return_indices=True)
        weight = self.problem.sample_weight[:, np.newaxis]
        lost[here] = kept.values.T[own, :, np.newaxis] * (weight * told.slopes)
        lost_precision[here] = kept.squares.T[own, :, np.newaxis] * (weight * told.curvatures)


def _with_ridge(prior: Prior, share: Array) -> Prior:
    """A prior of some columns with shares of their ridges: (columns, left-out samples, classes)."""
    assert isinstance(prior, Blocks)
    assert isinstance(prior.base, Ridged)
    ridge = np.asarray(prior.base.precision)[:, np.newaxis] * share
    return replace(prior, base=replace(prior.base, precision=ridge))
