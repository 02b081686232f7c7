"""Approximate leave-one-out for penalised multinomial regression: a Newton step in place of most refits.

`leaving` has the steps. A step is as good as the expansion is where it leads. At small rates some samples are
led far: there further steps without a line search ran away (a loss of 22 nats where refits have 1.03, six
kinds of glass), and columns came in that no expansion had counted on. Those samples are refitted, from where
their step led, with the certificate that every fit has.

A sample of weight 2 is two rows, of which one is left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.solvers.smlr import L1, Columns, Labels, Regression, RegressionFit, Stop, fit, plainest
from foldless.solvers.smlr.penalties import Penalty
from foldless.tuning.leaving import Steps, moved_by_formula

# With more samples than this, one of them changes few zeros, and steps one by one would be slow.
MOST_STEPS = 2000
# A step that adds more to the loss of its sample than this share of the mean loss is mended by a refit...
FAR = 0.5
# ... to this duality gap, relative to the objective.
REFIT_GAP = 1e-4


class LeaveOneOut(NamedTuple):
    """What all others say about each training sample."""

    log_proba: Array  # (samples, classes); NaN where the formula breaks down
    log_loss: float
    error: float


class Stepped(NamedTuple):
    """Leave-one-out by steps, and where the steps of samples that they have moved far have led."""

    loo: LeaveOneOut
    far: dict[int, RegressionFit]


def leave_one_out(
    problem: Regression,
    penalty: Penalty,
    fitted: RegressionFit,
    left_out: Array,
    label_weight: Array,
    columns: Columns | None = None,
) -> LeaveOneOut:
    """Leave-one-out log probabilities of a fit.

    `left_out` is how much of each sample's weight goes, `label_weight` how much it counts in the averages.
    """
    columns = columns or Columns(problem.operator)
    stepped = leave_one_out_by_steps(problem, penalty, fitted, left_out, label_weight, columns)
    return refitted_where_far(problem, penalty, stepped, left_out, label_weight, columns)


def leave_one_out_by_steps(
    problem: Regression,
    penalty: Penalty,
    fitted: RegressionFit,
    left_out: Array,
    label_weight: Array,
    columns: Columns,
) -> Stepped:
    """The same without refits, which is good enough to compare rates."""
    labels = problem.labels
    penalty = plainest(penalty, labels)
    if isinstance(penalty, L1) and labels.code.size <= MOST_STEPS:
        steps = Steps.of(problem, penalty, fitted, left_out, columns)
        log_proba = _log_proba(labels, fitted.scores + steps.moved)
        far = {int(m): steps.led(m) for m in _far(labels, fitted.scores, log_proba)}
    else:
        moved = moved_by_formula(problem, penalty, fitted, left_out, columns)
        log_proba, far = _log_proba(labels, fitted.scores + moved), {}
    return Stepped(scored(log_proba, labels.code, label_weight), far)


def refitted_where_far(
    problem: Regression,
    penalty: Penalty,
    stepped: Stepped,
    left_out: Array,
    label_weight: Array,
    columns: Columns | None = None,
) -> LeaveOneOut:
    """Samples that their step has moved far are left out in earnest."""
    labels = problem.labels
    columns = columns or Columns(problem.operator)
    log_proba = stepped.loo.log_proba.copy()
    for m, start in stepped.far.items():
        weight = labels.sample_weight.copy()
        weight[m] -= left_out[m]
        without = replace(problem, labels=replace(labels, sample_weight=weight))
        if np.any(without.labels.base_rates == 0):
            continue  # the last of its class: who has never seen that class calls it impossible
        refit = fit(without, penalty, start, stop=Stop(REFIT_GAP), columns=columns)
        log_proba[m] = _log_proba(labels, refit.scores)[m]
    return scored(log_proba, labels.code, label_weight)


def _far(labels: Labels, scores: Array, log_proba: Array) -> NDArray[np.intp]:
    """The samples of which a step says so much that it should be checked."""
    every = np.arange(labels.code.size)
    before, after = -_log_proba(labels, scores)[every, labels.code], -log_proba[every, labels.code]
    # A sample that has run away must not make the others look near.
    mean_loss = float(np.mean(np.fmin(after, np.log(labels.n_classes))))
    return np.flatnonzero(~(np.abs(after - before) <= FAR * mean_loss))


def _log_proba(labels: Labels, scores: Array) -> Array:
    eta = labels.full(scores)
    with np.errstate(invalid="ignore"):  # NaN, where nothing is known, stays NaN
        out: Array = eta - np.logaddexp.reduce(eta, axis=1, keepdims=True)
    return out


def scored(log_proba: Array, code: NDArray[np.intp], label_weight: Array) -> LeaveOneOut:
    """Log loss and error of left-out probabilities. A tie is an error: nothing was known."""
    every = np.arange(code.size)
    own = log_proba[every, code]
    others = log_proba.copy()
    others[every, code] = -np.inf
    share = label_weight / label_weight.sum()
    wrong = ~(own > others.max(axis=1))
    error = float(share @ wrong) if np.all(np.isfinite(own)) else float("nan")
    return LeaveOneOut(log_proba, -float(share @ own), error)
