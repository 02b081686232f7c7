"""Pictures of fitted models, in the style of scikit-learn's displays: they draw, and compute nothing.

    InclusionDisplay.from_estimator(model, fdr=0.1).figure_.savefig("features.png")

Matplotlib is imported when something is drawn, so that importing this module costs nothing.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D
    from matplotlib.text import Annotation

# From the palette of Okabe and Ito, told apart with every kind of colour vision; shapes differ as well.
BLUE, ORANGE, VERMILION, GREY, BLACK = "#0072B2", "#E69F00", "#D55E00", "#9A9A9A", "#222222"
# A logit axis has no place for 0 and 1; a picture does not tell probabilities beyond these from them.
SHOWN_PROBABILITIES = (1e-5, 1 - 1e-5)
PROBABILITY_TICKS = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1 - 1e-5)
LONGEST_NAME = 28


def printable(name: object, longest: int = LONGEST_NAME) -> str:
    """A name as it can be shown anywhere: control characters spelt out, overlong ones cut.

    Names come from files of others: an escape sequence in one would steer the terminal.
    """
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(name))
    return shown if len(shown) <= longest else shown[: longest - 3] + "..."


def save(figure: Figure, path: Path, *, dpi: int = 150) -> None:
    """Write a picture whole or not at all: an old one stays until the new one is complete."""
    # Beside the target, so that renaming stays on one disk; "x" refuses to follow a link laid there.
    unfinished = path.with_name(f".{path.stem}-{secrets.token_hex(4)}{path.suffix}")
    try:
        with open(unfinished, "xb") as file:
            figure.savefig(file, format=path.suffix.lstrip(".") or "png", dpi=dpi)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


class InclusionDisplay:
    """Weight against inclusion probability of every feature; selected ones are coloured and named.

    Parameters
    ----------
    weight, inclusion_probability : arrays of shape (n_features,)
    selected : bool array of shape (n_features,)
    names : sequence of str, optional
        Positions if not given.
    truth : bool array of shape (n_features,), optional
        For simulated data: which features matter.
    fdr : float, optional
        The false discovery rate of the selection, for the title.

    Attributes
    ----------
    ax_, figure_ : the axes and figure drawn into
    points_ : dict from what the points are ("selected", "not selected", ...) to their artist
    labels_ : list of the names drawn
    threshold_ : the line of the least sure selected feature, or None if nothing is selected
    legend_ : the legend
    """

    ax_: Axes
    figure_: Figure
    points_: dict[str, PathCollection]
    labels_: list[Annotation]
    threshold_: Line2D | None
    legend_: Legend

    def __init__(
        self,
        weight: ArrayLike,
        inclusion_probability: ArrayLike,
        selected: ArrayLike,
        *,
        names: Sequence[Any] | NDArray[Any] | None = None,
        truth: ArrayLike | None = None,
        fdr: float | None = None,
    ) -> None:
        self.weight = np.ravel(np.asarray(weight))
        self.inclusion_probability = np.asarray(inclusion_probability)
        self.selected = np.asarray(selected, dtype=bool)
        self.names = names
        self.truth = None if truth is None else np.asarray(truth, dtype=bool)
        self.fdr = fdr
        n_features = self.weight.size
        for what in ("inclusion_probability", "selected", "names", "truth"):
            given = getattr(self, what)
            if given is not None and len(given) != n_features:
                raise ValueError(
                    f"{what} has {len(given)} entries for {n_features} features; it needs one for each."
                )

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        *,
        fdr: float | None = None,
        names: Sequence[Any] | NDArray[Any] | None = None,
        truth: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw a fitted classifier, with its features selected at `fdr` (the model's own if not given)."""
        selected = model.get_support(fdr)
        names = getattr(model, "feature_names_in_", None) if names is None else names
        display = cls(
            model.coef_,
            model.inclusion_probability_,
            selected,
            names=names,
            truth=truth,
            fdr=model.fdr if fdr is None else fdr,
        )
        return display.plot(ax)

    def plot(self, ax: Axes | None = None, *, n_labels: int = 32) -> Self:
        """Draw; the `n_labels` surest of the selected features are named."""
        ax = self.ax_ = _axes(ax)
        self.figure_ = ax.get_figure(root=True)  # type: ignore[assignment]
        self._draw_points(ax)
        self.threshold_ = None
        if self.selected.any():
            least = float(_shown(self.inclusion_probability[self.selected]).min())
            # Between the columns of names, not through them.
            self.threshold_ = ax.axhline(least, 0.22, 0.78, color=BLACK, lw=0.8, ls=(0, (4, 3)), zorder=1)
        self._set_scales(ax)
        self.labels_ = self._label(ax, n_labels)
        ax.set_xlabel("weight (log-odds per unit of the feature)")
        ax.set_ylabel("inclusion probability")
        rate = "" if self.fdr is None else f" at false discovery rate {self.fdr:g}"
        ax.set_title(
            f"{self.selected.sum()} of {_counted(self.weight.size)} features selected{rate}",
            loc="left",
            fontsize="medium",
        )
        self.legend_ = _legend_below(ax)
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
        looks: dict[str, dict[str, Any]] = {
            # Ten thousand points as one image, also in an SVG.
            "not selected": {"s": 7, "color": GREY, "alpha": 0.45, "linewidths": 0, "rasterized": True},
            "selected": {"s": 30, "color": BLUE, "edgecolors": "white", "linewidths": 0.5},
            "selected, true": {"s": 30, "color": BLUE, "edgecolors": "white", "linewidths": 0.5},
            "selected, false": {
                "s": 42,
                "color": VERMILION,
                "marker": "X",
                "edgecolors": "white",
                "linewidths": 0.5,
            },
            "true, missed": {"s": 34, "facecolors": "none", "edgecolors": BLACK, "linewidths": 1.2},
        }
        probability = _shown(self.inclusion_probability)
        self.points_ = {
            what: ax.scatter(
                self.weight[mask],
                probability[mask],
                label=f"{what} ({_counted(mask.sum())})",
                zorder=2 if what == "not selected" else 3,
                **looks[what],
            )
            for what, mask in groups.items()
        }

    def _set_scales(self, ax: Axes) -> None:
        from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

        probability = _shown(self.inclusion_probability)
        ax.set_yscale("logit")
        # Room above and below, in odds because that is what the axis shows.
        low, high = probability.min(initial=0.5), probability.max(initial=0.5)
        ax.set_ylim(1 / (1 + 3 * (1 - low) / low), 1 / (1 + (1 - high) / high / 3))
        ax.yaxis.set_major_locator(FixedLocator(PROBABILITY_TICKS))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(FuncFormatter(lambda p, _: f"{p:.5f}".rstrip("0")))
        # Room at both sides for the names.
        reach = 1.75 * (np.abs(self.weight).max(initial=0.0) or 1.0)
        ax.set_xlim(-reach, reach)

    def _label(self, ax: Axes, n_labels: int) -> list[Annotation]:
        """Names in a column at each side, in the order of their points, joined to them by thin lines."""
        places = np.flatnonzero(self.selected)
        places = places[np.argsort(-self.inclusion_probability[places], kind="stable")][:n_labels]
        labels = []
        for side, x, align in (
            (places[self.weight[places] < 0], 0.02, "left"),
            (places[self.weight[places] >= 0], 0.98, "right"),
        ):
            data = np.column_stack([self.weight[side], _shown(self.inclusion_probability[side])])
            heights = ax.transAxes.inverted().transform(ax.transData.transform(data))[:, 1]
            for j, point, y in zip(side, data, _spread(heights, ax), strict=True):
                name = str(j) if self.names is None else printable(self.names[j])
                false = self.truth is not None and not self.truth[j]
                labels.append(
                    ax.annotate(
                        name,
                        xy=(point[0], point[1]),
                        xytext=(x, y),
                        textcoords="axes fraction",
                        ha=align,
                        va="center",
                        fontsize=7,
                        color=VERMILION if false else BLACK,
                        parse_math=False,
                        arrowprops={"arrowstyle": "-", "lw": 0.4, "color": GREY, "shrinkA": 1, "shrinkB": 3},
                    )
                )
        return labels


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
        ax = self.ax_ = _axes(ax)
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
        self.legend_ = _legend_below(ax)
        return self


class ConvergenceDisplay:
    """The change of the weights and the damping step in each iteration of the last run.

    Parameters
    ----------
    change, step : arrays of shape (n_iterations,)
    tol : float, optional
        The change at which the iteration ends.
    outcome : str, optional
        How it ended, for the title.

    Attributes
    ----------
    ax_, figure_ : the axes and figure drawn into
    change_, step_, tol_ : the lines; tol_ is None without a tolerance
    legend_ : the legend
    """

    ax_: Axes
    figure_: Figure
    change_: Line2D
    step_: Line2D
    tol_: Line2D | None
    legend_: Legend

    def __init__(
        self, change: ArrayLike, step: ArrayLike, *, tol: float | None = None, outcome: object = None
    ) -> None:
        self.change = np.asarray(change)
        self.step = np.asarray(step)
        self.tol = tol
        self.outcome = outcome

    @classmethod
    def from_estimator(cls, model: Any, *, ax: Axes | None = None) -> Self:
        """Draw the history of a fitted classifier."""
        history = model.history_
        return cls(history.change, history.step, tol=model.tol, outcome=model.outcome_).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw."""
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        ax = self.ax_ = _axes(ax)
        self.figure_ = ax.get_figure(root=True)  # type: ignore[assignment]
        iteration = np.arange(1, self.change.size + 1)
        (self.change_,) = ax.plot(
            iteration, self.change, "o-", ms=3, color=BLUE, label="change of the weights"
        )
        (self.step_,) = ax.plot(
            iteration, self.step, "s--", ms=3, color=ORANGE, label="damping step (1: undamped)"
        )
        self.tol_ = None
        if self.tol:
            self.tol_ = ax.axhline(self.tol, color=BLACK, lw=0.8, ls=":", label=f"tolerance {self.tol:g}")
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        ax.set_xlabel("iteration of the last run")
        ax.set_ylabel("relative change, step")
        end = "" if self.outcome is None else f", {self.outcome}"
        ax.set_title(f"{self.change.size} iterations{end}", loc="left", fontsize="medium")
        self.legend_ = _legend_below(ax)
        return self


class BoundDisplay:
    """Generalisation bound and test error against the rate: figure 1 of the SMLR paper.

    Parameters
    ----------
    rates, bound, test_error : arrays of shape (n_rates,)
    sample_risk : array of shape (n_rates,), optional
        The Gibbs risk on the training sample, from which the bound rises.
    chosen : float, optional
        A rate to mark.

    Attributes
    ----------
    ax_, figure_ : the axes and figure drawn into
    bound_, test_error_, sample_risk_ : the lines; `sample_risk_` is None if it is not given
    """

    ax_: Axes
    figure_: Figure
    bound_: Line2D
    test_error_: Line2D
    sample_risk_: Line2D | None

    def __init__(
        self,
        rates: ArrayLike,
        bound: ArrayLike,
        test_error: ArrayLike,
        *,
        sample_risk: ArrayLike | None = None,
        chosen: float | None = None,
    ) -> None:
        self.rates, self.bound, self.test_error = (np.asarray(a) for a in (rates, bound, test_error))
        self.sample_risk = None if sample_risk is None else np.asarray(sample_risk)
        self.chosen = chosen
        for what in ("bound", "test_error", "sample_risk"):
            given = getattr(self, what)
            if given is not None and given.shape != self.rates.shape:
                raise ValueError(
                    f"{what} has shape {given.shape} for {self.rates.size} rates; it needs one for each."
                )

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw."""
        ax = self.ax_ = _axes(ax)
        self.figure_ = ax.get_figure(root=True)  # type: ignore[assignment]
        (self.bound_,) = ax.plot(self.rates, self.bound, "o-", ms=3, color=BLUE, label="bound")
        (self.test_error_,) = ax.plot(
            self.rates, self.test_error, "s-", ms=3, color=VERMILION, label="test error"
        )
        self.sample_risk_ = None
        if self.sample_risk is not None:
            (self.sample_risk_,) = ax.plot(
                self.rates, self.sample_risk, "--", color=GREY, label="Gibbs risk on the training sample"
            )
        if self.chosen is not None:
            ax.axvline(self.chosen, color=BLACK, lw=0.8, ls=":", label="smallest bound")
        ax.set_xscale("log")
        ax.set_ylim(bottom=0.0)
        ax.set_xlabel("rate of the penalty")
        ax.set_ylabel("error")
        _legend_below(ax)
        return self


def _axes(ax: Axes | None) -> Axes:
    """The axes to draw into, tidied."""
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _legend_below(ax: Axes) -> Legend:
    legend = ax.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.13),
        ncols=2,
        frameon=False,
        fontsize="small",
        handletextpad=0.4,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return legend


def _counted(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _shown(probability: NDArray[Any]) -> NDArray[np.float64]:
    return np.clip(np.asarray(probability, dtype=np.float64), *SHOWN_PROBABILITIES)


def _spread(heights: ArrayLike, ax: Axes, font_points: float = 7.0) -> NDArray[np.float64]:
    """Heights moved apart so that a line of text fits at each, in the same order, within the axes."""
    heights = np.asarray(heights, dtype=np.float64)
    if not heights.size:
        return heights
    figure = ax.get_figure(root=True)
    assert figure is not None
    line = 1.35 * font_points / 72 * figure.dpi / max(ax.get_window_extent().height, 1.0)
    line = min(line, 1 / heights.size)
    order = np.argsort(-heights, kind="stable")
    placed, ceiling = np.empty_like(heights), 1.0 - line / 2
    for remaining, j in zip(range(heights.size, 0, -1), order, strict=True):
        # As near its point as those above allow, and high enough for those below.
        placed[j] = max(min(heights[j], ceiling), line * (remaining - 0.5))
        ceiling = placed[j] - line
    return placed
