"""State evolution of a student that tunes itself: what `SparseClassifier` will do on a study, in numbers.

`state_evolution` follows GAMP with a prior and a channel that stay as they are, in the limit of large tables.
Here the student is the classifier as it is used: a spike and slab and a label-noise channel, both tuned by EM
as it goes, on columns it standardises, with an intercept, and with the generative part of its likelihood
(`Blended`). The teacher is a `Study`. The vocabulary is that of `state_evolution`: scores of
samples have an overlap wᵀΣŵ and a power ŵᵀΣŵ, weights are seen as r = (gain w + noise). What differs:

Samples come as cases, columns as nodes of an integral (`population`); between them go the student's channel
and prior, asked for the same answers and the same EM steps as in a fit.

The fixed point is found by secants in the logarithms of all these numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from foldless.beliefs import Array
from foldless.channels import Blended, Channel, FlippedLabels, Logistic
from foldless.priors import Gaussian, HyperPrior, SpikeAndSlab
from foldless.solvers.message_passing import Secants
from foldless.theory.population import (
    FINE_NODES,
    LEAST,
    Cases,
    Cavities,
    CorrelatedColumns,
    Evidence,
    IndependentColumns,
    samples_of,
)
from foldless.theory.study import Study

# Generative weights of the student; with logistic labels the better one is taken, as leave-one-out would.
GENERATIVE, DISCRIMINATIVE = 1.0, 0.0
# Variances within classes are estimated from two samples less.
FEWEST_SAMPLES = 8
# Relative changes of overlap, power and the like per iteration: far below what a planned study can show.
TOLERANCE = 1e-5
# An iteration that has not settled may still be near enough for its three digits.
NEAR_ENOUGH = 1e-2
# Lengths of steps, tried in turn: with strong effects and strong correlations long ones swing.
STEPS = (0.7, 0.25, 0.1)
# The first iterations find the neighbourhood, as the classifier's own do; then secants may leap to the end,
# but not by more than this in any logarithm: they might land where another fixed point begins.
FIRST_DISTANCE = 6.9  # their number times the step
# What has not settled after so many will not: their number times the step.
LAST_DISTANCE = 42.0
LARGEST_LEAP = 0.5
# Overlap and power of a start with hardly any estimate, as a share of the true score's power.
FIRST_OVERLAP = 1e-2
# Newton's steps of the intercept, in log-odds: where labels are nearly certain they would be long.
LEAST_INTERCEPT_CURVATURE, LARGEST_INTERCEPT_STEP = 0.05, 1.0


@dataclass(frozen=True)
class FixedPoint:
    """Where a tuned student ends, and what that means."""

    n_samples: float
    test_error: float  # on rightly labelled samples
    log_loss: float  # of labels as they would be recorded
    overlap: float
    estimate_power: float
    weight_var: float
    intercept: float
    inclusion: float
    slab_variance: float
    flip_prob: float
    generative_weight: float
    power: float  # share of markers selected
    n_selected: float
    n_false: float
    converged: bool


def expected_fit(study: Study, n_samples: float, *, fdr: float = 0.1) -> FixedPoint:
    """What the classifier will reach on `n_samples` of a study, on average."""
    if not n_samples >= FEWEST_SAMPLES:
        raise ValueError(
            f"Planning needs at least {FEWEST_SAMPLES} samples, to estimate variances; got {n_samples!r}."
        )
    if not 0 < fdr < 1:
        raise ValueError(f"fdr must be between 0 and 1, for instance 0.1; got {fdr!r}.")
    weights: tuple[float, ...] = (GENERATIVE, DISCRIMINATIVE)
    if study.correlated:
        # Class means mislead where columns are correlated, and the classifier does without them.
        weights = (DISCRIMINATIVE,)
    elif study.labels == "class-means":
        weights = (GENERATIVE,)
    students = (_Student(study, n_samples, weight) for weight in weights)
    return min((_fixed_point(student, fdr) for student in students), key=lambda found: found.log_loss)


def _fixed_point(student: _Student, fdr: float) -> FixedPoint:
    """Where the student ends: with long steps where they do, with short ones where these would swing."""
    ends = []
    for step in STEPS:
        ends.append(_iterated(student, step))
        if ends[-1].residual <= TOLERANCE:
            break
    end = min(ends, key=lambda end: end.residual)
    return student.summary(end.point, fdr, end.residual <= NEAR_ENOUGH)


class _End(NamedTuple):
    point: Array
    residual: float  # the largest change that another iteration would make


def _iterated(student: _Student, step: float) -> _End:
    point = student.first_point()
    secants, scale = Secants(student), np.ones_like(point)
    best = _End(point, np.inf)
    for iteration in range(round(LAST_DISTANCE / step)):
        change = student.map(point) - point
        residual = float(np.max(np.abs(change)))
        if residual < best.residual:
            best = _End(point, residual)
        if residual <= TOLERANCE:
            break
        secants = secants.seen(point, change, scale)
        if iteration < FIRST_DISTANCE / step or len(secants) < 2:
            point = point + step * change
        else:
            leap = secants.next_point(step, scale) - point
            point = point + np.clip(leap, -LARGEST_LEAP, LARGEST_LEAP)
    return best


class _Student:
    """One iteration of the tuned classifier as a map of a few numbers.

    The point: logarithms of overlap, power, score variance, inclusion odds, slab variance and flip odds, the
    intercept, and whatever the columns add.
    """

    def __init__(self, study: Study, n_samples: float, weight: float) -> None:
        self.study, self.n_samples, self.weight = study, n_samples, weight
        self.samples = samples_of(study)
        self.columns: IndependentColumns | CorrelatedColumns
        if study.correlated:
            self.columns = CorrelatedColumns(study)
        else:
            self.columns = IndependentColumns(study, n_samples, self.samples)

    def first_point(self) -> Array:
        """Hardly anything known; the prior as the teacher's, from where EM leads to the student's own."""
        power = self.study.score_power
        inclusion = self.study.n_markers / self.study.n_features
        first = [
            np.log(FIRST_OVERLAP * power),
            np.log(FIRST_OVERLAP * power),
            np.log(power),
            logit(min(inclusion, 0.5)),
            2.0 * np.log(self.study.effect),
            logit(max(self.study.mislabelled, 0.01)),
            self.samples.start_intercept,
        ]
        return np.array([*first, *self.columns.first_point()])

    def map(self, point: Array) -> Array:
        overlap, power, score_var = np.exp(point[:3])
        prior, channel, intercept = self._prior(point), self._channel(point), float(point[6])
        cases = self.samples.cases(float(overlap), float(power), intercept)
        evidence, flip_prob, intercept = self._evidence(cases, channel, float(score_var), intercept)
        seen = self.columns.seen(evidence, self.weight, point[7:])
        tuned = prior.em_update(seen.mean, seen.var, weight=seen.number, hyper=HyperPrior())
        answer = self.columns.answer(evidence, tuned, seen, point[7:])
        return np.array(
            [
                np.log(max(answer.overlap, LEAST)),
                np.log(max(answer.estimate_power, LEAST)),
                np.log(max(answer.score_var, LEAST)),
                logit(tuned.inclusion),
                np.log(tuned.slab.variance),  # type: ignore[attr-defined]
                logit(flip_prob),
                intercept,
                *answer.rest,
            ]
        )

    def summary(self, point: Array, fdr: float, converged: bool) -> FixedPoint:
        overlap, power, score_var = (float(v) for v in np.exp(point[:3]))
        prior, channel, intercept = self._prior(point), self._channel(point), float(point[6])
        cases = self.samples.cases(overlap, power, intercept)
        evidence, _, _ = self._evidence(cases, channel, score_var, intercept)
        said = channel.untempered().respond(cases.score, np.full_like(cases.score, score_var), cases.label)
        seen = self.columns.seen(evidence, self.weight, point[7:], FINE_NODES)
        if self.weight > 0:
            seen = self._beside_variances(seen, evidence)
        found, n_selected, n_false = _selected(prior, seen, fdr)
        return FixedPoint(
            n_samples=self.n_samples,
            test_error=self.samples.test_error(overlap, power, intercept),
            log_loss=-float(cases.probability @ said.log_z),
            overlap=overlap,
            estimate_power=power,
            weight_var=score_var,
            intercept=intercept,
            inclusion=prior.inclusion,
            slab_variance=prior.slab.variance,  # type: ignore[attr-defined]
            flip_prob=channel.flip_prob,
            generative_weight=self.weight,
            power=found / self.study.n_markers,
            n_selected=n_selected,
            n_false=n_false,
            converged=converged,
        )

    def _beside_variances(self, seen: Cavities, evidence: Evidence) -> Cavities:
        """Variances within classes are not known, and selection allows for it (`conditional_inclusion`)."""
        precision = 1.0 / seen.var
        square = np.maximum(seen.mean**2 * precision, LEAST)
        student = (self.n_samples - 2.0) * np.log1p(square / self.n_samples) / square
        left = (evidence.curvature + (precision - evidence.curvature) * student) / precision
        return seen._replace(mean=seen.mean * np.sqrt(left))

    @staticmethod
    def _prior(point: Array) -> SpikeAndSlab:
        inclusion = float(np.clip(expit(point[3]), LEAST, 1.0 - LEAST))
        return SpikeAndSlab(Gaussian(float(np.exp(point[4]))), inclusion)

    def _channel(self, point: Array) -> FlippedLabels:
        flip_prob = float(np.clip(expit(point[5]), LEAST, 0.49))
        base: Channel = Logistic()
        if self.weight > 0:
            base = Blended(Logistic(), self.weight, self.samples.recorded_mean)
        return FlippedLabels(base, flip_prob)

    def _evidence(
        self, cases: Cases, channel: FlippedLabels, score_var: float, intercept: float
    ) -> tuple[Evidence, float, float]:
        """What samples say, the flip probability after an EM step, the intercept after a Newton step."""
        var = np.full_like(cases.score, score_var)
        # The intercept follows labels given features at any generative weight, as in `Problem.kept`.
        plain = channel.untempered().respond(cases.score, var, cases.label)
        slope = float(cases.probability @ plain.slope)
        curvature = max(float(cases.probability @ plain.curvature), LEAST_INTERCEPT_CURVATURE)
        intercept += min(max(slope / curvature, -LARGEST_INTERCEPT_STEP), LARGEST_INTERCEPT_STEP)

        flipped = channel.mislabel_probability(cases.score, var, cases.label)
        label_mean = float(cases.probability @ (cases.label * (1 - 2 * flipped)))
        if self.weight > 0:
            channel = replace(channel, base=Blended(Logistic(), self.weight, label_mean))
        response = channel.respond(cases.score, var, cases.label)
        # Columns have mean zero: they do not see what is common to all slopes.
        slopes = response.slope - cases.probability @ response.slope
        spread = (1 - flipped) * (cases.label - label_mean) ** 2 + flipped * (cases.label + label_mean) ** 2
        m = self.n_samples
        evidence = Evidence(
            # As in GAMP and EP: a label that contradicts its score does not make weights less certain.
            curvature=m * float(cases.probability @ np.maximum(response.curvature, 0.0)),
            gain=m * float(cases.probability @ (slopes * cases.pull)),
            noise=m * float(cases.probability @ slopes**2),
            information=m * float(cases.probability @ spread) / 4,
        )
        tuned = channel.em_update(
            cases.score, var, cases.label, weight=m * cases.probability, names=frozenset({"flip_prob"})
        )
        return evidence, tuned.flip_prob, intercept


def _selected(prior: SpikeAndSlab, seen: Cavities, fdr: float) -> tuple[float, float, float]:
    """Markers found, columns selected and false ones among them, by the rule of `selection.select`."""
    inclusion = prior.inclusion_probability(seen.mean, seen.var)
    order = np.argsort(-inclusion, kind="stable")
    count, mistakes = seen.number[order], ((1.0 - inclusion) * seen.number)[order]
    within = np.flatnonzero(np.cumsum(mistakes) <= fdr * np.cumsum(count))
    if not within.size:
        return 0.0, 0.0, 0.0
    chosen = order[: within[-1] + 1]
    selected = float(seen.number[chosen].sum())
    found = float(seen.number[chosen][seen.effect[chosen] > 0].sum())
    return found, selected, selected - found
