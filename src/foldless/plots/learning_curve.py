"""What more samples would bring a fitted model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from foldless.plots.drawing import BLACK, BLUE, Display, legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from foldless.theory.learning_curve import LearningCurve


class LearningCurveDisplay(Display):
    """The expected error against the number of samples, with its band and what the model shows now.

    Parameters
    ----------
    n_samples, error, lower, upper : arrays of shape (n_sizes,)
    seen : tuple (n_samples, error)
        The model's own number of samples and left-out error.
    level : float
        Of the band.

    Attributes
    ----------
    ax_, figure_ : the axes and figure drawn into
    line_, band_, seen_ : the curve, its band, the point of the model
    """

    def __init__(
        self,
        n_samples: ArrayLike,
        error: ArrayLike,
        lower: ArrayLike,
        upper: ArrayLike,
        *,
        seen: tuple[float, float],
        level: float = 0.9,
    ) -> None:
        self.n_samples, self.error, self.lower, self.upper = (
            np.asarray(a) for a in (n_samples, error, lower, upper)
        )
        self.seen, self.level = seen, level
        self._require_each(self.n_samples.size, "numbers of samples", "error", "lower", "upper")

    @classmethod
    def from_curve(cls, curve: LearningCurve, *, ax: Axes | None = None) -> Self:
        """Draw what `estimators.planning.learning_curve` found."""
        return cls(
            curve.n_samples,
            curve.error,
            curve.lower,
            curve.upper,
            seen=(curve.seen.n_samples, curve.seen.error),
            level=curve.level,
        ).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw."""
        ax = self._begin(ax)
        self.band_ = ax.fill_between(
            self.n_samples,
            self.lower,
            self.upper,
            color=BLUE,
            alpha=0.15,
            lw=0,
            label=f"{100 * self.level:.0f} % band of the left-out error",
        )
        (self.line_,) = ax.plot(self.n_samples, self.error, "-", color=BLUE, label="expected error")
        (self.seen_,) = ax.plot(
            [self.seen[0]], [self.seen[1]], "D", ms=6, mfc="none", color=BLACK, label="left out, as fitted"
        )
        ax.set_ylim(bottom=0.0)
        self._name("samples", "error of new labels")
        legend_below(ax)
        return self
