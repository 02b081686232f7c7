"""Ridge multinomial regression, dense in its weights, with samples or groups left out.

Where all columns share the signal, sparsity is the wrong belief. With the prior N(0, 1) on the weights of
scaled columns B (samples, r), for each of D classes, scores are B W and the posterior is log-concave. At its
mode W = Bᵀ a, with the dual weights  a = weight (e_y - π). Newton's method finds it. Where the r D x r D
curvature is small, the equations of a step are solved by its Cholesky factor. Larger ones are solved by
conjugate gradients, after a change of variables by the Cholesky factor of  I + Bᵀ diag(h) B, with h the mean
curvature of a sample over classes. The more the curvatures of a sample differ between classes, or from those
for which the factor was made, the more iterations these take; the factor is made anew when they take many.

**Leave-one-out.** Let V be the D x D posterior covariance of a sample's scores f under the curvatures
weight (diag π - π πᵀ) = weight C of all samples. Its own quadratic taken out leaves the covariance
Q = (V⁻¹ - C)⁻¹ and the mean  f - Q (e_y - π)  [Rasmussen, Williams 2006, section 3.5 for what V is]. With
few weights V comes from the inverse of the r D x r D curvature of the objective. With many, blocks
A_k = I + Bᵀ diag(weight π_k) B and G_k = B A_k⁻¹ Bᵀ give, by Woodbury,

    V_kl = [k = l] diag G_k + diag( G_k P_k S⁻¹ P_l G_l ),  P_k = diag(√weight π_k),  S = I - Σ_k P_k G_k P_k,

for O(D M³): nothing larger than samples by samples. Groups are few, and each is left out by a refit that
starts from the fit of all.

**In sets.** With thousands of samples and columns and several classes that takes too long: r D x r D is 10
000² and more. A small set of samples can be left out by one Newton step without it, by conjugate gradients.
The samples of a set are few, so that it matters little that they are left out together. The equations of all
sets are solved at once.

**Along the own score.** With tens of thousands of samples that takes too long, too. But a label acts mostly
on the score of its class, against all others: along  u = e_y - 1/D.  With the weights of all other directions
held, the curvature there is  h = weight π_y (1 - π_y) D / (D - 1) and

    v = D / (D - 1) bᵀ (I + Bᵀ diag(h) B)⁻¹ b,    q = v / (1 - v π_y (1 - π_y))

are the variances of the score with the label and without it, from one matrix of r x r for each class. The
score of its own class falls by  q (1 - π_y).  In fact other weights are not held, so that variances are
larger, by about the same factor for all samples. It is found by leaving out some samples in sets, chosen such
that each stands for an equal part of what leaving out costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack, solve_triangular
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax

from foldless.beliefs import Array
from foldless.solvers.solve import damped_newton

# Newton's method ends when the decrement of all samples together is below this, in nats: far below what
# leave-one-out resolves.
TOLERANCE = 1e-6
# The same of fits that are only averaged or compared: losses of a sample are right to three digits.
ROUGH_TOLERANCE = 1e-4
MAX_ITER = 60
# A factor is made anew after so many iterations of conjugate gradients, which take about as long as that.
STALE = 12
# So many sets are all samples left out in; and so many are left out to find the factor along own scores.
SETS, PROBE_SETS = 32, 16
# Rows whose curvature is hardly any in the scores of a class are not visited: they may have this share of it.
NEGLIGIBLE = 0.001
# The relative error to which Newton's equations are solved: smaller ones would gain nothing before the last
# steps, which are short anyway.
CG_TOLERANCE, CG_ITERATIONS = 0.03, 60
# Tables of at most so many entries, times classes, are fitted in double precision and to the last digits,
# which takes a millisecond.
SMALL, EXACT_CG_TOLERANCE = 100_000, 1e-10
# Single precision is enough while the smallest pivot of S is larger than this: rounding is a hundredth of it.
LEAST_LEFT = 3e-5
# Up to so many weights of all classes a factor takes no longer than conjugate gradients to the last digits.
FEW_WEIGHTS = 256


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """The mode of the posterior, and whether Newton's method reached it."""

    weights: Array  # (r, D)
    scores: Array  # (samples, D)
    converged: bool


def multinomial_ridge(
    basis: Array,
    indicator: Array,
    sample_weight: Array,
    start: Array | None = None,
    tolerance: float = TOLERANCE,
) -> RidgeFit:
    """The mode; indicator is (samples, D), one of each row 1. `start` is where Newton's method begins."""
    weight, n_weights = sample_weight[:, np.newaxis], basis.shape[1]
    weights = np.zeros((n_weights, indicator.shape[1])) if start is None else start

    small, metric = _is_small(basis, indicator), None
    inner = basis if small else basis.astype(np.float32)
    tolerance = min(tolerance, TOLERANCE) if small else tolerance

    # A point is the weights above the scores, which are linear in them.
    def loss(point: Array) -> float:
        weights, scores = point[:n_weights], point[n_weights:]
        own = np.einsum("mk,mk->m", indicator, scores)
        return float(0.5 * np.sum(weights * weights) - sample_weight @ (own - logsumexp(scores, axis=1)))

    def expand(point: Array) -> tuple[Array, Array]:
        nonlocal metric
        share = softmax(point[n_weights:], axis=1)
        descent = basis.T @ (weight * (indicator - share)) - point[:n_weights]
        if small and descent.size <= FEW_WEIGHTS:
            right = descent.T.reshape(-1, 1)
            step = lapack.dposv(_curvature(basis, share, sample_weight), right)[1].reshape(-1, n_weights).T
            return np.vstack([-descent, np.zeros_like(share)]), np.vstack([step, basis @ step])
        if metric is None or metric.iterations > STALE:
            metric = _Metric(inner, share, sample_weight)
        precise = EXACT_CG_TOLERANCE if small else CG_TOLERANCE
        step = metric.solve(share, descent[:, np.newaxis], precise)[:, 0]
        return np.vstack([-descent, np.zeros_like(share)]), np.vstack([step, basis @ step])

    begin = np.vstack([weights, basis @ weights])
    found = damped_newton(loss, expand, begin, tolerance=tolerance, max_iter=MAX_ITER)
    return RidgeFit(found.at[:n_weights], found.at[n_weights:], found.converged)


def _is_small(basis: Array, indicator: Array) -> bool:
    return basis.size * indicator.shape[1] <= SMALL


class _Metric:
    """Solves equations of the curvature, in coordinates in which it is near the identity.

    In single precision if the basis is: the solution is a step that others follow, or moves a left-out score.
    """

    def __init__(self, basis: Array, share: Array, sample_weight: Array) -> None:
        self.basis, self.weight = basis, sample_weight[:, np.newaxis, np.newaxis].astype(basis.dtype)
        mean_curvature = sample_weight * np.sum(share * (1.0 - share), axis=1) / max(share.shape[1] - 1, 1)
        self.factor = ridge_factor(basis, mean_curvature)
        self.iterations = 0  # that the last solution took

    def solve(
        self,
        share: Array,
        right: Array,
        tolerance: float,
        left_out: tuple[NDArray[np.intp], NDArray[np.intp], Array] | None = None,
    ) -> Array:
        """(I + Σ weight C ⊗ b bᵀ)⁻¹ right, of shape (r, systems, D), by conjugate gradients.

        `left_out` has samples, the systems that are without them, and shares of weight that these lack.
        """
        basis, (n_columns, n_systems, n_classes) = self.basis, right.shape
        right = right.astype(basis.dtype)
        of_sample = share[:, np.newaxis, :].astype(basis.dtype)

        def better_of(left: Array) -> Array:
            flat = left.reshape(n_columns, -1)
            return np.asarray(cho_solve(self.factor, flat, check_finite=False)).reshape(right.shape)

        def curved(direction: Array) -> Array:
            moved = (basis @ direction.reshape(n_columns, -1)).reshape(-1, n_systems, n_classes)
            moved -= np.sum(of_sample * moved, axis=2, keepdims=True)
            moved *= self.weight * of_sample
            if left_out is not None:
                samples, systems, lost = left_out
                moved[samples, systems] *= 1.0 - lost[:, np.newaxis]
            return direction + (basis.T @ moved.reshape(moved.shape[0], -1)).reshape(right.shape)

        def product(one: Array, other: Array) -> Array:
            return np.einsum("rsk,rsk->s", one, other, dtype=np.float64)[:, np.newaxis].astype(basis.dtype)

        step, left = np.zeros_like(right), right
        direction = better_of(left)
        size = product(left, direction)
        enough = tolerance**2 * size
        self.iterations = 0
        # A system that is solved stays as it is until all are.
        while np.any(going := size > enough) and self.iterations < CG_ITERATIONS:
            image = curved(direction)
            length = np.where(going, size / np.where(going, product(direction, image), 1.0), 0.0)
            step = step + length * direction
            left = left - length * image
            better = better_of(left)
            before, size = size, product(left, better)
            direction = better + np.where(going, size / np.where(going, before, 1.0), 0.0) * direction
            self.iterations += 1
        return np.asarray(step, dtype=np.float64)


def ridge_factor(basis: Array, curvature: Array) -> tuple[Array, bool]:
    """The Cholesky factor of I + Bᵀ diag(curvature) B, in single precision if that is enough."""
    # Of one array with itself only a triangle is computed.
    scaled = basis * np.sqrt(curvature).astype(basis.dtype)[:, np.newaxis]
    inner = scaled.T @ scaled
    inner.flat[:: inner.shape[0] + 1] += 1.0
    try:
        return cho_factor(inner, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        if basis.dtype == np.float64:
            raise
        return ridge_factor(basis.astype(np.float64), curvature)


def leave_one_out(
    basis: Array, indicator: Array, sample_weight: Array, left_out: Array, fitted: RidgeFit
) -> Array:
    """Scores (samples, D) of every sample without `left_out` of its weight."""
    share = softmax(fitted.scores, axis=1)
    n_classes = share.shape[1]
    # Rows as weights count them: a weight of 2 must have the same treatment as a row twice.
    if basis.shape[1] * n_classes <= sample_weight.sum():
        spread = _spread_by_weights(basis, share, sample_weight)
    else:
        inner = basis if _is_small(basis, indicator) else basis.astype(np.float32)
        spread = _spread_by_samples(inner, share, sample_weight)
    lost = left_out[:, np.newaxis, np.newaxis]
    bend = share[:, :, np.newaxis] * (np.eye(n_classes) - share[:, np.newaxis, :])
    # Q s = (I - V C)⁻¹ V s, without inverting V.
    pull = np.einsum("mij,mj->mi", spread, left_out[:, np.newaxis] * (indicator - share))
    system = np.eye(n_classes) - lost * (spread @ bend)
    return np.asarray(fitted.scores - np.linalg.solve(system, pull[..., np.newaxis])[..., 0])


def leave_one_out_along_own(
    basis: Array, indicator: Array, sample_weight: Array, left_out: Array, fitted: RidgeFit
) -> Array:
    """Scores (samples, D) of every sample without `left_out` of its weight, along u = e_y - 1/D."""
    share, n_classes = softmax(fitted.scores, axis=1), indicator.shape[1]
    own = np.argmax(indicator, axis=1)
    doubt = 1.0 - share[np.arange(own.size), own]
    spread, taken, single = np.empty(own.size), left_out * doubt * (1.0 - doubt), basis.astype(np.float32)
    larger = n_classes / (n_classes - 1.0)
    for k in np.unique(own):
        rows, curvature = np.flatnonzero(own == k), sample_weight * share[:, k] * (1.0 - share[:, k])
        used = _notable(curvature)
        lower, _ = ridge_factor(single[used], larger * curvature[used])
        half = solve_triangular(lower, single[rows].T, lower=True, check_finite=False)
        spread[rows] = larger * np.einsum("rm,rm->m", half, half)
        # The curvature of rows that were not visited is not in there, and need not be taken out.
        taken[np.setdiff1d(rows, used)] = 0.0
    # A sample's own curvature is only a part of all, the prior another: but for rounding something is left.
    left = np.maximum(1.0 - spread * taken, np.finfo(np.float32).eps)
    without = np.minimum(spread / left, larger * np.einsum("mr,mr->m", basis, basis))
    # The score falls by this.
    fall = left_out * without * doubt
    fall *= _following(single, indicator, sample_weight, left_out, fitted.scores, fall)
    return fitted.scores - fall[:, np.newaxis] * (indicator - 1.0 / n_classes)


def _notable(curvature: Array) -> NDArray[np.intp]:
    """The rows that have all but a negligible share of the curvature."""
    order = np.argsort(curvature)
    first = int(np.searchsorted(np.cumsum(curvature[order]), NEGLIGIBLE * curvature.sum()))
    return np.sort(order[first:])


def leave_one_out_in_sets(
    basis: Array, indicator: Array, sample_weight: Array, left_out: Array, fitted: RidgeFit
) -> Array:
    """Scores (samples, D) of every sample by one Newton step without it and a few others."""
    share = softmax(fitted.scores, axis=1)
    pull = indicator - share
    # Dealt in this order, sets are alike in their classes and sizes, and the same for any order of rows.
    size = np.einsum("mk,mk->m", pull, pull) * np.einsum("mr,mr->m", basis, basis)
    order = np.lexsort((size, np.argmax(indicator, axis=1)))
    single = basis.astype(np.float32)
    scores = fitted.scores.copy()
    n_sets = min(SETS, order.size)
    scores[order] -= _moved_without(single, share, pull, sample_weight, left_out, order, n_sets)
    return scores


def _moved_without(
    basis: Array,
    share: Array,
    pull: Array,
    sample_weight: Array,
    left_out: Array,
    samples: NDArray[np.intp],
    n_sets: int,
) -> Array:
    """How far scores of some samples fall by a Newton step without their set; they are dealt to sets in turn.

    For a set O, with s = e_y - π, that is  B_O (H - Σ_O lost C ⊗ b bᵀ)⁻¹ Σ_O lost b ⊗ s.
    """
    sets = np.arange(samples.size) % n_sets
    members = [samples[number::n_sets] for number in range(n_sets)]
    right = np.stack([basis[own].T @ (left_out[own, np.newaxis] * pull[own]) for own in members], axis=1)
    lost = (samples, sets, left_out[samples] / sample_weight[samples])
    step = _Metric(basis, share, sample_weight).solve(share, right, CG_TOLERANCE, lost)
    moved = np.empty((samples.size, pull.shape[1]))
    for number, own in enumerate(members):
        moved[number::n_sets] = basis[own] @ step[:, number]
    return moved


def _following(
    basis: Array, indicator: Array, sample_weight: Array, left_out: Array, scores: Array, fall: Array
) -> float:
    """The factor by which log odds fall further because all weights move, from a few samples.

    These are left out by a Newton step. With the factor they lose as much log likelihood as by that.
    """
    share = softmax(scores, axis=1)
    pull = indicator - share
    # The loss to first order. Samples are taken at equal steps of its sum, so that each stands for as much of
    # it.
    cost = fall * np.sum(pull * indicator, axis=1)
    if not cost.sum() > 0:
        return 1.0
    n_probes = max(cost.size * PROBE_SETS // SETS, 1)
    order = np.argsort(cost, kind="stable")
    steps = (np.arange(n_probes) + 0.5) / n_probes * cost.sum()
    where = np.minimum(np.searchsorted(np.cumsum(cost[order]), steps), cost.size - 1)
    where, times = np.unique(where, return_counts=True)
    probes = order[where]
    exact = _moved_without(basis, share, pull, sample_weight, left_out, probes, PROBE_SETS)
    own = indicator[probes]

    def loss(away: Array) -> float:
        left = scores[probes] - away
        return float(np.sum((logsumexp(left, axis=1) - np.sum(own * left, axis=1)) * times / cost[probes]))

    def too_much(log_factor: float) -> float:
        return loss(np.exp(log_factor) * fall[probes, np.newaxis] * own) - loss(exact)

    # With other weights held variances are smaller, but not by a factor of ten: beyond these is rounding
    # only.
    lowest, highest = np.log(0.1), np.log(10.0)
    if too_much(lowest) > 0 or too_much(highest) < 0:
        return 1.0
    return float(np.exp(brentq(too_much, lowest, highest, xtol=1e-3)))


def leave_groups_out(
    basis: Array, indicator: Array, sample_weight: Array, group: NDArray[np.intp], fitted: RidgeFit
) -> Array:
    """Scores (samples, D) of every sample from a fit without its group."""
    scores = np.empty_like(fitted.scores)
    for number in np.unique(group):
        inside = group == number
        others = ~inside
        part = basis[others], indicator[others], sample_weight[others]
        refit = multinomial_ridge(*part, fitted.weights, ROUGH_TOLERANCE)
        scores[inside] = basis[inside] @ refit.weights
    return scores


def _curvature(basis: Array, share: Array, sample_weight: Array) -> Array:
    """The curvature of the objective, (D r, D r), weights of the first class first."""
    n_columns, n_classes = basis.shape[1], share.shape[1]
    found = np.empty((n_classes, n_columns, n_classes, n_columns))
    for k in range(n_classes):
        for other in range(k + 1):
            curvature = sample_weight * share[:, k] * ((k == other) - share[:, other])
            block = (basis * curvature[:, np.newaxis]).T @ basis
            found[k, :, other] = block
            found[other, :, k] = block
    flat = found.reshape(n_classes * n_columns, -1)
    flat.flat[:: flat.shape[0] + 1] += 1.0
    return flat


def _spread_by_weights(basis: Array, share: Array, sample_weight: Array) -> Array:
    """V of every sample, (samples, D, D), from the covariance of all weights."""
    n_columns, n_classes = basis.shape[1], share.shape[1]
    flat = _curvature(basis, share, sample_weight)
    lower, _ = cho_factor(flat, lower=True, overwrite_a=True, check_finite=False)
    half = lapack.dtrtri(lower, lower=1)[0]
    half = np.tril(half).reshape(-1, n_classes, n_columns)
    images = np.einsum("akc,mc->mka", half, basis, optimize=True)
    return np.asarray(images @ images.transpose(0, 2, 1))


def _spread_by_samples(basis: Array, share: Array, sample_weight: Array) -> Array:
    """V of every sample in matrices of samples by samples (module docstring), as precise as the basis.

    S is computed in double precision in any case, and all is done in that if little is left of S.
    """
    (n_samples, n_classes), dtype = share.shape, basis.dtype
    root = np.sqrt(sample_weight)[:, np.newaxis] * share  # P_k
    between = np.eye(n_samples)
    spread = np.zeros((n_samples, n_classes, n_classes))
    scaled = np.empty((n_classes, n_samples, n_samples), dtype=dtype)
    for k in range(n_classes):
        lower, _ = ridge_factor(basis, sample_weight * share[:, k])
        half = solve_triangular(lower, basis.T, lower=True, check_finite=False)
        block = half.T @ half  # G_k
        spread[:, k, k] = block.diagonal()
        scaled[k] = root[:, k, np.newaxis] * block  # P_k G_k
        between -= scaled[k] * root[:, k]
    # Of a sample without any doubt about its class, rounding could leave nothing of S.
    between.flat[:: n_samples + 1] += 1e-12
    try:
        lower, _ = cho_factor(between, lower=True, overwrite_a=True, check_finite=False)
        sure = dtype == np.float64 or np.min(lower.diagonal()) ** 2 > LEAST_LEFT
    except LinAlgError:
        if dtype == np.float64:
            raise
        sure = False
    if not sure:
        return _spread_by_samples(basis.astype(np.float64), share, sample_weight)
    lower = lower.astype(dtype)
    for k in range(n_classes):
        scaled[k] = solve_triangular(lower, scaled[k], lower=True, check_finite=False, overwrite_b=True)
    of_samples = scaled.transpose(2, 0, 1)
    return spread + of_samples @ of_samples.transpose(0, 2, 1)


def leave_one_out_cost(n_samples: int, n_coordinates: int, n_classes: int) -> float:
    """Operations of leaving samples out of a ridge one by one, at one strength."""
    if n_coordinates * n_classes <= n_samples:
        return float(n_coordinates * n_classes) ** 2 * (n_samples + n_coordinates * n_classes)
    return 3.0 * n_classes * float(n_samples) ** 2 * n_coordinates


def sets_cost(n_samples: int, n_coordinates: int, n_classes: int) -> float:
    """Operations of leaving samples out of a ridge in sets: two products, 20 times or so for each set."""
    return 2.0 * 20.0 * SETS * n_samples * n_coordinates * n_classes
