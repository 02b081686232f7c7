"""More than two classes: what a classifier adds to the binary one to fit them jointly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from foldless.beliefs import Array
from foldless.estimators._base import MessagePassingClassifier
from foldless.estimators._threads import one_blas_thread
from foldless.priors import SupportsInclusion
from foldless.tuning.many_average import ManyAverage
from foldless.tuning.many_classes import Fit


class ManyClassesClassifier(MessagePassingClassifier):
    """Encodes, publishes and predicts more than two classes; two are left to the binary classifier."""

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Of two classes the log-odds of ``classes_[1]``; of more, log probabilities less their mean."""
        if not self._has_many:
            return super().decision_function(X)
        log_proba = self._many_log_proba(X)
        return (log_proba - log_proba.mean(axis=1, keepdims=True)).astype(self.coef_.dtype, copy=False)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each sample."""
        if not self._has_many:
            return super().predict(X)
        return self.classes_[np.argmax(self._many_log_proba(X), axis=1)]

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Class probabilities, integrated over the posterior of the weights and averaged over models."""
        if not self._has_many:
            return super().predict_proba(X)
        return np.exp(self._many_log_proba(X)).astype(self.coef_.dtype, copy=False)

    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Logarithms of the class probabilities, exact far out where the probabilities round to zero."""
        if not self._has_many:
            return super().predict_log_proba(X)
        return self._many_log_proba(X).astype(self.coef_.dtype, copy=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = True
        return tags

    @property
    def _has_many(self) -> bool:
        return getattr(self, "_many", None) is not None

    def _many_log_proba(self, X: Any) -> Array:
        operator = self._standardized(X)
        assert self._many is not None
        with one_blas_thread():
            return self._many.log_proba(operator)

    def _encoded(self, y: NDArray[Any]) -> Array:
        """Two classes as -1 and +1, more as 1 to D."""
        check_classification_targets(y)
        self._many: ManyAverage | None = None
        classes, code = np.unique(y, return_inverse=True)
        if classes.size <= 2:
            return super()._encoded(y)
        self.classes_ = classes
        return code + 1.0

    def _publish_many(self, result: Fit, average: ManyAverage, dtype: Any) -> None:
        """Fitted attributes, in the units of X: weights of the average, inclusion of the sparse model."""
        self._many = average
        standardized, posterior = result.standardized, result.solution.posterior
        self._center, self._scale = standardized.center, standardized.scale
        self._always_kept = np.array(result.always_kept, dtype=np.intp)
        self.models_ = sorted(average.tried, key=lambda model: -model[1])
        coef = average.mean.T / self._scale
        self.coef_ = coef.astype(dtype)
        self.coef_std_ = (np.sqrt(average.var.T) / self._scale).astype(dtype)
        self.intercept_ = (average.intercept - coef @ self._center).astype(dtype)
        self.inclusion_probability_ = _row_inclusion(result).astype(dtype)
        self.prior_, self.channel_ = result.prior, result.channel
        self.generative_weight_ = result.generative_weight
        self.generative_path_ = [(c.weight, c.loo_log_loss) for c in result.candidates]
        self.outcome_, self.n_iter_ = result.solution.outcome, result.n_iter
        self.history_, self.log_evidence_ = result.solution.history, posterior.log_evidence

        share = self._label_weight / self._label_weight.sum()
        code = result.channel.codes(result.solution.problem.labels)
        log_proba = average.loo_log_proba
        self.loo_proba_ = np.exp(log_proba).astype(dtype)
        self.loo_error_ = min(float(share @ (np.argmax(log_proba, axis=1) != code)), 1.0)
        self.loo_log_loss_ = -float(share @ log_proba[np.arange(code.size), code])
        if hasattr(self, "mislabel_probability_"):
            del self.mislabel_probability_  # of an earlier fit of two classes


def _row_inclusion(result: Fit) -> Array:
    """The probability that a feature matters for any class."""
    posterior, prior = result.solution.posterior, result.solution.problem.prior
    if isinstance(prior, SupportsInclusion):
        # Row-sparse: the same for all classes.
        inclusion = prior.inclusion_probability(posterior.cavity_mean, posterior.cavity_var)[:-1, 0]
    else:
        inclusion = np.ones(result.standardized.shape[1])
    # A column that never varies cannot tell classes apart, whatever the prior says of weights.
    inclusion = np.where(result.standardized.constant, 0.0, inclusion)
    inclusion[list(result.always_kept)] = 1.0
    return inclusion
