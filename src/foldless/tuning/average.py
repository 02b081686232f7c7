"""An average of models: what each predicts for a new sample, and what left-out labels say of each.

Predictions are averaged as probabilities, with weights from `stacking`. A model predicts a label through a
score N(mean, certainty · variance): its mean is linear in the sample, its variance that of independent
weights, scaled such that on average it is the variance that leave-one-out found, covariances included. A
certainty below one is explained in `bank`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_expit

from foldless.beliefs import Array
from foldless.channels import Channel, FlippedLabels
from foldless.operators import Operator
from foldless.registry import registered
from foldless.tuning.loo import log_label_odds
from foldless.tuning.stacking import stacking_weights

# Shares of a model's score variance that predictions are tried with.
CERTAINTIES = (0.0, 0.3, 1.0)
LEAST_VARIANCE = 1e-6
# Models of less weight than this say nothing that others do not.
LEAST_WEIGHT = 0.01


@registered("model/linear")
@dataclass(frozen=True, eq=False)
class Linear:
    """A model's posterior of the weights of all columns, and of the intercept, in standardised units."""

    mean: Array
    var: Array
    intercept: float
    intercept_var: float
    score_var: Array  # of each weight, as far as scores of new samples go


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model that could be averaged: what it believes of left-out scores, and its weights if asked for."""

    name: str
    channel: Channel
    loo_mean: Array
    loo_var: Array
    linear: Callable[[], Linear]


@registered("model/part")
@dataclass(frozen=True, eq=False)
class Part:
    """One model of an average."""

    name: str
    weight: float
    channel: Channel
    certainty: float
    linear: Linear
    spread: float  # what makes the mean variance of training scores that of leave-one-out

    def log_odds(self, operator: Operator) -> Array:
        """Log-odds of label +1, for standardised samples."""
        mean = operator.scores(self.linear.mean) + self.linear.intercept
        var = self.spread * operator.score_variances(self.linear.score_var)
        return tempered_log_odds(self.channel, mean, var, self.certainty)


@registered("model/average")
@dataclass(frozen=True, eq=False)
class Average:
    """The average, and what it says of every training sample from all others."""

    parts: tuple[Part, ...]
    loo_log_odds: Array
    mislabel_probability: Array
    tried: tuple[tuple[str, float, float], ...]  # name, leave-one-out log loss at its best certainty, weight

    def log_odds(self, operator: Operator) -> Array:
        return mixed_log_odds(
            np.array([part.weight for part in self.parts]),
            np.array([part.log_odds(operator) for part in self.parts]),
        )

    @property
    def mean(self) -> Array:
        return np.asarray(sum(part.weight * part.linear.mean for part in self.parts))

    @property
    def var(self) -> Array:
        """Of weights under the mixture: within the models and between them."""
        square = sum(part.weight * (part.linear.var + part.linear.mean**2) for part in self.parts)
        return np.maximum(square - self.mean**2, 0.0)

    @property
    def intercept(self) -> float:
        return sum(part.weight * part.linear.intercept for part in self.parts)


def tempered_log_odds(channel: Channel, mean: Array, var: Array, certainty: float) -> Array:
    """Log-odds of label +1 with a share of the score's variance."""
    return log_label_odds(channel.predictive(), mean, np.maximum(certainty * var, LEAST_VARIANCE))


def _all_tempered(tried: Sequence[tuple[Candidate, float]]) -> Array:
    """Of leave-one-out; models that share a channel ask it together, which is faster."""
    found = np.empty((len(tried), tried[0][0].loo_mean.size))
    for channel in {c.channel for c, _ in tried}:
        which = [n for n, (c, _) in enumerate(tried) if c.channel == channel]
        mean = np.array([tried[n][0].loo_mean for n in which])
        var = np.array([tried[n][1] * tried[n][0].loo_var for n in which])
        found[which] = tempered_log_odds(channel, mean, var, 1.0)
    return found


def mixed_log_odds(weights: Array, log_odds: Array) -> Array:
    """Of the mixture with these weights of (models, samples), in the log domain."""
    log_weights = np.log(weights)[:, np.newaxis]
    positive = np.logaddexp.reduce(log_weights + log_expit(log_odds), axis=0)
    negative = np.logaddexp.reduce(log_weights + log_expit(-log_odds), axis=0)
    return np.asarray(positive - negative)


def averaged(
    candidates: Sequence[Candidate], standardized: Operator, labels: Array, sample_weight: Array
) -> Average:
    """The average of candidates that predicts left-out labels best; rows of weight zero do not count."""
    # A model without any doubt about its scores has no share of it to leave out.
    tried = [(c, k) for c in candidates for k in (CERTAINTIES if np.any(c.loo_var > 0) else (1.0,))]
    log_odds = _all_tempered(tried)
    density = log_expit(labels * log_odds)
    weights = stacking_weights(density, sample_weight)
    kept = np.flatnonzero(weights >= min(LEAST_WEIGHT, float(weights.max())))
    kept_weights = weights[kept] / weights[kept].sum()

    linear: dict[str, Linear] = {}
    parts = []
    share = sample_weight / sample_weight.sum()
    for n, weight in zip(kept, kept_weights, strict=True):
        candidate, certainty = tried[n]
        if candidate.name not in linear:
            linear[candidate.name] = candidate.linear()
        found = linear[candidate.name]
        assumed = float(share @ standardized.score_variances(found.score_var))
        spread = float(share @ candidate.loo_var) / max(assumed, LEAST_VARIANCE)
        parts.append(Part(candidate.name, float(weight), candidate.channel, certainty, found, spread))
    mislabelled = np.zeros_like(labels)
    for n, weight in zip(kept, kept_weights, strict=True):
        candidate, certainty = tried[n]
        if isinstance(candidate.channel, FlippedLabels):
            var = np.maximum(certainty * candidate.loo_var, LEAST_VARIANCE)
            mislabelled += weight * candidate.channel.mislabel_probability(candidate.loo_mean, var, labels)
    losses = -(density @ share)
    summary = {
        c.name: (
            float(min(losses[n] for n, (other, _) in enumerate(tried) if other is c)),
            float(sum(part.weight for part in parts if part.name == c.name)),
        )
        for c in candidates
    }
    return Average(
        tuple(parts),
        mixed_log_odds(kept_weights, log_odds[kept]),
        mislabelled,
        tuple((name, loss, weight) for name, (loss, weight) in summary.items()),
    )
