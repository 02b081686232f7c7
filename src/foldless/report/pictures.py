"""The pictures: on the page as text, with words for those who do not see them, and as files to take along.

On the page they are PNG in data URIs and not SVG: an SVG is a document that can hold scripts, links and
styles, and names of others would be text in it. In a PNG a name is ink. One picture serves light and dark: it
has no background, and the page's style sheet turns its lightness over where the reader prefers dark.
"""

from __future__ import annotations

import io
import warnings
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foldless.plots import (
    CalibrationDisplay,
    ConvergenceDisplay,
    HeatMapDisplay,
    InclusionDisplay,
    LearningCurveDisplay,
    LeaveOneOutDisplay,
    PanelDisplay,
    RocDisplay,
    StripDisplay,
    WeightDisplay,
    journal,
    save,
)
from foldless.plots.drawing import MOST_CLASSES_NAMED, text_scale
from foldless.plots.values import ValuesDisplay
from foldless.plots.weights import height_of
from foldless.report.subject import MOST_SHOWN, Subject
from foldless.report.wording import counted, listed, number, percent, plural, probability

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Points of a picture in a file that are no lines: ten thousand features, as one image.
FILE_KINDS, FILE_DPI = ("svg", "pdf"), 600
# Curves in a square say no more on a whole page.
SQUARE_MM = 89.0
# Twice what a screen of ordinary density shows, so that text is sharp when magnified and in print.
DPI = 200
SHOWN_DPI = 110
WIDTH, HEIGHT, SHORT, SIDE = 6.6, 5.0, 4.0, 4.0
MOST_WEIGHTS = 20
# Features times classes: more lines on one printed page could not be read.
MOST_WEIGHT_LINES = 40
NAMED_OF_NONE = 8
MOST_STRIPS = StripDisplay.N_FEATURES
# Colours a picture may have: enough for smooth edges of a handful of hues, a third of the bytes.
PALETTE = 128


class Picture(NamedTuple):
    uri: str
    alt: str
    caption: str
    width: int
    height: int


class Drawing(NamedTuple):
    """What is to be drawn into axes, and said of it."""

    draw: Callable[[Axes], object]
    alt: str
    caption: str
    size: tuple[float, float]  # in inches, with ordinary text

    def picture(self) -> Picture:
        """As the page shows it."""
        from matplotlib import rc_context, rcdefaults
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from PIL import Image

        with rc_context(), _quiet():
            rcdefaults()  # the same picture on every machine, whatever style its user has set
            figure = Figure(figsize=self.size, dpi=DPI, layout="constrained", facecolor="none")
            # Drawn once: savefig would lay out and draw twice.
            canvas = FigureCanvasAgg(figure)
            axes = figure.subplots()
            axes.set_facecolor("none")
            self.draw(axes)
            canvas.draw()  # type: ignore[no-untyped-call]
            pixels = canvas.buffer_rgba()  # type: ignore[no-untyped-call]
            image = Image.fromarray(np.asarray(pixels))
        stored = io.BytesIO()
        image.quantize(PALETTE, method=Image.Quantize.FASTOCTREE).save(stored, format="png", optimize=True)
        uri = "data:image/png;base64," + b64encode(stored.getvalue()).decode("ascii")
        return Picture(uri, self.alt, self.caption, *(round(side * SHOWN_DPI) for side in self.size))

    def write(self, folder: Path, name: str, width: float) -> list[Path]:
        """As SVG and PDF, at most so many millimetres wide."""
        from matplotlib.figure import Figure

        across, down = self.size
        square = across == down
        with journal(min(width, SQUARE_MM) if square else width) as (wide, _), _quiet():
            # Lines of text need their height; other pictures keep their form, but fill no page.
            high = down * text_scale()
            if not self.tall:
                high = min(high, wide * down / across)
            written = []
            for kind in FILE_KINDS:
                figure = Figure(figsize=(wide, high), layout="constrained")
                self.draw(figure.subplots())
                written.append(folder / f"{name}.{kind}")
                save(figure, written[-1], dpi=FILE_DPI)
        return written

    @property
    def tall(self) -> bool:
        """Whether it has a line for each feature."""
        return self.size[1] not in (HEIGHT, SHORT)


def drawings(subject: Subject) -> dict[str, Drawing]:
    """All that the model, its labels and its table allow, by name."""
    found = {
        "heat_map": heat_map(subject),
        "values": strips(subject),
        "inclusion": inclusion(subject),
        "weights": weights(subject),
        "panel": panel(subject),
        "leave_one_out": leave_one_out(subject),
        "roc": roc(subject),
        "calibration": calibration(subject),
        "learning_curve": learning_curve(subject),
        "convergence": convergence(subject),
    }
    return {name: drawing for name, drawing in found.items() if drawing is not None}


def write_figures(subject: Subject, folder: Path, width: float = 183.0) -> list[Path]:
    """Every picture of the page as SVG and PDF, for a column (89 mm) or a page (183 mm) of a journal."""
    folder.mkdir(parents=True, exist_ok=True)
    found = drawings(subject).items()
    return [path for name, drawing in found for path in drawing.write(folder, name, width)]


@contextmanager
def _quiet() -> Iterator[None]:
    """A name in letters that the font lacks stands in the table, where the browser has them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        yield


def inclusion(subject: Subject) -> Drawing | None:
    """Weight against probability: the volcano."""
    if subject.inclusion is None or subject.kernel:
        return None
    # What is kept by decree has no probability, and would stretch the axis.
    free = np.setdiff1d(np.arange(subject.n_weights), subject.kept)
    if not free.size:
        return None
    display = InclusionDisplay(
        subject.weights.mean[:, free],
        subject.inclusion[free],
        np.isin(free, subject.selected),
        names=[subject.feature(int(j)) for j in free] if subject.kept.size else subject.feature_names,
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
    return Drawing(partial(display.plot, n_others=0 if n else NAMED_OF_NONE), alt, caption, (WIDTH, HEIGHT))


def weights(subject: Subject) -> Drawing | None:
    """The surest features; of very many classes each with its largest weight only."""
    found = subject.weights
    n_rows = len(found.mean)
    together = n_rows <= MOST_CLASSES_NAMED
    n_shown = max(MOST_WEIGHT_LINES // n_rows, 8) if together else MOST_WEIGHTS
    top = (subject.selected if subject.selected.size else subject.free_ranking)[: min(n_shown, MOST_WEIGHTS)]
    if not top.size or not np.any(found.mean[:, top]):
        return None
    rows = np.arange(n_rows)[:, np.newaxis] if together else found.largest[top][np.newaxis]
    names = [subject.feature(int(j)) for j in top]
    if not together:
        names = [f"{name}: {subject.classes[k]}" for name, k in zip(names, rows[0], strict=True)]
    display = WeightDisplay(
        found.mean[rows, top],
        None if found.std is None else found.std[rows, top],
        names=names,
        classes=subject.summary.classes if together else None,
        per=found.per,
    )
    interval = "" if found.std is None else " with 90 % intervals"
    alt = (
        f"Weights{interval} of {plural(top.size, subject.thing)}, led by {listed(names[:3])}; the table has "
        "the values."
    )
    tabulated = subject.selected.size or MOST_WEIGHTS
    of = f" of the first {top.size} in the table" if top.size < tabulated else ""
    caption = f"Weights{of}{interval}, the surest {subject.thing} at the top."
    return Drawing(display.plot, alt, caption, (WIDTH, height_of(top.size, len(rows))))


def panel(subject: Subject) -> Drawing | None:
    """How many features would do."""
    if subject.panel is None:
        return None
    sizes = listed([counted(each.size) for each in subject.panel.path_])
    alt = f"The error on left-out parts of panels of {sizes} features, beside that of all features."
    caption = "The error of panels on parts that were left out, against their size."

    def draw(ax: Axes) -> object:
        return PanelDisplay.from_estimator(subject.panel, ax=ax)

    return Drawing(draw, alt, caption, (WIDTH, SHORT))


def leave_one_out(subject: Subject) -> Drawing | None:
    if subject.codes is None or subject.loo_proba is None:
        return None
    suspected = np.isin(np.arange(subject.codes.size), subject.summary.suspected())
    display = LeaveOneOutDisplay(
        subject.loo_proba,
        subject.summary.classes[subject.codes],
        subject.summary.classes,
        suspected=None if subject.mislabel_probability is None else suspected,
        error=subject.loo_error,
    )
    error = "" if subject.loo_error is None else f" {percent(subject.loo_error)} are taken for another class."
    alt = f"Probability of each of {counted(len(subject.codes))} samples from all others, by class.{error}"
    caption = "Every sample, classified by all others."
    return Drawing(display.plot, alt, caption, (WIDTH, HEIGHT))


def calibration(subject: Subject) -> Drawing | None:
    if subject.codes is None or subject.loo_proba is None or not np.any(subject.judged):
        return None
    labels = subject.summary.classes[subject.codes]
    display = CalibrationDisplay.from_proba(subject.loo_proba, labels, subject.summary.classes)
    alt = (
        "Calibration curve: probabilities from all other samples, in bins, against the share in which the "
        "class was recorded; a calibrated classifier follows the diagonal."
    )
    caption = "Do probabilities mean what they say? Points on the diagonal do; bars are 90 % intervals."
    return Drawing(display.plot, alt, caption, (SIDE, SIDE))


def roc(subject: Subject) -> Drawing | None:
    """Of two classes."""
    worth = subject.worth
    if not subject.two or subject.codes is None or worth is None or worth.auc is None or subject.worse:
        return None
    assert subject.loo_proba is not None
    labels, classes = subject.summary.classes[subject.codes], subject.summary.classes
    display = RocDisplay(subject.loo_proba[:, 1], labels, classes, auc_interval=worth.auc_interval)
    alt = f"Receiver operating characteristic of left-out samples; the area under it is {worth.auc:.2f}."
    caption = (
        "What is found, against what is called by mistake, from the strictest threshold to the most lenient."
    )
    return Drawing(display.plot, alt, caption, (SIDE, SIDE))


def heat_map(subject: Subject) -> Drawing | None:
    """The values behind the list: features by samples."""
    display = _values(subject, HeatMapDisplay, MOST_SHOWN)
    if display is None:
        return None
    n_samples, n_features = display.values.shape
    alt = (
        f"Heat map of {plural(n_features, 'feature')} in {counted(n_samples)} samples, by class and by the "
        "probability that all other samples give."
    )
    whose = subject.classes[1] if subject.two else "their class"
    order = "" if display.proba is None else f", then by the probability of {whose} from all other samples"
    caption = f"Values of the features in standard deviations; samples by recorded class{order}."
    return Drawing(display.plot, alt, caption, (WIDTH, height_of(n_features, 1) + 0.6))


def strips(subject: Subject) -> Drawing | None:
    """The values of the first features, class by class."""
    display = _values(subject, StripDisplay, MOST_STRIPS)
    if display is None:
        return None
    n_features = display.values.shape[1]
    alt = f"Values of {plural(n_features, 'feature')} in every sample, by class, in standard deviations."
    caption = "One point for each sample; bars are the medians of the classes."
    return Drawing(display.plot, alt, caption, (WIDTH, HEIGHT))


def _values(subject: Subject, kind: type[ValuesDisplay], most: int) -> ValuesDisplay | None:
    if subject.codes is None or subject.shown_values is None:
        return None
    top = subject.shown_features[:most]
    return kind(
        subject.shown_values[:, : top.size],
        subject.codes,
        subject.summary.classes,
        proba=subject.loo_proba,
        names=[subject.feature(int(j)) for j in top],
    )


def convergence(subject: Subject) -> Drawing | None:
    history, outcome = subject.summary.history, subject.summary.outcome
    if history is None or not len(history):
        return None
    display = ConvergenceDisplay(history.change, history.step, tol=subject.summary.tolerance, outcome=outcome)
    last = number(float(history.change[-1]))
    alt = (
        f"Change of the weights over {plural(len(history), 'iteration')} of the last run, ending at {last}; "
        f"the fit {outcome}."
    )
    return Drawing(display.plot, alt, "How the iteration went.", (WIDTH, SHORT))


def learning_curve(subject: Subject) -> Drawing | None:
    """Drawn by the display that was passed, or of the curve itself."""
    given: Any = subject.learning_curve
    if given is None:
        return None

    def draw(ax: Axes) -> object:
        return given.plot(ax=ax) if hasattr(given, "plot") else LearningCurveDisplay.from_curve(given, ax=ax)

    alt = "Learning curve: the error expected with fewer and with more samples."
    return Drawing(draw, alt, "The error expected with fewer and with more samples.", (WIDTH, SHORT))
