"""What all pictures share: colours, tidy axes, legends, names that do not overlap, files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.io import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

# From the palette of Okabe and Ito, told apart with every kind of colour vision; shapes differ as well.
BLUE, ORANGE, VERMILION, GREY, BLACK = "#0072B2", "#E69F00", "#D55E00", "#9A9A9A", "#222222"
# Of classes, in their order; from the ninth class on looks repeat.
CLASS_LOOKS = (
    (BLUE, "o"),
    (ORANGE, "s"),
    ("#009E73", "^"),
    (VERMILION, "D"),
    ("#CC79A7", "v"),
    ("#56B4E9", "P"),
    ("#8C6D00", "X"),
    (BLACK, "*"),
)
# A logit axis has no place for 0 and 1; a picture does not tell probabilities beyond these from them.
SHOWN_PROBABILITIES = (1e-5, 1 - 1e-5)
LEGEND_INCHES_BELOW = 0.5
PROBABILITY_TICKS = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1 - 1e-5)
# More classes than this have no room for their names.
MOST_CLASSES_NAMED = 12


class Display:
    """A picture in the style of scikit-learn: numbers in the constructor, artists after `plot`."""

    ax_: Axes
    figure_: Figure

    def _begin(self, ax: Axes | None, size: tuple[float, float] | None = None) -> Axes:
        """The axes to draw into, tidied; of that size in inches if they are new."""
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=size, layout="constrained")
        ax.spines[["top", "right"]].set_visible(False)
        self.ax_, self.figure_ = ax, ax.get_figure(root=True)  # type: ignore[assignment]
        return ax

    def _name(self, x: str, y: str, title: str = "") -> None:
        """Names of the axes, and the title above them; a dollar sign begins no formula."""
        self.ax_.set_xlabel(x, parse_math=False)
        self.ax_.set_ylabel(y, parse_math=False)
        self.ax_.set_title(title, loc="left", fontsize="medium", parse_math=False)

    def _require_each(self, n: int, things: str, *names: str) -> None:
        """Raise unless those of the arrays that are given have an entry for each of `n` things."""
        for name in names:
            given = getattr(self, name)
            if given is not None and len(given) != n:
                raise ValueError(f"{name} has {len(given)} entries for {n} {things}; it needs one for each.")


def save(figure: Figure, path: Path, *, dpi: int = 150) -> None:
    """Write a picture whole or not at all: an old one stays until the new one is complete.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        What to write.
    path : Path
        Its suffix is the format.
    dpi : int
        Dots per inch.
    """
    with replacing(path) as unfinished, open(unfinished, "xb") as file:
        figure.savefig(file, format=path.suffix.lstrip(".") or "png", dpi=dpi)


def legend_below(ax: Axes, *, columns: int = 2, gap: float = LEGEND_INCHES_BELOW) -> Legend:
    """A legend under the axis, a fixed distance of the page away whatever the height of the axes."""
    inches = ax.get_window_extent().height / ax.get_figure(root=True).dpi  # type: ignore[union-attr]
    legend = ax.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -gap / max(inches, 1.0)),
        ncols=columns,
        frameon=False,
        fontsize="small",
        handletextpad=0.4,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return legend


def shown(probability: NDArray[Any]) -> NDArray[np.float64]:
    return np.clip(np.asarray(probability, dtype=np.float64), *SHOWN_PROBABILITIES)


def spread(heights: ArrayLike, ax: Axes, font_points: float = 7.0) -> NDArray[np.float64]:
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
