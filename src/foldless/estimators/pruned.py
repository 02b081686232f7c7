"""PrunedBayesClassifier: Uda and Kabashima's Bayes classifier with pruned features.

Uda and Kabashima (2005): GAMP with the prior `Pruned(density)` and a channel with label noise, both chosen by
the leave-one-out error that every fit has for nothing. Units are the paper's: samples are centred and of unit
length on average, so that scores have the prior's power, the density itself (`_pruned_search`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from foldless.beliefs import Array
from foldless.channels import Channel, channel_from
from foldless.estimators._base import MessagePassingClassifier, checked_stopping
from foldless.estimators._pruned_search import PrunedFit, Search, fit_pruned
from foldless.estimators._summary import Sentence, Summary, said
from foldless.operators.dense import in_memory
from foldless.operators.whitened import WHITENINGS, Whiten
from foldless.priors import NO_HYPER_PRIOR, Pruned, SupportsInclusion
from foldless.problem import Solution
from foldless.registry import registered
from foldless.solvers.edges import EdgeMessages
from foldless.solvers.gamp import GAMP, Variances
from foldless.solvers.message_passing import Damping, damping_from
from foldless.tuning.fit import Choices, Fit
from foldless.tuning.models.sparse import SparseFits
from foldless.tuning.path import Result
from foldless.tuning.plan import requested
from foldless.tuning.portfolio import alone, of_solution
from foldless.tuning.record import Recorder
from foldless.tuning.table import Layout, Table

Messages = Literal["per-node", "per-edge"]
TUNINGS = ("grid", "continuous")
# What the paper chooses from.
DENSITIES = (0.0025, 0.005, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
NOISES = (0.1, 0.2, 0.3, 0.4)
# Where a search between values may start.
COARSE_DENSITIES, COARSE_NOISES = (0.01, 0.1, 0.4), (0.1, 0.3)


@registered("estimator/pruned")
@dataclass(eq=False, repr=False)
class PrunedBayesClassifier(MessagePassingClassifier):
    """A Bayes classifier that keeps a fixed share of the features [Uda, Kabashima 2005].

    Features are switched on and off by c ∈ {0, 1}; a share `density` of them is on, and the squares of their
    weights have a fixed sum. Labels are signs of scores, and a share `noise` of them is wrong. The posterior
    is found by belief propagation, which here is GAMP with a Bernoulli-Gaussian prior whose two parameters
    are set at every iteration so that both constraints hold. Density and noise are chosen by the
    leave-one-out error, which every fit has without refitting. What the method can do is known beforehand:
    `foldless.theory.saddle_point`.

    Made for few samples and independent features of one kind. `SparseClassifier` learns density, size and
    noise from the data and copes with correlated features.

    Parameters
    ----------
    density : 'loo', float or list of floats, default='loo'
        C, the share of features that are on. Of a list, leave-one-out chooses; 'loo' is the paper's list.
    noise : 'loo', float or list of floats, default='loo'
        κ, the share of wrong labels, below 1/2. Likewise.
    channel : str or Channel, default='step'
        How labels depend on scores before some of them are flipped; an object such as ``Probit(0.1)``.
        Samples have unit length on average, and scores before any data the variance `density`.
    tuning : {'grid', 'continuous'}, default='grid'
        'grid' takes the smallest leave-one-out error of all pairs, ties going to the smaller log loss.
        'continuous' searches between the values for the smallest leave-one-out log loss. What is given as a
        number stays.
    whiten : None, 'features' or 'components', default=None
        Give all directions in which training samples vary the same variance. 'features' chooses among
        whitened features, each the one closest to a feature; 'components' among principal components, as in
        the paper. `coef_` is in features as they were. Leave-one-out is then of little use: the left-out
        sample has taken part in whitening.
    standardize : 'loo' or bool, default='loo'
        Scale columns to unit variance. The paper only centres them: larger features then count more, which is
        right where all are measured alike, and depends on their units. 'loo' takes what predicts left-out
        labels better.
    messages : {'per-node', 'per-edge'}, default='per-node'
        The O(NM) algorithm, or the one it approximates, with a message on every edge, for reference.
    variances : {'rank-one', 'uniform', 'per-coordinate'}, default='rank-one'
        As in `foldless.solvers.GAMP`; 'uniform' is the paper's.
    damping : 'adaptive' or float in (0, 1], default='adaptive'
        A constant step, or one that adapts; smaller is safer and slower.
    fit_intercept : 'loo' or bool, default='loo'
        Likewise. The paper has none, but centres columns, as is done here in either case. With very noisy
        labels an intercept explains classes of unequal size and leaves features little to do: on colon, with
        40 % noise, the error rises from 19 to 32 %.

    Attributes
    ----------
    coef_, coef_std_, intercept_ : posterior means and standard deviations in the units of X
        Only their direction matters to a step channel.
    inclusion_probability_ : array of shape (n_features,)
        Posterior probability that a feature is on; with whiten='components' all take part.
    component_inclusion_ : array of shape (n_components,)
        With whiten='components', that of the components.
    density_, noise_, standardized_, has_intercept_ : float, float, bool, bool
        As chosen.
    tried_ : list of (density, noise, loo_error, loo_log_loss, outcome, standardized, has_intercept)
        Everything that was compared.
    loo_proba_, loo_error_, loo_log_loss_
        Of the model chosen. Having been chosen for it, they are a little optimistic.
    prior_, channel_ : Prior, Channel
        With the density and the noise that were chosen.
    generative_weight_, generative_path_ : float, list of (float, float)
        Zero, and empty: the method has no such blend.

    See Also
    --------
    SparseClassifier : Learns how many features matter, and copes with correlated ones.

    Examples
    --------
    >>> from foldless import PrunedBayesClassifier
    >>> from foldless.datasets import make_class_means
    >>> data = make_class_means(n_samples=200, n_features=500, n_active=5, random_state=0)
    >>> model = PrunedBayesClassifier(density=0.01, noise=0.1).fit(data.X, data.y)
    >>> found = set(model.get_support(fdr=0.1, indices=True))
    >>> len(found), found <= set(data.active)
    (4, True)
    """

    always_keep = None  # every feature may be pruned
    _can_blend = False

    density: float | Iterable[float] | str = "loo"
    noise: float | Iterable[float] | str = "loo"
    _: KW_ONLY
    channel: str | Channel = "step"
    tuning: str = "grid"
    whiten: Whiten | None = None
    standardize: bool | str = "loo"
    messages: Messages = "per-node"
    variances: Variances = "rank-one"
    damping: float | str | Damping = "adaptive"
    fit_intercept: bool | str = "loo"

    def _choices(self, n_classes: int) -> Choices:
        if n_classes > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass: y has "
                f"{n_classes} classes. Use SparseClassifier, which fits all of them jointly, or select two."
            )
        if self.messages not in ("per-node", "per-edge"):
            raise ValueError(f"messages must be 'per-node' or 'per-edge'; got {self.messages!r}.")
        if self.whiten is not None and self.whiten not in WHITENINGS:
            raise ValueError(f"whiten must be None or one of {WHITENINGS}; got {self.whiten!r}.")
        self._search(None)  # values that make no sense are an error before any work
        solver = EdgeMessages if self.messages == "per-edge" else GAMP
        channel = channel_from(self.channel)
        if not channel.normalised:
            raise ValueError(
                f"channel must be a distribution of labels; those of {channel!r} do not sum to one. "
                "Use 'step', 'probit' or 'logistic'."
            )
        return Choices(
            prior=Pruned(),
            channel=channel,
            solver=solver("sum-product", self.variances, damping_from(self.damping)),
            stopping=checked_stopping(self.tol, self.max_iter),
            tune=frozenset(),
            generative_weight=0.0,
            hyper=NO_HYPER_PRIOR,
        )

    def _layout(self, n_features: int, always_keep: tuple[int, ...], n_classes: int) -> Layout:
        return Layout(n_features, always_keep, self._one_or_both("fit_intercept")[0])

    def _one_or_both(self, name: str) -> tuple[bool, ...]:
        value = getattr(self, name)
        if isinstance(value, bool | np.bool_):
            return (bool(value),)
        if value != "loo":
            raise ValueError(f"{name} must be 'loo', True or False; got {value!r}.")
        return (True, False)

    def _search(self, n_features: int | None) -> Search:
        """What to choose from; of the paper's densities those that are at least one of the features."""
        self._check_one_of("tuning", TUNINGS)
        continuous = self.tuning == "continuous"
        densities: tuple[float, ...] = COARSE_DENSITIES if continuous else DENSITIES
        if n_features is not None:
            densities = tuple(c for c in densities if c * n_features >= 1.0) or densities[-1:]
        return Search(
            densities=_values("density", self.density, densities, 1.0),
            noises=_values("noise", self.noise, COARSE_NOISES if continuous else NOISES, 0.5),
            scaled=self._one_or_both("standardize"),
            intercepts=self._one_or_both("fit_intercept"),
            search_density=continuous and not isinstance(self.density, Real),
            search_noise=continuous and not isinstance(self.noise, Real),
        )

    def _fit_table(self, table: Table, choices: Choices, recorder: Recorder) -> Result:
        if table.left_out.group is not None:
            raise ValueError("PrunedBayesClassifier leaves samples out one by one. Use SparseClassifier.")
        found = fit_pruned(table, choices, self._search(table.n_free), recorder, self.whiten)
        table = found.table
        self.density_, self.noise_, *_, self.standardized_, self.has_intercept_ = found.chosen
        self.tried_ = [tuple(tried) for tried in found.tried]
        self._whitening = found.whitening
        n_columns = table.shape[1] if found.whitening is None else found.whitening.n_columns
        posterior = found.solution.posterior
        self._column_weights, self._column_var = posterior.mean[:n_columns], posterior.var[:n_columns]
        fit = Fit.of(
            self._in_features(found), table, inclusion=self._inclusion(found, n_columns), candidates=()
        )
        plan = requested(
            "Pruned",
            choices.solver.name(),
            table.shape,
            searched=False,
            in_memory=in_memory(table.standardized),
            budget=self._budget,
        )
        portfolio = alone(of_solution("sparse", "pruned", fit.solution, table), table)
        return Result(fit, portfolio, plan, recorder.record(), (), SparseFits.one(fit, choices.solver))

    def _in_features(self, found: PrunedFit) -> Solution:
        """With weights of features as they were; what belongs to samples, and the intercept, stays."""
        if found.whitening is None:
            return found.solution
        posterior, n = found.solution.posterior, self._column_weights.size
        mean, var = found.whitening.weights, found.whitening.weight_variances
        in_features = replace(
            posterior,
            mean=np.concatenate([mean(self._column_weights), posterior.mean[n:]]),
            var=np.concatenate([var(self._column_var), posterior.var[n:]]),
        )
        return replace(found.solution, posterior=in_features)

    def _inclusion(self, found: PrunedFit, n_columns: int) -> Array:
        posterior = found.solution.posterior
        prior = found.solution.problem.prior.constrained(posterior.cavity_mean, posterior.cavity_var)
        assert isinstance(prior, SupportsInclusion)
        inclusion = prior.inclusion_probability(posterior.cavity_mean, posterior.cavity_var)[:n_columns]
        self.__dict__.pop("component_inclusion_", None)  # of an earlier fit
        if self.whiten != "components":
            return inclusion
        self.component_inclusion_: NDArray[Any] = inclusion
        return np.ones(found.table.shape[1])

    def _account(self) -> tuple[Sentence, ...]:
        pair, n = f"Density {self.density_:.4g} and noise {self.noise_:.4g}", len(self.tried_)
        if self.standardize == "loo":
            pair += f", columns {'of unit variance' if self.standardized_ else 'on their own scale'}"
        if self.fit_intercept == "loo":
            pair += f", {'with' if self.has_intercept_ else 'without'} an intercept"
        by = "log loss" if self._search(None).continuous else "error"
        chosen = f"are the choice of {n} with the smallest leave-one-out {by}, which is therefore optimistic"
        account = (*super()._account(), said(f"{pair} {chosen if n > 1 else 'were given'}.", ("pairs", n)))
        if self.whiten is None:
            return account
        text = f"Samples were whitened first, and {self.whiten} are what is switched on and off."
        return (*account, said(text, ("whitened", self.whiten)))

    def _summary(self) -> Summary:
        # In the paper's units a sample has unit length; without `standardize` columns share one scale.
        n_varying = max(int(np.count_nonzero(np.any(self.coef_std_ != 0, axis=0))), 1)
        found = super()._summary()
        if not self.standardized_:
            text = "Columns were centred inside the fit, and all of them divided by one number."
            return replace(found, scale=None, columns=said(text, ("columns", "centred")))
        return replace(found, scale=self._scale / np.sqrt(n_varying))

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Log-odds of ``classes_[1]``. Their sign is that of ``X @ coef_ + intercept_``; their size is not:
        under a step channel it goes by standard deviations of a score, which differ between samples.
        """
        return np.diff(self._log_proba(X))[:, 0].astype(self.coef_.dtype, copy=False)

    def _log_proba(self, X: Any) -> Array:
        check_is_fitted(self)
        if self._whitening is None:
            return super()._log_proba(X)
        whitened, weights = self._whitening.whitened(self._standardized(X)), self._average.parts[0].weights
        mean = whitened @ self._column_weights + weights.intercept
        var = np.square(whitened) @ self._column_var + weights.intercept_var
        return self.channel_.log_proba(mean[:, np.newaxis], var[:, np.newaxis])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def _values(name: str, given: Any, default: tuple[float, ...], below: float) -> tuple[float, ...]:
    """Candidates for a parameter, smallest first."""
    if isinstance(given, str):
        if given != "loo":
            raise ValueError(f"{name} must be 'loo', a number or a list of numbers; got {given!r}.")
        return default
    values = [given] if isinstance(given, Real) else list(given)
    lowest = "above 0" if name == "density" else "at least 0"
    for value in values:
        if isinstance(value, bool) or not (isinstance(value, Real) and 0.0 <= float(value) < below):
            raise ValueError(f"{name} must be {lowest} and below {below:g}; got {value!r}.")
        if name == "density" and value == 0.0:
            raise ValueError("density must be above 0: with no feature left there is nothing to learn.")
    if not values:
        raise ValueError(f"{name} is an empty list; give at least one value, or 'loo'.")
    return tuple(sorted(float(value) for value in values))
