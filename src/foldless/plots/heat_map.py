"""Values of a few features in all samples, as colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from foldless.io import printable
from foldless.plots.drawing import CLASS_LOOKS, MOST_CLASSES_NAMED
from foldless.plots.values import ValuesDisplay
from foldless.plots.weights import height_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Standard deviations beyond which all values have one colour.
LIMIT = 2.5


class HeatMapDisplay(ValuesDisplay):
    """Features in rows, samples in columns: by class, and within a class by their probability.

    Parameters
    ----------
    values : array of shape (n_samples, n_features)
        In standard deviations about the mean.
    codes : int array of shape (n_samples,)
        The class of each sample, as a position in `classes`.
    classes : sequence
    proba : array of shape (n_samples, n_classes), optional
        What samples of a class are ordered by: of two the probability of the second, of more of their own.
    names : sequence of str, optional
        Of features.

    Attributes
    ----------
    ax_, figure_ : the axes and figure drawn into
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
        for code in np.unique(ordered):
            own = np.flatnonzero(ordered == code)
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
            )
            if own[0]:
                ax.axvline(left, color="white", lw=1.5)
            if len(self.classes) <= MOST_CLASSES_NAMED:
                ax.text(
                    (left + right) / 2,
                    1.05,
                    printable(self.classes[int(code)], 20),
                    fontsize="small",
                    ha="center",
                    va="bottom",
                    transform=ax.get_xaxis_transform(),
                    parse_math=False,
                )
