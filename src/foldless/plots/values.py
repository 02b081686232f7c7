"""Values of a few features in all samples: as colours, and as points class by class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from foldless.estimators._summary import summary_of
from foldless.io import printable
from foldless.plots.drawing import (
    BLACK,
    CLASS_LOOKS,
    MOST_CLASSES_NAMED,
    Display,
    Names,
    inches_of,
    legend_below,
    text_inches,
)
from foldless.plots.readings import class_codes, shown_features, standard_values
from foldless.plots.weights import height_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Standard deviations beyond which all values have one colour.
LIMIT = 2.5
# The place that the classes of a feature share, and that the points of a class share of theirs.
TOGETHER, APART = 0.8, 0.7
GOLDEN = 0.6180339887


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
        Of each sample from all others. A heat map orders samples of a class by it: of two classes by that of
        the second, of more by that of their own.
    names : sequence of str, optional
        Of features.
    """

    N_FEATURES = 20  # of `from_estimator`, if not said otherwise

    def __init__(
        self,
        values: ArrayLike,
        codes: ArrayLike,
        classes: Names,
        *,
        proba: ArrayLike | None = None,
        names: Names | None = None,
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
        names: Names | None = None,
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


class HeatMapDisplay(ValuesDisplay):
    """Features in rows, samples in columns: by class, and within a class by their probability.

    Attributes
    ----------
    image_ : the values, in the order of samples drawn
    order_ : positions of samples, from left to right
    """

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw."""
        n_samples, n_features = self.values.shape
        ax = self._begin(ax, height_of(n_features, 1) + 0.6)
        by = np.zeros(n_samples)
        if self.proba is not None:
            two = len(self.classes) == 2
            by = self.proba[np.arange(n_samples), 1 if two else self.codes]
        self.order_ = np.lexsort((np.nan_to_num(by), self.codes))
        self.image_ = ax.imshow(
            self.values[self.order_].T,
            aspect="auto",
            cmap="RdBu_r",
            vmin=-LIMIT,
            vmax=LIMIT,
            interpolation="none",
        )
        ax.set_yticks(range(n_features), [printable(name) for name in self.names], fontsize="small")
        for text in ax.get_yticklabels():
            text.set_parse_math(False)
        ax.set_xticks([])
        self._mark_classes(ax)
        ax.spines[:].set_visible(False)
        assert self.figure_ is not None
        bar = self.figure_.colorbar(self.image_, ax=ax, shrink=0.7, pad=0.02)
        bar.set_label("standard deviations", fontsize="small")
        self._name("", "", "")
        return self

    def _mark_classes(self, ax: Axes) -> None:
        """A strip of its colour above each class, and its name."""
        ordered = self.codes[self.order_]
        runs = [np.flatnonzero(ordered == code) for code in np.unique(ordered)]
        names = [printable(self.classes[int(ordered[own[0]])], 20) for own in runs]
        # Names stand above their classes if no two meet, and otherwise in a legend.
        centre = [0.5 * (own[0] + own[-1]) / ordered.size * inches_of(ax)[0] for own in runs]
        half = [0.5 * text_inches(f"{name}  ", 8.3) for name in names]
        room = zip(np.diff(centre), half[:-1], half[1:], strict=True)
        above = all(apart > left + right for apart, left, right in room)
        for own, name in zip(runs, names, strict=True):
            code = ordered[own[0]]
            colour, _ = CLASS_LOOKS[int(code) % len(CLASS_LOOKS)]
            left, right = own[0] - 0.5, own[-1] + 0.5
            ax.plot(
                [left, right],
                [1.02, 1.02],
                color=colour,
                lw=5,
                solid_capstyle="butt",
                clip_on=False,
                transform=ax.get_xaxis_transform(),
                label=name,
            )
            if own[0]:
                ax.axvline(left, color="white", lw=1.5)
            if above:
                ax.text(
                    (left + right) / 2,
                    1.05,
                    name,
                    fontsize="small",
                    ha="center",
                    va="bottom",
                    transform=ax.get_xaxis_transform(),
                    parse_math=False,
                )
        if not above and len(self.classes) <= MOST_CLASSES_NAMED:
            legend_below(ax)


class StripDisplay(ValuesDisplay):
    """Features from left to right, their classes side by side.

    Attributes
    ----------
    points_ : list of the points, one entry for each class
    medians_ : array of shape (n_features, n_classes)
    legend_ : the legend; None if there are too many classes
    """

    N_FEATURES = 8  # names and points of more would run into each other

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw."""
        n_features, n_classes = self.values.shape[1], len(self.classes)
        ax = self._begin(ax)
        width = TOGETHER / n_classes
        self.points_, self.medians_ = [], np.full((n_features, n_classes), np.nan)
        place = np.arange(n_features)
        for code in range(n_classes):
            own = self.values[self.codes == code]
            centre = place - TOGETHER / 2 + width * (code + 0.5)
            # Evenly scattered and the same every time.
            scatter = APART * width * ((np.arange(len(own)) * GOLDEN) % 1.0 - 0.5)
            colour, marker = CLASS_LOOKS[code % len(CLASS_LOOKS)]
            label = printable(self.classes[code], 20)
            x = centre + scatter[:, np.newaxis]
            self.points_.append(
                ax.scatter(x, own, s=9, color=colour, marker=marker, alpha=0.7, lw=0, label=label)
            )
            if len(own):
                self.medians_[:, code] = np.median(own, axis=0)
                ax.hlines(
                    self.medians_[:, code], centre - width / 2.4, centre + width / 2.4, color=BLACK, lw=1.4
                )
        names = [printable(name, 18) for name in self.names]
        self._slant(ax, place, names, room=1.0)
        self._name("", "standard deviations", "")
        self.legend_ = None
        if n_classes <= MOST_CLASSES_NAMED:
            self.legend_ = legend_below(ax, slanted=self.slanted_)
        return self
