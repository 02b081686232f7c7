"""Panels: the few features that do nearly what a full model does, and a model that needs only these.

A panel is not found by fitting labels again. The full model has averaged what the labels leave open; a small
model that follows its probabilities inherits that, one that follows the labels does not [Piironen, Paasiniemi
and Vehtari 2020]. With η the full model's scores on the samples, centred:

**Order.** Least angle regression [Efron et al. 2004] on η in columns x̃_j = F_j x_j, where F_j, the ratio of
variances between and within classes (t² for two), makes features that separate the classes on their own
cheap: the adaptive lasso's path [Zou 2006]. Several scores enter together: a feature's correlation with the
residuals is the length of a vector over scores [Yuan and Lin 2006]. A ridge in the size of the largest
squared column makes it the elastic net's [Zou and Hastie 2005], by which features that resemble each other
enter one after the other instead of one at random: lists from other samples then agree better.

**Projection.** Weights of k features maximise  Σ weight Σ_c p_c log softmax_c(B w), p the full model's
probabilities, with a Gaussian prior: w_j has the variance  v F_j / mean F,  v a tenth of that of the full
model's scores, and of fewer than ten features their share of it. The full model follows samples that it was
fitted to also along columns of noise, and a panel that follows it there would repeat that; columns that do
not separate the classes get little weight.

Nothing here looks at labels but F. What a panel loses on other samples is for left-out parts to show, with
all of this repeated in each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve
from scipy.linalg.lapack import dposv, dpotrf
from scipy.special import expit, log_softmax

from foldless.beliefs import Array
from foldless.operators import Standardized
from foldless.registry import registered
from foldless.selection.marginal import class_sums
from foldless.solvers.multinomial_ridge import multinomial_ridge
from foldless.solvers.solve import damped_newton

# A panel's members are sought among so many times as many features: those with the largest first step.
CANDIDATES_PER_MEMBER, FEWEST_CANDIDATES = 6, 200
# Probabilities below this are no surer statement; another program's may be zero.
LEAST_PROBABILITY = 1e-4
# A priori: of weights, in the variance of the full model's scores, and of the intercept.
WEIGHT_VARIANCE, INTERCEPT_VARIANCE = 0.1, 100.0
# Newton's decrement, in nats of all samples together: losses a sample are right to five digits.
TOLERANCE, MAX_ITER = 1e-4, 60
# Features that may stand in for a member: so many by their first-order loss are refitted.
STAND_INS = 3


@registered("panel/stand-in")
class StandIn(NamedTuple):
    """A feature that could take a member's place."""

    feature: int
    loss: float  # nats a sample by which the panel is further from the full model; negative if it is nearer


@dataclass(frozen=True, eq=False)
class Target:
    """What a panel has to reproduce: a full model's probabilities for weighted samples."""

    log_proba: Array  # (samples, classes)
    weight: Array

    @classmethod
    def of(cls, log_proba: Array, weight: Array) -> Target:
        return cls(log_softmax(np.maximum(log_proba, np.log(LEAST_PROBABILITY)), axis=1), weight)

    @property
    def scores(self) -> Array:
        """Log probabilities about their means over classes and samples, (samples, classes)."""
        scores = self.log_proba - self.log_proba.mean(axis=1, keepdims=True)
        return np.asarray(scores - self.weight @ scores / self.weight.sum())

    @property
    def score_variance(self) -> float:
        """In all, over degrees of freedom."""
        n_free = self.log_proba.shape[1] - 1
        return float(self.weight @ np.sum(np.square(self.scores), axis=1) / self.weight.sum()) / n_free


@dataclass(frozen=True, eq=False)
class Projection:
    """Weights of some standardised columns, one row of them for each class."""

    weights: Array  # (columns, classes)
    intercept: Array  # (classes,)

    def log_proba(self, columns: Array) -> Array:
        return np.asarray(log_softmax(columns @ self.weights + self.intercept, axis=1))


def projected(columns: Array, target: Target, ratio: Array) -> Projection:
    """The full model in terms of some standardised columns, (samples, columns), with their F."""
    used = target.weight > 0
    share = ratio / np.maximum(ratio.mean(), np.finfo(float).tiny) if ratio.any() else np.ones(ratio.size)
    variance = max(WEIGHT_VARIANCE, 1.0 / max(ratio.size, 1)) * max(target.score_variance, LEAST_PROBABILITY)
    size = np.sqrt(variance * share)
    level = np.sqrt(INTERCEPT_VARIANCE)
    basis = np.column_stack([size * columns[used], np.full(int(used.sum()), level)])
    proba, weight = np.exp(target.log_proba[used]), target.weight[used]
    if proba.shape[1] == 2:
        # The difference of two scores varies twice as much, and is all that matters.
        one = np.sqrt(0.5) * _logistic_ridge(np.sqrt(2.0) * basis, proba[:, 1], weight)
        found = np.column_stack([-one, one])
    else:
        found = multinomial_ridge(basis, proba, weight, tolerance=TOLERANCE).weights
    return Projection(size[:, np.newaxis] * found[:-1], level * found[-1])


def _logistic_ridge(basis: Array, proba: Array, weight: Array) -> Array:
    """Weights with the prior N(0, 1) that follow probabilities of the second class."""

    def loss(weights: Array) -> float:
        scores = basis @ weights
        return float(0.5 * weights @ weights + weight @ (np.logaddexp(0.0, scores) - proba * scores))

    def expand(weights: Array) -> tuple[Array, Array]:
        share = expit(basis @ weights)
        slope = weights + basis.T @ (weight * (share - proba))
        curvature = (basis * (weight * share * (1.0 - share))[:, np.newaxis]).T @ basis
        curvature.flat[:: weights.size + 1] += 1.0
        return slope, np.asarray(dposv(curvature, -slope)[1])

    start = np.zeros(basis.shape[1])
    return damped_newton(loss, expand, start, tolerance=TOLERANCE, max_iter=MAX_ITER).at


def divergence(projection: Projection, columns: Array, target: Target) -> float:
    """Nats a sample that the projection loses, KL(full model ‖ projection)."""
    lost = np.sum(np.exp(target.log_proba) * (target.log_proba - projection.log_proba(columns)), axis=1)
    return float(target.weight @ lost / target.weight.sum())


@dataclass(frozen=True, eq=False)
class Order:
    """Features in the order in which they enter, and the candidates they were taken from."""

    features: NDArray[np.intp]
    candidates: NDArray[np.intp]
    columns: Array  # (samples, candidates), standardised
    ratio: Array  # (features of the table,): F; of those that are kept the mean of the order's

    def columns_of(self, features: NDArray[np.intp]) -> Array:
        position = {int(j): n for n, j in enumerate(self.candidates)}
        return self.columns[:, [position[int(j)] for j in features]]


def ordered(
    standardized: Standardized,
    codes: NDArray[np.intp],
    target: Target,
    kept: NDArray[np.intp],
    n_members: int,
) -> Order:
    """Up to `n_members` features in their order; what is kept comes beforehand and is not among them.

    The table is passed over twice, and once more for its candidates.
    """
    weight, scores = target.weight, target.scores
    ratio = class_sums(standardized, codes, weight, scores.shape[1], kept).ratio
    ratio[kept] = 0.0
    scores = _residual(standardized.columns(kept), scores, weight)
    first = ratio * np.linalg.norm(standardized.adjoint(weight[:, np.newaxis] * scores), axis=1)
    n_candidates = max(CANDIDATES_PER_MEMBER * n_members, FEWEST_CANDIDATES)
    # Stable: of equals the first, the same every time.
    candidates = np.argsort(-first, kind="stable")[:n_candidates]
    candidates = candidates[first[candidates] > 0]
    columns = standardized.columns(candidates)
    root = np.sqrt(weight)[:, np.newaxis]
    found = least_angle_order(root * columns * ratio[candidates], root * scores, n_members)
    ratio[kept] = ratio[candidates[found]].mean() if found.size else 1.0
    return Order(candidates[found], candidates, columns, ratio)


def least_angle_order(columns: Array, scores: Array, n_members: int) -> NDArray[np.intp]:
    """The order in which columns enter least angle regression on scores (rows, d), with a ridge.

    With C = Xᵀ R, residuals R, and the active columns' least-squares direction, a step of length α takes C to
    C - α A, and those of active columns to (1 - α) C. A column enters where its ‖c - α a‖ is (1 - α) times
    the active ones': the smaller root of a quadratic.
    """
    n_columns = columns.shape[1]
    gram = columns.T @ columns
    gram.flat[:: n_columns + 1] += gram.diagonal().max(initial=0.0)
    correlation = columns.T @ scores
    order: list[int] = []
    waiting = np.ones(n_columns, dtype=bool)
    while len(order) < min(n_members, n_columns):
        squares = np.einsum("js,js->j", correlation, correlation)
        if not order:
            entering, length = int(np.argmax(squares)), 0.0
            step = np.zeros_like(correlation)
        else:
            factor, _ = dpotrf(gram[np.ix_(order, order)], lower=1)
            step = gram[:, order] @ cho_solve((factor, True), correlation[order], check_finite=False)
            active = float(np.max(squares[order]))
            lengths = _entering(squares, np.einsum("js,js->j", correlation, step), step, active)
            lengths[~waiting] = np.inf
            entering = int(np.argmin(lengths))
            length = float(lengths[entering])
            if not length < 1.0:
                break
        correlation = correlation - length * step
        order.append(entering)
        waiting[entering] = False
    return np.array(order, dtype=np.intp)


def _entering(squares: Array, along: Array, step: Array, active: float) -> Array:
    """Step lengths at which ‖c - α a‖² = (1 - α)² active, for squares ‖c‖², along cᵀa and step a."""
    bend = np.einsum("js,js->j", step, step) - active
    slope = along - active
    # Nothing correlates more than the active columns, but for rounding.
    gap = np.minimum(squares - active, 0.0)
    root = np.sqrt(np.maximum(slope**2 - bend * gap, 0.0))
    # The root of bend α² - 2 slope α + gap that is reached first, in the form that does not cancel.
    lower = root - slope
    return np.where(lower > 0, -gap / np.maximum(lower, np.finfo(float).tiny), np.inf)


def _residual(kept: Array, scores: Array, weight: Array) -> Array:
    """Scores without what kept columns explain."""
    if not kept.shape[1]:
        return scores
    root = np.sqrt(weight)[:, np.newaxis]
    coefficients = np.linalg.lstsq(root * kept, root * scores, rcond=None)[0]
    return np.asarray(scores - kept @ coefficients)


def stand_ins(
    columns: Array, ratio: Array, members: NDArray[np.intp], order: Order, target: Target
) -> dict[int, tuple[StandIn, ...]]:
    """For each member, features that are not in the panel, by what the panel loses with them in its place.

    `columns`, with their `ratio`, are those of the model, kept ones first and the members last. At the
    panel's own weights the divergence is a quadratic in weighted scores; features are ranked by how much of a
    member's part they explain, and the first few of them refitted with the member's own prior.
    """
    whole = projected(columns, target, ratio)
    start = divergence(whole, columns, target)
    proba = np.exp(whole.log_proba(columns))
    # The mean curvature of a sample's scores stands for its matrix.
    root = np.sqrt(target.weight * np.mean(proba * (1.0 - proba), axis=1))[:, np.newaxis]
    outside = np.setdiff1d(order.candidates, members)
    others = root * order.columns_of(outside)
    found: dict[int, tuple[StandIn, ...]] = {}
    first = columns.shape[1] - members.size
    for n, member in enumerate(members):
        rest = np.column_stack([np.delete(columns, first + n, axis=1), np.ones(columns.shape[0])])
        basis = np.linalg.qr(root * rest)[0]
        part = (root * columns[:, [first + n]]) @ whole.weights[[first + n]]
        part = part - basis @ (basis.T @ part)
        length = np.sum(others**2, axis=0) - np.sum((basis.T @ others) ** 2, axis=0)
        explained = np.sum((others.T @ part) ** 2, axis=1) / np.maximum(length, np.finfo(float).eps)
        best = np.argsort(-explained, kind="stable")[:STAND_INS]
        tried = []
        for j in outside[best]:
            swapped = columns.copy()
            swapped[:, first + n] = order.columns_of(np.array([j]))[:, 0]
            loss = divergence(projected(swapped, target, ratio), swapped, target) - start
            tried.append(StandIn(int(j), loss))
        found[int(member)] = tuple(sorted(tried, key=lambda each: each.loss))
    return found
