"""What class means tell of each column, and the priors that tuning starts from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike, NDArray

from foldless.beliefs import Array
from foldless.operators import Operator
from foldless.priors import (
    ElasticNet,
    Gaussian,
    GaussianMixture,
    Laplace,
    Prior,
    RowSparse,
    SpikeAndSlab,
    prior_from,
)

# A starting slab weaker than this share of the noise in all class means cannot be told from none.
LEAST_SIGNAL_SHARE = 0.05
# Slab standard deviations start within a factor of ten of one log-odds per standard deviation of a feature.
SLAB_VARIANCE_RANGE = (1e-2, 1e2)


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """Class means of columns of mean zero and unit variance, as contrasts: one for each score.

    Under x | class ~ N(mean of the class, v) with equal variances, the Bayes weights of a score are
    contrast / v. One score has the contrast  mean₊ - mean₋ , D scores have the class means themselves.
    """

    contrast: Array  # (columns,) or (columns, D)
    within_var: Array  # (columns,): the variance within the classes, v
    class_weight: Array  # (classes,): n_k

    @property
    def label_mean(self) -> float:
        """Of labels -1 and +1."""
        negative, positive = self.class_weight
        return float((positive - negative) / (positive + negative))

    @property
    def noise(self) -> Array:
        """Of each contrast, (scores,), in units of v: 1/n₊ + 1/n₋, or 1/n_k - 1/n about the mean of all."""
        inverse = 1.0 / self.class_weight
        if self.contrast.ndim == 1:
            return inverse.sum(keepdims=True)
        return np.asarray(inverse - 1.0 / self.class_weight.sum())

    def of_columns(self, columns: NDArray[np.intp]) -> ClassMeans:
        return replace(self, contrast=self.contrast[columns], within_var=self.within_var[columns])

    def padded(self, n_columns: int, dtype: DTypeLike = np.float64) -> ClassMeans:
        """For an operator with further columns, such as the intercept; contrasts, for a start, are gone."""
        more = n_columns - self.within_var.size
        within = np.append(self.within_var.astype(dtype), np.ones(more, dtype))
        return replace(self, contrast=np.zeros((0, *self.contrast.shape[1:])), within_var=within)

    def starting_slab_variance(self, n_active: int) -> float:
        """The variance of `n_active` Bayes weights that would separate the class means as they are."""
        noise = float(np.mean(self.noise)) * float(np.sum(self.within_var))
        squares = np.sum(self.contrast**2, axis=0)
        signal = max(float(np.mean(squares)) - noise, LEAST_SIGNAL_SHARE * noise)
        mean_var = float(np.mean(self.within_var)) if self.within_var.size else 1.0
        return float(np.clip(signal / (mean_var**2 * n_active), *SLAB_VARIANCE_RANGE))


def class_means(
    standardized: Operator, codes: NDArray[np.intp], sample_weight: Array, n_classes: int
) -> ClassMeans:
    """Class means from one sweep over columns of mean zero and unit variance."""
    class_weight: Array = np.bincount(codes, weights=sample_weight, minlength=n_classes).astype(np.float64)
    total = float(class_weight.sum())
    if n_classes == 2:
        information = float(np.prod(class_weight)) / total
        label_mean = float(class_weight[1] - class_weight[0]) / total
        contrast = standardized.adjoint(sample_weight * (2.0 * codes - 1.0 - label_mean) / 2) / information
        between = information / total * contrast**2
    else:
        indicator = np.eye(n_classes)[codes] * sample_weight[:, np.newaxis]
        contrast = standardized.adjoint(indicator) / class_weight
        between = contrast**2 @ (class_weight / total)
    # The total variance is one: within the classes plus between them.
    return ClassMeans(contrast, np.clip(1.0 - between, 1.0 / total, 1.0), class_weight)


def starting_count(n_features: int, n_samples: float, n_classes: int = 2) -> int:
    """The most features K whose weights, S for each, M labels could encode: K S log2(N/K) <= M log2(classes).

    K log2(N / K) has its peak at K = N / e; if M labels reach that, any number of features can matter.
    """
    n_scores = 1 if n_classes == 2 else n_classes
    counts = np.arange(1, n_features + 1)
    bits = counts * n_scores * np.log2(n_features / counts)
    too_many = np.flatnonzero(bits > n_samples * np.log2(n_classes))
    return n_features if too_many.size == 0 else max(int(too_many[0]), 1)


def starting_prior(name: str, means: ClassMeans) -> Prior:
    """The prior of this name, with parameters for tuning to start at, from the class means of free columns.

    All start with the same variance per weight: that of the spike and slab with the information-theoretic
    sparsity. A prior given as an object starts with its own parameters instead.
    """
    n_penalised = max(means.within_var.size, 1)
    count = starting_count(n_penalised, float(means.class_weight.sum()), means.class_weight.size)
    inclusion = min(count / n_penalised, 0.5)
    slab_variance = means.starting_slab_variance(max(round(inclusion * n_penalised), 1))
    variance = inclusion * slab_variance
    prior = prior_from(name)
    if isinstance(prior, SpikeAndSlab | RowSparse):
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
