"""Which features matter, and how much: weight against inclusion probability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from foldless.estimators._summary import summary_of
from foldless.io import printable
from foldless.io.names import counted
from foldless.plots.drawing import (
    BLACK,
    BLUE,
    GREY,
    PROBABILITY_TICKS,
    SMALLEST_POINTS,
    VERMILION,
    Display,
    Names,
    legend_below,
    shown,
    spread,
    text_inches,
)
from foldless.plots.readings import Weights, read, weights_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

# Of the width of the axes, for names at each side.
MOST_ROOM = 0.38


class InclusionDisplay(Display):
    """Weight against inclusion probability of every feature; selected ones are coloured and named.

    Parameters
    ----------
    weight : array of shape (n_features,) or (n_classes, n_features)
        Of more than two classes the weight that is largest in size is drawn, and named with its class.
    inclusion_probability : array of shape (n_features,)
    selected : bool array of shape (n_features,)
    names : sequence of str, optional
        Positions if not given.
    truth : bool array of shape (n_features,), optional
        For simulated data: which features matter.
    fdr : float, optional
        The false discovery rate of the selection, for the title.
    classes : sequence, optional
        One for each row of `weight`, if there are several.
    per : str
        What a weight is measured by, for the axis.

    Attributes
    ----------
    points_ : dict from what the points are ("selected", "not selected", ...) to their artist
    labels_ : list of the names drawn
    threshold_ : the line of the least sure selected feature, or None if nothing is selected
    legend_ : the legend
    """

    def __init__(
        self,
        weight: ArrayLike,
        inclusion_probability: ArrayLike,
        selected: ArrayLike,
        *,
        names: Names | None = None,
        truth: ArrayLike | None = None,
        fdr: float | None = None,
        classes: Names | None = None,
        per: str = "unit of the feature",
    ) -> None:
        rows = Weights(np.atleast_2d(np.asarray(weight, dtype=np.float64)), None, per)
        self.weight, self.row = rows.at_largest, rows.largest
        self.classes = classes if len(rows.mean) > 1 else None
        self.per = per
        self.inclusion_probability = np.asarray(inclusion_probability)
        self.selected = np.asarray(selected, dtype=bool)
        self.names = names
        self.truth = None if truth is None else np.asarray(truth, dtype=bool)
        self.fdr = fdr
        arrays = ("inclusion_probability", "selected", "names", "truth")
        self._require_each(self.weight.size, "features", *arrays)

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        *,
        fdr: float | None = None,
        names: Names | None = None,
        truth: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw a fitted classifier, with its features selected at `fdr` (the model's own if not given).

        Of more than two classes the weight of a feature is its largest, with the class that it belongs to.
        """
        inclusion = read(model, "inclusion_probability_", "WeightDisplay draws weights alone.")
        selected = model.get_support(fdr)
        summary = summary_of(model)
        names = summary.feature_names if names is None else names
        mean, _, per = weights_of(summary)
        fdr, classes = model.fdr if fdr is None else fdr, model.classes_
        display = cls(mean, inclusion, selected, names=names, truth=truth, fdr=fdr, classes=classes, per=per)
        return display.plot(ax)

    def plot(self, ax: Axes | None = None, *, n_labels: int = 32, n_others: int = 0) -> Self:
        """Draw; the `n_labels` surest of the selected features are named, and so many others."""
        ax = self._begin(ax)
        self._draw_points(ax)
        self._set_scales(ax)
        self.labels_ = self._label(ax, n_labels, n_others)
        self.threshold_ = None
        if self.selected.any():
            least = float(shown(self.inclusion_probability[self.selected]).min())
            # Between the columns of names, not through them.
            self.threshold_ = ax.axhline(
                least, self._room, 1.0 - self._room, color=BLACK, lw=0.8, ls=(0, (4, 3)), zorder=1
            )
        which = "weight" if self.classes is None else "largest weight of any class"
        rate = "" if self.fdr is None else f" at false discovery rate {self.fdr:g}"
        title = f"{self.selected.sum()} of {counted(self.weight.size)} features selected{rate}"
        self._name(f"{which} (log-odds per {self.per})", "inclusion probability", title)
        self.legend_ = legend_below(ax)
        return self

    def _draw_points(self, ax: Axes) -> None:
        chosen, truth = self.selected, self.truth
        if truth is None:
            groups = {"not selected": ~chosen, "selected": chosen}
        else:
            groups = {
                "not selected": ~chosen & ~truth,
                "selected, true": chosen & truth,
                "selected, false": chosen & ~truth,
                "true, missed": ~chosen & truth,
            }
        white_edge: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.5}
        looks: dict[str, dict[str, Any]] = {
            # Ten thousand points as one image, also in an SVG.
            "not selected": {"s": 7, "color": GREY, "alpha": 0.55, "linewidths": 0, "rasterized": True},
            "selected": {"s": 30, "color": BLUE} | white_edge,
            "selected, true": {"s": 30, "color": BLUE} | white_edge,
            "selected, false": {"s": 42, "color": VERMILION, "marker": "X"} | white_edge,
            "true, missed": {"s": 34, "facecolors": "none", "edgecolors": BLACK, "linewidths": 1.2},
        }
        probability = shown(self.inclusion_probability)
        self.points_ = {
            what: ax.scatter(
                self.weight[mask],
                probability[mask],
                label=f"{what} ({counted(mask.sum())})",
                zorder=2 if what == "not selected" else 3,
                **looks[what],
            )
            for what, mask in groups.items()
        }

    def _set_scales(self, ax: Axes) -> None:
        from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

        probability = shown(self.inclusion_probability)
        ax.set_yscale("logit")
        # Room above and below, in odds because that is what the axis shows.
        low, high = probability.min(initial=0.5), probability.max(initial=0.5)
        ax.set_ylim(1 / (1 + 3 * (1 - low) / low), 1 / (1 + (1 - high) / high / 3))
        ax.yaxis.set_major_locator(FixedLocator(PROBABILITY_TICKS))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(FuncFormatter(lambda p, _: f"{p:.5f}".rstrip("0")))

    def _name_of(self, j: int) -> str:
        name = str(j) if self.names is None else printable(self.names[j])
        return name if self.classes is None else f"{name}: {printable(self.classes[self.row[j]])}"

    def _label(self, ax: Axes, n_labels: int, n_others: int) -> list[Annotation]:
        """Names in a column at each side, in the order of their points, joined to them by thin lines."""
        order = np.argsort(-self.inclusion_probability, kind="stable")
        chosen = self.selected[order]
        places = np.concatenate([order[chosen][:n_labels], order[~chosen][:n_others]])
        # Room at both sides for the longest of the names, so that no point or line is behind one.
        inches = max((text_inches(self._name_of(j), SMALLEST_POINTS) for j in places), default=0.0)
        width = ax.get_window_extent().width / self.figure_.dpi
        self._room = min(max(inches / width + 0.05, 0.2), MOST_ROOM)
        reach = (np.abs(self.weight).max(initial=0.0) or 1.0) / (1.0 - 2.0 * self._room)
        ax.set_xlim(-reach, reach)
        labels = []
        for side, x, align in (
            (places[self.weight[places] < 0], 0.02, "left"),
            (places[self.weight[places] >= 0], 0.98, "right"),
        ):
            data = np.column_stack([self.weight[side], shown(self.inclusion_probability[side])])
            heights = ax.transAxes.inverted().transform(ax.transData.transform(data))[:, 1]
            for j, point, y in zip(side, data, spread(heights, ax), strict=True):
                false = self.truth is not None and not self.truth[j]
                labels.append(
                    ax.annotate(
                        self._name_of(j),
                        xy=(point[0], point[1]),
                        xytext=(x, y),
                        textcoords="axes fraction",
                        ha=align,
                        va="center",
                        fontsize="x-small",
                        color=VERMILION if false else BLACK,
                        parse_math=False,
                        arrowprops={"arrowstyle": "-", "lw": 0.4, "color": GREY, "shrinkA": 1, "shrinkB": 3},
                    )
                )
        return labels
