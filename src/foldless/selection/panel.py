"""Panels: the few features that do nearly what a full model does, and a model that needs only these.

A panel is not found by fitting labels again. The full model has averaged what the labels leave open; a small
model that follows its probabilities inherits that, one that follows the labels does not [Piironen, Paasiniemi
and Vehtari 2020]. With η the full model's scores on the samples, centred:

**Importance.** A feature is credited for what it does alone and for what it does beside all others: its
importance s_j = √F_j |w_j|, where F_j is the ratio of variances between and within classes (t² for two) and
w_j its weights in the full model, per standard deviation. Either factor alone misleads: of many features that
resemble each other, √F has all before the first that adds to them, and |w| has those that only correct for
others. A priori the weight of a feature in a panel has a variance in proportion to s_j, here as in the
adaptive lasso [Zou 2006], which takes its penalties from a first estimate.

**Order.** Forward selection on η under that prior: of columns √s_j x_j with a ridge, the next is the one that
adds most to what is explained. The ridge has the size of the largest squared column, so that no feature is
believed more than half; features that resemble each other then enter one after the other, where least squares
would correct for the noise of the first ones.

**Projection.** Weights of k features maximise  Σ weight Σ_c p_c log softmax_c(B w), p the full model's
probabilities, with a Gaussian prior: w_j has the variance  v s_j / mean s,  v a tenth of that of the full
model's scores, and of fewer than ten features their share of it. The full model follows samples that it was
fitted to also along columns of noise, and a panel that follows it there would repeat that.

Labels enter by the full model and by F. What a panel loses on other samples is for left-out parts to show,
with all of this repeated in each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv
from scipy.special import expit, log_softmax

from foldless.beliefs import Array
from foldless.operators import Standardized
from foldless.registry import registered
from foldless.selection.marginal import class_sums
from foldless.solvers.multinomial_ridge import multinomial_ridge
from foldless.solvers.solve import damped_newton

# A panel's members are sought among so many times as many features: those with the largest first step.
CANDIDATES_PER_MEMBER, FEWEST_CANDIDATES = 6, 200
# Of the full model's largest weight; smaller ones are alike, so that a model of few weights orders all.
LEAST_WEIGHT = 1e-3
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


def projected(
    columns: Array, target: Target, importance: Array, start: Projection | None = None
) -> Projection:
    """The full model in terms of some standardised columns, (samples, columns), of some importance.

    `start` is of the same columns, or of the first of them.
    """
    used = target.weight > 0
    total = importance.sum()
    share = importance * (importance.size / total) if total > 0 else np.ones(importance.size)
    least = 1.0 / max(importance.size, 1)
    variance = max(WEIGHT_VARIANCE, least) * max(target.score_variance, LEAST_PROBABILITY)
    size = np.sqrt(variance * share)
    level = np.sqrt(INTERCEPT_VARIANCE)
    basis = np.column_stack([size * columns[used], np.full(int(used.sum()), level)])
    proba, weight = np.exp(target.log_proba[used]), target.weight[used]
    begin = np.zeros((basis.shape[1], proba.shape[1]))
    if start is not None:
        known = size[: len(start.weights), np.newaxis]
        begin[: len(known)] = start.weights / np.maximum(known, np.finfo(float).tiny)
        begin[-1] = start.intercept / level
    if proba.shape[1] == 2:
        # The difference of two scores varies twice as much, and is all that matters.
        root = np.sqrt(2.0)
        one = _logistic_ridge(root * basis, proba[:, 1], weight, root * begin[:, 1]) / root
        found = np.column_stack([-one, one])
    else:
        found = multinomial_ridge(basis, proba, weight, begin, TOLERANCE).weights
    return Projection(size[:, np.newaxis] * found[:-1], level * found[-1])


def _logistic_ridge(basis: Array, proba: Array, weight: Array, start: Array) -> Array:
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
    importance: Array  # of all features of the table; of those that are kept the mean of the order's

    def columns_of(self, features: NDArray[np.intp]) -> Array:
        position = {int(j): n for n, j in enumerate(self.candidates)}
        return self.columns[:, [position[int(j)] for j in features]]


def ordered(
    standardized: Standardized,
    codes: NDArray[np.intp],
    target: Target,
    weights: Array | None,
    kept: NDArray[np.intp],
    n_members: int,
) -> Order:
    """Up to `n_members` features in their order; what is kept comes beforehand and is not among them.

    `weights`, the full model's, are (features, scores); None of a model that has none. The table is passed
    over twice, and once more for its candidates.
    """
    weight, scores = target.weight, target.scores
    importance = importances(standardized, codes, target, weights, kept)
    importance[kept] = 0.0
    scores = _residual(standardized.columns(kept), scores, weight)
    first = np.sqrt(importance) * np.linalg.norm(standardized.adjoint(weight[:, np.newaxis] * scores), axis=1)
    n_candidates = max(CANDIDATES_PER_MEMBER * n_members, FEWEST_CANDIDATES)
    # Stable: of equals the first, the same every time.
    candidates = np.argsort(-first, kind="stable")[:n_candidates]
    candidates = candidates[first[candidates] > 0]
    columns = standardized.columns(candidates)
    root = np.sqrt(weight)[:, np.newaxis]
    found = forward_order(root * columns * np.sqrt(importance[candidates]), root * scores, n_members)
    importance[kept] = importance[candidates[found]].mean() if found.size else 1.0
    return Order(candidates[found], candidates, columns, importance)


def importances(
    standardized: Standardized,
    codes: NDArray[np.intp],
    target: Target,
    weights: Array | None,
    kept: NDArray[np.intp] | tuple[()] = (),
) -> Array:
    """√F |w| of every feature, F beside what is kept; without weights, what each explains of scores alone."""
    if weights is None:
        weights = standardized.adjoint(target.weight[:, np.newaxis] * target.scores)
    ratio = class_sums(standardized, codes, target.weight, target.log_proba.shape[1], kept).ratio
    size = np.linalg.norm(weights, axis=1)
    largest = float(size.max(initial=0.0))
    return np.sqrt(ratio) * (np.maximum(size, LEAST_WEIGHT * largest) if largest > 0 else 1.0)


def forward_order(columns: Array, scores: Array, n_members: int) -> NDArray[np.intp]:
    """The order in which columns enter forward selection on scores (rows, d), with a ridge.

    The rows of a pivoted Cholesky factor of the Gram matrix: given those that are in, `correlation` is of
    what is left of columns and scores, and `square` of what is left of a column and its ridge.
    """
    gram = columns.T @ columns
    square = gram.diagonal() + gram.diagonal().max(initial=0.0)
    correlation = columns.T @ scores
    factor = np.zeros((min(n_members, square.size), square.size))
    order: list[int] = []
    for row in factor:
        gain = np.einsum("js,js->j", correlation, correlation) / square
        gain[order] = -1.0
        entering = int(np.argmax(gain))
        root = np.sqrt(square[entering])
        row[:] = (gram[entering] - factor[: len(order), entering] @ factor[: len(order)]) / root
        correlation = correlation - np.outer(row, correlation[entering] / root)
        square = square - row**2
        order.append(entering)
    return np.array(order, dtype=np.intp)


def _residual(kept: Array, scores: Array, weight: Array) -> Array:
    """Scores without what kept columns explain."""
    if not kept.shape[1]:
        return scores
    root = np.sqrt(weight)[:, np.newaxis]
    coefficients = np.linalg.lstsq(root * kept, root * scores, rcond=None)[0]
    return np.asarray(scores - kept @ coefficients)


def stand_ins(
    columns: Array, importance: Array, members: NDArray[np.intp], order: Order, target: Target
) -> dict[int, tuple[StandIn, ...]]:
    """For each member, features that are not in the panel, by what the panel loses with them in its place.

    `columns`, with their `importance`, are those of the model, kept ones first and the members last. At the
    panel's own weights the divergence is a quadratic in weighted scores; features are ranked by how much of a
    member's part they explain, and the first few of them refitted with the member's own prior.
    """
    whole = projected(columns, target, importance)
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
            loss = divergence(projected(swapped, target, importance, whole), swapped, target) - start
            tried.append(StandIn(int(j), loss))
        found[int(member)] = tuple(sorted(tried, key=lambda each: each.loss))
    return found
