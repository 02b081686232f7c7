"""How every sample is classified by all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.io import printable
from foldless.plots.drawing import BLACK, BLUE, GREY, ORANGE, VERMILION, legend_below, tidy_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend


class LeaveOneOutDisplay:
    """The probability of the second class for every sample, predicted from all others.

    Samples stand in two groups by their recorded label, each in rising order; what lies in the shaded
    half of its group is on the wrong side.

    Parameters
    ----------
    probability : array of shape (n_samples,)
        Of the second class, for each sample from all others.
    labels : array of shape (n_samples,)
        As recorded; `classes` has their two values.
    classes : sequence of two labels
    suspected : bool array of shape (n_samples,), optional
        Samples whose label the model holds to be wrong.
    mislabelled : bool array of shape (n_samples,), optional
        For simulated data: samples whose label is wrong.
    error : float, optional
        The leave-one-out error, for the title.

    Attributes
    ----------
    ax_, figure_ : the axes and figure drawn into
    points_ : dict from what the points are to their artist
    legend_ : the legend
    """

    ax_: Axes
    figure_: Figure
    points_: dict[str, PathCollection]
    legend_: Legend

    def __init__(
        self,
        probability: ArrayLike,
        labels: ArrayLike,
        classes: Sequence[Any] | NDArray[Any],
        *,
        suspected: ArrayLike | None = None,
        mislabelled: ArrayLike | None = None,
        error: float | None = None,
    ) -> None:
        self.probability = np.asarray(probability)
        self.labels = np.asarray(labels)
        self.classes = classes
        self.suspected = None if suspected is None else np.asarray(suspected, dtype=bool)
        self.mislabelled = None if mislabelled is None else np.asarray(mislabelled, dtype=bool)
        self.error = error
        for what in ("labels", "suspected", "mislabelled"):
            given = getattr(self, what)
            if given is not None and len(given) != self.probability.size:
                raise ValueError(
                    f"{what} has {len(given)} entries for {self.probability.size} samples; "
                    "it needs one for each."
                )

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        y: ArrayLike,
        *,
        mislabelled: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the leave-one-out probabilities of a fitted classifier beside `y`, the labels of its fit."""
        if len(model.classes_) > 2:
            raise ValueError(
                f"This picture is for two classes; the model has {len(model.classes_)}. Its `loo_proba_` has "
                "a column for each: draw sklearn.metrics.ConfusionMatrixDisplay.from_predictions(y, "
                "model.classes_[model.loo_proba_.argmax(axis=1)])."
            )
        mislabel_probability = getattr(model, "mislabel_probability_", None)
        display = cls(
            model.loo_proba_[:, 1],
            y,
            model.classes_,
            suspected=None if mislabel_probability is None else mislabel_probability > 0.5,
            mislabelled=mislabelled,
            error=model.loo_error_,
        )
        return display.plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw."""
        ax = self.ax_ = tidy_axes(ax)
        self.figure_ = ax.get_figure(root=True)  # type: ignore[assignment]
        is_second = self.labels == self.classes[1]
        order = np.lexsort((self.probability, is_second))
        place = np.empty(order.size)
        place[order] = np.arange(1, order.size + 1)
        gap = max(2.0, 0.04 * order.size)
        place[is_second] += gap
        n_first = order.size - int(is_second.sum())
        middle = n_first + (gap + 1) / 2
        ax.axhline(0.5, color=BLACK, lw=0.8, ls=(0, (4, 3)), zorder=1)
        ax.axvline(middle, color=GREY, lw=0.6, zorder=1)
        end = order.size + gap + 1
        ax.fill_between([0, middle], 0.5, 1.03, color=BLACK, alpha=0.06, linewidth=0, zorder=0)
        ax.fill_between([middle, end], -0.03, 0.5, color=BLACK, alpha=0.06, linewidth=0, zorder=0)

        def draw(what: str, mask: NDArray[np.bool_], **look: Any) -> PathCollection:
            return ax.scatter(place[mask], self.probability[mask], label=f"{what} ({mask.sum()})", **look)

        first, second = (printable(label) for label in self.classes)
        self.points_ = {
            "first": draw(
                f"recorded as {first}", ~is_second, s=20, color=ORANGE, marker="s", linewidths=0, zorder=3
            ),
            "second": draw(f"recorded as {second}", is_second, s=20, color=BLUE, linewidths=0, zorder=3),
        }
        if self.mislabelled is not None:
            ring = {"s": 80, "facecolors": "none", "edgecolors": VERMILION, "linewidths": 1.5, "zorder": 4}
            self.points_["mislabelled"] = draw("label is wrong", self.mislabelled, **ring)
        if self.suspected is not None:
            cross = {"s": 34, "color": BLACK, "marker": "x", "linewidths": 1.2, "zorder": 5}
            self.points_["suspected"] = draw("label suspected", self.suspected, **cross)
        ax.set_ylim(-0.03, 1.03)
        ax.set_xlim(0, end)
        ax.set_xticks(
            [n_first / 2, middle + (end - middle) / 2], [f"recorded as {first}", f"recorded as {second}"]
        )
        ax.tick_params(axis="x", length=0)
        for text in ax.get_xticklabels():
            text.set_parse_math(False)
        ax.set_xlabel("samples, by recorded label and probability")
        ax.set_ylabel(f"probability of {second} from all other samples", parse_math=False)
        error = "" if self.error is None else f": {100 * self.error:.1f} % on the wrong side (shaded)"
        ax.set_title(f"Leave-one-out{error}", loc="left", fontsize="medium")
        self.legend_ = legend_below(ax)
        return self
