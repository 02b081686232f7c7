"""PrunedBayesClassifier: Uda and Kabashima's Bayes classifier with pruned features."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from foldless.beliefs import Array
from foldless.channels import Channel, channel_from
from foldless.estimators._base import MessagePassingClassifier
from foldless.estimators.gamp import checked_stopping
from foldless.operators import Standardized
from foldless.operators.whitened import WHITENINGS, Whiten
from foldless.priors import NO_HYPER_PRIOR, Pruned
from foldless.registry import registered
from foldless.solvers.damping import Damping, damping_from
from foldless.solvers.edges import EdgeMessages
from foldless.solvers.gamp import GAMP, Variances
from foldless.tuning.fit import Choices, Columns, Fit
from foldless.tuning.pruning import (
    COARSE_DENSITIES,
    COARSE_NOISES,
    DENSITIES,
    NOISES,
    PrunedFit,
    Search,
    fit_pruned,
    in_paper_units,
)

Messages = Literal["per-node", "per-edge"]
TUNINGS = ("grid", "continuous")


@registered("estimator/pruned")
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
    standardize : bool, default=True
        Scale columns to unit variance. The paper only centres them: larger features then count more.
    messages : {'per-node', 'per-edge'}, default='per-node'
        The O(NM) algorithm, or the one it approximates, with a message on every edge, for reference.
    variances : {'rank-one', 'uniform', 'per-coordinate'}, default='rank-one'
        As in `foldless.solvers.GAMP`; 'uniform' is the paper's.
    damping : 'adaptive' or float in (0, 1], default='adaptive'
    fit_intercept : bool, default=True
        The paper has none, but centres columns, as is done here in either case. With very noisy labels an
        intercept explains classes of unequal size and leaves features little to do: on colon, with 40 %
        noise, the error rises from 19 to 32 %.
    class_weight : dict or 'balanced', optional
    fdr : float, default=0.1
        False discovery rate of `transform`, and of `get_support` if it is not given another.
    tol : float, default=1e-4
    max_iter : int, default=1000
    verbose : int, default=0

    Attributes
    ----------
    coef_, coef_std_, intercept_ : posterior means and standard deviations in the units of X
        Only their direction matters to a step channel.
    inclusion_probability_ : array of shape (n_features,)
        Posterior probability that a feature is on; with whiten='components' all take part, and
        `component_inclusion_` says which components do.
    density_, noise_ : as chosen
    tried_ : list of (density, noise, loo_error, loo_log_loss, outcome)
    loo_proba_, loo_error_, loo_log_loss_
        Of the model chosen. Having been chosen for it, they are a little optimistic.
    prior_, channel_, outcome_, history_, classes_, n_iter_, log_evidence_, n_features_in_, feature_names_in_

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
    warm_start = False

    def __init__(
        self,
        density: float | Iterable[float] | str = "loo",
        noise: float | Iterable[float] | str = "loo",
        *,
        channel: str | Channel = "step",
        tuning: str = "grid",
        whiten: Whiten | None = None,
        standardize: bool = True,
        messages: Messages = "per-node",
        variances: Variances = "rank-one",
        damping: float | str | Damping = "adaptive",
        fit_intercept: bool = True,
        class_weight: dict[Any, float] | str | None = None,
        fdr: float = 0.1,
        tol: float = 1e-4,
        max_iter: int = 1000,
        verbose: int = 0,
    ) -> None:
        self.density = density
        self.noise = noise
        self.channel = channel
        self.tuning = tuning
        self.whiten = whiten
        self.standardize = standardize
        self.messages = messages
        self.variances = variances
        self.damping = damping
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.fdr = fdr
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    def _choices(self) -> Choices:
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
            tune=frozenset(),
            generative_weight=0.0,
            stopping=checked_stopping(self.tol, self.max_iter),
            hyper=NO_HYPER_PRIOR,
        )

    def _columns(self, n_features: int, always_keep: tuple[int, ...]) -> Columns:
        return Columns(n_features, always_keep, bool(self.fit_intercept), means_removed=False)

    def _search(self, n_features: int | None) -> Search:
        """What to choose from; of the paper's densities those that are at least one of the features."""
        if self.tuning not in TUNINGS:
            raise ValueError(f"tuning must be one of {TUNINGS}; got {self.tuning!r}.")
        continuous = self.tuning == "continuous"
        densities: tuple[float, ...] = COARSE_DENSITIES if continuous else DENSITIES
        if n_features is not None:
            densities = tuple(c for c in densities if c * n_features >= 1.0) or densities[-1:]
        return Search(
            densities=_values("density", self.density, densities, 1.0),
            noises=_values("noise", self.noise, COARSE_NOISES if continuous else NOISES, 0.5),
            search_density=continuous and not isinstance(self.density, Real),
            search_noise=continuous and not isinstance(self.noise, Real),
        )

    def _solve(
        self,
        standardized: Standardized,
        labels: Array,
        weight: Array,
        columns: Columns,
        choices: Choices,
        left_out: Array,
    ) -> None:
        result = fit_pruned(
            in_paper_units(standardized, bool(self.standardize)),
            labels,
            weight,
            columns,
            choices,
            self._search(int(np.sum(~standardized.constant))),
            whiten=self.whiten,
            left_out=left_out,
            watch=self._watch(),
        )
        self._conclude(result, standardized.dtype)

    def _publish(self, result: Fit, dtype: Any) -> None:
        assert isinstance(result, PrunedFit)
        self._whitening = result.whitening
        n_columns = result.columns.n_features if result.whitening is None else result.whitening.n_columns
        posterior = result.solution.posterior
        self._column_weights, self._column_var = posterior.mean[:n_columns], posterior.var[:n_columns]
        if result.whitening is not None:
            # Weights of features as they were; what belongs to samples, and the intercept, stays.
            mean, var = result.whitening.weights, result.whitening.weight_variances
            in_features = replace(
                posterior,
                mean=np.concatenate([mean(self._column_weights), posterior.mean[n_columns:]]),
                var=np.concatenate([var(self._column_var), posterior.var[n_columns:]]),
            )
            result = replace(result, solution=replace(result.solution, posterior=in_features))
        super()._publish(result, dtype)

    def _publish_choice(self, result: Fit) -> None:
        assert isinstance(result, PrunedFit)
        self.density_, self.noise_ = result.density, result.noise
        self.tried_ = [tuple(tried) for tried in result.tried]

    def _inclusion(self, result: Fit) -> Array:
        assert isinstance(result, PrunedFit)
        if hasattr(self, "component_inclusion_"):
            del self.component_inclusion_  # of an earlier fit
        if self.whiten != "components":
            return super()._inclusion(result)
        posterior = result.solution.posterior
        prior = result.solution.problem.prior.constrained(posterior.cavity_mean, posterior.cavity_var)
        inclusion = prior.inclusion_probability(posterior.cavity_mean, posterior.cavity_var)  # type: ignore[attr-defined]
        self.component_inclusion_: NDArray[Any] = inclusion[: self._column_weights.size]
        return np.where(result.standardized.constant, 0.0, 1.0)

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Log-odds of ``classes_[1]``. Their sign is that of ``X @ coef_ + intercept_``; their size is not:
        a step channel asks how far a score is from zero in standard deviations, which differ between samples.
        """
        return self._label_log_odds(X).astype(self.coef_.dtype, copy=False)

    def _scores(self, X: Any, *, with_var: bool) -> tuple[Array, Array]:
        check_is_fitted(self)
        if self._whitening is None or not with_var:
            return super()._scores(X, with_var=with_var)
        whitened = self._whitening.whitened(self._standardized(X))
        mean = whitened @ self._column_weights + self._std_intercept
        return mean, np.square(whitened) @ self._column_var + self._intercept_var


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
