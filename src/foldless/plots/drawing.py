"""What all pictures share: colours, tidy axes, legends, names that do not overlap, files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.docstrings import Documented
from foldless.io import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

Names = Sequence[Any] | NDArray[Any]
# From the palette of Okabe and Ito, told apart with every kind of colour vision; shapes differ as well.
BLUE, ORANGE, VERMILION, GREY, BLACK = "#0072B2", "#E69F00", "#D55E00", "#9A9A9A", "#222222"
# Of classes, in their order; from the ninth class on looks repeat.
CLASS_LOOKS = (
    (BLUE, "o"),
    # Darker than orange, which white paper leaves faint, and black paper (the page's, by inversion) dim.
    (VERMILION, "s"),
    ("#009E73", "^"),
    (ORANGE, "D"),
    ("#CC79A7", "v"),
    ("#56B4E9", "P"),
    ("#8C6D00", "X"),
    (BLACK, "*"),
)
# A logit axis has no place for 0 and 1; a picture does not tell probabilities beyond these from them.
SHOWN_PROBABILITIES = (1e-5, 1 - 1e-5)
LEGEND_INCHES_BELOW, HANDLE_INCHES = 0.5, 0.4
ORDINARY_POINTS, SMALLEST_POINTS = 10.0, 7.0
# The width of a letter, on average, in heights.
LETTER = 0.55
SLANT = 30
MILLIMETRES = 25.4
MOST_INCHES_HIGH = 3.75
TEXT_IS_TEXT: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "foldless", "pdf.fonttype": 42}
# The smallest text, "x-small", has 5.2 points, and that of axes 7.5.
JOURNAL: dict[Any, Any] = TEXT_IS_TEXT | {
    "font.size": 7.5,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "savefig.dpi": 600,
}
PROBABILITY_TICKS = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1 - 1e-5)
# More classes than this have no room for their names.
MOST_CLASSES_NAMED = 12


class Display(Documented):
    """A picture in the style of scikit-learn: numbers in the constructor, artists after `plot`.

    Attributes
    ----------
    ax_, figure_ : the axes and figure drawn into
    """

    ax_: Axes
    figure_: Figure
    slanted_ = 0.0

    def _begin(self, ax: Axes | None, height: float | None = None) -> Axes:
        """The axes to draw into, tidied; of that height in inches, for ordinary text, if they are new."""
        if ax is None:
            import matplotlib.pyplot as plt

            width, usual = plt.rcParams["figure.figsize"]
            size = (width, usual if height is None else height * text_scale())
            _, ax = plt.subplots(figsize=size, layout="constrained")
        ax.spines[["top", "right"]].set_visible(False)
        self.ax_, self.figure_ = ax, ax.get_figure(root=True)  # type: ignore[assignment]
        return ax

    def _name(self, x: str, y: str, title: str = "") -> None:
        """Names of the axes, and the title above them; a dollar sign begins no formula."""
        width, height = inches_of(self.ax_)
        self.ax_.set_xlabel(_broken(x, width), parse_math=False)
        self.ax_.set_ylabel(_broken(y, 0.85 * height), parse_math=False)
        self.ax_.set_title(title, loc="left", fontsize="medium", parse_math=False)

    def _slant(
        self, ax: Axes, places: NDArray[Any] | list[float], names: list[str], room: float | None = None
    ) -> None:
        """Names under the axis, side by side if they fit and slanted if not; each has `room` on the axis."""
        ax.set_xticks(places, names, fontsize="small")
        left, right = ax.get_xlim()
        each = (right - left) / max(len(names), 1) if room is None else room
        inches = max(text_inches(name, 8.3) for name in names)
        self.slanted_ = 0.0  # inches that slanted names need below the axis
        for text in ax.get_xticklabels():
            text.set_parse_math(False)
            if inches > 0.95 * inches_of(ax)[0] * each / (right - left):
                text.set(rotation=SLANT, ha="right", rotation_mode="anchor")
                self.slanted_ = inches * math.sin(math.radians(SLANT))

    def _require_each(self, n: int, things: str, *names: str) -> None:
        """Raise unless those of the arrays that are given have an entry for each of `n` things."""
        for name in names:
            given = getattr(self, name)
            if given is not None and len(given) != n:
                raise ValueError(f"{name} has {len(given)} entries for {n} {things}; it needs one for each.")


def text_scale() -> float:
    """Of text beside matplotlib's own, by which heights of lines and distances are laid out."""
    from matplotlib import rcParams

    return float(rcParams["font.size"]) / ORDINARY_POINTS


@contextmanager
def journal(width: float = 89.0) -> Iterator[tuple[float, float]]:
    """Pictures made inside are as journals want them: so many millimetres wide, with text of 5 to 8 points.

    One column is 89 mm wide and two are 183 mm in most journals. The size of a picture, in inches, is what
    the context gives.

    Parameters
    ----------
    width : float
        In millimetres.

    Returns
    -------
    context manager
        Which gives width and height in inches.
    """
    from matplotlib import rc_context, rcdefaults

    inches = width / MILLIMETRES
    size = (inches, min(0.75 * inches, MOST_INCHES_HIGH))
    with rc_context():
        rcdefaults()
        with rc_context(JOURNAL | {"figure.figsize": size}):
            yield size


def save(figure: Figure, path: Path | str, *, dpi: int = 150) -> None:
    """Write a picture whole or not at all: an old one stays until the new one is complete.

    In SVG and PDF text stays text, which can be searched and edited (PDF brings its fonts along), and the
    same picture has the same bytes on every day.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        What to write.
    path : Path or str
        Its suffix is the format.
    dpi : int
        Dots per inch.
    """
    from matplotlib import rc_context

    path = Path(path)
    kind = path.suffix.lower().lstrip(".") or "png"
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with replacing(path) as unfinished, open(unfinished, "xb") as file, rc_context(TEXT_IS_TEXT):
        figure.savefig(file, format=kind, dpi=dpi, metadata=undated)


def legend_below(ax: Axes, *, slanted: float = 0.0) -> Legend:
    """A legend under the axis title, in as few rows as fit; tick labels may need `slanted` inches more.

    Its distance is in inches, so that it does not depend on the height that the layout gives to the axes.
    """
    from matplotlib.transforms import ScaledTranslation

    figure = ax.get_figure(root=True)
    assert figure is not None
    labels = ax.get_legend_handles_labels()[1]
    longest = text_inches(max(labels, key=len, default=""), 8.3) + HANDLE_INCHES * text_scale()
    # Beside the axes there is room as well.
    most = max(1, int(1.2 * inches_of(ax)[0] / longest))
    rows = -(-max(len(labels), 1) // most)
    more_lines = 0.17 * ax.get_xlabel().count("\n")
    gap = LEGEND_INCHES_BELOW * text_scale() + more_lines * text_scale() + slanted
    legend = ax.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        bbox_transform=ax.transAxes + ScaledTranslation(0.0, -gap, figure.dpi_scale_trans),
        ncols=-(-len(labels) // rows),
        frameon=False,
        fontsize="small",
        handletextpad=0.4,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return legend


def text_inches(text: str, points: float) -> float:
    """About how wide a text is, of so many points beside ordinary text of 10."""
    return LETTER * len(text) * points * text_scale() / 72


def inches_of(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes, before a layout makes them larger."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    box = ax.get_window_extent()
    return box.width / figure.dpi, box.height / figure.dpi


def _broken(text: str, inches: float) -> str:
    """A text in lines that are no longer than the axis it names."""
    letters = max(int(inches / text_inches("x", ORDINARY_POINTS)), 12)
    return "\n".join(line for part in text.split("\n") for line in wrap(part, letters) or [""])


def shown(probability: NDArray[Any]) -> NDArray[np.float64]:
    return np.clip(np.asarray(probability, dtype=np.float64), *SHOWN_PROBABILITIES)


def spread(heights: ArrayLike, ax: Axes) -> NDArray[np.float64]:
    """Heights moved apart so that a line of small text fits at each, in the same order, within the axes."""
    heights = np.asarray(heights, dtype=np.float64)
    if not heights.size:
        return heights
    figure = ax.get_figure(root=True)
    assert figure is not None
    line = 1.35 * SMALLEST_POINTS * text_scale() / 72 * figure.dpi / max(ax.get_window_extent().height, 1.0)
    line = min(line, 1 / heights.size)
    order = np.argsort(-heights, kind="stable")
    placed, ceiling = np.empty_like(heights), 1.0 - line / 2
    for remaining, j in zip(range(heights.size, 0, -1), order, strict=True):
        # As near its point as those above allow, and high enough for those below.
        placed[j] = max(min(heights[j], ceiling), line * (remaining - 0.5))
        ceiling = placed[j] - line
    return placed
