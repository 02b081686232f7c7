"""Values of a few features in all samples: what heat maps and strips share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.estimators._summary import summary_of
from foldless.plots.drawing import Display
from foldless.plots.readings import class_codes, shown_features, standard_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ValuesDisplay(Display):
    """Values of features by samples, with the class of each sample.

    Parameters
    ----------
    values : array of shape (n_samples, n_features)
        In standard deviations about the mean.
    codes : int array of shape (n_samples,)
        The class of each sample, as a position in `classes`.
    classes : sequence
    proba : array of shape (n_samples, n_classes), optional
        Of each sample from all others: what a heat map orders samples by within their class.
    names : sequence of str, optional
        Of features.
    """

    N_FEATURES = 20  # of `from_estimator`, if not said otherwise

    def __init__(
        self,
        values: ArrayLike,
        codes: ArrayLike,
        classes: Sequence[Any] | NDArray[Any],
        *,
        proba: ArrayLike | None = None,
        names: Sequence[Any] | NDArray[Any] | None = None,
    ) -> None:
        self.values = np.asarray(values, dtype=np.float64)
        self.codes, self.classes = np.asarray(codes), classes
        self.proba = None if proba is None else np.asarray(proba)
        self.names = range(self.values.shape[1]) if names is None else names
        self._require_each(self.values.shape[0], "samples", "codes", "proba")
        self._require_each(self.values.shape[1], "features", "names")

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any,
        y: ArrayLike,
        *,
        n_features: int | None = None,
        fdr: float | None = None,
        names: Sequence[Any] | NDArray[Any] | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the table that a classifier was fitted to.

        The features are those selected; if there are none, those that differ most between the classes.
        """
        summary = summary_of(model)
        columns = shown_features(summary, fdr)[: cls.N_FEATURES if n_features is None else n_features]
        names = summary.feature_names if names is None else names
        display = cls(
            standard_values(X, columns),
            class_codes(np.asarray(y), summary.classes),
            summary.classes,
            proba=None if summary.loo is None else summary.loo.proba,
            names=columns if names is None else [names[j] for j in columns],
        )
        return display.plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw."""
        raise NotImplementedError
