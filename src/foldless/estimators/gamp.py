"""GAMPClassifier: message passing with every choice open."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_scalar

from foldless.channels import Blended, Channel, Pinned, channel_from
from foldless.estimators._base import MessagePassingClassifier
from foldless.priors import NO_HYPER_PRIOR, Blocks, HyperPrior, Prior, Ridged, prior_from
from foldless.registry import registered
from foldless.solvers import GAMP, Stopping
from foldless.solvers.damping import Damping, damping_from
from foldless.solvers.gamp import Rule, Variances
from foldless.tuning.fit import Choices, Columns
from foldless.tuning.generative import can_blend


@registered("estimator/gamp")
class GAMPClassifier(MessagePassingClassifier):
    """Binary classification by generalised approximate message passing.

    Every choice can be made by name or by object; all parameters of priors and channels are tuned by EM
    unless told otherwise. `SparseClassifier` makes the choices for you.

    Parameters
    ----------
    prior : str or Prior, default='spike-and-slab'
        'spike-and-slab', 'gaussian', 'laplace', 'elastic-net', 'gaussian-mixture', or an object such as
        ``SpikeAndSlab(Laplace(2.0), 0.05)``. By name, parameters start at values taken from the data.
    channel : str or Channel, default='logistic'
        'logistic', 'probit', 'hinge', 'step', each also as 'robust-...' for labels of which some are wrong
        (but 'step', which has its own noise), or an object such as ``FlippedLabels(Probit(), 0.05)``.
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
    class_weight : dict or 'balanced', optional
    fdr : float, default=0.1
        False discovery rate of `transform`, and of `get_support` if it is not given another.
    tol : float, default=1e-4
        Relative change of the weights at which the iteration ends.
    max_iter : int, default=1000
        Of each run; comparing generative weights takes several short ones, all counted in `n_iter_`. With a
        million features and more, of iterations that visit all of them; `n_iter_` counts the others, too.
    warm_start : bool, default=False
        Start from the messages of the last fit, if it was of the same samples and columns.
    verbose : int, default=0
        Print each iteration.
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
    coef_, intercept_ : arrays of shape (1, n_features) and (1,)
        Posterior means (maxima under max-sum) in the units of X, in log-odds for logistic channels.
    coef_std_ : array of shape (1, n_features)
        Posterior standard deviations.
    inclusion_probability_ : array of shape (n_features,)
        Posterior probability that a feature's weight is not zero.
    loo_proba_, loo_error_, loo_log_loss_
        Class probabilities of each training sample from all others, their error and mean log loss.
    mislabel_probability_ : array of shape (n_samples,)
        For robust channels: the probability of each training label being wrong.
    prior_, channel_, generative_weight_
        As tuned. `generative_path_` has the leave-one-out log loss at each weight tried.
    outcome_ : Outcome
        How the iteration ended, with ``outcome_.advice``. `history_` has every iteration of the last run.
    classes_, n_iter_, log_evidence_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from foldless import GAMPClassifier
    >>> from foldless.datasets import make_class_means
    >>> data = make_class_means(n_samples=100, n_features=2000, n_active=5, random_state=0)
    >>> model = GAMPClassifier().fit(data.X, data.y)
    >>> sorted(model.get_support(fdr=0.1, indices=True)) == sorted(data.active)
    True
    """

    def __init__(
        self,
        prior: str | Prior = "spike-and-slab",
        channel: str | Channel = "logistic",
        *,
        rule: Rule = "sum-product",
        generative_weight: float | str = "auto",
        tune: bool | Sequence[str] = True,
        hyper_prior: HyperPrior | str | None = "weak",
        variances: Variances = "rank-one",
        damping: float | str | Damping = "adaptive",
        mean_removal: bool = False,
        always_keep: Sequence[str] | Sequence[int] | None = None,
        fit_intercept: bool = True,
        class_weight: dict[Any, float] | str | None = None,
        fdr: float = 0.1,
        tol: float = 1e-4,
        max_iter: int = 1000,
        warm_start: bool = False,
        verbose: int = 0,
        n_jobs: int | None = None,
        checkpoint: str | Path | None = None,
    ) -> None:
        self.prior = prior
        self.channel = channel
        self.rule = rule
        self.generative_weight = generative_weight
        self.tune = tune
        self.hyper_prior = hyper_prior
        self.variances = variances
        self.damping = damping
        self.mean_removal = mean_removal
        self.always_keep = always_keep
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.fdr = fdr
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint

    def _choices(self) -> Choices:
        channel = _plain_channel(channel_from(self.channel))
        _plain_prior(prior_from(self.prior))  # an unknown name is an error before any work
        return Choices(
            prior=self.prior,
            channel=channel,
            solver=GAMP(self.rule, self.variances, damping_from(self.damping)),
            tune=_names_to_tune(self.tune),
            generative_weight=checked_generative_weight(self.generative_weight, channel),
            stopping=checked_stopping(self.tol, self.max_iter),
            hyper=_hyper_prior_from(self.hyper_prior),
        )

    def _columns(self, n_features: int, always_keep: tuple[int, ...]) -> Columns:
        return Columns(n_features, always_keep, bool(self.fit_intercept), bool(self.mean_removal))


def _plain_channel(channel: Channel) -> Channel:
    """A channel that is not blended yet: its ridge would be missing."""
    inner = channel
    while (base := getattr(inner, "base", None)) is not None:
        if isinstance(inner, Blended | Pinned):
            break
        inner = base
    if isinstance(inner, Blended | Pinned):
        raise ValueError(
            f"{type(inner).__name__} is made by the estimator itself, together with what belongs to it. "
            "Pass a Logistic channel and generative_weight=..., or mean_removal=True, instead."
        )
    return channel


def _plain_prior(prior: Prior) -> Prior:
    if isinstance(prior, Ridged | Blocks):
        raise ValueError(
            f"{type(prior).__name__} is made by the estimator itself. Pass the prior of single weights, and "
            "name columns that are to have a wide one in always_keep."
        )
    return prior


def checked_stopping(tol: float, max_iter: int) -> Stopping:
    """The stopping rule of an estimator's `tol` and `max_iter`."""
    check_scalar(tol, "tol", Real, min_val=0.0)
    check_scalar(max_iter, "max_iter", Integral, min_val=1)
    return Stopping(tol=float(tol), max_iter=int(max_iter))


def checked_generative_weight(weight: float | str, channel: Channel) -> float | None:
    """None for 'auto', else a number that the channel allows."""
    if isinstance(weight, bool):
        raise ValueError(f"generative_weight must be 'auto' or a number from 0 to 1; got {weight}.")
    if isinstance(weight, str):
        if weight != "auto":
            raise ValueError(f"generative_weight must be 'auto' or a number from 0 to 1; got {weight!r}.")
        return None
    check_scalar(weight, "generative_weight", Real, min_val=0.0, max_val=1.0)
    if weight > 0 and not can_blend(channel):
        raise ValueError(
            f"generative_weight={weight} needs a logistic channel with the accurate integral; got "
            f"{channel!r}. Use channel='logistic' or 'robust-logistic', or generative_weight=0."
        )
    return float(weight)


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
