"""Errors and their kin as curves: against numbers of samples and of features, rates, and iterations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from foldless.estimators._summary import summary_of
from foldless.io.names import counted
from foldless.plots.drawing import BLACK, BLUE, GREY, ORANGE, VERMILION, Display, legend_below
from foldless.plots.readings import read

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
            # A share of less than one feature means nothing.
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


class BoundDisplay(Display):
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
    bound_, test_error_, sample_risk_ : the lines; `sample_risk_` is None if it is not given
    """

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
        self._require_each(self.rates.size, "rates", "bound", "test_error", "sample_risk")

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw."""
        ax = self._begin(ax)
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
        self._name("rate of the penalty", "error")
        legend_below(ax)
        return self


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
            iteration, self.step, "s--", ms=3, color=VERMILION, label="damping step (1: undamped)"
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
