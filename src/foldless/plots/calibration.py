"""Whether probabilities mean what they say: those from all other samples beside what was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.io import printable
from foldless.plots.drawing import BLUE, Display, legend_below
from foldless.plots.readings import read

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Fewer samples in a bin than this say nothing of a probability; more bins than this nobody reads.
SAMPLES_PER_BIN = 12
MOST_BINS = 10
LEAST_DISTANCE = 0.04


class CalibrationDisplay(Display):
    """scikit-learn's calibration curve with 90 % intervals, of leave-one-out probabilities.

    Samples are sorted by probability and cut into bins of equal numbers, near ones joined. Of two classes it
    is the probability of the second; of more, that of the class predicted, beside how often that is right.

    Parameters
    ----------
    predicted : array of shape (n_samples,)
        The probability of an event, for each sample.
    happened : bool array of shape (n_samples,)
    event : str
        What the probability is of, for the axes.
    n_bins : int, optional
        From the number of samples if not given.

    Attributes
    ----------
    ax_, figure_ : the axes and figure drawn into
    line_ : the curve of `sklearn.calibration.CalibrationDisplay`
    intervals_ : of the share in each bin (Jeffreys' 90 % interval)
    legend_ : the legend
    """

    def __init__(
        self,
        predicted: ArrayLike,
        happened: ArrayLike,
        *,
        event: str = "the second class",
        n_bins: int | None = None,
    ) -> None:
        self.predicted = np.asarray(predicted, dtype=np.float64)
        self.happened = np.asarray(happened, dtype=bool)
        self.event = event
        if self.predicted.shape != self.happened.shape or not self.predicted.size:
            raise ValueError(
                f"happened has shape {self.happened.shape} for probabilities of shape "
                f"{self.predicted.shape}; it needs one entry for each, and at least one."
            )
        self.n_bins = n_bins or int(np.clip(self.predicted.size // SAMPLES_PER_BIN, 1, MOST_BINS))

    @classmethod
    def from_estimator(
        cls, model: Any, y: ArrayLike, *, n_bins: int | None = None, ax: Axes | None = None
    ) -> Self:
        """Draw the leave-one-out probabilities of a fitted classifier beside `y`, the labels of its fit."""
        proba = read(model, "loo_proba_", "Use sklearn's CalibrationDisplay on samples set aside.")
        return cls.from_proba(proba, y, model.classes_, n_bins=n_bins).plot(ax)

    @classmethod
    def from_proba(
        cls, proba: ArrayLike, y: ArrayLike, classes: NDArray[Any], *, n_bins: int | None = None
    ) -> Self:
        """Of class probabilities of samples, beside their labels."""
        labels, proba = np.asarray(y), np.asarray(proba, dtype=np.float64)
        if len(labels) != len(proba):
            raise ValueError(f"y has {len(labels)} labels for {len(proba)} samples of the fit.")
        # Where leave-one-out broke down there is nothing to compare.
        known = np.all(np.isfinite(proba), axis=1)
        labels, proba = labels[known], proba[known]
        if len(classes) == 2:
            return cls(proba[:, 1], labels == classes[1], event=printable(classes[1]), n_bins=n_bins)
        right = classes[np.argmax(proba, axis=1)] == labels
        return cls(proba.max(axis=1), right, event="the class predicted", n_bins=n_bins)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw."""
        from scipy.special import betaincinv
        from sklearn.calibration import CalibrationDisplay as Curve

        ax = self._begin(ax)
        bins = self._bins()
        mean = np.array([self.predicted[b].mean() for b in bins])
        count = np.array([b.size for b in bins])
        true = np.array([self.happened[b].sum() for b in bins])
        curve = Curve(true / count, mean, self.predicted).plot(ax=ax, color=BLUE, name="leave-one-out")
        self.line_ = curve.line_
        low, high = (betaincinv(true + 0.5, count - true + 0.5, q) for q in (0.05, 0.95))
        share = true / count
        # Jeffreys' interval ends at 0 or 1 where nothing or everything happened.
        reach = np.maximum(
            [share - np.where(true == 0, 0.0, low), np.where(true == count, 1.0, high) - share], 0
        )
        self.intervals_ = ax.errorbar(
            mean, share, yerr=reach, fmt="none", ecolor=BLUE, elinewidth=1.0, capsize=2, label="90 % interval"
        )
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        bins_said = "one bin" if len(bins) == 1 else f"{len(bins)} bins"
        self._name(
            f"probability of {self.event}, from all other samples",
            f"share in which it was {self.event}",
            f"Calibration, {self.predicted.size} samples in {bins_said}",
        )
        self.legend_ = legend_below(ax)
        return self

    def _bins(self) -> list[NDArray[np.intp]]:
        """Samples of like probability: equal numbers, but bins that a picture cannot tell apart are one."""
        order = np.argsort(self.predicted, kind="stable")
        bins: list[NDArray[np.intp]] = []
        for rows in np.array_split(order, min(self.n_bins, order.size)):
            if bins and self.predicted[rows].mean() - self.predicted[bins[-1]].mean() < LEAST_DISTANCE:
                bins[-1] = np.concatenate([bins[-1], rows])
            else:
                bins.append(rows)
        return bins
