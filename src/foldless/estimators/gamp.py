"""GAMPClassifier: message passing with every choice open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from foldless.channels import (
    Blended,
    BlendedMultinomial,
    Channel,
    FlippedLabels,
    Hinge,
    Logistic,
    Multinomial,
    Pinned,
    channel_from,
)
from foldless.channels.base import innermost
from foldless.estimators._base import MessagePassingClassifier, checked_generative_weight, checked_stopping
from foldless.estimators._resuming import warmly
from foldless.operators.dense import in_memory
from foldless.priors import (
    NO_HYPER_PRIOR,
    Blocks,
    HyperPrior,
    Laplace,
    Observed,
    Prior,
    Ridged,
    RowSparse,
    SpikeAndSlab,
    prior_from,
)
from foldless.registry import registered
from foldless.solvers import EP, GAMP, VAMP, HyGAMP
from foldless.solvers.base import Solver
from foldless.solvers.gamp import Rule, Variances
from foldless.solvers.message_passing import Damping, damping_from
from foldless.tuning.fit import Choices
from foldless.tuning.path import Result, fit_table
from foldless.tuning.plan import CLASS_MEANS_PRIOR, requested
from foldless.tuning.record import Recorder
from foldless.tuning.table import Layout, Table

SOLVERS = ("gamp", "ep", "vamp", "hygamp")
TUNINGS = ("em", "sure")
MADE_BY_THE_ESTIMATOR = (Blended, BlendedMultinomial, Pinned)


@registered("estimator/gamp")
@dataclass(eq=False, repr=False)
class GAMPClassifier(MessagePassingClassifier):
    """Classification by approximate message passing, two classes or more.

    Every choice can be made by name or by object; all parameters of priors and channels are tuned by EM
    unless told otherwise. `SparseClassifier` makes the choices for you.

    Parameters
    ----------
    prior : str or Prior, default='auto'
        'auto' (spike-and-slab of two classes, row-sparse of more), 'spike-and-slab', 'row-sparse',
        'gaussian', 'laplace', 'elastic-net', 'gaussian-mixture', 'class-means' (a spike and slab of two
        classes whose slabs have means from the class means; without a blend), or an object such as
        ``SpikeAndSlab(Laplace(2.0), 0.05)``. By name, parameters start at values taken from the data.
    channel : str or Channel, default='logistic'
        'logistic', 'probit', 'hinge', 'step', each also as 'robust-...' for labels of which some are wrong
        (but 'step', which has its own noise), or an object such as ``FlippedLabels(Probit(), 0.05)``. Of more
        than two classes 'logistic' is the softmax, and so is 'robust-logistic' but for wrong labels;
        ``Multinomial(4, estimator="taylor")`` has the thesis's approximations.
    solver : {'gamp', 'ep', 'vamp', 'hygamp'} or Solver, default='gamp'
        Diagonal covariances of weights (GAMP; of more classes SHyGAMP); exact ones (EP); one variance for all
        and one eigendecomposition (VAMP, two classes); full covariances between the scores of a sample
        (HyGAMP, more than two classes).
    rule : {'sum-product', 'max-sum'}, default='sum-product'
        Posterior means and probabilities, or the regularised maximum: max-sum with a Laplace prior and a
        logistic channel is L1 logistic regression.
    generative_weight : 'auto' or float in [0, 1], default='auto'
        How far the likelihood also models the features given the class: 0 is purely discriminative, 1
        trusts the class means fully. 'auto' takes the best leave-one-out log loss. Logistic channels only.
    tune : bool or list of str, default=True
        Which parameters EM learns: True for all, False for none, or names such as
        ``['prior__inclusion', 'channel__flip_prob']``. The scale of a channel is fixed unless named,
        because it and the scale of the prior are one parameter.
    tuning : {'em', 'sure'}, default='em'
        EM learns all parameters but the rate of a Laplace prior under max-sum, which is learnt by Stein's
        unbiased risk estimate (not with a hinge); 'sure' learns that rate and nothing else.
    hyper_prior : "weak", HyperPrior or None, default="weak"
        Weak beliefs that keep EM from the dense and the empty extreme on small data; None for plain EM.
    variances : {'rank-one', 'uniform', 'per-coordinate'}, default='rank-one'
        How variances are passed on; see `foldless.solvers.GAMP`.
    damping : 'adaptive' or float in (0, 1], default='adaptive'
        A constant step, or one that adapts; smaller is safer and slower.
    mean_removal : bool, default=False
        Take a common factor of all columns out of the message passing.
    always_keep : list of column names or positions, optional
        Covariates that stay in the model, with a wide prior and no spike.
    fit_intercept : bool, default=True
        Columns are centred in either case, so that `intercept_` in the units of X is not zero without one.
    max_iter : int, default=1000
        Of each run; comparing generative weights takes several short ones, all counted in `n_iter_`. With a
        million features and more, of iterations that visit all of them; `n_iter_` counts the others, too.
    warm_start, n_jobs, checkpoint
        As of `SparseClassifier`.

    Attributes
    ----------
    coef_, intercept_ : arrays of shape (1, n_features) and (1,)
        Posterior means (maxima under max-sum) in the units of X, in log-odds for logistic channels.
    coef_std_ : array of shape (1, n_features)
        Posterior standard deviations.
    inclusion_probability_ : array of shape (n_features,)
        Posterior probability that a feature's weight is not zero.
    loo_proba_, loo_error_, loo_log_loss_
        Class probabilities of each training sample from all others, their error and mean log loss. A sample
        is left out with all of its weight; equal rows of one label are one sample.
    mislabel_probability_ : array of shape (n_samples,)
        For robust channels: the probability of each training label being wrong.
    flip_rate_ : float
        Likewise, the share of labels that are wrong.

    See Also
    --------
    SparseClassifier : Makes the choices, and averages over several models where columns are correlated.
    SMLRClassifier : The exact optimum of L1 and other penalties.

    Examples
    --------
    >>> from foldless import GAMPClassifier
    >>> from foldless.datasets import make_class_means
    >>> data = make_class_means(n_samples=100, n_features=2000, n_active=5, random_state=0)
    >>> model = GAMPClassifier().fit(data.X, data.y)
    >>> sorted(model.get_support(fdr=0.1, indices=True)) == sorted(data.active)
    True
    """

    prior: str | Prior = "auto"
    channel: str | Channel = "logistic"
    _: KW_ONLY
    solver: str | Solver[Any] = "gamp"
    rule: Rule = "sum-product"
    generative_weight: float | str = "auto"
    tune: bool | Sequence[str] = True
    tuning: str = "em"
    hyper_prior: HyperPrior | str | None = "weak"
    variances: Variances = "rank-one"
    damping: float | str | Damping = "adaptive"
    mean_removal: bool = False
    always_keep: Sequence[str] | Sequence[int] | None = None
    fit_intercept: bool = True
    warm_start: bool = False
    n_jobs: int | None = None
    checkpoint: str | Path | None = None

    def _choices(self, n_classes: int) -> Choices:
        channel = self._channel(n_classes)
        prior = self._prior(n_classes)
        solver = self._solver(n_classes)
        self._check_one_of("tuning", TUNINGS)
        weight = checked_generative_weight(self.generative_weight, channel)
        if not isinstance(solver, GAMP):
            if weight:
                raise ValueError(
                    f"generative_weight={weight:g} is a blend that only GAMP can solve; solver is "
                    f"{self.solver!r}. Leave it 'auto' or 0, or use solver='gamp'."
                )
            weight = 0.0
        if self.prior == CLASS_MEANS_PRIOR:
            by_gamp = isinstance(solver, GAMP) and not (solver.max_sum or self.mean_removal)
            if weight or not by_gamp or channel.scale_free:
                raise ValueError(
                    "prior='class-means' has seen the class means, and is for sum-product by GAMP with a "
                    "channel whose scores have a scale. Use solver='gamp', generative_weight=0, "
                    "mean_removal=False and any channel but 'step', or another prior."
                )
            weight = 0.0
        if self.tuning == "sure":
            laplace = self.prior == "laplace" or isinstance(self.prior, Laplace)
            # A solver given as an object has its own rule.
            if not (laplace and solver.max_sum):
                raise ValueError(
                    "tuning='sure' chooses the rate of a Laplace prior under max-sum. Use prior='laplace' "
                    "and rule='max-sum', or tuning='em', which learns every prior."
                )
            if isinstance(innermost(channel), Hinge):
                raise ValueError(
                    "tuning='sure' needs a channel without kinks. Use tuning='em', or 'logistic'."
                )
            if weight:
                raise ValueError("tuning='sure' has no blend with class means. Use generative_weight=0.")
        return Choices(
            prior=prior,
            channel=channel,
            solver=solver,
            stopping=checked_stopping(self.tol, self.max_iter),
            tune=_names_to_tune(self.tune),
            tuning=self.tuning,
            generative_weight=weight,
            hyper=_hyper_prior_from(self.hyper_prior),
        )

    def _channel(self, n_classes: int) -> Channel:
        channel = _plain_channel(channel_from(self.channel))
        if n_classes == 2 and not channel.score_shape:
            return channel
        inner = channel.base if isinstance(channel, FlippedLabels) else channel
        if n_classes > 2 and inner == Logistic():
            inner = Multinomial(n_classes)
        if isinstance(inner, Multinomial) and inner.n_classes == n_classes > 2:
            return replace(channel, base=inner) if isinstance(channel, FlippedLabels) else inner
        raise ValueError(
            f"y has {n_classes} classes, for which {channel!r} is no likelihood. Two classes take "
            "'logistic', 'probit', 'hinge', 'step' and 'robust-...'; more take 'logistic', which is then the "
            f"softmax, 'robust-logistic', or an object: Multinomial({max(n_classes, 3)}, estimator='taylor')."
        )

    def _prior(self, n_classes: int) -> str | Prior:
        if isinstance(self.prior, str) and self.prior == "auto":
            return "spike-and-slab" if n_classes == 2 else "row-sparse"
        if isinstance(self.prior, str) and self.prior == CLASS_MEANS_PRIOR:
            if n_classes > 2:
                raise ValueError("prior='class-means' is for two classes. Use 'row-sparse'.")
            return self.prior
        prior = _plain_prior(prior_from(self.prior))  # an unknown name is an error before any work
        if n_classes > 2 or not isinstance(prior, RowSparse):
            return self.prior
        # A row of weights for one score is one weight.
        return "spike-and-slab" if isinstance(self.prior, str) else SpikeAndSlab(prior.slab, prior.inclusion)

    def _solver(self, n_classes: int) -> Solver[Any]:
        if n_classes == 2 and (self.solver == "hygamp" or isinstance(self.solver, HyGAMP)):
            raise ValueError(
                "solver='hygamp' has full covariances of the scores of a sample, and two classes have "
                "one score. Use solver='gamp'."
            )
        if n_classes > 2 and (self.solver == "vamp" or isinstance(self.solver, VAMP)):
            raise ValueError("solver='vamp' is for two classes. Use 'gamp', 'ep' or 'hygamp'.")
        if isinstance(self.solver, Solver):
            if (self.rule, self.variances, self.damping) != ("sum-product", "rank-one", "adaptive"):
                raise ValueError(
                    "rule, variances and damping are for solvers by name. Set them in the object: "
                    f"solver={self.solver!r}."
                )
            return self.solver
        damping = damping_from(self.damping)
        if self.solver == "gamp":
            return GAMP(self.rule, self.variances, damping)
        if self.solver == "hygamp":
            return HyGAMP(self.rule, self.variances, damping)
        if self.solver not in SOLVERS:
            raise ValueError(f"solver must be one of {SOLVERS}, or a solver; got {self.solver!r}.")
        if self.rule != "sum-product":
            raise ValueError(
                f"solver={self.solver!r} has rule='sum-product' only; got {self.rule!r}. Use solver='gamp'."
            )
        return EP() if self.solver == "ep" else VAMP(damping)

    def _layout(self, n_features: int, always_keep: tuple[int, ...], n_classes: int) -> Layout:
        many = n_classes > 2
        if many and not self.fit_intercept:
            raise ValueError("fit_intercept=False is for two classes; more have an intercept for each.")
        if self.mean_removal and (many or not isinstance(self._solver(n_classes), GAMP)):
            raise ValueError("mean_removal=True is for solver='gamp' and two classes.")
        return Layout(n_features, always_keep, bool(self.fit_intercept), bool(self.mean_removal))

    def _fit_table(self, table: Table, choices: Choices, recorder: Recorder) -> Result:
        if table.left_out.group is not None and not isinstance(choices.solver, EP):
            raise ValueError(
                "groups can be left out from exact covariances only. Use solver='ep', or SparseClassifier."
            )
        plan = requested(
            choices.prior if isinstance(choices.prior, str) else type(choices.prior).__name__,
            choices.solver.name(),
            (int(np.count_nonzero(table.sample_weight)), table.shape[1]),
            searched=choices.searched,
            n_classes=table.n_classes,
            tuning=choices.learnt_by,
            groups=table.left_out.group is not None,
            in_memory=in_memory(table.standardized),
            budget=self._budget,
        )
        fit = partial(fit_table, table, plan, choices, recorder)
        return warmly(self, table, recorder, fit) if self.warm_start else fit()


def _plain_channel(channel: Channel) -> Channel:
    """A channel that is not blended yet: its ridge would be missing."""
    inner = channel
    while not isinstance(inner, MADE_BY_THE_ESTIMATOR) and hasattr(inner, "base"):
        inner = inner.base
    if isinstance(inner, MADE_BY_THE_ESTIMATOR):
        raise ValueError(
            f"{type(inner).__name__} is made by the estimator itself, together with what belongs to it. "
            "Pass a Logistic channel and generative_weight=..., or mean_removal=True, instead."
        )
    return channel


def _plain_prior(prior: Prior) -> Prior:
    if isinstance(prior, Observed | Ridged | Blocks):
        raise ValueError(
            f"{type(prior).__name__} is made by the estimator itself. Pass the prior of single weights, and "
            "name columns that are to have a wide one in always_keep."
        )
    return prior


def _names_to_tune(tune: bool | Sequence[str]) -> frozenset[str] | None:
    if isinstance(tune, str):
        raise ValueError(f"tune must be True, False or a list of names; got {tune!r}. Write tune=[{tune!r}].")
    if isinstance(tune, bool | np.bool_):
        return None if tune else frozenset()
    return frozenset(tune)


def _hyper_prior_from(choice: HyperPrior | str | None) -> HyperPrior:
    if choice is None:
        return NO_HYPER_PRIOR
    if isinstance(choice, HyperPrior):
        return choice
    if choice == "weak":
        return HyperPrior()
    raise ValueError(f"hyper_prior must be 'weak', None or a HyperPrior; got {choice!r}.")
