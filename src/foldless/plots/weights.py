"""The weights of the surest features, with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from foldless.estimators._summary import summary_of
from foldless.io import printable
from foldless.plots.drawing import BLACK, CLASS_LOOKS, MOST_CLASSES_NAMED, Display, Names, legend_below
from foldless.plots.readings import NORMAL_90, ranking, weights_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES_PER_FEATURE = 0.24


def height_of(n_features: int, n_rows: int) -> float:
    """Inches that so many features need, with a line for each row of weights."""
    return 1.5 + INCHES_PER_FEATURE * max(n_features, 4) * max(1.0, 0.5 * n_rows)


class WeightDisplay(Display):
    """Weights as points with 90 % intervals, one line for each feature, the first at the top.

    Parameters
    ----------
    weight : array of shape (n_features,) or (n_classes, n_features)
    std : array of the same shape, optional
        Posterior standard deviations; without them there are no intervals.
    names : sequence of str, optional
        Positions if not given.
    classes : sequence, optional
        Of two classes, those of negative and positive weights; of more, one for each row of `weight`.
    per : str
        What a weight is measured by, for the axis.

    Attributes
    ----------
    bars_ : list of the points with their intervals, one for each row of weights
    zero_ : the line of no weight
    legend_ : the legend; None if there is one row only, or too many
    """

    def __init__(
        self,
        weight: ArrayLike,
        std: ArrayLike | None = None,
        *,
        names: Names | None = None,
        classes: Names | None = None,
        per: str = "unit of the feature",
    ) -> None:
        self.weight = np.atleast_2d(np.asarray(weight, dtype=np.float64))
        self.std = None if std is None else np.atleast_2d(np.asarray(std, dtype=np.float64))
        self.names, self.classes, self.per = names, classes, per
        n_rows, n_features = self.weight.shape
        if self.std is not None and self.std.shape != self.weight.shape:
            raise ValueError(f"std has shape {self.std.shape} for weights of shape {self.weight.shape}.")
        self._require_each(n_features, "features", "names")
        if classes is not None and len(classes) != max(n_rows, 2):
            raise ValueError(f"classes has {len(classes)} entries for {n_rows} rows of weights.")

    @classmethod
    def from_estimator(
        cls, model: Any, *, n_features: int = 20, names: Names | None = None, ax: Axes | None = None
    ) -> Self:
        """Draw the `n_features` surest features of a fitted classifier."""
        summary = summary_of(model)
        weights, top = weights_of(summary), ranking(summary)[:n_features]
        names = summary.feature_names if names is None else names
        display = cls(
            weights.mean[:, top],
            None if weights.std is None else weights.std[:, top],
            names=top if names is None else [names[j] for j in top],
            classes=summary.classes,
            per=weights.per,
        )
        return display.plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw."""
        n_rows, n_features = self.weight.shape
        ax = self._begin(ax, height_of(n_features, n_rows))
        self.zero_ = ax.axvline(0.0, color=BLACK, lw=0.8, ls=(0, (4, 3)), zorder=1)
        self.bars_ = []
        for row in range(n_rows):
            colour, marker = CLASS_LOOKS[0 if n_rows == 1 else row % len(CLASS_LOOKS)]
            # Rows of one feature stand apart, but nearer to each other than to the next feature.
            height = np.arange(n_features) + 0.6 * ((row + 0.5) / n_rows - 0.5)
            reach = None if self.std is None else NORMAL_90 * self.std[row]
            label = None if self.classes is None or n_rows == 1 else printable(self.classes[row])
            # Of many classes most weights of a sparse model are zero: they would hide the others.
            weight = np.where((self.weight[row] == 0) & (n_rows > 1), np.nan, self.weight[row])
            self.bars_.append(
                ax.errorbar(
                    weight,
                    height,
                    xerr=reach,
                    fmt=marker,
                    ms=5 if n_rows == 1 else 4,
                    color=colour,
                    elinewidth=1.4 if n_rows == 1 else 0.9,
                    label=label,
                    zorder=3,
                )
            )
        self._name_axes(ax)
        named = self.classes is not None and 1 < n_rows <= MOST_CLASSES_NAMED
        self.legend_ = legend_below(ax) if named else None
        return self

    def _name_axes(self, ax: Axes) -> None:
        n_rows, n_features = self.weight.shape
        names = range(n_features) if self.names is None else self.names
        ax.set_yticks(range(n_features), [printable(name) for name in names], fontsize="small")
        for text in ax.get_yticklabels():
            text.set_parse_math(False)
        ax.set_ylim(n_features - 0.4, -0.6)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="y", lw=0.3, alpha=0.5)
        ax.set_axisbelow(True)
        interval = "" if self.std is None else ", with 90 % intervals"
        title = f"Weights of {n_features} features{interval}"
        sides = ""
        if n_rows == 1 and self.classes is not None:
            sides = "\n← {}    {} →".format(*(printable(label, 20) for label in self.classes))
        self._name(f"weight (log-odds per {self.per}){sides}", "", title)
