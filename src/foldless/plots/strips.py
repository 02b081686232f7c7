"""Values of a few features, one point for each sample, class by class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.io import printable
from foldless.plots.drawing import BLACK, CLASS_LOOKS, MOST_CLASSES_NAMED, Display, legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The place that the classes of a feature share, and that the points of a class share of theirs.
TOGETHER, APART = 0.8, 0.7
GOLDEN = 0.6180339887
# Longer names would run into each other.
MOST_LETTERS = 7


class StripDisplay(Display):
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

    def __init__(
        self,
        values: ArrayLike,
        codes: ArrayLike,
        classes: Sequence[Any] | NDArray[Any],
        *,
        names: Sequence[Any] | None = None,
    ) -> None:
        self.values, self.codes = np.asarray(values, dtype=np.float64), np.asarray(codes)
        self.classes = classes
        self.names = range(self.values.shape[1]) if names is None else names
        self._require_each(self.values.shape[0], "samples", "codes")
        self._require_each(self.values.shape[1], "features", "names")

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw."""
        n_features, n_classes = self.values.shape[1], len(self.classes)
        ax = self._begin(ax, (6.6, 5.0))
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
        ax.set_xticks(place, names, fontsize=8)
        slanted = max(map(len, names)) > MOST_LETTERS
        if slanted:
            for text in ax.get_xticklabels():
                text.set(rotation=30, ha="right", rotation_mode="anchor")
        for text in ax.get_xticklabels():
            text.set_parse_math(False)
        self._name("", "standard deviations", "")
        self.legend_ = None
        if n_classes <= MOST_CLASSES_NAMED:
            self.legend_ = legend_below(ax, columns=4, gap=1.0 if slanted else 0.5)
        return self
