"""The softmax likelihood averaged over independent Gaussian scores, as one integral over a Gumbel level.

With a = power in (0, 1] and Γ(a) = ∫ t^(a-1) e^-t dt, t = e^-u Σ_k e^(z_k),

    e^(z_y) / (Σ_k e^(z_k))^a  =  1/Γ(a) ∫ e^(-a u) e^(z_y) Π_k exp(-e^(z_k - u)) du,

a product over classes inside a single integral. (For a = 1 this is the race of Gumbel noises that the
largest perturbed score wins; smaller powers are the blended likelihood.) Averages over z_k ~ N(p_k, q_k) go
inside the product, and the factor e^(z_y) moves the mean of class y by q_y. All that remains is one function,

    log F(x, q),    F = E[exp(-e^(x + √q ξ))],    ξ ~ N(0, 1),

which `kernels.softened` has in a table, with its derivatives. log_z is the log of an integral over u, and its
derivatives are averages over u: for D classes the cost is D x (levels) where a grid would need (nodes)^D.

The integral is a trapezoidal sum of an analytic function, which converges exponentially, at a rate set by the
imaginary distance π/2 within which exp(-e^z) stays bounded. The integrand is log-concave: from a level near
its mode, the sum goes to the right and then to the left until terms are negligible, which need not be known
beforehand (`kernels.gumbel`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from foldless.beliefs import Array, Response
from foldless.kernels import fastest, in_threads, whole
from foldless.kernels.gumbel import levels_of_the_largest
from foldless.kernels.softened import WIDEST, as_arguments

# With fewer scores, loading numba takes longer than all iterations together.
LEAST_SCORES_COMPILED = 1 << 12
# Fewer scores than these are done before another thread has begun.
SCORES_PER_THREAD = 1 << 12


def gumbel_response(mean: Array, var: Array, classes: NDArray[np.intp], power: float = 1.0) -> Response:
    """log E[e^(z_y) / (Σ e^(z_k))^power], y = classes, for independent scores; slopes, own curvatures.

    mean and var are (samples, D); log_z is (samples,).
    """
    return gumbel_responses(mean, var, classes, (power,))[0]


def gumbel_responses(
    mean: Array, var: Array, classes: NDArray[np.intp], powers: tuple[float, ...]
) -> list[Response]:
    """The same for several powers, the smallest first: nearly all of the work is the factors they share."""
    if var.max(initial=0.0) > 1.01 * WIDEST:
        return [_in_larger_units(mean, var, classes, power) for power in powers]
    var = np.ascontiguousarray(np.minimum(var, WIDEST))
    n_samples, n_classes = mean.shape
    shape = (n_samples, len(powers), n_classes)
    out = Response(np.empty(shape[:2]), np.empty(shape), np.empty(shape))
    own = np.arange(n_samples), classes
    shifted = mean.copy()
    shifted[own] += var[own]
    exponents, table = np.array(powers, dtype=np.float64), as_arguments()
    tasks = [
        (shifted[rows], var[rows], classes[rows], exponents, table, *(part[rows] for part in out))
        for rows in _pieces(mean.shape)
    ]
    in_threads(_loops_for(mean.size).response_rows, tasks)
    out.log_z[...] += (mean[own] + 0.5 * var[own])[:, np.newaxis] - gammaln(powers)
    return [
        Response(*(np.ascontiguousarray(part[:, number]) for part in out)) for number in range(len(powers))
    ]


def _in_larger_units(mean: Array, var: Array, classes: NDArray[np.intp], power: float) -> Response:
    """Scores so uncertain that the softmax is a step, which has no unit: they are counted in larger ones.

    (The shift of class y by q_y would be so many standard deviations that no range of levels is found.) Of a
    power the exponential e^((1 - a) z_y) remains, which no step could explain; what is beyond all sense is
    taken as only just so.
    """
    if power < 1.0:
        return gumbel_response(mean, np.minimum(var, WIDEST), classes, power)
    unit = np.sqrt(np.maximum(var.max(axis=1, keepdims=True) / WIDEST, 1.0))
    log_z, slope, curvature = gumbel_response(mean / unit, var / unit**2, classes)
    return Response(log_z, slope / unit, curvature / unit**2)


def _loops_for(n_scores: int) -> Any:
    return fastest("gumbel", whole(n_scores) >= LEAST_SCORES_COMPILED)


def _pieces(shape: tuple[int, ...]) -> list[slice]:
    """Slices of rows with about so many scores."""
    n_rows, at_once = shape[0], max(SCORES_PER_THREAD // shape[1], 1)
    cuts = np.linspace(0, n_rows, max(-(-n_rows // at_once), 1) + 1).astype(int)
    return [slice(begin, end) for begin, end in pairwise(cuts)]


def gumbel_log_proba(mean: Array, var: Array) -> Array:
    """log E[softmax_k] of all classes at once, (samples, D).

    e^(z_k - u) exp(-e^(z_k - u)) is minus the derivative of exp(-e^(z_k - u)) in z_k, so that class k has the
    probability  ∫ (-f_k) Π F du,  f = ∂ log F, and all of them the same factors. Together they integrate a
    derivative from 0 to 1.
    """
    if var.max(initial=0.0) > WIDEST:
        unit = np.sqrt(np.maximum(var.max(axis=1, keepdims=True) / WIDEST, 1.0))
        mean, var = mean / unit, np.minimum(var / unit**2, WIDEST)
    out = np.full(mean.shape, -np.inf)
    mean, var = np.ascontiguousarray(mean), np.ascontiguousarray(var)
    table, levels = as_arguments(), levels_of_the_largest(mean, var)
    tasks = [
        (mean[rows], var[rows], table, *(part[rows] for part in levels), out[rows])
        for rows in _pieces(mean.shape)
    ]
    in_threads(_loops_for(mean.size).log_proba_rows, tasks)
    return np.asarray(out - np.logaddexp.reduce(out, axis=1, keepdims=True))
