"""SparseClassifier: the default, with no choice needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from foldless.beliefs import Array
from foldless.channels import FlippedLabels, Logistic, Multinomial
from foldless.estimators._base import (
    MessagePassingClassifier,
    checked_generative_weight,
    checked_stopping,
    kept_positions,
)
from foldless.estimators._resuming import warmly
from foldless.estimators._scikit_learn import SampleWeights, sample_weights, training_data
from foldless.estimators._summary import Summary
from foldless.evaluation import mixture_moments
from foldless.kernels import one_blas_thread
from foldless.priors import OverBackground, SupportsInclusion
from foldless.priors.wrappers import background_of
from foldless.problem import Outcome
from foldless.registry import registered
from foldless.selection import Group
from foldless.selection.clusters import Candidates, conditional_inclusion, joint_candidates, refined_inclusion
from foldless.selection.groups import COVERAGE, PURITY, JointPosterior, single_features
from foldless.selection.marginal import ClassSums, class_sums
from foldless.solvers import GAMP
from foldless.solvers.ep import EPState, unknown_over_background
from foldless.tuning.fit import Choices, Fit
from foldless.tuning.path import Result, fit_table, with_groups_left_out
from foldless.tuning.plan import CHANCE, plan
from foldless.tuning.planned import SETS_OF_GROUPS, Plan
from foldless.tuning.portfolio import Weights, as_columns, weights_of
from foldless.tuning.record import FLAGS, Flag, Recorder
from foldless.tuning.table import Facts, Layout, LeftOut, Table, survey

FELL_BACK_ON_PANEL = Flag(
    "fell-back-on-panel",
    "No feature stands out at the false discovery rate asked for. In its place stands a panel of a few that "
    "predict nearly as well as all, each of which others may replace.",
)
NOTHING_TO_FALL_BACK_ON = Flag(
    "no-panel",
    "No feature stands out, and no panel of a few can be told from chance. The one that would come first "
    "stands in their place, so that a pipeline goes on.",
)
# Where the plan has none of its own.
SOLVER = GAMP()


@registered("estimator/sparse")
@dataclass(eq=False, repr=False)
class SparseClassifier(MessagePassingClassifier):
    """Find the few features that decide a class, and classify with them.

    One fit without folds gives a tuned classifier, an inclusion probability and an interval for every
    feature, a selection at a stated false discovery rate, class probabilities, the leave-one-out error, and,
    of two classes, for every training sample the probability that its label is wrong. The same data give the
    same answer every time, in any units and any order.

    The model: a logistic likelihood in which a small share of labels may be wrong, and a spike-and-slab prior
    whose sparsity and scale are learnt. One look at the data makes a plan (`plan` shows it without a fit).
    Where columns are independent within classes, the model is solved by message passing, blended with class
    means as far as that predicts left-out samples better; `GAMPClassifier` opens every choice of this. Where
    columns are correlated, as genes and voxels are, it is solved with exact covariances, and class
    probabilities are averaged over this model and dense ones, each weighted by how well it predicts left-out
    samples.

    More than two classes are fitted jointly: a score for each, the softmax of the scores, and row-sparse
    weights, so that a feature matters for all classes or for none and has one inclusion probability.

    Parameters
    ----------
    always_keep : list of column names or positions, optional
        Covariates such as age or batch that stay in the model whatever the data say.
    generative_weight : 'auto' or float in [0, 1], default='auto'
        How far the likelihood also models features given the class; see `GAMPClassifier`. A number above 0
        is an error where the plan has exact covariances, which have no such blend.
    fallback : None or 'panel', default=None
        What `get_support` and `transform` have where no feature is selected at a false discovery rate. By
        default nothing, and `transform` warns. With 'panel' a `PanelClassifier` looks for the few
        features that would do, at about twice the cost of the fit, and these are taken
        (`fallback_features_`); where there is no panel either, the feature that would come first, so that a
        pipeline goes on. `flags_` tells. Neither is a discovery.
    warm_start : bool, default=False
        Go on from where the last fit ended, if it settled in less than `max_iter` iterations, and data and
        parameters are the same. The answer does not depend on it.
    n_jobs : int, optional
        How many threads a fit may use; -1 for all cores. By default one, but for compiled loops over sparse
        data (the extra ``fast``), which use what numba is set to. On an idle machine two make dense fits up
        to a third faster; on a busy one more than one may make them much slower.
    checkpoint : path, optional
        Where a fit writes down what every pass over the data returned. A fit that was killed is resumed by
        calling `fit` again with the same data: it arrives at the same bits, without the passes that it had
        done. The file is removed when the fit is complete.

    Attributes
    ----------
    coef_, intercept_, coef_std_ : arrays of shape (1, n_features), (1,) and (1, n_features)
        Weights of the model that predicts, in the units of X, on the scale of log-odds: the plain logistic
        of ``X @ coef_.T + intercept_`` is as near to `predict_proba` as a scale can make it.
    sparse_coef_, sparse_coef_std_ : arrays of shape (1, n_features)
        Posterior means and standard deviations of the weights of the sparse model, the one that
        `inclusion_probability_` is of: mean ± 1.645 standard deviations is an interval of 90 %. They are
        log-odds on average over other features, where a dense background stands for these, too.
    flip_rate_, mislabel_probability_ : float and array of shape (n_samples,)
        The share of labels that are wrong, and the probability of each. Where models are averaged, by the
        one of them that predicts left-out labels best beside a share of wrong ones; of two classes,
        ``channel_.flip_prob`` is what the sparse model alone assumes. Models of more classes take labels
        for right unless columns are independent and far fewer than samples: elsewhere predictions suffer.
    groups_ : tuple of Group
        Disjoint groups of features, at least one of which has an effect of its own, with a stated
        ``probability``: "one of these 14 features, probability 0.96". A group has ``features`` (positions,
        the ``leader`` first), the ``inclusion`` probability of each, and ``purity``, the smallest
        correlation between two of them. At most the share `fdr` is expected to be false; `get_groups` has
        those at another rate. They are found when they are first asked for, from what the fit has kept.
    credible_sets_ : list of Group
        Groups with a probability of at least 0.95 whose members are correlated by at least 0.5.
    fallback_features_ : array
        Positions of the panel that was fallen back on, if one was.
    inclusion_probability_ : array of shape (n_features,)
        Posterior probability that a feature has an effect of its own beside all others.
    loo_proba_, loo_error_, loo_log_loss_ : array of shape (n_samples, n_classes), float, float
        Class probabilities of each training sample from all others (from other groups, where `groups` are
        given), their error and mean log loss. Equal rows of one label are one sample.
    prior_, channel_ : Prior, Channel
        Of the sparse model, as tuned.

    See Also
    --------
    PanelClassifier : The few features that would do, and a model of these alone.
    GAMPClassifier : The same message passing with every choice open.

    Notes
    -----
    Of D > 2 classes, `coef_`, `sparse_coef_` and their deviations are (D, n_features), `intercept_` is (D,)
    and `loo_proba_` (n_samples, D).

    Examples
    --------
    >>> from foldless import SparseClassifier
    >>> from foldless.datasets import make_class_means
    >>> data = make_class_means(n_samples=100, n_features=2000, n_active=5, random_state=0)
    >>> model = SparseClassifier().fit(data.X, data.y)
    >>> sorted(model.get_support(fdr=0.1, indices=True)) == sorted(data.active)
    True
    """

    _: KW_ONLY
    always_keep: Sequence[str] | Sequence[int] | None = None
    generative_weight: float | str = "auto"
    fallback: str | None = None
    warm_start: bool = False
    n_jobs: int | None = None
    checkpoint: str | Path | None = None

    # What groups are found with; large, and not needed for them afterwards.
    _not_saved = frozenset({"_joint"})
    _empty_advice = "Pass fallback='panel', which takes a few that would do, or a larger fdr."

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        if self.fallback not in (None, "panel"):
            raise ValueError(f"fallback must be None or 'panel'; got {self.fallback!r}.")
        self.__dict__.pop("fallback_features_", None)  # of an earlier fit
        super().fit(X, y, sample_weight, groups)
        if self.fallback == "panel" and not self._selected().any():
            self._fall_back(X, y, sample_weight, groups)
        return self

    def _fall_back(self, X: Any, y: ArrayLike, sample_weight: Any, groups: Any) -> None:
        from foldless.estimators.panel import PanelClassifier

        panel = PanelClassifier(
            reference=self, always_keep=self.always_keep, class_weight=self.class_weight
        ).fit(X, y, sample_weight, groups)
        members = np.setdiff1d(panel.features_, self._always_kept)
        self.fallback_features_ = members if members.size else panel.order_[:1]
        self.flags_.append(FELL_BACK_ON_PANEL if members.size else NOTHING_TO_FALL_BACK_ON)

    def _choices(self, n_classes: int) -> Choices:
        channel = FlippedLabels(Logistic()) if n_classes == 2 else Multinomial(n_classes)
        return Choices(
            prior="spike-and-slab" if n_classes == 2 else "row-sparse",
            channel=channel,
            solver=SOLVER,
            stopping=checked_stopping(self.tol, self.max_iter),
            generative_weight=checked_generative_weight(self.generative_weight, channel),
        )

    def plan(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Plan:
        """What `fit` would do with these data, and why: `Plan.reasons`. Nothing is fitted.

        Parameters
        ----------
        X, y, sample_weight, groups
            As of `fit`.

        Returns
        -------
        Plan
            Its ``path`` and ``reasons`` are sentences.
        """
        reader = clone(self)  # reading leaves attributes behind
        operator, targets = training_data(reader, X, y)
        classes, code = reader._encoded(targets)
        weight, *_ = sample_weights(targets, sample_weight, self.class_weight, classes)
        layout = Layout(operator.shape[1], kept_positions(reader, operator.shape[1]))
        facts = survey(Table.of(operator, code, weight, layout, classes.size))
        return self._planned(facts, reader._choices(classes.size), groups is not None)

    def _planned(self, facts: Facts, choices: Choices, groups: bool) -> Plan:
        return plan(facts, self._budget, groups=groups, generative_weight=choices.generative_weight)

    def _fit_table(self, table: Table, choices: Choices, recorder: Recorder) -> Result:
        group, kept, counted = table.left_out.group, table.layout.always_kept, table.sample_weight
        if kept or group is not None or np.any((counted != 0.0) & (counted != 1.0)):
            columns = table.standardized
            self._class_sums = class_sums(columns, table.codes, counted, table.n_classes, kept, group)
        else:
            self._class_sums = ClassSums(table.class_means, table.class_weight)
        planned = self._planned(survey(table), choices, group is not None)
        in_sets = planned.left_out == SETS_OF_GROUPS
        if in_sets:
            table = replace(table, left_out=LeftOut(table.left_out.weight))
        fit = partial(fit_table, table, planned, choices, recorder)
        result = warmly(self, table, recorder, fit) if self.warm_start else fit()
        if not in_sets or group is None or result.sparse.outcome is Outcome.INTERRUPTED:
            return result
        return with_groups_left_out(result, group, choices)

    def _summary(self) -> Summary:
        return replace(super()._summary(), groups=getattr(self, "groups_", None))

    def _publish(self, result: Result, weights: SampleWeights) -> None:
        super()._publish(result, weights)
        if self.p_value_ > CHANCE:
            self.flags_.append(FLAGS["may-be-chance"])
        for name in ("_joint", "groups_", "credible_sets_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        self._joint: Candidates | JointPosterior | None = self._joint_posterior(result)
        fit, dtype = result.sparse, self.coef_.dtype
        own = weights_of(fit.selecting, fit.table)
        if isinstance(fit.prior, OverBackground):
            own = on_average_over_background(fit, own, self.inclusion_probability_)
            if fit.more_flips is not None:
                # Weights are those at plain parameters; how far others may be is counted from there.
                other, share = fit.more_flips
                more = on_average_over_background(other, own, self.inclusion_probability_)
                var = (1.0 - share) * own.var + share * (more.var + (more.mean - own.mean) ** 2)
                own = replace(own, var=var)
        self.sparse_coef_ = (own.mean.T / self._scale).astype(dtype)
        self.sparse_coef_std_ = (np.sqrt(own.var.T) / self._scale).astype(dtype)

    def _joint_posterior(self, result: Result) -> Candidates | None:
        """What groups are found from, where there is a joint posterior; it also corrects what twins have."""
        solution, table = result.sparse.solution, result.sparse.table
        posterior, prior, sparse = solution.posterior, solution.problem.prior, result.plan.sparse
        if sparse.conditional and result.sparse.generative_weight and solution.outcome.trustworthy:
            own = replace(result.sparse, inclusion=None).inclusion_probability()
            change = result.sparse.share * (conditional_inclusion(solution, own) - own)
            refined = np.clip(self.inclusion_probability_ + change, 0.0, 1.0)
            self.inclusion_probability_ = refined.astype(table.standardized.dtype)
            return None
        if not (sparse.groups and solution.outcome.trustworthy and isinstance(solution.state, EPState)):
            return None
        assert isinstance(prior, SupportsInclusion)
        inclusion = prior.inclusion_probability(posterior.cavity_mean, posterior.cavity_var)
        sites, tiles = solution.state.all_sites, solution.state.all_tiles(solution.problem)
        if inclusion.ndim == 1:
            inclusion, _ = refined_inclusion(solution.problem, sites, inclusion, tiles)
            refined = np.where(table.free, inclusion[: table.free.size], self.inclusion_probability_)
            self.inclusion_probability_ = refined.astype(table.standardized.dtype)
        else:
            inclusion = inclusion[:, 0]  # of a row
        return joint_candidates(solution.problem, sites, inclusion, tiles)

    def get_groups(self, fdr: float | None = None) -> tuple[Group, ...]:
        """Groups of features at least one of which has an effect of its own: "one of these 14, .96".

        Single features are those of `get_support`. Of all others, the smallest groups that can be told from
        nothing are found, each with a probability of at least 1 - fdr; no feature is in two. So the expected
        share of false ones is at most `fdr`. Only single features are reported where the fit has no exact
        covariances, or where `p_value_` does not show that features have anything to do with the classes.

        Parameters
        ----------
        fdr : float, optional
            The expected share of groups without an effect; the constructor's if not given.

        Returns
        -------
        tuple of Group
            Single features first.
        """
        check_is_fitted(self)
        rate = self.fdr if fdr is None else check_scalar(fdr, "fdr", Real, min_val=0.0, max_val=1.0)
        if "_joint" not in vars(self):
            if rate == self.fdr and "groups_" in vars(self):
                return self.groups_
            raise ValueError(
                f"This model was loaded, and files have the groups at fdr={self.fdr:g} (`groups_`), if any. "
                "For those at another rate, fit it again."
            )
        selected = np.flatnonzero(self._selected(rate))
        singles = single_features(self.inclusion_probability_, selected)
        if self._joint is None or self.p_value_ > CHANCE:
            return tuple(singles)
        if not isinstance(self._joint, JointPosterior):
            self._joint = JointPosterior.of(self._joint)  # which keeps its draws
        with one_blas_thread():
            return (*singles, *self._joint.groups(1.0 - rate, singles))

    @cached_property
    def groups_(self) -> tuple[Group, ...]:
        return self.get_groups()

    @cached_property
    def credible_sets_(self) -> list[Group]:
        found = self.get_groups(1.0 - COVERAGE)
        return [each for each in found if each.probability >= COVERAGE and each.purity >= PURITY]

    def save(self, path: str | Path) -> Path:
        if "_joint" in vars(self):
            _ = self.groups_, self.credible_sets_  # which are found when they are first asked for
        return super().save(path)


def on_average_over_background(fit: Fit, own: Weights, inclusion: Array) -> Weights:
    """Weights of a fit over a background, as log-odds on average over what is not known of that.

    Beside scores of variance V that are not known, log-odds of a label move by about 1 / √(1 + π V / 8) of
    what they do where these are: it is how far averaging a logistic function flattens it. V is what the
    background leaves of a left-out score, which is less than it has a priori as far as samples go together.
    The slab, too, is meant as log-odds of that kind, about which the cavities of the fit have the likelihood.
    """
    solution, base = fit.solution, fit.prior.base  # type: ignore[attr-defined]
    problem, posterior = solution.problem, solution.posterior
    background = background_of(problem.prior, problem.operator.shape[1])
    unknown = unknown_over_background(problem, solution.state)
    flatter = problem.label_weight @ (1.0 + np.pi / 8.0 * unknown) ** -0.5 / problem.label_weight.sum()
    n, (r, v) = fit.table.free.size, map(as_columns, (posterior.cavity_mean, posterior.cavity_var))
    of_background = background[:n, np.newaxis]
    shares = [var / (var + v[:n]) for var in (of_background + base.slab.variance / flatter**2, of_background)]
    mean, var = mixture_moments(
        np.array([inclusion, 1.0 - inclusion])[..., np.newaxis],
        np.array([share * r[:n] for share in shares]),
        np.array([share * v[:n] for share in shares]),
    )
    free = fit.table.free[:, np.newaxis]
    return replace(
        own, mean=flatter * np.where(free, mean, own.mean), var=flatter**2 * np.where(free, var, own.var)
    )
