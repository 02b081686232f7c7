"""Theory of the pruned Bayes classifier: its course, and what it can do at best, from a saddle point.

A teacher with a share C_t of active weights N(0, 1) labels M = αN samples by p(y | z) at z = x·w/√N; a
student assumes the share C and averages over its posterior. The replica-symmetric free energy [Uda, Kabashima
2005, (13)] is stationary in two overlaps, two conjugates and two multipliers. With z ~ N(0, 1), Z_T and s_T
the teacher's probability of the label +1 and its slope at (R z/√Q, C_t - R²/Q), and s the student's slope at
(√Q z, C - Q),

    Q̂ = 2α E[Z_T s²],    R̂ = 2α E[Z_T s_T s]                      fields h ~ N(R̂ w, Q̂),
    A, λ: E ρ = C,  E ρ (1/A + h²/A²) = C                          ρ = expit(λ - ½ log A + h²/2A),
    Q = E (ρ h/A)²,    R = E w ρ h/A = C_t R̂/(Q̂ + R̂²) E[ρ h²/A | w ≠ 0].

(The last line corrects the paper's (46), which lost the correlation of noise and inclusion; (45) lacks w
beside R̂; (41) must read ⟨Δ⟩ = √Q z; in (13) the square root covers Q̂ only.) Names are those of
`state_evolution`, whose fixed points these are: overlap R, estimate_power Q, score_power C_t,
score_cavity_var C - Q, ratio α.

Since the algorithm (`foldless.PrunedBayesClassifier`) is GAMP with the prior `Pruned`, its course, the
paper's (42)-(48), is state evolution with that prior (`macroscopic`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, pi, sqrt
from typing import NamedTuple

import numpy as np

from foldless.beliefs import Array, Response
from foldless.channels.base import Channel
from foldless.priors.gaussian import Gaussian
from foldless.priors.pruned import Multipliers, Pruned
from foldless.priors.spike_and_slab import SpikeAndSlab
from foldless.theory.quadrature import NORMAL_EDGES, halved, normal_expectation, panel_nodes
from foldless.theory.state_evolution import Model, Scores, StateEvolution, require_ratio, state_evolution

# Panels of a standard normal field, each halved this often: inclusions rise steeply in strong fields.
FIELD_HALVINGS = 3
# Iterations of the saddle-point equations, and the change of Q and R at which they have settled.
MOST_ITERATIONS = 2000
TOLERANCE = 1e-12
# A course that has not settled after this many iterations swings, and goes halves from there.
SWINGING_AFTER = 200
# Fields are shown to priors as observations r = h of this variance, which the multipliers take back.
UNIT = 1.0


class Macroscopic(NamedTuple):
    """The six numbers, which the free energy is stationary in."""

    overlap: float  # R: covariance of true and estimated scores
    estimate_power: float  # Q: variance of estimated scores
    field_gain: float  # R̂ in h = R̂ w + N(0, Q̂)
    field_var: float  # Q̂
    precision: float  # A = F + Q̂: precision of an active weight
    log_odds: float  # λ, without the - ½ log A of the inclusion


@dataclass(frozen=True)
class SaddlePoint:
    """Where the free energy is stationary, and what that means for the classifiers."""

    ratio: float  # α: samples / features
    density: float  # C: the share of active weights that the student assumes
    true_density: float  # C_t
    channel: Channel
    at: Macroscopic
    converged: bool

    @property
    def overlap(self) -> float:
        return self.at.overlap

    @property
    def estimate_power(self) -> float:
        return self.at.estimate_power

    @property
    def score_power(self) -> float:
        return self.true_density

    @property
    def score_cavity_var(self) -> float:
        return self.density - self.at.estimate_power

    @property
    def bayes_error(self) -> float:
        """Error of the posterior average, (11): the pruned Bayes classifier. Least at the true density."""
        return self._scores(self.at.estimate_power).test_error(self.channel)

    @property
    def gibbs_error(self) -> float:
        """Error of one draw from the posterior, (15). It is not least at the true density."""
        return self._scores(self.density).test_error(self.channel)

    def _scores(self, estimate_power: float) -> Scores:
        return Scores(self.true_density, self.at.overlap, estimate_power)

    @property
    def stability(self) -> float:
        """Above one, replica symmetry is broken (de Almeida, Thouless) and message passing does not settle.

        α E[(∂s/∂p)²] E[(∂ŵ/∂h)²]: how a small difference between two replicas grows in an iteration.
        """
        q, r = self.at.estimate_power, self.at.overlap

        def curvature_square(p: Array) -> Array:
            truth, guess = _responses(self.channel, p, r, q, self.density, self.true_density)
            return np.exp(truth.log_z) * guess.curvature**2

        labels = 2.0 * self.ratio * float(normal_expectation(curvature_square, q)[0])
        field, share = _fields(self.at.field_var, self.at.field_gain, self.true_density)
        answer = Multipliers(self.at.precision, UNIT, self.at.log_odds)
        return labels * float(share @ answer.tilted(field, np.full_like(field, UNIT)).var ** 2)


def saddle_point(ratio: float, *, density: float, true_density: float, channel: Channel) -> SaddlePoint:
    """Solve for `ratio` = samples / features; ``Step(noise)`` is the paper's channel."""
    prior = _checked(ratio, density, true_density, channel)
    overlap = power = 0.0
    at = Macroscopic(0.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    step = 1.0
    for iteration in range(MOST_ITERATIONS):
        field_gain, field_var = _conjugates(ratio, channel, overlap, power, density, true_density)
        at = _overlaps(prior, field_gain, field_var, true_density)
        change = max(abs(at.overlap - overlap), abs(at.estimate_power - power))
        if not isfinite(change):
            break
        if change <= TOLERANCE:
            return SaddlePoint(ratio, density, true_density, channel, at, True)
        if iteration % SWINGING_AFTER == SWINGING_AFTER - 1:
            step *= 0.5
        overlap += step * (at.overlap - overlap)
        power += step * (at.estimate_power - power)
    return SaddlePoint(ratio, density, true_density, channel, at, False)


def macroscopic(
    ratio: float,
    *,
    density: float,
    true_density: float,
    channel: Channel,
    student_channel: Channel | None = None,
    max_iter: int = 500,
    tol: float = 1e-10,
    step: float = 1.0,
) -> StateEvolution:
    """Predict every iteration of the undamped algorithm, with `ratio` = samples / features.

    `channel` is the teacher's, and the student's unless it has another; ``Step(noise)`` is the paper's.
    Options are those of `state_evolution`. Features of variance 1/N instead of 1/M multiply the weights by
    √(M/N).
    """
    teacher = Model(SpikeAndSlab(Gaussian(ratio), true_density), channel)
    student = Model(Pruned(density, variance=ratio), student_channel or channel)
    return state_evolution(ratio, teacher, student, max_iter=max_iter, tol=tol, step=step)


def optimal_error(ratio: float, true_density: float, channel: Channel) -> float:
    """The least error of any classifier: the pruned one's at the true density."""
    return saddle_point(ratio, density=true_density, true_density=true_density, channel=channel).bayes_error


def error_curve(
    ratio: float, densities: Sequence[float], true_density: float, channel: Channel
) -> list[SaddlePoint]:
    """The saddle point at each of the student's densities: figure 1 of the paper."""
    return [
        saddle_point(ratio, density=density, true_density=true_density, channel=channel)
        for density in densities
    ]


def free_energy(
    at: Macroscopic, ratio: float, *, density: float, true_density: float, channel: Channel
) -> float:
    """Log evidence per feature, (13); stationary in all six numbers at the saddle point.

    With the fields' multipliers F = A - Q̂ and λ, less the log volume of the prior.
    """
    prior = _checked(ratio, density, true_density, channel)
    r, q, r_hat, q_hat, a, log_odds = at

    def label_evidence(p: Array) -> Array:
        truth, guess = _responses(channel, p, r, q, density, true_density)
        return np.exp(truth.log_z) * guess.log_z

    labels = 2.0 * ratio * float(normal_expectation(label_evidence, q)[0])
    field, share = _fields(q_hat, r_hat, true_density)
    weights = float(share @ np.logaddexp(0.0, log_odds - 0.5 * np.log(a) + field**2 / (2.0 * a)))
    legendre = -r_hat * r + 0.5 * q_hat * q + 0.5 * (a - q_hat) * density - log_odds * density
    return labels + legendre + weights - prior.entropy


def _conjugates(
    ratio: float, channel: Channel, overlap: float, power: float, density: float, true_density: float
) -> tuple[float, float]:
    """R̂ and Q̂, from what labels say at the present overlaps."""

    def rows(p: Array) -> Array:
        truth, guess = _responses(channel, p, overlap, power, density, true_density)
        return np.exp(truth.log_z) * np.array([truth.slope * guess.slope, guess.slope**2])

    gain, var = 2.0 * ratio * normal_expectation(rows, power)
    return float(gain), float(var)


def _overlaps(prior: Pruned, field_gain: float, field_var: float, true_density: float) -> Macroscopic:
    """All six numbers, from the fields."""
    field, share = _fields(field_var, field_gain, true_density)
    cavity_var = np.full_like(field, UNIT)
    met = prior.constrained(field, cavity_var, share)
    answer = met.tilted(field, cavity_var).mean
    power = float(share @ answer**2)
    # E[w | h] on the teacher's active weights, which are the first half of all nodes.
    active = slice(0, field.size // 2)
    slope = field_gain / (field_var + field_gain**2)
    overlap = slope * float(share[active] @ (field[active] * answer[active]))
    return Macroscopic(overlap, power, field_gain, field_var, met.excess, met.log_odds)


def _responses(
    channel: Channel, p: Array, overlap: float, power: float, density: float, true_density: float
) -> tuple[Response, Response]:
    """What teacher and student say to the label +1 at an estimated score p."""
    cavity_var = max(density - power, np.finfo(float).eps * density)
    label = np.ones_like(p)
    truth = Scores(true_density, overlap, power).truth(channel, p, label)
    return truth, channel.respond(p, np.full_like(p, cavity_var), label)


def _fields(field_var: float, field_gain: float, true_density: float) -> tuple[Array, Array]:
    """Nodes of h and their probabilities: N(0, Q̂ + R̂²) on active weights, then N(0, Q̂) on all others."""
    standard, share = STANDARD_NORMAL
    on, off = sqrt(field_var + field_gain**2), sqrt(field_var)
    return (
        np.concatenate([on * standard, off * standard]),
        np.concatenate([true_density * share, (1.0 - true_density) * share]),
    )


def _standard_normal() -> tuple[Array, Array]:
    edges = np.concatenate([-NORMAL_EDGES[:0:-1], NORMAL_EDGES])
    nodes, width = panel_nodes(halved(edges, FIELD_HALVINGS))
    return nodes, width * np.exp(-0.5 * nodes**2) / sqrt(2.0 * pi)


STANDARD_NORMAL = _standard_normal()


def _checked(ratio: float, density: float, true_density: float, channel: Channel) -> Pruned:
    """The student's prior; raises if the setting makes no sense."""
    require_ratio(ratio)
    if not (np.ndim(true_density) == 0 and 0.0 < true_density <= 1.0):
        raise ValueError(
            f"true_density is the share of features that matter, above 0 and at most 1; got {true_density!r}."
        )
    if not isinstance(channel, Channel):
        raise TypeError(f"channel must be a channel such as Step(0.05) or Probit(0.1); got {channel!r}.")
    if not channel.normalised:
        raise ValueError(
            f"The channel must be a distribution of labels; those of {channel!r} do not sum to one. "
            "Use Step, Probit or Logistic."
        )
    return Pruned(density)
