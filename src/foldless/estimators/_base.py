"""What all classifiers by message passing share: the scikit-learn face of the path from a table to a fit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from foldless.beliefs import Array
from foldless.channels import Channel, FlippedLabels
from foldless.estimators._account import Account, component_name, left_out_words, parameters
from foldless.estimators._feature_table import feature_table
from foldless.estimators._resuming import checkpointed
from foldless.estimators._scikit_learn import (
    SampleWeights,
    SelectingClassifier,
    all_finite,
    checked_groups,
    new_data,
    sample_weights,
    training_data,
    unless_finite,
)
from foldless.estimators._summary import STANDARDISED, Sentence, Summary, basics
from foldless.evaluation import p_value_of, p_value_of_losses
from foldless.kernels import bounded_threads, one_blas_thread
from foldless.operators import Journaled, Standardized, stays_elsewhere
from foldless.problem import Iteration, Outcome
from foldless.selection import select
from foldless.solvers.solve import Stopping, Watch
from foldless.tuning.class_means import can_blend
from foldless.tuning.costs import Budget
from foldless.tuning.fit import Choices
from foldless.tuning.models.sparse import SparseFits
from foldless.tuning.path import Result
from foldless.tuning.planned import PLAIN, Plan
from foldless.tuning.portfolio import Average
from foldless.tuning.record import SELECT_NOTHING, Record, Recorder
from foldless.tuning.table import Layout, Table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(eq=False, repr=False, kw_only=True)
class CommonParameters:
    """Of all classifiers by message passing.

    Parameters
    ----------
    fdr : float, default=0.1
        False discovery rate of `transform`, and of `get_support` if it is not given another.
    tol : float, default=1e-4
        Relative change of the weights at which the iteration ends.
    max_iter : int, default=1000
        Iterations of each run.
    verbose : int, default=0
        Print each iteration, if above 0.
    """

    class_weight: dict[Any, float] | str | None = None
    fdr: float = 0.1
    tol: float = 1e-4
    max_iter: int = 1000
    verbose: int = 0


class MessagePassingClassifier(CommonParameters, SelectingClassifier):
    """Reading, fitting, predicting and selecting; a subclass chooses what is fitted.

    Attributes
    ----------
    prior_, channel_ : Prior, Channel
        As tuned.
    generative_weight_, generative_path_ : float, list of (float, float)
        How far features were modelled given the class, and the leave-one-out log loss at each weight tried.
    history_, log_evidence_ : History, float
        Every iteration of the last run, and the log evidence, if the solver has one (NaN otherwise).
    plan_, record_ : Plan, Record
        What was to be fitted, by which solvers, and why (``plan_.path``, ``plan_.reasons``); and what
        happened: every run, with its solver, outcome and iterations.
    models_, flags_ : list of ModelShare, list of Flag
        Code, name, weight in predictions and left-out log loss of every model tried, the weightiest first;
        and reasons to read some numbers with care, each with a ``code`` and a ``text``.
    solver_ : str
        The solvers behind the sparse model, in the order they ran: 'GAMP' (message passing with diagonal
        covariances), 'EP' (with exact ones), or 'GAMP + EP'.
    loo_worth_ : Worth
        What these are worth: ``error_interval`` (95 %), ``auc`` and ``auc_interval``,
        ``calibration_slope``, and the same of class frequencies, ``guessing_error``, ``guessing_log_loss``.
    p_value_ : float
        Of class means as far apart as these if labels had nothing to do with the features, by permutation; of
        large tables, and of rows that stay elsewhere, of left-out losses as small as these
        (``plan_.null_test``).
    outcome_, n_iter_ : Outcome, int
        How the iteration ended, with ``outcome_.advice``, and after how many steps in all.
    """

    always_keep: Sequence[str] | Sequence[int] | None
    # For estimators that leave it to their users, parameters.
    n_jobs: int | None = None
    warm_start: bool = False
    checkpoint: str | Path | None = None

    # Called after every iteration, by whoever shows progress. Not a parameter: it is no part of the model.
    _on_iteration: Watch | None = None
    # What a fit may cost; not a parameter, since it is about machines and not about models.
    _budget = Budget()
    # Whether there is a blend of the likelihood with class means to tell of.
    _can_blend = True
    _average: Average
    # What the last fit was of, and where it ended, if that is wanted.
    _warm: tuple[str, SparseFits] | None = None

    @abstractmethod
    def _choices(self, n_classes: int) -> Choices:
        """What to fit, from the constructor's parameters; raises if they make no sense."""

    @abstractmethod
    def _fit_table(self, table: Table, choices: Choices, recorder: Recorder) -> Result:
        """From a table to a result."""

    def _layout(self, n_features: int, always_keep: tuple[int, ...], n_classes: int) -> Layout:
        """Which columns the assembled problem has."""
        return Layout(n_features, always_keep)

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Fit to data of two or more classes.

        Parameters
        ----------
        X : array, data frame, sparse matrix or `open_rows`, of shape (n_samples, n_features)
            Any units: columns are centred and scaled inside, without a copy. float32 stays float32. What
            is Dask's stays where it is.
        y : array of shape (n_samples,)
            Labels, of any type, with at least two different values.
        sample_weight : array of shape (n_samples,), optional
            How often each sample counts: weight 2 is the same as the row twice. Weights are numbers of
            samples; weights that add up to one are the evidence of one sample.
        groups : array of shape (n_samples,), optional
            Samples that belong together (of one subject, run or batch) and are left out together: models
            are then chosen, and `loo_error_` and its kin computed, by leaving out a group at a time. Where
            that would cost too much (``plan_.left_out``), models are chosen by leaving out samples, and only
            `loo_error_` and its kin leave groups out, several at a time. Predictions without a group are at
            the class frequencies of all samples; intervals allow for errors that groups make together.

        Returns
        -------
        classifier
            Itself.
        """
        check_scalar(self.fdr, "fdr", Real, min_val=0.0, max_val=1.0)
        operator, targets = training_data(self, X, y)
        classes, code = self._encoded(targets)
        choices = self._choices(classes.size)
        group = None if groups is None else checked_groups(groups, targets)
        # Rows that stay elsewhere are not looked at for this, and groups are what a user wants left out.
        compared = None if stays_elsewhere(X) or group is not None else operator
        weights = sample_weights(targets, sample_weight, self.class_weight, classes, compared)
        weight = weights.counted
        kept = kept_positions(self, operator.shape[1])
        layout = self._layout(operator.shape[1], kept, classes.size)
        self.classes_ = classes
        self._warm = self._warm if self.warm_start else None  # of an earlier fit
        given = {"labels": targets, "sample weights": weight, "groups": group}
        resumable = nullcontext(operator) if self.checkpoint is None else checkpointed(self, operator, given)
        with bounded_threads(self.n_jobs), resumable as recorded:
            table = Table.of(recorded, code, weight, layout, classes.size, group)
            result = self._fit_table(table, choices, Recorder(self._watch()))
            self._publish(result, weights)
            # An interrupt is raised while the journal is open: it is kept, to resume from.
            if self.outcome_ is Outcome.INTERRUPTED:
                name = type(self).__name__
                raise KeyboardInterrupt(f"{name} was interrupted; it holds the state reached by then.")
        if not self.outcome_.trustworthy:
            self._warn()
        return self

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Of two classes, log-odds of ``classes_[1]``; of more, log probabilities less their mean.

        Of two classes and one model it is linear in X: the score that `coef_` and `intercept_` make.
        """
        operator = self._standardized(X)
        with one_blas_thread(), unless_finite():
            if self.classes_.size == 2 and len(self._average.parts) == 1:
                part = self._average.parts[0]
                found = part.scale * part.weights.scores(operator)[:, 0]
            else:
                log_proba = self._average.log_proba(operator)
                two = self.classes_.size == 2
                found = np.diff(log_proba)[:, 0] if two else log_proba - log_proba.mean(axis=1, keepdims=True)
        return all_finite(self, getattr(operator.operator, "X", None), found).astype(
            self.coef_.dtype, copy=False
        )

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Class probabilities, integrated over the posterior of the weights and averaged over models.

        If label noise is part of the model, these are probabilities of the label as it would be recorded.
        """
        return super().predict_proba(X)

    def get_support(self, fdr: float | None = None, *, indices: bool = False) -> NDArray[Any]:
        """The features selected at a false discovery rate; none by a fit that did not settle (`flags_`).

        Parameters
        ----------
        fdr : float, optional
            The expected share of false features among those selected; the constructor's if not given.
        indices : bool
            Positions instead of a mask.

        Returns
        -------
        array of shape (n_features,) or (n_selected,)
            Mask, or positions.
        """
        mask = self._selected(fdr)
        if not mask.any() and "fallback_features_" in vars(self):
            mask[self.fallback_features_] = True
        mask[self._always_kept] = True
        return np.flatnonzero(mask) if indices else mask

    def _selected(self, fdr: float | None = None) -> NDArray[np.bool_]:
        """Discoveries, without what is always kept or falls back on a panel."""
        check_is_fitted(self)
        if isinstance(fdr, bool | np.bool_):
            raise ValueError(f"fdr must be a rate from 0 to 1; got {fdr}. For positions write indices=True.")
        mask = np.zeros(self.inclusion_probability_.size, dtype=bool)
        # What is kept by decree is no discovery: it must not make room for false ones.
        free = np.setdiff1d(np.arange(mask.size), self._always_kept)
        if not any(flag.code in SELECT_NOTHING for flag in self.flags_):
            mask[free] = select(self.inclusion_probability_[free], self.fdr if fdr is None else fdr)
        return mask

    def feature_table(
        self,
        X: Any = None,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """What the fit found about every feature, as a data frame with one row each.

        Parameters
        ----------
        X, y, sample_weight, groups : optional
            The table that was fitted. With it come tests of single features where the fit has kept none
            (`SparseClassifier` does), and ``auc``, for which all values are needed.

        Returns
        -------
        pandas.DataFrame
            ``change``: between class means, in the units of X (a log fold change where X are logarithms; of
            several classes the largest); ``difference``: the same in standard deviations within classes;
            ``p``: of that, by the t test (F test of several classes); where samples come in groups or have
            weights, every group, or sample, is one piece of evidence [Bell and McCaffrey 2002]; ``q``: the
            false discovery rate at which the feature would be reported [Benjamini and Hochberg 1995];
            ``auc``: the probability that a value of the second class is the larger one (of several classes,
            that of the class which is told best from all others). These are of the feature by itself, and
            all but ``auc`` at equal values of the `always_keep` columns, which have none. ``inclusion``:
            the probability that it has an effect of its own beside all others; ``selected``: at the false
            discovery rate `fdr`; ``effect``, ``effect_lower``, ``effect_upper``: log-odds per standard
            deviation in the same model, with an interval of 95 %, of several classes for each;
            ``panel``: whether it is in the panel, where one was made.
        """
        check_is_fitted(self)
        return feature_table(self, X, y, sample_weight, groups, panel=vars(self).get("fallback_features_"))

    # ------------------------------------------------------------------ from data to the engine

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

    def _publish(self, result: Result, weights: SampleWeights) -> None:
        """Fitted attributes, in the units of X: weights of the average, inclusion of the sparse model."""
        sparse, portfolio = result.sparse, result.portfolio
        table, dtype = sparse.table, sparse.table.standardized.dtype
        average = self._average = portfolio.average
        self._center, self._scale = table.standardized.center, table.standardized.scale
        self._always_kept = table.kept
        coef = average.mean.T / self._scale
        self.coef_ = coef.astype(dtype)
        self.coef_std_ = (np.sqrt(average.var.T) / self._scale).astype(dtype)
        self.intercept_ = (average.intercept - coef @ self._center).astype(dtype)
        self.inclusion_probability_ = sparse.inclusion_probability().astype(dtype)
        self.prior_, self.channel_ = sparse.prior, sparse.channel
        self.generative_weight_ = sparse.generative_weight
        self.generative_path_ = [(c.weight, c.loo_log_loss) for c in sparse.candidates]
        self.outcome_, self.history_ = sparse.outcome, sparse.solution.history
        self.log_evidence_ = sparse.solution.posterior.log_evidence
        self.plan_, self.record_ = result.plan, result.record
        self.models_, self.flags_ = list(portfolio.models), list(result.flags)
        self.n_iter_ = result.record.n_iter

        left_out = portfolio.loo_log_proba
        self.p_value_ = _p_value(table, left_out, result.plan.null_test)
        self._publish_left_out(left_out, table.codes, weights, dtype, self.p_value_, table.left_out.group)
        for name in ("mislabel_probability_", "flip_rate_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        if portfolio.mislabel_probability is not None:
            self.flip_rate_ = portfolio.flip_rate
            self.mislabel_probability_ = weights.for_equals(portfolio.mislabel_probability).astype(dtype)

    def __getattr__(self, name: str) -> Any:
        """Attributes that this fit does not have, with the reason."""
        missing = f"{type(self).__name__!r} object has no attribute {name!r}"
        channel = vars(self).get("channel_")
        if name in ("mislabel_probability_", "flip_rate_") and channel is not None:
            if isinstance(channel, FlippedLabels):
                missing += ": no model with a share in predictions allows for wrong labels."
            else:
                missing += f": {channel!r} takes labels for right. Use a channel 'robust-...'."
        raise AttributeError(missing)

    @property
    def solver_(self) -> str:
        """The solvers behind the sparse model, in the order they ran: 'GAMP', 'EP', 'GAMP + EP'."""
        check_is_fitted(self)
        return " + ".join(dict.fromkeys(run.solver for run in self.record_.used("sparse")))

    def _account(self) -> tuple[Sentence, ...]:
        """What the fit did, in sentences."""
        return Account(
            self.plan_,
            self.record_,
            self.models_,
            self.prior_,
            self.channel_,
            self.generative_weight_ if self._can_blend else None,
            len(self.generative_path_),
            self.classes_.size,
        ).sentences()

    def _summary(self) -> Summary:
        plan, taken = self.plan_, self.generative_weight_
        alone = "" if plan.dense is None else " of the sparse model"
        return Summary(
            **basics(self),
            method=self._account(),
            columns=STANDARDISED,
            scale=self._scale,
            inclusion=np.asarray(self.inclusion_probability_, dtype=np.float64),
            select=self.get_support,
            fdr=self.fdr,
            kept=self._always_kept,
            class_sums=vars(self).get("_class_sums"),
            loo=self._left_out(left_out_words(plan), plan.left_out, plan.null_test),
            # Only of models that allow for wrong labels.
            mislabel_probability=vars(self).get("mislabel_probability_"),
            history=self.history_,
            tolerance=max(float(self.tol), planned_tolerance(plan, self.record_)),
            flags=tuple(self.flags_),
            plan=plan,
            record=self.record_,
            models=tuple(self.models_),
            generative_path=tuple((weight, loss, weight == taken) for weight, loss in self.generative_path_),
            parts=(
                (f"prior{alone}", component_name(self.prior_)),
                (f"likelihood{alone}", component_name(self.channel_)),
            ),
            parameters=parameters(self.prior_, self.channel_, self.record_.learnt),
            measures=(("log evidence", f"{self.log_evidence_:.4g}"),)
            if np.isfinite(self.log_evidence_)
            else (),
        )

    def _standardized(self, X: Any) -> Standardized:
        """New samples in the units of the fit."""
        check_is_fitted(self)
        return Standardized(new_data(self, X), self._center, self._scale)

    def _log_proba(self, X: Any) -> Array:
        """(samples, classes)"""
        operator = self._standardized(X)
        with one_blas_thread(), unless_finite():
            return all_finite(self, getattr(operator.operator, "X", None), self._average.log_proba(operator))


def _p_value(table: Table, loo_log_proba: Array, null_test: str) -> float:
    """Of the test that labels have to do with the features."""
    if null_test == "losses":
        return p_value_of_losses(table.log_density(loo_log_proba), table.codes, table.sample_weight)
    x = table.standardized
    # Permutations are no part of the fit, and of no use in its journal.
    rows = x.operator.operator if isinstance(x.operator, Journaled) else x.operator
    columns = Standardized(rows, x.center, x.scale, x.constant)
    return p_value_of(columns, table.codes, table.sample_weight > 0, table.left_out.group)


def kept_positions(estimator: Any, n_features: int) -> tuple[int, ...]:
    """Positions of the columns named, or numbered, in the estimator's `always_keep`."""
    always_keep = estimator.always_keep
    if always_keep is None:
        return ()
    if isinstance(always_keep, str):
        raise ValueError(
            f"always_keep must be a list of columns; got the string {always_keep!r}. "
            f"Write always_keep=[{always_keep!r}]."
        )
    chosen = np.asarray(always_keep)
    if chosen.dtype == bool:
        if chosen.shape != (n_features,):
            raise ValueError(
                f"always_keep as a mask needs one value for each of the {n_features} columns; "
                f"got shape {chosen.shape}."
            )
        return tuple(np.flatnonzero(chosen).tolist())
    names, positions = list(getattr(estimator, "feature_names_in_", [])), []
    for column in always_keep:
        if isinstance(column, str) and column in names:
            positions.append(names.index(column))
        elif isinstance(column, str):
            have = f"The columns are {names[:10]}{'...' if len(names) > 10 else ''}."
            have = have if names else "X has no column names: pass a data frame, or give positions."
            raise ValueError(f"always_keep names {column!r}, which is not a column of X. {have}")
        elif isinstance(column, Integral) and -n_features <= int(column) < n_features:
            positions.append(int(column) % n_features)
        else:
            raise ValueError(
                f"always_keep contains {column!r}; it needs column names, or positions from 0 to "
                f"{n_features - 1}."
            )
    return tuple(sorted(set(positions)))


def checked_stopping(tol: float, max_iter: int) -> Stopping:
    """The stopping rule of an estimator's `tol` and `max_iter`."""
    check_scalar(tol, "tol", Real, min_val=0.0)
    check_scalar(max_iter, "max_iter", Integral, min_val=1)
    return Stopping(tol=float(tol), max_iter=int(max_iter))


def checked_generative_weight(weight: float | str, channel: Channel) -> float | None:
    """None for 'auto', else a number that the channel allows."""
    if isinstance(weight, bool) or (isinstance(weight, str) and weight != "auto"):
        raise ValueError(f"generative_weight must be 'auto' or a number from 0 to 1; got {weight!r}.")
    if isinstance(weight, str):
        return None
    check_scalar(weight, "generative_weight", Real, min_val=0.0, max_val=1.0)
    if weight > 0 and not can_blend(channel):
        raise ValueError(
            f"generative_weight={weight} needs a logistic channel with the accurate integral; got "
            f"{channel!r}. Use channel='logistic' or 'robust-logistic', or generative_weight=0."
        )
    return float(weight)


def planned_tolerance(plan: Plan, record: Record) -> float:
    """The least tolerance that the plan had for the start, or the fallback, that the answer goes back to."""
    used = record.used("sparse")
    sparse = plan.sparse
    if sparse.fallback is not None and any(run.purpose == "fallback" for run in used):
        sparse = sparse.fallback
    plain = any(run.detail == PLAIN for run in used)
    return sparse.tolerance if plain else sparse.blend_tolerance
