"""What left-out predictions are worth: error rates and AUC with intervals, calibration, chance.

Likewise the weights of several models, by what each predicts for left-out samples (stacking).

Intervals are at the 95 % level. That of an error rate is exact [Clopper and Pearson 1934]: of 63 samples
without an error it is 0 to 5.7 %, where a standard error would be zero. Samples of unequal weight count as
the number of equal ones of the same precision, (Σ w)² / Σ w² [Kish 1965]. So do samples of groups, which
are right or wrong together: errors of groups, and not of samples, scatter independently, and that scatter
tells how many independent samples they are worth [Korn and Graubard 1998]; likewise of AUC [Obuchowski 1997].
Left-out predictions are not independent either: samples learn from each other, and that doubles the variance
of a mean where nothing is learnt (`counted_in_pairs`). There, too, a score hangs on which class is rarer
without the sample: of equal classes all are missed, and AUC is nought. So the lower limit of the error, and
AUC, are of scores at the class frequencies of all samples [Parker et al. 2007].

**Is there anything to learn?** Leave-one-out of noise scatters about guessing, by more than its errors would
if samples were independent: they share one fit. So the answer is a test of its own, by permutation. If labels
have nothing to do with columns, any order of the labels is as good as the one at hand, whatever columns have
in common; the share of orders with which class means lie as far apart is an exact p value. How far apart is
told by three sums over columns, for many weak, some and one strong difference (Σ z², Σ z⁴, max z²), and by
the smallest of their p values, which is compared with those of the permutations [Westfall and Young 1993].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import betaincinv, expit, log_softmax, logit, ndtr, softmax, stdtrit
from scipy.stats import rankdata

from foldless.beliefs import Array
from foldless.operators import Operator
from foldless.registry import registered
from foldless.solvers.solve import damped_newton

TAIL = 0.025
NORMAL_95 = 1.959964
# The smallest p value is one over this number.
N_ORDERS = 200
# Products of rows, or columns, and orders that are held at once.
MOST_PRODUCTS = 4_000_000
PIECE_BYTES = 1 << 19
# Calibration slopes beyond ten are all alike: labels are never missed.
SLOPE_SPREAD = 10.0
# Newton's method, to a decrement in log likelihood.
NEWTON_STEPS, NEWTON_TOLERANCE = 50, 1e-14
# Of scales and of weights of models: until nothing is left to gain in log likelihood.
MAX_ITER, TOLERANCE = 100, 1e-10
# Of scores; less is none.
LEAST_VARIANCE = 1e-6
# No step goes further than this share of the way to where a weight would be zero.
LARGEST_SHARE = 0.95
# Without a sample stacking is not left with less than this share of its curvature along what it predicts.
LEAST_STAYS = 0.25
# Probabilities above this are sums of numbers none of which has left the range of float64.
SMALLEST_SUM = 1e-290


@registered("interval/limits")
class Interval(NamedTuple):
    lower: float
    upper: float


@registered("left-out/worth")
@dataclass(frozen=True)
class Worth:
    """Of left-out predictions."""

    n_samples: float  # of equal weight, and independent
    error: float
    error_interval: Interval
    log_loss: float
    auc: float | None  # of two classes
    auc_interval: Interval | None
    calibration_slope: float  # 1 if probabilities mean what they say, less if they are too sure
    calibration_slope_std: float
    guessing_error: float  # of always answering the most frequent class
    guessing_log_loss: float  # of class frequencies without the sample
    p_value: float | None = None  # of labels that have nothing to do with the columns


def worth_of(
    log_proba: Array,
    code: NDArray[np.intp],
    weight: Array,
    p_value: float | None = None,
    group: NDArray[np.intp] | None = None,
) -> Worth | None:
    """Of log probabilities (samples, classes); None where an approximation broke down for all."""
    known = np.all(np.isfinite(np.exp(log_proba)), axis=1) & (weight > 0)
    if not known.any():
        return None
    log_proba, code, weight = log_proba[known], code[known], weight[known]
    group = None if group is None else np.unique(group[known], return_inverse=True)[1]
    n_classes, share = log_proba.shape[1], weight / weight.sum()
    equal = float(1.0 / np.sum(share**2))
    wrong = log_proba.argmax(axis=1) != code
    error = min(float(share @ wrong), 1.0)
    effective = equal if group is None else independent_samples(wrong, share, group)
    count = np.bincount(code, weight, minlength=n_classes)
    left = count[np.newaxis] - weight[:, np.newaxis] * np.eye(n_classes)[code] + 1.0
    own = np.arange(code.size), code
    guess = (left / left.sum(axis=1, keepdims=True))[own]
    at_all = log_proba.copy()  # as left-out groups are
    at_all[own] += np.log((count[code] + 1.0) / left[own]) if group is None else 0.0
    fewest = float(share @ (at_all.argmax(axis=1) != code))
    times = counted_in_pairs(np.exp(log_proba[own]), guess, share)
    independent = effective / times
    found, around = None, None
    if n_classes == 2 and np.all(count > 0):
        found, around = auc(np.diff(at_all)[:, 0], code == 1, group, times)
    slope, spread = calibration_slope(log_proba, code, share * equal)
    return Worth(
        effective,
        error,
        Interval(
            exact_interval(fewest * independent, independent).lower,
            exact_interval(error * independent, independent).upper,
        ),
        -float(share @ log_proba[own]),
        found,
        around,
        slope,
        spread * float(np.sqrt(equal / independent)),
        1.0 - float(count.max() / count.sum()),
        -float(share @ np.log(guess)),
        p_value,
    )


def log_frequencies(count: Array) -> Array:
    """Scores without features, (..., scores), from weights of classes, (..., classes).

    Laplace's rule of succession: a class without samples left is improbable, not impossible.
    """
    found = np.log(count + 1.0)
    return np.diff(found, axis=-1) if count.shape[-1] == 2 else found


def mean_and_error(values: Array, weight: Array) -> tuple[float, float]:
    """The weighted mean and its standard error; a sample of weight 2 counts as two."""
    total = weight.sum()
    share = weight / total
    mean = float(share @ values)
    return mean, float(np.sqrt(share @ (values - mean) ** 2 / total))


def exact_interval(hits: float, n_samples: float) -> Interval:
    """Of a rate of which `hits` of `n_samples` were seen, by Clopper and Pearson; counts may be fractions."""
    misses = n_samples - hits
    lower = 0.0 if hits <= 0 else float(betaincinv(hits, misses + 1.0, TAIL))
    return Interval(lower, 1.0 if misses <= 0 else float(betaincinv(hits + 1.0, misses, 1.0 - TAIL)))


def independent_samples(wrong: NDArray[np.bool_], share: Array, group: NDArray[np.intp]) -> float:
    """As many as these, in groups from 0, are worth for their error rate e [Korn and Graubard 1998].

    Their number n is that of  e (1 - e) / n = G / (G - 1) Σ_g (Σ share (wrong - e))²,  times the square of
    what Student's quantile of n samples is over that of G groups; at most that of samples in groups of their
    own. Where there are no errors, or nothing else, groups count as a whole.
    """
    error, n_groups = float(share @ wrong), int(group.max()) + 1
    whole, most = (float(1.0 / np.sum(own**2)) for own in (np.bincount(group, share), share))
    spread = float(np.sum(np.bincount(group, share * (wrong - error)) ** 2))
    if n_groups == 1 or spread * error * (1.0 - error) <= 0.0:
        return whole
    found = error * (1.0 - error) * (n_groups - 1) / (n_groups * spread)
    quantiles = stdtrit(np.maximum([most, n_groups], 2.0) - 1.0, 1.0 - TAIL)
    return float(np.clip(found * (quantiles[0] / quantiles[1]) ** 2, 1.0, most))


def counted_in_pairs(density: Array, guess: Array, weight: Array) -> float:
    """How many times the variance of as many independent losses a mean of left-out ones has: 1 to 2.

    What a label adds to the left-out score of another, that label adds to its own. Where nothing can be
    learnt the loss of a fit is a sum of such numbers, one of each pair of samples, and each counted twice:
    that has twice the variance of its terms. Where labels are foreseen there are none. In between, a left-out
    label has a slope 1 - p in what is added to its score, p of the `guess` if by class frequencies; both ends
    of a pair have one, so that what is counted twice is the square of their mean share.
    """
    slopes = weight @ (1.0 - density), weight @ (1.0 - guess)
    return 1.0 + min(float(slopes[0] / max(slopes[1], LEAST_VARIANCE)), 1.0) ** 2


def auc(
    scores: Array, positive: NDArray[np.bool_], group: NDArray[np.intp] | None = None, times: float = 1.0
) -> tuple[float, Interval]:
    """The share of pairs of samples in the right order, and its interval [DeLong et al. 1988] in log-odds.

    Where all pairs, or none, are in order that interval has no width. Of min(n₁, n₀) pairs without a sample
    in common all are in order with probability AUC^min: that bounds it. Samples of a group, from 0, scatter
    together [Obuchowski 1997]. Variances are so many `times` those of independent scores.
    """
    first, second = scores[positive], scores[~positive]
    n_first, n_second = first.size, second.size
    rank = rankdata(np.concatenate([first, second]))
    # How often each sample is on the right side of the samples of the other class.
    of_first = (rank[:n_first] - rankdata(first)) / n_second
    of_second = 1.0 - (rank[n_first:] - rankdata(second)) / n_first
    found, n_pairs = float(of_first.mean()), min(n_first, n_second)
    if group is not None:
        n_pairs = min(np.unique(group[each]).size for each in (positive, ~positive))
    if found in (0.0, 1.0):
        bound = TAIL ** (times / n_pairs)
        return found, Interval(bound, 1.0) if found else Interval(0.0, 1.0 - bound)
    if group is None:
        spread = sum(float(part.var(ddof=1)) / part.size for part in (of_first, of_second) if part.size > 1)
    else:
        of_sample = np.empty(scores.size)
        of_sample[positive], of_sample[~positive] = (
            (of_first - found) / n_first,
            (of_second - found) / n_second,
        )
        spread = float(np.sum(np.bincount(group, of_sample) ** 2)) * n_pairs / max(n_pairs - 1, 1)
    reach = NORMAL_95 * np.sqrt(times * spread) / (found * (1.0 - found))
    return found, Interval(float(expit(logit(found) - reach)), float(expit(logit(found) + reach)))


def calibration_slope(log_proba: Array, code: NDArray[np.intp], weight: Array) -> tuple[float, float]:
    """The slope b and its standard error in  P(class) ∝ exp(a_class + b log p_class)  [Cox 1958].

    A wide Gaussian about a = 0 and b = 1 keeps them finite where no label is missed.
    """
    n_classes = log_proba.shape[1]
    # Far out a class that is ruled out would be an infinite slope's whole evidence.
    x = np.maximum(log_proba, -50.0)
    x = x - x.mean(axis=1, keepdims=True)
    indicator, middle = np.eye(n_classes)[code], np.append(np.zeros(n_classes), 1.0)
    # Columns of the design, (samples, classes, parameters).
    design = np.concatenate([np.broadcast_to(np.eye(n_classes), (*x.shape, n_classes)), x[..., None]], axis=2)

    def loss(at: Array) -> float:
        own = np.sum(indicator * log_softmax(design @ at, axis=1), axis=1)
        return float(0.5 * np.sum((at - middle) ** 2) / SLOPE_SPREAD**2 - weight @ own)

    def expand(at: Array) -> tuple[Array, Array, Array]:
        share = softmax(design @ at, axis=1)
        slope = np.einsum("m,mk,mkp->p", weight, share - indicator, design) + (at - middle) / SLOPE_SPREAD**2
        centred = design - np.einsum("mk,mkp->mp", share, design)[:, np.newaxis]
        curvature = np.einsum("m,mk,mkp,mkq->pq", weight, share, centred, centred)
        curvature[np.diag_indices_from(curvature)] += SLOPE_SPREAD**-2
        return slope, -np.linalg.solve(curvature, slope), curvature

    best = damped_newton(
        loss, lambda at: expand(at)[:2], middle, tolerance=NEWTON_TOLERANCE, max_iter=NEWTON_STEPS
    ).at
    return float(best[-1]), float(np.sqrt(np.linalg.inv(expand(best)[2])[-1, -1]))


def scale_of(scores: Array, log_proba: Array, share: Array) -> Any:
    """The k for which the plain logistic of k · scores is nearest to these probabilities of samples.

    It maximises  Σ share Σ_c p_c log softmax_c(k · scores), less a very small ridge: a score that is the same
    for all samples has no scale. Of several models, which are the first axis, each has its own: Newton's
    method, or half of the way to where the slope is known to have the other sign.
    """
    if scores.shape[-1] == 1:
        scores = np.concatenate([np.zeros_like(scores), scores], axis=-1)
    # Of samples that count: the ridge is in these units, and others must not move it.
    unit = np.maximum(np.max(np.abs(scores[..., share > 0, :]), axis=(-2, -1)), LEAST_VARIANCE)
    scores, proba = scores / unit[..., np.newaxis, np.newaxis], np.exp(log_proba)
    wanted = np.sum(proba * scores, axis=-1) @ share
    k = np.zeros(unit.shape)
    low, high = np.full(k.shape, -np.inf), np.full(k.shape, np.inf)
    for _ in range(MAX_ITER):
        own = softmax(k[..., np.newaxis, np.newaxis] * scores, axis=-1)
        mean = np.sum(own * scores, axis=-1)
        slope = LEAST_VARIANCE * k + mean @ share - wanted
        curvature = LEAST_VARIANCE + (np.sum(own * scores**2, axis=-1) - mean**2) @ share
        on = slope**2 > TOLERANCE * curvature
        if not on.any():
            break
        low, high = np.where(slope < 0, k, low), np.where(slope > 0, k, high)
        there = k - slope / curvature
        with np.errstate(invalid="ignore"):  # between infinities, where Newton's step is inside
            there = np.where((low < there) & (there < high), there, 0.5 * (low + high))
        k = np.where(on, there, k)
    return np.maximum(k, LEAST_VARIANCE) / unit


# ---------------------------------------------------------------------------------------- of several models


def stacking_weights(log_density: Array, sample_weight: Array, prior: Array) -> Array:
    """Mixture weights w that maximise  Σ_m weight_m log Σ_c w_c p_c(m)  and a Dirichlet log prior.

    log_density is (models, samples): log p_c(m), of left-out labels. With α_c log w_c of the prior, and
    T = Σ weight + Σ α,

        Σ_m weight_m log Σ_c w_c p_c(m) + Σ_c α_c log w_c - T Σ_c w_c

    has its maximum where the weights add up to one, so that there is no constraint but their sign, which the
    prior keeps. It is concave, and Newton's method climbs it from equal weights, the same every time. EM
    would crawl: models that predict nearly alike are what there is to weigh.
    """
    density = np.exp(log_density - log_density.max(axis=0))
    total = float(sample_weight.sum() + prior.sum())

    def loss(weights: Array) -> float:
        likelihood = float(sample_weight @ np.log(weights @ density))
        return total * float(weights.sum()) - likelihood - float(prior @ np.log(weights))

    def expand(weights: Array) -> tuple[Array, Array]:
        relative = density / (weights @ density)
        slope = total - relative @ sample_weight - prior / weights
        curvature = (relative * sample_weight) @ relative.T + np.diag(prior / weights**2)
        return slope, cho_solve(cho_factor(curvature), -slope)

    def room(weights: Array, step: Array) -> float:
        shrinks = step < 0
        return LARGEST_SHARE * float(np.min(-weights[shrinks] / step[shrinks], initial=np.inf))

    start = np.full(prior.size, 1.0 / prior.size)
    found = damped_newton(loss, expand, start, tolerance=TOLERANCE, max_iter=MAX_ITER, room=room)
    return np.asarray(found.at / found.at.sum())


def mixed(weights: Array, log_proba: Array) -> Array:
    """Of the mixture with these weights of (models, samples, classes), in the log domain.

    Weights are those of models, or of models for each sample.
    """
    if weights.shape[0] == 1:
        return np.asarray(log_proba[0])
    of_each = weights.reshape(*weights.shape, *(1,) * (3 - weights.ndim))
    proba = np.sum(of_each * np.exp(log_proba), axis=0)
    # Not where a class is so improbable that the sum has lost digits.
    if proba.min(initial=1.0) > SMALLEST_SUM:
        return np.asarray(np.log(proba))
    with np.errstate(divide="ignore"):  # a weight of zero is a log of -inf, and no model
        return np.asarray(np.logaddexp.reduce(np.log(of_each) + log_proba, axis=0))


def mixture_moments(weight: Array, mean: Array, var: Array) -> tuple[Array, Array]:
    """Mean and variance of a mixture, whose parts are along the first axis."""
    whole = np.sum(weight * mean, axis=0)
    return whole, np.sum(weight * (var + (mean - whole) ** 2), axis=0)


def jackknifed(
    weights: Array,
    log_density: Array,
    weight: Array,
    group: NDArray[np.intp] | None,
    prior: Array,
    guess: Array,
) -> Array:
    """Stacking weights without each sample, or group, in turn: (models, samples), like the densities.

    An average whose weights were fitted to a left-out density is not judged by it fairly. From the weights of
    all samples, one Newton step leads to those without sample m: with q_c = w_c p_c(m) / Σ w p(m), the loss
    has there, in units of w, the slope and the curvature

        lost_m (q - w),    diag α + Σ weight q qᵀ - lost_m q qᵀ,

    and a step of u is taken as a factor exp(u), so that weights stay positive. Groups are few, and weights
    are found again without each.

    What is lost is more than the sample's own density: it was among the others when each of them was left
    out, and to predict m from k is to predict k from m (`counted_in_pairs`).
    """
    times = counted_in_pairs(weights @ np.exp(log_density), guess, weight)
    if group is not None:
        every = np.arange(int(group.max()) + 1)[:, np.newaxis]
        without = [stacking_weights(log_density[:, rest], weight[rest], prior) for rest in group != every]
        steps = times * np.log(np.array(without) / weights)
        return np.asarray(softmax(np.log(weights) + steps, axis=1)[group].T)
    density = np.exp(log_density - log_density.max(axis=0))
    share = weights[:, np.newaxis] * density / (weights @ density)
    curvature = (share * weight) @ share.T
    curvature[np.diag_indices_from(curvature)] += prior
    factor, lost = cho_factor(curvature), times * weight
    step, along_own = (cho_solve(factor, part) for part in (lost * (share - weights[:, np.newaxis]), share))
    stays = 1.0 - lost * np.einsum("cm,cm->m", share, along_own)
    along = np.einsum("cm,cm->m", share, step)
    step += along_own * (lost * along / np.maximum(stays, LEAST_STAYS))
    return np.asarray(softmax(np.log(weights)[:, np.newaxis] - step, axis=0))


# ---------------------------------------------------------------------------------------- chance


def p_value_of(
    columns: Operator,
    code: NDArray[np.intp],
    counted: NDArray[np.bool_],
    group: NDArray[np.intp] | None = None,
) -> float:
    """Of class means that lie as far apart as these, if labels have nothing to do with columns.

    Every row that is `counted` counts as one. Labels change places within groups, if any; where every group
    has one label, groups change theirs.
    """
    n_classes = int(code.max()) + 1
    orders = _orders(code[counted], None if group is None else group[counted])
    sums = np.zeros((3, N_ORDERS))
    classes = np.arange(1, 2) if n_classes == 2 else np.arange(n_classes)
    at_once = max(MOST_PRODUCTS // (code.size * classes.size), 1)
    for start in range(0, N_ORDERS, at_once):
        part = orders[:, start : start + at_once].T
        contrast = (part == classes[:, np.newaxis, np.newaxis]).astype(np.float64)
        contrast -= contrast.mean(axis=2, keepdims=True)
        contrast /= np.sqrt(np.maximum(np.sum(contrast**2, axis=2, keepdims=True), np.finfo(float).tiny))
        into, rows = sums[:, start : start + at_once], np.zeros((classes.size * len(part), code.size))
        rows[:, counted] = contrast.reshape(len(rows), -1)
        # Products with some columns at a time stay in a processor's cache, as do the columns.
        size = PIECE_BYTES * code.size // max(code.size, len(rows))
        for z in columns.row_products(rows, size):
            square, *others = np.square(z, out=z).reshape(classes.size, part.shape[0], -1)
            for other in others:
                square += other
            into[0] += square.sum(axis=1)
            into[1] += np.einsum("ij,ij->i", square, square)
            np.maximum(into[2], square.max(axis=1, initial=0.0), out=into[2])
    # Rounding must not tell orders apart that come to the same.
    sums = np.round(sums / sums.max(axis=1, keepdims=True).clip(np.finfo(float).tiny), 9)
    smallest = np.min((N_ORDERS + 1 - rankdata(sums, method="min", axis=1)) / N_ORDERS, axis=0)
    return float(np.mean(smallest <= smallest[0]))


def _orders(code: NDArray[np.intp], group: NDArray[np.intp] | None) -> NDArray[np.intp]:
    """The labels as they are, and in other orders: (samples, N_ORDERS)."""
    rng = np.random.default_rng(0)
    group = np.zeros(code.size, dtype=np.intp) if group is None else np.unique(group, return_inverse=True)[1]
    _, first = np.unique(group, return_index=True)
    if first.size > 1 and np.array_equal(code[first][group], code):
        return _orders(code[first], None)[group]
    found = np.empty((code.size, N_ORDERS), dtype=np.intp)
    found[:, 0] = code
    drawn = rng.random((N_ORDERS - 1, code.size))  # of which hardly ever two are the same
    one = first.size == 1
    shuffled = np.argsort(drawn) if one else np.lexsort((drawn, np.broadcast_to(group, drawn.shape)), axis=1)
    found[np.argsort(group, kind="stable"), 1:] = code[shuffled].T
    return found


def p_value_of_losses(log_density: Array, code: NDArray[np.intp], weight: Array) -> float:
    """The same for very many samples, from log densities of left-out labels, by a paired z test.

    Class frequencies that have seen all labels stand against them: it is cautious.
    """
    share = weight / weight.sum()
    lead = log_density - np.log(np.bincount(code, share))[code]
    mean = float(share @ lead)
    error = np.sqrt(float(share**2 @ (lead - mean) ** 2))
    return float(ndtr(-mean / max(error, np.finfo(float).tiny)))
