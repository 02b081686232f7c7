"""The multinomial logistic channel: one score for each class, and the softmax of the scores.

Scores are (samples, D) and labels are the numbers 1 to D, so that 0 remains free for rows that are no
samples (`Problem.labels`). `respond` is for independent Gaussian scores, with curvatures for each score
alone; `respond_full` and `proximal_full` take covariances between the scores of a sample, and answer with
matrices of curvatures.

**The softmax averaged over independent Gaussian scores** is one integral over a Gumbel level.
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

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, log_softmax, logsumexp, ndtri, softmax, wrightomega

from foldless.beliefs import Array, Response
from foldless.channels.base import SMALLEST_VAR, Channel, Tempered, cast, score_dtype
from foldless.channels.logistic import Logistic
from foldless.channels.softmax_estimators import (
    gaussian_response,
    grid_response,
    importance_response,
    mixture_response,
    taylor_response,
)
from foldless.component import require_between
from foldless.kernels import fastest, in_threads, whole
from foldless.kernels.softened import WIDEST, as_arguments
from foldless.registry import registered

# With fewer scores, loading numba (a third of a second) takes longer than a hundred iterations gain by it.
LEAST_SCORES_COMPILED = 1 << 11
# Fewer scores than these are done before another thread has begun.
SCORES_PER_THREAD = 1 << 12
# Newton's method on a concave function of one number, from the side where it cannot overshoot.
LEVEL_STEPS = 40
COMPONENT_STEPS = 2000
FULL_STEPS = 50
FULL_TOLERANCE = 1e-11
# Points of the integral over correlated scores, and what its Gaussian is widened by: weights must be bounded.
FULL_POINTS = 512
# Numbers handled at a time.
FULL_PIECE = 1 << 18
WIDER = 1.2


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
        for rows in pieces(mean.shape)
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


def pieces(shape: tuple[int, ...]) -> list[slice]:
    """Slices of rows with about so many scores."""
    n_rows, at_once = shape[0], max(SCORES_PER_THREAD // shape[1], 1)
    cuts = np.linspace(0, n_rows, max(-(-n_rows // at_once), 1) + 1).astype(int)
    return [slice(begin, end) for begin, end in pairwise(cuts)]


def gumbel_log_proba(mean: Array, var: Array) -> Array:
    """log E[softmax_k] of all classes at once, (samples, D).

    e^(z_k - u) exp(-e^(z_k - u)) is minus the derivative of exp(-e^(z_k - u)) in z_k, so that class k has the
    probability  ∫ (-f_k) Π F du,  f = ∂ log F, and all of them the same factors. Together they integrate a
    derivative from 0 to 1.

    A class beyond the least double has the probability that it would have beside the likeliest alone, which
    is no less, and has a logarithm.
    """
    given = mean, var
    if var.max(initial=0.0) > WIDEST:
        unit = np.sqrt(np.maximum(var.max(axis=1, keepdims=True) / WIDEST, 1.0))
        mean, var = mean / unit, np.minimum(var / unit**2, WIDEST)
    out = np.full(mean.shape, -np.inf)
    mean, var = np.ascontiguousarray(mean), np.ascontiguousarray(var)
    table = as_arguments()
    tasks = [(mean[rows], var[rows], table, out[rows]) for rows in pieces(mean.shape)]
    in_threads(_loops_for(mean.size).log_proba_rows, tasks)
    if (lost := np.isneginf(out)).any():
        mean, var = given
        best = mean.argmax(axis=1)[:, np.newaxis]
        gap, total = (np.take_along_axis(each, best, axis=1) for each in given)
        gap, total = (mean - gap)[lost], (var + total)[lost]
        out[lost] = Logistic().log_proba(gap[:, np.newaxis], total[:, np.newaxis])[:, 1]
    return out


ESTIMATORS: dict[str, Callable[[Array, Array, NDArray[np.intp]], Response]] = {
    "gumbel": gumbel_response,
    "grid": grid_response,
    "importance": importance_response,
    "taylor": taylor_response,
    "gaussian": gaussian_response,
    "mixture": mixture_response,
}


@registered("channel/multinomial")
@dataclass(frozen=True)
class Multinomial(Channel):
    """p(y | z) = e^(z_y) / Σ_k e^(z_k), y = 1..n_classes.

    ``estimator`` is how the softmax is averaged over independent Gaussians: "gumbel" (1e-4 or better for
    any mean and variance), or one of the thesis' approximations: "grid", "importance", "taylor", "gaussian",
    "mixture". ``maximiser`` is how max-sum finds its maximum: "newton", for all scores at once by a search
    for a single number, or "component-wise", one score after the other.
    """

    n_classes: int = 3
    estimator: str = "gumbel"
    maximiser: str = "newton"

    def __post_init__(self) -> None:
        if self.n_classes < 2 or int(self.n_classes) != self.n_classes:
            raise ValueError(f"Multinomial(n_classes={self.n_classes!r}): it takes two classes at least.")
        if self.estimator not in ESTIMATORS:
            raise ValueError(
                f"Multinomial(estimator={self.estimator!r}): unknown estimator. Choose one of "
                f"{sorted(ESTIMATORS)}; 'gumbel' is the accurate default."
            )
        if self.maximiser not in ("newton", "component-wise"):
            raise ValueError(
                f"Multinomial(maximiser={self.maximiser!r}): choose 'newton' or 'component-wise'."
            )

    @property
    def score_shape(self) -> tuple[int, ...]:
        return (self.n_classes,)

    def respond(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        mean, var, classes = self._read(cavity_mean, cavity_var, labels)
        return cast(ESTIMATORS[self.estimator](mean, var, classes), score_dtype(cavity_mean))

    def proximal(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        mean, var, classes = self._read(cavity_mean, cavity_var, labels)
        maximised = _component_wise if self.maximiser == "component-wise" else softmax_proximal
        return cast(maximised(mean, var, classes), score_dtype(cavity_mean))

    def at_score(self, score: Array, labels: Array) -> Response:
        z = np.asarray(score, dtype=np.float64)
        return cast(_at_score(z, self.codes(labels), power=1.0), score_dtype(score))

    def respond_full(self, cavity_mean: Array, cavity_cov: Array, labels: Array) -> Response:
        """Sum-product for correlated scores: slopes (samples, D), curvatures (samples, D, D)."""
        return _integrated(cavity_mean, cavity_cov, self.codes(labels))

    def proximal_full(self, cavity_mean: Array, cavity_cov: Array, labels: Array) -> Response:
        """Max-sum for correlated scores: slopes (samples, D), curvatures (samples, D, D)."""
        return _maximised(cavity_mean, cavity_cov, self.codes(labels))

    def log_proba(self, mean: Array, var: Array | None) -> Array:
        """Log probability of every class, (samples, D), for independent Gaussian scores.

        Approximations are for fitting: the log_z of some of them are not in the order of the classes.
        """
        if var is None:
            return log_softmax(mean, axis=1)
        mean, var, _ = self._read(mean, var, np.ones(len(mean)))
        return gumbel_log_proba(mean, var)

    def codes(self, labels: ArrayLike) -> NDArray[np.intp]:
        """Labels 1..D as positions 0..D-1."""
        codes = np.asarray(labels).astype(np.intp) - 1
        if codes.size and not (codes.min() >= 0 and codes.max() < self.n_classes):
            raise ValueError(
                f"Multinomial(n_classes={self.n_classes}) takes labels 1 to {self.n_classes}; got labels "
                f"from {codes.min() + 1} to {codes.max() + 1}."
            )
        return codes

    def _read(
        self, mean: ArrayLike, var: ArrayLike, labels: ArrayLike
    ) -> tuple[Array, Array, NDArray[np.intp]]:
        mean = np.asarray(mean, dtype=np.float64)
        var = np.maximum(np.broadcast_to(np.asarray(var, dtype=np.float64), mean.shape), SMALLEST_VAR)
        return mean, var, self.codes(labels)


@registered("channel/blended-multinomial")
@dataclass(frozen=True)
class BlendedMultinomial(Tempered, Channel):
    """softmax_y(z)^(1-ω) e^(ω z_y), with ω = generative_weight: the multinomial `Blended`.

    It is e^(z_y)/(Σ e^(z_k))^(1-ω), which the Gumbel integral covers as it is. The other part of a Gaussian
    model of features given classes, a ridge ω n_k v on the weights of class k, belongs to the prior.
    """

    base: Multinomial = field(default_factory=Multinomial)
    generative_weight: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.base, Multinomial) or self.base.estimator != "gumbel":
            raise ValueError(
                f"BlendedMultinomial(base={self.base!r}): powers of the softmax are integrated by 'gumbel' "
                "only. Use BlendedMultinomial(Multinomial(n_classes))."
            )
        advice = "0 is purely discriminative (the softmax), 1 purely generative (class means)."
        require_between(self, "generative_weight", self.generative_weight, 0.0, 1.0, advice=advice)

    @property
    def score_shape(self) -> tuple[int, ...]:
        return self.base.score_shape

    def respond(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        return self._answer(gumbel_response, cavity_mean, cavity_var, labels)

    def proximal(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        return self._answer(softmax_proximal, cavity_mean, cavity_var, labels)

    def _answer(self, rule: Callable[..., Response], *given: Array) -> Response:
        read = self.base._read(*given)
        return cast(rule(*read, self._power) if self._power else _linear(*read), score_dtype(given[0]))

    def at_score(self, score: Array, labels: Array) -> Response:
        z = np.asarray(score, dtype=np.float64)
        return cast(_at_score(z, self.base.codes(labels), self._power), score_dtype(score))

    def respond_both(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> tuple[Response, Response]:
        if self._power in (0.0, 1.0):
            return super().respond_both(cavity_mean, cavity_var, labels)
        mean, var, classes = self.base._read(cavity_mean, cavity_var, labels)
        tempered, plain = gumbel_responses(mean, var, classes, (self._power, 1.0))
        dtype = score_dtype(cavity_mean)
        return cast(tempered, dtype), cast(plain, dtype)


def softmax_proximal(mean: Array, var: Array, classes: NDArray[np.intp], power: float = 1.0) -> Response:
    """max_z [z_y - power LSE(z) - Σ (z - p)²/2q] and its derivatives: Newton's method on one number.

    At the maximum z_k = p_k + q_k ([k = y] - e_k) with e = power softmax(z). Given the level
    u = LSE(z) - log power, this says e_k = W(q_k e^(p'_k - u))/q_k with p'_k = p_k + q_k [k = y], and u is
    where the e_k sum to power: log Σ e_k is concave in u, so Newton's method comes from the right without
    overshooting. With ρ = e/(1 + q e), by Sherman and Morrison:  curvature = ρ (1 - ρ/Σρ).
    """
    rows = np.arange(classes.size)
    shifted = mean.copy()
    shifted[rows, classes] += var[rows, classes]
    level = np.logaddexp.reduce(shifted, axis=1) - np.log(power)
    for _ in range(LEVEL_STEPS):
        pull, w = _pulls(shifted - level[:, np.newaxis], var)
        total, bend = pull.sum(axis=1), (pull / (1.0 + w)).sum(axis=1)
        level = level + np.log(total / power) * total / bend
    return _at_maximum(mean, var, classes, power, _pulls(shifted - level[:, np.newaxis], var)[0])


def _at_maximum(mean: Array, var: Array, classes: NDArray[np.intp], power: float, pull: Array) -> Response:
    """The response from the pulls e = power softmax(z) at the maximum."""
    rows = np.arange(classes.size)
    slope = -pull
    # Slopes sum to 1 - power; 1 - e_y would cancel for samples that are classified well.
    slope[rows, classes] = 0.0
    slope[rows, classes] = (1.0 - power) - slope.sum(axis=1)
    rho = pull / (1.0 + var * pull)
    total = rho.sum(axis=1, keepdims=True)
    scores = mean + var * slope
    log_z = scores[rows, classes] - power * logsumexp(scores, axis=1) - 0.5 * np.sum(var * slope**2, axis=1)
    return Response(log_z, slope, rho * (total - rho) / total)


def _pulls(excess: Array, var: Array) -> tuple[Array, Array]:
    """e = W(q e^x)/q for scores an excess x above the level, W the Lambert function; and W.

    W(e^y) = ω(y), Wright's function, with log ω = y - ω. That is exact for small W, where e would underflow.
    """
    w = wrightomega(excess + np.log(var))
    return np.where(w > 1.0, w / var, np.exp(excess - w)), w


def _component_wise(mean: Array, var: Array, classes: NDArray[np.intp]) -> Response:
    """The same maximum by Newton steps of one score at a time, as in simplified HyGAMP."""
    scores = mean.copy()
    for _ in range(COMPONENT_STEPS):
        before = scores.copy()
        for k in range(mean.shape[1]):
            share = softmax(scores, axis=1)[:, k]
            gradient = (classes == k) - share - (scores[:, k] - mean[:, k]) / var[:, k]
            # Far from the maximum a Newton step overshoots; none is longer than the softmax is wide.
            step = gradient / (np.maximum(share * (1.0 - share), 0.0) + 1.0 / var[:, k])
            scores[:, k] += np.clip(step, -1.0, 1.0)
        if np.max(np.abs(scores - before), initial=0.0) <= FULL_TOLERANCE * (1.0 + np.abs(scores).max()):
            break
    return _at_maximum(mean, var, classes, 1.0, softmax(scores, axis=1))


def _at_score(scores: Array, classes: NDArray[np.intp], power: float) -> Response:
    share = softmax(scores, axis=-1)
    own = np.take_along_axis(scores, classes[..., np.newaxis], axis=-1)[..., 0]
    slope = -power * share
    indicator = np.zeros_like(slope)
    np.put_along_axis(indicator, classes[..., np.newaxis], 1.0, axis=-1)
    return Response(
        own - power * logsumexp(scores, axis=-1), slope + indicator, power * share * (1.0 - share)
    )


def _linear(mean: Array, var: Array, classes: NDArray[np.intp]) -> Response:
    """The power of the softmax is gone: log E e^(z_y) = p_y + q_y/2. (Under max-sum likewise.)"""
    rows = np.arange(classes.size)
    slope = np.zeros_like(mean)
    slope[rows, classes] = 1.0
    return Response(mean[rows, classes] + 0.5 * var[rows, classes], slope, np.zeros_like(mean))


# ---------------------------------------------------------------------- correlated scores of a sample


def _maximised(mean: Array, cov: Array, classes: NDArray[np.intp]) -> Response:
    """max_z [z_y - LSE(z) - ½ (z - p)' Q⁻¹ (z - p)], without an inverse of Q.

    With z = p + Q s the maximum is where s = e_y - softmax(z). Newton's method for s has the Jacobian
    I + B Q, B = diag(softmax) - softmax softmax', and is shortened while the objective does not rise.
    The curvature is (I + B Q)⁻¹ B, which annihilates (1, ..., 1).
    """
    rows = np.arange(classes.size)
    identity = np.eye(mean.shape[1])
    slope = np.zeros_like(mean)

    def look(slope: Array) -> tuple[Array, Array, Array]:
        spread = np.einsum("mij,mj->mi", cov, slope)
        scores = mean + spread
        value = scores[rows, classes] - logsumexp(scores, axis=1) - 0.5 * np.einsum("mi,mi->m", slope, spread)
        return value, softmax(scores, axis=1), identity[classes]

    value, share, indicator = look(slope)
    for _ in range(FULL_STEPS):
        bend = share[:, :, np.newaxis] * (identity - share[:, np.newaxis, :])
        residual = indicator - share - slope
        step = np.linalg.solve(identity + bend @ cov, residual[..., np.newaxis])[..., 0]
        if np.max(np.abs(step), initial=0.0) <= FULL_TOLERANCE:
            break
        length = np.ones(classes.size)
        for _ in range(20):
            candidate = look(slope + length[:, np.newaxis] * step)
            worse = candidate[0] < value - 1e-12 * np.abs(value)
            if not worse.any():
                break
            length[worse] *= 0.5
        slope = slope + length[:, np.newaxis] * step
        value, share, indicator = candidate
    bend = share[:, :, np.newaxis] * (identity - share[:, np.newaxis, :])
    curvature = np.linalg.solve(identity + bend @ cov, bend)
    return Response(value, slope, 0.5 * (curvature + curvature.transpose(0, 2, 1)))


def _integrated(mean: Array, cov: Array, classes: NDArray[np.intp]) -> Response:
    """log E[softmax_y] for z ~ N(p, Q), by quasi-Monte-Carlo from a Gaussian around the mode.

    With l' = e_y - softmax(z) and B as above, averages under the posterior of z:
    slope = ⟨l'⟩,  curvature = ⟨B⟩ - Cov l';  in both, shifting all scores changes exactly nothing.
    """
    n_samples, n_classes = mean.shape
    mode = _maximised(mean, cov, classes)
    # Where variances between classes vanish, the Cholesky factor needs a breath of width.
    floor = 1e-12 * np.trace(cov, axis1=1, axis2=2) / n_classes + SMALLEST_VAR
    breath = floor[:, np.newaxis, np.newaxis] * np.eye(n_classes)
    root = np.linalg.cholesky(cov + breath)
    points = _normal_points(FULL_POINTS, n_classes)
    indicator = np.eye(n_classes)[classes]
    # With Q = L L' the covariance at the mode is L (I + L'B L)⁻¹ L', where nothing cancels. In units of the
    # cavity, the points are A ξ + b with A A' the matrix in the middle.
    share = np.clip(indicator - mode.slope, 0.0, 1.0)
    bend = share[:, :, np.newaxis] * (np.eye(n_classes) - share[:, np.newaxis, :])
    narrower = np.linalg.cholesky(np.eye(n_classes) + root.transpose(0, 2, 1) @ bend @ root)
    spread = WIDER * np.linalg.inv(narrower).transpose(0, 2, 1)
    log_size = np.sum(np.log(WIDER / np.einsum("mii->mi", narrower)), axis=1)
    factor, offset = root @ spread, np.einsum("mji,mj->mi", root, mode.slope)
    at_mean = np.einsum("mij,mj->mi", cov, mode.slope)
    log_z, slope = np.empty(n_samples), np.empty_like(mean)
    curvature = np.empty((n_samples, n_classes, n_classes))
    at_once = max(FULL_PIECE // points.size, 1)
    for start in range(0, n_samples, at_once):
        rows = slice(start, min(start + at_once, n_samples))
        scores = (mean + at_mean)[rows, np.newaxis] + points @ factor[rows].transpose(0, 2, 1)
        standard = offset[rows, np.newaxis] + points @ spread[rows].transpose(0, 2, 1)
        own = np.take_along_axis(scores, classes[rows, np.newaxis, np.newaxis], axis=2)[..., 0]
        level = logsumexp(scores, axis=2)
        log_weight = own - level + 0.5 * np.sum(points**2, axis=1) - 0.5 * np.sum(standard**2, axis=2)
        largest = log_weight.max(axis=1, keepdims=True)
        weight = np.exp(log_weight - largest)
        log_z[rows] = largest[:, 0] + np.log(weight.mean(axis=1)) + log_size[rows]
        weight /= weight.sum(axis=1, keepdims=True)
        share = np.exp(scores - level[..., np.newaxis])
        average = np.einsum("mp,mpk->mk", weight, share)
        slope[rows] = indicator[rows] - average
        # ⟨B⟩ - Cov = diag⟨s⟩ - ⟨s s'⟩ - ⟨s s'⟩ + ⟨s⟩⟨s⟩'.
        share -= average[:, np.newaxis]
        product = (weight[..., np.newaxis] * share).transpose(0, 2, 1) @ share
        curvature[rows] = average[:, :, np.newaxis] * np.eye(n_classes) - 2.0 * product
        curvature[rows] -= average[:, :, np.newaxis] * average[:, np.newaxis, :]
    # No direction of a log-concave density bends upwards; averages over points may.
    bends, ways = np.linalg.eigh(curvature)
    return Response(log_z, slope, (ways * np.maximum(bends, 0.0)[:, np.newaxis]) @ ways.transpose(0, 2, 1))


@lru_cache(maxsize=8)
def _normal_points(n_points: int, n_scores: int) -> Array:
    """Points that fill a unit normal evenly, with their mirror images; the same every time."""
    from scipy.stats import qmc  # slow to import, and rarely needed

    half = qmc.Sobol(n_scores, seed=0).random(n_points // 2)
    normal = ndtri(np.clip(half, 1e-12, 1 - 1e-12))
    return np.concatenate([normal, -normal])
