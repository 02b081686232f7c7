"""Columns as theory sees them: what samples say about each weight, and what the student makes of it.

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
from foldless.priors import SpikeAndSlab
from foldless.theory.cases import LEAST, Samples, class_difference, normal_nodes, normalised
from foldless.theory.study import Study

# Soft thresholds of a spike and slab are a quarter of a standard deviation wide.
COLUMN_NODES = np.arange(-40, 41) / 5.0
# Variances within classes, as χ² by Wilson and Hilferty's cube of a normal variable; the cube root of one
# is not let below a tenth, which only matters for a handful of samples.
VARIANCE_NODES, VARIANCE_WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
SMALLEST_CUBE_ROOT = 0.1


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
    """Columns that know nothing of each other, with variances estimated from as many samples as there are."""

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
