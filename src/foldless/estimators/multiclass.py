"""MultinomialClassifier: any number of classes, jointly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, logsumexp
from sklearn.utils import check_scalar
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from foldless.beliefs import Array
from foldless.channels import Multinomial
from foldless.estimators._base import _STORAGE, MessagePassingClassifier
from foldless.estimators._threads import one_blas_thread
from foldless.estimators.gamp import checked_stopping
from foldless.operators import Standardized, operator_from
from foldless.priors import HyperPrior, Prior, SupportsInclusion
from foldless.solvers import GAMP
from foldless.solvers.damping import damping_from
from foldless.tuning.fit import Choices as BinaryChoices
from foldless.tuning.fit import Columns
from foldless.tuning.many_classes import Choices, Fit, fit
from foldless.tuning.ridge_path import RidgePath, fit_ridge_path
from foldless.tuning.stacking import stacking_weights


class MultinomialClassifier(MessagePassingClassifier):
    """Find the few features that tell many classes apart, and classify with them.

    All classes are fitted jointly: one score for each, the softmax of the scores, and weights that are
    row-sparse, so that a feature matters for all classes or for none and has one inclusion probability.
    Message passing with diagonal covariances (SHyGAMP) fits them; the likelihood is blended with class means
    as far as that predicts left-out samples better. Where features are correlated and all share the signal, a
    multinomial ridge in kernels predicts better; ``average=True`` lets leave-one-out weigh the two.

    Parameters
    ----------
    prior : {'row-sparse', 'spike-and-slab', 'gaussian', 'laplace'} or a prior, default='row-sparse'
        'spike-and-slab' and 'laplace' treat every weight on its own.
    rule : {'sum-product', 'max-sum'}, default='sum-product'
        'max-sum' with 'laplace' is the lasso, its rate tuned by SURE.
    variances : {'rank-one', 'uniform', 'per-coordinate'}, default='rank-one'
    damping : 'adaptive' or float, default='adaptive'
    generative_weight : 'auto' or float in [0, 1], default='auto'
    average : bool, default=True
        Whether the ridge has a say. It takes memory of samples by samples by classes, so it is left out
        beyond 2000 samples.
    tune : bool, default=True
    always_keep, class_weight, fdr, tol, max_iter, warm_start, verbose
        As for `SparseClassifier`; warm_start has no effect here.

    Attributes
    ----------
    coef_, coef_std_ : (D, n_features), intercept_ : (D,); of two classes one row, the difference
    inclusion_probability_ : (n_features,)
    loo_proba_ : (n_samples, D), loo_error_, loo_log_loss_ : leave-one-out, from the same fit
    sparse_weight_ : the share of the sparse model in the average
    classes_, prior_, channel_, outcome_, n_iter_, history_, log_evidence_, generative_weight_
    """

    def __init__(
        self,
        *,
        prior: str | Prior = "row-sparse",
        rule: str = "sum-product",
        variances: str = "rank-one",
        damping: str | float = "adaptive",
        generative_weight: float | str = "auto",
        average: bool = True,
        tune: bool = True,
        always_keep: Sequence[str] | Sequence[int] | None = None,
        class_weight: dict[Any, float] | str | None = None,
        fdr: float = 0.1,
        tol: float = 1e-3,
        max_iter: int = 300,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.prior = prior
        self.rule = rule
        self.variances = variances
        self.damping = damping
        self.generative_weight = generative_weight
        self.average = average
        self.tune = tune
        self.always_keep = always_keep
        self.class_weight = class_weight
        self.fdr = fdr
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to data of two or more classes."""
        check_scalar(self.fdr, "fdr", (int, float), min_val=0.0, max_val=1.0)
        X, targets = validate_data(self, X, y, ensure_min_samples=2, **_STORAGE)
        labels = self._encoded(targets)
        weight, left_out = self._weights(targets, sample_weight)
        choices = self._many_choices(self.classes_.size)
        operator = operator_from(X)
        kept = self._kept_positions(operator.shape[1])
        with one_blas_thread():
            standardized = Standardized.fit(operator, weight)
            result = fit(standardized, labels, weight, kept, choices, left_out=left_out, watch=self._watch())
            ridge = self._ridge_path(standardized, labels, weight, choices) if self.average else None
        self._publish_many(result, ridge, operator.dtype)
        self._tell(result)  # type: ignore[arg-type]
        return self

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Posterior mean scores, (n_samples, D); of two classes their difference."""
        scores = self._many_scores(X)
        scores = scores if self.classes_.size > 2 else scores[:, 1] - scores[:, 0]
        return scores.astype(self.coef_.dtype, copy=False)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each sample."""
        check_is_fitted(self)
        return self.classes_[np.argmax(self._log_proba(X), axis=1)]

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Class probabilities, integrated over the posterior of the weights and averaged over models."""
        return np.exp(self._log_proba(X)).astype(self.coef_.dtype, copy=False)

    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Logarithms of the class probabilities."""
        return self._log_proba(X).astype(self.coef_.dtype, copy=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = True
        return tags

    # ------------------------------------------------------------------ from data to the engine

    def _choices(self) -> BinaryChoices:
        raise NotImplementedError("many classes have choices of their own: see _many_choices")

    def _columns(self, n_features: int, always_keep: tuple[int, ...]) -> Columns:
        return Columns(n_features, always_keep, intercept=True, means_removed=False)

    def _many_choices(self, n_classes: int) -> Choices:
        weight = self.generative_weight
        if weight != "auto":
            check_scalar(weight, "generative_weight", (int, float), min_val=0.0, max_val=1.0)
        return Choices(
            prior=self.prior,
            channel=Multinomial(n_classes),
            solver=GAMP(rule=self.rule, variances=self.variances, damping=damping_from(self.damping)),  # type: ignore[arg-type]
            generative_weight=None if weight == "auto" else float(weight),
            stopping=checked_stopping(self.tol, self.max_iter),
            hyper=HyperPrior(),
            tune=self.tune,
        )

    def _encoded(self, y: NDArray[Any]) -> Array:
        """Labels as 1..D."""
        check_classification_targets(y)
        self.classes_, code = np.unique(y, return_inverse=True)
        if self.classes_.size == 1:
            raise ValueError(
                f"{type(self).__name__} needs samples of two classes, but y contains only one class, "
                f"{self.classes_[0]!r}. Check that the label column is the right one."
            )
        return code + 1.0

    def _ridge_path(
        self, standardized: Standardized, labels: Array, weight: Array, choices: Choices
    ) -> RidgePath | None:
        indicator = np.eye(choices.channel.n_classes)[choices.channel.codes(labels)]
        return fit_ridge_path(standardized, indicator, weight)

    # ------------------------------------------------------------------ from the engine to attributes

    def _publish_many(self, result: Fit, ridge: RidgePath | None, dtype: Any) -> None:
        posterior, standardized = result.solution.posterior, result.standardized
        constant = standardized.constant[:, np.newaxis]
        self._std_weights = np.where(constant, 0.0, posterior.mean[:-1])
        self._std_weight_var = np.where(constant, 0.0, posterior.var[:-1])
        self._std_intercept, self._intercept_var = posterior.mean[-1], posterior.var[-1]
        self._center, self._scale = standardized.center, standardized.scale
        self._always_kept = np.array(result.always_kept, dtype=np.intp)
        self.prior_, self.channel_ = result.prior, result.channel
        self._softmax = result.channel
        self._plug_in = result.max_sum

        own = np.arange(self._label_weight.size), result.solution.problem.labels.astype(np.intp) - 1
        loo = self._of_model(posterior.loo_mean, posterior.loo_var)
        log_proba = loo[np.newaxis]
        self._ridge = None
        if ridge is not None and ridge.weights.shape[0]:
            log_proba = np.concatenate([log_proba, log_softmax(ridge.loo_scores, axis=2)])
        counted = self._label_weight > 0
        n_ridges = log_proba.shape[0] - 1
        prior = np.append(1.0, np.full(n_ridges, 1.0 / max(n_ridges, 1)))
        share = stacking_weights(log_proba[:, *own][:, counted], self._label_weight[counted], prior)
        self._log_share = np.log(np.maximum(share, np.finfo(float).tiny))
        self.sparse_weight_ = float(share[0])
        weights, intercept = self._std_weights, self._std_intercept
        if n_ridges and ridge is not None:
            self._ridge = ridge
            weights = share[0] * weights + np.tensordot(share[1:], ridge.weights, axes=1)
            intercept = share[0] * intercept + share[1:] @ ridge.intercepts

        coef, std = (weights / self._scale[:, np.newaxis]).T, np.sqrt(self._std_weight_var.T) / self._scale
        bias = intercept - coef @ self._center
        if self.classes_.size == 2:
            coef, bias = coef[1:] - coef[:1], bias[1:] - bias[:1]
            std = np.sqrt(np.sum(std**2, axis=0, keepdims=True))
        self.coef_, self.coef_std_, self.intercept_ = (
            coef.astype(dtype),
            std.astype(dtype),
            bias.astype(dtype),
        )
        self.inclusion_probability_ = self._row_inclusion(result).astype(dtype)
        self.generative_weight_ = result.generative_weight
        self.generative_path_ = [(c.weight, c.loo_log_loss) for c in result.candidates]
        self.outcome_, self.n_iter_ = result.solution.outcome, result.n_iter
        self.history_, self.log_evidence_ = result.solution.history, posterior.log_evidence

        mixed = logsumexp(log_proba + self._log_share[:, np.newaxis, np.newaxis], axis=0)
        of_sample = self._label_weight / self._label_weight.sum()
        self.loo_proba_ = np.exp(mixed).astype(dtype)
        self.loo_error_ = float(of_sample @ (np.argmax(mixed, axis=1) != own[1]))
        self.loo_log_loss_ = -float(of_sample @ mixed[own])

    def _row_inclusion(self, result: Fit) -> Array:
        posterior, prior = result.solution.posterior, result.solution.problem.prior
        n_features = result.standardized.shape[1]
        if result.max_sum:
            inclusion = np.any(posterior.mean[:-1] != 0, axis=1).astype(np.float64)
        elif isinstance(prior, SupportsInclusion):
            of_weight = prior.inclusion_probability(posterior.cavity_mean, posterior.cavity_var)[:-1]
            # Independent spikes: a feature matters if it does for any class. Row-sparse: all are the same.
            same = np.ptp(of_weight, axis=1) == 0
            any_class = -np.expm1(np.sum(np.log1p(-np.minimum(of_weight, 1 - 1e-16)), axis=1))
            inclusion = np.where(same, of_weight[:, 0], any_class)
        else:
            inclusion = np.ones(n_features)
        inclusion = np.where(result.standardized.constant, 0.0, inclusion)
        inclusion[list(result.always_kept)] = 1.0
        return inclusion

    # ------------------------------------------------------------------ prediction

    def _of_model(self, mean: Array, var: Array) -> Array:
        """Log probabilities of the sparse model; max-sum has a mode and no variances to integrate."""
        return log_softmax(mean, axis=1) if self._plug_in else self._softmax.log_proba(mean, var)

    def _many_scores(self, X: Any) -> Array:
        """Mean scores of the average of models."""
        operator, share = self._standardized(X), np.exp(self._log_share)
        weights, intercept = share[0] * self._std_weights, share[0] * self._std_intercept
        if self._ridge is not None:
            weights = weights + np.tensordot(share[1:], self._ridge.weights, axes=1)
            intercept = intercept + share[1:] @ self._ridge.intercepts
        return operator.scores(weights) + intercept

    def _standardized(self, X: Any) -> Standardized:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **_STORAGE)
        return Standardized(operator_from(X), self._center, self._scale)

    def _log_proba(self, X: Any) -> Array:
        operator = self._standardized(X)
        mean = operator.scores(self._std_weights) + self._std_intercept
        var = operator.score_variances(self._std_weight_var) + self._intercept_var
        models = [self._of_model(mean, var)]
        if self._ridge is not None:
            for weights, intercept in zip(self._ridge.weights, self._ridge.intercepts, strict=True):
                models.append(log_softmax(operator.scores(weights) + intercept, axis=1))
        shares = self._log_share[:, np.newaxis, np.newaxis]
        return np.asarray(logsumexp(np.stack(models) + shares, axis=0))
