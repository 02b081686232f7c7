"""EM tuning: the parameters of prior and channel are learnt from the cavities, as the solver runs.

**Scale.** (w, scale) and (k w, scale / k) give the same likelihood, so the scale of a channel and the
scale of a prior are one parameter, and learning both drifts along a flat ridge. foldless fixes the
channel's (logistic scale 1, probit variance 1: weights are in log-odds, or probits) and learns the
prior's. To learn the channel's instead, name it: ``tune=("channel__scale", "prior__inclusion")``. A
channel that only sees the sign of a score (`Step`) says nothing about scale, so there none is learnt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from foldless.channels.base import SupportsEM as ChannelSupportsEM
from foldless.component import Component, inner_names
from foldless.priors.base import HyperPrior
from foldless.priors.base import SupportsEM as PriorSupportsEM
from foldless.problem import Problem
from foldless.solvers.base import State

SCALE_NAMES = frozenset({"scale", "variance", "variances", "rate", "ridge"})


@dataclass(frozen=True)
class EM(Component):
    """One EM step after each iteration, once the cavities mean something.

    names
        What to learn, as ``prior__...`` and ``channel__...``; see `tunable_names`.
    delay, every
        The first iterations are left alone, and then every how many iterations parameters move.
        Max-sum wants `every` large: there EM belongs at the optimum, not on the way to it.
    """

    names: frozenset[str] = frozenset()
    hyper: HyperPrior = field(default_factory=HyperPrior)
    delay: int = 1
    every: int = 1

    def update(self, problem: Problem, state: State, iteration: int) -> Problem:
        if iteration < self.delay or (iteration - self.delay) % self.every:
            return problem
        prior, channel = problem.prior, problem.channel
        prior_names, channel_names = inner_names(self.names, "prior"), inner_names(self.names, "channel")
        if prior_names and isinstance(prior, PriorSupportsEM):
            prior = prior.em_update(state.cavity_mean, state.cavity_var, names=prior_names, hyper=self.hyper)
        if channel_names and isinstance(channel, ChannelSupportsEM):
            channel = channel.em_update(
                state.score_cavity_mean,
                state.score_cavity_var,
                problem.labels,
                weight=problem.sample_weight,
                names=channel_names,
            )
        return problem.but(prior=prior, channel=channel)

    def tuned(self, problem: Problem) -> dict[str, Any]:
        return {name: _value(problem, name) for name in sorted(self.names)}


def tunable_names(problem: Problem) -> frozenset[str]:
    """Everything EM should learn by default: all tunable parameters but one of each pair of scales."""
    prior = {f"prior__{name}" for name in problem.prior.tunable_params()}
    channel = {f"channel__{name}" for name in problem.channel.tunable_params() if not is_scale(name)}
    if problem.channel.scale_free:
        prior = {name for name in prior if not is_scale(name)}
    return frozenset(prior | channel)


def checked_names(problem: Problem, names: frozenset[str]) -> frozenset[str]:
    """Names a user asked for, if they exist and do not learn the same scale twice."""
    known = {f"prior__{n}" for n in problem.prior.tunable_params()}
    known |= {f"channel__{n}" for n in problem.channel.tunable_params()}
    unknown = sorted(names - known)
    if unknown:
        raise ValueError(f"tune names {unknown}, which cannot be learnt here. What can be: {sorted(known)}.")
    channel_scales = sorted(n for n in names if n.startswith("channel__") and is_scale(n))
    prior_scales = sorted(n for n in names if n.startswith("prior__") and is_scale(n))
    if channel_scales and prior_scales:
        raise ValueError(
            f"tune names {channel_scales} and {prior_scales}, but the scale of the channel and the scale of the prior "
            "are one parameter: k times larger weights with a k times smaller channel scale give the same likelihood. "
            "Name only one of them."
        )
    if prior_scales and problem.channel.scale_free:
        raise ValueError(
            f"tune names {prior_scales}, but {problem.channel!r} only sees the sign of a score and says nothing about "
            "the size of weights. Leave the scale out."
        )
    return names


def is_scale(name: str) -> bool:
    return name.rpartition("__")[2] in SCALE_NAMES


def _value(problem: Problem, name: str) -> Any:
    value: Any = problem
    for part in name.split("__"):
        value = getattr(value, part)
    return value
