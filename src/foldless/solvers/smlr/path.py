"""Sparse multinomial logistic regression on any operator: working sets, screening, a certificate, a path.

Most weights are zero, so a fit is a sequence of small dense ones over the columns that may not be. After
each, one look at all columns shows whether any other is wanted, and how far the objective is from its
minimum: the duality gap, by which a fit ends. Along a path of falling rates each fit starts from the last,
and the strong rule [Tibshirani et al. 2012] names the columns to begin with; since it can err, the
certificate still covers all columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.operators.base import Operator
from foldless.problem import Outcome
from foldless.solvers.smlr.block import block
from foldless.solvers.smlr.component_wise import component_wise
from foldless.solvers.smlr.design import Design, Watch, duality_gap
from foldless.solvers.smlr.newton import newton
from foldless.solvers.smlr.objective import L1, AtScores, Labels, NoPenalty, Penalty, RowGroups

Algorithm = Callable[[Design, Array, float, int, Watch], tuple[Array, int]]
ALGORITHMS: dict[str, Algorithm] = {"auto": newton, "block": block, "component-wise": component_wise}

# A fit without a predecessor begins with this many columns, and doubles them at most.
FIRST_COLUMNS = 16
# The small fit is solved to this share of the gap that is allowed in all, so that what other columns
# want is not confused with what these still want.
INNER_SHARE = 0.2
# Newton steps that bring an intercept to rounding error.
INTERCEPT_STEPS = 20


@dataclass(frozen=True, eq=False)
class Regression:
    """What is fitted: a matrix, labels, and whether there is an intercept."""

    operator: Operator
    labels: Labels
    intercept: bool = True

    @property
    def n_plain(self) -> int:
        return int(self.intercept)


@dataclass(frozen=True)
class Stop:
    """When a fit ends: duality gap relative to the objective, and iterations of the inner algorithm."""

    tol: float = 1e-6
    max_iter: int = 1000


@dataclass(frozen=True, eq=False)
class RegressionFit:
    """The weights that are not zero, and how sure it is that they are right."""

    rate: float
    rows: NDArray[np.intp]  # the columns whose weights are not zero
    weights: Array  # (rows, scores)
    intercept: Array  # (scores,)
    scores: Array  # (samples, scores)
    at: AtScores
    gradient: Array  # of the log likelihood by all weights, (columns, scores)
    objective: float
    duality_gap: float
    kkt_residual: float
    n_iter: int
    outcome: Outcome

    def coef(self, n_columns: int) -> Array:
        """All weights, (columns, scores)."""
        out = np.zeros((n_columns, self.weights.shape[1]))
        out[self.rows] = self.weights
        return out


def nothing(problem: Regression) -> RegressionFit:
    """The fit without features: class frequencies, or equal probabilities if there is no intercept."""
    labels = problem.labels
    intercept = np.zeros(labels.n_scores)
    if problem.intercept:
        log_rates = np.log(labels.base_rates)
        level = log_rates.mean() if labels.reference is None else log_rates[labels.reference]
        intercept = log_rates[labels.free] - level
    scores = np.tile(intercept, (labels.code.size, 1))
    at = labels.at(scores)
    gradient = problem.operator.adjoint(at.residual)
    none = np.zeros(0, dtype=np.intp)
    weights = np.zeros((0, labels.n_scores))
    return RegressionFit(
        np.inf, none, weights, intercept, scores, at, gradient, at.loss, 0.0, 0.0, 0, Outcome.CONVERGED
    )


def plainest(penalty: Penalty, labels: Labels) -> Penalty:
    """The same penalty in its simplest form: the norm of a single number is its absolute value."""
    return L1(penalty.rate) if labels.n_scores == 1 and isinstance(penalty, RowGroups) else penalty


def largest_rate(penalty: type[Penalty], start: RegressionFit) -> float:
    """The smallest rate at which every weight is zero, from the fit without features."""
    return float(np.max(penalty(1.0).row_size(start.gradient), initial=0.0))


class Columns:
    """The columns used so far, dense, so that a path fetches each of them once."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._place = np.full(operator.shape[1], -1, dtype=np.intp)
        self._held: NDArray[Any] = np.empty((operator.shape[0], FIRST_COLUMNS), order="F")
        self._used = 0

    def __call__(self, rows: NDArray[np.intp]) -> Array:
        missing = rows[self._place[rows] < 0]
        if missing.size:
            wanted = self._used + missing.size
            if wanted > self._held.shape[1]:
                grown = np.empty((self._held.shape[0], 2 * wanted), order="F")
                grown[:, : self._used] = self._held[:, : self._used]
                self._held = grown
            self._held[:, self._used : wanted] = self._operator.columns(missing)
            self._place[missing] = np.arange(self._used, wanted)
            self._used = wanted
        return self._held[:, self._place[rows]]


def fit(
    problem: Regression,
    penalty: Penalty,
    start: RegressionFit | None = None,
    *,
    stop: Stop | None = None,
    algorithm: str = "auto",
    columns: Columns | None = None,
    watch: Watch | None = None,
) -> RegressionFit:
    """The weights that minimise loss plus penalty.

    `start` is a fit of the same data at another rate, from which this one goes on. `watch` is told the
    objective after every step of the inner algorithm.
    """
    penalty = plainest(penalty, problem.labels)
    stop = stop or Stop()
    start = start or nothing(problem)
    columns = columns or Columns(problem.operator)
    step = ALGORITHMS[algorithm]
    watch = watch or (lambda objective: None)
    labels, n_plain = problem.labels, problem.n_plain
    tol = stop.tol

    working = _first_working_set(penalty, start, problem.operator.shape[1])
    rows, weights, intercept = start.rows, start.weights, start.intercept
    inner_tol, n_iter = INNER_SHARE * tol, 0
    previous = np.inf
    while True:
        design = design_of(problem, penalty, columns, working)
        begin = np.zeros((n_plain + working.size, labels.n_scores))
        begin[:n_plain] = anchored(labels, intercept)
        begin[n_plain + np.searchsorted(working, rows)] = weights
        scale = max(design.objective(labels.at(design.scores(begin)), begin), np.finfo(float).tiny)
        found, used = step(design, begin, inner_tol * scale, max(stop.max_iter - n_iter, 1), watch)
        n_iter += used
        intercept, values = _centred(labels, found[:n_plain], found[n_plain:], penalty)
        on = np.flatnonzero(np.any(values != 0, axis=1))
        rows, weights = working[on], values[on]
        scores = design.columns[:, n_plain + on] @ weights
        if problem.intercept:
            intercept = _solved_intercept(labels, scores, intercept)
            scores = scores + intercept
        else:
            intercept = np.zeros(labels.n_scores)
        at = labels.at(scores)
        gradient = problem.operator.adjoint(at.residual)
        if problem.operator.dtype == np.float32:
            # The optimum fixes it for columns in use, which are held in float64: the gap is as exact as they.
            gradient = np.asarray(gradient, dtype=np.float64)
            gradient[working] = design.columns[:, n_plain:].T @ at.residual
        full = np.zeros(gradient.shape)
        full[rows] = weights
        objective = at.loss + penalty.value(weights)
        gap = duality_gap(labels, penalty, at, weights, gradient)
        excess = penalty.excess(full, gradient)
        residual = float(np.max(excess, initial=0.0))

        enough = gap <= tol * objective if penalty.has_dual else n_iter < stop.max_iter
        if enough or n_iter >= stop.max_iter:
            outcome = Outcome.CONVERGED if enough else Outcome.BUDGET
            break
        wanted = _wanted(penalty, gradient, working)
        if wanted.size:
            working = np.union1d(rows, wanted)
        else:
            # Nobody else is wanted: the small fit itself has to be better, as far as float64 can tell.
            if inner_tol <= INNER_SHARE * tol * 1e-4 and gap >= previous:
                outcome = Outcome.BUDGET
                break
            inner_tol, previous = 0.1 * inner_tol, min(previous, gap)
    return RegressionFit(
        penalty.rate,
        rows,
        weights,
        intercept,
        scores,
        at,
        gradient,
        objective,
        gap if penalty.has_dual else float("nan"),
        residual,
        n_iter,
        outcome,
    )


def path(
    problem: Regression,
    penalty: type[Penalty],
    rates: Array,
    *,
    stop: Stop | None = None,
) -> Iterator[RegressionFit]:
    """Fits at falling rates, each from the one before."""
    columns = Columns(problem.operator)
    current = nothing(problem)
    if penalty.sparse:
        # The strong rule needs the rate of the fit before; without features that is the largest.
        current = replace(current, rate=largest_rate(penalty, current))
    for rate in rates:
        current = fit(problem, penalty(float(rate)), current, stop=stop, columns=columns)
        yield current


def design_of(problem: Regression, penalty: Penalty, columns: Columns, working: NDArray[np.intp]) -> Design:
    n_plain = problem.n_plain
    matrix = np.ones((problem.operator.shape[0], n_plain + working.size), order="F")
    matrix[:, n_plain:] = columns(working)
    return Design(matrix, n_plain, problem.labels, penalty)


def _first_working_set(penalty: Penalty, start: RegressionFit, n_columns: int) -> NDArray[np.intp]:
    """Columns in use, and those that the strong rule cannot rule out; all, if weights are not sparse."""
    if not penalty.sparse:
        return np.arange(n_columns)
    size = penalty.row_size(start.gradient)
    if np.isinf(start.rate) or start.rate < penalty.rate:
        wanted = _largest(size, np.flatnonzero(size > penalty.rate), FIRST_COLUMNS)
    else:
        wanted = np.flatnonzero(size >= 2.0 * penalty.rate - start.rate)
        # A long way down the rule rules out nobody.
        wanted = _largest(
            size, wanted, max(FIRST_COLUMNS, 2 * start.rows.size + int(np.sum(size > penalty.rate)))
        )
    return np.union1d(start.rows, wanted)


def _wanted(penalty: Penalty, gradient: Array, working: NDArray[np.intp]) -> NDArray[np.intp]:
    """Columns outside the working set whose weights should not be zero; of many, the most wanted."""
    size = penalty.row_size(gradient)
    outside = size > penalty.rate
    outside[working] = False
    candidates = np.flatnonzero(outside)
    return _largest(size, candidates, max(FIRST_COLUMNS, working.size))


def _largest(size: Array, among: NDArray[np.intp], at_most: int) -> NDArray[np.intp]:
    if among.size <= at_most:
        return among
    return among[np.argsort(-size[among], kind="stable")[:at_most]]


def anchored(labels: Labels, intercept: Array) -> Array:
    """Intercepts with the last class at zero, as the algorithms have them in the symmetric form."""
    return intercept - intercept[-1] if labels.symmetric else intercept


def _centred(labels: Labels, intercept: Array, weights: Array, penalty: Penalty) -> tuple[Array, Array]:
    """What adds the same to all classes is taken out of weights that do not settle it themselves.

    Under L1 that is a feature with as many positive weights as negative ones and no zero; of all its
    equally good versions the one with a zero is taken.
    """
    flat = intercept[0] if len(intercept) else np.zeros(weights.shape[1])
    if not labels.symmetric:
        return flat, weights
    if penalty.rate == 0:
        weights = weights - weights.mean(axis=1, keepdims=True)
    elif isinstance(penalty, L1):
        loose = np.flatnonzero(np.all(weights != 0, axis=1) & (np.sign(weights).sum(axis=1) == 0))
        least = weights[loose, np.argmin(np.abs(weights[loose]), axis=1)]
        weights = weights.copy()
        weights[loose] -= least[:, np.newaxis]
    return flat - flat.mean(), weights


def _solved_intercept(labels: Labels, offset: Array, intercept: Array) -> Array:
    """The intercept to rounding error: residuals must sum to zero for a valid certificate."""
    ones = Design(np.ones((labels.code.size, 1)), 1, labels, NoPenalty(0.0))
    pairs = np.flatnonzero(ones.identified)
    at = labels.at(offset + intercept)
    for _ in range(INTERCEPT_STEPS):
        slope = at.residual.sum(axis=0)[pairs]
        step = np.zeros(labels.n_scores)
        hessian = ones.hessian(at, pairs)
        step[pairs] = np.linalg.lstsq(hessian, slope, rcond=None)[0]
        trial = intercept + step
        trial_at = labels.at(offset + trial)
        if np.abs(trial_at.residual.sum(axis=0)).max() >= np.abs(at.residual.sum(axis=0)).max():
            break
        intercept, at = trial, trial_at
    return intercept - intercept.mean() if labels.symmetric else intercept
