"""The rate of a penalised regression: chosen along a path by leave-one-out, by a criterion, by folds, or
integrated out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.problem import Outcome
from foldless.solvers.smlr import (
    L1,
    Columns,
    Penalty,
    Regression,
    RegressionFit,
    Stop,
    fit,
    largest_rate,
    nothing,
)
from foldless.solvers.smlr.newton_loo import LeaveOneOut, NewtonLOO, Stepped, log_proba_of

# A path ends where the fit explains this share of the labels: smaller rates only enlarge the weights.
EXPLAINED = 0.999
# From the largest rate down to this share of it; with more samples than columns there is more to learn.
SMALLEST_SHARE, SMALLEST_SHARE_TALL = 0.01, 0.001
# Ridge rates, in units of all curvature there is: nothing is learnt above, nearly all of it below.
RIDGE_RANGE = (1.0, 1e-7)
# Leave-one-out looks at this many places along a path, then this often between the best and its neighbours.
COARSE_LOOKS, REFINEMENTS = 8, 2
# A loss that was above its best at this many places in a row has passed it, or once by this share.
ENOUGH_RISES, CLEAR_RISE = 2, 0.1
# ... if that best is lower by this share than where the path begins: the first weights of all may do harm.
REAL_GAIN = 0.1
# A place is worth refits if its loss by steps is lower by this share.
WORTH_REFITS = 0.05
# Fits that are not exact are passed over; after so many of them smaller rates are hopeless, too.
ENOUGH_FAILURES = 2
# How far beyond the end of the rates a loss that still falls is followed.
FURTHEST = 1e-4
# The integrated rate: how close two rounds must be, how many rounds.
RATE_TOL, MOST_ROUNDS = 1e-4, 200


@dataclass(frozen=True, eq=False)
class Tuned:
    """The chosen fit, and the criterion at every rate that was looked at (smaller is better)."""

    fitted: RegressionFit
    rates: Array = field(default_factory=lambda: np.zeros(0))
    criterion: Array = field(default_factory=lambda: np.zeros(0))
    n_iter: int = 0
    loo: LeaveOneOut | None = None  # of the chosen fit, if that is how it was chosen


@dataclass(frozen=True, eq=False)
class Task:
    """What is fitted, under which kind of penalty, and how exactly."""

    problem: Regression
    penalty: type[Penalty]
    stop: Stop
    algorithm: str = "auto"

    @cached_property
    def columns(self) -> Columns:
        return Columns(self.problem.operator)

    @cached_property
    def nothing(self) -> RegressionFit:
        """The fit without features, at the rate at which they leave: the strong rule begins there."""
        start = nothing(self.problem)
        return replace(start, rate=largest_rate(self.penalty, start)) if self.penalty.sparse else start

    def fit(self, rate: float, start: RegressionFit) -> RegressionFit:
        """One fit that goes on from another."""
        penalty, stop = self.penalty(float(rate)), self.stop
        return fit(self.problem, penalty, start, stop=stop, algorithm=self.algorithm, columns=self.columns)

    def fits(self, rates: Array) -> list[RegressionFit]:
        """Fits at falling rates, down to where all is explained."""
        out: list[RegressionFit] = []
        for rate in rates:
            out.append(self.fit(rate, out[-1] if out else self.nothing))
            if self.explained(out[-1]):
                break
        return out

    def explained(self, fitted: RegressionFit) -> bool:
        """Whether smaller rates have nothing more to explain."""
        return fitted.at.loss < (1.0 - EXPLAINED) * self.nothing.at.loss

    def at(self, rate: float) -> RegressionFit:
        """One fit; far below the largest rate by way of some between."""
        fitted = self.nothing
        if not self.penalty.sparse:
            return self.fit(rate, fitted)
        top = max(fitted.rate, rate)
        # Half as large each time: the strong rule still rules most columns out.
        n_between = max(int(np.ceil(np.log2(top / rate))), 1)
        for between in np.geomspace(top, rate, n_between + 1)[1:]:
            fitted = self.fit(between, fitted)
        return fitted


def rate_grid(problem: Regression, penalty: type[Penalty], n_rates: int) -> Array:
    """Falling rates, log-spaced, from the smallest at which nothing is left."""
    if penalty.sparse:
        top = largest_rate(penalty, nothing(problem))
        n_rows, n_columns = problem.operator.shape
        share = SMALLEST_SHARE_TALL if n_rows > n_columns else SMALLEST_SHARE
        # Rounding could leave a weight at the very top of the path.
        return np.geomspace(max(top, np.finfo(float).tiny), share * max(top, np.finfo(float).tiny), n_rates)
    _, squares = problem.operator.squared_norms(problem.labels.sample_weight)
    steep = problem.labels.steepest * max(float(squares.sum()), np.finfo(float).tiny)
    return steep * np.geomspace(*RIDGE_RANGE, n_rates)


def by_leave_one_out(task: Task, rates: Array, label_weight: Array) -> Tuned:
    """The rate with the smallest approximate leave-one-out log loss.

    The loss is smooth in the logarithm of the rate, so a few of the rates are fitted first, from the largest
    down until the loss has clearly risen, then those where a parabola through the best and its neighbours is
    lowest. A loss that still falls at the end of the rates is followed further: smooth kernels want rates
    many decades down.
    """
    looks = _Looks(task, rates, NewtonLOO(task.problem, label_weight, task.columns))
    end, stride = rates.size - 1, max(rates.size // COARSE_LOOKS, 1)
    furthest = end + int(end * np.log(FURTHEST) / np.log(rates[-1] / rates[0]))
    for place in (*range(0, end, stride), end, *range(end + stride, furthest + 1, stride)):
        if looks.passed or (place > end and looks.since_best) or not looks.at(place):
            break
    for _ in range(REFINEMENTS):
        if not looks.at(looks.lowest_between()):
            break
    return looks.tuned()


class _Looks:
    """Fits at places along a path, each from the nearest of a larger rate, and their leave-one-out loss."""

    def __init__(self, task: Task, rates: Array, loo: NewtonLOO) -> None:
        self._task, self._rates, self._loo = task, rates, loo
        self._fits: dict[int, RegressionFit] = {}
        self._stepped: dict[int, Stepped] = {}
        self._loss: dict[int, float] = {}
        self._failures = 0

    @property
    def since_best(self) -> int:
        """How many places were seen at smaller rates than the best."""
        return sum(i > self.best for i in self._loss) if self._loss else 0

    @property
    def best(self) -> int:
        return min(self._loss, key=self._loss.__getitem__)

    @property
    def passed(self) -> bool:
        """Whether the best is behind: it was one, and the loss has risen since, clearly or for long."""
        if not self.since_best:
            return False
        first, best, last = (self._loss[i] for i in (min(self._loss), self.best, max(self._loss)))
        gained = best < (1.0 - REAL_GAIN) * first
        # An approximation that broke down is no rise, but after two of them there is no hope.
        clear = (1.0 + CLEAR_RISE) * best < last < np.inf
        return gained and (clear or self.since_best >= ENOUGH_RISES)

    def at(self, place: int) -> bool:
        """Look there; whether it makes sense to look at smaller rates."""
        if place in self._fits:
            return False
        task = self._task
        before = max((i for i in self._fits if i < place), default=None)
        fitted = task.fit(self._rate(place), task.nothing if before is None else self._fits[before])
        if self._fits and fitted.outcome is not Outcome.CONVERGED:
            self._failures += 1
            return self._failures < ENOUGH_FAILURES
        stepped = self._loo.by_steps(task.penalty(fitted.rate), fitted)
        self._fits[place], self._stepped[place] = fitted, stepped
        self._loss[place] = float(np.nan_to_num(stepped.loo.log_loss, nan=np.inf, posinf=np.inf))
        return not task.explained(fitted)

    def _rate(self, place: int) -> float:
        rates = self._rates
        if place < rates.size:
            return float(rates[place])
        return float(rates[-1] * (rates[-1] / rates[0]) ** ((place - rates.size + 1) / (rates.size - 1)))

    def lowest_between(self) -> int:
        """Where a parabola through the best place and its neighbours is lowest; the best, if none is."""
        seen = sorted(self._loss)
        at = seen.index(self.best)
        if not 0 < at < len(seen) - 1:
            return self.best
        places = np.array(seen[at - 1 : at + 2], dtype=np.float64)
        heights = np.array([self._loss[i] for i in seen[at - 1 : at + 2]])
        if not np.all(np.isfinite(heights)):
            return self.best
        (left, right), (falls, rises) = np.diff(places), np.diff(heights)
        slope_left, slope_right = falls / left, rises / right
        if not slope_right > slope_left:
            return self.best
        middle = 0.5 * (places[0] + places[1])
        vertex = middle - slope_left * 0.5 * (left + right) / (slope_right - slope_left)
        vertex = int(np.clip(np.rint(vertex), places[0], places[2]))
        if vertex in self._loss:
            # The best itself: its wider side is the less known one.
            vertex = self.best + int(np.sign(right - left)) * int(max(left, right) // 2)
        return vertex

    def tuned(self) -> Tuned:
        """The best place, once samples that their steps have moved far are refitted.

        Steps are too kind to small rates, so the best of them is not believed: while another place promises
        much less than what has been found, its samples are refitted, too.
        """
        found: dict[int, LeaveOneOut] = {}
        losses, enough = dict(self._loss), np.inf
        for place in sorted(self._loss, key=self._loss.__getitem__):
            if found and self._loss[place] >= enough:
                break
            found[place] = self._loo.refitted(
                self._task.penalty(self._fits[place].rate), self._stepped[place]
            )
            losses[place] = float(np.nan_to_num(found[place].log_loss, nan=np.inf, posinf=np.inf))
            enough = min(enough, (1.0 - WORTH_REFITS) * losses[place])
        chosen = min(found, key=losses.__getitem__)
        places = sorted(self._fits)
        looked = [i for i in places if np.isfinite(losses[i])]
        return Tuned(
            self._fits[chosen],
            np.array([self._fits[i].rate for i in looked]),
            np.array([losses[i] for i in looked]),
            sum(self._fits[i].n_iter for i in places),
            found[chosen],
        )


def by_criterion(task: Task, rates: Array, criterion: Callable[[RegressionFit], float]) -> Tuned:
    """The rate with the smallest value of a criterion of the fit."""
    fits = task.fits(rates)
    return _best(fits, np.array([criterion(f) for f in fits]))


def _best(fits: list[RegressionFit], criterion: Array) -> Tuned:
    looked = np.flatnonzero(np.isfinite(criterion))
    # Where a criterion is nowhere finite, the simplest fit.
    best = int(looked[np.argmin(criterion[looked])]) if looked.size else 0
    rates = np.array([f.rate for f in fits])
    return Tuned(fits[best], rates[looked], criterion[looked], sum(f.n_iter for f in fits))


def by_folds(task: Task, rates: Array, n_folds: int, label_weight: Array) -> Tuned:
    """The rate with the smallest cross-validated log loss, over folds that keep the shares of classes.

    A fold is left out by giving its samples no weight, so columns are standardised once, by all samples.
    """
    labels = task.problem.labels
    fold = _folds(labels.code, n_folds)
    loss = np.zeros(rates.size)
    n_iter = 0
    for k in range(n_folds):
        inside = fold == k
        kept = replace(labels, sample_weight=np.where(inside, 0.0, labels.sample_weight))
        if np.any(kept.base_rates == 0):
            raise ValueError(
                f"tuning='cv' with {n_folds} folds leaves a class without samples. Use fewer folds, or "
                "tuning='alo', which leaves out one sample at a time."
            )
        reached = np.zeros(rates.size, dtype=bool)
        part = replace(task, problem=replace(task.problem, labels=kept))
        for i, fitted in enumerate(part.fits(rates)):
            own = log_proba_of(labels, fitted.scores)[np.arange(labels.code.size), labels.code]
            loss[i] -= label_weight[inside] @ own[inside]
            reached[i] = True
            n_iter += fitted.n_iter
        loss[~reached] = np.inf
    fits = task.fits(rates)
    tuned = _best(fits, loss[: len(fits)] / label_weight.sum())
    return replace(tuned, n_iter=tuned.n_iter + n_iter)


def _folds(code: NDArray[np.intp], n_folds: int) -> NDArray[np.intp]:
    """Each class dealt out over the folds, in the order of samples, going on where the last class ended."""
    fold = np.empty(code.size, dtype=np.intp)
    fold[np.argsort(code, kind="stable")] = np.arange(code.size) % n_folds
    return fold


def by_integration(task: Task) -> Tuned:
    """The rate integrated out, as in SBMLR [Cawley, Talbot, Girolami 2007].

    Under the prior 1/λ the penalty becomes W log Σ|w|, W weights being non-zero, and its stationary points
    are L1 fits with λ = W / Σ|w|. The rate goes there by half of the way in its logarithm each round, since W
    moves in steps. At the largest rate nothing is left: then the data say nothing, and the fit without
    features is returned.
    """
    if task.penalty is not L1:
        raise ValueError("tuning='bayes' integrates the rate of an L1 penalty; use penalty='l1'.")
    top = task.nothing.rate
    rate, n_iter = 0.5 * top, 0
    rates: list[float] = []
    changes: list[float] = []
    without_features = fitted = task.fit(top, task.nothing)
    if top == 0:  # no column differs from a constant, or none goes with the labels at all
        return Tuned(without_features, np.array([top]), np.zeros(1), without_features.n_iter)
    for _ in range(MOST_ROUNDS):
        fitted = task.fit(rate, fitted)
        n_iter += fitted.n_iter
        size = float(np.abs(fitted.weights).sum())
        wanted = top if size == 0 else np.count_nonzero(fitted.weights) / size
        rates.append(rate)
        changes.append(abs(np.log(wanted / rate)))
        if wanted >= top or changes[-1] < RATE_TOL:
            break
        rate = float(np.sqrt(rate * wanted))
    fitted = without_features if wanted >= top else fitted
    return Tuned(fitted, np.array(rates), np.array(changes), n_iter)
