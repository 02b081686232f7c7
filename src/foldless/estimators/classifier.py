"""SparseClassifier: the default, with no choice needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foldless.channels import FlippedLabels, Logistic
from foldless.estimators._base import MessagePassingClassifier
from foldless.estimators.gamp import checked_generative_weight, checked_stopping
from foldless.priors import HyperPrior
from foldless.solvers import GAMP
from foldless.tuning.fit import Choices, Columns


class SparseClassifier(MessagePassingClassifier):
    """Find the few features that decide a class, and classify with them.

    One fit without folds gives a tuned classifier, an inclusion probability and an interval for every
    feature, a selection at a stated false discovery rate, class probabilities, the leave-one-out error, and
    for every training sample the probability that its label is wrong. The same data give the same answer
    every time, in any units and any order. Two classes for now.

    The model: a logistic likelihood in which a small, estimated share of labels may be wrong, blended
    with what class means say about features as far as that predicts left-out samples better, and a
    spike-and-slab prior whose sparsity and scale are learnt. `GAMPClassifier` opens every choice.

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

    Attributes
    ----------
    See `GAMPClassifier`; they are the same.

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
    ) -> None:
        self.always_keep = always_keep
        self.class_weight = class_weight
        self.fdr = fdr
        self.generative_weight = generative_weight
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.verbose = verbose

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
