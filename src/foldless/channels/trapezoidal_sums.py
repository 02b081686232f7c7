"""Gaussian integrals of powers of the logistic function, by sums over a few equidistant nodes.

For x = mean + √var t and a step h of t, the trapezoidal sum h Σ φ(jh) f(x_j) converges faster than any power
of h. Two things limit it: the Gaussian itself, by e^(-2π²/h²), and the poles of the logistic function at
x = ±iπ, by e^(π²/2var - 2π²/(h√var)) where they are nearer than the Gaussian's own limit [Trefethen,
Weideman 2014]. So a step serves all variances up to a limit, and half the step those up to a few times more.

Where the variance is small, f is nearly a polynomial over the whole Gaussian. Weights that match its moments
then need not reach into its tails, and 7 to 19 nodes do.

Since nodes are equidistant, e^x is a geometric sequence: two exponentials make all of it, and a node costs a
few multiplications and a division. `exponential_sums` has no limit of the variance, at many times the cost.

These are the rules; `kernels.sigmoids` sums by them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from foldless.kernels.sigmoids import Rule

# Standard deviations of the Gaussian on either side that count: the mass beyond is 1e-12.
REACH = 7.0
# An exponential e^kx moves a Gaussian by k √var of its standard deviations, and in the tails slopes and
# curvatures are integrals of exponentials with k up to 2.
FASTEST_TILT = 2.0
# Means beyond this, where squares of σ leave the range of float64, are not for sums of σ itself.
LARGEST_MEAN = 300.0


def _trapezoidal(step: float, largest_var: float) -> Rule:
    """Nodes as far as the Gaussian counts, and on the side of the tail as far as a tilted one does."""
    tilted = REACH + FASTEST_TILT * np.sqrt(largest_var)
    low, high = -int(np.ceil(tilted / step)), int(np.ceil(REACH / step))
    nodes = step * np.arange(low, high + 1)
    weights = np.exp(-0.5 * np.square(nodes))
    weights /= weights.sum()
    return Rule(largest_var, step, float(nodes[0]), weights)


def _matched(n_side: int, largest_var: float, steps: tuple[float, float]) -> Rule:
    """2 n_side + 1 nodes with the moments of a Gaussian up to the power 2 n_side + 3, thanks to the step.

    For 3, 5, 7 and 9 nodes a side there is one such step, between the two given, and weights are positive.
    """
    half_powers = np.arange(n_side + 2)
    # E[t^2k] = 1 · 3 · 5 ... (2k - 1)
    moments = np.cumprod(np.maximum(2.0 * half_powers - 1.0, 1.0))
    # A node and its mirror image count twice, zero once.
    counts = np.append(1.0, np.full(n_side, 2.0))

    def weights_and_excess(step: float) -> tuple[NDArray[np.float64], float]:
        powers = (step * np.arange(n_side + 1.0)) ** (2 * half_powers[:, None]) * counts / moments[:, None]
        side = np.linalg.solve(powers[:-1], np.ones(n_side + 1))
        return side, float(powers[-1] @ side - 1.0)

    step = float(brentq(lambda step: weights_and_excess(step)[1], *steps, xtol=1e-14))
    side = weights_and_excess(step)[0]
    return Rule(largest_var, step, -n_side * step, np.concatenate([side[:0:-1], side]))


# At the limits of the variance, log_z errs by about 1e-12. By rising variance and number of nodes.
FEW_NODES = (
    _matched(3, 0.015, (1.0, 1.4)),
    _matched(5, 0.08, (0.8, 1.2)),
    _matched(7, 0.2, (0.7, 1.0)),
    _matched(9, 0.36, (0.6, 0.9)),
)
LOGISTIC_RULES = (
    *FEW_NODES,
    _trapezoidal(0.5, 1.3),
    _trapezoidal(0.375, 2.56),
    _trapezoidal(0.1875, 11.56),
)
# Powers need a logarithm and an exponential at every node, so that more nodes than these do not pay.
POWER_RULES = FEW_NODES


def rules_of(power: float) -> tuple[Rule, ...]:
    """The rules for E[σ^power]."""
    return LOGISTIC_RULES if power == 1.0 else POWER_RULES
