"""What a bound promises beside what the test shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from foldless.plots.drawing import BLACK, BLUE, GREY, VERMILION, Display, legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    ax_, figure_ : the axes and figure drawn into
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
