"""Samples and columns as theory sees them: what a student is shown of a study, and what it makes of it.

**Samples** come as cases, each with a score, a label, a probability and a pull: the derivative of its log
probability by the true score. With s, τs the response of the student to a case and M samples,

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
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np

from foldless.beliefs import Array
from foldless.channels import Channel, FlippedLabels, Logistic
from foldless.priors import SpikeAndSlab
from foldless.theory.study import Study, two_class_error

# Normal variables as evenly spaced nodes: for smooth functions the error falls exponentially in the spacing.
# Responses to labels change over a log-odds or more.
SCORE_NODES = np.arange(-24, 25) / 4.0
# Jumps, the sign of a score or the edge of a selection, want finer ones.
FINE_NODES = np.arange(-1024, 1025) / 128.0
# In place of zero, where a logarithm or a division is to be.
LEAST = 1e-12
# Soft thresholds of a spike and slab are a quarter of a standard deviation wide.
COLUMN_NODES = np.arange(-40, 41) / 5.0
# Variances within classes, as χ² by Wilson and Hilferty's cube of a normal variable; the cube root of one
# is not let below a tenth, which only matters for a handful of samples.
VARIANCE_NODES, VARIANCE_WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
SMALLEST_CUBE_ROOT = 0.1


class Cases(NamedTuple):
    """Samples as nodes of an integral."""

    score: Array
    label: Array  # as recorded
    probability: Array
    pull: Array  # derivative of the log probability by the true score


class ClassMeans:
    """Labels first: y = ±1 with mean ȳ, then scores N((y - ȳ) overlap/2 + intercept, power)."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.label_mean = 2.0 * study.balance - 1.0
        self.recorded_mean = self.label_mean * (1.0 - 2.0 * study.mislabelled)
        self.start_intercept = study.log_odds

    def cases(self, overlap: float, estimate_power: float, intercept: float) -> Cases:
        nodes, weights = normal_nodes(SCORE_NODES)
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

    def total_variance(self, effect: Array) -> Array:
        """Of a column of this effect, classes taken together."""
        return 1.0 + self.study.balance * (1.0 - self.study.balance) * effect**2


class LogisticLabels:
    """Features first: scores are normal, and labels follow the logistic channel of a teacher."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.right = Logistic()
        self.recorded: Channel = self.right
        if study.mislabelled:
            self.recorded = FlippedLabels(self.right, study.mislabelled)
        self.start_intercept = study.teacher_intercept
        first = self.cases(0.0, 0.0, self.start_intercept)
        self.recorded_mean = float(first.probability @ first.label)

    def cases(self, overlap: float, estimate_power: float, intercept: float) -> Cases:
        nodes, weights = normal_nodes(SCORE_NODES)
        centred = sqrt(estimate_power) * nodes
        true_mean, true_var = self._true_score(centred, overlap, estimate_power)
        parts = []
        for y in (1.0, -1.0):
            label = np.full_like(centred, y)
            truth = self.recorded.respond(true_mean, true_var, label)
            parts.append(Cases(centred + intercept, label, weights * np.exp(truth.log_z), truth.slope))
        return Cases(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def test_error(self, overlap: float, estimate_power: float, intercept: float) -> float:
        nodes, weights = normal_nodes(FINE_NODES)
        centred = sqrt(estimate_power) * nodes
        said = np.where(centred + intercept < 0, -1.0, 1.0)
        wrong = self.right.respond(*self._true_score(centred, overlap, estimate_power), -said)
        return float(weights @ np.exp(wrong.log_z))

    def total_variance(self, effect: Array) -> Array:
        return np.ones_like(effect)

    def _true_score(self, centred: Array, overlap: float, estimate_power: float) -> tuple[Array, Array]:
        """Mean and variance of the true score given the estimated one."""
        slope = overlap / estimate_power if estimate_power > 0 else 0.0
        remaining = max(self.study.score_power - slope * overlap, LEAST * self.study.score_power)
        return slope * centred + self.start_intercept, np.full_like(centred, remaining)


Samples = ClassMeans | LogisticLabels


def samples_of(study: Study) -> Samples:
    return ClassMeans(study) if study.labels == "class-means" else LogisticLabels(study)


def class_difference(samples: Samples) -> tuple[float, float]:
    """Difference of the recorded classes' means per unit of effect, and the share recorded as +1.

    From cases without any estimate: E[pull (y - ȳ)/2] over the variance of a label coded 0 and 1.
    """
    first = samples.cases(0.0, 0.0, samples.start_intercept)
    mean = float(first.probability @ first.label)
    share = (1.0 + mean) / 2
    covariance = float(first.probability @ (first.pull * (first.label - mean) / 2))
    return covariance / (share * (1.0 - share)), share


def normal_nodes(nodes: Array) -> tuple[Array, Array]:
    return nodes, normalised(np.exp(-0.5 * nodes**2))


def normalised(weights: Array) -> Array:
    return weights / weights.sum()


@dataclass(frozen=True)
class Evidence:
    """What all samples say about weights, through the student's channel."""

    curvature: float
    gain: float
    noise: float
    information: float  # n₊n₋/(n₊ + n₋) of labels as the student believes them


class Cavities(NamedTuple):
    """What columns say of their weights, as nodes, in units of the columns' sample standard deviations."""

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
    """Independent columns, with variances estimated from as many samples as there are."""

    def __init__(self, study: Study, n_samples: float, samples: Samples) -> None:
        self.study, self.n_samples, self.samples = study, n_samples, samples
        self.difference, self.share = class_difference(samples)

    def first_point(self) -> tuple[float, ...]:
        return ()

    def seen(self, evidence: Evidence, weight: float, rest: Array, nodes: Array = COLUMN_NODES) -> Cavities:
        effect, count = _columns_of(self.study)
        freedom = self.n_samples - 2.0
        cube = 2.0 / (9.0 * freedom)
        root = np.maximum(1.0 - cube + VARIANCE_NODES * sqrt(cube), SMALLEST_CUBE_ROOT)
        chi2 = root**3 * freedom / self.n_samples
        normal, normal_weight = normal_nodes(nodes)
        z = normal[:, np.newaxis]
        each = count[:, np.newaxis, np.newaxis] * normal_weight[:, np.newaxis] * normalised(VARIANCE_WEIGHTS)
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
        return Cavities(*flat)

    def answer(self, evidence: Evidence, prior: SpikeAndSlab, seen: Cavities, rest: Array) -> Answer:
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

    def seen(self, evidence: Evidence, weight: float, rest: Array, nodes: Array = COLUMN_NODES) -> Cavities:
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
        normal, normal_weight = normal_nodes(nodes)
        mean = mean_gain * effect[:, np.newaxis] + sqrt(noise_var) * normal
        each = count[:, np.newaxis] * normal_weight
        parts = (mean, np.full_like(mean, 1.0 / cavity), each, effect[:, np.newaxis], np.ones(1))
        return Cavities(*(np.broadcast_to(a, each.shape).ravel() for a in parts))

    def answer(self, evidence: Evidence, prior: SpikeAndSlab, seen: Cavities, rest: Array) -> Answer:
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
