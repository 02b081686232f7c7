"""SparseClassifier: the default, with no choice needed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit
from sklearn.utils import check_consistent_length, column_or_1d

from foldless.beliefs import Array
from foldless.channels import FlippedLabels, Logistic, Multinomial
from foldless.estimators._many import ManyClassesClassifier
from foldless.estimators._threads import one_blas_thread
from foldless.estimators.gamp import checked_generative_weight, checked_stopping
from foldless.operators import Standardized
from foldless.priors import HyperPrior, SupportsInclusion
from foldless.registry import registered
from foldless.selection import CredibleSet, credible_sets
from foldless.solution import Solution
from foldless.solvers import GAMP
from foldless.tuning.average import Average
from foldless.tuning.correlated import exact_cost, fit_correlated
from foldless.tuning.fit import Choices, Columns, Fit
from foldless.tuning.large import fit_large
from foldless.tuning.many_classes import Choices as ManyChoices
from foldless.tuning.many_classes import fit as fit_many
from foldless.tuning.many_correlated import fit_many_correlated
from foldless.tuning.many_large import fit_many_large
from foldless.tuning.many_models import ManyCorrelatedFit, ManyTable, average_of_one
from foldless.tuning.parameters import integrated
from foldless.tuning.polish import polished
from foldless.tuning.presence import mostly_zeros
from foldless.tuning.spectrum import spectral_excess

# What `flags_` may say: why inclusion probabilities should be read with care.
NOT_SPARSE = (
    "Models with many small weights predict left-out labels clearly better than a sparse one. Inclusion "
    "probabilities assume that few features matter: read them as a ranking."
)
TOO_LARGE_FOR_ITS_CORRELATIONS = (
    "Columns are correlated, and the table is too large for exact covariances. Inclusion probabilities of "
    "features that resemble each other may be wrong: read them as a ranking."
)
CLEAR_STANDARD_ERRORS = 2.0
# Up to here diagonal covariances do: AR(0.5) columns, at 1.1, are fitted alike by both solvers.
TOLERATED_EXCESS = 1.25
# Exact covariances cost O(smaller side² x larger side) an iteration; up to here, about half a second.
LARGEST_EXACT_COST = 1e10
# Up to here, about ten milliseconds: what message passing found is finished with exact covariances.
LARGEST_POLISH_COST = 2e8
# Up to here, about three: the fit is repeated at neighbours of its parameters.
LARGEST_INTEGRATION_COST = 5e7


@registered("estimator/sparse")
class SparseClassifier(ManyClassesClassifier):
    """Find the few features that decide a class, and classify with them.

    One fit without folds gives a tuned classifier, an inclusion probability and an interval for every
    feature, a selection at a stated false discovery rate, class probabilities, the leave-one-out error, and,
    of two classes, for every training sample the probability that its label is wrong. The same data give the
    same answer every time, in any units and any order.

    The model: a logistic likelihood in which a small share of labels may be wrong, and a spike-and-slab prior
    whose sparsity and scale are learnt. Where columns are independent (their largest eigenvalue says so), it
    is solved by message passing, blended with what class means say about features as far as that predicts
    left-out samples better; `GAMPClassifier` opens every choice of this. Where columns are correlated, as
    genes and voxels are, it is solved with exact covariances, and class probabilities are averaged over this
    model and dense ones, each weighted by how well it predicts left-out samples.

    More than two classes are fitted jointly: a score for each, the softmax of the scores, and row-sparse
    weights, so that a feature matters for all classes or for none and has one inclusion probability.

    Parameters
    ----------
    always_keep : list of column names or positions, optional
        Covariates such as age or batch that stay in the model whatever the data say.
    class_weight : dict or 'balanced', optional
    fdr : float, default=0.1
        False discovery rate of `transform`, and of `get_support` if it is not given another.
    generative_weight : 'auto' or float in [0, 1], default='auto'
        How far the likelihood also models features given the class; see `GAMPClassifier`.
    tol : float, default=1e-4
    max_iter : int, default=1000
    warm_start : bool, default=False
    verbose : int, default=0
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
    models_ : list of (name, weight)
        What predictions are averaged over, the weightiest first.
    credible_sets_ : list of CredibleSet
        Features that resemble each other, at least one of which is in with a stated probability: "one of
        these 4 features, probability 0.97". Empty if columns are independent: there each speaks for itself.
    solver_ : 'GAMP' or 'EP'
        Message passing with diagonal covariances, or with exact ones.
    flags_ : list of str
        Why inclusion probabilities should be read with care, if they should.

    Notes
    -----
    Other attributes are those of `GAMPClassifier`. Of D > 2 classes, `coef_` and `coef_std_` are
    (D, n_features), `intercept_` is (D,) and `loo_proba_` (n_samples, D); `credible_sets_` is empty, and
    labels are taken to be right: there is no `mislabel_probability_`.

    Examples
    --------
    >>> from foldless import SparseClassifier
    >>> from foldless.datasets import make_class_means
    >>> data = make_class_means(n_samples=100, n_features=2000, n_active=5, random_state=0)
    >>> model = SparseClassifier().fit(data.X, data.y)
    >>> sorted(model.get_support(fdr=0.1, indices=True)) == sorted(data.active)
    True
    """

    def __init__(
        self,
        *,
        always_keep: Sequence[str] | Sequence[int] | None = None,
        class_weight: dict[Any, float] | str | None = None,
        fdr: float = 0.1,
        generative_weight: float | str = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        warm_start: bool = False,
        verbose: int = 0,
        n_jobs: int | None = None,
        checkpoint: str | Path | None = None,
    ) -> None:
        self.always_keep = always_keep
        self.class_weight = class_weight
        self.fdr = fdr
        self.generative_weight = generative_weight
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
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
            How often each sample counts: weight 2 is the same as the row twice.
        groups : array of shape (n_samples,), optional
            Samples that belong together (of one subject, run or batch) and are left out together: models
            are then chosen, and `loo_error_` and its kin computed, by leaving out a group at a time.
        """
        self._groups = None if groups is None else self._checked_groups(groups, y)
        super().fit(X, y, sample_weight)
        del self._groups
        return self

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Log-odds of ``classes_[1]``; linear in X unless several models are averaged (`models_`)."""
        if getattr(self, "_average", None) is None:
            return super().decision_function(X)
        return self._label_log_odds(X).astype(self.coef_.dtype, copy=False)

    def _label_log_odds(self, X: Any) -> Array:
        average = getattr(self, "_average", None)
        if average is None:
            return super()._label_log_odds(X)
        with one_blas_thread():
            return np.asarray(average.log_odds(self._standardized(X)))

    def _choices(self) -> Choices:
        channel = FlippedLabels(Logistic())
        return Choices(
            prior="spike-and-slab",
            channel=channel,
            solver=GAMP(),
            tune=None,
            generative_weight=checked_generative_weight(self.generative_weight, channel),
            stopping=checked_stopping(self.tol, self.max_iter),
            hyper=HyperPrior(),
        )

    def _columns(self, n_features: int, always_keep: tuple[int, ...]) -> Columns:
        return Columns(n_features, always_keep, intercept=True, means_removed=False)

    def _solve(
        self,
        standardized: Standardized,
        labels: Array,
        weight: Array,
        columns: Columns,
        choices: Choices,
        left_out: Array,
    ) -> None:
        """GAMP where columns are independent, exact covariances where they are not and cost allows it."""
        self._average: Average | None = None
        self.models_ = [("sparse", 1.0)]
        self.credible_sets_: list[CredibleSet] = []
        self.flags_: list[str] = []
        excess = spectral_excess(standardized, labels, weight)
        groups = getattr(self, "_groups", None)
        many = self.classes_.size > 2
        cost = exact_cost(*standardized.shape) * (self.classes_.size if many else 1)
        affordable = cost <= LARGEST_EXACT_COST
        if groups is not None and not affordable:
            warnings.warn(
                f"{type(self).__name__}: leaving groups out needs exact covariances, which are too "
                f"costly for {standardized.shape[0]} x {standardized.shape[1]}. Samples are left out "
                "one by one; loo_error_ is optimistic if samples of a group resemble each other.",
                UserWarning,
                stacklevel=4,
            )
            groups = self._groups = None
        independent = excess <= TOLERATED_EXCESS and groups is None
        if many:
            # The blend with class means is for more features than samples; otherwise exact ones are cheap.
            n_samples, n_features = standardized.shape
            exact = affordable and (not independent or n_features <= n_samples)
            self._solve_many(
                standardized,
                labels,
                weight,
                columns,
                choices,
                left_out,
                exact=exact,
                correlated=excess > TOLERATED_EXCESS,
            )
            return
        if independent and (
            self.warm_start or not mostly_zeros(standardized, weight, columns.free(standardized.constant))
        ):
            self.solver_ = "GAMP"
            super()._solve(standardized, labels, weight, columns, choices, left_out)
            return
        exact = affordable and not independent
        fit = (
            partial(fit_correlated, group=groups) if exact else partial(fit_large, correlated=not independent)
        )
        result = fit(standardized, labels, weight, columns, choices, left_out=left_out, watch=self._watch())
        self.solver_ = "EP" if exact else "GAMP"
        sparse = self._finished(result.sparse) if independent else result.sparse
        self._publish(sparse, standardized.dtype)
        self._publish_average(result.average, labels, standardized.dtype)
        if exact:
            self._publish_sets(sparse.solution, standardized.constant, standardized.dtype)
        elif not independent:
            self.flags_.append(TOO_LARGE_FOR_ITS_CORRELATIONS)
        if result.dense_lead > CLEAR_STANDARD_ERRORS:
            self.flags_.append(NOT_SPARSE)
        self._tell(sparse)

    def _solve_many(
        self,
        standardized: Standardized,
        labels: Array,
        weight: Array,
        columns: Columns,
        choices: Choices,
        left_out: Array,
        *,
        exact: bool,
        correlated: bool,
    ) -> None:
        """The same for more than two classes: SHyGAMP, or EP with exact covariances within each class."""
        channel = Multinomial(self.classes_.size)
        many = ManyChoices(
            "row-sparse", channel, GAMP(), choices.generative_weight, choices.stopping, choices.hyper
        )
        kept, watch = columns.always_kept, self._watch()
        table = ManyTable(standardized, labels, weight, left_out, kept, channel)
        self.solver_ = "EP" if exact else "GAMP"
        if exact:
            result = fit_many_correlated(table, many, group=getattr(self, "_groups", None), watch=watch)
        elif correlated or table.mostly_zeros:
            result = fit_many_large(table, many, correlated=correlated, watch=watch)
            if correlated:
                self.flags_.append(TOO_LARGE_FOR_ITS_CORRELATIONS)
        else:
            sparse = fit_many(standardized, labels, weight, kept, many, left_out=left_out, watch=watch)
            result = ManyCorrelatedFit(sparse, average_of_one(sparse), 0.0)
        if result.dense_lead > CLEAR_STANDARD_ERRORS:
            self.flags_.append(NOT_SPARSE)
        self._publish_many(result.sparse, result.average, standardized.dtype)
        self._tell(result.sparse)

    def _finished(self, result: Fit) -> Fit:
        cost = exact_cost(*result.standardized.shape)
        if self.warm_start or cost > LARGEST_POLISH_COST:
            return result
        exact = polished(result, self._watch())
        if exact is result or not exact.solution.outcome.trustworthy or cost > LARGEST_INTEGRATION_COST:
            return exact
        return integrated(exact, HyperPrior(), self._watch())

    def _publish_average(self, average: Average, labels: Array, dtype: Any) -> None:
        """What prediction uses: attributes of the average instead of those of the sparse model alone."""
        self._average = average
        self.models_ = sorted(((name, weight) for name, _, weight in average.tried), key=lambda m: -m[1])
        coef = average.mean / self._scale
        self.coef_ = coef[np.newaxis].astype(dtype)
        self.coef_std_ = (np.sqrt(average.var) / self._scale)[np.newaxis].astype(dtype)
        self.intercept_ = np.array([average.intercept - self._center @ coef], dtype=dtype)
        share = self._label_weight / self._label_weight.sum()
        positive = expit(average.loo_log_odds)
        self.loo_proba_ = np.column_stack([1.0 - positive, positive]).astype(dtype)
        self.loo_error_ = min(float(share @ (labels * average.loo_log_odds <= 0)), 1.0)
        self.loo_log_loss_ = -float(share @ log_expit(labels * average.loo_log_odds))
        self.mislabel_probability_ = average.mislabel_probability.astype(dtype)

    def _publish_sets(self, solution: Solution, constant: NDArray[np.bool_], dtype: Any) -> None:
        """Credible sets, and what the joint posterior of twins says of each of them."""
        posterior, prior = solution.posterior, solution.problem.prior
        if not (solution.outcome.trustworthy and isinstance(prior, SupportsInclusion)):
            return
        inclusion = prior.inclusion_probability(posterior.cavity_mean, posterior.cavity_var)
        found = credible_sets(solution.problem, solution.state.sites, inclusion)
        self.credible_sets_ = list(found.sets)
        free = ~constant
        free[self._always_kept] = False
        refined = np.where(free, found.inclusion[: free.size], self.inclusion_probability_)
        self.inclusion_probability_ = refined.astype(dtype)

    @staticmethod
    def _checked_groups(groups: ArrayLike, y: ArrayLike) -> NDArray[np.intp]:
        given = column_or_1d(groups, warn=False)
        check_consistent_length(given, y)
        names, numbers = np.unique(given, return_inverse=True)
        if names.size < 2:
            raise ValueError(
                f"groups has only one group, {names[0]!r}: nothing would be left when it is left out. "
                "Leave groups out, or give at least two."
            )
        return np.asarray(numbers, dtype=np.intp)
