"""What all pictures share: colours, tidy axes, legends, names that do not overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend

# From the palette of Okabe and Ito, told apart with every kind of colour vision; shapes differ as well.
BLUE, ORANGE, VERMILION, GREY, BLACK = "#0072B2", "#E69F00", "#D55E00", "#9A9A9A", "#222222"
# A logit axis has no place for 0 and 1; a picture does not tell probabilities beyond these from them.
SHOWN_PROBABILITIES = (1e-5, 1 - 1e-5)
PROBABILITY_TICKS = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1 - 1e-5)


def tidy_axes(ax: Axes | None) -> Axes:
    """The axes to draw into, tidied."""
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def legend_below(ax: Axes) -> Legend:
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


def counted(number: int) -> str:
    return f"{number:,}".replace(",", " ")


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
