"""State evolution of a student that tunes itself: what `SparseClassifier` will do on a study, in numbers.

`state_evolution` follows GAMP with a prior and a channel that stay as they are, in the limit of large tables.
Here the student is the classifier as it is used: a spike and slab and a label-noise channel, both tuned by EM
as it goes, on columns it standardises, with an intercept, and with the generative part of its likelihood
(`tuning/generative.py`). The teacher is a `Study`. The vocabulary is that of `state_evolution`: scores of
samples have an overlap wᵀΣŵ and a power ŵᵀΣŵ, weights are seen as r = (gain w + noise). What differs:

**Samples** come as cases: a score, a recorded label, a probability, and a pull, the derivative of the log
probability of this case by the true score. With s, τs the student's response to a case and M samples,

    curvature A = M E[τs],    gain B = M E[s pull],    noise C = M E[s²]

for any teacher. For logistic labels the pull is the teacher's slope (`state_evolution` has it so); for class
means it is (y - ȳ)/2: labels come first, and features lean towards their class.

**Independent columns.** Sums over samples reach column j as  B wⱼ + √C zⱼ, zⱼ ~ N(0, 1), on a column of
sample variance tⱼ. The generative part of the student adds the precision ω I vⱼ/tⱼ, where I is n₊n₋/(n₊ + n₋)
and vⱼ the variance within classes. vⱼ is estimated from M - 2 degrees of freedom, so class differences have
Student's distribution, which with thousands of columns and a hundred samples is what produces false
discoveries; hence averages over zⱼ and vⱼ. With ω = 1 and right labels these are exact for every M and N.

**Correlated columns.** With normal rows of covariance Σ, samples say about weights what a linear observation
with precision AΣ, signal BΣw and noise √C Σ^½ z says. If the eigenvectors of Σ have nothing to do with the
weights (as though turned at random), the posterior under a sparse prior follows from the eigenvalues λ alone
by the state evolution of vector AMP [Rangan, Schniter, Fletcher 2019], here for a mismatched student: a
denoiser sees r₁ = a₁ w + N(0, ξ₁) with precision γ₁, the linear part sees r₂ = a₂ w + N(0, ξ₂) with γ₂.

The fixed point is found by secants in the logarithms of all these numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from foldless.beliefs import Array
from foldless.channels import Blended, Channel, FlippedLabels, Logistic
from foldless.priors import Gaussian, HyperPrior, SpikeAndSlab
from foldless.solvers.secants import Secants
from foldless.theory.study import Study, two_class_error

# Normal variables as evenly spaced nodes: for smooth functions the error falls exponentially in the spacing.
# Soft thresholds of a spike and slab are a quarter of a standard deviation wide; tanh of scores is wider.
COLUMN_NODES, SCORE_NODES = np.arange(-40, 41) / 5.0, np.arange(-24, 25) / 4.0
# Where selection begins is a jump, so selected shares are counted on finer nodes.
SELECTION_NODES = np.arange(-1024, 1025) / 128.0
# Variances within classes, as χ² by Wilson and Hilferty's cube of a normal variable.
VARIANCE_NODES, VARIANCE_WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
# Generative weights of the student; with logistic labels the better one is taken, as leave-one-out would.
GENERATIVE, DISCRIMINATIVE = 1.0, 0.0
# Variances within classes are estimated from two samples less.
FEWEST_SAMPLES = 8
MAX_ITER = 200
# Relative changes of overlap, power and the like per iteration: far below what a planned study can show.
TOLERANCE = 1e-5
# An iteration that has not settled may still be near enough for its three digits.
NEAR_ENOUGH = 1e-2
# The first iterations find the neighbourhood, as the classifier's own do; then secants may leap to the end,
# but not by more than this in any logarithm: they might land where another fixed point begins.
FIRST_ITERATIONS = 10
LARGEST_LEAP = 0.5
STEP = 0.7
# Overlap and power of a start that knows hardly anything, as a share of the true score's power.
FIRST_OVERLAP = 1e-2
# Newton's steps of the intercept, in log-odds: where labels are nearly certain they would be long.
LEAST_INTERCEPT_CURVATURE, LARGEST_INTERCEPT_STEP = 0.05, 1.0
# In place of zero, where a logarithm or a division is to be.
LEAST = 1e-12


class Cases(NamedTuple):
    """Samples as nodes of an integral."""

    score: Array
    label: Array  # as recorded
    probability: Array
    pull: Array  # derivative of the log probability by the true score


@dataclass(frozen=True)
class Evidence:
    """What all samples say about weights, through the student's channel."""

    curvature: float
    gain: float
    noise: float
    information: float  # n₊n₋/(n₊ + n₋) of labels as the student believes them


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
    point = student.first_point()
    secants, scale = Secants(student), np.ones_like(point)
    residual = np.inf
    for iteration in range(MAX_ITER):
        change = student.map(point) - point
        residual = float(np.max(np.abs(change)))
        if residual <= TOLERANCE:
            break
        secants = secants.seen(point, change, scale)
        if iteration < FIRST_ITERATIONS or len(secants) < 2:
            point = point + STEP * change
        else:
            leap = secants.next_point(STEP, scale) - point
            point = point + np.clip(leap, -LARGEST_LEAP, LARGEST_LEAP)
    return student.summary(point, fdr, residual <= NEAR_ENOUGH)


class _Student:
    """One iteration of the tuned classifier as a map of a few numbers.

    The point: logarithms of overlap, power, score variance, inclusion odds, slab variance and flip odds, the
    intercept, and whatever the columns add.
    """

    def __init__(self, study: Study, n_samples: float, weight: float) -> None:
        self.study, self.n_samples, self.weight = study, n_samples, weight
        self.samples = ClassMeans(study) if study.labels == "class-means" else LogisticLabels(study)
        self.columns: IndependentColumns | CorrelatedColumns
        if study.correlated:
            self.columns = CorrelatedColumns(study)
        else:
            self.columns = IndependentColumns(study, n_samples, *self.samples.class_difference())

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
        seen = self.columns.seen(evidence, self.weight, prior, point[7:])
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
        seen = self.columns.seen(evidence, self.weight, prior, point[7:], SELECTION_NODES)
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


# ---------------------------------------------------------------------- samples


class ClassMeans:
    """Labels first: y = ±1 with mean ȳ, then scores N((y - ȳ) overlap/2 + intercept, power)."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.label_mean = 2.0 * study.balance - 1.0
        self.recorded_mean = self.label_mean * (1.0 - 2.0 * study.mislabelled)
        self.start_intercept = study.log_odds

    def cases(self, overlap: float, estimate_power: float, intercept: float) -> Cases:
        nodes, weights = _normal(SCORE_NODES)
        parts = []
        for y, share in ((1.0, self.study.balance), (-1.0, 1.0 - self.study.balance)):
            score = (y - self.label_mean) * overlap / 2 + intercept + sqrt(estimate_power) * nodes
            pull = np.full_like(score, (y - self.label_mean) / 2)
            for right in (True, False):
                chance = 1.0 - self.study.mislabelled if right else self.study.mislabelled
                if chance > 0:
                    label = np.full_like(score, y if right else -y)
                    parts.append(Cases(score, label, share * chance * weights, pull))
        return Cases(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def test_error(self, overlap: float, estimate_power: float, intercept: float) -> float:
        return two_class_error(overlap, estimate_power, self.study.balance, intercept)

    def class_difference(self) -> tuple[float, float]:
        """Difference of recorded classes' means per unit of effect, and the share recorded as +1."""
        return _class_difference(self.cases(0.0, 0.0, self.start_intercept))

    def total_variance(self, effect: Array) -> Array:
        return 1.0 + self.study.balance * (1.0 - self.study.balance) * effect**2


class LogisticLabels:
    """Features first: scores are normal, and labels follow the logistic channel of a teacher."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.right = Logistic()
        self.recorded = FlippedLabels(Logistic(), study.mislabelled) if study.mislabelled else Logistic()
        self.start_intercept = study.teacher_intercept
        first = self.cases(0.0, 0.0, self.start_intercept)
        self.recorded_mean = float(first.probability @ first.label)

    def cases(self, overlap: float, estimate_power: float, intercept: float) -> Cases:
        nodes, weights = _normal(SCORE_NODES)
        centred = sqrt(estimate_power) * nodes
        true_mean, true_var = self._true_score(centred, overlap, estimate_power)
        parts = []
        for y in (1.0, -1.0):
            label = np.full_like(centred, y)
            truth = self.recorded.respond(true_mean, true_var, label)
            parts.append(Cases(centred + intercept, label, weights * np.exp(truth.log_z), truth.slope))
        return Cases(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def test_error(self, overlap: float, estimate_power: float, intercept: float) -> float:
        nodes, weights = _normal(SELECTION_NODES)  # the sign of a score is a jump
        centred = sqrt(estimate_power) * nodes
        said = np.where(centred + intercept < 0, -1.0, 1.0)
        wrong = self.right.respond(*self._true_score(centred, overlap, estimate_power), -said)
        return float(weights @ np.exp(wrong.log_z))

    def class_difference(self) -> tuple[float, float]:
        return _class_difference(self.cases(0.0, 0.0, self.start_intercept))

    def total_variance(self, effect: Array) -> Array:
        return np.ones_like(effect)

    def _true_score(self, centred: Array, overlap: float, estimate_power: float) -> tuple[Array, Array]:
        """Mean and variance of the true score given the estimated one."""
        slope = overlap / estimate_power if estimate_power > 0 else 0.0
        remaining = max(self.study.score_power - slope * overlap, LEAST * self.study.score_power)
        return slope * centred + self.start_intercept, np.full_like(centred, remaining)


def _class_difference(first: Cases) -> tuple[float, float]:
    """From cases without any estimate: E[pull (y - ȳ)/2] over the variance of a 0/1 label, and its mean."""
    mean = float(first.probability @ first.label)
    share = (1.0 + mean) / 2
    covariance = float(first.probability @ (first.pull * (first.label - mean) / 2))
    return covariance / (share * (1.0 - share)), share


# ---------------------------------------------------------------------- columns


class Seen(NamedTuple):
    """Cavities of weights, as nodes: in units of the columns' sample standard deviations."""

    mean: Array
    var: Array
    number: Array  # how many weights each node stands for
    effect: Array  # of the true weight
    scale: Array  # the column's sample standard deviation


class Answer(NamedTuple):
    overlap: float
    estimate_power: float
    score_var: float
    rest: tuple[float, ...]


class IndependentColumns:
    """Columns that know nothing of each other, with variances estimated from as many samples as there are."""

    def __init__(self, study: Study, n_samples: float, difference: float, share: float) -> None:
        self.study, self.n_samples = study, n_samples
        self.difference, self.share = difference, share
        self.samples = ClassMeans(study) if study.labels == "class-means" else LogisticLabels(study)

    def first_point(self) -> tuple[float, ...]:
        return ()

    def seen(
        self,
        evidence: Evidence,
        weight: float,
        prior: SpikeAndSlab,
        rest: Array,
        nodes: Array = COLUMN_NODES,
    ) -> Seen:
        effect, count = _columns_of(self.study)
        freedom = self.n_samples - 2.0
        cube = 2.0 / (9.0 * freedom)
        chi2 = np.maximum(1.0 - cube + VARIANCE_NODES * sqrt(cube), 0.1) ** 3 * freedom / self.n_samples
        normal, normal_weight = _normal(nodes)
        z = normal[:, np.newaxis]
        each = count[:, np.newaxis, np.newaxis] * normal_weight[:, np.newaxis] * _normalised(VARIANCE_WEIGHTS)
        effect = effect[:, np.newaxis, np.newaxis]

        # What classes as recorded say of a column: its mean difference, and its variance within and in all.
        spread = self.share * (1.0 - self.share)
        observed = self.difference * effect + z / sqrt(self.n_samples * spread)
        within = chi2 * (self.samples.total_variance(effect) - spread * (self.difference * effect) ** 2)
        total = within + spread * observed**2
        precision = evidence.curvature + weight * evidence.information * within / total
        var = 1.0 / np.maximum(precision, LEAST)
        mean = (evidence.gain * effect + sqrt(evidence.noise) * z) / np.sqrt(total) * var
        flat = (np.broadcast_to(a, each.shape).ravel() for a in (mean, var, each, effect, np.sqrt(total)))
        return Seen(*flat)

    def answer(self, evidence: Evidence, prior: SpikeAndSlab, seen: Seen, rest: Array) -> Answer:
        tilted = prior.tilted(seen.mean, seen.var)
        coef = tilted.mean / seen.scale
        return Answer(
            float(seen.number @ (coef * seen.effect)),
            float(seen.number @ coef**2),
            float(seen.number @ tilted.var),
            (),
        )


class CorrelatedColumns:
    """Columns of known eigenvalues, whose eigenvectors have nothing to do with the weights.

    `rest` is log γ₂, a₂ and log ξ₂ of what the linear part is told by the prior.
    """

    def __init__(self, study: Study) -> None:
        assert study.spectrum is not None
        self.study, self.spectrum = study, study.spectrum
        self.weight_power = study.score_power / study.n_features

    def first_point(self) -> tuple[float, ...]:
        return -float(np.log(self.weight_power)), 0.0, float(np.log(LEAST * self.weight_power))

    def seen(
        self,
        evidence: Evidence,
        weight: float,
        prior: SpikeAndSlab,
        rest: Array,
        nodes: Array = COLUMN_NODES,
    ) -> Seen:
        """r₁ = a₁ w + N(0, ξ₁) and γ₁: with η = 1/E[1/(Aλ + γ₂)], γ₁ = η - γ₂ and, per eigenvalue,

        γ₁ r₁ = [η (Bλ + γ₂ a₂)/(Aλ + γ₂) - γ₂ a₂] w + γ₂ [η/(Aλ + γ₂) - 1] e₂ + η √(Cλ) z/(Aλ + γ₂).
        """
        told, gain, noise = float(np.exp(rest[0])), float(rest[1]), float(np.exp(rest[2]))
        values, shares = self.spectrum.values, self.spectrum.shares
        precision = max(evidence.curvature, LEAST) * values + told
        eta = 1.0 / float(shares @ (1.0 / precision))
        # η - γ₂ without cancellation: E[Aλ/(Aλ + γ₂)] η.
        cavity = eta * float(shares @ (max(evidence.curvature, LEAST) * values / precision))
        of_weight = (eta * (evidence.gain * values + told * gain) / precision - told * gain) / cavity
        of_error = told * (eta / precision - 1.0) / cavity
        of_noise = eta * np.sqrt(evidence.noise * values) / precision / cavity
        mean_gain = float(shares @ of_weight)
        spread = shares @ (of_weight - mean_gain) ** 2 * self.weight_power + shares @ of_error**2 * noise
        noise_var = float(spread + shares @ of_noise**2)
        effect, count = _columns_of(self.study)
        normal, normal_weight = _normal(nodes)
        mean = mean_gain * effect[:, np.newaxis] + sqrt(noise_var) * normal
        each = count[:, np.newaxis] * normal_weight
        parts = (mean, np.full_like(mean, 1.0 / cavity), each, effect[:, np.newaxis], np.ones(1))
        return Seen(*(np.broadcast_to(a, each.shape).ravel() for a in parts))

    def answer(self, evidence: Evidence, prior: SpikeAndSlab, seen: Seen, rest: Array) -> Answer:
        """What the prior tells the linear part, r₂ = (η₁ ŵ - γ₁ r₁)/γ₂ with γ₂ = η₁ - γ₁; then its scores."""
        n = float(self.study.n_features)
        tilted = prior.tilted(seen.mean, seen.var)
        share = seen.number / n
        cavity = 1.0 / float(seen.var[0])
        eta = 1.0 / float(share @ tilted.var)
        told = max(eta - cavity, 1e-6 * eta)
        back = (eta * tilted.mean - cavity * seen.mean) / told
        gain = float(share @ (back * seen.effect)) / self.weight_power
        noise = max(float(share @ (back - gain * seen.effect) ** 2), LEAST * self.weight_power)

        values, shares = self.spectrum.values, self.spectrum.shares
        precision = max(evidence.curvature, LEAST) * values + told
        of_weight = (evidence.gain * values + told * gain) / precision
        squares = of_weight**2 * self.weight_power + (told / precision) ** 2 * noise
        squares = squares + evidence.noise * values / precision**2
        return Answer(
            n * self.weight_power * float(shares @ (values * of_weight)),
            n * float(shares @ (values * squares)),
            n * float(shares @ (values / precision)),
            (float(np.log(told)), gain, float(np.log(noise))),
        )


def _columns_of(study: Study) -> tuple[Array, Array]:
    """Effects of columns, that of the markers and zero, and how many have each."""
    effects, shares = study.marker_effects
    return np.append(effects, 0.0), np.append(study.n_markers * shares, study.n_features - study.n_markers)


def _selected(prior: SpikeAndSlab, seen: Seen, fdr: float) -> tuple[float, float, float]:
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


def _normal(nodes: Array) -> tuple[Array, Array]:
    return nodes, _normalised(np.exp(-0.5 * nodes**2))


def _normalised(weights: Array) -> Array:
    return weights / weights.sum()
