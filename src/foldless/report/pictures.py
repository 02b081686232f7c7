"""Pictures for the page, as text: PNG in data URIs, with words for those who do not see them.

PNG and not SVG: an SVG is a document that can hold scripts, links and styles, and names of others would be
text in it. In a PNG a name is ink. One picture serves light and dark: it has no background, and the page's
style sheet turns its lightness over where the reader prefers dark.
"""

from __future__ import annotations

import io
import warnings
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foldless.plots import (
    CalibrationDisplay,
    ConvergenceDisplay,
    HeatMapDisplay,
    InclusionDisplay,
    LearningCurveDisplay,
    LeaveOneOutDisplay,
    StripDisplay,
    WeightDisplay,
)
from foldless.plots.drawing import BLUE, GREY, MOST_CLASSES_NAMED
from foldless.plots.weights import height_of
from foldless.report.subject import Subject
from foldless.report.wording import counted, listed, number, percent, plural, probability

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Twice what a screen of ordinary density shows, so that text is sharp when magnified and in print.
DPI = 200
SHOWN_DPI = 110
WIDTH, HEIGHT = 6.6, 5.0
MOST_WEIGHTS = 25
# Features times classes.
MOST_WEIGHT_LINES = 75
NAMED_OF_NONE = 8
MOST_STRIPS = 8
# Colours a picture may have: enough for smooth edges of a handful of hues, a third of the bytes.
PALETTE = 128


class Picture(NamedTuple):
    uri: str
    alt: str
    caption: str
    width: int
    height: int


def drawn(draw: Callable[[Axes], object], alt: str, caption: str, size: tuple[float, float]) -> Picture:
    """A picture of what `draw` puts into axes."""
    from matplotlib import rc_context, rcdefaults
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    with rc_context(), warnings.catch_warnings():
        rcdefaults()  # the same picture on every machine, whatever style its user has set
        # A name in letters that the font lacks stands in the table, where the browser has them.
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        figure = Figure(figsize=size, dpi=DPI, layout="constrained", facecolor="none")
        # Drawn once: savefig would lay out and draw twice.
        canvas = FigureCanvasAgg(figure)
        axes = figure.subplots()
        axes.set_facecolor("none")
        draw(axes)
        canvas.draw()  # type: ignore[no-untyped-call]
        pixels = canvas.buffer_rgba()  # type: ignore[no-untyped-call]
        image = Image.fromarray(np.asarray(pixels))
    stored = io.BytesIO()
    image.quantize(PALETTE, method=Image.Quantize.FASTOCTREE).save(stored, format="png", optimize=True)
    uri = "data:image/png;base64," + b64encode(stored.getvalue()).decode("ascii")
    shown = (round(size[0] * SHOWN_DPI), round(size[1] * SHOWN_DPI))
    return Picture(uri, alt, caption, *shown)


def inclusion_picture(subject: Subject) -> Picture | None:
    """Weight against probability: the volcano."""
    if subject.inclusion is None or subject.kernel:
        return None
    mask = np.zeros(subject.n_weights, dtype=bool)
    mask[subject.selected] = True
    # What is kept by decree has no probability, and would stretch the axis.
    free = np.setdiff1d(np.arange(subject.n_weights), subject.kept)
    if not free.size:
        return None
    names = subject.feature_names
    if subject.kept.size:
        names = [subject.feature(int(j)) for j in free]
    display = InclusionDisplay(
        subject.weights.mean[:, free],
        subject.inclusion[free],
        mask[free],
        names=names,
        fdr=subject.fdr,
        classes=subject.summary.classes,
        per=subject.weights.per,
    )
    n, best = subject.selected.size, int(subject.free_ranking[0])
    alt = (
        f"Scatter plot of weight against inclusion probability for {plural(free.size, 'feature')}; "
        f"{counted(n)} selected. The surest is {subject.feature(best)}, with probability "
        f"{probability(float(subject.inclusion[best]))}."
    )
    caption = (
        "Weight against inclusion probability, one point for each feature. Selected features are named; the "
        "dashed line is the least sure of them."
        if n
        else "Weight against inclusion probability, one point for each feature. None is selected; the surest "
        "are named."
    )
    # Of an empty selection the head of the ranking is named.
    return drawn(partial(display.plot, n_others=0 if n else NAMED_OF_NONE), alt, caption, (WIDTH, HEIGHT))


def weight_picture(subject: Subject) -> Picture | None:
    """The surest features; of very many classes each with its largest weight only."""
    weights = subject.weights
    n_rows = len(weights.mean)
    together = n_rows <= MOST_CLASSES_NAMED
    n_shown = max(MOST_WEIGHT_LINES // n_rows, 8) if together else MOST_WEIGHTS
    top = (subject.selected if subject.selected.size else subject.free_ranking)[: min(n_shown, MOST_WEIGHTS)]
    if not top.size or not np.any(weights.mean[:, top]):
        return None
    rows = np.arange(n_rows)[:, np.newaxis] if together else weights.largest[top][np.newaxis]
    names = [subject.feature(int(j)) for j in top]
    if not together:
        names = [f"{name}: {subject.classes[k]}" for name, k in zip(names, rows[0], strict=True)]
    display = WeightDisplay(
        weights.mean[rows, top],
        None if weights.std is None else weights.std[rows, top],
        names=names,
        classes=subject.summary.classes if together else None,
        per=weights.per,
    )
    interval = "" if weights.std is None else " with 90 % intervals"
    alt = (
        f"Weights{interval} of {plural(top.size, subject.thing)}, led by {listed(names[:3])}; the table has "
        "the values."
    )
    caption = f"Weights{interval}, the surest {subject.thing} at the top."
    return drawn(display.plot, alt, caption, (WIDTH, height_of(top.size, len(rows))))


def leave_one_out_picture(subject: Subject) -> Picture | None:
    if subject.codes is None or subject.loo_proba is None:
        return None
    mislabelled = subject.mislabel_probability
    display = LeaveOneOutDisplay(
        subject.loo_proba,
        subject.summary.classes[subject.codes],
        subject.summary.classes,
        suspected=None if mislabelled is None else mislabelled > 0.5,
        error=subject.loo_error,
    )
    error = "" if subject.loo_error is None else f" {percent(subject.loo_error)} are on the wrong side."
    alt = f"Probability of each of {counted(len(subject.codes))} samples from all others, by class.{error}"
    caption = "Every sample, classified by all others."
    return drawn(display.plot, alt, caption, (WIDTH, HEIGHT))


def calibration_picture(subject: Subject) -> Picture | None:
    if subject.codes is None or subject.loo_proba is None or not np.any(subject.judged):
        return None
    labels = subject.summary.classes[subject.codes]
    display = CalibrationDisplay.from_proba(subject.loo_proba, labels, subject.summary.classes)
    alt = (
        "Calibration curve: probabilities from all other samples, in bins, against the share in which the "
        "class was recorded; a calibrated classifier follows the diagonal."
    )
    caption = "Do probabilities mean what they say? Points on the diagonal do; bars are 90 % intervals."
    return drawn(display.plot, alt, caption, (HEIGHT, HEIGHT))


def roc_picture(subject: Subject) -> Picture | None:
    """Of two classes."""
    worth = subject.worth
    if not subject.two or subject.codes is None or worth is None or worth.auc is None:
        return None
    from sklearn.metrics import roc_curve

    assert subject.loo_proba is not None
    fpr, tpr, _ = roc_curve(subject.codes[subject.judged], subject.loo_proba[subject.judged, 1])

    def draw(ax: Axes) -> object:
        positive, negative = subject.classes[1], subject.classes[0]
        ax.plot([0, 1], [0, 1], color=GREY, lw=1, ls=(0, (4, 3)))
        ax.plot(fpr, tpr, color=BLUE, lw=1.8)
        ax.set_aspect("equal")
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xlabel(f"share of {negative} called {positive}", parse_math=False)
        ax.set_ylabel(f"share of {positive} found", parse_math=False)
        return ax.set_title(f"AUC {worth.auc:.2f}", loc="left", fontsize="medium")

    alt = f"Receiver operating characteristic of left-out samples; the area under it is {worth.auc:.2f}."
    caption = (
        "What is found, against what is called by mistake, from the strictest threshold to the most lenient."
    )
    return drawn(draw, alt, caption, (HEIGHT, HEIGHT))


def heat_map_picture(subject: Subject) -> Picture | None:
    """The values behind the list: features by samples."""
    if subject.codes is None or subject.loo_proba is None or subject.shown_values is None:
        return None
    names = [subject.feature(int(j)) for j in subject.shown_features]
    display = HeatMapDisplay(
        subject.shown_values, subject.codes, subject.loo_proba, subject.summary.classes, names=names
    )
    alt = (
        f"Heat map of {plural(len(names), 'feature')} in {counted(subject.codes.size)} samples, by class and "
        "by the probability that all other samples give."
    )
    caption = (
        "Values of the features in standard deviations; samples by recorded class, then by the probability "
        "of the last class from all other samples."
    )
    return drawn(display.plot, alt, caption, (WIDTH, height_of(len(names), 1) + 0.6))


def strip_picture(subject: Subject) -> Picture | None:
    """The values of the first features, class by class."""
    if subject.codes is None or subject.shown_values is None:
        return None
    top = subject.shown_features[:MOST_STRIPS]
    display = StripDisplay(
        subject.shown_values[:, : top.size],
        subject.codes,
        subject.summary.classes,
        names=[subject.feature(int(j)) for j in top],
    )
    alt = f"Values of {plural(top.size, 'feature')} in every sample, by class, in standard deviations."
    caption = "One point for each sample; bars are the medians of the classes."
    return drawn(display.plot, alt, caption, (WIDTH, HEIGHT))


def convergence_picture(subject: Subject) -> Picture | None:
    history, outcome = subject.summary.history, subject.summary.outcome
    if history is None or not len(history):
        return None
    display = ConvergenceDisplay(history.change, history.step, tol=subject.summary.tolerance, outcome=outcome)
    last = number(float(history.change[-1]))
    alt = (
        f"Change of the weights over {plural(len(history), 'iteration')} of the last run, ending at {last}; "
        f"the fit {outcome}."
    )
    return drawn(display.plot, alt, "How the iteration went.", (WIDTH, 3.6))


def learning_curve_picture(subject: Subject) -> Picture | None:
    """Drawn by the display that was passed, or of the curve itself."""
    given: Any = subject.learning_curve
    if given is None:
        return None

    def draw(ax: Axes) -> object:
        return given.plot(ax=ax) if hasattr(given, "plot") else LearningCurveDisplay.from_curve(given, ax=ax)

    alt = "Learning curve: the error expected with fewer and with more samples."
    return drawn(draw, alt, "The error expected with fewer and with more samples.", (WIDTH, 4.2))
