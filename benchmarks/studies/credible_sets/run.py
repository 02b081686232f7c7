"""Selection among correlated columns: single features at an FDR, credible sets, and a long Gibbs run.

python -m benchmarks.studies.credible_sets.run
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit
from tests.reference.spike_and_slab_gibbs import spike_and_slab_gibbs

from benchmarks.scale._iteration import starting_problem
from benchmarks.studies import _common as common
from benchmarks.studies.credible_sets.plot import BIN_EDGES, OVER_BACKGROUND, draw, report
from foldless.channels import Logistic, Probit
from foldless.datasets import make_logistic
from foldless.operators import Dense
from foldless.priors import Blocks, Gaussian, OverBackground, SpikeAndSlab
from foldless.priors.wrappers import innermost
from foldless.problem import Problem, Solution
from foldless.selection import CredibleSets, credible_sets, select
from foldless.solvers import EP, GAMP, Stopping, solve
from foldless.solvers.base import Solver
from foldless.solvers.sites import sites_at_cavities
from foldless.tuning.em import EM, tunable_names
from foldless.tuning.plan import BACKGROUND_SCORE_VARIANCE, EXPECTED_ACTIVE, PLAIN_SLAB_VARIANCE

STUDY = Path(__file__).parent
FDR = 0.1
BLOCK, WITHIN_BLOCK = 10, 0.9
AUTOREGRESSION = 0.5
STOPPING = Stopping(tol=1e-3, max_iter=200)
# With a spike and slab alone, learnt by EM.
METHODS: dict[str, Solver[Any]] = {"EP": EP(), "GAMP": GAMP()}
COLUMNS = [
    "trial",
    "design",
    "method",
    "n_samples",
    "n_features",
    "seconds",
    "outcome",
    "n_iter",
    "inclusion",
    "slab_variance",
    "log_evidence",
    "selected",
    "false",
    "fdp",
    "power",
    "sets",
    "sets_right",
    "sets_promised",
    "set_size",
    "set_purity",
    "sets_power",
    "neglected",
]


class Sizes(NamedTuple):
    n_samples: int
    n_features: int
    n_active: int
    gibbs_sweeps: int


PAPER = Sizes(300, 1000, 20, 6000)
QUICK = Sizes(120, 200, 6, 200)


class Data(NamedTuple):
    X: np.ndarray[Any, Any]
    labels: np.ndarray[Any, Any]
    weights: np.ndarray[Any, Any]


def main(argv: Sequence[str] | None = None) -> Path:
    args = common.options(__doc__ or "", trials=12).parse_args(argv)
    sizes = QUICK if args.quick else PAPER
    trials = min(args.trials, 1) if args.quick else args.trials
    folder = common.output_folder(args.out, STUDY, args.quick)
    common.write_machine(folder, **sizes._asdict(), trials=trials, fdr=FDR)

    beliefs: dict[tuple[str, str], list[tuple[Any, Any]]] = {}
    with common.Results(folder, COLUMNS) as results:
        for trial in range(trials):
            for design, data in designs(sizes, trial).items():
                for name, solver in {OVER_BACKGROUND: EP(), **METHODS}.items():
                    row, inclusion = measured(solver, data, over_background=name == OVER_BACKGROUND)
                    beliefs.setdefault((design, name), []).append((inclusion, data.weights != 0))
                    results.add(
                        trial=trial,
                        design=design,
                        method=name,
                        n_samples=sizes.n_samples,
                        n_features=sizes.n_features,
                        **row,
                    )
                    print(
                        f"trial {trial}  {design:7s} {name:14s} {row['seconds']:5.1f} s  {row['outcome']:9s} "
                        f"selected {row['selected']:3d}, false {row['false']:3d}   "
                        f"sets {row['sets']:3d}, right {row['sets_right']:3d}, power {row['sets_power']:.2f}",
                        flush=True,
                    )
    calibration(beliefs).to_csv(folder / "calibration.csv", index=False, float_format="%.6g")
    against_gibbs(sizes.gibbs_sweeps).to_csv(folder / "gibbs.csv", index=False, float_format="%.6g")
    print("\n" + report(folder))
    draw(folder)
    print(f"\nresults.csv, calibration.csv, gibbs.csv, figure.png and machine.json are in {folder}")
    return folder


def designs(sizes: Sizes, seed: int) -> dict[str, Data]:
    """Logistic labels of `n_active` weights ±1 on columns of unit variance."""
    data = make_logistic(
        sizes.n_samples, sizes.n_features, sizes.n_active, correlation=AUTOREGRESSION, random_state=seed
    )
    rng = np.random.default_rng(seed)
    X = blocks(rng, sizes.n_samples, sizes.n_features)
    weights = np.zeros(sizes.n_features)
    weights[rng.choice(sizes.n_features, sizes.n_active, replace=False)] = rng.choice(
        [-1.0, 1.0], sizes.n_active
    )
    labels = np.where(rng.random(sizes.n_samples) < expit(X @ weights), 1.0, -1.0)
    return {
        "AR(0.5)": Data(data.X, data.y.astype(float), data.weights),
        "blocks": Data(X, labels, weights),
    }


def blocks(rng: np.random.Generator, n_samples: int, n_features: int, block: int = BLOCK) -> Any:
    """Columns of unit variance in blocks, any two of a block correlated."""
    common_part = np.repeat(rng.standard_normal((n_samples, n_features // block)), block, axis=1)
    own_part = rng.standard_normal((n_samples, n_features))
    return np.sqrt(WITHIN_BLOCK) * common_part + np.sqrt(1 - WITHIN_BLOCK) * own_part


def measured(solver: Solver[Any], data: Data, *, over_background: bool) -> tuple[dict[str, Any], Any]:
    """One fit with credible sets, on the clock, against the truth; and the inclusion probabilities."""
    problem = starting_problem(data.X, data.labels, Logistic())
    tuner = EM(tunable_names(problem))
    if over_background:
        problem, tuner = with_background(problem, data.weights.size), None

    def fit_and_select() -> tuple[Solution, CredibleSets]:
        solution = solve(problem, solver, tuner=tuner, stopping=STOPPING)
        return solution, sets_of(solution)

    (solution, found), seconds, _ = common.timed(fit_and_select)
    active = data.weights != 0
    inclusion = found.inclusion[: active.size]
    selected = select(inclusion, FDR)
    right = [bool(np.any(active[each.columns])) for each in found.sets]
    covered = np.unique([column for each in found.sets for column in each.columns if active[column]])
    false = np.count_nonzero(selected & ~active)
    prior = solution.problem.prior
    assert isinstance(prior, Blocks)
    spiked = innermost(prior.base)
    assert isinstance(spiked, SpikeAndSlab)
    row = {
        "seconds": seconds,
        "outcome": str(solution.outcome),
        "n_iter": len(solution.history),
        "inclusion": spiked.inclusion,
        "slab_variance": spiked.slab.moments()[1],
        "log_evidence": solution.posterior.log_evidence,
        "selected": np.count_nonzero(selected),
        "false": false,
        "fdp": false / max(np.count_nonzero(selected), 1),
        "power": np.count_nonzero(selected & active) / np.count_nonzero(active),
        "sets": len(right),
        "sets_right": sum(right),
        "sets_promised": float(np.mean([each.probability for each in found.sets])) if right else np.nan,
        "set_size": float(np.mean([each.columns.size for each in found.sets])) if right else np.nan,
        "set_purity": float(np.mean([each.purity for each in found.sets])) if right else np.nan,
        "sets_power": covered.size / np.count_nonzero(active),
        "neglected": found.neglected,
    }
    return row, inclusion


def with_background(problem: Problem, n_features: int) -> Problem:
    """As the default does it: plain parameters over a background, all of them fixed."""
    assert isinstance(problem.prior, Blocks)
    sparse = SpikeAndSlab(Gaussian(PLAIN_SLAB_VARIANCE), EXPECTED_ACTIVE / n_features)
    base = OverBackground(sparse, BACKGROUND_SCORE_VARIANCE / n_features)
    return problem.but(prior=replace(problem.prior, base=base))


def sets_of(solution: Solution) -> CredibleSets:
    at, state, problem = solution.posterior, solution.state, solution.problem
    inclusion = problem.prior.inclusion_probability(at.cavity_mean, at.cavity_var)  # type: ignore[attr-defined]
    return credible_sets(problem, sites_at_cavities(problem, state), inclusion)


def calibration(beliefs: dict[tuple[str, str], list[tuple[Any, Any]]]) -> pd.DataFrame:
    """How often features are in, by what was believed of them (after refinement)."""
    rows = []
    for (design, method), pairs in beliefs.items():
        inclusion = np.concatenate([pair[0] for pair in pairs])
        active = np.concatenate([pair[1] for pair in pairs])
        bins = np.digitize(inclusion, BIN_EDGES[1:-1])
        for k in range(len(BIN_EDGES) - 1):
            inside = bins == k
            if inside.any():
                rows.append(
                    (design, method, k, inside.sum(), inclusion[inside].mean(), active[inside].mean())
                )
    return pd.DataFrame(rows, columns=["design", "method", "bin", "features", "believed", "true"])


def against_gibbs(n_sweeps: int) -> pd.DataFrame:
    """Inclusion probabilities of one probit problem in blocks, with known prior, beside a long Gibbs run."""
    rng = np.random.default_rng(5)
    n_samples, n_features, block, rate = 100, 80, 8, 0.05
    X = blocks(rng, n_samples, n_features, block)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    weights = np.zeros(n_features)
    weights[rng.choice(n_features, 4, replace=False)] = [1.5, -1.0, 1.0, -1.5]
    labels = np.where(X @ weights + rng.standard_normal(n_samples) > 0, 1.0, -1.0)
    gibbs = spike_and_slab_gibbs(X, labels, rate, 1.0, n_chains=100, n_sweeps=n_sweeps, burn_in=n_sweeps // 5)
    table = {"gibbs": gibbs.inclusion, "gibbs_error": gibbs.inclusion_error, "weight": weights}
    problem = Problem(Dense(X), labels, np.ones(n_samples), Probit(), SpikeAndSlab(Gaussian(1.0), rate))
    for name, solver in METHODS.items():
        solution = solve(problem, solver, stopping=Stopping(tol=1e-6, max_iter=500))
        at = solution.posterior
        prior: Any = problem.prior
        table[name] = prior.inclusion_probability(at.cavity_mean, at.cavity_var)
        table[f"{name}, refined"] = sets_of(solution).inclusion
    return pd.DataFrame({"block": np.arange(n_features) // block, **table})


if __name__ == "__main__":
    main()
