"""What flows between the parts: what a prior answers, what a channel answers, what a solver returns.

Both rules of message passing speak this language. Sum-product integrates, max-sum maximises, and in
both cases the answer is a "log normaliser" and its derivatives:

    sum-product   log_z(r) = log ∫ f(x) N(x; r, v) dx
    max-sum       log_z(r) = max_x [ log f(x) - (x - r)² / 2v ]        (a Moreau envelope)

For priors  mean = r + v ∂log_z/∂r  and  var = v + v² ∂²log_z/∂r²  (the proximal point and v times
its derivative under max-sum). For channels  slope = ∂log_z/∂p  and  curvature = -∂²log_z/∂p².
Solvers therefore never ask which rule they run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]


class Tilted(NamedTuple):
    """Moments of q(x) ∝ f(x) N(x; cavity_mean, cavity_var), and the log of its normaliser."""

    mean: Array
    var: Array
    log_z: Array


class Response(NamedTuple):
    """What labels say about scores z ~ N(cavity_mean, cavity_var): log Z and its derivatives.

    Derivatives and not moments, because (mean - p) / v loses all digits far out in a tail.
    """

    log_z: Array
    slope: Array  # d log Z / d cavity_mean
    curvature: Array  # minus the second derivative; may be negative if the channel is not log-concave


@dataclass(frozen=True)
class Posterior:
    """Beliefs about the weights, and about the score of every sample without its own label."""

    mean: Array
    var: Array
    # Pseudo-observation of each weight by the data alone: mean and variance of N(w; r, tau_r).
    cavity_mean: Array
    cavity_var: Array
    # Belief about each training score from all other samples: leave-one-out.
    loo_mean: Array
    loo_var: Array
    log_evidence: float
    # log P(label) of every sample from all others, where solving has made it and it need not be asked again.
    loo_log_density: Array | None = None
