"""State evolution: how well GAMP will do on random features, known before any data are seen.

For X with independent entries N(0, 1/M), M samples, N features and both large, every iteration of GAMP is
described by a few numbers [Rangan 2011; Ziniel, Schniter, Sederberg 2015, section III; Javanmard and
Montanari 2013]. A teacher draws weights w from its prior and labels from its channel, a student runs GAMP
with a prior and a channel of its own, the same (matched) or others (mismatched). With δ = M/N,

    S₁₁ = E[w²]/δ,   S₁₂ = E[w ŵ]/δ,   S₂₂ = E[ŵ²]/δ      second moments of true and estimated scores,

one iteration is

    samples   p ~ N(0, S₂₂),   z | p ~ N(m, ν) with m = p S₁₂/S₂₂, ν = S₁₁ - S₁₂²/S₂₂,   τp = τw/δ;
              y ~ teacher's channel at z;   s, τs = student's response to y at (p, τp);
              τr = 1/E[τs],   a = τr E[∂s/∂z],   ξ = τr² E[s²];
    weights   r = a w + N(0, ξ);   ŵ, τw = student's prior at (r, τr).

Nothing but the answers of priors and channels is needed, because the teacher's own answers are the
distributions to average over: its channel's log_z at (m, ν) is the log probability of a label, E[∂s/∂z] is
the mean of s times the teacher's slope there (Stein's lemma), and its prior's log_z at (r/a, ξ/a²) is the
log density of r/a = w + N(0, ξ/a²), with mean E[w | r]. So all averages are integrals over one variable.

A student's prior may constrain all weights together (`Pruned`). It then meets its constraints in every
iteration on average over r, as it does in GAMP over the weights.

Matched sum-product iterations have a = 1, ξ = τr, S₁₂ = S₂₂ and τw equal to the mean squared error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, log2, sqrt
from typing import Any

import numpy as np

from foldless.beliefs import Array, Response, Tilted
from foldless.channels.base import Channel
from foldless.priors.base import Prior
from foldless.solvers.gamp import MIN_CURVATURE, MIN_VARIANCE, RULES, Rule
from foldless.solvers.message_passing import VAGUEST_START
from foldless.theory.quadrature import NORMAL_REACH, halved, integrate, normal_expectation, panel_nodes

# A signal this small beside its noise is none, and dividing by less would only lose digits.
LEAST_RELATIVE_GAIN = 1e-8
# The integral of the teacher's density must give the teacher's second moment to this accuracy; then
# no part of the density lies beyond the ends or between the nodes.
MOMENT_TOLERANCE = 1e-9
# How often ends are doubled, or panels halved, before a density counts as impossible to integrate.
MOST_DOUBLINGS = 12
# Constraints are met on panels halved this often: a dozen nodes each, far narrower than any inclusion's rise.
CONSTRAINT_HALVINGS = 3
# The smallest panels around zero, in standard deviations of the noise on a weight.
FINEST_PANEL = 0.25


@dataclass(frozen=True)
class Model:
    """What is believed of weights and labels: a prior and a channel."""

    prior: Prior
    channel: Channel

    def __post_init__(self) -> None:
        if not isinstance(self.prior, Prior):
            raise TypeError(
                f"Model(prior=...) must be a prior; got {self.prior!r}. "
                "Pass an object such as SpikeAndSlab(Gaussian(), inclusion=0.1)."
            )
        if not isinstance(self.channel, Channel):
            raise TypeError(
                f"Model(channel=...) must be a channel; got {self.channel!r}. "
                "Pass an object such as Probit(variance=0.1) or Logistic()."
            )


@dataclass(frozen=True)
class Iterate:
    """One iteration of GAMP in numbers: what its samples and weights saw, and how good its estimate is."""

    score_cavity_var: float  # τp: what the student believes of the variance of a score
    cavity_var: float  # τr: what the student believes of the variance of a weight's pseudo-observation r
    gain: float  # a in r = a w + N(0, ξ)
    noise_var: float  # ξ
    overlap: float  # S₁₂: covariance of true and estimated scores
    estimate_power: float  # S₂₂: variance of estimated scores
    weight_var: float  # τw: the student's posterior variance of a weight
    mse: float  # E (ŵ - w)²
    test_error: float  # share of new labels that the sign of the estimated score gets wrong


def _course(name: str) -> property:
    """A number of every iterate, as an array."""

    def course(self: StateEvolution) -> Array:
        return np.array([getattr(iterate, name) for iterate in self.iterates])

    return property(course)


@dataclass(frozen=True)
class StateEvolution:
    """The predicted course of GAMP; arrays have one entry per iteration."""

    score_power: float  # S₁₁: variance of true scores
    iterates: tuple[Iterate, ...]
    converged: bool

    @property
    def fixed_point(self) -> Iterate:
        """Where the iteration ended: the performance of GAMP, if it converged."""
        return self.iterates[-1]

    score_cavity_var = _course("score_cavity_var")
    cavity_var = _course("cavity_var")
    gain = _course("gain")
    noise_var = _course("noise_var")
    overlap = _course("overlap")
    estimate_power = _course("estimate_power")
    weight_var = _course("weight_var")
    mse = _course("mse")
    test_error = _course("test_error")

    def __len__(self) -> int:
        return len(self.iterates)


def state_evolution(
    ratio: float,
    teacher: Model,
    student: Model | None = None,
    *,
    rule: Rule = "sum-product",
    max_iter: int = 500,
    tol: float = 1e-10,
    step: float = 1.0,
) -> StateEvolution:
    """Predict GAMP with `ratio` = samples / features on i.i.d. N(0, 1/samples) features.

    Without a student, the student is the teacher. The iteration ends when overlap, power and variance of
    the estimate change by less than `tol` times the power of the true scores. Curvatures are averaged with
    their sign, as in GAMP(variances='uniform').

    With step=1 every iterate predicts an iteration of undamped GAMP. A smaller `step` goes only that far
    from one iterate to the next: it finds the fixed point where the undamped iteration swings around it
    (mismatched students can), but its course is not that of damped GAMP.
    """
    student = teacher if student is None else student
    _require_usable(ratio, teacher, student, rule)
    if max_iter < 1 or not 0 < step <= 1:
        raise ValueError(
            f"max_iter must be at least 1 and step in (0, 1]; got max_iter={max_iter!r}, step={step!r}."
        )
    respond = _asked(student.channel, rule)
    weights = _TeacherWeights(teacher.prior)
    score_power = weights.power / ratio

    # GAMP starts at the prior's moments, and like GAMP it does not start vaguer than is useful.
    mean, var = student.prior.moments()
    overlap, estimate_power = mean * weights.mean / ratio, mean**2 / ratio
    score_cavity_var = min(var / ratio, VAGUEST_START)

    iterates: list[Iterate] = []
    converged = False
    while len(iterates) < max_iter and not converged:
        scores = Scores(score_power, overlap, estimate_power)
        cavity_var, gain, noise_var = _weight_cavity(teacher.channel, respond, scores, score_cavity_var)
        prior = weights.constrained(student.prior, cavity_var, gain, noise_var)
        product, square, weight_var = weights.averages(_asked(prior, rule), cavity_var, gain, noise_var)
        new = Iterate(
            score_cavity_var=score_cavity_var,
            cavity_var=cavity_var,
            gain=gain,
            noise_var=noise_var,
            overlap=product / ratio,
            estimate_power=square / ratio,
            weight_var=weight_var,
            mse=weights.power - 2.0 * product + square,
            test_error=Scores(score_power, product / ratio, square / ratio).test_error(teacher.channel),
        )
        iterates.append(new)
        change = max(
            abs(new.overlap - overlap),
            abs(new.estimate_power - estimate_power),
            abs(new.weight_var / ratio - score_cavity_var),
        )
        if not isfinite(change):
            break
        converged = change <= tol * score_power
        overlap += step * (new.overlap - overlap)
        estimate_power += step * (new.estimate_power - estimate_power)
        score_cavity_var += step * (max(new.weight_var / ratio, MIN_VARIANCE) - score_cavity_var)
    return StateEvolution(score_power, tuple(iterates), converged)


@dataclass(frozen=True)
class Scores:
    """True score z and estimated score p of a sample: jointly Gaussian, mean zero."""

    power: float  # S₁₁
    overlap: float  # S₁₂
    estimate_power: float  # S₂₂

    @property
    def slope(self) -> float:
        """S₁₂/S₂₂: the mean of z per unit of p."""
        return self.overlap / self.estimate_power if self.estimate_power > 0.0 else 0.0

    @property
    def remaining_var(self) -> float:
        """Variance of z given p; a little above zero where rounding would take it below."""
        return max(self.power - self.slope * self.overlap, np.finfo(float).eps * self.power)

    def truth(self, channel: Channel, p: Array, labels: Array) -> Response:
        """The teacher's response to labels at an estimated score p."""
        return channel.respond(self.slope * p, np.full_like(p, self.remaining_var), labels)

    def test_error(self, channel: Channel) -> float:
        """P(label ≠ sign p) for labels of the teacher's channel; ½ for an estimate of zero.

        For p > 0 the wrong label is -1, so the error is E_p Z(-sign p; m, ν). With a probit teacher of
        variance v it is arccos(S₁₂ / √((S₁₁ + v) S₂₂)) / π.
        """
        if self.estimate_power <= 0.0:
            return 0.5

        def wrong(p: Array) -> Array:
            return np.exp(self.truth(channel, p, -np.sign(p)).log_z)

        return float(normal_expectation(wrong, self.estimate_power)[0])


def _weight_cavity(
    channel: Channel,
    respond: Callable[[Array, Array, Array], Response],
    scores: Scores,
    score_cavity_var: float,
) -> tuple[float, float, float]:
    """τr, a and ξ of r = a w + N(0, ξ): averages over p and over labels of the teacher's channel.

    With Z, s_T the teacher's probability of y and its slope at (m, ν):
        A = E[τs],   τr = 1/A,   a = E[s s_T]/A,   ξ = E[s²]/A².
    """

    def over_labels(p: Array) -> Array:
        rows = np.zeros((3, p.size))
        for label in (-1.0, 1.0):
            y = np.full_like(p, label)
            truth = scores.truth(channel, p, y)
            guess = respond(p, np.full_like(p, score_cavity_var), y)
            rows += np.exp(truth.log_z) * np.array(
                [guess.curvature, guess.slope * truth.slope, guess.slope**2]
            )
        return rows

    curvature, alignment, slope_square = normal_expectation(over_labels, scores.estimate_power)
    curvature = max(float(curvature), MIN_CURVATURE)
    return 1.0 / curvature, float(alignment) / curvature, float(slope_square) / curvature**2


class _TeacherWeights:
    """Averages over weights of the teacher's prior and pseudo-observations of them."""

    def __init__(self, prior: Prior) -> None:
        self.prior = prior
        self.mean, var = prior.moments()
        self.power = var + self.mean**2
        self.reach = self._find_reach()

    def averages(
        self, denoise: Callable[[Array, Array], Tilted], cavity_var: float, gain: float, noise_var: float
    ) -> tuple[float, float, float]:
        """E[w ŵ], E[ŵ²] and E[τw] for r = a w + N(0, ξ).

        c = r/a is w + N(0, v) with v = ξ/a²: its density is exp(log_z) of the prior at (c, v), and E[w | c]
        the prior's mean there.
        """
        gain, noise = self._observed(gain, noise_var)

        def rows(c: Array) -> Array:
            truth = self.prior.tilted(c, np.full_like(c, noise))
            guess = denoise(gain * c, np.full_like(c, cavity_var))
            values = np.array([truth.mean * guess.mean, guess.mean**2, guess.var, c**2])
            return values * np.exp(truth.log_z)

        reach = self.reach + NORMAL_REACH * sqrt(noise)
        for halvings in range(MOST_DOUBLINGS):
            product, square, var, power = integrate(rows, _panels(sqrt(noise), reach, halvings))
            if abs(power - self.power - noise) <= MOMENT_TOLERANCE * (self.power + noise):
                return float(product), float(square), float(var)
        raise self._not_integrable()

    def constrained(self, prior: Prior, cavity_var: float, gain: float, noise_var: float) -> Prior:
        """The student's prior as it meets its constraints over r = a w + N(0, ξ)."""
        if not prior.joint:
            return prior
        gain, noise = self._observed(gain, noise_var)
        reach = self.reach + NORMAL_REACH * sqrt(noise)
        c, share = panel_nodes(_panels(sqrt(noise), reach, CONSTRAINT_HALVINGS))
        density = np.exp(self.prior.tilted(c, np.full_like(c, noise)).log_z)
        return prior.constrained(gain * c, np.full_like(c, cavity_var), share * density)

    def _observed(self, gain: float, noise_var: float) -> tuple[float, float]:
        """a, never quite zero, and the variance of r/a - w."""
        least = LEAST_RELATIVE_GAIN * sqrt(noise_var / self.power)
        gain = float(np.copysign(max(abs(gain), least), gain))
        return gain, max(noise_var / gain**2, MIN_VARIANCE)

    def _find_reach(self) -> float:
        """A distance beyond which the prior has no weights that matter.

        Found for w + N(0, E w²), whose density is smooth. Noise is symmetric, so weights beyond
        the reach would take at least half of their pseudo-observations with them.
        """
        noise = self.power
        expected = self.power + noise
        reach = NORMAL_REACH * sqrt(expected)

        def power_density(c: Array) -> Array:
            return c**2 * np.exp(self.prior.tilted(c, np.full_like(c, noise)).log_z)

        for _ in range(MOST_DOUBLINGS):
            captured = float(integrate(power_density, _panels(sqrt(noise), reach, 0))[0])
            if abs(captured - expected) <= MOMENT_TOLERANCE * expected:
                return reach
            reach *= 2.0
        raise self._not_integrable()

    def _not_integrable(self) -> ValueError:
        return ValueError(
            f"The teacher's prior {self.prior!r} does not integrate to its own moments, so weights cannot be "
            "averaged over it. A teacher needs a normalised density that is the same for all weights: "
            "Gaussian, Laplace, ElasticNet, GaussianMixture, or SpikeAndSlab of one of them."
        )


def _panels(scale: float, reach: float, halvings: int) -> Array:
    """Edges from -reach to reach that widen away from zero, where spikes and thresholds are."""
    smallest = min(FINEST_PANEL * scale, 0.5 * reach)
    octaves = log2(reach / smallest)
    positive = smallest * 2.0 ** np.linspace(0.0, octaves, int(np.ceil(octaves)) + 1)
    return halved(np.concatenate([-positive[::-1], [0.0], positive]), halvings)


def _asked(part: Prior | Channel, rule: Rule) -> Callable[..., Any]:
    """What the student's prior or channel is asked for under the rule."""
    kind, answer, examples = "channel", "respond", "Logistic, Probit or Hinge"
    if isinstance(part, Prior):
        kind, answer, examples = "prior", "tilted", "Laplace or ElasticNet"
    if rule == "max-sum" and not hasattr(part, "proximal"):
        raise ValueError(
            f"rule='max-sum' needs a student's {kind} with `proximal`; {part!r} has only `{answer}`. "
            f"Use rule='sum-product', or a {kind} such as {examples}."
        )
    return getattr(part, "proximal" if rule == "max-sum" else answer)


def _require_usable(ratio: float, teacher: Model, student: Model, rule: str) -> None:
    if rule not in RULES:
        raise ValueError(f"rule must be one of {RULES}; got {rule!r}.")
    require_ratio(ratio)
    for role, model in (("teacher", teacher), ("student", student)):
        if not isinstance(model, Model):
            raise TypeError(
                f"{role} must be a Model; got {model!r}. "
                "For example Model(SpikeAndSlab(Gaussian(), inclusion=0.1), Probit(variance=0.1))."
            )
    if teacher.prior.joint:
        raise ValueError(
            f"The teacher's prior must be the same for all weights; {teacher.prior!r} constrains them "
            "together. For many weights SpikeAndSlab(Gaussian(variance), density) is the same teacher."
        )
    if not teacher.channel.normalised:
        raise ValueError(
            f"The teacher's channel must be a distribution of labels; the two labels' likelihoods of "
            f"{teacher.channel!r} do not sum to one. Use Probit, Logistic or Step; a student may use it."
        )


def require_ratio(ratio: float) -> None:
    if not (np.ndim(ratio) == 0 and isfinite(ratio) and ratio > 0):
        raise ValueError(
            f"ratio is samples / features, a number above 0; got {ratio!r}. "
            "For 200 samples of 10 000 features it is 0.02."
        )
