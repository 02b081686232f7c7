"""The active set against all features: are inclusion probabilities the same?

python -m benchmarks.studies.background.active_set [--trials 200]

Problems of every simulated design, at a fit's plain parameters and at a finer tolerance than a fit has:
`BackgroundEP(exact_looks=True)`, which looks at held features now and then, beside `EP` over all of them in
double precision. Prints the largest differences, design by design, and returns the largest of all. Where one
is above the bar, `EP` is run with shorter steps, too, and weights are counted whose cavities are improper.
Beside a column that is nearly the same and has a negative site, a weight's site waits where it is, and where
that is hangs on the way there. Published probabilities are those of clusters (`selection.clusters`), whose
sites are taken out together.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.studies.background.designs import SIMULATED, task
from foldless.beliefs import Array
from foldless.channels import FlippedLabels, Logistic
from foldless.operators import Dense, Standardized
from foldless.problem import Problem, Solution
from foldless.selection.clusters import refined_inclusion
from foldless.solvers import EP, AdaptiveDamping, BackgroundEP, Stopping, solve
from foldless.tuning.fit import Choices
from foldless.tuning.models.sparse import plain_prior
from foldless.tuning.plan import BACKGROUND_SCORE_VARIANCE
from foldless.tuning.table import Layout, LeftOut, Table, assembled

TRIALS = 200
# Of the sizes of the study, so that all of them take minutes: 60 samples of 600 features.
SHARE = 0.4
STOPPING = Stopping(tol=1e-4, max_iter=1000, patience=100)
BAR = 1e-3
ACTIVE_SET = BackgroundEP(exact_looks=True)
SHORTER = EP(damping=AdaptiveDamping(first=0.5, smallest=0.1))


def main(argv: Sequence[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--share", type=float, default=SHARE, help="of the sizes of the study")
    args = parser.parse_args(argv)
    found: dict[str, list[float]] = {name: [] for name in SIMULATED}
    with threadpool_limits(1):
        for n in range(args.trials):
            run, design = divmod(n, len(found))
            drawn = task(list(found)[design], run, None, args.share)
            worst, published, waiting = difference(drawn.X, drawn.y)
            found[list(found)[design]].append(worst)
            if worst > BAR:
                own = difference(drawn.X, drawn.y, SHORTER)
                print(
                    f"{list(found)[design]}, run {run}: {worst:.1e}, published {published:.1e}; "
                    f"EP from itself {own.inclusion:.1e}, published {own.published:.1e}; {waiting} sites wait"
                )
    for name, some in found.items():
        if some:
            told = f"largest {np.nanmax(some):.1e}, median {np.nanmedian(some):.1e}"
            print(f"{name:20s} {len(some):3d} problems: {told}")
    every = np.concatenate(list(found.values()))
    largest, unsettled = float(np.nanmax(every)), int(np.isnan(every).sum())
    above = int(np.sum(every > BAR))
    print(f"{every.size} problems: largest {largest:.2e}; {above} above {BAR:g}; {unsettled} did not settle")
    return largest


class Difference(NamedTuple):
    """The largest from EP over all; not a number if one did not settle."""

    inclusion: float
    published: float  # after clusters have been judged together
    waiting: int  # weights with improper cavities, in either


def difference(X: Array, y: NDArray[np.int_], other: EP = ACTIVE_SET) -> Difference:
    """Of inclusion probabilities, from EP over all features."""
    weight, labels = np.ones(y.size), y.astype(np.float64)
    table = Table(Standardized.fit(Dense(X), weight), labels, weight, LeftOut(weight), Layout(X.shape[1]))
    choices = Choices("spike-and-slab", FlippedLabels(Logistic()), EP(), STOPPING)
    problem = assembled(table, choices.channel, plain_prior(table, choices, BACKGROUND_SCORE_VARIANCE))
    solutions = [solve(problem, solver, stopping=STOPPING) for solver in (EP(), other)]
    if not all(solution.outcome.trustworthy for solution in solutions):
        return Difference(float("nan"), float("nan"), 0)
    (all_in, all_published), (in_, published) = (_inclusion(problem, solution) for solution in solutions)
    waiting = [int(np.sum(~solution.state.weight_cavities.proper)) for solution in solutions]
    return Difference(
        float(np.max(np.abs(all_in - in_))), float(np.max(np.abs(all_published - published))), max(waiting)
    )


def _inclusion(problem: Problem, solution: Solution) -> tuple[Array, Array]:
    """As cavities have it, and as it is published."""
    at, state = solution.posterior, solution.state
    inclusion = problem.prior.inclusion_probability(at.cavity_mean, at.cavity_var)  # type: ignore[attr-defined]
    published, _ = refined_inclusion(problem, state.all_sites, inclusion, state.all_tiles(problem))
    return inclusion, published


if __name__ == "__main__":
    main()
