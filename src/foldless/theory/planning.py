"""How many samples does a study need? Error, power and false discoveries as they are to be expected.

    study = Study(n_features=20_000, n_markers=20, effect=0.8)
    answer = plan(study, error=0.1)
    print(answer.sentence())

Everything is computed (`tuned_student`), nothing is drawn at random; `estimators.planning.simulate` fits
simulated studies instead, to see whether that is so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from math import ceil, sqrt
from typing import Any

from foldless.theory.study import Study, percent
from foldless.theory.tuned_student import FEWEST_SAMPLES, expected_fit

# Sizes of studies in the table, each so many times the one before, and where the table ends at the latest.
# Fits of fewer are so far apart that their average means little.
FIRST_SIZE, GROWTH, LAST_SIZE = 24, 1.6, 100_000
# Without a target the table ends where more samples would not show.
NEAR_BEST_ERROR, NEAR_FULL_POWER = 0.005, 0.95
# With a target it goes on for as many times what is needed, to show what more samples would bring.
BEYOND_TARGET = 2.0
# The number needed is searched to this precision; guesses of effects are not worth more.
SEARCH_PRECISION = 1.02


@dataclass(frozen=True)
class Expectation:
    """What to expect of one number of samples, on average over studies."""

    n_samples: int
    error: float  # share of new, rightly labelled samples that are misjudged
    power: float  # share of the markers that are selected
    n_selected: float
    n_false: float  # of the selected ones
    converged: bool

    @property
    def false_share(self) -> float:
        """False ones among the selected; 0 if nothing is."""
        return self.n_false / self.n_selected if self.n_selected > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"false_share": self.false_share}


@dataclass(frozen=True, eq=False)
class Plan:
    """A study, what to expect of it, and how many samples its target needs."""

    study: Study
    fdr: float
    rows: tuple[Expectation, ...]
    target_error: float | None = None
    target_power: float | None = None
    needed: Expectation | None = None  # None if there is no target, or none that can be reached

    @property
    def has_target(self) -> bool:
        return self.target_error is not None or self.target_power is not None

    def sentence(self) -> str:
        """The answer, for those who will collect the samples."""
        if not self.has_target:
            return "\n".join(f"With {self._samples(row)}, {self._promise(row)}." for row in self.rows)
        wish = " and ".join(self._wishes())
        if self.needed is None:
            return f"No feasible number of samples gets there: {wish}. {self._why_not()}"
        return (
            f"You need about {self._samples(self.needed)} {wish}, if {self._guess()}. "
            f"Then {self._promise(self.needed)}."
        )

    def assumptions(self) -> list[str]:
        """What the numbers rest on, most doubtful first."""
        study = self.study
        size = "all of the same strength" if study.sizes == "equal" else "of normally distributed strengths"
        stated = [
            f"{_about(study.n_markers)} of {_counted(study.n_features)} features are markers, {size}: "
            + (
                f"one standard deviation more changes the log-odds by {study.effect:.2g}."
                if _by_weight(study)
                else f"their means differ by {study.effect:.2g} standard deviations between the classes."
            )
        ]
        if study.correlated:
            stated.append(
                "Features are correlated with the spectrum given; its directions have nothing to do with "
                "the markers. A marker is a feature with a weight of its own: finding a feature that only "
                "resembles it does not count."
            )
        else:
            stated.append(
                "Features are independent within a class. Correlated ones need other numbers: give a pilot."
            )
        stated += [
            "Values are normally distributed with equal variances in both classes, samples are independent "
            "of each other, and new samples come from the same population: no batch effects.",
            f"{percent(study.balance)} of the samples are of one class, and "
            + (
                "all labels are right."
                if study.mislabelled == 0
                else f"{percent(study.mislabelled)} of the recorded labels are wrong. Errors are counted on "
                "right ones."
            ),
            f"The classifier is SparseClassifier; it selects at a false discovery rate of {self.fdr:g}.",
            "Numbers are averages over studies. With few markers, one study may differ much from the next.",
        ]
        return stated

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        study = {field.name: getattr(self.study, field.name) for field in fields(self.study)}
        study["spectrum"] = None if self.study.spectrum is None else self.study.spectrum.to_dict()
        return {
            "study": study | {"best_error": self.study.best_error},
            "fdr": self.fdr,
            "target": {"error": self.target_error, "power": self.target_power},
            "needed": None if self.needed is None else self.needed.to_dict(),
            "sentence": self.sentence(),
            "assumptions": self.assumptions(),
            "table": [row.to_dict() for row in self.rows],
        }

    def _samples(self, row: Expectation) -> str:
        second = round(row.n_samples * self.study.balance)
        first = row.n_samples - second
        each = f"{first} of each class" if first == second else f"{first} of one class, {second} of the other"
        return f"{_counted(row.n_samples)} samples ({each})"

    def _wishes(self) -> list[str]:
        wishes = []
        if self.target_error is not None:
            wishes.append(f"to misjudge at most {percent(self.target_error)} of new samples")
        if self.target_power is not None:
            wishes.append(f"to find at least {percent(self.target_power)} of the markers")
        return wishes

    def _guess(self) -> str:
        study = self.study
        many = f"{_about(study.n_markers)} of the {_counted(study.n_features)} features"
        if _by_weight(study):
            return f"{many} matter, each with a weight of {study.effect:.2g} log-odds per standard deviation"
        return f"{many} differ between the classes, by {study.effect:.2g} standard deviations each"

    def _promise(self, row: Expectation) -> str:
        found = row.power * self.study.n_markers
        false = (
            "none of those selected is likely to be false"
            if row.n_false < 0.5
            else f"about {row.n_false:.0f} of the {row.n_selected:.0f} selected features would be false"
        )
        return (
            f"expect {percent(row.error)} errors (with all markers known it would be "
            f"{percent(self.study.best_error)}), and to find about {found:.0f} of the "
            f"{_about(self.study.n_markers)} markers; {false}"
        )

    def _why_not(self) -> str:
        best = self.study.best_error
        if self.target_error is not None and best >= self.target_error:
            return (
                f"With {self._guess()[0].lower() + self._guess()[1:]}, even a classifier that knows all of "
                f"them misjudges {percent(best)} of new samples. More or stronger markers are needed."
            )
        return f"Up to {_counted(LAST_SIZE)} samples were considered."


def plan(
    study: Study,
    n_samples: Iterable[int] | None = None,
    *,
    error: float | None = None,
    power: float | None = None,
    fdr: float = 0.1,
    watch: Callable[[Expectation], None] | None = None,
) -> Plan:
    """What to expect of a study, and the number of samples that reaches a target.

    Parameters
    ----------
    study : Study
    n_samples : iterable of int, optional
        Sizes of the study for the table; chosen to show the whole course if not given.
    error, power : float, optional
        The target: an error of at most, a share of markers found of at least; both, if both are given.
    fdr : float
        The false discovery rate at which features are selected.
    watch : callable, optional
        Told every expectation as it is known.
    """
    _require_share("error", error, "the share of new samples that may be misjudged, for instance 0.1")
    _require_share("power", power, "the share of markers to be found, for instance 0.8")

    def at(size: int) -> Expectation:
        fit = expected_fit(study, size, fdr=fdr)
        row = Expectation(size, fit.test_error, fit.power, fit.n_selected, fit.n_false, fit.converged)
        if watch is not None:
            watch(row)
        return row

    def reached(row: Expectation) -> bool:
        return (error is None or row.error <= error) and (power is None or row.power >= power)

    has_target = error is not None or power is not None
    hopeless = error is not None and study.best_error >= error
    asked = None if n_samples is None else sorted({int(n) for n in n_samples})
    rows = [at(n) for n in asked] if asked is not None else []
    needed: Expectation | None = None
    course = rows
    if asked is None or (has_target and not hopeless and not any(map(reached, rows))):
        course = _course(at, reached, has_target and not hopeless, study.best_error)
        rows = course if asked is None else rows
    if has_target and not hopeless:
        needed = _first_that(at, reached, course)
    return Plan(study, fdr, tuple(rows), error, power, needed)


def _course(
    at: Callable[[int], Expectation],
    reached: Callable[[Expectation], bool],
    has_target: bool,
    best_error: float,
) -> list[Expectation]:
    """The table: sizes that grow until a target is well passed, or more would not show."""
    rows: list[Expectation] = []
    size, enough = float(FIRST_SIZE), float(LAST_SIZE)
    while size <= enough:
        row = at(2 * round(size / 2))
        rows.append(row)
        if has_target and reached(row) and enough == LAST_SIZE:
            enough = min(BEYOND_TARGET * size, LAST_SIZE)
        if not has_target and row.error <= best_error + NEAR_BEST_ERROR and row.power >= NEAR_FULL_POWER:
            break
        size *= GROWTH
    return rows


def _first_that(
    at: Callable[[int], Expectation], reached: Callable[[Expectation], bool], course: list[Expectation]
) -> Expectation | None:
    """The smallest size that reaches the target, by bisection of ratios between two of the course."""
    good = next((row for row in course if reached(row)), None)
    if good is None:
        return None
    below = [row.n_samples for row in course if row.n_samples < good.n_samples]
    low = max(below) if below else FEWEST_SAMPLES
    if not below and reached(first := at(low)):
        return first
    while good.n_samples > low + 2 and good.n_samples > SEARCH_PRECISION * low:
        # Even numbers, so that classes can be of equal size.
        middle = min(max(2 * round(sqrt(low * good.n_samples) / 2), low + 1), good.n_samples - 1)
        row = at(middle)
        if reached(row):
            good = row
        else:
            low = middle
    return good


def _by_weight(study: Study) -> bool:
    """Whether an effect is a weight: where features are correlated, means differ far beyond the markers."""
    return study.labels == "logistic" or study.correlated


def _require_share(name: str, value: float | None, what: str) -> None:
    if value is not None and not 0 < value < 1:
        raise ValueError(f"{name} must be between 0 and 1: {what}; got {value!r}.")


def _counted(number: float) -> str:
    return f"{ceil(number):,}".replace(",", " ")


def _about(number: float) -> str:
    return f"{number:.0f}" if number >= 10 or number == round(number) else f"{number:.1f}"
