"""Values of a few features, one point for each sample, class by class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from foldless.io import printable
from foldless.plots.drawing import BLACK, CLASS_LOOKS, MOST_CLASSES_NAMED, legend_below
from foldless.plots.values import ValuesDisplay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The place that the classes of a feature share, and that the points of a class share of theirs.
TOGETHER, APART = 0.8, 0.7
GOLDEN = 0.6180339887


class StripDisplay(ValuesDisplay):
    """Features from left to right, their classes side by side.

    Parameters
    ----------
    values : array of shape (n_samples, n_features)
        In standard deviations about the mean.
    codes : int array of shape (n_samples,)
        The class of each sample, as a position in `classes`.
    classes : sequence
    names : sequence of str, optional
        Of features.

    Attributes
    ----------
    ax_, figure_ : the axes and figure drawn into
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
