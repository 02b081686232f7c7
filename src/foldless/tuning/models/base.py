"""The contract of a model: scores of every sample from others, weights; and a model without features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from foldless.beliefs import Array
from foldless.channels import Channel, FlippedLabels, Logistic, Multinomial
from foldless.operators import Operator
from foldless.problem import Solution
from foldless.registry import registered
from foldless.solvers.ep import left_out_groups
from foldless.tuning.plan import Recipe
from foldless.tuning.table import Table


class Scores(NamedTuple):
    """Gaussian beliefs about scores, (samples, scores); without variances they are taken for certain."""

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
    # Variances as far as scores of new samples go, where these are others.
    score_var: Array | None = None

    def scores(self, operator: Operator) -> Array:
        return np.asarray(operator.scores(self.mean) + self.intercept)

    def score_variances(self, operator: Operator) -> Array:
        """Of independent weights."""
        var = self.var if self.score_var is None else self.score_var
        return np.asarray(operator.score_variances(var) + self.intercept_var)


@dataclass(frozen=True, eq=False)
class Model:
    """A model that could be averaged."""

    code: str  # "sparse", "ridge", "informed", "strongly-informed", "frequencies"
    name: str  # with its strength, as a reader would say it
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
    left_out = Scores(as_columns(mean[samples]), as_columns(var[samples]))

    def weights() -> Weights:
        return weights_of(solution, table, unit)

    return Model(code, name, solution.problem.channel.predictive(), left_out, weights)


def weights_of(solution: Solution, table: Table, unit: Array | None = None) -> Weights:
    """The weights of a solution, without those of columns that never vary."""
    n, posterior = table.layout.n_features, solution.posterior
    mean, var = as_columns(posterior.mean), as_columns(posterior.var)
    factor = np.where(table.standardized.constant, 0.0, 1.0 if unit is None else unit)[:, np.newaxis]
    # The intercept, where there is one, is the last column.
    intercept, intercept_var = (
        (mean[-1], var[-1]) if table.layout.intercept else (np.zeros(mean.shape[1]),) * 2
    )
    return Weights(factor * mean[:n], factor**2 * var[:n], intercept, intercept_var)


def class_frequencies(table: Table) -> Model:
    """The model without features, so that an average can turn out to be nothing but that."""
    count = table.class_weight
    left = count - table.left_out.taken(table.indicator)
    # Laplace's rule of succession: a class without samples left is improbable, not impossible.
    whole, of_samples = np.log(count + 1.0)[np.newaxis], np.log(left + 1.0)
    if table.n_classes == 2:
        whole, of_samples = np.diff(whole, axis=1), np.diff(of_samples, axis=1)
    nothing = np.zeros((table.layout.n_features, table.n_scores))
    weights = Weights(nothing, nothing, whole[0], np.zeros(table.n_scores))
    channel = Logistic() if table.n_classes == 2 else Multinomial(table.n_classes)
    return Model("frequencies", "class frequencies", channel, Scores(of_samples, None), lambda: weights)


def channel_of(recipe: Recipe) -> Channel:
    return FlippedLabels(Logistic(), recipe.flip_prob) if recipe.flip_prob else Logistic()
