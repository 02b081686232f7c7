"""A message-passing answer, finished with exact covariances where that costs little.

GAMP finds parameters and weights fast, and for independent columns its means are right; its variances take
the columns of a finite table for independent, too, and come out too small. EP goes on from its answer, with
parameters as they are. A blend with class means (generative weight above 0) has no EP form, and stays.
"""

from __future__ import annotations

from dataclasses import replace

from foldless.solution import History, Outcome
from foldless.solvers import EP, Stopping, solve
from foldless.solvers.solve import Watch
from foldless.tuning.fit import Fit

STOPPING = Stopping(tol=1e-3, max_iter=100, patience=40)


def polished(found: Fit, watch: Watch | None = None) -> Fit:
    """The fit with the posterior of EP, or as it was if that does not settle."""
    solution = found.solution
    if found.generative_weight > 0 or not solution.outcome.trustworthy:
        return found
    solver, posterior, state = EP(), solution.posterior, solution.state
    start = solver.from_beliefs(
        solution.problem,
        weight_mean=posterior.mean,
        weight_var=posterior.var,
        cavity_mean=posterior.cavity_mean,
        cavity_var=posterior.cavity_var,
        score_cavity_mean=state.score_cavity_mean,
        score_cavity_var=state.score_cavity_var,
    )
    exact = solve(solution.problem, solver, stopping=STOPPING, state=start, watch=watch)
    if not (exact.outcome.trustworthy or exact.outcome is Outcome.INTERRUPTED):
        return found
    history = History(solution.history.iterations + exact.history.iterations)
    outcome = solution.outcome if exact.outcome.trustworthy else exact.outcome
    finished = replace(exact, history=history, outcome=outcome)
    return replace(found, solution=finished, n_iter=found.n_iter + len(exact.history))
