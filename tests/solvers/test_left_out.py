"""Leave-one-out takes out a sample with all of its weight, in every solver; held to fits without it."""

import numpy as np
import pytest

from foldless.channels import Logistic, Multinomial
from foldless.operators import operator_from
from foldless.priors import Gaussian, SpikeAndSlab
from foldless.problem import Problem
from foldless.solvers import EP, GAMP, VAMP, HyGAMP, Stopping, solve

WEIGHTS = {
    "ones": np.ones(60),
    "twos": np.full(60, 2.0),
    "halves": np.where(np.arange(60) % 2, 2.0, 1.0),
    "random": np.random.default_rng(3).uniform(0.2, 3.0, 60),
}
SOLVERS = {"EP": EP(), "GAMP": GAMP(variances="per-coordinate"), "VAMP": VAMP()}


def problem_of(weight: np.ndarray, prior, n_classes: int = 2) -> Problem:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 80))
    scores = X[:, :3] @ rng.standard_normal((3, max(n_classes - 1, 1))) * 1.5
    if n_classes == 2:
        labels = np.where(rng.random(60) < 1 / (1 + np.exp(-scores[:, 0])), 1.0, -1.0)
        return Problem(operator_from(X), labels, weight, Logistic(), prior)
    labels = 1.0 + np.argmax(np.column_stack([scores + rng.gumbel(size=scores.shape), np.zeros(60)]), axis=1)
    return Problem(operator_from(X), labels, weight, Multinomial(n_classes), prior)


def without(problem: Problem, solver, rows: range) -> np.ndarray:
    """Scores of rows from fits in which they have no weight: there they are predicted as new samples."""
    found = []
    for row in rows:
        weight = problem.sample_weight.copy()
        weight[row] = 0.0
        found.append(
            solve(problem.but(sample_weight=weight), solver, stopping=STOPPING).posterior.loo_mean[row]
        )
    return np.array(found)


STOPPING = Stopping(tol=1e-4, max_iter=500)


# Measured: EP under a dense prior is within 1 % of refits; under a sparse one, whose sites answer to what is
# taken out, within 26 % at a weight of 2, where taking out one row of two is off by 41 to 65 %.
CLOSE = {("EP", "Gaussian"): 0.02, ("GAMP", "Gaussian"): 0.15, ("VAMP", "Gaussian"): 0.4}


@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS.keys())
@pytest.mark.parametrize(
    "prior", [Gaussian(0.05), SpikeAndSlab(Gaussian(1.0), 0.05)], ids=["dense", "sparse"]
)
@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())
def test_a_sample_is_left_out_whatever_its_weight(solver, prior, weight):
    problem = problem_of(weight, prior)
    loo = solve(problem, solver, stopping=STOPPING).posterior.loo_mean[:20]
    refits = without(problem, solver, range(20))
    close = CLOSE.get((type(solver).__name__, type(prior).__name__), 0.3)
    assert np.sqrt(np.mean((loo - refits) ** 2)) < close * np.sqrt(np.mean(refits**2))
    # What leaks of a label moves its score towards it.
    assert np.mean(problem.labels[:20] * (loo - refits)) < 0.2


@pytest.mark.parametrize("weight", [WEIGHTS["twos"], WEIGHTS["random"]], ids=["twos", "random"])
@pytest.mark.parametrize("solver", [EP(), HyGAMP()], ids=["EP", "HyGAMP"])
def test_of_several_classes_too(solver, weight):
    problem = problem_of(weight, Gaussian(0.05), n_classes=3)
    loo = solve(problem, solver, stopping=STOPPING).posterior.loo_mean[:12]
    refits = without(problem, solver, range(12))
    loo, refits = (scores - scores.mean(axis=1, keepdims=True) for scores in (loo, refits))
    assert np.sqrt(np.mean((loo - refits) ** 2)) < 0.25 * np.sqrt(np.mean(refits**2))
