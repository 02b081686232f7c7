"""What is found against what is called by mistake, at every threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.estimators._summary import summary_of
from foldless.io import printable
from foldless.plots.drawing import BLUE, GREY, Display
from foldless.plots.readings import read

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class RocDisplay(Display):
    """scikit-learn's receiver operating characteristic, of leave-one-out probabilities of two classes.

    Parameters
    ----------
    probability : array of shape (n_samples,)
        Of the second class, for each sample from all others.
    labels : array of shape (n_samples,)
    classes : sequence of the two labels
    auc_interval : tuple (lower, upper), optional
        Of 95 %, for the title.

    Attributes
    ----------
    ax_, figure_ : the axes and figure drawn into
    line_ : the curve
    auc_ : the area under it
    """

    def __init__(
        self,
        probability: ArrayLike,
        labels: ArrayLike,
        classes: Sequence[Any] | NDArray[Any],
        *,
        auc_interval: tuple[float, float] | None = None,
    ) -> None:
        if len(classes) != 2:
            raise ValueError(f"a receiver operating characteristic is of two classes; got {len(classes)}.")
        self.probability, self.labels = np.asarray(probability, dtype=np.float64), np.asarray(labels)
        self.classes, self.auc_interval = classes, auc_interval
        self._require_each(self.probability.size, "samples", "labels")

    @classmethod
    def from_estimator(cls, model: Any, y: ArrayLike, *, ax: Axes | None = None) -> Self:
        """Draw the leave-one-out probabilities of a fitted classifier beside `y`, the labels of its fit."""
        proba = read(model, "loo_proba_", "Use sklearn's RocCurveDisplay on samples set aside.")
        loo = summary_of(model).loo
        interval = None if loo is None or loo.worth is None else loo.worth.auc_interval
        return cls(proba[:, -1], y, model.classes_, auc_interval=interval).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw."""
        from sklearn.metrics import auc, roc_curve

        ax = self._begin(ax)
        # Where leave-one-out broke down there is nothing to compare.
        known = np.isfinite(self.probability)
        false, true, _ = roc_curve(self.labels[known] == self.classes[1], self.probability[known])
        self.auc_ = float(auc(false, true))
        ax.plot([0, 1], [0, 1], color=GREY, lw=1, ls=(0, (4, 3)))
        (self.line_,) = ax.plot(false, true, color=BLUE, lw=1.8)
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        negative, positive = (printable(label, 20) for label in self.classes)
        limits = (
            ""
            if self.auc_interval is None
            else " (95 % interval {:.2f} to {:.2f})".format(*self.auc_interval)
        )
        self._name(
            f"share of {negative} called {positive}",
            f"share of {positive} found",
            f"AUC {self.auc_:.2f}{limits}",
        )
        return self
