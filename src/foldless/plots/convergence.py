"""How the iteration went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from foldless.estimators._summary import summary_of
from foldless.plots.drawing import BLACK, BLUE, ORANGE, Display, legend_below
from foldless.plots.readings import read

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ConvergenceDisplay(Display):
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
        history = read(model, "history_", "Its outcome_ and n_iter_ say how the fit ended.")
        tol = summary_of(model).tolerance
        return cls(history.change, history.step, tol=tol, outcome=model.outcome_).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw."""
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        ax = self._begin(ax)
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
        end = "" if self.outcome is None else f", {self.outcome}"
        title = f"{self.change.size} iterations{end}"
        self._name("iteration of the last run", "relative change, step", title)
        self.legend_ = legend_below(ax)
        return self
