"""An average of models for many classes: what each predicts for a new sample, and what left-out labels say.

As `average` for two classes: probabilities are averaged, with weights from `stacking`; a model that knows how
uncertain its scores are stands with all, a part or none of that, and left-out labels judge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax

from foldless.beliefs import Array
from foldless.channels import Multinomial
from foldless.operators import Operator
from foldless.registry import registered
from foldless.tuning.average import CERTAINTIES, LEAST_VARIANCE, LEAST_WEIGHT
from foldless.tuning.stacking import stacking_weights


@registered("model/many-linear")
@dataclass(frozen=True, eq=False)
class ManyLinear:
    """A model's posterior of the weights of all columns, and of intercepts, in standardised units."""

    mean: Array  # (columns, D)
    var: Array
    intercept: Array  # (D,)
    intercept_var: Array


@dataclass(frozen=True, eq=False)
class ManyCandidate:
    """A model that could be averaged: what it believes of left-out scores, and its weights if asked for."""

    name: str
    loo_mean: Array  # (samples, D)
    loo_var: Array | None  # None: it has no doubt about its scores
    linear: Callable[[], ManyLinear]


@registered("model/many-part")
@dataclass(frozen=True, eq=False)
class ManyPart:
    """One model of an average."""

    name: str
    weight: float
    certainty: float  # the share of its variances that it predicts with
    linear: ManyLinear
    spread: float  # what makes the mean variance of training scores that of leave-one-out

    def log_proba(self, operator: Operator, channel: Multinomial) -> Array:
        mean = operator.scores(self.linear.mean) + self.linear.intercept
        if self.certainty == 0:
            return log_softmax(mean, axis=1)
        var = operator.score_variances(self.linear.var) + self.linear.intercept_var
        return tempered_log_proba(channel, mean, self.spread * var, self.certainty)


@registered("model/many-average")
@dataclass(frozen=True, eq=False)
class ManyAverage:
    """The average, and what it says of every training sample from all others."""

    parts: tuple[ManyPart, ...]
    channel: Multinomial
    loo_log_proba: Array  # (samples, D)
    tried: tuple[tuple[str, float], ...]  # name and weight

    def log_proba(self, operator: Operator) -> Array:
        """Of standardised samples, (samples, D)."""
        of_parts = np.array([part.log_proba(operator, self.channel) for part in self.parts])
        return mixed(np.array([part.weight for part in self.parts]), of_parts)

    @property
    def mean(self) -> Array:
        return np.asarray(sum(part.weight * part.linear.mean for part in self.parts))

    @property
    def var(self) -> Array:
        """Of weights under the mixture: within the models and between them."""
        square = sum(part.weight * (part.linear.var + part.linear.mean**2) for part in self.parts)
        return np.maximum(square - self.mean**2, 0.0)

    @property
    def intercept(self) -> Array:
        return np.asarray(sum(part.weight * part.linear.intercept for part in self.parts))


def tempered_log_proba(channel: Multinomial, mean: Array, var: Array | None, certainty: float) -> Array:
    """Log probabilities with a share of the scores' variances."""
    if var is None or certainty == 0:
        return log_softmax(mean, axis=1)
    return channel.log_proba(mean, np.maximum(certainty * var, LEAST_VARIANCE))


def mixed(weights: Array, log_proba: Array) -> Array:
    """Of the mixture with these weights of (models, samples, D)."""
    return np.asarray(np.logaddexp.reduce(np.log(weights)[:, np.newaxis, np.newaxis] + log_proba, axis=0))


def average_of_many(
    candidates: Sequence[ManyCandidate],
    channel: Multinomial,
    standardized: Operator,
    labels: Array,
    sample_weight: Array,
) -> ManyAverage:
    """The average of candidates that predicts left-out labels best; rows of weight zero do not count."""
    tried = [(c, k) for c in candidates for k in (CERTAINTIES if c.loo_var is not None else (0.0,))]
    log_proba = np.array([tempered_log_proba(channel, c.loo_mean, c.loo_var, k) for c, k in tried])
    own = np.arange(labels.size), channel.codes(labels)
    weights = stacking_weights(log_proba[:, *own], sample_weight)
    kept = np.flatnonzero(weights >= min(LEAST_WEIGHT, float(weights.max())))
    kept_weights = weights[kept] / weights[kept].sum()
    share = sample_weight / sample_weight.sum()
    linear: dict[str, ManyLinear] = {}
    parts = []
    for n, weight in zip(kept, kept_weights, strict=True):
        candidate, certainty = tried[n]
        if candidate.name not in linear:
            linear[candidate.name] = candidate.linear()
        found, spread = linear[candidate.name], 1.0
        if candidate.loo_var is not None:
            assumed = float(np.mean(share @ standardized.score_variances(found.var) + found.intercept_var))
            spread = float(np.mean(share @ candidate.loo_var)) / max(assumed, LEAST_VARIANCE)
        parts.append(ManyPart(candidate.name, float(weight), certainty, found, spread))
    of_name = dict.fromkeys(dict.fromkeys(c.name for c in candidates), 0.0)
    for (candidate, _), weight in zip(tried, weights, strict=True):
        of_name[candidate.name] += float(weight)
    return ManyAverage(tuple(parts), channel, mixed(kept_weights, log_proba[kept]), tuple(of_name.items()))
