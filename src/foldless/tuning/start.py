"""Starting values: how many features could matter, and how much, before any iteration."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike, NDArray

from foldless.beliefs import Array
from foldless.operators import Operator
from foldless.priors import ElasticNet, Gaussian, GaussianMixture, Laplace, Prior, SpikeAndSlab, prior_from

# A starting slab weaker than this share of the noise in all class means cannot be told from none.
LEAST_SIGNAL_SHARE = 0.05
# Slab standard deviations start within a factor of ten of one log-odds per standard deviation of a feature.
SLAB_VARIANCE_RANGE = (1e-2, 1e2)


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """What the two class means say about each column of a standardised operator.

    With n₊ and n₋ samples, the log-likelihood of the class means as a function of log-odds weights w,
    under x | y ~ N(mean_y, v) with equal variances, is  information (difference w - v w²/2)  per column.
    """

    difference: Array  # mean of class +1 minus mean of class -1
    within_var: Array  # variance within the classes
    information: float  # n₊ n₋ / (n₊ + n₋)
    label_mean: float

    def of_columns(self, columns: NDArray[np.intp]) -> ClassMeans:
        """The class means of some columns only."""
        return replace(self, difference=self.difference[columns], within_var=self.within_var[columns])

    def padded(self, n_columns: int, dtype: DTypeLike = np.float64) -> ClassMeans:
        """With further columns that say nothing: intercepts and the like."""
        more = n_columns - self.difference.size
        return replace(
            self,
            difference=np.append(self.difference.astype(dtype), np.zeros(more, dtype)),
            within_var=np.append(self.within_var.astype(dtype), np.ones(more, dtype)),
        )


def class_means(standardized: Operator, labels: Array, sample_weight: Array) -> ClassMeans:
    """Class means from one sweep over columns of mean zero and unit variance."""
    operator, n_samples = standardized, float(sample_weight.sum())
    label_mean = float(sample_weight @ labels) / n_samples
    information = n_samples * (1 - label_mean**2) / 4
    contrast = sample_weight * (labels - label_mean) / 2
    difference = operator.adjoint(contrast) / information
    # The total variance is one: within the classes plus between them.
    between = (1 - label_mean**2) / 4 * difference**2
    return ClassMeans(difference, np.clip(1 - between, 1 / n_samples, 1.0), information, label_mean)


def starting_count(n_features: int, n_samples: float) -> int:
    """The most features K whose choice M labels could encode: K log2(N / K) <= M.

    K log2(N / K) has its peak at K = N / e; if M labels reach that, any number of features can matter.
    """
    counts = np.arange(1, n_features + 1)
    too_many = np.flatnonzero(counts * np.log2(n_features / counts) > n_samples)
    return n_features if too_many.size == 0 else max(int(too_many[0]), 1)


def starting_slab_variance(means: ClassMeans, n_active: int) -> float:
    """The variance of `n_active` log-odds weights that would separate the class means as they are.

    The Bayes weights are difference / v; noise adds v / information per column to |difference|².
    """
    noise = float(np.sum(means.within_var)) / means.information
    signal = float(np.sum(means.difference**2)) - noise
    signal = max(signal, LEAST_SIGNAL_SHARE * noise)
    mean_var = float(np.mean(means.within_var)) if means.within_var.size else 1.0
    return float(np.clip(signal / (mean_var**2 * n_active), *SLAB_VARIANCE_RANGE))


def starting_prior(name: str, means: ClassMeans, n_samples: float) -> Prior:
    """The prior of this name, with parameters for EM to start at, from the class means of penalised columns.

    All start with the same variance per weight: that of the spike and slab with the information-theoretic
    sparsity. A prior given as an object starts with its own parameters instead.
    """
    n_penalised = max(means.difference.size, 1)
    n_active = starting_count(n_penalised, n_samples)
    inclusion = min(n_active / n_penalised, 0.5)
    slab_variance = starting_slab_variance(means, max(round(inclusion * n_penalised), 1))
    variance = inclusion * slab_variance
    prior = prior_from(name)
    if isinstance(prior, SpikeAndSlab):
        return replace(prior, slab=Gaussian(slab_variance), inclusion=inclusion)
    if isinstance(prior, Gaussian):
        return Gaussian(variance)
    rate = float(np.sqrt(2 / variance))
    if isinstance(prior, Laplace):
        return Laplace(rate)
    if isinstance(prior, ElasticNet):
        # Half of the shrinkage from either part, at the scale of the weights.
        return ElasticNet(rate=rate / 2, ridge=0.25 / variance)
    if isinstance(prior, GaussianMixture):
        return GaussianMixture(weights=(1 - inclusion, inclusion), variances=(variance / 10, slab_variance))
    return prior
