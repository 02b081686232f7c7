"""How many features would do: the error of panels against their size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from foldless.plots.drawing import BLACK, BLUE, Display, legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class PanelDisplay(Display):
    """The error of panels on left-out samples against their size, beside the full model's.

    Parameters
    ----------
    size, error, error_se : arrays of shape (n_sizes,)
    full : tuple (error, standard error)
        Of the full model.
    chosen : int
        The size of the panel; 0 if there is none.

    Attributes
    ----------
    ax_, figure_ : the axes and figure drawn into
    line_, band_, full_, chosen_ : panels, a standard error about them, the full model, the size chosen
    """

    def __init__(
        self,
        size: ArrayLike,
        error: ArrayLike,
        error_se: ArrayLike,
        *,
        full: tuple[float, float],
        chosen: int = 0,
    ) -> None:
        self.size, self.error, self.error_se = (np.asarray(a) for a in (size, error, error_se))
        self.full, self.chosen = full, chosen
        self._require_each(self.size.size, "sizes", "error", "error_se")

    @classmethod
    def from_estimator(cls, model: Any, *, ax: Axes | None = None) -> Self:
        """Draw the path of a fitted `PanelClassifier`."""
        size, error, error_se, *_ = zip(*model.path_, strict=True)
        full = (model.full_.error, model.full_.error_se)
        return cls(size, error, error_se, full=full, chosen=len(model.alternatives_)).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw."""
        ax = self._begin(ax)
        place = np.arange(self.size.size)  # sizes grow by factors, and begin with none
        low, high = self.error - self.error_se, self.error + self.error_se
        self.band_ = ax.fill_between(
            place, low, high, color=BLUE, alpha=0.15, lw=0, label="± a standard error"
        )
        (self.line_,) = ax.plot(place, self.error, "o-", ms=4, color=BLUE, label="panels, left-out samples")
        self.full_ = ax.axhline(
            self.full[0], color=BLACK, ls="--", lw=1, label="full model, the same samples"
        )
        at = np.flatnonzero((self.size == self.chosen) & (self.size > 0))
        label = f"the panel: {self.chosen}" if at.size else "no panel"
        (self.chosen_,) = ax.plot(at, self.error[at], "D", ms=9, mfc="none", color=BLACK, label=label)
        ax.set_xticks(place, [str(k) for k in self.size])
        ax.set_ylim(bottom=0.0)
        self._name("features", "error")
        legend_below(ax)
        return self
