"""Samples as theory sees them: cases, each with a score, a label, a probability and a pull.

The pull of a case is the derivative of its log probability by the true score. With s, τs the response of the
student to a case and M samples,

    curvature A = M E[τs],    gain B = M E[s pull],    noise C = M E[s²]

for any teacher. For logistic labels the pull is the teacher's slope (`state_evolution` has it so); for class
means it is (y - ȳ)/2: labels come first, and features lean towards their class.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np

from foldless.beliefs import Array
from foldless.channels import Channel, FlippedLabels, Logistic
from foldless.theory.study import Study, two_class_error

# Normal variables as evenly spaced nodes: for smooth functions the error falls exponentially in the spacing.
# Responses to labels change over a log-odds or more.
SCORE_NODES = np.arange(-24, 25) / 4.0
# Jumps, the sign of a score or the edge of a selection, want finer ones.
FINE_NODES = np.arange(-1024, 1025) / 128.0
# In place of zero, where a logarithm or a division is to be.
LEAST = 1e-12


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
