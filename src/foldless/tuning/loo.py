"""Leave-one-out from the cavities of one fit: what was believed of each score without its own label.

A sample of weight 2 is two equal rows, and leave-one-out takes one of them out. What a class weight
multiplies is taken out whole; a sample of weight zero was never in. Weights above one are taken out to
first order, which is optimistic.
"""

from __future__ import annotations

import numpy as np

from foldless.beliefs import Array
from foldless.channels import Channel
from foldless.solution import Solution


def log_label_odds(channel: Channel, mean: Array, var: Array) -> Array:
    """log P(y = +1) - log P(y = -1) for scores N(mean, var); the hinge's likelihoods are normalised here."""
    label = np.ones_like(mean)
    return channel.respond(mean, var, label).log_z - channel.respond(mean, var, -label).log_z


def loo_log_odds(solution: Solution) -> Array:
    """Log-odds of label +1 for every training sample, from all other samples."""
    posterior = solution.posterior
    return log_label_odds(solution.problem.channel.predictive(), posterior.loo_mean, posterior.loo_var)


def loo_log_densities(solution: Solution) -> Array:
    """log P(label) of every training sample's own label, from all other samples."""
    channel = solution.problem.channel.predictive()
    if channel.score_shape:
        posterior = solution.posterior
        if posterior.loo_log_density is not None:
            return posterior.loo_log_density
        return channel.respond(posterior.loo_mean, posterior.loo_var, solution.problem.labels).log_z
    return -np.logaddexp(0.0, -solution.problem.labels * loo_log_odds(solution))


def loo_log_loss(solution: Solution) -> float:
    """Mean leave-one-out log loss; infinite if it is not a number."""
    weight = solution.problem.label_weight
    loss = -float(weight @ loo_log_densities(solution)) / float(weight.sum())
    return loss if np.isfinite(loss) else np.inf
