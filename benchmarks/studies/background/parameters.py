"""The plain parameters of the sparse model: would others, or an average over several, be better calibrated?

python -m benchmarks.studies.background.parameters [--trials 30]

Designs of their own, which are no part of the study that the parameters are judged by, with effects of other
numbers and strengths. Every problem is fitted at the plain parameters and at others, each of which differs in
one or two of them; averages weigh these by the evidence that EP gives them. Prints a table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, softmax
from threadpoolctl import threadpool_limits

from benchmarks.studies import _common as common
from benchmarks.studies.background.methods import by_probability, standardised
from benchmarks.studies.background.plot import power_at
from benchmarks.studies.background.run import judged
from foldless.beliefs import Array
from foldless.channels import FlippedLabels, Logistic
from foldless.operators import Dense, Standardized
from foldless.priors import Gaussian, OverBackground, SpikeAndSlab
from foldless.selection.clusters import refined_inclusion
from foldless.solvers import EP, Stopping, solve
from foldless.solvers.ep import EPState
from foldless.tuning.plan import (
    BACKGROUND_SCORE_VARIANCE,
    EXPECTED_ACTIVE,
    PATIENCE,
    PLAIN_SLAB_VARIANCE,
    TOLERANCE,
)
from foldless.tuning.table import Layout, LeftOut, Table, assembled

TRIALS = 30
STOPPING = Stopping(tol=TOLERANCE, max_iter=200, patience=PATIENCE)
RAREST_CLASS = 0.15
# The bins of a promised probability of .2 to .7, where gaps are largest.
MIDDLE = slice(2, 7)


class Parameters(NamedTuple):
    """Score variance of the background, features expected to have an effect, variance of their weights."""

    background: float = BACKGROUND_SCORE_VARIANCE
    expected: float = EXPECTED_ACTIVE
    slab: float = PLAIN_SLAB_VARIANCE

    def __str__(self) -> str:
        return f"background {self.background:g}, expected {self.expected:g}, slab {self.slab:g}"


PLAIN = Parameters()
OTHERS = (
    Parameters(background=8.0),
    Parameters(background=40.0),
    Parameters(expected=4.0),
    Parameters(slab=1.0),
    Parameters(background=8.0, slab=1.0),
)
AVERAGES = {
    "backgrounds 8, 20, 40": (PLAIN, *OTHERS[:2]),
    "expected 4, 10": (PLAIN, OTHERS[2]),
    "slabs 1, 4": (PLAIN, OTHERS[3]),
    "all of these": (PLAIN, *OTHERS),
}


def tissues(rng: np.random.Generator) -> Array:
    """200 x 1400: three groups of samples, eight factors, neighbours; two fifths have heavy tails."""
    n, p = 200, 1400
    group = rng.integers(0, 3, n)
    factors, own = rng.standard_normal((n, 8)), rng.standard_normal((n, p))
    size = np.sqrt([0.1, 0.09, 0.05, 0.04, 0.03, 0.02, 0.02, 0.02])
    correlation = rng.uniform(0.3, 0.85, p)
    X = np.sqrt(0.4) * _chained(own, correlation)
    X += np.eye(3)[group] @ rng.standard_normal((3, p)) * np.sqrt(0.27)
    X += (factors * size) @ rng.standard_normal((8, p))
    heavy = rng.random(p) < 0.4
    return np.asarray(np.where(heavy, np.sign(X) * np.abs(X) ** 1.7, X))


def modules(rng: np.random.Generator) -> Array:
    """80 x 2000: modules of nine columns on average with correlations of .3 to .95, over four factors."""
    n, p, begin = 80, 2000, 0
    X = rng.standard_normal((n, p))
    while begin < p:
        size, shared = min(int(rng.geometric(0.12)) + 1, p - begin), rng.uniform(0.3, 0.95)
        module = rng.standard_normal((n, 1)) * rng.choice([-1, 1], size)
        own = X[:, begin : begin + size]
        X[:, begin : begin + size] = np.sqrt(shared) * module + np.sqrt(1 - shared) * own
        begin += size
    factors = rng.standard_normal((n, 4)) @ rng.standard_normal((4, p)) / 2
    return np.asarray(np.sqrt(0.7) * X + np.sqrt(0.3) * factors)


def chains(rng: np.random.Generator) -> Array:
    """150 x 1500: a column is correlated with the next by anything, .7 on average."""
    X = rng.standard_normal((150, 1500))
    return _chained(X, rng.beta(3, 1.2, 1500))


def pairs(rng: np.random.Generator) -> Array:
    """150 x 1400: pairs with correlations of .6 to .97, over three factors."""
    n, p = 150, 1400
    X, alike = rng.standard_normal((n, p)), rng.uniform(0.6, 0.97, p // 2)
    X[:, 1::2] = alike * X[:, ::2] + np.sqrt(1 - alike**2) * X[:, 1::2]
    factors = rng.standard_normal((n, 3)) @ rng.standard_normal((3, p)) / np.sqrt(3)
    return np.asarray(np.sqrt(0.85) * X + np.sqrt(0.15) * factors)


def _chained(X: Array, correlation: Array) -> Array:
    for j in range(1, X.shape[1]):
        X[:, j] = correlation[j] * X[:, j - 1] + np.sqrt(1 - correlation[j] ** 2) * X[:, j]
    return X


DESIGNS: tuple[Callable[[np.random.Generator], Array], ...] = (tissues, modules, chains, pairs)


def drawn(design: int, run: int) -> tuple[Array, NDArray[np.int_], NDArray[np.bool_]]:
    """Standardised columns, labels, and which 2 to 14 features have an effect; scores vary by 1.5 to 3.5."""
    rng = np.random.default_rng([design, run])
    X = standardised(np.asarray(DESIGNS[design](rng), dtype=np.float64))
    n_active, score_sd = int(rng.choice([2, 4, 8, 14])), rng.uniform(1.5, 3.5)
    chosen = rng.choice(X.shape[1], n_active, replace=False)
    equal = rng.random() < 0.5
    scores = X[:, chosen] @ (rng.choice([-1.0, 1.0], n_active) if equal else rng.standard_normal(n_active))
    chance = expit(score_sd * scores / scores.std())
    active = np.zeros(X.shape[1], dtype=bool)
    active[chosen] = True
    while True:
        y = np.where(rng.random(chance.size) < chance, 1, -1)
        if min(np.mean(y == 1), np.mean(y == -1)) >= RAREST_CLASS:
            return X, y, active


def fitted(
    X: Array, y: NDArray[np.int_], own: Parameters, start: EPState | None
) -> tuple[Array, float, EPState]:
    """Probabilities as they are published, the log evidence (none if EP did not settle), where EP ended."""
    weight, n_features = np.ones(y.size), X.shape[1]
    columns = Standardized.fit(Dense(X), weight)
    table = Table(columns, y.astype(float), weight, LeftOut(weight), Layout(n_features))
    effects = SpikeAndSlab(slab=Gaussian(own.slab), inclusion=own.expected / n_features)
    prior = OverBackground(effects, own.background / n_features)
    problem, solver = assembled(table, FlippedLabels(Logistic()), prior), EP()
    begin = None if start is None else solver.as_start(start)
    solution = solve(problem, solver, stopping=STOPPING, state=begin)
    at, state = solution.posterior, solution.state
    assert isinstance(state, EPState)
    inclusion = problem.prior.inclusion_probability(at.cavity_mean, at.cavity_var)  # type: ignore[attr-defined]
    published, _ = refined_inclusion(problem, state.all_sites, inclusion, state.all_tiles(problem))
    evidence = at.log_evidence if solution.outcome.trustworthy else -np.inf
    return published[:n_features], evidence, state


def compared(design: int, run: int) -> list[dict[str, Any]]:
    """A row for each of the parameters and averages, on one problem."""
    X, y, active = drawn(design, run)
    inclusion, evidence, start = fitted(X, y, PLAIN, None)
    found = {PLAIN: (inclusion, evidence)}
    found |= {other: fitted(X, y, other, start)[:2] for other in OTHERS}
    rows = [(str(own), probability, np.isfinite(evidence)) for own, (probability, evidence) in found.items()]
    for name, several in AVERAGES.items():
        probabilities, evidences = zip(*(found[own] for own in several), strict=True)
        if np.isfinite(evidences).any():
            rows.append((f"average: {name}", softmax(evidences) @ np.array(probabilities), True))
    n_active = int(active.sum())
    return [
        {"parameters": name, "settled": settled, "n_active": n_active}
        | judged(by_probability(np.asarray(probability)), active)
        for name, probability, settled in rows
    ]


def middle(group: pd.DataFrame) -> str:
    """Promised beyond true in the middle bins together (its standard error, runs being units; features)."""
    count, promised, true = (
        np.array([np.array(text.split(), dtype=float)[MIDDLE].sum() for text in group[name]])
        for name in ("count", "promised", "true")
    )
    total = max(count.sum(), 1.0)
    gap = (promised - true).sum() / total
    error = np.sqrt(np.sum((promised - true - gap * count) ** 2)) / total
    return f"{gap:+.3f} ({error:.3f}; {total:.0f})"


def main(argv: Sequence[str] | None = None) -> str:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=TRIALS, help="problems of each design")
    args = parser.parse_args(argv)
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for run in range(args.trials):
            for design in range(len(DESIGNS)):
                rows += compared(design, run)
    table = common.markdown(
        [
            "parameters",
            "problems",
            "unsettled",
            "promised beyond true, .2 to .7",
            "power at 10 % truly false",
            "average precision",
        ],
        [
            [
                name,
                len(group),
                f"{1 - group.settled.mean():.3f}",
                middle(group),
                f"{power_at(group, 0.1):.3f}",
                f"{group.average_precision.mean():.3f}",
            ]
            for name, group in pd.DataFrame(rows).groupby("parameters", sort=False)
        ],
    )
    print(table)
    return table


if __name__ == "__main__":
    main()
