"""What can be expected of a number of samples: of a planned study, and of more for a fitted model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from foldless.io.names import counted
from foldless.plots.drawing import BLACK, BLUE, GREY, ORANGE, VERMILION, Display, legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from foldless.theory.learning_curve import LearningCurve
    from foldless.theory.planning import Plan


class PlanDisplay(Display):
    """Expected error, power and false share against the number of samples, with the number needed.

    Parameters
    ----------
    n_samples, error, power, false_share : arrays of shape (n_sizes,)
    best_error : float, optional
        The error if all markers were known.
    needed : int, optional
        The number of samples that reaches the target.
    simulated : tuple of arrays (n_samples, error, standard_error), optional
        Fits of simulated studies, to be seen beside what was expected.

    Attributes
    ----------
    ax_, figure_ : the axes and figure drawn into
    error_, power_, false_share_ : the lines
    """

    def __init__(
        self,
        n_samples: ArrayLike,
        error: ArrayLike,
        power: ArrayLike,
        false_share: ArrayLike,
        *,
        best_error: float | None = None,
        needed: int | None = None,
        simulated: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
    ) -> None:
        self.n_samples = np.asarray(n_samples)
        self.error, self.power, self.false_share = (np.asarray(a) for a in (error, power, false_share))
        self.best_error, self.needed, self.simulated = best_error, needed, simulated
        self._require_each(self.n_samples.size, "numbers of samples", "error", "power", "false_share")

    @classmethod
    def from_plan(
        cls,
        plan: Plan,
        *,
        simulated: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw a plan."""
        rows = {row.n_samples: row for row in (*plan.rows, *([plan.needed] if plan.needed else []))}
        course = [rows[n] for n in sorted(rows)]
        display = cls(
            [row.n_samples for row in course],
            [row.error for row in course],
            [row.power for row in course],
            # Of a selection of less than one feature, a share of false ones says nothing.
            [row.false_share if row.n_selected >= 1 else np.nan for row in course],
            best_error=plan.study.best_error,
            needed=None if plan.needed is None else plan.needed.n_samples,
            simulated=simulated,
        )
        return display.plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw."""
        ax = self._begin(ax)
        (self.error_,) = ax.plot(
            self.n_samples, self.error, "o-", ms=4, color=VERMILION, label="error on new samples"
        )
        (self.power_,) = ax.plot(
            self.n_samples, self.power, "s-", ms=4, color=BLUE, label="power: share of markers found"
        )
        (self.false_share_,) = ax.plot(
            self.n_samples, self.false_share, "^--", ms=4, color=ORANGE, label="false among the selected"
        )
        if self.best_error is not None:
            ax.axhline(self.best_error, color=GREY, lw=0.8, ls=":", label="error with all markers known")
        if self.needed is not None:
            ax.axvline(
                self.needed, color=BLACK, lw=0.8, ls="-.", label=f"needed: {counted(self.needed)} samples"
            )
        if self.simulated is not None:
            sizes, errors, standard_errors = (np.asarray(a) for a in self.simulated)
            ax.errorbar(
                sizes,
                errors,
                1.96 * standard_errors,
                fmt="D",
                ms=5,
                mfc="none",
                capsize=3,
                color=BLACK,
                label="error of simulated fits (95 %)",
            )
        ax.set_xscale("log")
        ax.set_xticks(
            self.n_samples, [counted(int(n)) for n in self.n_samples], fontsize="small", rotation=45
        )
        ax.set_xticks([], minor=True)
        ax.set_ylim(0.0, 1.0)
        self._name("samples", "expected share")
        legend_below(ax, slanted=0.2)
        return self


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
