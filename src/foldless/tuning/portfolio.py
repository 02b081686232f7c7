"""Models and their average: each is weighted by how well it predicts left-out samples.

Predictions are averaged as probabilities, with weights by stacking [Yao et al. 2018]. A model predicts the
label of a sample through its scores N(mean, certainty · variance). The mean is linear in the sample. The
variance is that of independent weights, times a factor by which it has the mean of the variances that
leave-one-out finds, where covariances count.

**Certainty.** Under an isotropic prior with far more features than samples, a new sample's score is mostly
uncertain, because most of its features point where no sample has been. Real data do not fill that space, and
there integrated probabilities are too near one half. So every model is also tried with a part of its score
variance, down to none of it (the plug-in rule), and left-out labels decide.

**Weights on one scale.** Published weights are averages over models, too, as log-odds. Under wide priors
scores are large, and as uncertain as they are large: read as log-odds they would be far too sure. So the
scores of each model are multiplied by a scale, with which their plain logistic (or softmax) is as near as it
can be to what the model predicts for left-out samples (least Kullback-Leibler divergence). Since it is
probabilities that are averaged, and these change by about p (1 - p) times the change of log-odds, each model
counts by that much in the average of log-odds, for which a scale is then found in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_softmax

from foldless.beliefs import Array
from foldless.channels import Channel, FlippedLabels, Logistic, Multinomial
from foldless.channels.flipped_labels import flips_of, log_probabilities
from foldless.channels.logistic import LEAST_ROWS_COMPILED, log_tails
from foldless.channels.multinomial import pieces
from foldless.evaluation import (
    LEAST_VARIANCE,
    jackknifed,
    log_frequencies,
    mean_and_error,
    mixed,
    scale_of,
    stacking_weights,
)
from foldless.kernels import compiled, in_threads
from foldless.kernels.softened import as_arguments
from foldless.operators import Operator
from foldless.problem import Solution
from foldless.registry import registered
from foldless.solvers.ep import left_out_groups
from foldless.tuning.planned import Recipe
from foldless.tuning.table import Table

# Shares of its score variance with which each model is tried.
CERTAINTIES = (0.0, 0.3, 1.0)
# Models of less weight than this add nothing to the others.
LEAST_WEIGHT = 0.01
# With few samples, the best of many models is best by chance. So weights are found as though there were so
# many further samples, which all models predict alike. Models have equal shares of them, and certainties of a
# model equal shares of its own.
PSEUDO_SAMPLES = 3.0
# Scales of scores with which labels are judged. Models that have taken wrong labels for right have scores
# that are too small.
SHARPER = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)


class Scores(NamedTuple):
    """Gaussian beliefs about scores, (samples, scores); without a variance scores are certain."""

    mean: Array
    var: Array | None


@registered("model/weights")
@dataclass(frozen=True, eq=False)
class Weights:
    """Posterior moments of the weights of all features, and of intercepts, in standardised units."""

    mean: Array  # (features, scores)
    var: Array
    intercept: Array  # (scores,)
    intercept_var: Array
    # Variances from which those of new scores are computed, if not `var`.
    score_var: Array | None = None

    @property
    def of_scores(self) -> Array:
        """Variances from which those of new scores are computed."""
        return self.var if self.score_var is None else self.score_var

    def scores(self, operator: Operator) -> Array:
        return np.asarray(operator.scores(self.mean) + self.intercept)

    def score_variances(self, operator: Operator) -> Array:
        """Of new samples, as though weights were independent."""
        return np.asarray(operator.score_variances(self.of_scores) + self.intercept_var)


@dataclass(frozen=True, eq=False)
class Model:
    """A model that could be averaged."""

    code: str  # "sparse", "ridge", "informed", "strongly-informed", "frequencies"
    name: str  # with its strength, for readers
    channel: Channel  # of a new label
    left_out: Scores
    weights: Callable[[], Weights]


def as_columns(values: Array) -> Array:
    """(rows,) or (rows, scores) as (rows, scores)."""
    return values[:, np.newaxis] if values.ndim == 1 else values


def of_solution(
    code: str, name: str, solution: Solution, table: Table, *, unit: Array | None = None
) -> Model:
    """A solution as a model; its columns were counted in `unit`, if any."""
    posterior, group = solution.posterior, table.left_out.group
    mean, var = posterior.loo_mean, posterior.loo_var
    if group is not None:
        mean, var = left_out_groups(solution.problem, solution.state, group)
    samples = slice(0, table.shape[0])
    left_out = Scores(as_columns(mean[samples]) + table.frequency_shift, as_columns(var[samples]))

    def weights() -> Weights:
        return weights_of(solution, table, unit)

    return Model(code, name, solution.problem.channel.predictive(), left_out, weights)


def weights_of(solution: Solution, table: Table, unit: Array | None = None) -> Weights:
    """The weights of a solution; columns that never vary have none."""
    n, posterior = table.layout.n_features, solution.posterior
    mean, var = as_columns(posterior.mean), as_columns(posterior.var)
    factor = np.where(table.standardized.constant, 0.0, 1.0 if unit is None else unit)[:, np.newaxis]
    # The intercept, where there is one, is the last column.
    intercept, intercept_var = (
        (mean[-1], var[-1]) if table.layout.intercept else (np.zeros(mean.shape[1]),) * 2
    )
    return Weights(factor * mean[:n], factor**2 * var[:n], intercept, intercept_var)


def class_frequencies(table: Table) -> Model:
    """The model without features: where it predicts best, the average is hardly anything else."""
    count = table.class_weight
    left = count - table.left_out.taken(table.indicator)
    whole, of_samples = log_frequencies(count[np.newaxis]), log_frequencies(left) + table.frequency_shift
    nothing = np.zeros((table.layout.n_features, table.n_scores))
    weights = Weights(nothing, nothing, whole[0], np.zeros(table.n_scores))
    channel = Logistic() if table.n_classes == 2 else Multinomial(table.n_classes)
    return Model("frequencies", "class frequencies", channel, Scores(of_samples, None), lambda: weights)


def channel_of(recipe: Recipe) -> Channel:
    return FlippedLabels(Logistic(), recipe.flip_prob) if recipe.flip_prob else Logistic()


# ---------------------------------------------------------------------- their average


@registered("model/share")
class ModelShare(NamedTuple):
    """A model that was tried: its share in predictions, and its own loss on left-out labels."""

    code: str
    name: str
    weight: float
    log_loss: float  # at its best certainty


@registered("model/part")
@dataclass(frozen=True, eq=False)
class Part:
    """One model of an average."""

    code: str
    weight: float
    channel: Channel
    certainty: float
    weights: Weights
    spread: float = 1.0  # makes the mean variance of training scores that of leave-one-out
    scale: float = 1.0  # makes its scores, in the average of weights, log-odds


class _SideBySide:
    """Columns of several arrays as one; equal arrays have one place, as saved models hold copies of them."""

    def __init__(self) -> None:
        self._blocks: list[Array] = []

    def place(self, block: Array) -> slice:
        """Where in the whole these columns are; all blocks have as many."""
        known = (n for n, own in enumerate(self._blocks) if own is block or np.array_equal(own, block))
        n, width = next(known, len(self._blocks)), block.shape[1]
        if n == len(self._blocks):
            self._blocks.append(block)
        return slice(n * width, (n + 1) * width)

    def whole(self) -> Array:
        return self._blocks[0] if len(self._blocks) == 1 else np.hstack(self._blocks or [np.empty((0, 0))])


class Gathered:
    """The weights of all parts of an average: one visit of the samples predicts with all."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        means, variances = _SideBySide(), _SideBySide()
        self._parts = parts
        # Class frequencies have no weights to multiply, and parts of certainty 0 no variances.
        self.mean_at = [means.place(p.weights.mean) if p.weights.mean.any() else None for p in parts]
        self._var_at = [variances.place(p.weights.of_scores) if p.certainty > 0 else None for p in parts]
        self._mean, self._var = means.whole(), variances.whole()

    def products(self, operator: Operator) -> tuple[Array, Array]:
        """The samples times all means, and their squares times all variances."""
        means: Array
        variances: Array
        means = variances = np.empty((operator.shape[0], 0))
        if self._mean.size and self._var.size:
            means, variances = operator.scores_and_variances(self._mean, self._var)
        elif self._mean.size:
            means = operator.scores(self._mean)
        elif self._var.size:
            variances = operator.score_variances(self._var)
        return means, variances

    def proba(self, means: Array, variances: Array) -> Array | None:
        """Probabilities by compiled loops, NaN in rows that need more care; None without such loops."""
        if self._as_arguments is None or len(means) < LEAST_ROWS_COMPILED:
            return None
        n_scores = self._parts[0].weights.intercept.size
        two = n_scores == 1
        if (loops := compiled("mixtures" if two else "gumbel")) is None:
            return None
        found, table = np.empty((len(means), max(n_scores, 2))), log_tails() if two else as_arguments()
        shared = (*self._as_arguments, table)
        tasks = [(means[rows], variances[rows], *shared, found[rows]) for rows in pieces(found.shape)]
        in_threads(loops.mixture_rows, tasks)
        return found

    @cached_property
    def _as_arguments(self) -> tuple[Array, ...] | None:
        """The arguments of `mixture_rows`; None unless all parts have logistic or multinomial channels."""
        rows, moments = [], []
        for part, *at in zip(self._parts, self.mean_at, self._var_at, strict=True):
            channel, flip, own = part.channel, 0.0, part.weights
            if isinstance(channel, FlippedLabels):
                flip, channel = channel.flip_prob, channel.base
            logistic = isinstance(channel, Logistic) and channel.exact and channel.scale == 1.0
            if not (logistic or isinstance(channel, Multinomial)):
                return None
            first = [-1 if columns is None else columns.start for columns in at]
            moments.append(np.broadcast_arrays(own.intercept, own.intercept_var))
            rows.append((*first, part.certainty * part.spread, flip, part.weight))
        columns = np.array(rows).T
        of_scores = (
            np.squeeze(each, 1) if each.shape[1] == 1 else each for each in np.stack(moments, axis=1)
        )
        return (*columns[:2].astype(np.intp), *of_scores, *np.ascontiguousarray(columns[2:]))

    def scores(self, means: Array, variances: Array) -> list[tuple[Array, Array | None]]:
        """Means of the scores of every part, from its columns of products; variances unless it is certain."""
        found: list[tuple[Array, Array | None]] = []
        for part, at, var_at in zip(self._parts, self.mean_at, self._var_at, strict=True):
            own, mean, var = part.weights, part.weights.intercept, None
            mean = np.broadcast_to(mean, (len(means), mean.size)) if at is None else means[:, at] + mean
            if var_at is not None:
                var = part.certainty * part.spread * (variances[:, var_at] + own.intercept_var)
            found.append((mean, var))
        return found


@registered("model/average")
@dataclass(frozen=True, eq=False)
class Average:
    """The models that predict, with their weights."""

    parts: tuple[Part, ...]

    @cached_property
    def gathered(self) -> Gathered:
        return Gathered(self.parts)

    def __getstate__(self) -> dict[str, Any]:
        return {"parts": self.parts}

    def log_proba(self, operator: Operator) -> Array:
        """Log probabilities of classes of standardised samples, (samples, classes)."""
        means, variances = self.gathered.products(operator)
        proba = self.gathered.proba(means, variances)
        if proba is None:
            return self._mixed(means, variances)
        found = np.log(proba)
        if (left := np.isnan(proba[:, 0])).any():
            found[left] = self._mixed(means[left], variances[left])
        return found

    def _mixed(self, means: Array, variances: Array) -> Array:
        scores = self.gathered.scores(means, variances)
        tried = [(part.channel, *each) for part, each in zip(self.parts, scores, strict=True)]
        return mixed(np.array([part.weight for part in self.parts]), log_probabilities(tried))

    @property
    def mean(self) -> Array:
        """Of weights under the mixture, as log-odds, (features, scores)."""
        return np.asarray(sum(part.weight * part.scale * part.weights.mean for part in self.parts))

    @property
    def var(self) -> Array:
        """Of weights under the mixture: within the models and between them."""
        if len(self.parts) == 1:
            return np.asarray(self.parts[0].scale ** 2 * self.parts[0].weights.var)
        mean = self.mean
        return np.asarray(
            sum(
                part.weight
                * (part.scale**2 * part.weights.var + (part.scale * part.weights.mean - mean) ** 2)
                for part in self.parts
            )
        )

    @property
    def intercept(self) -> Array:
        return np.asarray(sum(part.weight * part.scale * part.weights.intercept for part in self.parts))


@dataclass(frozen=True, eq=False)
class Portfolio:
    """An average, how it came about, and what it predicts for every training sample from others."""

    average: Average
    loo_log_proba: Array  # (samples, classes)
    models: tuple[ModelShare, ...]  # all that were tried, the weightiest first
    mislabel_probability: Array | None  # (samples,); None where no model allows for wrong labels
    flip_rate: float | None  # likewise, the share of labels that are wrong
    # By how many standard errors the best dense model predicts left-out labels better than the sparse one.
    dense_lead: float = 0.0

    def share_of(self, code: str) -> float:
        """Of all models of a kind in predictions."""
        return sum(model.weight for model in self.models if model.code == code)


def _of_some_account(weights: Array) -> Array:
    """The weights without small ones, which add nothing."""
    found = np.where(weights >= np.minimum(LEAST_WEIGHT, weights.max(axis=0)), weights, 0.0)
    return np.asarray(found / found.sum(axis=0))


def alone(model: Model, table: Table, *, as_log_odds: bool = False) -> Portfolio:
    """One model as an average, at certainty 1; its weights are as they are, or scaled to log-odds."""
    log_proba = model.channel.log_proba(*model.left_out)
    loss = -float(table.share @ table.log_density(log_proba))
    scale = float(scale_of(model.left_out.mean, log_proba, table.share)) if as_log_odds else 1.0
    part = Part(model.code, 1.0, model.channel, 1.0, model.weights(), scale=scale)
    share = ModelShare(model.code, model.name, 1.0, loss)
    wrong, rate, channel = None, None, model.channel
    if isinstance(channel, FlippedLabels):
        mean, var = model.left_out.mean, np.maximum(_variance(model, 1.0), LEAST_VARIANCE)
        if table.n_classes == 2:
            mean, var = mean[:, 0], var[:, 0]
        wrong, rate = channel.mislabel_probability(mean, var, table.labels), float(channel.flip_prob)
    elif as_log_odds and table.n_classes > 2:
        wrong, rate = _mislabelled([(model, 1.0)], table)
    return Portfolio(Average((part,)), log_proba, (share,), wrong, rate)


def stacked(models: Sequence[Model], table: Table) -> Portfolio:
    """The average of models that predicts left-out labels best; rows of weight zero do not count."""
    tried = [(m, k) for m in models for k in _certainties(m)]
    log_proba = _tempered(tried)
    density = table.log_density(log_proba)
    of_model = {m.name: [n for n, (other, _) in enumerate(tried) if other is m] for m in models}
    prior = np.array([PSEUDO_SAMPLES / (len(models) * len(of_model[m.name])) for m, _ in tried])
    weights = stacking_weights(density, table.sample_weight, prior)
    guess = (table.class_weight / table.class_weight.sum())[table.codes]
    without = jackknifed(weights, density, table.left_out.weight, table.left_out.group, prior, guess)
    weights, without = _of_some_account(weights), _of_some_account(without)
    kept = np.flatnonzero(weights)
    kept_weights = weights[kept]

    scores = np.array([tried[n][0].left_out.mean for n in kept])
    scale = scale_of(scores, log_proba[kept], table.share) * (_doubt(log_proba[kept]) @ table.share)
    averaged = np.einsum("c,cms->ms", kept_weights * scale, scores)
    scale *= scale_of(averaged, mixed(kept_weights, log_proba[kept]), table.share)

    made: dict[str, tuple[Weights, float]] = {}
    parts = []
    # Moments of columns, of which the mean variance of scores is a sum; standardised ones need no pass.
    middle, around = table.standardized.column_moments(table.sample_weight)
    for n, weight, k in zip(kept, kept_weights, scale, strict=True):
        model, certainty = tried[n]
        if model.name not in made:
            own, spread = model.weights(), 1.0
            if model.left_out.var is not None:
                assumed = float(np.mean(own.of_scores.T @ (around + middle**2) + own.intercept_var))
                spread = float(np.mean(table.share @ model.left_out.var)) / max(assumed, LEAST_VARIANCE)
            made[model.name] = own, spread
        parts.append(Part(model.code, float(weight), model.channel, certainty, *made[model.name], float(k)))

    losses = -(density @ table.share)
    share = dict.fromkeys(of_model, 0.0)
    for n, weight in zip(kept, kept_weights, strict=True):
        share[tried[n][0].name] += float(weight)
    shares = [ModelShare(m.code, m.name, share[m.name], float(min(losses[of_model[m.name]]))) for m in models]
    average = Average(tuple(parts))
    left_out = mixed(without, log_proba)
    unused = table.sample_weight <= 0
    if unused.any():
        # Samples of weight zero were not learnt from: they are predicted as new ones are.
        left_out = np.where(unused[:, np.newaxis], average.log_proba(table.standardized), left_out)
    return Portfolio(
        average,
        left_out,
        tuple(sorted(shares, key=lambda s: -s.weight)),
        *_mislabelled(tried, table),
        _dense_lead(tried, density, table),
    )


def lead(models: Sequence[Model], name: str, table: Table) -> float:
    """By how many standard errors the model of this name predicts left-out labels better than all others.

    Each model is taken at its best certainty. -inf if there is no model of this name, inf if there is no
    other.
    """
    of_labels = {m.name: _at_best(m, table) for m in models}
    if (own := of_labels.pop(name, None)) is None:
        return -np.inf
    if not of_labels:
        return np.inf
    return _standard_errors(own - max(of_labels.values(), key=lambda each: float(table.share @ each)), table)


def _at_best(model: Model, table: Table) -> Array:
    """Log probabilities of left-out labels, at the certainty for which they are largest."""
    density = table.log_density(_tempered([(model, k) for k in _certainties(model)]))
    return np.asarray(density[np.argmax(density @ table.share)])


def _certainties(model: Model) -> tuple[float, ...]:
    """The certainties that a model is tried with; only one if its scores have no variance."""
    return CERTAINTIES if model.left_out.var is not None else (0.0,)


def _standard_errors(difference: Array, table: Table) -> float:
    mean, error = mean_and_error(difference, table.sample_weight)
    return mean / max(error, float(np.finfo(float).tiny))


def _doubt(log_proba: Array) -> Array:
    """1 - Σ p² for each sample: how much probabilities change with log-odds, up to a factor."""
    return np.asarray(1.0 - np.sum(np.exp(2.0 * log_proba), axis=-1))


def _tempered(tried: Sequence[tuple[Model, float]]) -> Array:
    """Log probabilities of left-out samples, (tried, samples, classes)."""
    return log_probabilities(
        [(m.channel, m.left_out.mean, None if k == 0 else _variance(m, k)) for m, k in tried]
    )


def _variance(model: Model, certainty: float) -> Array:
    assert model.left_out.var is not None
    return certainty * model.left_out.var


def _mislabelled(tried: Sequence[tuple[Model, float]], table: Table) -> tuple[Array | None, float | None]:
    """The probability that each label is wrong, and the share of labels that are (`flips_of`).

    An average that is stacked by labels of which some are wrong has probabilities nearer to one half, and so
    explains them without wrong labels. Therefore labels are judged apart from it, by all models at all
    certainties. Models that have taken wrong labels for right have scores that are too small at any
    certainty: several scales of them are tried as well. None if, of two classes, no model allows for wrong
    labels.
    """
    models = dict.fromkeys(model for model, _ in tried)
    if table.n_classes > 2:
        scores = np.array([k * model.left_out.mean for model in models for k in SHARPER])
        log_proba = log_softmax(scores, axis=2)
    elif any(isinstance(model.channel, FlippedLabels) for model in models):
        right = {m: m.channel.base if isinstance(m.channel, FlippedLabels) else m.channel for m in models}
        log_proba = log_probabilities(
            [(right[m], m.left_out.mean, None if k == 0 else _variance(m, k)) for m, k in tried]
            + [(right[m], k * m.left_out.mean, None) for m in models for k in SHARPER if k > 1.0]
        )
    else:
        return None, None
    return flips_of(np.exp(table.log_density(log_proba)), table.sample_weight, table.n_classes)


def _dense_lead(tried: Sequence[tuple[Model, float]], density: Array, table: Table) -> float:
    """By how many standard errors the best dense model predicts better than the sparse one, at certainty 1.

    Class frequencies are neither: if a sparse model loses to them, it is not for having too few weights.
    """
    sparse, dense = list[Array](), list[Array]()
    for (model, certainty), of_labels in zip(tried, density, strict=True):
        whole = certainty == 1.0 or model.left_out.var is None
        if whole and model.code != "frequencies":
            (sparse if model.code == "sparse" else dense).append(of_labels)
    if not sparse or not dense:
        return 0.0
    best = max(dense, key=lambda of_labels: float(table.share @ of_labels))
    return _standard_errors(best - sparse[0], table)
