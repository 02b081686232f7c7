"""What left-out samples show: how each is classified by all others, and what probabilities are worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.estimators._summary import summary_of
from foldless.io import printable
from foldless.plots.drawing import (
    BLACK,
    BLUE,
    CLASS_LOOKS,
    GREY,
    MOST_CLASSES_NAMED,
    Display,
    Names,
    legend_below,
)
from foldless.plots.readings import read

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection

# Fewer samples in a bin than this say nothing of a probability; more bins than this nobody reads.
SAMPLES_PER_BIN = 12
MOST_BINS = 10
LEAST_DISTANCE = 0.04


class LeaveOneOutDisplay(Display):
    """Class probabilities of every sample, predicted from all others.

    Samples stand in groups by their recorded label, each in rising order. Of two classes it is the
    probability of the second that is drawn, and what lies in the shaded half of its group is on the wrong
    side. Of more, it is the probability of the recorded class, and samples for which another class is more
    probable are marked.

    Parameters
    ----------
    probability : array of shape (n_samples,) or (n_samples, n_classes)
        Of the second class of two, or of every class, for each sample from all others.
    labels : array of shape (n_samples,)
        As recorded; `classes` has their values.
    classes : sequence of labels
    suspected : bool array of shape (n_samples,), optional
        Samples whose label the model holds to be wrong.
    mislabelled : bool array of shape (n_samples,), optional
        For simulated data: samples whose label is wrong.
    error : float, optional
        The leave-one-out error, for the title.

    Attributes
    ----------
    recorded_ : list of the points of each class, by recorded label
    marks_ : dict from what is marked ("suspected", "mislabelled", "missed") to its artist
    legend_ : the legend; None if there are too many classes for one
    """

    def __init__(
        self,
        probability: ArrayLike,
        labels: ArrayLike,
        classes: Names,
        *,
        suspected: ArrayLike | None = None,
        mislabelled: ArrayLike | None = None,
        error: float | None = None,
    ) -> None:
        given = np.asarray(probability)
        self.missed: NDArray[np.bool_] | None = None
        if given.ndim == 2 and len(classes) > 2:
            own = np.asarray(labels)[:, np.newaxis] == np.asarray(classes)
            self.missed = np.argmax(given, axis=1) != np.argmax(own, axis=1)
            given = np.sum(given * own, axis=1)
        self.probability = given[:, 1] if given.ndim == 2 else given
        self.labels = np.asarray(labels)
        self.classes = classes
        self.suspected = None if suspected is None else np.asarray(suspected, dtype=bool)
        self.mislabelled = None if mislabelled is None else np.asarray(mislabelled, dtype=bool)
        self.error = error
        self._require_each(self.probability.size, "samples", "labels", "suspected", "mislabelled")

    @classmethod
    def from_estimator(
        cls, model: Any, y: ArrayLike, *, mislabelled: ArrayLike | None = None, ax: Axes | None = None
    ) -> Self:
        """Draw the leave-one-out probabilities of a fitted classifier beside `y`, the labels of its fit."""
        proba = read(model, "loo_proba_", "Cross-validation can stand in: sklearn's cross_val_predict.")
        summary = summary_of(model)
        display = cls(
            proba,
            y,
            model.classes_,
            suspected=None
            if summary.mislabel_probability is None
            else np.isin(np.arange(len(proba)), summary.suspected()),
            mislabelled=mislabelled,
            error=model.loo_error_,
        )
        return display.plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw."""
        ax = self._begin(ax)
        groups = [self.labels == label for label in self.classes]
        place, edges = self._places(groups)
        for edge in edges[1:-1]:
            ax.axvline(edge, color=GREY, lw=0.6, zorder=1)
        if len(groups) == 2:
            ax.axhline(0.5, color=BLACK, lw=0.8, ls=(0, (4, 3)), zorder=1)
            shade: dict[str, Any] = {"color": BLACK, "alpha": 0.06, "linewidth": 0, "zorder": 0}
            ax.fill_between(edges[:2], 0.5, 1.03, **shade)
            ax.fill_between(edges[1:], -0.03, 0.5, **shade)

        def draw(what: str, mask: NDArray[np.bool_], **look: Any) -> PathCollection:
            return ax.scatter(place[mask], self.probability[mask], label=f"{what} ({mask.sum()})", **look)

        names = [printable(label) for label in self.classes]
        self.recorded_ = []
        for k, mask in enumerate(groups):
            colour, marker = CLASS_LOOKS[k % len(CLASS_LOOKS)]
            look = {"s": 20, "color": colour, "marker": marker, "linewidths": 0, "zorder": 3}
            self.recorded_.append(
                draw(names[k] if len(groups) > 2 else f"recorded as {names[k]}", mask, **look)
            )
        self.marks_ = self._mark(draw)
        ax.set_ylim(-0.03, 1.03)
        ax.set_xlim(edges[0], edges[-1])
        self._name_axes(ax, names, edges)
        self.legend_ = None
        if len(groups) <= MOST_CLASSES_NAMED:
            self.legend_ = legend_below(ax, slanted=self.slanted_)
        return self

    def _places(self, groups: list[NDArray[np.bool_]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Where samples stand: class after class, in rising order, with a gap between classes."""
        place = np.full(self.probability.size, np.nan)
        gap = max(2.0, 0.04 * self.probability.size)
        edges, begin = [0.0], 0.0
        for mask in groups:
            rows = np.flatnonzero(mask)
            place[rows[np.argsort(self.probability[rows], kind="stable")]] = begin + np.arange(
                1, rows.size + 1
            )
            begin += rows.size + gap
            edges.append(begin - (gap - 1) / 2)
        edges[-1] = begin - gap + 1
        return place, np.array(edges)

    def _mark(self, draw: Callable[..., PathCollection]) -> dict[str, PathCollection]:
        marks = {}
        if self.mislabelled is not None:
            ring = {"s": 80, "facecolors": "none", "edgecolors": BLACK, "linewidths": 1.5, "zorder": 4}
            marks["mislabelled"] = draw("label is wrong", self.mislabelled, **ring)
        if self.suspected is not None:
            cross = {"s": 34, "color": BLACK, "marker": "x", "linewidths": 1.2, "zorder": 5}
            marks["suspected"] = draw("label suspected", self.suspected, **cross)
        if self.missed is not None:
            ring = {"s": 60, "facecolors": "none", "edgecolors": BLACK, "linewidths": 0.9, "zorder": 4}
            marks["missed"] = draw("another is likelier", self.missed, **ring)
        return marks

    def _name_axes(self, ax: Axes, names: list[str], edges: NDArray[np.float64]) -> None:
        two = len(names) == 2
        middles = (edges[:-1] + edges[1:]) / 2
        shown = [f"recorded as {name}" if two else name for name in names]
        self._slant(ax, middles, shown if len(names) <= MOST_CLASSES_NAMED else [""] * len(names))
        ax.tick_params(axis="x", length=0)
        event = names[1] if two else "the recorded class"
        error = ""
        if self.error is not None:
            where = "on the wrong side (shaded)" if two else "taken for another class"
            error = f": {100 * self.error:.1f} % {where}"
        self._name(
            "samples, by recorded label and probability",
            f"probability of {event}, from all others",
            f"Leave-one-out{error}",
        )


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
    line_ : the curve
    auc_ : the area under it
    """

    def __init__(
        self,
        probability: ArrayLike,
        labels: ArrayLike,
        classes: Names,
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
