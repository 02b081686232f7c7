"""Could a fit have told that it would be found miscalibrated? Its statistic where nobody could know better.

    python -m benchmarks.trust.honesty

The study (benchmarks/studies/trust) calls a fit miscalibrated where Spiegelhalter's statistic of its
inclusion probabilities is beyond 3. On its tables in domain the same is asked of GAMP with the prior and the
channel that they were drawn from: what that is wrong about, nobody could have known. And of probabilities
that are right by construction: effects are drawn from those that were published, each by itself.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from benchmarks.studies.trust import designs
from benchmarks.studies.trust.plot import Z_BAR
from benchmarks.studies.trust.run import FULL, spiegelhalter

DRAWS = 4000


def run(n_tables: int = 120) -> dict[str, Any]:
    from foldless import SparseClassifier

    own, known, by_chance, few = [], [], [], []
    for number in range(n_tables):
        drawn = designs.task(designs.IN_DOMAIN, number, FULL.n_samples, FULL.n_features, FULL.n_test)
        active = drawn.weights != 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = SparseClassifier().fit(drawn.X, drawn.y)
        published = np.asarray(model.inclusion_probability_, dtype=float)
        own.append(spiegelhalter(published, active))
        known.append(spiegelhalter(_with_the_true_prior(drawn), active))
        rng = np.random.default_rng(number)
        redrawn = rng.random((DRAWS, published.size)) < published
        by_chance.append(np.mean([abs(spiegelhalter(published, each)) > Z_BAR for each in redrawn]))
        few.append(float(published.sum()))
    off = np.abs(own) > Z_BAR
    # Fewer effects expected than usual is what can be seen of a fit that misses some.
    needed = float(np.quantile(np.array(few)[off], 0.95)) if off.any() else np.nan
    return {
        "tables": n_tables,
        "off": int(off.sum()),
        "spread": float(f"{np.std(own):.3g}"),
        "off with the true prior": int(np.sum(np.abs(known) > Z_BAR)),
        "spread with the true prior": float(f"{np.std(known):.3g}"),
        "off of right ones by chance": float(f"{np.sum(by_chance):.3g}"),
        "false alarms of a flag that has 95 %": float(f"{np.mean(np.array(few)[~off] <= needed):.3g}"),
    }


def _with_the_true_prior(drawn: Any) -> np.ndarray:
    from foldless.channels import Logistic
    from foldless.operators import Dense
    from foldless.priors import Gaussian, SpikeAndSlab
    from foldless.problem import Problem
    from foldless.solvers import GAMP, Stopping, solve

    # The truth is per standard deviation, and sums of columns were centred.
    X = (drawn.X - drawn.X.mean(axis=0)) / drawn.X.std(axis=0)
    prior = SpikeAndSlab(Gaussian(designs.SLAB_SD**2), designs.N_ACTIVE / X.shape[1])
    problem = Problem(Dense(X), drawn.y.astype(float), np.ones(drawn.y.size), Logistic(), prior)
    solution = solve(problem, GAMP(variances="per-coordinate"), stopping=Stopping(tol=1e-6, max_iter=1000))
    at = solution.posterior
    return np.asarray(prior.inclusion_probability(at.cavity_mean, at.cavity_var))


if __name__ == "__main__":
    print(run())
