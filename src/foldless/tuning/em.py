"""Tuning as the solver runs: the parameters of prior and channel are learnt from the cavities by EM.

**Scale.** (w, scale) and (k w, scale / k) give the same likelihood, so the scale of a channel and the
scale of a prior are one parameter, and learning both drifts along a flat ridge. foldless fixes the
channel's (logistic scale 1, probit variance 1: weights are in log-odds, or probits) and learns the
prior's. To learn the channel's instead, name it: ``tune=("channel__scale", "prior__inclusion")``. A
channel that only sees the sign of a score (`Step`) does not depend on scale, so there none is learnt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit, logit

from foldless.beliefs import Array
from foldless.channels import Channel
from foldless.channels.base import SupportsEM as ChannelSupportsEM
from foldless.channels.base import SupportsEMByFlips
from foldless.component import inner_names
from foldless.priors.base import HyperPrior
from foldless.priors.base import SupportsEM as PriorSupportsEM
from foldless.problem import Problem
from foldless.solvers.base import State

SCALE_NAMES = frozenset({"scale", "variance", "variances", "rate", "ridge"})
# A parameter's course is extrapolated after this many EM steps, and weights get some time to follow.
STEPS_BETWEEN_JUMPS = 5
SETTLING_STEPS = 8
# Weights that change less than this in an iteration are where they belong for the present parameters.
AT_REST = 1e-3
# The course must shrink by a steady factor to be extrapolated, and shrink slowly to be worth it.
STEADY = 0.05
SLOW, ALMOST_CONSTANT = 0.6, 0.98
# No jump changes odds or a scale by more than this factor.
LARGEST_JUMP = 2.0
# Jumps keep probabilities from the ends at which a model is empty or labels are noise.
SMALLEST_PROBABILITY, LARGEST_PROBABILITY = 1e-6, 0.45
PROBABILITY_NAMES = frozenset({"inclusion", "flip_prob", "noise"})


@dataclass
class EM:
    """One EM step after each iteration, once the cavities mean something.

    With far more features than samples, single weights are hardly informed and EM crawls: each step goes
    a few per cent of the way to where it ends. Every few steps a course that shrinks geometrically is
    therefore extrapolated to its limit (Aitken's method); the fixed points are those of EM.

    names
        What to learn, as ``prior__...`` and ``channel__...``; see `tunable_names`.
    delay, every
        The first iterations are left alone, and then parameters move every so many iterations, or when
        the weights are at rest. Max-sum wants `every` large: there EM belongs at the optimum.
    """

    names: frozenset[str] = frozenset()
    hyper: HyperPrior = field(default_factory=HyperPrior)
    delay: int = 1
    every: int = 1
    _course: dict[str, list[float]] = field(default_factory=dict)
    _resume_at: int = 0
    _last_update: int = -1

    def update(self, problem: Problem, state: State, iteration: int, flipped: Array | None = None) -> Problem:
        """`flipped` are probabilities of flipped labels at the present cavities, if made already."""
        if not self._due(state, iteration):
            return problem
        self._last_update = iteration
        prior, channel = problem.prior, problem.channel
        prior_names, channel_names = inner_names(self.names, "prior"), inner_names(self.names, "channel")
        if prior_names and isinstance(prior, PriorSupportsEM):
            prior = prior.em_update(state.cavity_mean, state.cavity_var, names=prior_names, hyper=self.hyper)
        if channel_names:
            channel = _channel_update(problem, state, channel_names, flipped)
        return self._extrapolated(problem.but(prior=prior, channel=channel), iteration)

    def _extrapolated(self, problem: Problem, iteration: int) -> Problem:
        """The problem with slow parameters moved to where their course leads."""
        changes: dict[str, dict[str, float]] = {"prior": {}, "channel": {}}
        for name in self.names:
            value = _value(problem, name)
            if not isinstance(value, float):
                continue
            to_line, from_line = _LINE[name.rpartition("__")[2] in PROBABILITY_NAMES]
            course = self._course.setdefault(name, [])
            course.append(float(to_line(value)))
            if len(course) < STEPS_BETWEEN_JUMPS:
                continue
            jump = _jump(course)
            course.clear()
            target = float(from_line(to_line(value) + jump))
            # A bound in the way must not turn a jump round.
            if jump * (target - value) > 0:
                part, _, rest = name.partition("__")
                changes[part][rest] = target
        if not (changes["prior"] or changes["channel"]):
            return problem
        # EM would at once call the parameters back to weights that have not followed them yet.
        self._resume_at = iteration + SETTLING_STEPS
        prior, channel = problem.prior, problem.channel
        if changes["prior"]:
            prior = prior.with_params(**changes["prior"])
        if changes["channel"]:
            channel = channel.with_params(**changes["channel"])
        return problem.but(prior=prior, channel=channel)

    def settled(self, iteration: int) -> bool:
        """Whether the state of this iteration answers to parameters as EM wants them."""
        return not self.names or self._last_update == iteration - 1

    def _due(self, state: State, iteration: int) -> bool:
        if not self.names or iteration < self.delay:
            return False
        if state.change < AT_REST:
            return True
        return iteration >= self._resume_at and iteration - self._last_update >= self.every

    def tuned(self, problem: Problem) -> dict[str, Any]:
        return {name: _value(problem, name) for name in sorted(self.names)}


def _channel_update(problem: Problem, state: State, names: frozenset[str], flipped: Array | None) -> Channel:
    """The channel after its EM step; from what it has answered in the iteration, if that is enough."""
    channel, weight = problem.channel, problem.sample_weight
    if isinstance(channel, SupportsEMByFlips):
        if flipped is None and state.label_log_z is not None:
            flipped = channel.flipped_by_evidence(state.label_log_z)
        if flipped is not None:
            updated = channel.em_by_flips(flipped, problem.labels, weight=weight, names=names)
            if updated is not None:
                assert isinstance(updated, Channel)
                return updated
    if not isinstance(channel, ChannelSupportsEM):
        return channel
    return channel.em_update(
        state.score_cavity_mean, state.score_cavity_var, problem.labels, weight=weight, names=names
    )


def tunable_names(problem: Problem) -> frozenset[str]:
    """Everything EM should learn by default: all tunable parameters but one of each pair of scales."""
    prior = {f"prior__{name}" for name in problem.prior.tunable_params()}
    channel = {f"channel__{name}" for name in problem.channel.tunable_params() if not is_scale(name)}
    if problem.channel.scale_free:
        prior = {name for name in prior if not is_scale(name)}
    return frozenset(prior | channel)


def checked_names(problem: Problem, asked: frozenset[str]) -> frozenset[str]:
    """Names a user asked for, ``prior__inclusion``, in the nesting of an assembled problem.

    They must exist, and not learn the same scale twice.
    """
    known = {f"prior__{n}" for n in problem.prior.tunable_params(on_request=True)}
    known |= {f"channel__{n}" for n in problem.channel.tunable_params(on_request=True)}
    names = {n for n in known if without_base(n) in {without_base(name) for name in asked}}
    unknown = sorted(asked - names - {without_base(n) for n in names})
    if unknown:
        possible = sorted(map(without_base, known))
        raise ValueError(f"tune names {unknown}, which cannot be learnt here. What can be: {possible}.")
    channel_scales = sorted(n for n in names if n.startswith("channel__") and is_scale(n))
    prior_scales = sorted(n for n in names if n.startswith("prior__") and is_scale(n))
    if channel_scales and prior_scales:
        raise ValueError(
            f"tune names {channel_scales} and {prior_scales}, but the scale of the channel and the scale of "
            "the prior are one parameter: k times larger weights with a k times smaller channel scale give "
            "the same likelihood. Name only one of them."
        )
    if prior_scales and problem.channel.scale_free:
        raise ValueError(
            f"tune names {prior_scales}, but {problem.channel!r} only sees the sign of a score and says "
            "nothing about the size of weights. Leave the scale out."
        )
    return frozenset(names)


def without_base(name: str) -> str:
    """A parameter's name without the wrappers of an assembled problem, which are all called `base`."""
    return "__".join(part for part in name.split("__") if part != "base")


def is_scale(name: str) -> bool:
    return name.rpartition("__")[2] in SCALE_NAMES


def _jump(course: list[float]) -> float:
    """How much further a geometrically shrinking course will go, or 0 if it is not one."""
    moves = np.diff(course[-4:])
    if np.any(moves == 0) or np.any(np.sign(moves) != np.sign(moves[0])):
        return 0.0
    ratios = moves[1:] / moves[:-1]
    if abs(ratios[1] - ratios[0]) > STEADY or not SLOW < ratios[1] < 1:
        return 0.0
    ratio = min(ratios[1], ALMOST_CONSTANT)
    return float(np.clip(moves[-1] * ratio / (1 - ratio), -np.log(LARGEST_JUMP), np.log(LARGEST_JUMP)))


# Parameters are moved on a line without ends: the log-odds of probabilities, the logarithm of scales.
_LINE: dict[bool, tuple[Callable[[float], float], Callable[[float], float]]] = {
    True: (logit, lambda x: np.clip(expit(x), SMALLEST_PROBABILITY, LARGEST_PROBABILITY)),
    False: (np.log, np.exp),
}


def _value(problem: Problem, name: str) -> Any:
    value: Any = problem
    for part in name.split("__"):
        value = getattr(value, part)
    return value
