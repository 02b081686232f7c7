"""Leave-one-group-out from one fit: the labels of a group are taken out together, and the rest answers.

Taking the site of one label out leaves a belief that all other sites still agree with, all but exactly. A
whole group has had more of a say: with a sparse prior, weights are in or out on its strength. So after a
group is taken out, free weights answer, the labels of the others answer to that, and free weights to them.
This happens in the M x M matrices that held weights leave, O(M³) for a group. Unless groups are many, two
ordinary iterations follow, in which held weights answer too.

Measured against refits without each group, mean log loss differs by less than 0.001 with dense priors
(visual objects by runs, simulations); with sparse priors by 0.002 to 0.004, without the iterations by 0.004
to 0.017, and bare cavities by 0.02.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.problem import Problem
from foldless.solvers.ep import (
    EP,
    EPState,
    answered,
    free_weights,
    label_sites,
    opening,
    score_cavities,
    weight_cavities,
)
from foldless.solvers.gaussian_layer import Block, Opened, Scores, Sites, opened_layer

# Iterations after a group has been taken out, and for all groups together: those of a few fits.
ITERATIONS, ITERATIONS_IN_ALL = 2, 60


def left_out_groups(problem: Problem, state: EPState, group: NDArray[np.intp]) -> tuple[Array, Array]:
    """Mean and variance of every score from the samples of other groups; groups are numbered from 0.

    Samples that are a group of their own have their ordinary cavities.
    """
    alone = score_cavities(state.gaussian.scores, state.sites, problem.sample_weight, problem.sample_weight)
    mean, var = alone.mean.copy(), alone.var.copy()
    several = np.flatnonzero(np.bincount(group) > 1)
    if several.size == 0:
        return mean, var
    whole = opened_layer(state.tiles, state.sites, problem.sample_weight, free_weights(state.sites, state))
    iterations = min(ITERATIONS, ITERATIONS_IN_ALL // several.size)
    for number in several:
        inside = group == number
        without = problem.but(sample_weight=np.where(inside, 0.0, problem.sample_weight))
        scores = _without_group(without, state, whole, iterations)
        mean[inside], var[inside] = scores.mean[inside], scores.var[inside]
    return mean, var


def _without_group(problem: Problem, state: EPState, whole: Opened, iterations: int) -> Scores:
    """Scores in a problem in which a group has no weight, from the state of one in which it has."""
    opened, block, sites = _with_answers(problem, state, whole, state.sites)
    at = score_cavities(opened.scores(block), sites, problem.sample_weight)
    sites = Sites(sites.prior_precision, sites.prior_shift, *label_sites(problem, at, sites)[0])
    opened, block, sites = _with_answers(problem, state, whole, sites)
    if iterations == 0:
        return opened.scores(block)
    gaussian, solver = opened.closed(block), EP()
    state = replace(
        solver.as_start(state),
        sites=sites,
        gaussian=gaussian,
        weight_cavities=weight_cavities(gaussian),
        score_cavities=score_cavities(gaussian.scores, sites, problem.sample_weight),
        proposed=None,
    )
    for _ in range(iterations):
        state = solver.step(problem, state)
    return state.gaussian.scores


def _with_answers(
    problem: Problem, state: EPState, whole: Opened, sites: Sites
) -> tuple[Opened, Block, Sites]:
    """The layer with these label sites, after free weights have answered to them."""
    opened = whole.relabelled(sites, problem.sample_weight)
    block = answered(problem, state, opened, opening(opened, sites, state.gaussian.var))
    return opened, block, sites.with_prior(opened.free, block.site_precision, block.site_shift)
