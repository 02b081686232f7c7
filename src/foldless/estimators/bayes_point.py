"""BayesPointClassifier: the average of all linear classifiers, by knapsack messages or by EP."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Literal, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from foldless.beliefs import Array
from foldless.channels import Channel, channel_from
from foldless.estimators._binary_points import BinaryPoint, EPPoint, KnapsackPoint, coupled
from foldless.estimators._kernel_basis import Basis, FourierBasis, GramBasis, Kernel
from foldless.estimators._notebook import NotebookSummary
from foldless.estimators._reading import STORAGE, sample_weights
from foldless.estimators._saving import Saved
from foldless.estimators._threads import one_blas_thread
from foldless.operators import Dense, Standardized, operator_from
from foldless.registry import registered
from foldless.solution import Iteration, Outcome
from foldless.solvers.knapsack import ENGINES, PRIORS, Histograms, LogPrior, Machine, Sweep
from foldless.solvers.solve import Stopping
from foldless.tuning.bayes_point import BETAS, COSTS, SWEEPS, Choices, fit_knapsack
from foldless.tuning.evidence import fit_by_evidence, noise_kinds

METHODS = ("knapsack", "ep")
# Messages, inputs and sorted moves: this many numbers of 8 bytes per sample, weight and bin.
NUMBERS_PER_BIN = 5
MOST_BYTES = 4e9
# How far apart the quartiles of a unit Gaussian are.
GAUSSIAN_QUARTILES = 1.3489795


@registered("estimator/bayes-point")
class BayesPointClassifier(Saved, NotebookSummary, ClassifierMixin, BaseEstimator):
    """The Bayes point: the average of all linear classifiers, weighted by how well they explain the labels.

    Two ways to it. 'knapsack' [Potetz 2011] keeps the loss that counts, 1 for every sample on the wrong side
    of its margin however far, and passes whole histograms of the weights: no Gaussian approximation, no
    convexity, and an outlier counts as one error. 'ep' [Minka 2001] approximates the posterior by a Gaussian
    with exact covariances; it is much faster, has an evidence that chooses the noise, and an honest
    leave-one-out error.

    Both are for few features (knapsack: up to a few hundred). Many classes are one against the rest.

    Parameters
    ----------
    method : {'knapsack', 'ep'}, default='knapsack'
    prior : {'l2', 'l1', 'l0'} or callable, default='l2'
        Knapsack: of the weights of standardised columns; a function from weights to log densities may have
        any shape. EP has the Gaussian prior, its variance learnt.
    violation_cost : 'auto' or float, default='auto'
        Knapsack: what a sample within its margin costs, against w²/2 of the prior.
    beta : 'auto' or float, default='auto'
        Knapsack: the power of the max-marginals whose mean is taken; infinity gives their maximum.
    n_sweeps : 'auto' or int, default='auto'
        Knapsack: visits to every weight. Messages sharpen from soft margins to the 0-1 loss as they go on.
        Where 'auto', all three are averaged over, weighted by errors on samples left out by folds;
        `foldless.tuning.bayes_point` says why.
    n_bins : int, default=128
    weight_range : float, default=4.0
        Knapsack: histograms have this many bins, from -weight_range to weight_range.
    messages : {'linear', 'exact'}, default='linear'
        Knapsack: whether messages that are not concave are replaced by their hull; 'exact' is for few
        weights.
    outer_every : int, optional
        Knapsack: the paper's outer loop after so many sweeps. Its messages need not settle.
    engine : {'auto', 'numba', 'numpy'}, default='auto'
        Knapsack: 'auto' compiles the loops if numba is there (``pip install foldless[fast]``).
    n_folds : int, default=5
        Knapsack: for what is 'auto'.
    channel : 'auto', str or Channel, default='auto'
        EP: 'probit', 'robust-probit', 'step', or any other channel; 'auto' takes that with the largest
        evidence.
    kernel : None, str or callable, default=None
        For nonlinear boundaries: 'rbf', 'poly' or another name that scikit-learn's ``pairwise_kernels``
        knows, or a function of two (standardised) samples.
    gamma, degree, coef0
        Parameters of kernels; gamma is 1/n_features if None.
    n_components : int, optional
        The most columns that a kernel is replaced by; all that it has if None.
    random_features : bool, default=False
        Take random Fourier features, `n_components` of them (100 if None), instead of the RBF kernel.
    standardize : bool or 'robust', default=True
        Whether weights, and kernels, see columns of mean zero and unit variance; or of median zero and the
        interquartile range of unit variance, which outliers leave alone; or X as it is.
    class_weight : dict or 'balanced', optional
    tol : float, default=1e-4
        Change at which the iteration ends: of weights (EP), or of messages as a share of the cost (knapsack).
    max_iter : int, default=500
        EP: iterations of each fit.
    random_state : int or RandomState, default=0
        Of random features; nothing else is random.
    verbose : int, default=0

    Attributes
    ----------
    coef_, intercept_ : arrays of shape (1 or n_classes, n_features) and (1 or n_classes,)
        The Bayes point, in the units of X; with a kernel, of its columns.
    coef_std_ : array like `coef_`
        Standard deviations of the weights.
    weight_marginals_ : Histograms
        Points and probabilities of shape (1 or n_classes, n_features, bins), with ``mean``, ``std``,
        ``skew`` and ``interval(level)``. Of EP they are Gaussian. Of the knapsack they are max-marginals of
        messages stopped early, wider than the posterior's: means are what the machine is good at, widths and
        votes are a ranking.
    settings_ : list of Setting
        Knapsack: what was averaged over, each with its error on samples left out and its share, the
        weightiest first; `violation_cost_`, `beta_` and `n_sweeps_` are those of the first. With several
        classes these, and the next, are lists, class by class.
    cv_error_, cv_log_loss_, dual_bound_ : float
        Knapsack: of the average, on samples left out (NaN if nothing was 'auto'); and the upper bound of the
        log posterior that the messages of the weightiest setting prove.
    channel_, prior_, log_evidence_, evidence_path_, loo_proba_, loo_error_, loo_log_loss_
        EP: likewise; leave-one-out is read off the cavities.
    outcome_, n_iter_, classes_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from foldless import BayesPointClassifier
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesPointClassifier(method="ep").fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        method: Literal["knapsack", "ep"] = "knapsack",
        *,
        prior: str | LogPrior = "l2",
        violation_cost: float | str = "auto",
        beta: float | str = "auto",
        n_sweeps: int | str = "auto",
        n_bins: int = 128,
        weight_range: float = 4.0,
        messages: Literal["linear", "exact"] = "linear",
        outer_every: int | None = None,
        engine: Literal["auto", "numba", "numpy"] = "auto",
        n_folds: int = 5,
        channel: str | Channel = "auto",
        kernel: Kernel | None = None,
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        n_components: int | None = None,
        random_features: bool = False,
        standardize: bool | Literal["robust"] = True,
        class_weight: dict[Any, float] | str | None = None,
        tol: float = 1e-4,
        max_iter: int = 500,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.prior = prior
        self.violation_cost = violation_cost
        self.beta = beta
        self.n_sweeps = n_sweeps
        self.n_bins = n_bins
        self.weight_range = weight_range
        self.messages = messages
        self.outer_every = outer_every
        self.engine = engine
        self.n_folds = n_folds
        self.channel = channel
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_components = n_components
        self.random_features = random_features
        self.standardize = standardize
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to data of two classes or more.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n_samples, n_features)
            Any units: columns are centred and scaled inside.
        y : array of shape (n_samples,)
        sample_weight : array of shape (n_samples,), optional
            How often each sample counts: weight 2 is the same as the row twice.
        """
        machine, choices, channels = self._checked_choices()
        X, targets = validate_data(self, X, y, ensure_min_samples=2, **STORAGE)
        check_classification_targets(targets)
        self.classes_, code = np.unique(targets, return_inverse=True)
        if self.classes_.size == 1:
            raise ValueError(
                f"BayesPointClassifier needs samples of two classes or more, but y contains only one class, "
                f"{self.classes_[0]!r}. Check that the label column is the right one."
            )
        weight, left_out, counts = sample_weights(targets, sample_weight, self.class_weight, self.classes_)
        with one_blas_thread():
            columns = self._fitted_columns(X, weight)
            self._check_size(columns.shape)
            positives = [1] if self.classes_.size == 2 else range(self.classes_.size)
            found: list[BinaryPoint] = []
            for k in positives:
                labels = np.where(code == k, 1.0, -1.0)
                if self.method == "knapsack":
                    found.append(self._knapsack(columns, labels, weight, machine, choices))
                else:
                    found.append(self._ep(columns, labels, weight, left_out, channels))
        self._publish(found, counts, code, X.dtype)
        return self

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Scores of the Bayes point, positive for ``classes_[1]``; of several classes, log-odds of each."""
        columns = self._new_columns(X)
        if self.classes_.size == 2:
            return self._binaries[0].scores(columns)[0].astype(self.coef_.dtype, copy=False)
        return self._log_odds(columns).astype(self.coef_.dtype, copy=False)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each sample."""
        scores = self.decision_function(X)
        if self.classes_.size == 2:
            return self.classes_[(scores > 0).astype(np.intp)]
        return self.classes_[np.argmax(scores, axis=1)]

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Class probabilities.

        EP integrates over the posterior. Of the knapsack, log-odds are scores times a factor learnt from
        samples left out by the folds (without folds from the training samples, which is optimistic). Several
        classes: given independent votes of every class against the rest, the probability that k alone is
        voted for.
        """
        return np.exp(self._log_proba(X)).astype(self.coef_.dtype, copy=False)

    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Logarithms of the class probabilities, exact far out where the probabilities round to zero."""
        return self._log_proba(X).astype(self.coef_.dtype, copy=False)

    def vote_margin(self, X: Any) -> NDArray[Any]:
        """How clear the vote of all classifiers is: the share for a class minus that against it.

        From -1 to 1, of shape (n_samples,), for ``classes_[1]``, or (n_samples, n_classes). Weights vote
        independently of each other, so that the vote is of a score with the variance of a sum.
        """
        columns = self._new_columns(X)
        margins = np.empty((columns.shape[0], len(self._binaries)))
        for k, binary in enumerate(self._binaries):
            mean, var = binary.scores(columns)
            std = np.sqrt(np.maximum(var, np.finfo(float).tiny))
            margins[:, k] = 2.0 * ndtr(mean / std) - 1.0
        margins = margins.astype(self.coef_.dtype, copy=False)
        return margins[:, 0] if self.classes_.size == 2 else margins

    @property
    def get_support(self) -> NoReturn:
        """There is none; a property, so that `hasattr` tells the truth."""
        raise AttributeError(
            "BayesPointClassifier keeps every feature: its priors have no inclusion probabilities to select "
            "by. Use SparseClassifier or SMLRClassifier to select, or read weight_marginals_.interval()."
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # ------------------------------------------------------------------ choices

    def _checked_choices(self) -> tuple[Machine, Choices, tuple[Channel, ...]]:
        for name, known in (
            ("method", METHODS),
            ("messages", ("linear", "exact")),
            ("engine", ENGINES),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {list(known)}; got {getattr(self, name)!r}.")
        if not callable(self.prior) and self.prior not in PRIORS:
            raise ValueError(
                f"prior must be one of {list(PRIORS)} or a function from weights to log densities; got "
                f"{self.prior!r}."
            )
        check_scalar(self.n_bins, "n_bins", Integral, min_val=4)
        check_scalar(self.weight_range, "weight_range", Real, min_val=0.0, include_boundaries="neither")
        check_scalar(self.n_folds, "n_folds", Integral, min_val=2)
        check_scalar(self.tol, "tol", Real, min_val=0.0)
        check_scalar(self.max_iter, "max_iter", Integral, min_val=1)
        for name in ("outer_every", "n_components"):
            if getattr(self, name) is not None:
                check_scalar(getattr(self, name), name, Integral, min_val=1)
        if not (isinstance(self.standardize, bool | np.bool_) or self.standardize == "robust"):
            raise ValueError(f"standardize must be True, False or 'robust'; got {self.standardize!r}.")
        if self.random_features and self.kernel not in (None, "rbf"):
            raise ValueError(
                f"random_features stand in for the RBF kernel; got kernel={self.kernel!r}. Use kernel='rbf', "
                "or random_features=False with n_components to keep the columns few."
            )
        machine = Machine(
            self.prior,
            int(self.n_bins),
            float(self.weight_range),
            self.messages == "exact",
            self.outer_every,
            self.engine,
        )
        if self.method == "knapsack" and self.messages == "linear":
            _ = machine.compiled  # says so now if numba was asked for and is missing
        choices = Choices(
            tuple(self._one_or_all("violation_cost", COSTS, Real)),
            tuple(self._one_or_all("n_sweeps", SWEEPS, Integral)),
            tuple(self._one_or_all("beta", BETAS, Real)),
            int(self.n_folds),
            float(self.tol),
        )
        channels = noise_kinds() if self.channel == "auto" else (channel_from(self.channel),)
        return machine, choices, channels

    def _one_or_all(self, name: str, values: tuple[Any, ...], kind: type) -> tuple[Any, ...]:
        value = getattr(self, name)
        if isinstance(value, str):
            if value != "auto":
                raise ValueError(f"{name} must be 'auto' or a positive number; got {value!r}.")
            return values
        check_scalar(value, name, kind, min_val=0, include_boundaries="neither")
        return (value,)

    # ------------------------------------------------------------------ columns

    def _fitted_columns(self, X: Any, weight: Array) -> Standardized:
        """The columns that carry weights: standardised features, or those of the kernel as they are."""
        standardized = Standardized.fit(operator_from(X), weight)
        if self.standardize == "robust":
            standardized = _robustly_scaled(standardized, weight)
        elif not self.standardize:
            n_columns = standardized.shape[1]
            nothing_done = np.zeros(n_columns), np.ones(n_columns)
            standardized = Standardized(standardized.operator, *nothing_done, standardized.constant)
        self._center, self._scale = standardized.center, standardized.scale
        self._basis: Basis | None = None
        if self.kernel is None and not self.random_features:
            return standardized
        samples = _dense(standardized)
        counted = samples[weight > 0]
        gamma = 1.0 / samples.shape[1] if self.gamma is None else float(self.gamma)
        if self.random_features:
            n_columns = 100 if self.n_components is None else int(self.n_components)
            rng = check_random_state(self.random_state)
            self._basis = FourierBasis.fit(counted, gamma, n_columns, rng)
        else:
            assert self.kernel is not None
            options = {"gamma": gamma, "degree": self.degree, "coef0": self.coef0}
            self._basis = GramBasis.fit(counted, self.kernel, options, self.n_components)
        return _as_they_are(self._basis.columns(samples))

    def _new_columns(self, X: Any) -> Standardized:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **STORAGE)
        standardized = Standardized(operator_from(X), self._center, self._scale)
        if self._basis is None:
            return standardized
        return _as_they_are(self._basis.columns(_dense(standardized)))

    def _check_size(self, shape: tuple[int, int]) -> None:
        n_samples, n_columns = shape
        needed = 8.0 * NUMBERS_PER_BIN * n_samples * (n_columns + 1) * self.n_bins
        if self.method == "knapsack" and needed > MOST_BYTES:
            raise ValueError(
                f"method='knapsack' keeps a histogram for every sample and weight: {n_samples} x {n_columns} "
                f"with {self.n_bins} bins would take {needed / 1e9:.0f} GB. Use method='ep', fewer bins, "
                "fewer columns (n_components, with a kernel), or select features first."
            )

    # ------------------------------------------------------------------ the fits

    def _knapsack(
        self, columns: Standardized, labels: Array, weight: Array, machine: Machine, choices: Choices
    ) -> BinaryPoint:
        counted = weight > 0
        design = np.column_stack([_dense(columns), np.ones(labels.size)])[counted]
        result = fit_knapsack(design, labels[counted], weight[counted], machine, choices, self._sweep_watch())
        return KnapsackPoint.of(result, columns.constant)

    def _ep(
        self,
        columns: Standardized,
        labels: Array,
        weight: Array,
        left_out: Array,
        channels: tuple[Channel, ...],
    ) -> BinaryPoint:
        stopping = Stopping(tol=float(self.tol), max_iter=int(self.max_iter))
        result, tried = fit_by_evidence(
            columns, labels, weight, channels, stopping, left_out=left_out, watch=self._iteration_watch()
        )
        return EPPoint.of(result, tried)

    def _sweep_watch(self) -> Callable[[Sweep], None] | None:
        if not self.verbose:
            return None

        def report(sweep: Sweep) -> None:
            print(f"[BayesPointClassifier] sweep {sweep.number:4d}  change {sweep.change:.2e}")

        return report

    def _iteration_watch(self) -> Callable[[int, Iteration], None] | None:
        if not self.verbose:
            return None

        def report(iteration: int, line: Iteration) -> None:
            print(f"[BayesPointClassifier] iteration {iteration:4d}  change {line.change:.2e}")

        return report

    # ------------------------------------------------------------------ attributes

    def _publish(
        self,
        found: list[BinaryPoint],
        counts: Array,
        code: NDArray[np.intp],
        dtype: Any,
    ) -> None:
        for name in [name for name in vars(self) if name in (*_OF_KNAPSACK, *_OF_EP)]:
            delattr(self, name)  # of an earlier fit by the other method
        n_columns = found[0].mean.size
        center, scale = (
            (self._center, self._scale) if self._basis is None else (np.zeros(n_columns), np.ones(n_columns))
        )
        coef = np.array([binary.mean for binary in found]) / scale
        level = np.array([binary.intercept for binary in found]) - coef @ center
        self.coef_, self.intercept_ = coef.astype(dtype), level.astype(dtype)
        self.coef_std_ = (np.sqrt([binary.var for binary in found]) / scale).astype(dtype)
        histograms = [binary.histograms(int(self.n_bins)) for binary in found]
        self.weight_marginals_ = Histograms(
            np.array([h.points for h in histograms]) / scale[:, np.newaxis],
            np.array([h.probability for h in histograms]),
        )
        self._binaries = found
        self.n_iter_ = sum(binary.n_iter for binary in found)
        self.outcome_ = max((binary.outcome for binary in found), key=list(Outcome).index)
        several = len(found) > 1
        for name in found[0].own:
            values = [binary.own[name] for binary in found]
            setattr(self, name, values if several else values[0])
        if self.method == "ep":
            self._publish_leave_one_out(found, counts, code, dtype)
        if not (self.outcome_.trustworthy or self.outcome_ is Outcome.EARLY):
            warnings.warn(
                f"BayesPointClassifier: {self.outcome_} after {self.n_iter_} iterations. "
                f"{self.outcome_.advice}",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _publish_leave_one_out(
        self, found: list[BinaryPoint], counts: Array, code: NDArray[np.intp], dtype: Any
    ) -> None:
        log_odds = [binary.loo_log_odds for binary in found if isinstance(binary, EPPoint)]
        log_proba = coupled(np.column_stack(log_odds))
        own = log_proba[np.arange(code.size), code]
        share = counts / counts.sum()
        wrong = np.argmax(log_proba, axis=1) != code
        # Shares add up to one but for rounding.
        self.loo_error_ = min(float(share @ wrong), 1.0)
        self.loo_log_loss_ = -float(share @ own)
        self.loo_proba_ = np.exp(log_proba).astype(dtype)

    def _log_odds(self, columns: Standardized) -> Array:
        return np.column_stack([binary.log_odds(columns) for binary in self._binaries])

    def _log_proba(self, X: Any) -> Array:
        return coupled(self._log_odds(self._new_columns(X)))


def _dense(operator: Standardized) -> Array:
    n_rows, n_columns = operator.shape
    return operator.dense_tile(slice(0, n_rows), slice(0, n_columns))


def _robustly_scaled(standardized: Standardized, weight: Array) -> Standardized:
    """Median zero, and quartiles as far apart as those of a unit Gaussian.

    Where half of a column is one value there is no range, and mean and variance stay.
    """
    center, scale = standardized.center.copy(), standardized.scale.copy()
    for j in range(standardized.shape[1]):
        column = standardized.operator.columns(np.array([j]))[:, 0].astype(np.float64)
        low, middle, high = _quantiles(column, weight, (0.25, 0.5, 0.75))
        if high > low:
            center[j], scale[j] = middle, (high - low) / GAUSSIAN_QUARTILES
    return Standardized(standardized.operator, center, scale, standardized.constant)


def _quantiles(values: Array, weight: Array, levels: tuple[float, ...]) -> Array:
    """The first values that this share of all samples does not exceed, a sample of weight 2 being two."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weight[order])
    return values[order][np.searchsorted(below, np.array(levels) * below[-1])]


def _as_they_are(columns: Array) -> Standardized:
    """Columns whose lengths mean something, in the place of standardised ones."""
    n_columns = columns.shape[1]
    return Standardized(Dense(columns), np.zeros(n_columns), np.ones(n_columns))


# Attributes that only one of the methods leaves.
_OF_KNAPSACK = (
    "violation_cost_",
    "beta_",
    "n_sweeps_",
    "cv_error_",
    "cv_log_loss_",
    "settings_",
    "dual_bound_",
)
_OF_EP = (
    "channel_",
    "prior_",
    "log_evidence_",
    "evidence_path_",
    "loo_proba_",
    "loo_error_",
    "loo_log_loss_",
)
