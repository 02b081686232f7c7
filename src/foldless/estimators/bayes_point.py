"""BayesPointClassifier: the average of all linear classifiers, by messages over knapsack problems."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_scalar

from foldless.beliefs import Array
from foldless.estimators._bayes_points import BayesPointBase, BinaryFit, KnapsackPoint, OneAgainstRest, dense
from foldless.estimators._summary import Sentence, said
from foldless.operators import Standardized
from foldless.registry import registered
from foldless.solvers.knapsack import ENGINES, PRIORS, Histograms, LogPrior, Machine
from foldless.solvers.knapsack.settings import (
    BETAS,
    COSTS,
    LOOPS,
    SWEEPS,
    WORK,
    Choices,
    KnapsackFit,
    fit_knapsack,
)

# Messages, inputs and sorted moves: this many numbers of 8 bytes per sample, weight and bin.
NUMBERS_PER_BIN = 5
MOST_BYTES = 4e9


@registered("estimator/bayes-point")
@dataclass(eq=False, repr=False)
class BayesPointClassifier(BayesPointBase):
    """The Bayes point of the 0-1 loss, by messages over knapsack problems [Potetz 2011].

    The Bayes point is the average of all linear classifiers, weighted by how well they explain the labels.
    The loss is the one that counts, 1 for every sample on the wrong side of its margin however far, and
    messages are whole histograms of the weights: no Gaussian approximation, no convexity, and an outlier
    counts as one error. For up to a few hundred features; `EPBayesPointClassifier` is much faster. Many
    classes are one against the rest.

    Parameters
    ----------
    prior : {'l2', 'l1', 'l0'} or callable, default='l2'
        Of the weights of standardised columns; a function from weights to log densities may have any shape.
    violation_cost : 'auto' or float, default='auto'
        What a sample within its margin costs, against w²/2 of the prior.
    beta : 'auto' or float, default='auto'
        The power of the max-marginals whose mean is taken; infinity gives their maximum.
    n_sweeps : 'auto' or int, default='auto'
        Visits to every weight. Messages sharpen from soft margins to the 0-1 loss as they go on. Where
        'auto', all three are averaged over, weighted by errors on samples left out by folds; large tables
        compare fewer values. `foldless.solvers.knapsack.settings` has the reasons.
    n_bins, weight_range : int, default=128, and float, default=4.0
        Histograms have this many bins, from -weight_range to weight_range.
    messages : {'linear', 'exact'}, default='linear'
        Whether messages that are not concave are replaced by their hull; 'exact' is for few weights.
    outer_every : 'auto', int or None, default='auto'
        The paper's outer loop after so many sweeps, or never. 'auto' averages over both loops, by errors on
        samples left out; where all else is given, by the posterior of their points.
    engine : {'auto', 'numba', 'numpy'}, default='auto'
        'auto' compiles the loops if numba is there (``pip install foldless[fast]``).
    n_folds : int, default=5
        For what is 'auto'.
    tol : float, default=1e-4
        Change of messages, as a share of the cost, at which sweeps end.

    Attributes
    ----------
    weight_marginals_ : Histograms
        Points and probabilities of shape (1 or n_classes, n_features, bins), with ``mean``, ``std``,
        ``skew`` and ``interval(level)``. They are max-marginals of messages stopped early, wider than the
        posterior's: means are what the machine is good at, widths and votes are a ranking.
    settings_ : list of Setting
        What was averaged over, each with its error on samples left out and its share, the weightiest first.
    violation_cost_, beta_, n_sweeps_ : float, float, int
        Those of the first. With several classes these, and the next, are lists, class by class.
    cv_error_, cv_log_loss_, dual_bound_ : float
        Of the average, on samples left out (NaN if nothing was 'auto'); and the upper bound of the log
        posterior that the messages of the weightiest setting prove.

    See Also
    --------
    EPBayesPointClassifier : The same in a moment, by a Gaussian approximation.

    Notes
    -----
    Log-odds are scores times a factor learnt from samples left out by the folds; without folds from the
    training samples, which is optimistic.

    Examples
    --------
    >>> from foldless import BayesPointClassifier
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesPointClassifier(violation_cost=1.0, n_sweeps=5, beta=1.0, n_bins=16)
    >>> bool(model.fit(X[50:], y[50:]).score(X[50:], y[50:]) > 0.9)
    True
    """

    prior: str | LogPrior = "l2"
    _: KW_ONLY
    violation_cost: float | str = "auto"
    beta: float | str = "auto"
    n_sweeps: int | str = "auto"
    n_bins: int = 128
    weight_range: float = 4.0
    messages: Literal["linear", "exact"] = "linear"
    outer_every: int | str | None = "auto"
    engine: Literal["auto", "numba", "numpy"] = "auto"
    n_folds: int = 5

    def _binary_fit(self) -> BinaryFit:
        machine, choices = self._checked_machine(), self._checked_choices()
        watch = self._show if self.verbose else None

        def fit(columns: Standardized, labels: Array, weight: Array) -> OneAgainstRest:
            self._check_size(columns.shape)
            counted = weight > 0
            design = np.column_stack([dense(columns), np.ones(labels.size)])[counted]
            work = WORK / (1 if self.classes_.size == 2 else self.classes_.size)
            found = fit_knapsack(design, labels[counted], weight[counted], machine, choices, watch, work)
            return _one_against_rest(found, columns.constant)

        return fit

    def _checked_machine(self) -> Machine:
        self._check_one_of("messages", ("linear", "exact"))
        self._check_one_of("engine", ENGINES)
        if not callable(self.prior) and self.prior not in PRIORS:
            raise ValueError(
                f"prior must be one of {list(PRIORS)} or a function from weights to log densities; got "
                f"{self.prior!r}."
            )
        check_scalar(self.n_bins, "n_bins", Integral, min_val=4)
        check_scalar(self.weight_range, "weight_range", Real, min_val=0.0, include_boundaries="neither")
        if isinstance(self.outer_every, str) and self.outer_every != "auto":
            raise ValueError(
                f"outer_every must be 'auto', a number of sweeps or None; got {self.outer_every!r}."
            )
        if not (self.outer_every is None or isinstance(self.outer_every, str)):
            check_scalar(self.outer_every, "outer_every", Integral, min_val=1)
        machine = Machine(
            self.prior,
            int(self.n_bins),
            float(self.weight_range),
            self.messages == "exact",
            engine=self.engine,
        )
        if self.messages == "linear":
            _ = machine.compiled  # raises now if numba was asked for and is missing
        return machine

    def _checked_choices(self) -> Choices:
        check_scalar(self.n_folds, "n_folds", Integral, min_val=2)
        return Choices(
            self._one_or_all("violation_cost", COSTS, Real),
            self._one_or_all("n_sweeps", SWEEPS, Integral),
            self._one_or_all("beta", BETAS, Real),
            int(self.n_folds),
            float(self.tol),
            LOOPS if isinstance(self.outer_every, str) else (self.outer_every,),
        )

    def _one_or_all(self, name: str, values: tuple[Any, ...], kind: type) -> tuple[Any, ...]:
        value = getattr(self, name)
        if isinstance(value, str):
            if value != "auto":
                raise ValueError(f"{name} must be 'auto' or a positive number; got {value!r}.")
            return values
        check_scalar(value, name, kind, min_val=0, include_boundaries="neither")
        return (value,)

    def _account(self) -> tuple[Sentence, ...]:
        point = said(
            f"The Bayes point of the 0-1 loss on {self._on} was found by messages over knapsack problems "
            "(Potetz 2011).",
            ("knapsacks", True),
            ("kernel", self._basis is not None),
        )
        settings = self.settings_ if len(self._points) > 1 else [self.settings_]
        if np.all(np.isfinite(self.cv_error_)):
            n_settings = sum(map(len, settings))
            found = said(
                f"It is an average over {n_settings} settings of cost, power, sweeps and loop, weighted by "
                f"errors on samples left out by {self.n_folds} folds.",
                ("folds", self.n_folds),
                ("settings", n_settings),
            )
        else:
            first = settings[0][0]
            found = said(
                f"A violation costs {first.cost:g}, max-marginals are taken to the power {first.beta:g}, and "
                f"every weight was visited {first.n_sweeps} times: nothing of that was compared."
                + (" Both loops share by the posterior of their points." if len(settings[0]) > 1 else ""),
                ("settings", sum(map(len, settings))),
            )
        return (point, *self._each_class(), found)

    def _check_size(self, shape: tuple[int, int]) -> None:
        n_samples, n_columns = shape
        needed = 8.0 * NUMBERS_PER_BIN * n_samples * (n_columns + 1) * self.n_bins
        if needed > MOST_BYTES:
            raise ValueError(
                f"BayesPointClassifier keeps a histogram for every sample and weight: {n_samples} x "
                f"{n_columns} with {self.n_bins} bins would take {needed / 1e9:.0f} GB. Use "
                "EPBayesPointClassifier, fewer bins, fewer columns (n_components, with a kernel), or select "
                "features first."
            )


def _one_against_rest(fit: KnapsackFit, constant: NDArray[np.bool_]) -> OneAgainstRest:
    marginals, weightiest = fit.histograms, fit.settings[0]
    mean, var = marginals.mean, np.square(marginals.std)
    # A column that never varies leaves the prior as it was, which is even about zero but for rounding.
    mean[:-1][constant] = var[:-1][constant] = 0.0
    return OneAgainstRest(
        KnapsackPoint(mean[:-1], var[:-1], float(mean[-1]), float(var[-1]), fit.log_odds_scale),
        Histograms(marginals.points[:-1], marginals.probability[:-1]),
        fit.outcome,
        fit.n_sweeps,
        {
            "settings_": fit.settings,
            "violation_cost_": weightiest.cost,
            "beta_": weightiest.beta,
            "n_sweeps_": weightiest.n_sweeps,
            "cv_error_": fit.cv_error,
            "cv_log_loss_": fit.cv_log_loss,
            "dual_bound_": fit.bound,
        },
    )
