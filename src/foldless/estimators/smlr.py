"""SMLRClassifier: sparse multinomial logistic regression, exact, certified, tuned without folds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.special import log_softmax
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from foldless.beliefs import Array
from foldless.docstrings import like
from foldless.estimators._kernel_basis import Kernel, kernel_matrix
from foldless.estimators._scikit_learn import SampleWeights, SelectingClassifier, all_finite, unless_finite
from foldless.estimators._summary import (
    AS_THEY_ARE,
    BASIS_STANDARDISED,
    STANDARDISED,
    KernelBasis,
    Sentence,
    Summary,
    basics,
    said,
)
from foldless.evaluation import worth_of
from foldless.operators import Dense, Operator, Standardized, operator_from
from foldless.registry import registered
from foldless.solvers.coordinates import Coordinates
from foldless.solvers.smlr import ALGORITHMS, L1, PENALTIES, Labels, Regression, RegressionFit, Stop
from foldless.solvers.smlr.newton_loo import NewtonLOO, scored
from foldless.solvers.smlr.rate import (
    Task,
    Tuned,
    by_criterion,
    by_folds,
    by_integration,
    by_leave_one_out,
    rate_grid,
)
from foldless.theory.bounds import bounds, operator_vote

TUNINGS = ("alo", "bayes", "bound", "cv")
PENALTY_WORDS = {
    "l1": "an L1 penalty",
    "l2": "an L2 penalty",
    "group": "a group penalty",
    "none": "no penalty",
}
ALGORITHM_WORDS = {
    "auto": "proximal Newton steps",
    "component-wise": "component-wise updates",
    "block": "block updates",
}
# Of the PAC-Bayes bound that tuning='bound' minimises; where its minimum lies hardly depends on it.
BOUND_DELTA = 0.05


@registered("estimator/smlr")
@dataclass(eq=False, repr=False)
class SMLRClassifier(SelectingClassifier):
    """Sparse multinomial logistic regression [Krishnapuram, Carin, Figueiredo, Hartemink 2005].

    The classifier that minimises log loss plus a penalty, for any number of classes, on the features
    themselves or on kernels around the training samples. The optimum is unique but for ties and is found
    to a stated duality gap; the rate of the penalty is chosen in one fit, without folds.

    Parameters
    ----------
    penalty : {'l1', 'l2', 'group', 'none'}, default='l1'
        'l1' is SMLR, 'l2' is RMLR, 'group' keeps or drops a feature for all classes together, 'none' is
        maximum likelihood. The intercept carries no penalty.
    rate : 'auto' or float, default='auto'
        λ in Σ log loss + λ Σ|w| (or λ/2 Σw², or λ Σ‖wᵢ‖), w being weights of standardised columns.
    tuning : {'alo', 'bayes', 'bound', 'cv'}, default='alo'
        How rate='auto' is chosen: by approximate leave-one-out log loss; by integrating it out (SBMLR; 'l1'
        only); by the smallest PAC-Bayes bound (two classes and 'l1' only; for thousands of samples); by
        cross-validated log loss.
    kernel : None, str or callable, default=None
        None fits the features. Otherwise the basis functions are k(x, xₘ) for every training sample xₘ (equal
        ones once), of which few are kept: 'rbf', 'poly', 'sigmoid', 'linear' or any other name that
        scikit-learn's ``pairwise_kernels`` knows, or a function of two samples, a Mercer kernel or not.
    gamma, degree, coef0
        Parameters of kernels; gamma is 1/(n_features · variance of X) if None.
    algorithm : {'auto', 'component-wise', 'block'}, default='auto'
        'auto' is proximal Newton. The paper's own two find the same optimum, more slowly.
    standardize : bool, default=True
        Whether the penalty sees columns of mean zero and unit variance (never copied) or X as it is.
    fit_intercept : bool, default=True
        Whether there is a level beside the weights.
    reference_class : label, optional
        Gives this class no weights of its own, as in the paper. By default all classes of three or more
        have weights, so that no class is special. Two classes have one set of weights either way.
    class_weight : dict or 'balanced', optional
        What an error of each class costs, in the fit and in the choice of its rate.
    n_rates : int, default=50
        Rates on the path that 'alo', 'bound' and 'cv' choose from.
    n_folds : int, default=10
        Folds of tuning='cv'.
    tol : float, default=1e-6
        Duality gap at which a fit ends, relative to the objective.
    max_iter : int, default=10000
        Newton steps, block updates or sweeps, of each fit.

    Attributes
    ----------
    coef_, intercept_ : arrays of shape (1 or n_classes, n_features) and (1 or n_classes,)
        In the units of X. With a kernel, of the basis functions in `basis_`.
    rate_, rate_path_ : float, list of (float, float)
        The rate used; the rates looked at and the criterion there.
    n_kept_ : int
        Features, or basis functions, with a weight that is not zero.
    basis_, basis_indices_ : arrays of shape (n_kept, n_features) and (n_kept,)
        The kept training samples and their positions, with a kernel.
    objective_, duality_gap_, kkt_residual_ : float
        Loss plus penalty; how far above the minimum it can be; the largest violation of the optimality
        conditions over all weights.
    loo_proba_, loo_error_, loo_log_loss_
        Class probabilities of each training sample from all others (approximately; for 'l1' checked by refits
        where it matters), their error and mean log loss. NaN where the approximation breaks down.
    loo_worth_ : Worth
        What these are worth: ``error_interval`` (95 %), ``auc`` and ``auc_interval``,
        ``calibration_slope``, and the same of class frequencies, ``guessing_error``, ``guessing_log_loss``.
    outcome_, n_iter_ : Outcome, int
        How the iteration ended, with ``outcome_.advice``, and after how many steps in all.

    See Also
    --------
    SparseClassifier : Few features with probabilities and intervals instead of one penalised optimum.
    BayesPointClassifier : Kernels without a penalty: the average of all classifiers.

    Examples
    --------
    >>> from foldless import SMLRClassifier
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SMLRClassifier().fit(X, y)
    >>> bool(model.loo_error_ < 0.05)
    True
    """

    _: KW_ONLY
    penalty: Literal["l1", "l2", "group", "none"] = "l1"
    rate: float | str = "auto"
    tuning: Literal["alo", "bayes", "bound", "cv"] = "alo"
    kernel: Kernel | None = None
    gamma: float | None = None
    degree: float = 3
    coef0: float = 1
    algorithm: str = "auto"
    standardize: bool = True
    fit_intercept: bool = True
    reference_class: Any = None
    class_weight: dict[Any, float] | str | None = None
    n_rates: int = 50
    n_folds: int = 10
    tol: float = 1e-6
    max_iter: int = 10_000

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Scores: for two classes the log-odds of ``classes_[1]``, else one score per class."""
        scores = self._class_scores(X)
        return scores[:, 1] - scores[:, 0] if self.classes_.size == 2 else scores

    def get_support(self, indices: bool = False) -> NDArray[Any]:
        """The features that the classifier uses; with a kernel all of them (see `basis_indices_`)."""
        check_is_fitted(self)
        kernel = self.kernel is not None
        mask = np.ones(self.n_features_in_, dtype=bool) if kernel else np.any(self.coef_ != 0, axis=0)
        return np.flatnonzero(mask) if indices else mask

    @like(SelectingClassifier.decision_function)
    def penalised_basis(self, X: Any) -> tuple[Operator, Array, float]:
        """For two classes: the columns as the penalty sees them, their weights, and the intercept.

        Of a kernel, only the kept basis functions; the others have weight zero and are forgotten.

        Returns
        -------
        Operator, array of shape (n_columns,), float
            Columns, weights and intercept.
        """
        return self._operator(self._new_data(X)), self._weights_inside[:, 0], float(self._intercept_inside[0])

    def _log_proba(self, X: Any) -> Array:
        return log_softmax(self._class_scores(X), axis=1)

    # ------------------------------------------------------------------ choices

    def _check_parameters(self) -> None:
        self._check_one_of("penalty", PENALTIES)
        self._check_one_of("tuning", TUNINGS)
        self._check_one_of("algorithm", ALGORITHMS)
        if isinstance(self.rate, str):
            if self.rate != "auto":
                raise ValueError(f"rate must be 'auto' or a positive number; got {self.rate!r}.")
        else:
            check_scalar(self.rate, "rate", Real, min_val=0.0, include_boundaries="neither")
        check_scalar(self.n_rates, "n_rates", Integral, min_val=2)
        check_scalar(self.n_folds, "n_folds", Integral, min_val=2)
        check_scalar(self.tol, "tol", Real, min_val=0.0)
        check_scalar(self.max_iter, "max_iter", Integral, min_val=1)
        if self.kernel == "precomputed":
            raise ValueError(
                "kernel='precomputed' is what kernel=None does: the columns of X are the basis functions."
            )

    def _reference(self) -> int | None:
        if self.reference_class is None:
            return None
        found = np.flatnonzero(self.classes_ == self.reference_class)
        if found.size == 0:
            raise ValueError(
                f"reference_class={self.reference_class!r} is not among the classes {list(self.classes_)}."
            )
        # Two classes have the one score of the second, whoever is the reference.
        return None if self.classes_.size == 2 else int(found[0])

    # ------------------------------------------------------------------ basis functions

    def _fitted_basis(self, X: Any, weight: Array, count: Array) -> Operator:
        """The columns that carry weights, standardised by the training samples."""
        operator = operator_from(X)
        for name in ("basis_", "basis_indices_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        if self.kernel is not None:
            self._kernel_gamma = self._default_gamma(operator, count)
            # A row that is there twice, or not at all, is no reason for another basis function.
            self.basis_indices_ = _distinct_rows(X, np.flatnonzero(count))
            self.basis_ = X[self.basis_indices_]
            operator = operator_from(self._kernel(X, self.basis_))
        if not self.standardize:
            self._center: Array = np.zeros(operator.shape[1])
            self._scale: Array = np.ones(operator.shape[1])
            return operator
        standardized = Standardized.fit(operator, weight)
        self._center, self._scale = standardized.center, standardized.scale
        return standardized

    def _default_gamma(self, operator: Operator, count: Array) -> float:
        if self.gamma is not None:
            return float(self.gamma)
        means, variances = operator.column_moments(count)
        variance = float(np.mean(variances) + np.var(means))  # of all entries of X
        return 1.0 / (operator.shape[1] * variance) if variance > 0 else 1.0

    def _kernel(self, X: Any, samples: Any) -> NDArray[Any]:
        """Basis functions around `samples`, at the rows of X."""
        assert self.kernel is not None
        options = {"gamma": self._kernel_gamma, "degree": self.degree, "coef0": self.coef0}
        return kernel_matrix(X, samples, self.kernel, **options)

    def _operator(self, X: Any) -> Operator:
        """The basis of a new sample, as the fit saw it."""
        operator = operator_from(X if self.kernel is None else self._kernel(X, self.basis_))
        return Standardized(operator, self._center, self._scale) if self.standardize else operator

    def _class_scores(self, X: Any) -> NDArray[Any]:
        """One score per class; that of a class without weights is zero."""
        X = self._new_data(X, finite=self.kernel is not None)
        scores = np.zeros((X.shape[0], self.classes_.size))
        inside: Array = np.tile(self._intercept_inside, (X.shape[0], 1))
        if self._weights_inside.shape[0]:
            with unless_finite():
                inside = all_finite(self, X, inside + self._operator(X).scores(self._weights_inside))
        scores[:, self._free] = inside
        return scores.astype(self.coef_.dtype, copy=False)

    # ------------------------------------------------------------------ the fit

    def _fit(self, X: Any, code: NDArray[np.intp], weights: SampleWeights) -> str:
        sample_weight, label_weight = weights.counted, weights.given
        labels = Labels.of(code, self.classes_.size, sample_weight, self._reference())
        basis = self._fitted_basis(X, sample_weight, label_weight)
        kind = PENALTIES[self.penalty]
        n_rows, n_columns = basis.shape
        reduced = None
        if n_columns > n_rows and not kind.sparse:
            reduced = Coordinates.of(basis, np.ones(n_columns, dtype=bool))
        problem = Regression(Dense(reduced.basis) if reduced else basis, labels, bool(self.fit_intercept))
        task = Task(problem, kind, Stop(float(self.tol), int(self.max_iter)), self.algorithm)
        tuned = self._tuned(task)
        fitted = tuned.fitted
        penalty = kind(fitted.rate)
        loo = tuned.loo or NewtonLOO(problem, label_weight).of(penalty, fitted)
        # Whatever the rate was chosen for, errors are reported as errors.
        loo = scored(weights.for_equals(loo.log_proba), labels.code, label_weight)
        inside = fitted.coef(problem.operator.shape[1])
        if reduced is not None:
            inside = reduced.weights(inside)

        self.rate_ = fitted.rate
        self.rate_path_ = list(zip(tuned.rates.tolist(), tuned.criterion.tolist(), strict=True))
        self.objective_, self.duality_gap_ = fitted.objective, fitted.duality_gap
        self.kkt_residual_, self.outcome_ = fitted.kkt_residual, fitted.outcome
        self.n_iter_ = max(tuned.n_iter, 1)
        self.loo_proba_ = np.exp(loo.log_proba).astype(basis.dtype)
        self.loo_log_loss_, self.loo_error_ = loo.log_loss, loo.error
        self.loo_worth_ = worth_of(loo.log_proba, labels.code, label_weight)
        self._publish_weights(inside, fitted.intercept, labels, basis.dtype)
        return f", with a duality gap of {self.duality_gap_:.1e}"

    def _publish_weights(self, weights: Array, intercept: Array, labels: Labels, dtype: Any) -> None:
        if self.kernel is not None:
            kept = np.flatnonzero(np.any(weights != 0, axis=1))
            self.basis_indices_, self.basis_ = self.basis_indices_[kept], self.basis_[kept]
            self._center, self._scale = self._center[kept], self._scale[kept]
            weights = weights[kept]
        self._free, self._weights_inside, self._intercept_inside = labels.free, weights, intercept
        self.n_kept_ = int(np.count_nonzero(np.any(weights != 0, axis=1)))
        outside = weights / self._scale[:, np.newaxis]
        shift = intercept - self._center @ outside
        n_rows = 1 if self.classes_.size == 2 else self.classes_.size
        coef, level = np.zeros((n_rows, outside.shape[0])), np.zeros(n_rows)
        place = slice(None) if n_rows == 1 else labels.free
        coef[place], level[place] = outside.T, shift
        self.coef_, self.intercept_ = coef.astype(dtype), level.astype(dtype)

    @property
    def _rate_by(self) -> str:
        """Where the rate comes from: "none" for no penalty, "given", or one of `TUNINGS`."""
        if self.penalty == "none":
            return "none"
        return self.tuning if self.rate == "auto" else "given"

    def _tuned(self, task: Task) -> Tuned:
        rate_by = self._rate_by
        if rate_by in ("none", "given"):
            fitted = task.at(0.0 if rate_by == "none" else float(self.rate))
            return Tuned(fitted, n_iter=fitted.n_iter)
        if rate_by == "bayes":
            return by_integration(task)
        rates = rate_grid(task.problem, task.penalty, int(self.n_rates))
        # The rate answers the question that the fit answers, so a class counts as much here as there.
        cost = task.problem.labels.sample_weight
        if rate_by == "alo":
            return by_leave_one_out(task, rates, cost)
        if rate_by == "cv":
            return by_folds(task, rates, int(self.n_folds), cost)
        return by_criterion(task, rates, self._bound_criterion(task.problem))

    # ------------------------------------------------------------------ the summary

    def _summary(self) -> Summary:
        kernel = None if self.kernel is None else KernelBasis(self.kernel, self.basis_indices_)
        columns = STANDARDISED if kernel is None else BASIS_STANDARDISED
        text = "approximate leave-one-out (Rad and Maleki 2020)"
        how = said(text, ("left out", "samples"), ("left out by", "approximation"))
        return Summary(
            **basics(self),
            method=self._account(),
            columns=columns if self.standardize else AS_THEY_ARE,
            scale=self._scale if self.standardize else None,
            kernel=kernel,
            loo=self._left_out(how),
            measures=(
                *(() if self.penalty == "none" else (("rate of the penalty", f"{self.rate_:.4g}"),)),
                ("duality gap", f"{self.duality_gap_:.1e}"),
                ("largest violation of optimality", f"{self.kkt_residual_:.1e}"),
            ),
        )

    def _account(self) -> tuple[Sentence, ...]:
        on = "features" if self.kernel is None else "kernels around the training samples"
        model = said(
            f"Multinomial logistic regression with {PENALTY_WORDS[self.penalty]} on the weights of {on} "
            f"(Krishnapuram et al. 2005) was fitted to a duality gap of {self.duality_gap_:.1e} by "
            f"{ALGORITHM_WORDS[self.algorithm]}.",
            ("penalty", self.penalty),
            ("kernel", self.kernel is not None),
            ("algorithm", self.algorithm),
        )
        rate, n = f"The rate of the penalty is {self.rate_:.4g}", len(self.rate_path_)
        text = {
            "none": "There is no penalty: the fit is maximum likelihood.",
            "given": f"{rate}, given beforehand.",
            "bayes": f"{rate}: it was integrated out (Cawley et al. 2007), in {n} rounds.",
            "alo": f"{rate}: of {n} rates it has the smallest approximate leave-one-out log loss "
            "(Rad and Maleki 2020).",
            "bound": f"{rate}: of {n} rates it has the smallest PAC-Bayes bound.",
            "cv": f"{rate}: of {n} rates it has the smallest {self.n_folds}-fold cross-validated log loss.",
        }[self._rate_by]
        folds = (("folds", self.n_folds),) if self._rate_by == "cv" else ()
        return model, said(text, ("rate by", self._rate_by), ("rates", n), *folds)

    def _bound_criterion(self, problem: Regression) -> Callable[[RegressionFit], float]:
        """The PAC-Bayes bound of a fit, with a union bound over the path."""
        if problem.labels.n_classes != 2 or PENALTIES[self.penalty] is not L1:
            raise ValueError(
                "tuning='bound' needs two classes and penalty='l1', which the bound is for; got "
                f"{problem.labels.n_classes} classes and penalty={self.penalty!r}. Use tuning='alo'."
            )
        labels = np.where(problem.labels.code == problem.labels.free[0], 1.0, -1.0)

        def criterion(fitted: RegressionFit) -> float:
            weights, intercept = fitted.coef(problem.operator.shape[1])[:, 0], float(fitted.intercept[0])
            return bounds(
                np.append(weights, intercept) if problem.intercept else weights,
                fitted.rate,
                lambda var: operator_vote(problem.operator, weights, intercept, var),
                labels,
                BOUND_DELTA / self.n_rates,
            ).gibbs

        return criterion


def _distinct_rows(X: Any, among: NDArray[np.intp]) -> NDArray[np.intp]:
    """The first of every set of equal rows."""
    first: dict[bytes, np.intp] = {}
    rows = X.tocsr() if issparse(X) else X
    for i in among:
        if issparse(X):
            own = slice(rows.indptr[i], rows.indptr[i + 1])
            key = rows.indices[own].tobytes() + rows.data[own].tobytes()
        else:
            key = rows[i].tobytes()
        first.setdefault(key, i)
    return np.array(list(first.values()), dtype=np.intp)
