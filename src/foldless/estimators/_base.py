"""What all classifiers by message passing share: the scikit-learn face of a tuned fit."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_scalar
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted

from foldless.beliefs import Array
from foldless.channels import FlippedLabels
from foldless.estimators._checkpoint import checkpointed
from foldless.estimators._notebook import NotebookSummary
from foldless.estimators._reading import new_data, training_data
from foldless.estimators._saving import Saved
from foldless.estimators._threads import bounded_threads
from foldless.estimators._weights import sample_weights
from foldless.operators import Standardized
from foldless.priors import SupportsInclusion
from foldless.selection import select
from foldless.solution import Iteration, Outcome
from foldless.solvers.solve import Watch
from foldless.tuning.fit import Choices, Columns, Fit, fit
from foldless.tuning.loo import log_label_odds, loo_log_densities, loo_log_odds
from foldless.tuning.many_classes import Fit as ManyFit


class MessagePassingClassifier(Saved, NotebookSummary, ClassifierMixin, SelectorMixin, BaseEstimator):
    """Fitting, predicting and selecting; a subclass says what its parameters choose."""

    always_keep: Sequence[str] | Sequence[int] | None
    class_weight: dict[Any, float] | str | None
    fdr: float
    warm_start: bool
    verbose: int
    # For estimators that leave it to their users, a parameter.
    n_jobs: int | None = None
    # For estimators that can resume a fit, a parameter.
    checkpoint: str | Path | None = None

    # Called after every iteration, by whoever shows progress. Not a parameter: it is no part of the model.
    _on_iteration: Watch | None = None

    @abstractmethod
    def _choices(self) -> Choices:
        """What to fit, from the constructor's parameters; raises if they make no sense."""

    @abstractmethod
    def _columns(self, n_features: int, always_keep: tuple[int, ...]) -> Columns:
        """Which columns the assembled problem has."""

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to data of two classes.

        Parameters
        ----------
        X : array, data frame, sparse matrix or `open_rows`, of shape (n_samples, n_features)
            Any units: columns are centred and scaled inside, without a copy. float32 stays float32. What
            is Dask's stays where it is.
        y : array of shape (n_samples,)
            Labels, of any type, with exactly two different values.
        sample_weight : array of shape (n_samples,), optional
            How often each sample counts: weight 2 is the same as the row twice. Weights are numbers of
            samples; weights that add up to one are the evidence of one sample.
        """
        choices = self._choices()
        check_scalar(self.fdr, "fdr", Real, min_val=0.0, max_val=1.0)
        operator, targets = training_data(self, X, y)
        labels = self._encoded(targets)
        weight, left_out, self._label_weight = sample_weights(
            targets, sample_weight, self.class_weight, self.classes_
        )
        columns = self._columns(operator.shape[1], self._kept_positions(operator.shape[1]))

        given = {"labels": targets, "sample weights": weight, "groups": getattr(self, "_groups", None)}
        with bounded_threads(self.n_jobs), checkpointed(self, operator, given) as recorded:
            standardized = Standardized.fit(recorded, weight)
            self._solve(standardized, labels, weight, columns, choices, left_out)
        return self

    def decision_function(self, X: Any) -> NDArray[Any]:
        """The posterior mean of the score, in log-odds; positive means ``classes_[1]``."""
        mean, _ = self._scores(X, with_var=False)
        return mean.astype(self.coef_.dtype, copy=False)

    def predict(self, X: Any) -> NDArray[Any]:
        """The more probable class of each sample."""
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(np.intp)]

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Class probabilities, integrated over the posterior of the weights.

        If label noise is part of the model, these are probabilities of the label as it would be recorded.
        """
        positive = expit(self._label_log_odds(X))
        return np.column_stack([1.0 - positive, positive]).astype(self.coef_.dtype, copy=False)

    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Logarithms of the class probabilities, exact far out where the probabilities round to zero."""
        log_odds = self._label_log_odds(X)
        log_proba = -np.logaddexp(0.0, np.column_stack([log_odds, -log_odds]))
        return log_proba.astype(self.coef_.dtype, copy=False)

    def get_support(self, fdr: float | None = None, *, indices: bool = False) -> NDArray[Any]:
        """The features selected at a false discovery rate.

        Parameters
        ----------
        fdr : float, optional
            The expected share of false features among those selected; the constructor's if not given.
        indices : bool
            Positions instead of a mask.
        """
        check_is_fitted(self)
        if isinstance(fdr, bool | np.bool_):
            raise ValueError(f"fdr must be a rate from 0 to 1; got {fdr}. For positions write indices=True.")
        mask = np.zeros(self.inclusion_probability_.size, dtype=bool)
        # What is kept by decree is no discovery: it must not make room for false ones.
        free = np.setdiff1d(np.arange(mask.size), self._always_kept)
        mask[free] = select(self.inclusion_probability_[free], self.fdr if fdr is None else fdr)
        mask[self._always_kept] = True
        return np.flatnonzero(mask) if indices else mask

    def _get_support_mask(self) -> NDArray[np.bool_]:
        return self.get_support()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    # ------------------------------------------------------------------ from data to the engine

    def _solve(
        self,
        standardized: Standardized,
        labels: Array,
        weight: Array,
        columns: Columns,
        choices: Choices,
        left_out: Array,
    ) -> None:
        """Fit, publish the attributes, and say how it went."""
        warm = self._warm_state(labels.size, columns)
        result = fit(
            standardized,
            labels,
            weight,
            columns,
            choices,
            left_out=left_out,
            warm=warm,
            watch=self._watch(),
        )
        self._conclude(self._finished(result), standardized.dtype)

    def _finished(self, result: Fit) -> Fit:
        """A last word on a fit, before it is published."""
        return result

    def _conclude(self, result: Fit, dtype: Any) -> None:
        self._publish(result, dtype)
        self._tell(result)

    def _encoded(self, y: NDArray[Any]) -> Array:
        """Labels as -1 and +1."""
        check_classification_targets(y)
        target_type = type_of_target(y, input_name="y", raise_unknown=True)
        classes, code = np.unique(y, return_inverse=True)
        if classes.size == 1:
            raise ValueError(
                f"{type(self).__name__} needs samples of two classes, but y contains only one class, "
                f"{classes[0]!r}. Check that the label column is the right one."
            )
        if target_type != "binary":
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"{target_type}: y has {classes.size} classes. Use SparseClassifier, which fits all of them "
                "jointly, or select two."
            )
        self.classes_ = classes
        return np.where(code == 1, 1.0, -1.0)

    def _kept_positions(self, n_features: int) -> tuple[int, ...]:
        """Positions of the columns named, or numbered, in `always_keep`."""
        if self.always_keep is None:
            return ()
        if isinstance(self.always_keep, str):
            raise ValueError(
                f"always_keep must be a list of columns; got the string {self.always_keep!r}. "
                f"Write always_keep=[{self.always_keep!r}]."
            )
        positions = []
        names = list(getattr(self, "feature_names_in_", []))
        chosen = np.asarray(self.always_keep)
        if chosen.dtype == bool:
            if chosen.shape != (n_features,):
                raise ValueError(
                    f"always_keep as a mask needs one value for each of the {n_features} columns; "
                    f"got shape {chosen.shape}."
                )
            return tuple(np.flatnonzero(chosen).tolist())
        for column in self.always_keep:
            if isinstance(column, str):
                if column not in names:
                    have = (
                        f"The columns are {names[:10]}{'...' if len(names) > 10 else ''}."
                        if names
                        else ("X has no column names: pass a data frame, or give positions.")
                    )
                    raise ValueError(f"always_keep names {column!r}, which is not a column of X. {have}")
                positions.append(names.index(column))
            elif isinstance(column, Integral) and -n_features <= int(column) < n_features:
                positions.append(int(column) % n_features)
            else:
                raise ValueError(
                    f"always_keep contains {column!r}; it needs column names, or positions from 0 to "
                    f"{n_features - 1}."
                )
        return tuple(sorted(set(positions)))

    def _warm_state(self, n_samples: int, columns: Columns) -> Any:
        """The last fit's messages, if it was of the same samples and columns."""
        previous: tuple[int, Columns, Any] | None = getattr(self, "_warm", None)
        if not self.warm_start or previous is None:
            return None
        n_previous, previous_columns, state = previous
        return state if (n_previous, previous_columns) == (n_samples, columns) else None

    def _watch(self) -> Watch | None:
        if not self.verbose:
            return self._on_iteration

        def report(iteration: int, line: Iteration) -> None:
            name = type(self).__name__
            some = "" if line.visited is None else f"  {line.visited} weights visited"
            print(f"[{name}] iteration {iteration:4d}  change {line.change:.2e}  step {line.step:.2f}{some}")
            if self._on_iteration is not None:
                self._on_iteration(iteration, line)

        return report

    # ------------------------------------------------------------------ from the engine to attributes

    def _publish(self, result: Fit, dtype: Any) -> None:
        """Fitted attributes, in the units of X."""
        self._warm = (result.n_rows, result.columns, result.solution.state) if self.warm_start else None
        posterior, problem = result.solution.posterior, result.solution.problem
        n_features, scale = result.columns.n_features, result.standardized.scale
        self._std_weights = np.where(result.standardized.constant, 0.0, posterior.mean[:n_features])
        self._std_weight_var = np.where(result.standardized.constant, 0.0, posterior.var[:n_features])
        self._always_kept = np.array(result.columns.always_kept, dtype=np.intp)
        has_intercept = result.columns.intercept
        self._std_intercept = float(posterior.mean[-1]) if has_intercept else 0.0
        self._intercept_var = float(posterior.var[-1]) if has_intercept else 0.0
        self._center, self._scale = result.standardized.center, scale

        coef = self._std_weights / scale
        self.coef_ = coef[np.newaxis].astype(dtype)
        self.coef_std_ = (np.sqrt(self._std_weight_var) / scale)[np.newaxis].astype(dtype)
        self.intercept_ = np.array([self._std_intercept - self._center @ coef], dtype=dtype)
        self.inclusion_probability_ = self._inclusion(result).astype(dtype)
        self.prior_, self.channel_ = result.prior, result.channel
        self._publish_choice(result)
        self.outcome_, self.n_iter_ = result.solution.outcome, result.n_iter
        self.history_ = result.solution.history
        self.log_evidence_ = posterior.log_evidence

        samples = slice(0, self._label_weight.size)
        share = self._label_weight / self._label_weight.sum()
        log_odds = loo_log_odds(result.solution)[samples]
        positive = expit(log_odds)
        self.loo_proba_ = np.column_stack([1.0 - positive, positive]).astype(dtype)
        # Shares add up to one but for rounding.
        self.loo_error_ = min(float(share @ (problem.labels[samples] * log_odds <= 0)), 1.0)
        self.loo_log_loss_ = -float(share @ loo_log_densities(result.solution)[samples])
        if isinstance(self.channel_, FlippedLabels):
            self.mislabel_probability_ = self.channel_.mislabel_probability(
                posterior.loo_mean[samples],
                posterior.loo_var[samples],
                problem.labels[samples],
            ).astype(dtype)
        elif hasattr(self, "mislabel_probability_"):
            del self.mislabel_probability_  # of an earlier fit with another channel

    def _publish_choice(self, result: Fit) -> None:
        """What was chosen by leave-one-out, and from what."""
        self.generative_weight_ = result.generative_weight
        self.generative_path_ = [(c.weight, c.loo_log_loss) for c in result.candidates]

    def _inclusion(self, result: Fit) -> Array:
        posterior = result.solution.posterior
        prior = result.solution.problem.prior.constrained(posterior.cavity_mean, posterior.cavity_var)
        n_features = result.columns.n_features
        if result.inclusion is not None:
            inclusion = result.inclusion[:n_features]
        elif result.max_sum:
            inclusion = (posterior.mean[:n_features] != 0).astype(np.float64)
        elif isinstance(prior, SupportsInclusion):
            inclusion = prior.inclusion_probability(posterior.cavity_mean, posterior.cavity_var)[:n_features]
        else:
            inclusion = np.ones(n_features)
        # A column that never varies cannot tell classes apart, whatever the prior says of weights.
        inclusion = np.where(result.standardized.constant, 0.0, inclusion)
        inclusion[list(result.columns.always_kept)] = 1.0
        return inclusion

    def _tell(self, result: Fit | ManyFit) -> None:
        outcome = result.solution.outcome
        if outcome is Outcome.INTERRUPTED:
            raise KeyboardInterrupt(
                f"{type(self).__name__} was interrupted; it holds the state reached by then."
            )
        if not outcome.trustworthy:
            warnings.warn(
                f"{type(self).__name__}: {outcome} after {self.n_iter_} iterations. {outcome.advice}",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _standardized(self, X: Any) -> Standardized:
        """New samples in the units of the fit."""
        check_is_fitted(self)
        return Standardized(new_data(self, X), self._center, self._scale)

    def _label_log_odds(self, X: Any) -> Array:
        """Log-odds of ``classes_[1]``, integrated over the posterior of the weights."""
        mean, var = self._scores(X, with_var=True)
        return log_label_odds(self.channel_.predictive(), mean, var)

    def _scores(self, X: Any, *, with_var: bool) -> tuple[Array, Array]:
        """Posterior mean and variance of the scores of new samples."""
        operator = self._standardized(X)
        mean = operator.scores(self._std_weights) + self._std_intercept
        if not with_var:
            return mean, np.zeros_like(mean)
        return mean, operator.score_variances(self._std_weight_var) + self._intercept_var
