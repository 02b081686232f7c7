"""What more samples would bring: the learning curve of a model, from what it learnt and how well it does.

A fitted model says three things of the population it saw: how many features it believes in, how many labels
it doubts, and how often it misjudges samples that it left out. None of them is the truth: a student of few
samples believes in fewer markers than there are, and doubts labels that are right. But what a student of a
given study will say is known (`tuned_student`), so the study is sought whose student would say just that. Its
course over the number of samples is the learning curve.

The left-out error of M samples is itself uncertain, like any share of M: the band is what the curve would be
if it were at either end of its interval. How many markers there are is uncertain, too, and matters more the
further the curve is drawn; that is not in the band.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, ndtri

from foldless.beliefs import Array
from foldless.theory.population import LEAST
from foldless.theory.study import Study, percent
from foldless.theory.tuned_student import FEWEST_SAMPLES, FixedPoint, expected_fit

# Rounds in which effect, number of markers and label noise are fitted in turn.
ROUNDS = 3
# No round changes the number of markers by more than this factor.
LARGEST_CHANGE = 2.0
# Of all errors, wrong labels are at most this share: some errors are the classifier's own.
LARGEST_WRONG_SHARE = 0.8
# Effects between these, in standard deviations, are searched, to this precision in probits of the error.
EFFECTS = (0.01, 20.0)
PROBIT_PRECISION = 2e-3
# An error this near to that of always naming the larger class is no evidence of any marker.
CHANCE_MARGIN = 0.01
# No table is large enough to tell an error below this from none.
SMALLEST_ERROR = 1e-3
DEFAULT_GROWTH = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.0)


class Seen(NamedTuple):
    """What a fitted model estimates of its population."""

    n_samples: int
    error: float  # of labels left out, as recorded
    n_believed: float  # inclusion rate times number of features
    flip_prob: float


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Errors to expect of labels as recorded, at several numbers of samples."""

    study: Study | None  # None if there is nothing to extrapolate from
    seen: Seen
    level: float
    n_samples: Array
    error: Array
    lower: Array
    upper: Array

    def at(self, n_samples: float) -> tuple[float, float, float]:
        """Error, lower and upper end at a number of samples within the curve."""
        grid = np.log(self.n_samples)
        if not self.n_samples[0] <= n_samples <= self.n_samples[-1]:
            raise ValueError(
                f"the curve is known from {self.n_samples[0]:.0f} to {self.n_samples[-1]:.0f} samples; got "
                f"{n_samples!r}. Ask for that number when the curve is made."
            )
        error, lower, upper = (
            float(np.interp(log(n_samples), grid, line)) for line in (self.error, self.lower, self.upper)
        )
        return error, lower, upper

    def sentence(self, more: int) -> str:
        """For instance: with 100 more samples the error would fall from 14 % to about 11 %."""
        now = self.at(self.seen.n_samples)[0]
        then, lower, upper = self.at(self.seen.n_samples + more)
        if self.study is None:
            return (
                f"The model misjudges {percent(self.seen.error)} of left-out samples, no fewer than chance: "
                f"it cannot be told what {more} more samples would bring."
            )
        fall = "would stay at about" if now - then < 0.005 else f"would fall from {percent(now)} to about"
        return (
            f"With {more} more samples the error {fall} {percent(then)} "
            f"({100 * self.level:.0f} % interval {percent(lower)} to {percent(upper)})."
        )

    def to_dict(self) -> dict[str, Any]:
        lines = {"n_samples": self.n_samples, "error": self.error, "lower": self.lower, "upper": self.upper}
        return {
            "n_samples_seen": self.seen.n_samples,
            "error_seen": self.seen.error,
            "level": self.level,
            **{name: getattr(self.study, name, None) for name in ("n_markers", "effect", "mislabelled")},
            **{name: line.tolist() for name, line in lines.items()},
        }


def extrapolated(
    seen: Seen,
    guess: Study,
    n_samples: Iterable[float] | None = None,
    *,
    level: float = 0.9,
    watch: Callable[[float], None] | None = None,
) -> LearningCurve:
    """The learning curve of a model that said `seen`, from a `guess` with its features and classes."""
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, for instance 0.9; got {level!r}.")
    sizes = _sizes(seen.n_samples, n_samples)
    chance = min(guess.balance, 1.0 - guess.balance)
    error, lower, upper = error_interval(seen.error, seen.n_samples, level)
    if error >= chance - CHANCE_MARGIN:
        flat = np.full(sizes.size, chance)
        return LearningCurve(None, seen, level, sizes, flat, np.zeros_like(flat), flat)
    study = calibrated(guess, seen, error)

    def course(target: float) -> Array:
        if target >= chance - CHANCE_MARGIN:
            return np.full(sizes.size, chance)
        at = study if target == error else with_error(study, seen.n_samples, target)
        line = []
        for size in sizes:
            line.append(recorded_error(at, expected_fit(at, float(size))))
            if watch is not None:
                watch(float(size))
        return np.array(line)

    return LearningCurve(study, seen, level, sizes, course(error), course(lower), course(upper))


def calibrated(guess: Study, seen: Seen, error: float | None = None) -> Study:
    """The study whose student would say what the model says: its error, its markers, its doubts.

    Fits of correlated columns average models of fixed parameters (`tuning.portfolio`), from which neither the
    number of markers nor that of wrong labels is learnt: the guess stands, and only the effect is fitted.
    """
    error = error_interval(seen.error, seen.n_samples, 0.9)[0] if error is None else error
    if guess.correlated:
        return with_error(guess, seen.n_samples, error)
    study = guess
    for _ in range(ROUNDS):
        study = with_error(study, seen.n_samples, error)
        student = expected_fit(study, seen.n_samples)
        believed = student.inclusion * study.n_features
        change = min(max(seen.n_believed / believed, 1.0 / LARGEST_CHANGE), LARGEST_CHANGE)
        markers = min(max(study.n_markers * change, 1.0), 0.5 * study.n_features)
        # Labels doubted beyond what right ones would be.
        doubted = study.mislabelled + seen.flip_prob - student.flip_prob
        wrong = min(max(doubted, 0.0), LARGEST_WRONG_SHARE * error)
        study = replace(study, n_markers=markers, mislabelled=wrong)
    return with_error(study, seen.n_samples, error)


def with_error(study: Study, n_samples: float, error: float) -> Study:
    """The study with the effect at which the error of recorded labels is as given."""

    def excess(log_effect: float) -> float:
        at = replace(study, effect=exp(log_effect))
        found = recorded_error(at, expected_fit(at, n_samples))
        return float(ndtri(max(found, LEAST)) - ndtri(max(error, SMALLEST_ERROR)))

    low, high = map(log, EFFECTS)
    # A bracket around the present effect first: the error changes little far from it.
    left = right = log(study.effect)
    value = excess(left)
    step = log(LARGEST_CHANGE)
    while value > 0 and right < high:
        left, right = right, min(right + step, high)
        value = excess(right)
    if value > 0:
        return replace(study, effect=exp(right))
    if left == right:
        value = excess(left - step)
        while value < 0 and left - step > low:
            left -= step
            value = excess(left - step)
        left, right = left - step, left
    return replace(
        study, effect=exp(brentq(excess, left, right, xtol=PROBIT_PRECISION, rtol=PROBIT_PRECISION))
    )


def recorded_error(study: Study, fit: FixedPoint) -> float:
    """The error on labels as they are recorded: some are wrong themselves."""
    return fit.test_error * (1.0 - 2.0 * study.mislabelled) + study.mislabelled


def error_interval(error: float, n_samples: int, level: float) -> tuple[float, float, float]:
    """A share of M samples as an estimate and an interval: mean and quantiles of Jeffreys' posterior."""
    wrong = error * n_samples
    a, b = wrong + 0.5, n_samples - wrong + 0.5
    lower, upper = (float(betaincinv(a, b, q)) for q in ((1 - level) / 2, (1 + level) / 2))
    return a / (a + b), max(lower, SMALLEST_ERROR), upper


def _sizes(seen: int, asked: Iterable[float] | None) -> Array:
    """Numbers of samples in order, the model's own among them."""
    wanted = [growth * seen for growth in DEFAULT_GROWTH] if asked is None else [float(n) for n in asked]
    sizes = np.unique(np.array([*wanted, float(seen)]))
    if not np.all(np.isfinite(sizes)) or (asked is not None and sizes[0] < FEWEST_SAMPLES):
        raise ValueError(f"numbers of samples must be at least {FEWEST_SAMPLES}; got {sizes[0]!r}.")
    return np.asarray(sizes[sizes >= FEWEST_SAMPLES])
