"""Correlated words: a ridge per occurrence, and few effects with that ridge as their background.

Most words are rare, and go with others by topic. A sparse model with a point at zero has to blame topics on
single words, and circles among them. Over a background it leaves them what they share: w_j = b_j + g_j, with
g_j of one size per occurrence. The background alone is a ridge regression, and what labels can see of it is a
matrix of samples by samples, one product over the non-zeros (`solvers.background_ep`). Both models share it.
"""

from __future__ import annotations

import numpy as np

from foldless.beliefs import Array
from foldless.priors import OverBackground
from foldless.problem import Outcome
from foldless.solvers import BackgroundEP, Stopping
from foldless.tuning.fit import SPARSE, Choices, Fit
from foldless.tuning.models.sparse import PLAIN, SparseFits, fit_sparse, patient, plain_prior
from foldless.tuning.plan import PATIENCE, RIDGE_MAX_ITER, DensePlan, SparsePlan
from foldless.tuning.portfolio import Model, channel_of, of_solution
from foldless.tuning.record import Recorder
from foldless.tuning.table import Table, assembled, with_prior

# Moves of labels over a background alone shrink to a third each time: what is left is a hundredth of scores.
RIDGE_STOPPING = Stopping(tol=0.03, max_iter=RIDGE_MAX_ITER, patience=PATIENCE)


def fit_words(
    table: Table,
    sparse: SparsePlan,
    dense: DensePlan,
    unit: Array,
    choices: Choices,
    recorder: Recorder,
    warm: SparseFits | None = None,
) -> tuple[SparseFits, list[Model]]:
    """The sparse model over its background, and the background alone, if it settles."""
    (recipe,) = dense.recipes
    problem = assembled(table, channel_of(recipe))
    variance = np.ones(problem.operator.shape[1])
    variance[: unit.size] = unit**2
    variance *= sparse.background / max(table.n_free, 1)
    problem = with_prior(problem, OverBackground(plain_prior(table, choices, 0.0), variance))
    alone = BackgroundEP(effects=False)
    ridge = recorder.solve(
        problem, alone, model="ridge", purpose="fit", stopping=RIDGE_STOPPING, detail=recipe.name
    )
    if ridge.outcome is Outcome.INTERRUPTED:
        raise KeyboardInterrupt
    settled = ridge.outcome.trustworthy
    dense_models = [of_solution(recipe.code, recipe.name, ridge, table)] if settled else []
    if warm is not None:
        return fit_sparse(table, sparse, choices, recorder, warm=warm), dense_models
    solver = BackgroundEP()
    solution = recorder.solve(
        problem.but(channel=choices.channel),
        solver,
        model=SPARSE,
        purpose="fit",
        stopping=patient(choices, sparse, PLAIN).stopping,
        state=solver.as_start(ridge.state) if settled else None,
        detail=PLAIN,
    )
    return SparseFits.one(Fit.of(solution, table), solver, PLAIN), dense_models
