"""The course of the pruned Bayes classifier in numbers: the paper's macroscopic dynamics, (42)-(48).

A teacher draws a share `true_density` of active weights from N(0, 1) and labels from its channel at scores
x·w/√N; a student assumes a `density` of its own and runs belief propagation
(`foldless.PrunedBayesClassifier`). Since the algorithm is GAMP with the prior `Pruned`, its course is state
evolution with that prior, and all names are those of `state_evolution`. Only units differ: features of
variance 1/N instead of 1/M multiply the weights by √(M/N). Then, in letters of Uda and Kabashima (2005),

    score_power = C_t,  overlap = R,  estimate_power = Q,  score_cavity_var = C - Q,  ratio = α = M/N.
"""

from __future__ import annotations

from foldless.channels.base import Channel
from foldless.priors.gaussian import Gaussian
from foldless.priors.pruned import Pruned
from foldless.priors.spike_and_slab import SpikeAndSlab
from foldless.theory.state_evolution import Model, StateEvolution, state_evolution


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
    Options are those of `state_evolution`.
    """
    teacher, student = pruned_models(ratio, density, true_density, channel, student_channel)
    return state_evolution(ratio, teacher, student, max_iter=max_iter, tol=tol, step=step)


def pruned_models(
    ratio: float,
    density: float,
    true_density: float,
    channel: Channel,
    student_channel: Channel | None = None,
) -> tuple[Model, Model]:
    """Teacher and student in the units of state evolution: weights times √ratio."""
    return (
        Model(SpikeAndSlab(Gaussian(ratio), true_density), channel),
        Model(Pruned(density, variance=ratio), student_channel or channel),
    )
