"""Parameters that few weights inform are not known: the posterior is integrated over what they may be.

Ten active weights show little of the variance they were drawn with, and a handful of surprising labels
little about how many are wrong. With the best parameters taken for true, intervals of active weights are too
narrow: of 90 % ones, three quarters cover. So the fit is repeated at a few neighbours of the parameters that
EM has found (warm, a few iterations each), and each counts by its evidence and the hyper-prior.

It also makes leave-one-out honest about them. Parameters depend on all labels, and cavities take no account
of that; but the evidence without label m is the whole evidence over p(label m | others), so that each sample
is predicted with weights of the neighbours that do not depend on its label.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.special import betaln, log_softmax, softmax, xlog1py, xlogy

from foldless.beliefs import Array, Posterior
from foldless.channels import FlippedLabels
from foldless.channels.flipped_labels import FLIP_PRIOR_FLIPPED, FLIP_PRIOR_RIGHT
from foldless.evaluation import mixture_moments
from foldless.priors import Gaussian, HyperPrior, SpikeAndSlab
from foldless.problem import History, Outcome, Problem, Solution
from foldless.solvers import EP, Stopping
from foldless.tuning.fit import SPARSE, Fit
from foldless.tuning.record import Recorder
from foldless.tuning.table import blocks_of, with_prior

# The slab's variance, as a multiple of the one found: steps of about a standard deviation of what ten weights
# show of its logarithm. EM sees large weights better than small ones, and errs upwards.
VARIANCE_FACTORS = (1.0, 2.0, 0.5, 0.25)
# Differences between neighbours are judged, not their last digits.
STOPPING = Stopping(tol=5e-3, max_iter=100, patience=40)


def integrated(found: Fit, hyper: HyperPrior, recorder: Recorder) -> Fit:
    """The fit, by EP, with its posterior integrated over neighbours of its parameters.

    Parameters as published stay those found, but for the share of wrong labels, which becomes its mean: it is
    what predictions are made with.
    """
    centre = found.solution
    if not isinstance(found.prior, SpikeAndSlab) or not isinstance(found.prior.slab, Gaussian):
        return found
    solutions, log_weights = [centre], [_log_hyper(centre.problem, hyper)]
    solver, history = EP(), list(centre.history.iterations)
    for problem in _neighbours(centre.problem):
        solution = recorder.solve(
            problem,
            solver,
            model=SPARSE,
            purpose="integrate",
            stopping=STOPPING,
            state=solver.as_start(centre.state),
        )
        history += solution.history.iterations
        if solution.outcome is Outcome.INTERRUPTED:
            interrupted = replace(centre, outcome=Outcome.INTERRUPTED, history=History(history))
            return replace(found, solution=interrupted)
        if solution.outcome.trustworthy:
            solutions.append(solution)
            log_weights.append(_log_hyper(problem, hyper))
    evidence = np.array([s.posterior.log_evidence for s in solutions])
    log_weight = np.asarray(log_softmax(np.array(log_weights) + evidence))
    weight = np.exp(log_weight)
    problem = centre.problem
    if isinstance(problem.channel, FlippedLabels):
        flip_prob = float(weight @ [getattr(s.problem.channel, "flip_prob", 0.0) for s in solutions])
        problem = problem.but(channel=replace(problem.channel, flip_prob=flip_prob))
    whole = replace(
        centre, problem=problem, posterior=_mixture(solutions, log_weight), history=History(history)
    )
    return replace(
        found,
        solution=whole,
        channel=problem.channel,
        inclusion=np.asarray(
            weight @ np.array([replace(found, solution=s).inclusion_probability() for s in solutions])
        ),
    )


def _neighbours(problem: Problem) -> Iterator[Problem]:
    """The other parameters, nearest first; the last ones without wrong labels."""
    base, slab = _spike_and_slab(problem)
    channels = [problem.channel]
    if isinstance(problem.channel, FlippedLabels):
        channels.append(problem.channel.base)
    for channel in channels:
        for factor in VARIANCE_FACTORS:
            if channel is problem.channel and factor == 1.0:
                continue
            prior = replace(base, slab=replace(slab, variance=factor * slab.variance))
            yield with_prior(problem, prior).but(channel=channel)


def _log_hyper(problem: Problem, hyper: HyperPrior) -> float:
    """Of the slab's variance and, where labels may be wrong, of the share of these.

    That share was found by these labels, so that its evidence is that of the best of all shares. What is due
    is the mean under the prior Beta(a, b). Had k of n labels been wrong, with k from EM's mode, that is
    B(k + a, n - k + b) / B(a, b)  over  f^k (1 - f)^(n - k)  of the best.
    """
    found = hyper.log_density(_spike_and_slab(problem)[1].variance)
    if not isinstance(problem.channel, FlippedLabels):
        return found
    f, n, a, b = problem.channel.flip_prob, problem.n_samples, FLIP_PRIOR_FLIPPED, FLIP_PRIOR_RIGHT
    k = min(max(f * (n + a + b - 2.0) - (a - 1.0), 0.0), n)
    return found + float(betaln(k + a, n - k + b) - betaln(a, b) - xlogy(k, f) - xlog1py(n - k, -f))


def _spike_and_slab(problem: Problem) -> tuple[SpikeAndSlab, Gaussian]:
    base = blocks_of(problem).base
    assert isinstance(base, SpikeAndSlab)
    assert isinstance(base.slab, Gaussian)
    return base, base.slab


def _mixture(solutions: list[Solution], log_weight: Array) -> Posterior:
    """Moments within the solutions and between them; cavities are those of the first."""
    posteriors = [s.posterior for s in solutions]
    mean, var, loo_mean, loo_var = (
        np.array([getattr(p, name) for p in posteriors]) for name in ("mean", "var", "loo_mean", "loo_var")
    )
    densities = np.array([s.loo_log_densities() for s in solutions])
    of_all = log_weight[:, np.newaxis]
    without = softmax(of_all - solutions[0].problem.sample_weight * densities, axis=0)
    mean, var = mixture_moments(np.exp(of_all), mean, var)
    loo_mean, loo_var = mixture_moments(without, loo_mean, loo_var)
    return replace(posteriors[0], mean=mean, var=var, loo_mean=loo_mean, loo_var=loo_var)
