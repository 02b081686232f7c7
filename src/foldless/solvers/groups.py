"""Leave-one-group-out from one fit: the labels of a group are taken out together, and the rest answers.

Taking the site of one label out leaves a belief that all other sites still agree with, all but exactly. A
whole group has had more of a say: with a sparse prior, weights are in or out on its strength. So after a
group is taken out, free weights answer, the labels of the others answer to that, and free weights to them.
This happens in the M x M matrices that held weights leave, O(M³) for a group. Of one score, and unless groups
are many, two ordinary iterations follow, in which held weights answer too.

Measured against refits without each group, mean log loss differs by less than 0.001 with dense priors
(visual objects by runs, simulations); with sparse priors by 0.002 to 0.004, without the iterations by 0.004
to 0.017, and bare cavities by 0.02.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.problem import Problem
from foldless.solvers.cavities import label_sites, score_cavities
from foldless.solvers.ep import EP, LABEL_STEP, EPState, state_of
from foldless.solvers.free_weights import FreeWeights, Layers, free_weights
from foldless.solvers.gaussian_layer import NotPositiveDefinite, Scores, Sites

# How often the labels of other samples answer to a group that was left out, and how far they go each time.
# Those of several scores go half of their way, as in an iteration, and so twice.
ANSWERS, ANSWERS_OF_SEVERAL = 1, 2
# Iterations after a group has been taken out, and for all groups together: those of a few fits.
ITERATIONS, ITERATIONS_IN_ALL = 2, 60


def left_out_groups(problem: Problem, state: EPState, group: NDArray[np.intp]) -> tuple[Array, Array]:
    """Mean and variance of every score from the samples of other groups; groups are numbered from 0.

    Samples that are a group of their own have their ordinary cavities, and so have those of a group without
    which there is no posterior.
    """
    alone = score_cavities(state.gaussian.scores, state.sites, problem.sample_weight, problem.sample_weight)
    mean, var = alone.mean.copy(), alone.var.copy()
    several = np.flatnonzero(np.bincount(group) > 1)
    if several.size == 0:
        return mean, var
    precision, joint = state.gaussian.data_precision, state.cluster_sites
    free = free_weights(state.sites, state.sites, precision, joint)
    whole = Layers.open(state.tiles, state.sites, problem.sample_weight, free)
    iterations = 0 if problem.channel.score_shape else min(ITERATIONS, ITERATIONS_IN_ALL // several.size)
    for number in several:
        inside = group == number
        without = problem.but(sample_weight=np.where(inside, 0.0, problem.sample_weight))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # as in the loop of `solve`
            scores = _without_group(without, state, whole, iterations)
        if scores is not None:
            mean[inside], var[inside] = scores.mean[inside], scores.var[inside]
    return mean, var


def _without_group(problem: Problem, state: EPState, whole: Layers, iterations: int) -> Scores | None:
    """Scores in a problem in which a group has no weight, from the state of one in which it has."""
    several = bool(problem.channel.score_shape)
    step, answers = (LABEL_STEP, ANSWERS_OF_SEVERAL) if several else (1.0, ANSWERS)

    def answered(sites: Sites) -> FreeWeights:
        layers = whole.relabelled(sites, problem.sample_weight)
        weights = layers.free_weights(state.gaussian.var, state.cluster_sites)
        return weights.answered(problem, state.weight_cavities)

    try:
        weights = answered(state.sites)
        for _ in range(answers):
            sites = weights.sites
            at = score_cavities(weights.scores(), sites, problem.sample_weight)
            of_labels = label_sites(problem, at, sites)[0]
            weights = answered(sites.towards(sites.with_labels(*of_labels), step))
        scores = weights.scores()
        if iterations:
            solver = EP()
            now = state_of(
                problem,
                weights.sites,
                weights.gaussian(),
                solver.as_start(state),
                proposed=None,
                cluster_sites=weights.cluster_sites,
                clusters=weights.clusters,
            )
            for _ in range(iterations):
                now = solver.step(problem, now)
            scores = now.gaussian.scores
    except NotPositiveDefinite:
        return None
    return scores if np.isfinite(scores.mean).all() and np.isfinite(scores.var).all() else None
